// The dataflow of a program or of one of its scopes, drawn.

/** A program with more lines than this opens with its top scopes closed, a chosen scope with more than that. */
const DRAWN_AT_ONCE = { program: 150, scope: 300 };

class GraphView {
    constructor(app) {
        this.app = app;
        this.options = new FlowOptions(false, null);
        this.folds = new Map();
        this.scope = "";
        this.focused = null;
    }

    show(host) {
        this.prepare();
        const check = (label, name, on) => {
            const box = el("input", {
                type: "checkbox",
                checked: on,
                onchange: () => {
                    this.options[name] = box.checked;
                    this.forget();
                    this.show(host);
                },
            });
            return el("label", { class: "field" }, box, label);
        };
        const act = (name, action) => button(name, action);
        this.note = el("p", { class: "edge-note" });
        this.canvas = new GraphCanvas(this);
        this.text = el("details", { class: "as-text" }, el("summary", {}, "This graph as text"));
        this.text.addEventListener("toggle", () => this.text.open && this.writeText());
        host.replaceChildren(
            this.app.stageTools(),
            el(
                "div",
                { class: "tools" },
                select("scope", this.choices, this.scope, (key) => this.setScope(key)),
                act("open more", () => this.unfold()),
                act("close all", () => this.foldAll()),
                act("zoom in", () => this.canvas.zoom(1.25)),
                act("zoom out", () => this.canvas.zoom(0.8)),
                act("fit", () => this.canvas.fit()),
                check("views", "views", this.options.views),
                check("inputs and outputs", "ends", this.showsEnds()),
            ),
            this.note,
            el("div", { class: "split" }, this.canvas.frame, this.app.aside),
            this.text,
        );
        this.draw();
        this.canvas.fit();
        this.app.drawAside();
    }

    /** The parts of the stage, and the scopes that can be chosen. */
    prepare() {
        const block = this.app.block();
        if (this.block !== block) this.forget();
        if (this.flow) return;
        this.block = block;
        this.flow = new Flow(block, this.options, []);
        this.parts = partsOf(this.flow, this.flow.lines(), 0, "", "");
        this.choices = [["", `the whole program, ${counted(block.lines.length, "line")}`]];
        const list = (parts, depth) => {
            for (const part of parts) {
                if (part.line || this.choices.length > 400) continue;
                this.choices.push([part.key, `${"\u2003".repeat(depth)}${part.name}, ${counted(part.ats.length, "line")}`]);
                if (depth < 2) list(part.parts(this.options), depth + 1);
            }
        };
        list(this.parts, 0);
        if (this.scope && !this.find(this.scope)) this.scope = "";
        this.root = this.scope ? this.find(this.scope) : null;
        this.openAtOnce();
    }

    forget() {
        this.flow = null;
    }

    showsEnds() {
        const few = this.app.block().parameters.length <= 12;
        return this.options.ends === null ? few : this.options.ends;
    }

    /** The part of a key, or null. */
    find(key) {
        const within = (parts) => {
            for (const part of parts) {
                if (part.key === key) return part;
                const inside = key.startsWith(part.key) && !part.line && within(part.parts(this.options));
                if (inside) return inside;
            }
            return null;
        };
        return within(this.parts);
    }

    top() {
        return this.root ? this.root.parts(this.options) : this.parts;
    }

    /** Chooses what is open before anybody opens or closes something. */
    openAtOnce() {
        this.auto = new Set();
        const lines = this.root ? this.root.ats.length : this.flow.lines().length;
        const most = lines <= (this.root ? DRAWN_AT_ONCE.scope : DRAWN_AT_ONCE.program) ? Infinity : 24;
        let [count, level] = [this.top().length, this.top()];
        while (level.length) {
            const groups = level.filter((part) => !part.line);
            const next = groups.flatMap((part) => part.parts(this.options));
            if (count + next.length > most) break;
            groups.forEach((part) => this.auto.add(part.key));
            count += next.length;
            level = next;
        }
    }

    isOpen(part) {
        return this.folds.has(part.key) ? this.folds.get(part.key) : this.auto.has(part.key);
    }

    /** What the stage did to the lines of a part: the signs of those that it changed. */
    signsOf(part) {
        const { signs } = this.app.changes() || { signs: [] };
        return part && part.flow.block === this.block ? part.ats.map((at) => signs[at]).filter(Boolean) : [];
    }

    setScope(key) {
        this.scope = key;
        this.root = key ? this.find(key) : null;
        this.focused = null;
        this.openAtOnce();
        this.draw();
        this.canvas.fit();
        announce(this.summary());
    }

    fold(part) {
        this.folds.set(part.key, !this.isOpen(part));
        this.draw();
    }

    foldAll() {
        this.folds.clear();
        this.auto.clear();
        this.draw();
        this.canvas.fit();
    }

    /** Opens the next level of scopes, as far as 300 nodes are drawn. */
    unfold() {
        const closed = this.picture.nodes.filter(({ part, open }) => part && !part.line && !open);
        let count = this.picture.nodes.length;
        let opened = 0;
        for (const { part } of closed) {
            const more = part.parts(this.options).length;
            if (count + more > DRAWN_AT_ONCE.scope) continue;
            this.folds.set(part.key, true);
            count += more;
            opened += 1;
        }
        this.draw();
        const left = closed.length - opened;
        announce(left ? `${opened} opened; ${left} more would be over ${DRAWN_AT_ONCE.scope} nodes` : this.summary());
    }

    /** What is on the border: inputs and outputs of the program, or what a scope reads and gives. */
    border() {
        const { block } = this.flow;
        const written = new Set(this.top().flatMap((part) => [...part.values().writes]));
        const inside = new Set(this.top().flatMap((part) => part.ats));
        const reads = [...new Set(this.top().flatMap((part) => part.values().reads))].filter((of) => !written.has(of));
        const wanted = reads.filter((name) => this.flow.definedAt(name) >= 0 || this.showsEnds());
        const read = new Set();
        const ends = this.showsEnds() || this.root ? block.results.map((name) => this.flow.root(name)) : [];
        if (this.root) {
            for (const at of this.flow.lines()) {
                if (!inside.has(at)) this.flow.reads(at).forEach((name) => read.add(name));
            }
        }
        ends.forEach((name) => read.add(name));
        const gives = [...read].filter((name) => written.has(name));
        const prefix = this.root ? this.root.name : "";
        return [pills(wanted, prefix, "from outside"), pills(gives, prefix, "to outside")];
    }

    draw() {
        const [ins, outs] = this.border();
        const prefix = this.root ? this.root.name : "";
        this.picture = new Picture(this.top(), ins, outs, prefix, this);
        this.canvas.draw(this.picture);
        this.note.textContent = this.summary();
        if (this.text.open) this.writeText();
    }

    summary() {
        const { nodes, edges } = this.picture;
        const closed = nodes.filter(({ part, open }) => part && !part.line && !open).length;
        const hidden = this.flow.hidden.filter(Boolean).length;
        const parts = [`${counted(nodes.length, "node")} and ${counted(edges.length, "edge")} drawn`];
        if (closed) parts.push(`${closed} scopes closed`);
        if (hidden) parts.push(this.root ? "views are left out" : `${hidden} views left out`);
        return parts.join(" · ");
    }

    /** Shows what is known of a node beside the graph. */
    choose(node) {
        this.focused = node.key;
        const { part } = node;
        if (!part) this.app.showValue(node.end.names[0], this.flow.block);
        else if (part.line) {
            const { block } = part.flow;
            this.app.select({ kind: "line", block, at: part.ats[0], way: part.way() });
        } else this.app.select({ kind: "part", details: () => partDetails(this, node) });
    }

    /** Goes to the line of a node in the program, or opens a scope. */
    enter(node) {
        if (node.part && node.part.line) this.app.goToWay(node.part.way());
        else if (node.part) this.fold(node.part);
    }

    /** Shows line `at` of the program: opens the scopes that it is in. */
    goTo(at) {
        this.prepare();
        this.scope = "";
        this.root = null;
        let parts = this.parts;
        let found = null;
        if (this.flow.hidden[at]) return announce("The line is a view, which the graph leaves out.");
        while (parts) {
            found = parts.find((part) => part.ats.includes(at));
            if (!found || found.line) break;
            this.folds.set(found.key, true);
            parts = found.parts(this.options);
        }
        this.focused = found && found.key;
        this.app.settled = true;
        this.app.open("graph");
        const node = this.picture.nodes.find((of) => of.key === this.focused);
        if (node) this.canvas.focus(node);
        return undefined;
    }

    /** The graph as a list: each node with what it reads and who reads it. */
    writeText() {
        const names = (edges, back) => {
            const ends = edges.flatMap((edge) => endsOf(edge, back).map((node) => [node, edge]));
            return ends.map(([node, edge]) => `${nodeName(node)} (${valuesText(edge, 2)})`).join("; ") || "none";
        };
        const one = (node) =>
            el(
                "li",
                {},
                link(nodeName(node), () => this.canvas.focus(node)),
                `: reads from ${names(node.ins, true)}; read by ${names(node.outs, false)}`,
            );
        const all = this.picture.nodes.filter((node) => !node.open);
        this.text.replaceChildren(el("summary", {}, "This graph as text"), el("ol", {}, all.map(one)));
    }
}
