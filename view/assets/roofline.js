// The roofline: arithmetic intensity against arithmetic a second, with the ceilings of the device where they are known.
// A dot is a line of the program, its size the line's time. What does no arithmetic has no place there.

class Roofline {
    constructor(time, choose) {
        this.time = time;
        this.dots = time.spans
            .filter((span) => span.flops > 0 && span.bytes > 0 && span.took > 0)
            .map((span) => ({ span, x: span.flops / span.bytes, y: (span.flops / span.took) * 1e6 }));
        this.choose = choose;
        this.shapes = new Map();
        this.marked = null;
        if (!this.dots.length) {
            this.node = el("p", {}, "No line does arithmetic that was counted.");
            return;
        }
        this.drawing = svg("svg", {
            role: "img",
            "aria-label": `Roofline of ${counted(this.dots.length, "line")}; the table below has their numbers.`,
        });
        const moving = time.spans.length - this.dots.length;
        this.node = el(
            "div",
            { class: "picture roofline" },
            this.drawing,
            moving > 0 && el("p", { class: "summary" }, `${counted(moving, "line")} without arithmetic: in the table.`),
        );
        // Its letters have the size of the page's, so it is drawn again for another width.
        new ResizeObserver(() => this.draw()).observe(this.node);
    }

    draw() {
        const { bytes_per_second: memory, flops_per_second: arithmetic } = this.time;
        const width = Math.min(this.node.clientWidth, 960);
        if (!width) return;
        const [height, left, below] = [Math.max(260, Math.min(420, 0.55 * width)), 84, 44];
        const xs = this.dots.map(({ x }) => x);
        const ys = this.dots.map(({ y }) => y);
        if (memory !== null && arithmetic !== null) xs.push((1.5 * arithmetic) / memory);
        if (arithmetic !== null) ys.push(1.3 * arithmetic);
        else if (memory !== null) ys.push(memory * xs.reduce((a, b) => Math.max(a, b)));
        const [x0, x1] = powersAround(xs);
        const [y0, y1] = powersAround(ys);
        const x = (value) => left + ((Math.log10(value) - x0) / (x1 - x0)) * (width - left - 16);
        const y = (value) => height - below - ((Math.log10(value) - y0) / (y1 - y0)) * (height - below - 16);
        const parts = [];
        for (let power = x0; power <= x1; power += 1) {
            parts.push(svg("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 16, y2: height - below, class: "tick" }));
            const label = power > -4 && power < 5 ? String(Number((10 ** power).toPrecision(1))) : `1e${power}`;
            parts.push(svg("text", { x: x(10 ** power), y: height - below + 15, "text-anchor": "middle" }, label));
        }
        for (let power = y0; power <= y1; power += 1) {
            parts.push(svg("line", { x1: left, x2: width - 16, y1: y(10 ** power), y2: y(10 ** power), class: "tick" }));
            const label = perSecondText(10 ** power, "FLOP/s");
            parts.push(svg("text", { x: left - 5, y: y(10 ** power) + 4, "text-anchor": "end" }, label));
        }
        parts.push(svg("text", { x: (left + width) / 2, y: height - 8, "text-anchor": "middle" }, "FLOPs per byte"));
        parts.push(...this.roofs([x0, x1, y0], x, y));
        const longest = this.dots.reduce((best, { span }) => Math.max(best, span.took), 0);
        // The largest first, so that small ones are in front.
        for (const dot of [...this.dots].sort((a, b) => b.span.took - a.span.took)) {
            const radius = 3 + 9 * Math.sqrt(dot.span.took / longest);
            const shape = svg(
                "g",
                { class: "dot", "data-at": dot.span.at, onclick: () => this.choose(dot.span) },
                svg(
                    "title",
                    {},
                    `${dot.span.result ?? dot.span.name}: ${dot.x.toPrecision(3)} FLOPs per byte, ` +
                        `${perSecondText(dot.y, "FLOP/s")}, ${timeText(dot.span.took)}`,
                ),
                svg("circle", { cx: x(dot.x), cy: y(dot.y), r: radius }),
            );
            this.shapes.set(dot.span, shape);
            parts.push(shape);
        }
        this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
        this.drawing.style.width = `${width}px`;
        this.drawing.replaceChildren(...parts);
        if (this.marked) this.mark(this.marked);
    }

    /** The ceilings, with their names where nothing can be: above them. */
    roofs([x0, x1, y0], x, y) {
        const { bytes_per_second: memory, flops_per_second: arithmetic } = this.time;
        const found = [];
        const line = (from, to, words) => {
            found.push(svg("path", { d: `M${x(from[0])} ${y(from[1])}L${x(to[0])} ${y(to[1])}`, class: "roof" }));
            found.push(svg("text", { x: x(10 ** x0) + 6, y: 22 + 7 * found.length, class: "roof-name" }, words));
        };
        const ridge = memory !== null && arithmetic !== null ? arithmetic / memory : null;
        if (memory !== null) {
            const begin = Math.max(10 ** x0, 10 ** y0 / memory);
            const end = Math.max(Math.min(ridge ?? 10 ** x1, 10 ** x1), begin);
            line([begin, memory * begin], [end, memory * end], `slope: memory, ${perSecondText(memory, "B/s")}`);
        }
        if (arithmetic !== null) {
            const begin = Math.min(ridge ?? 10 ** x0, 10 ** x1);
            const words = `level: arithmetic, ${perSecondText(arithmetic, "FLOP/s")}`;
            line([begin, arithmetic], [10 ** x1, arithmetic], words);
        }
        return found;
    }

    mark(span) {
        this.marked = span;
        for (const [of, shape] of this.shapes) shape.classList.toggle("chosen", of === span);
        const shape = this.shapes.get(span);
        if (shape) shape.parentNode.append(shape);
    }
}

/** The powers of ten, as exponents, between which some numbers are. */
function powersAround(numbers) {
    const least = Math.floor(Math.log10(numbers.reduce((a, b) => Math.min(a, b))));
    const most = Math.ceil(Math.log10(numbers.reduce((a, b) => Math.max(a, b))));
    return [least, Math.max(most, least + 1)];
}
