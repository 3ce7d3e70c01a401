// The memory plan: lives of values over the program, the peak, and who is alive at a line.

class MemoryView {
    constructor(app) {
        this.app = app;
        this.at = null;
    }

    /** The last stage with a plan, if this one has none. */
    show(host) {
        const { memory } = this.app.stage();
        if (!memory) {
            const planned = this.app.subject().stages.findIndex((stage) => stage.memory);
            host.replaceChildren(
                this.app.stageTools(),
                el(
                    "p",
                    {},
                    "This stage has no memory plan. ",
                    planned >= 0 &&
                        button(`show ${this.app.subject().stages[planned].name}`, () => this.app.setStage(planned)),
                ),
            );
            return;
        }
        this.memory = memory;
        this.lives = memory.lives.map(([name, offset, bytes, from, to, sharing]) => ({
            name: Data.strings[name],
            offset,
            bytes,
            from,
            to,
            sharing: sharing.map((i) => Data.strings[i]),
        }));
        this.count = Math.max(this.app.block().lines.length, 1);
        this.peak = this.fullest();
        if (this.at === null || this.at >= this.count) this.at = this.peak.at;
        this.picture = el("div", {
            class: "picture",
            tabindex: 0,
            role: "region",
            "aria-label": "picture of the arena",
        });
        this.alive = el("div", {});
        this.range = el("input", {
            type: "range",
            id: "memory-line",
            min: 1,
            max: this.count,
            value: this.at + 1,
            oninput: () => this.move(Number(this.range.value) - 1),
        });
        host.replaceChildren(
            this.app.stageTools(),
            this.totals(),
            el(
                "div",
                { class: "tools" },
                el("label", { class: "field", for: "memory-line" }, "line"),
                this.range,
                button("to the peak", () => this.move(this.peak.at)),
                button("show the line", () => this.app.goToLine(this.app.block(), this.at)),
            ),
            this.picture,
            this.alive,
            this.donations(),
        );
        this.draw();
        this.move(this.at);
    }

    totals() {
        const { arena, inputs, outputs, peak } = this.memory;
        return el(
            "p",
            { class: "summary" },
            [
                `peak ${bytesText(peak)}`,
                `inputs ${bytesText(inputs)}`,
                `outputs of their own ${bytesText(outputs)}`,
                `arena ${bytesText(arena)}`,
                `most bytes of the arena in use: ${bytesText(this.peak.bytes)} at line ${this.peak.at + 1}`,
            ].join(" · "),
        );
    }

    /** The line at which most bytes of the arena are in use. */
    fullest() {
        const { used } = this.memory;
        return used.reduce((best, bytes, at) => (bytes > best.bytes ? { at, bytes } : best), { at: 0, bytes: 0 });
    }

    draw() {
        const [width, height] = [1000, 420];
        const x = (at) => (at / this.count) * width;
        const y = (byte) => height - (byte / Math.max(this.memory.arena, 1)) * height;
        const boxes = this.lives.map((life) => {
            const [left, right, top, bottom] = [
                x(life.from),
                x(life.to + 1),
                y(life.offset + life.bytes),
                y(life.offset),
            ];
            const [wide, high] = [Math.max(right - left, 0.6), Math.max(bottom - top, 0.6)];
            const label =
                wide > 7 * Math.min(life.name.length, 8) &&
                high > 13 &&
                svg("text", { x: left + 3, y: top + 11 }, life.name.slice(0, Math.floor(wide / 7)));
            const words =
                `${life.name}: ${bytesText(life.bytes)} at ${grouped(life.offset)}, ` +
                `lines ${life.from + 1} to ${life.to + 1}` +
                (life.sharing.length ? `; with ${life.sharing.slice(0, 6).join(", ")}` : "");
            return svg(
                "g",
                {
                    class: "life",
                    "data-value": life.name,
                    onclick: () => this.app.goToLine(this.app.block(), life.from),
                },
                svg("title", {}, words),
                svg("rect", { x: left, y: top, width: wide, height: high }),
                label,
            );
        });
        this.cursor = svg("line", { y1: 0, y2: height, class: "cursor" });
        const peak = x(this.peak.at + 0.5);
        const side = peak > width / 2 ? "end" : "start";
        const drawing = svg(
            "svg",
            {
                viewBox: `0 -16 ${width} ${height + 34}`,
                role: "img",
                preserveAspectRatio: "none",
                "aria-label":
                    `Arena of ${bytesText(this.memory.arena)} over ${counted(this.count, "line")}; ` +
                    `${counted(this.lives.length, "value")}. The table below lists those of one line.`,
            },
            boxes,
            svg("line", { x1: peak, x2: peak, y1: -4, y2: height, class: "peak" }),
            svg("text", { x: peak, y: -5, "text-anchor": side }, "peak"),
            this.cursor,
            svg("text", { x: 0, y: height + 14 }, "line 1"),
            svg("text", { x: width, y: height + 14, "text-anchor": "end" }, `line ${this.count}`),
            svg("text", { x: 0, y: -5 }, bytesText(this.memory.arena)),
        );
        this.picture.replaceChildren(drawing);
        this.x = x;
    }

    /** Shows who is alive at line `at`. */
    move(at) {
        this.at = at;
        this.range.value = at + 1;
        this.cursor.setAttribute("x1", this.x(at + 0.5));
        this.cursor.setAttribute("x2", this.x(at + 0.5));
        const block = this.app.block();
        const alive = this.lives.filter((life) => life.from <= at && at <= life.to).sort((a, b) => b.bytes - a.bytes);
        const sum = this.memory.used[at] || 0;
        const rows = alive
            .slice(0, 200)
            .map((life) => [
                lineLink(this.app, block, life.from, written(life.name)),
                bytesText(life.bytes),
                grouped(life.offset),
                `${life.from + 1} to ${life.to + 1}`,
                life.sharing.map(written).join(", "),
            ]);
        const line = block.lines[at];
        this.range.setAttribute("aria-valuetext", `line ${at + 1}, ${bytesText(sum)}`);
        this.alive.replaceChildren(
            el("p", { class: "code wrap" }, line ? textOf(line) : ""),
            table(
                `Alive at line ${at + 1}${at === this.peak.at ? ", the peak" : ""}: ` +
                    `${bytesText(sum)} in ${counted(alive.length, "value")}`,
                ["value", "bytes", "offset", "lines", "others in the same memory"],
                rows,
            ),
        );
    }

    donations() {
        const { donations } = this.memory;
        if (!donations.length) return el("p", { id: "donations" }, "No input is donated.");
        const lost = donations.filter(([, taken]) => !taken);
        const rows = [...lost, ...donations.filter(([, taken]) => taken)].map(([input, taken, what]) => [
            written(input),
            taken ? "taken" : "not taken",
            taken ? `by the output ${what}` : what,
        ]);
        return el(
            "section",
            { id: "donations" },
            el("h2", {}, "Donated inputs"),
            el(
                "p",
                {},
                lost.length
                    ? `${lost.length} of ${donations.length} are not taken.`
                    : `All ${donations.length} are taken.`,
            ),
            table("Donated inputs", ["input", "memory", "why"], rows),
        );
    }
}
