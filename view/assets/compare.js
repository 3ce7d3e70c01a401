// Two programs side by side, by the comparison of `trace diff`.

class CompareView {
    constructor(app) {
        this.app = app;
        const differs = Data.comparisons.filter((of) => of.words !== "no difference");
        const changed = differs.find(({ difference }) => difference.lines.length) || differs[0];
        this.at = Math.max(Data.comparisons.indexOf(changed), 0);
        this.shown = 200;
    }

    show(host) {
        const { comparisons } = Data;
        const of = comparisons[this.at];
        const [before, after] = Data.subjects;
        const stages = comparisons.map((one, i) => [i, `${one.stage} \u2013 ${comparisonText(one)}`]);
        const blocks = [before.stages[of.before], after.stages[of.after]].map((stage) => blockOf(stage.block));
        const lines = blocks.map(opened);
        const matched = matchedLines(of, lines);
        const { difference } = of;
        const sides = [
            [0, of.before],
            [1, of.after],
        ];
        host.replaceChildren(
            el(
                "div",
                { class: "tools" },
                select("stage", stages, this.at, (value) => {
                    this.at = Number(value);
                    this.shown = 200;
                    this.show(host);
                }),
            ),
            el("p", { class: "summary" }, `before: ${before.name} · after: ${after.name}`),
            el("p", { class: "common" }, commonText(matched, lines, [before.name, after.name])),
            el("p", { class: "summary" }, `after ${of.stage}: ${comparisonText(of)}`),
            totalsTable(difference.totals),
            fusionsSection(this.app, of, blocks, matched) || "",
            movesTable(matched) || "",
            (difference.header.length > 0 &&
                table(
                    "Header",
                    ["what", "before", "after"],
                    difference.header.map(({ what, before: was, after: is }) => [what, was, is]),
                )) ||
                "",
            el(
                "ol",
                { class: "changes", "aria-label": "changed lines" },
                difference.lines.slice(0, this.shown).map((line) => changeItem(this.app, line, sides)),
            ),
            difference.lines.length > this.shown
                ? button(`show ${difference.lines.length - this.shown} more`, () => {
                      this.shown += 1000;
                      this.show(host);
                  })
                : "",
        );
    }
}
