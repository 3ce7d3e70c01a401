// A list of many rows of one height, of which only those in sight are in the document.

/** Rows above and below those in sight that are drawn too. */
const MARGIN = 20;

/** Whether a click anywhere on a row folds it: it is no line. */
function foldsWhole(row) {
    return row.foldable && row.kind !== "line";
}

class RowList {
    /** `render(row)` gives the content of a row, `act(row, how)` is told of choices: choose, name, fold, enter. */
    constructor(label, render, act) {
        this.render = render;
        this.act = act;
        this.rows = [];
        this.active = 0;
        this.drawn = [0, 0];
        this.grid = el("div", {
            role: "treegrid",
            "aria-label": label,
            "aria-readonly": "true",
            tabindex: 0,
            class: "rows",
        });
        this.window = el("div", { role: "rowgroup", class: "window" });
        this.grid.append(this.window);
        this.grid.addEventListener("scroll", () => this.follow(), { passive: true });
        this.grid.addEventListener("keydown", (event) => this.key(event));
        this.grid.addEventListener("click", (event) => this.click(event));
        new ResizeObserver(() => this.draw()).observe(this.grid);
    }

    height() {
        if (!this.rowHeight) {
            const probe = el("div", { class: "row", "aria-hidden": "true" }, "x");
            this.window.append(probe);
            this.rowHeight = probe.getBoundingClientRect().height || 22;
            probe.remove();
        }
        return this.rowHeight;
    }

    /** Shows rows; the active one stays the one of its key. */
    set(rows) {
        const key = this.rows[this.active] && this.rows[this.active].key;
        const at = key === undefined ? -1 : rows.findIndex((row) => row.key === key);
        this.rows = rows;
        this.active = at >= 0 ? at : Math.min(this.active, Math.max(rows.length - 1, 0));
        this.grid.setAttribute("aria-rowcount", String(rows.length));
        this.window.style.height = `${rows.length * this.height()}px`;
        this.draw();
    }

    /** The rows in sight and some around them: from, to. */
    inSight() {
        const { scrollTop, clientHeight } = this.grid;
        const height = this.height();
        const last = Math.ceil((scrollTop + clientHeight) / height) + MARGIN;
        return [Math.max(0, Math.floor(scrollTop / height) - MARGIN), Math.min(this.rows.length, last)];
    }

    /** Draws what scrolling brings close. Rows that are there stay: a click begins and ends on the same one. */
    follow() {
        const [first, last] = this.inSight();
        const [from, to] = this.drawn;
        const near = (want, have, end) => want === have || (have !== end && Math.abs(want - have) < MARGIN / 2);
        if (!near(first, from, 0) || !near(last, to, this.rows.length)) this.draw();
    }

    draw() {
        const height = this.height();
        const [first, last] = this.inSight();
        this.drawn = [first, last];
        const drawn = [];
        for (let i = first; i < last; i += 1) {
            const row = this.rows[i];
            const node = el(
                "div",
                {
                    role: "row",
                    id: `row-${i}`,
                    class: `row ${row.kind}${i === this.active ? " active" : ""}`,
                    "aria-rowindex": i + 1,
                    "aria-level": row.depth + 1,
                    "data-row": i,
                    "aria-expanded": row.foldable ? String(row.open) : null,
                    "aria-selected": String(i === this.active),
                    "data-sign": row.sign || null,
                },
                this.render(row),
            );
            node.style.top = `${i * height}px`;
            drawn.push(node);
        }
        this.window.replaceChildren(...drawn);
        if (this.active >= first && this.active < last)
            this.grid.setAttribute("aria-activedescendant", `row-${this.active}`);
        else this.grid.removeAttribute("aria-activedescendant");
    }

    /** Makes row `at` the active one, in sight. */
    goTo(at, choose) {
        if (!this.rows.length) return;
        this.active = Math.max(0, Math.min(at, this.rows.length - 1));
        const [top, height] = [this.active * this.height(), this.height()];
        const { scrollTop, clientHeight } = this.grid;
        if (top < scrollTop || top + height > scrollTop + clientHeight) {
            this.grid.scrollTop = Math.max(0, top - clientHeight / 3);
        }
        this.draw();
        if (choose) this.act(this.rows[this.active], "choose");
    }

    click(event) {
        const node = event.target.closest("[data-row]");
        if (!node) return;
        const row = this.rows[Number(node.dataset.row)];
        const name = event.target.closest("[data-name]");
        this.active = Number(node.dataset.row);
        if (event.target.closest(".fold") || foldsWhole(row)) this.act(row, "fold");
        else this.act(row, name ? "name" : "choose", name && name.dataset.name);
        this.draw();
    }

    key(event) {
        if (event.target !== this.grid || event.ctrlKey || event.metaKey || event.altKey) return;
        const page = Math.max(1, Math.floor(this.grid.clientHeight / this.height()) - 1);
        const row = this.rows[this.active];
        const moves = {
            ArrowDown: 1,
            ArrowUp: -1,
            PageDown: page,
            PageUp: -page,
            Home: -this.rows.length,
            End: this.rows.length,
        };
        if (event.key in moves) this.goTo(this.active + moves[event.key], true);
        else if (event.key === "ArrowRight" && row.foldable && !row.open) this.act(row, "fold");
        else if (event.key === "ArrowRight") this.goTo(this.active + 1, true);
        else if (event.key === "ArrowLeft" && row.foldable && row.open) this.act(row, "fold");
        else if (event.key === "ArrowLeft") this.goTo(this.parent(this.active), true);
        else if (event.key === " " && row.foldable) this.act(row, "fold");
        else if (event.key === "Enter")
            this.act(row, foldsWhole(row) ? "fold" : "enter");
        else return;
        event.preventDefault();
    }

    /** The row that row `at` is below. */
    parent(at) {
        let up = at;
        while (up > 0 && this.rows[up].depth >= this.rows[at].depth) up -= 1;
        return up;
    }
}
