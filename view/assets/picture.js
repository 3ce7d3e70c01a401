// The picture of a dataflow: boxes in boxes, by the layout of each group. An open group has a port on its border for
// each edge that goes in or out.

const BOX = { pad: 10, head: 24, line: 40, character: 7.3, longest: 30 };

/** Text that fits a box. */
function clipped(text, most = BOX.longest) {
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** A name below a scope, without the scope. */
function below(name, prefix) {
    return prefix && name.startsWith(`${prefix}.`) ? name.slice(prefix.length) : name;
}

/** What is written on a part: two lines. `signs` are what the stage did to it. */
function labelOf(part, prefix, open, signs) {
    const { line } = part;
    const fold = part.opens() ? (open ? "▾ " : "▸ ") : "";
    if (!line) {
        const changed = signs.length ? `, ${signs.length} changed` : "";
        return [fold + below(part.name, prefix), `${counted(part.ats.length, "line")}${changed}`];
    }
    // Most programs are on one device; the details have it.
    const type = line.types.length ? line.types[0][0].replace(/@.*$/, "") : "no result";
    const more = line.types.length > 1 ? ` +${line.types.length - 1}` : "";
    return [`${fold}${signs.length ? `${signs[0]} ` : ""}${operatorsOf(line)}`, `${type}${more}`];
}

/** The operator of a line; of a region, the operators in it. */
function operatorsOf(line) {
    const short = (operator) => operator.replace(/^prims::/, "");
    if (line.operator !== "region" || line.body < 0) return short(line.operator);
    const inside = [...new Set(blockOf(line.body).lines.map((of) => short(of.operator)))];
    return inside.length > 4 ? `${inside.slice(0, 3).join(" ")} +${inside.length - 3}` : inside.join(" ");
}

/**
 * The picture of parts as a list of nodes and a list of edges, with places. `ins` and `outs` are what is on the border:
 * `{names, label}`, where a port of a group has no label.
 */
class Picture {
    constructor(parts, ins, outs, prefix, view) {
        this.view = view;
        this.nodes = [];
        this.edges = [];
        const whole = this.arrange(parts, ins, outs, prefix);
        this.size = whole.size;
        this.place(whole, null, 0, 0);
    }

    /** A group with the sizes of all that is in it. */
    arrange(parts, ins, outs, prefix) {
        const edges = edgesOf(
            parts,
            ins.map((of) => of.names),
            outs.map((of) => of.names),
        );
        const ends = (of, rank) => {
            const label = of.label && clipped(of.label);
            return label ? { w: label.length * BOX.character + 20, h: 24, rank, end: of } : { w: 8, h: 1, rank };
        };
        const nodes = [
            ...ins.map((of) => ends(of, "first")),
            ...parts.map((part, i) => this.sized(part, i, edges, prefix)),
            ...outs.map((of) => ends(of, "last")),
        ];
        const number = (end) => {
            if (typeof end === "number") return ins.length + end;
            const [side, i] = end.split(" ");
            return side === "in" ? Number(i) : ins.length + parts.length + Number(i);
        };
        const links = edges.map((edge) => {
            const [from, to] = [number(edge.from), number(edge.to)];
            // On an open group the edge ends at its port.
            const fromDx = nodes[from].inner ? nodes[from].portOf("out", edge) : 0;
            const toDx = nodes[to].inner ? nodes[to].portOf("in", edge) : 0;
            return { from, to, fromDx, toDx, names: edge.names };
        });
        return { nodes, links, ins: ins.length, parts, outs: outs.length, ...layered(nodes, links) };
    }

    /** A part with its size; if it is open, with the picture of its parts. */
    sized(part, i, edges, prefix) {
        const open = part.opens() && this.view.isOpen(part);
        const label = labelOf(part, prefix, open, this.view.signsOf(part)).map((text) => clipped(text));
        const wide = Math.max(...label.map((text) => text.length)) * BOX.character + 18;
        if (!open) return { part, label, w: Math.max(wide, 60), h: BOX.line };
        const parts = part.parts(this.view.options);
        const [into, out] = [edges.filter((edge) => edge.to === i), edges.filter((edge) => edge.from === i)];
        const ports = (list, written) => list.map(({ names }) => ({ names: part.innerNames(names, written) }));
        const inner = this.arrange(parts, ports(into, false), ports(out, true), part.line ? "" : part.name);
        const [w, h] = [Math.max(inner.size.w + 2 * BOX.pad, wide), inner.size.h + BOX.head + BOX.pad];
        const portOf = (side, edge) => {
            const at = side === "in" ? into.indexOf(edge) : inner.ins + inner.parts.length + out.indexOf(edge);
            return (w - inner.size.w) / 2 + inner.corners[at].x + inner.nodes[at].w / 2 - w / 2;
        };
        return { part, label, w, h, inner, portOf };
    }

    /** Adds nodes and edges where they are; gives the nodes of the group by number. */
    place(group, parent, x, y) {
        const nodes = group.nodes.map((node, i) => {
            const { part = null, label = null, end = null, w, h } = node;
            const corner = group.corners[i];
            const placed = { part, label, end, w, h, x: x + corner.x, y: y + corner.y, parent, ins: [], outs: [] };
            placed.port = !part && !end;
            placed.open = Boolean(node.inner);
            placed.key = part ? part.key : end ? `end ${end.label}` : null;
            if (!placed.port) this.nodes.push(placed);
            return placed;
        });
        const edges = group.links.map((link, i) => ({
            from: nodes[link.from],
            to: nodes[link.to],
            names: link.names,
            flow: group.parts[0] && group.parts[0].flow,
            points: group.points[i].map(([px, py]) => [x + px, y + py]),
        }));
        this.edges.push(...edges);
        for (const edge of edges) {
            edge.from.outs.push(edge);
            edge.to.ins.push(edge);
        }
        group.nodes.forEach((node, i) => {
            if (!node.inner) return;
            const { w, inner } = node;
            const own = nodes[i];
            const left = own.x + (w - inner.size.w) / 2;
            const { nodes: inside, edges: lines } = this.place(inner, own, left, own.y + BOX.head);
            // Lines go on through the border.
            inner.links.forEach((link, k) => {
                const { points } = lines[k];
                if (link.from < inner.ins) points.unshift([points[0][0], own.y]);
                const [x] = points[points.length - 1];
                if (link.to >= inner.ins + inner.parts.length) points.push([x, own.y + own.h]);
            });
            // The ports, in the order of the edges that they continue.
            own.ins.forEach((edge, k) => (inside[k].outside = edge));
            own.outs.forEach((edge, k) => (inside[inner.ins + inner.parts.length + k].outside = edge));
            own.inPorts = inside.slice(0, inner.ins);
            own.outPorts = inside.slice(inner.ins + inner.parts.length);
        });
        return { nodes, edges };
    }
}

/** The nodes that an edge leads to, or with `back` comes from, through the borders of groups. */
function endsOf(edge, back) {
    const node = back ? edge.from : edge.to;
    if (node.port) return node.outside ? endsOf(node.outside, back) : [];
    if (!node.open) return [node];
    const ports = back ? node.outPorts : node.inPorts;
    const port = ports.find((of) => of.outside === edge);
    const inner = port ? (back ? port.ins : port.outs) : [];
    const found = inner.flatMap((of) => endsOf(of, back));
    return found.length ? found : [node];
}

/** An edge with what continues it through the borders of groups, both ways. */
function throughBorders(edge) {
    const found = new Set([edge]);
    const visit = (of, back) => {
        const node = back ? of.from : of.to;
        let next = [];
        if (node.port) next = node.outside ? [node.outside] : [];
        else if (node.open) {
            const ports = back ? node.outPorts : node.inPorts;
            next = ports.filter((port) => port.outside === of).flatMap((port) => (back ? port.ins : port.outs));
        }
        for (const one of next) {
            found.add(one);
            visit(one, back);
        }
    };
    visit(edge, true);
    visit(edge, false);
    return [...found];
}

/** What goes along an edge: names with types. */
function valuesText(edge, most) {
    const one = (name) => {
        const value = edge.flow && edge.flow.block.values.get(name);
        return `${written(name)}${value && value.type ? `: ${value.type[0]}` : ""}`;
    };
    const shown = edge.names.slice(0, most).map(one);
    if (edge.names.length > most) shown.push(`and ${edge.names.length - most} more`);
    return shown.join(", ");
}
