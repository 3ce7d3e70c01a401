// Who took each line, who refused it, and why.

class WhyView {
    constructor(app) {
        this.app = app;
        this.wanted = "";
    }

    show(host) {
        const block = this.app.block();
        const places = block.lines.map((line, at) => ({ line, at }));
        host.replaceChildren(
            this.app.stageTools(),
            el(
                "div",
                { class: "columns" },
                el(
                    "div",
                    {},
                    this.takers(places),
                    this.refusals(places),
                    ordersSection(this.app),
                    this.lines(places),
                ),
                this.app.aside,
            ),
        );
        this.app.drawAside();
    }

    takers(places) {
        const counts = new Map();
        for (const { line } of places) {
            const key = line.executor || "nobody yet";
            if (!counts.has(key)) counts.set(key, { lines: 0, operators: new Map() });
            const count = counts.get(key);
            count.lines += 1;
            count.operators.set(line.operator, (count.operators.get(line.operator) || 0) + 1);
        }
        const rows = [...counts]
            .sort((a, b) => b[1].lines - a[1].lines)
            .map(([name, { lines, operators }]) => [
                name,
                lines,
                [...operators]
                    .sort((a, b) => b[1] - a[1])
                    .slice(0, 8)
                    .map(([operator, times]) => `${operator} ${times}`)
                    .join(", "),
            ]);
        return table("Who runs the lines", ["executor", "lines", "operators, the most frequent first"], rows);
    }

    refusals(places) {
        const groups = new Map();
        for (const { line, at } of places) {
            for (const [executor, reason] of line.refusals) {
                const key = `${executor}\t${line.operator}\t${reason}`;
                if (!groups.has(key)) groups.set(key, { executor, reason, operator: line.operator, lines: [] });
                groups.get(key).lines.push({ line, at });
            }
        }
        if (!groups.size) {
            const { stages } = this.app.subject();
            const refused = (stage) => blockOf(stage.block).lines.some((line) => line.refusals.length);
            const other = stages.findLastIndex(refused);
            return el(
                "p",
                { id: "refusals" },
                "No executor refused a line of this stage. ",
                other >= 0 && button(`refusals of ${stages[other].name}`, () => this.app.setStage(other)),
            );
        }
        const sorted = [...groups.values()].sort((a, b) => b.lines.length - a.lines.length);
        return el(
            "section",
            { id: "refusals" },
            el("h2", {}, "Refusals"),
            sorted.map(({ executor, reason, operator, lines }) => {
                const takers = [...new Set(lines.map(({ line }) => line.executor || "nobody"))].join(", ");
                return el(
                    "details",
                    { class: "refusal" },
                    el(
                        "summary",
                        {},
                        el("strong", {}, executor),
                        ` refused ${operator}: ${reason} `,
                        el(
                            "span",
                            { class: "tag" },
                            `${counted(lines.length, "line")}, taken by ${takers}`,
                        ),
                    ),
                    el(
                        "ul",
                        {},
                        some(lines, ({ at }) => lineLink(this.app, this.app.block(), at)),
                    ),
                );
            }),
        );
    }

    lines(places) {
        const host = el("ul", { class: "plain" });
        const draw = () => {
            const wanted = this.wanted.trim().toLowerCase();
            const found = wanted ? places.filter(({ line }) => searchable(line).includes(wanted)) : [];
            host.replaceChildren(
                ...some(found, ({ line, at }) => [
                    lineLink(this.app, this.app.block(), at),
                    ` taken by ${line.executor || "nobody yet"}`,
                    line.refusals.length > 0 &&
                        el(
                            "ul",
                            {},
                            line.refusals.map(([executor, reason]) => el("li", {}, `${executor}: ${reason}`)),
                        ),
                ]),
            );
        };
        const box = el("input", {
            type: "search",
            id: "why-search",
            value: this.wanted,
            oninput: () => {
                this.wanted = box.value;
                draw();
            },
        });
        draw();
        return el(
            "section",
            {},
            el("h2", {}, "One line"),
            el("label", { class: "field" }, "name, operator or executor ", box),
            host,
        );
    }
}
