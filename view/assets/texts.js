// Texts: what cannot be read, with the error in its place, and the sources of kernels.

class TextsView {
    constructor(app) {
        this.app = app;
    }

    show(host) {
        const parts = [];
        for (const [subject, { name, unread, sources }] of Data.subjects.entries()) {
            if (unread) parts.push(this.unread(name, unread));
            for (const [number, source] of sources.entries()) {
                const options = source.options.length ? ` ${source.options.join(" ")}` : "";
                parts.push(
                    el(
                        "details",
                        { open: sources.length === 1 },
                        el("summary", {}, `${source.name}${options}`),
                        this.running(subject, number),
                        el("pre", { tabindex: 0, class: "source" }, source.text),
                    ),
                );
            }
        }
        host.replaceChildren(...parts);
    }

    /** The lines that run a source, with links to them. */
    running(subject, number) {
        const { stages, kernels } = Data.subjects[subject];
        const names = kernels.filter(([, numbers]) => numbers.includes(number)).map(([name]) => name);
        if (!stages.length || !names.length) return null;
        const block = blockOf(stages[stages.length - 1].block);
        const go = (name) => this.app.goToName(subject, stages.length - 1, name);
        const label = (name) => shortened(textOf(block.lines[block.values.get(name).at]));
        const known = names.filter((name) => block.values.has(name) && block.values.get(name).at >= 0);
        return el(
            "div",
            { class: "running" },
            el("p", {}, `Run by ${counted(known.length, "line")}:`),
            el(
                "ul",
                {},
                some(known, (name) => link(label(name), () => go(name))),
            ),
        );
    }

    unread(name, { text, line, place, column, message }) {
        const lines = text.split("\n");
        const at = Math.min(line, lines.length);
        const rest = lines.slice(at);
        return el(
            "section",
            { class: "unread" },
            el("h2", {}, name),
            el("pre", { tabindex: 0 }, lines.slice(0, at).join("\n")),
            el("p", { class: "banner", role: "alert" }, `line ${place}, column ${column}: ${message}`),
            rest.length > 0 &&
                el(
                    "details",
                    {},
                    el("summary", {}, `${counted(rest.length, "line")} not read`),
                    el("pre", { tabindex: 0 }, rest.join("\n")),
                ),
        );
    }
}
