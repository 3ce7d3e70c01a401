// Where the time of a run went: symbols on streams, the roofline, the share of the floor.

/** An amount by the time of a span; below all others where either is not known. */
function perTime(amount, span) {
    return amount === null || span.took === 0 ? -1 : amount / span.took;
}

const TIME_COLUMNS = [
    ["time", (span) => span.took],
    ["share of the run", (span) => span.took],
    ["floor", (span) => span.floor ?? -1],
    ["floor / time", (span) => perTime(span.floor, span)],
    ["bytes", (span) => span.bytes ?? -1],
    ["bytes a second", (span) => perTime(span.bytes, span)],
    ["FLOPs", (span) => span.flops ?? -1],
    ["FLOPs a second", (span) => perTime(span.flops, span)],
];

class TimeView {
    constructor(app) {
        this.app = app;
        this.chosen = null;
        this.sorted = 0;
        this.grouped = false;
        this.all = false;
    }

    show(host) {
        this.time = timeOf(this.app.subject());
        if (!this.time) {
            host.replaceChildren(this.app.stageTools(), el("p", {}, "No profile of this program was given."));
            return;
        }
        if (!this.chosen || !this.time.spans.includes(this.chosen)) this.chosen = this.longest();
        this.facts = el("p", { class: "summary wrap", id: "time-chosen" });
        this.rows = el("div", {});
        this.lanes = new Lanes("symbols of one run", this.time.spans, {
            choose: (span) => this.choose(span),
            enter: (span) => this.goTo(span),
            words: (span) => this.words(span),
        });
        this.roof = new Roofline(this.time, (span) => this.choose(span));
        host.replaceChildren(
            this.summary(),
            el("h2", {}, "Symbols on streams"),
            this.lanes.node,
            this.facts,
            el(
                "details",
                { id: "roofline", open: true },
                el("summary", {}, "Roofline"),
                this.roof.node,
            ),
            this.rows,
            this.timeline(),
        );
        this.lanes.draw();
        this.drawRows();
        this.choose(this.chosen);
    }

    longest() {
        return this.time.spans.reduce((best, span) => (span.took > best.took ? span : best));
    }

    summary() {
        const { time } = this;
        const from = (source) => (source === null ? "" : ` (${source})`);
        const known = time.spans.filter((span) => span.floor !== null);
        const floor = known.reduce((sum, span) => sum + span.floor, 0);
        const took = known.reduce((sum, span) => sum + span.took, 0);
        const facts = [
            `${time.function} for ${time.target}`,
            `${counted(time.spans.length, "symbol")} in ${timeText(time.total)}`,
            time.bytes_per_second === null
                ? "no ceiling of memory is known (--peak-gbps)"
                : `memory at most ${perSecondText(time.bytes_per_second, "B/s")}${from(time.sources[0])}`,
            time.flops_per_second === null
                ? "no ceiling of arithmetic is known (--peak-tflops)"
                : `arithmetic at most ${perSecondText(time.flops_per_second, "FLOP/s")}${from(time.sources[1])}`,
        ];
        if (known.length) facts.push(`the floor is ${timeText(floor)}, ${percent(floor, took)} of the time`);
        return el("p", { class: "summary" }, facts.join(" · "));
    }

    /** A span in words. */
    words(span) {
        const parts = [
            `${span.name} by ${span.executor} on ${span.stream}`,
            `${timeText(span.took)} from ${timeText(span.start)}, ${percent(span.took, this.time.total)} of the run`,
        ];
        if (span.bytes !== null) parts.push(`${bytesText(span.bytes)}, ${rateText(span.bytes, span.took, "B/s")}`);
        if (span.flops) parts.push(`${grouped(span.flops)} FLOPs, ${rateText(span.flops, span.took, "FLOP/s")}`);
        if (span.floor !== null)
            parts.push(`floor ${timeText(span.floor)}, ${percent(span.floor, span.took)} of its time`);
        return parts.join("; ");
    }

    /** Shows a span; `later` if the view is about to be opened. */
    choose(span, later) {
        this.chosen = span;
        if (later) return;
        const place = this.placeOf(span);
        this.facts.replaceChildren(
            place ? link(written(span.result ?? span.name), () => this.goTo(span)) : written(span.result ?? span.name),
            `: ${this.words(span)}`,
        );
        this.lanes.mark(span);
        this.roof.mark(span);
        this.rows.querySelectorAll("tr[data-span]").forEach((row) => {
            const chosen = Number(row.dataset.span) === span.at;
            row.classList.toggle("chosen", chosen);
            row.toggleAttribute("aria-current", chosen);
        });
    }

    /** The stage and the line that a span is of: in the stage at hand, or in the last stage that has it. */
    placeOf(span) {
        const { stages } = this.app.subject();
        const here = this.app.stages[this.app.subjectAt];
        const order = [here, ...stages.map((_, at) => at).reverse()];
        for (const stage of order.filter((at) => stages[at])) {
            const block = blockOf(stages[stage].block);
            const value = span.result !== null && block.values.get(span.result);
            const at = value ? value.at : block.lines.findIndex((line) => textOf(line) === span.line);
            if (at !== null && at >= 0) return { stage, at };
        }
        return null;
    }

    goTo(span) {
        const place = this.placeOf(span);
        if (!place) return;
        this.app.stages[this.app.subjectAt] = place.stage;
        this.app.settled = true;
        this.app.goToLine(this.app.block(), place.at);
    }

    drawRows() {
        const { time } = this;
        const spans = this.grouped ? this.groups() : [...time.spans];
        const [, key] = TIME_COLUMNS[this.sorted];
        spans.sort((a, b) => key(b) - key(a));
        const shown = this.all ? spans : spans.slice(0, 100);
        const number = (text) => el("td", { class: "number" }, text);
        const cells = (span) => [
            number(timeText(span.took)),
            number(percent(span.took, time.total)),
            number(span.floor === null ? "-" : timeText(span.floor)),
            number(span.floor === null ? "-" : percent(span.floor, span.took)),
            number(span.bytes === null ? "-" : bytesText(span.bytes)),
            number(rateText(span.bytes, span.took, "B/s")),
            number(span.flops === null ? "-" : grouped(span.flops)),
            number(rateText(span.flops, span.took, "FLOP/s")),
        ];
        const name = (span) => {
            if (span.count) return counted(span.count, "line");
            return this.placeOf(span)
                ? link(written(span.result ?? span.name), () => this.goTo(span))
                : written(span.result ?? span.name);
        };
        const row = (span) =>
            el(
                "tr",
                { "data-span": span.count ? null : span.at, onclick: () => !span.count && this.choose(span) },
                el("td", {}, name(span)),
                el("td", {}, span.name),
                el("td", {}, span.executor),
                el("td", {}, span.stream),
                cells(span),
            );
        const heads = TIME_COLUMNS.map(([head], at) =>
            el(
                "th",
                { scope: "col", "aria-sort": at === this.sorted ? "descending" : "none" },
                button(`${head}${at === this.sorted ? " ▾" : ""}`, () => this.sort(at)),
            ),
        );
        const caption = this.grouped ? "Time by operator" : "Time by line";
        const by = el("input", {
            type: "checkbox",
            id: "time-grouped",
            checked: this.grouped,
            onchange: () => {
                this.grouped = by.checked;
                this.drawRows();
            },
        });
        this.rows.replaceChildren(
            el("label", { class: "field", for: "time-grouped" }, by, "operators together"),
            el(
                "div",
                { class: "scroll", tabindex: 0, role: "region", "aria-label": caption, id: "times" },
                el(
                    "table",
                    {},
                    el("caption", {}, caption),
                    el(
                        "thead",
                        {},
                        el(
                            "tr",
                            {},
                            ["line", "operator", "executor", "stream"].map((head) => el("th", { scope: "col" }, head)),
                            heads,
                        ),
                    ),
                    el("tbody", {}, shown.map(row)),
                ),
            ),
            shown.length < spans.length
                ? button(`show all ${grouped(spans.length)}`, () => {
                      this.all = true;
                      this.drawRows();
                  })
                : "",
        );
    }

    /** Spans of one operator, executor and stream as one. */
    groups() {
        const found = new Map();
        const sum = (a, b) => (a === null || b === null ? null : a + b);
        for (const span of this.time.spans) {
            const key = [span.stream, span.executor, span.name].join("\t");
            const group = found.get(key);
            if (!group) {
                found.set(key, { ...span, count: 1 });
                continue;
            }
            group.count += 1;
            group.took += span.took;
            group.bytes = sum(group.bytes, span.bytes);
            group.flops = sum(group.flops, span.flops);
            group.floor = sum(group.floor, span.floor);
        }
        return [...found.values()];
    }

    sort(at) {
        this.sorted = at;
        this.drawRows();
        this.rows.querySelectorAll("th button")[at].focus();
    }

    timeline() {
        if (!this.time.timeline.length) return "";
        const words = (of) => `${of.name} on ${of.stream}: ${timeText(of.took)} from ${timeText(of.start)}`;
        const told = el("p", { class: "summary" });
        const lanes = new Lanes("streams over several runs", this.time.timeline, {
            choose: (of) => {
                told.textContent = words(of);
                lanes.mark(of);
            },
            enter: () => {},
            words,
        });
        const rows = this.time.timeline.slice(0, 200);
        queueMicrotask(() => lanes.draw());
        return el(
            "section",
            { id: "timeline" },
            el("h2", {}, "Streams over several runs"),
            lanes.node,
            told,
            table(
                "Streams over several runs",
                ["what", "stream", "from", "time"],
                rows.map((of) => [of.name, of.stream, timeText(of.start), timeText(of.took)]),
            ),
        );
    }
}
