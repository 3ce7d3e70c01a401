// Texts: what cannot be read, with the error in its place, and the sources of kernels.

class TextsView {
    constructor(app) {
        this.app = app;
    }

    show(host) {
        const parts = [];
        for (const { name, unread, sources } of Data.subjects) {
            if (unread) parts.push(this.unread(name, unread));
            for (const source of sources) {
                const options = source.options.length ? ` ${source.options.join(" ")}` : "";
                parts.push(
                    el(
                        "details",
                        { open: sources.length === 1 },
                        el("summary", {}, `${source.name}${options}`),
                        el("pre", { tabindex: 0, class: "source" }, source.text),
                    ),
                );
            }
        }
        host.replaceChildren(...parts);
    }

    unread(name, { text, line, column, message }) {
        const lines = text.split("\n");
        const at = Math.min(line, lines.length);
        const rest = lines.slice(at);
        return el(
            "section",
            { class: "unread" },
            el("h2", {}, name),
            el("pre", { tabindex: 0 }, lines.slice(0, at).join("\n")),
            el("p", { class: "banner", role: "alert" }, `line ${line}, column ${column}: ${message}`),
            rest.length > 0 &&
                el(
                    "details",
                    {},
                    el("summary", {}, `${rest.length} lines that were not read`),
                    el("pre", { tabindex: 0 }, rest.join("\n")),
                ),
        );
    }
}
