"use strict";
// Charts tell their values: at the pointer, and at a place that the arrow keys move.

function chart(figure) {
    const { axis, curves } = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot");
    const output = figure.querySelector("output");
    const cursor = figure.querySelector(".cursor");
    const usual = output.textContent;
    const lines = curves
        .map(([name, numbers]) => {
            const points = [];
            for (let i = 0; i < numbers.length; i += 2) points.push([numbers[i], numbers[i + 1]]);
            return { name, points };
        })
        .filter(({ points }) => points.length);
    const places = [...new Set(lines.flatMap(({ points }) => points.map(([x]) => x)))].sort((a, b) => a - b);
    const [first, last] = [places[0], places[places.length - 1]];
    let at = places.length - 1;

    const share = (x) => (last > first ? (x - first) / (last - first) : 0.5);
    const near = (points, x) =>
        points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
    const shown = (value) => String(Number(value.toPrecision(5)));

    function show(index) {
        at = Math.max(0, Math.min(places.length - 1, index));
        const x = places[at];
        const words = lines.map(({ name, points }) => {
            const [there, value] = near(points, x);
            const other = there === x ? "" : ` (${axis} ${shown(there)})`;
            return `${lines.length > 1 ? `${name} ` : ""}${shown(value)}${other}`;
        });
        output.textContent = `${axis} ${x}: ${words.join("; ")}`;
        cursor.hidden = false;
        cursor.style.left = `${100 * share(x)}%`;
        plot.setAttribute("aria-valuenow", x);
        plot.setAttribute("aria-valuetext", output.textContent);
    }

    function hide() {
        if (document.activeElement === plot) return show(at);
        cursor.hidden = true;
        output.textContent = usual;
        return undefined;
    }

    plot.addEventListener("pointermove", (event) => {
        const box = plot.getBoundingClientRect();
        const x = first + ((event.clientX - box.left) / box.width) * (last - first);
        show(places.indexOf(near(places.map((place) => [place]), x)[0]));
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("focus", () => show(at));
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
        const tenth = Math.max(1, Math.round(places.length / 10));
        const to = {
            ArrowLeft: at - 1,
            ArrowDown: at - 1,
            ArrowRight: at + 1,
            ArrowUp: at + 1,
            PageDown: at - tenth,
            PageUp: at + tenth,
            Home: 0,
            End: places.length - 1,
        }[event.key];
        if (to === undefined) return;
        show(to);
        event.preventDefault();
    });
}

document.querySelectorAll("figure.chart").forEach(chart);
