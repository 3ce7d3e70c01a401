// Nodes of a graph in words: what they are called, what is on a border, what is known of a scope.

/** The most values on a border that are drawn one by one. */
const MOST_PILLS = 8;

/** Values on a border, each by itself, or if they are many, all in one. */
function pills(names, prefix, label) {
    if (names.length > MOST_PILLS) return [{ names, label: `${names.length} values ${label}` }];
    return names.map((name) => ({ names: [name], label: below(name, prefix) }));
}

/** What a node is called. */
function nodeName({ part, end }) {
    if (end) return end.label;
    if (!part.line) return part.name;
    return `${operatorsOf(part.line)} ${part.line.results[0] || ""}`.trim();
}

/** What is known of a scope of a graph. */
function partDetails(view, node) {
    const { part } = node;
    const { block } = part.flow;
    const { app } = view;
    const values = (edges) => [...new Set(edges.flatMap((edge) => edge.names))];
    const list = (names) =>
        el(
            "ul",
            {},
            some(names, (name) => {
                const value = block.values.get(name);
                return [valueLink(app, name, block), value && value.type ? `: ${value.type[0]}` : ""];
            }),
        );
    const [ins, outs] = [values(node.ins), values(node.outs)];
    const counts = new Map();
    for (const at of part.ats) {
        const { operator } = block.lines[at];
        counts.set(operator, (counts.get(operator) || 0) + 1);
    }
    const operators = [...counts].sort((a, b) => b[1] - a[1]).map(([operator, times]) => `${operator} ${times}`);
    const open = view.isOpen(part);
    return el(
        "div",
        {},
        el("h2", {}, `Scope ${part.name}`),
        el(
            "p",
            {},
            button(open ? "close" : "open", () => view.fold(part)),
            " ",
            button("only this scope", () => view.setScope(part.key)),
        ),
        el(
            "dl",
            {},
            item("lines", `${part.ats.length}, the first is `, lineLink(app, block, part.ats[0])),
            item("operators", operators.join(", ")),
            item("reads", ins.length ? list(ins) : "nothing that is drawn"),
            item("gives", outs.length ? list(outs) : "nothing that is drawn"),
        ),
    );
}
