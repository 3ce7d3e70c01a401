// The shapes of a graph: nodes, edges, and the ground of open scopes.

/** What goes along an edge, and from where. */
function edgeText(edge) {
    return `${valuesText(edge, 4)}, from ${endsOf(edge, true).map(nodeName).slice(0, 2).join(", ")}`;
}

/** The path of an edge: straight through rows, in curves between them. */
function edgeElement(edge) {
    const { points } = edge;
    let path = `M${round(points[0])}`;
    for (let i = 1; i < points.length; i += 1) {
        const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
        // A step of no length has no direction, which the arrow needs.
        if (x0 === x1 && y0 === y1) continue;
        const middle = (y0 + y1) / 2;
        path += x0 === x1 ? `L${round([x1, y1])}` : `C${round([x0, middle])} ${round([x1, middle])} ${round([x1, y1])}`;
    }
    const arrow = edge.to.port || edge.to.open ? null : "url(#arrow)";
    return svg(
        "g",
        { class: `edge${edge.names.length > 1 ? " several" : ""}`, "data-edge": "" },
        svg("title", {}, edgeText(edge)),
        svg("path", { d: path, class: "hit" }),
        svg("path", { d: path, class: "way", "marker-end": arrow }),
    );
}

function round([x, y]) {
    return `${Math.round(x * 10) / 10} ${Math.round(y * 10) / 10}`;
}

/** The ground of an open scope. */
function backElement({ x, y, w, h }) {
    return svg("rect", { class: "ground", x, y, width: w, height: h, rx: 8 });
}

/** A node: a line, a scope, or a value on the border. */
function nodeElement(node, i, signs) {
    const { part, end, open, x, y, w, h } = node;
    const kind = end ? "end" : part.line ? "line" : "scope";
    const backward = part && part.line && part.line.pass !== "forward";
    const text = (line, at, name) => svg("text", { x: x + 9, y: at, class: name }, line);
    const label = node.label || [clipped(end.label)];
    const count = part && !part.line ? `, ${counted(part.ats.length, "line")}` : "";
    const by = part && part.line && part.line.executor ? `, by ${part.line.executor}` : "";
    const type = part && part.line ? `, ${label[1]}` : "";
    const signed = signs.length ? `, ${{ "+": "added", "~": "changed" }[signs[0]]}${count && " in part"}` : "";
    return svg(
        "g",
        {
            class: `node ${kind}${open ? " open" : ""}${backward ? " backward" : ""}`,
            "data-node": i,
            "data-key": node.key,
            role: "button",
            tabindex: -1,
            "aria-label": `${nodeName(node)}${count}${type}${by}${signed}`,
            "aria-expanded": part && part.opens() ? String(open) : null,
        },
        svg("title", {}, `${nodeName(node)}${count}${type}${by}${signed}`),
        svg("rect", { x, y, width: w, height: open ? BOX.head - 4 : h, rx: end ? 12 : 5 }),
        part && part.opens() && svg("rect", { class: "fold-mark", x, y, width: 22, height: open ? 20 : h }),
        text(label[0], y + (open || end ? 15 : 17), "first"),
        !open && label[1] && text(label[1], y + 33, "second"),
    );
}
