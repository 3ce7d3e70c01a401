// A page of something that goes on reads its file again, and says how old it is.

const reloadAfter = Number(document.documentElement.dataset.reload) * 1000;

/** What a reader chose, as long as the tab is open. A browser may refuse to keep it. */
function kept(name, value) {
    try {
        if (value === undefined) return sessionStorage.getItem(`${location.pathname} ${name}`);
        sessionStorage.setItem(`${location.pathname} ${name}`, value);
    } catch {
        // The choice is lost with the next reload.
    }
    return null;
}

document.querySelectorAll("details[id]").forEach((details) => {
    const open = kept(`open ${details.id}`);
    if (open !== null) details.open = open === "yes";
    details.addEventListener("toggle", () => kept(`open ${details.id}`, details.open ? "yes" : "no"));
});

/** What can have the focus, which a reload takes and gives back. */
function focusable() {
    return [...document.querySelectorAll("a, button, summary, .scroll")];
}

function age(seconds) {
    if (seconds < 120) return `${Math.round(seconds)} s`;
    if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
    return `${Math.round(seconds / 3600)} h`;
}

if (reloadAfter) {
    const written = document.querySelector("[data-written]");
    const box = document.querySelector(".reload");
    let paused = kept("paused") === "yes";
    const toggle = document.createElement("button");
    toggle.type = "button";
    const label = () => {
        toggle.textContent = paused ? "go on reloading" : "stop reloading";
    };
    toggle.addEventListener("click", () => {
        paused = !paused;
        kept("paused", paused ? "yes" : "no");
        label();
    });
    label();
    box.append(toggle);
    const tell = () => {
        const seconds = Math.max(0, Date.now() / 1000 - Number(written.dataset.written));
        written.textContent = `written ${age(seconds)} ago`;
        const quiet = seconds > Math.max(120, 3 * Number(written.dataset.every));
        document.querySelector(".quiet").hidden = !quiet;
    };
    tell();
    setInterval(tell, 1000);
    // Nothing is taken from a reader who reads a value or marks a text.
    const reads = () =>
        document.querySelector(".plot:focus, .plot:hover") !== null || String(getSelection()).length > 0;
    setInterval(() => {
        if (paused || reads() || document.hidden) return;
        kept("focus", String(focusable().indexOf(document.activeElement)));
        location.reload();
    }, reloadAfter);
    const focused = focusable()[Number(kept("focus") ?? -1)];
    if (focused) focused.focus({ preventScroll: true });
}
