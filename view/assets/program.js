// The program of a stage: rows, search, the slider over stages.

class ProgramView {
    constructor(app) {
        this.app = app;
        this.hits = [];
        this.hit = -1;
        this.wanted = "";
        this.list = new RowList(
            "program",
            (row) => this.cells(row),
            (row, how, name) => this.act(row, how, name),
        );
    }

    show(host) {
        this.summary = el("p", { class: "summary" });
        this.found = el("output", { class: "found", "aria-live": "polite" });
        this.search = el("input", {
            type: "search",
            id: "search",
            placeholder: "name, operator, type, executor",
            value: this.wanted,
            oninput: () => this.find(),
            onkeydown: (event) => {
                if (event.key === "Enter") {
                    this.next(event.shiftKey ? -1 : 1);
                    event.preventDefault();
                }
            },
        });
        const marks = el("input", {
            type: "checkbox",
            checked: this.app.marked,
            onchange: () => {
                this.app.marked = marks.checked;
                this.refresh();
            },
        });
        this.idle = el("input", {
            type: "checkbox",
            id: "hide-idle",
            checked: idleHidden,
            onchange: () => this.hideIdle(this.idle.checked),
        });
        this.idleLabel = el("span", {});
        const tools = el(
            "div",
            { class: "tools" },
            el("label", { class: "field", for: "search" }, "search"),
            this.search,
            this.found,
            button("previous hit", () => this.next(-1)),
            button("next hit", () => this.next(1)),
            button("fold all", () => this.foldAll(false)),
            button("unfold scopes", () => this.foldAll(true)),
            el("label", { class: "field" }, marks, "mark what the stage changed"),
            el("label", { class: "field" }, this.idle, this.idleLabel),
        );
        host.replaceChildren(
            this.app.stageTools(),
            this.summary,
            tools,
            el(
                "div",
                { class: `split${this.app.subject().sources.length ? " with-sources" : ""}` },
                this.list.grid,
                this.app.aside,
            ),
        );
        this.refresh();
        this.collect();
    }

    refresh() {
        const stage = this.app.stage();
        if (!stage) return;
        const block = this.app.block();
        const marks = this.app.changes();
        this.list.set(rowsOf(block, stage, marks, this.app.subject()));
        const idle = this.idleLines();
        this.idleLabel.textContent = `hide ${counted(idle, "line")} that ${idle === 1 ? "runs" : "run"} nothing`;
        this.idle.disabled = idle === 0;
        // As wide as the longest name; nothing before lines are taken.
        const widths = block.lines.map((line) => (line.executor || "").length);
        const widest = widths.reduce((most, width) => Math.max(most, width), 0);
        this.list.grid.style.setProperty("--by", widest ? `${Math.min(widest, 14) + 1}ch` : "0px");
        const { totals } = stage;
        const facts = [
            `${stage.function} for ${stage.target}`,
            counted(totals.symbols, "line"),
            `${grouped(block.lines.filter((line) => line.executor).length - idle)} that run`,
            `${bytesText(totals.bytes)} read and written`,
            `${grouped(totals.flops)} FLOPs`,
        ];
        if (totals.peak_memory !== null) facts.push(`peak ${bytesText(totals.peak_memory)}`);
        if (marks) {
            const { added, removed, changed } = marks.counts;
            facts.push(
                `${stage.name} against the stage before: ${added} added, ${removed} removed, ${changed} changed`,
            );
        }
        this.summary.textContent = facts.join(" · ");
        this.app.drawAside();
    }

    cells(row) {
        const fold = row.foldable
            ? el("span", { class: "fold", "aria-hidden": "true" }, row.open ? "▾" : "▸")
            : el("span", { class: "fold" });
        const sign = el("span", { class: "sign" }, row.sign || "");
        const text = el("span", { role: "gridcell", class: "text" }, sign, fold, this.content(row));
        text.style.paddingLeft = `${row.depth * 1.5}ch`;
        // The executor stays in sight where the line is cut off.
        const executor = row.line && row.kind === "line" ? row.line.executor : null;
        return [el("span", { role: "gridcell", class: "by", title: executor && `run by ${executor}` }, executor || ""), text];
    }

    content(row) {
        const below = row.scope ? `${row.scope}.` : null;
        const short = (name) => (below && name.startsWith(below) ? `.${name.slice(below.length)}` : written(name));
        const value = (name) => el("span", { class: "value", "data-name": name, title: name }, short(name));
        switch (row.kind) {
            case "inputs":
                return `inputs (${row.count})`;
            case "input": {
                const [role, donated, strides] = row.input || ["", false, null];
                const words = [role, donated && "donated", strides && `strides [${strides.join(", ")}]`].filter(
                    Boolean,
                );
                return [
                    value(row.parameter.name),
                    `: ${row.parameter.type ? row.parameter.type[0] : "?"} ${words.join(" ")}`,
                ];
            }
            case "scope": {
                const changed = row.changed ? `, ${row.changed} changed` : "";
                return [el("strong", {}, row.name), ` ${counted(row.count, "line")}${changed}`];
            }
            case "pass":
                return `pass ${row.name}`;
            case "gone":
                return linked(row.line, (name) => written(name));
            case "parameters":
                return [
                    "(",
                    commas(row.block.parameters.map(({ name, type }) => [value(name), `: ${type ? type[0] : "?"}`])),
                    ")",
                ];
            case "yield":
                return ["yield ", commas(row.block.results.map(value))];
            case "output":
                return [row.path ? `${row.path} = ` : "", value(row.name)];
            case "return":
                if (row.foldable) return `return ${grouped(row.count)} values`;
                return [
                    "return ",
                    commas(
                        row.block.results.map((name, i) => [
                            row.outputs[i] ? `${row.outputs[i]} = ` : "",
                            value(name),
                        ]),
                    ),
                ];
            default: {
                const ends = row.block.ends.get(row.at);
                return [
                    linked(withoutExecutor(row.line), value, MOST_NAMES),
                    row.foldable ? " {…}" : "",
                    row.line.refusals.length
                        ? el(
                              "span",
                              { class: "tag" },
                              ` refused by ${row.line.refusals.map(([name]) => name).join(", ")}`,
                          )
                        : "",
                    ends && !idleHidden ? ["; del ", ends.length > MOST_ENDS ? `${ends.length} values` : commas(ends.map(value))] : "",
                ];
            }
        }
    }

    act(row, how, name) {
        if (how === "fold") {
            folds.set(row.key, !row.open);
            this.refresh();
        } else if (how === "name") {
            this.app.showValue(name, row.block);
        } else if (row.kind === "line") {
            this.app.select({ kind: "line", block: row.block, at: row.at, way: row.way });
        } else if (row.kind === "input" || row.kind === "output") {
            this.app.showValue(row.kind === "input" ? row.parameter.name : row.name, row.block);
        } else if (row.kind === "gone") {
            this.app.select({ kind: "gone", line: row.line });
        }
        if (how === "enter") this.app.focusDetails();
    }

    /** Opens what hides line `at` of the program, or a line of a body in it that `within` leads to, and goes there. */
    goTo(at, within) {
        // A line that a link leads to is shown.
        if (isHidden(this.app.block().lines[at], this.app.subject())) this.hideIdle(false);
        const rows = () => rowsOf(this.app.block(), this.app.stage(), this.app.changes(), this.app.subject());
        let [found, hidden] = [this.list.rows, false];
        while (reveal(at, found)) [found, hidden] = [rows(), true];
        if (hidden) this.list.set(found);
        const own = this.list.rows.findIndex((row) => row.kind === "line" && row.outer === "" && row.at === at);
        if (own < 0) return;
        if (!within || !within.length) {
            this.list.goTo(own, true);
            return;
        }
        let row = this.list.rows[own];
        for (const inner of within) {
            folds.set(row.key, true);
            this.list.set(rows());
            const outer = `${row.outer}${row.line.results[0] || `line ${row.at}`}/`;
            row = this.list.rows.find((of) => of.kind === "line" && of.outer === outer && of.at === inner);
        }
        this.list.goTo(this.list.rows.indexOf(row), true);
    }

    /** How many lines of the stage run nothing. */
    idleLines() {
        return this.app.block().lines.filter((line) => isIdle(line, this.app.subject())).length;
    }

    /** Leaves out the lines that run nothing, and the ends of values, or shows them. */
    hideIdle(hide) {
        idleHidden = hide;
        if (this.idle) this.idle.checked = hide;
        this.refresh();
        announce(`${counted(this.idleLines(), "line")} that run nothing ${hide ? "hidden" : "shown"}`);
    }

    /** Closes everything, or opens all scopes; bodies are opened one by one. */
    foldAll(open) {
        folds.clear();
        scopesOpen = open;
        this.refresh();
    }

    find() {
        this.collect();
        if (this.hits.length) this.next(1);
    }

    /** Collects the lines that have what is searched. */
    collect() {
        this.wanted = this.search.value;
        const wanted = this.wanted.trim().toLowerCase();
        this.hits = wanted ? hitsOf(this.app.block(), wanted, []) : [];
        this.hit = -1;
        this.found.textContent = wanted ? (this.hits.length ? counted(this.hits.length, "hit") : "no hit") : "";
    }

    next(step) {
        if (!this.hits.length) return;
        this.hit = (this.hit + step + this.hits.length) % this.hits.length;
        this.found.textContent = `${this.hit + 1} of ${this.hits.length}`;
        const [at, ...within] = this.hits[this.hit];
        this.goTo(at, within);
    }
}

/** A line whose text leaves out its executor, which has a column. */
function withoutExecutor(line) {
    const by = line.executor ? ` by ${written(line.executor)}` : "";
    const at = by ? line.template.lastIndexOf(by) : -1;
    return at < 0 ? line : { ...line, template: line.template.slice(0, at) + line.template.slice(at + by.length) };
}

/** The most names that a row writes, so that rows of thousands of names are drawn at once; the details have all. */
const MOST_NAMES = 60;
const MOST_ENDS = 20;
