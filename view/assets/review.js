// The list of a page of many comparisons: what changed, the weightiest first. Each file opens as a page of its own.

/** What the fragment of an opened comparison begins with. */
function fragmentPrefix() {
    return Opened === null ? "" : `${Opened}/`;
}

/** The way from a comparison back to the list, and to the next one. */
function toReview() {
    if (!Review) return false;
    const place = Review.entries[Opened];
    const next = Review.entries.findIndex((entry, i) => i > Opened && entry.opens);
    return el(
        "nav",
        { class: "review-path", "aria-label": "review" },
        el("a", { href: "#" }, "‹ all changes"),
        ` ${Opened + 1} of ${Review.entries.length}: ${place.path}, ${place.state} `,
        next > 0 && el("a", { href: `#${next}` }, "next ›"),
    );
}

// Another fragment is another comparison: the page begins anew. Views of one comparison do not come here, since they
// replace the fragment without an event.
if (Review) window.addEventListener("hashchange", () => location.reload());

class ReviewList {
    constructor() {
        this.words = "";
        this.all = false;
    }

    start() {
        const [before, after] = Review.between;
        this.host = el("div", {});
        this.search = el("input", {
            type: "search",
            id: "search",
            placeholder: "operator, executor, words of a change",
            oninput: () => {
                this.words = this.search.value.toLowerCase();
                this.draw();
            },
        });
        document.getElementById("app").append(
            el("header", {}, el("h1", {}, `${before} → ${after}`)),
            el(
                "main",
                { class: "review" },
                el("p", { class: "summary" }, Review.summary),
                el(
                    "div",
                    { class: "tools" },
                    el("label", { class: "field", for: "search" }, "search"),
                    this.search,
                    el("span", { class: "found", role: "status", id: "status" }),
                ),
                this.host,
                this.texts(),
            ),
            el("footer", {}, "Key: / search."),
        );
        document.addEventListener("keydown", (event) => {
            if (event.key !== "/" || event.target === this.search || event.ctrlKey || event.metaKey || event.altKey)
                return;
            this.search.focus();
            event.preventDefault();
        });
        this.draw();
    }

    draw() {
        const shown = Review.entries.map((entry, i) => [entry, i]).filter(([entry]) => this.has(entry));
        const told = shown.filter(([entry]) => entry.programs.some((program) => !program.trivial));
        const folded = shown.filter(([entry]) => entry.programs.every((program) => program.trivial));
        announce(this.words ? `${shown.length} of ${Review.entries.length}` : "");
        const list = (entries) =>
            el(
                "ol",
                { class: "entries" },
                entries.map(([entry, i]) => this.entry(entry, i)),
            );
        this.host.replaceChildren(
            list(told),
            folded.length > 0
                ? el(
                      "details",
                      { class: "folded", open: told.length === 0 },
                      el("summary", {}, `${folded.length} in names, order or places in memory alone`),
                      list(folded),
                  )
                : "",
        );
    }

    has(entry) {
        const text = [entry.subject, entry.path, ...entry.programs.flatMap((one) => [one.stage, one.target])];
        text.push(...entry.programs.flatMap((one) => one.findings.flat()));
        return text.join("\n").toLowerCase().includes(this.words);
    }

    entry(entry, i) {
        const link = (text, heading) => {
            const fragment = heading === null ? `#${i}` : `#${i}/compare/${encodeURIComponent(heading)}`;
            return entry.opens ? el("a", { href: fragment }, text) : text;
        };
        return el(
            "li",
            { class: "entry" },
            el("h2", {}, link(entry.subject, null), " ", el("span", { class: "tag" }, entry.state)),
            el("p", { class: "summary" }, entry.path, !entry.opens && " · its programs do not fit into this page"),
            entry.programs.map((program) =>
                el(
                    "section",
                    {},
                    el(
                        "h3",
                        {},
                        link(program.stage, program.heading),
                        program.target && el("span", { class: "tag" }, ` for ${program.target}`),
                    ),
                    program.trivial
                        ? el("p", { class: "hint" }, "names, order or places in memory alone")
                        : el(
                              "dl",
                              { class: "findings" },
                              program.findings.map(([about, text]) =>
                                  el("div", {}, el("dt", {}, about), el("dd", { class: "code wrap" }, text)),
                              ),
                          ),
                ),
            ),
            entry.same > 0 && el("p", { class: "hint" }, `${entry.same} more as before`),
        );
    }

    texts() {
        return (
            Review.texts.length > 0 &&
            el(
                "details",
                { class: "folded" },
                el("summary", {}, `${Review.texts.length} other texts`),
                el(
                    "ul",
                    {},
                    Review.texts.map((path) => el("li", { class: "code wrap" }, path)),
                ),
            )
        );
    }
}
