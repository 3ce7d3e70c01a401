// The canvas of a graph: draws a picture, moves and zooms it, and moves among its nodes by keys.

class GraphCanvas {
    constructor(view) {
        this.view = view;
        this.at = { x: 0, y: 0, k: 1 };
        this.scene = svg("g", {});
        const arrow = svg(
            "marker",
            {
                id: "arrow",
                viewBox: "0 0 8 8",
                refX: 7,
                refY: 4,
                markerWidth: 9,
                markerHeight: 9,
                orient: "auto",
                // Thick lines have no larger arrows.
                markerUnits: "userSpaceOnUse",
            },
            svg("path", { d: "M0 0 8 4 0 8z", class: "arrow" }),
        );
        this.drawing = svg("svg", { class: "graph", role: "presentation" }, svg("defs", {}, arrow), this.scene);
        this.frame = el("div", { class: "graph-frame", role: "application" }, this.drawing);
        this.frame.setAttribute(
            "aria-label",
            "dataflow. Arrow keys go along edges and among neighbours, Enter goes to the line or opens a scope, " +
                "plus and minus zoom, 0 fits.",
        );
        this.pointers = new Map();
        this.listen();
    }

    listen() {
        const { frame } = this;
        frame.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
        frame.addEventListener("pointerdown", (event) => this.down(event));
        frame.addEventListener("pointermove", (event) => this.move(event));
        for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, (event) => this.up(event));
        frame.addEventListener("keydown", (event) => this.key(event));
        frame.addEventListener("click", (event) => this.click(event));
        frame.addEventListener("dblclick", (event) => {
            const node = this.nodeOf(event);
            if (node && node.part && node.part.line) this.view.enter(node);
        });
        frame.addEventListener("pointerover", (event) => this.hover(event.target));
        frame.addEventListener("focusin", (event) => this.mark(this.nodeOf(event)));
    }

    draw(picture) {
        this.picture = picture;
        const focused = document.activeElement && this.frame.contains(document.activeElement);
        const boxes = picture.nodes.filter((node) => node.open);
        this.edges = picture.edges.map((edge) => edgeElement(edge));
        this.nodes = picture.nodes.map((node, i) => nodeElement(node, i, this.view.signsOf(node.part)));
        this.scene.replaceChildren(...boxes.map((node) => backElement(node)), ...this.edges, ...this.nodes);
        const at = Math.max(
            picture.nodes.findIndex((node) => node.key === this.view.focused),
            0,
        );
        if (this.nodes[at]) this.nodes[at].setAttribute("tabindex", "0");
        if (focused && this.nodes[at]) this.nodes[at].focus({ preventScroll: true });
    }

    show() {
        const { x, y, k } = this.at;
        this.scene.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
    }

    size() {
        const { clientWidth, clientHeight } = this.frame;
        return { w: clientWidth || 600, h: clientHeight || 400 };
    }

    /** The whole width, if its text can be read then; otherwise its first node is in the middle. */
    fit() {
        const { w, h } = this.size();
        const { size } = this.picture;
        if (!size.w) return;
        const whole = Math.min((w - 16) / size.w, (h - 16) / size.h, 1.2);
        const k = Math.max(whole, Math.min((w - 16) / size.w, 0.7), 0.5);
        const [first] = this.picture.nodes;
        const middle = size.w * k > w && first ? first.x + first.w / 2 : size.w / 2;
        this.at = { k, x: w / 2 - middle * k, y: 8 };
        this.show();
    }

    /** Zooms by a factor around a point of the frame, its middle otherwise. */
    zoom(by, px = this.size().w / 2, py = this.size().h / 2) {
        const { x, y, k } = this.at;
        const to = Math.min(Math.max(k * by, 0.05), 4);
        this.at = { k: to, x: px - ((px - x) / k) * to, y: py - ((py - y) / k) * to };
        this.show();
    }

    pan(dx, dy) {
        this.at.x += dx;
        this.at.y += dy;
        this.show();
    }

    wheel(event) {
        event.preventDefault();
        const box = this.frame.getBoundingClientRect();
        if (event.ctrlKey || event.metaKey) {
            this.zoom(Math.exp(-event.deltaY / 200), event.clientX - box.x, event.clientY - box.y);
        } else if (event.shiftKey) this.pan(-event.deltaY, -event.deltaX);
        else this.pan(-event.deltaX, -event.deltaY);
    }

    down(event) {
        if (event.button > 0) return;
        this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
        if (this.pointers.size === 1) this.moved = 0;
    }

    move(event) {
        const was = this.pointers.get(event.pointerId);
        if (!was) return;
        const is = { x: event.clientX, y: event.clientY };
        const [dx, dy] = [is.x - was.x, is.y - was.y];
        this.moved += Math.abs(dx) + Math.abs(dy);
        // A click that trembles is a click.
        if (this.moved < 5) return;
        this.frame.setPointerCapture(event.pointerId);
        const other = [...this.pointers].find(([id]) => id !== event.pointerId);
        if (other) {
            const distance = (from) => Math.hypot(from.x - other[1].x, from.y - other[1].y) || 1;
            const box = this.frame.getBoundingClientRect();
            this.zoom(distance(is) / distance(was), (is.x + other[1].x) / 2 - box.x, (is.y + other[1].y) / 2 - box.y);
            this.pan(dx / 2, dy / 2);
        } else this.pan(dx, dy);
        this.pointers.set(event.pointerId, is);
    }

    up(event) {
        this.pointers.delete(event.pointerId);
    }

    nodeOf(event) {
        const found = event.target.closest && event.target.closest("[data-node]");
        return found ? this.picture.nodes[Number(found.dataset.node)] : null;
    }

    click(event) {
        const node = this.nodeOf(event);
        if (!node || this.moved >= 5) return;
        this.focus(node, true);
        if (node.part && event.target.closest(".fold-mark")) this.view.fold(node.part);
        this.view.choose(node);
    }

    /** Moves the focus to a node, in sight. */
    focus(node, still) {
        this.view.focused = node.key;
        const at = this.picture.nodes.indexOf(node);
        for (const other of this.nodes) other.setAttribute("tabindex", "-1");
        this.nodes[at].setAttribute("tabindex", "0");
        if (!still) this.bring(node);
        this.nodes[at].focus({ preventScroll: true });
        this.mark(node);
    }

    /** Moves the picture so that a node is in sight. */
    bring(node) {
        const { w, h } = this.size();
        const { x, y, k } = this.at;
        const [left, top] = [x + node.x * k, y + node.y * k];
        const [wide, high] = [Math.min(node.w * k, w - 40), Math.min(node.h * k, h - 40)];
        const into = (from, length, room) => (from < 20 ? 20 - from : Math.min(room - 20 - from - length, 0));
        this.pan(into(left, wide, w), into(top, high, h));
    }

    /** Marks the edges of a node, and says what goes along them. */
    mark(node) {
        if (!node) return;
        this.view.focused = node.key;
        const near = new Set([...node.ins, ...node.outs].flatMap(throughBorders));
        this.picture.edges.forEach((edge, i) => this.edges[i].classList.toggle("near", near.has(edge)));
        const part = (edges, word) => edges.length && `${word} ${edges.map((edge) => valuesText(edge, 3)).join(", ")}`;
        const words = [nodeName(node), part(node.ins, "reads"), part(node.outs, "gives")].filter(Boolean);
        this.view.note.textContent = words.join(" · ");
    }

    /** Says what goes along the edge under the pointer. */
    hover(target) {
        const found = target.closest && target.closest("[data-edge]");
        this.edges.forEach((edge) => edge.classList.toggle("over", edge === found));
        if (found) this.view.note.textContent = edgeText(this.picture.edges[this.edges.indexOf(found)]);
    }

    key(event) {
        if (event.ctrlKey || event.metaKey || event.altKey) return;
        const node = this.nodeOf(event);
        const pan = { ArrowUp: [0, 60], ArrowDown: [0, -60], ArrowLeft: [60, 0], ArrowRight: [-60, 0] }[event.key];
        if (event.key === "+" || event.key === "=") this.zoom(1.25);
        else if (event.key === "-") this.zoom(0.8);
        else if (event.key === "0") this.fit();
        else if (pan && event.shiftKey) this.pan(...pan);
        else if (!node) return;
        else if (event.key === "ArrowDown") this.along(node, node.outs, false);
        else if (event.key === "ArrowUp") this.along(node, node.ins, true);
        else if (event.key === "ArrowRight") this.beside(node, 1);
        else if (event.key === "ArrowLeft") this.beside(node, -1);
        else if (event.key === "Enter") this.view.enter(node);
        else if (event.key === " " && node.part && node.part.opens()) this.view.fold(node.part);
        else if (event.key === "Escape" && node.parent) this.arrive(node.parent);
        else return;
        event.preventDefault();
        event.stopPropagation();
    }

    /** Follows the first edge of a node. */
    along(node, edges, back) {
        // From an open scope downwards: into it first.
        const inside = node.open && !back && this.picture.nodes.find((of) => of.parent === node);
        const [edge] = edges;
        const next = inside || (edge && endsOf(edge, back)[0]);
        if (!next) return announce(back ? "reads nothing that is drawn" : "nobody drawn reads it");
        this.arrive(next);
        if (edge && !inside) announce(`${edgeText(edge)} to ${nodeName(next)}`);
        return undefined;
    }

    /** Goes to the nearest node at the side, in about the same row. */
    beside(node, sign) {
        const middle = (of) => [of.x + of.w / 2, of.y + of.h / 2];
        const [x, y] = middle(node);
        const far = (of) => Math.abs(middle(of)[0] - x) + 4 * Math.abs(middle(of)[1] - y);
        const there = (of) => !of.open && (middle(of)[0] - x) * sign > 1 && Math.abs(middle(of)[1] - y) < 120;
        const found = this.picture.nodes.filter(there).sort((a, b) => far(a) - far(b))[0];
        if (found) this.arrive(found);
    }

    arrive(node) {
        this.focus(node);
        this.view.choose(node);
    }
}
