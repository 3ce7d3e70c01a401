// Work on streams over time: a lane for each stream, a box for each piece of work. Arrow keys go from piece to piece.

class Lanes {
    /** `does` has what happens: choose(piece), enter(piece), and words(piece) for a piece in words. */
    constructor(label, pieces, does) {
        this.pieces = [...pieces].sort((a, b) => a.start - b.start);
        this.does = does;
        this.streams = [...new Set(this.pieces.map((piece) => piece.stream))];
        this.executors = [...new Set(this.pieces.map((piece) => piece.executor).filter(Boolean))];
        const ends = this.pieces.map((piece) => piece.start + piece.took);
        this.whole = [this.pieces[0].start, ends.reduce((a, b) => Math.max(a, b))];
        if (this.whole[1] <= this.whole[0]) this.whole[1] = this.whole[0] + 1;
        this.window = [...this.whole];
        this.marked = null;
        this.drawing = svg("svg", { "aria-hidden": "true" });
        this.plot = el(
            "div",
            {
                class: "picture lanes",
                tabindex: 0,
                role: "slider",
                "aria-label": `${label}; arrow keys choose one, plus and minus zoom, Enter goes to its line`,
                "aria-valuemin": 1,
                "aria-valuemax": this.pieces.length,
                "aria-valuenow": 1,
                onkeydown: (event) => this.key(event),
                onwheel: (event) => this.wheel(event),
            },
            this.drawing,
        );
        this.node = el(
            "div",
            {},
            el(
                "div",
                { class: "tools" },
                button("zoom in", () => this.zoom(0.5)),
                button("zoom out", () => this.zoom(2)),
                button("earlier", () => this.pan(-0.5)),
                button("later", () => this.pan(0.5)),
                button("all", () => this.look(...this.whole)),
                this.executors.length > 1 && el("span", { class: "legend" }, this.executors.map(keyOf)),
            ),
            this.plot,
        );
        new ResizeObserver(() => this.draw()).observe(this.plot);
    }

    draw() {
        const width = this.plot.clientWidth;
        if (!width) return;
        const [from, to] = this.window;
        const [head, lane] = [16, 46];
        const height = head + lane * this.streams.length + 4;
        const x = (at) => ((at - from) / (to - from)) * width;
        const parts = [];
        for (const tick of roundBetween(from, to, Math.max(2, Math.floor(width / 110)))) {
            parts.push(svg("line", { x1: x(tick), x2: x(tick), y1: head, y2: height, class: "tick" }));
            parts.push(svg("text", { x: x(tick) + 2, y: 11 }, timeText(tick)));
        }
        this.streams.forEach((stream, at) => {
            parts.push(svg("text", { x: 2, y: head + lane * at + 12, class: "stream" }, stream));
        });
        let [last, lastStream] = [-1, -1];
        for (const piece of this.pieces) {
            const [left, right] = [x(piece.start), x(piece.start + piece.took)];
            if (right < 0 || left > width) continue;
            const at = this.streams.indexOf(piece.stream);
            // Of pieces that are narrower than a point, one is drawn at each point.
            const narrow = right - left < 0.5;
            if (narrow && Math.floor(left) === last && at === lastStream && piece !== this.marked) continue;
            [last, lastStream] = narrow ? [Math.floor(left), at] : [-1, -1];
            parts.push(this.box(piece, Math.max(left, -2), Math.min(right, width + 2), head + lane * at + 16));
        }
        this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
        this.drawing.style.height = `${height}px`;
        this.drawing.replaceChildren(...parts);
    }

    box(piece, left, right, top) {
        const wide = Math.max(right - left, 0.6);
        const letters = Math.floor((wide - 6) / 6.8);
        const chosen = piece === this.marked;
        return svg(
            "g",
            {
                class: `piece${chosen ? " chosen" : ""} executor-${this.executors.indexOf(piece.executor) % 6}`,
                "data-at": piece.at,
                onclick: () => this.does.choose(piece),
                ondblclick: () => this.does.enter(piece),
            },
            svg("title", {}, this.does.words(piece)),
            svg("rect", { x: left, y: top, width: wide, height: 26 }),
            chosen && svg("path", { d: `M${left + wide / 2 - 5} ${top + 32}h10l-5 -6z`, class: "pointer" }),
            letters > 2 && svg("text", { x: left + 3, y: top + 17 }, piece.name.slice(0, letters)),
        );
    }

    /** Marks a piece, and brings it into sight. */
    mark(piece) {
        this.marked = piece;
        const [from, to] = this.window;
        const middle = piece.start + piece.took / 2;
        if (middle < from || middle > to) this.window = this.within(middle - (to - from) / 2, to - from);
        this.plot.setAttribute("aria-valuenow", this.pieces.indexOf(piece) + 1);
        this.plot.setAttribute("aria-valuetext", this.does.words(piece));
        this.draw();
    }

    within(from, length) {
        const [first, last] = this.whole;
        const long = Math.min(length, last - first);
        const begin = Math.max(first, Math.min(from, last - long));
        return [begin, begin + long];
    }

    look(from, to) {
        this.window = this.within(from, to - from);
        this.draw();
    }

    /** Zooms around the marked piece if it is in sight, or else around the middle. */
    zoom(by, around) {
        const [from, to] = this.window;
        const chosen = this.marked ? this.marked.start + this.marked.took / 2 : NaN;
        const at = around ?? (chosen >= from && chosen <= to ? chosen : (from + to) / 2);
        const length = Math.max((to - from) * by, (this.whole[1] - this.whole[0]) / 1e6);
        this.window = this.within(at - (at - from) * (length / (to - from)), length);
        this.draw();
    }

    pan(by) {
        const [from, to] = this.window;
        this.look(from + by * (to - from), to + by * (to - from));
    }

    wheel(event) {
        if (!event.ctrlKey && !event.shiftKey) return;
        const [from, to] = this.window;
        const box = this.plot.getBoundingClientRect();
        const at = from + ((event.clientX - box.left) / box.width) * (to - from);
        if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8, at);
        else this.pan(Math.sign(event.deltaY || event.deltaX) * 0.1);
        event.preventDefault();
    }

    key(event) {
        const at = this.pieces.indexOf(this.marked);
        const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
        const places = { Home: 0, End: this.pieces.length - 1 };
        if (event.key === "+") this.zoom(0.5);
        else if (event.key === "-") this.zoom(2);
        else if (event.key === "Enter" && this.marked) this.does.enter(this.marked);
        else if (event.key in steps || event.key in places) {
            const to = places[event.key] ?? at + steps[event.key];
            this.does.choose(this.pieces[Math.max(0, Math.min(this.pieces.length - 1, to))]);
        } else return;
        event.preventDefault();
    }
}

/** The sign of an executor: its colour and its name. */
function keyOf(executor, at) {
    return el("span", { class: "key" }, el("i", { class: `swatch executor-${at % 6}`, "aria-hidden": "true" }), executor);
}

/** About `count` round numbers between two others. */
function roundBetween(from, to, count) {
    const rough = (to - from) / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((unit) => unit * power).find((unit) => unit >= rough);
    const found = [];
    for (let at = Math.ceil(from / step); at * step <= to; at += 1) found.push(at * step);
    return found;
}
