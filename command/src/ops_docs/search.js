"use strict";
{
    const rows = [...document.querySelectorAll("#operators tbody tr")];
    const [words, family, found] = ["words", "family", "found"].map((id) => document.getElementById(id));
    const show = () => {
        const wanted = words.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
        let count = 0;
        for (const row of rows) {
            const fits = wanted.every((word) => row.dataset.words.includes(word));
            row.hidden = !fits || (family.value !== "" && row.dataset.family !== family.value);
            count += row.hidden ? 0 : 1;
        }
        found.textContent = `${count} of ${rows.length} operators`;
    };
    words.addEventListener("input", show);
    family.addEventListener("input", show);
    words.form.addEventListener("submit", (event) => event.preventDefault());
    // Enter opens the first that was found.
    words.addEventListener("keydown", (event) => {
        const first = rows.find((row) => !row.hidden);
        if (event.key === "Enter" && first) {
            event.preventDefault();
            location.href = first.querySelector("a").href;
        }
    });
    document.addEventListener("keydown", (event) => {
        if (event.key === "/" && document.activeElement !== words) {
            event.preventDefault();
            words.focus();
        }
    });
    // A browser that comes back fills in what was searched for.
    show();
}
