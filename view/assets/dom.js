"use strict";
// Elements. Text of traces only ever becomes text nodes and attribute values, never markup.

function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
        if (value === null || value === undefined || value === false) continue;
        if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
        else if (name === "value" || name === "checked" || name === "selected") node[name] = value;
        else node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat(Infinity)) {
        if (child === null || child === undefined || child === false) continue;
        node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
}

/** An element: `el("p", {class: "note"}, "text", other)`. */
function el(tag, attributes, ...children) {
    return fill(document.createElement(tag), attributes, children);
}

/** An element of a drawing. */
function svg(tag, attributes, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

/** A button. */
function button(label, action, attributes) {
    return el("button", Object.assign({ type: "button", onclick: action }, attributes), label);
}

/** A link to another place of the page. Unlike a button, its text wraps with the words around it. */
function link(label, action, attributes) {
    const go = (event) => {
        event.preventDefault();
        action();
    };
    return el("a", Object.assign({ href: "#", onclick: go }, attributes), label);
}

/** A select with [value, label] options. */
function select(label, options, chosen, action) {
    const box = el("select", { onchange: () => action(box.value) });
    for (const [value, text] of options) {
        box.append(el("option", { value, selected: String(value) === String(chosen) }, text));
    }
    return el("label", { class: "field" }, el("span", {}, label), box);
}

/** A table: heads, rows of cells; numbers are aligned to the right. */
function table(caption, heads, rows) {
    const number = (cell) =>
        typeof cell === "number" || (typeof cell === "string" && /^[+-]?[\d,.]+( [a-zA-Z%]+)?$/.test(cell));
    const cell = (content) =>
        el(
            "td",
            { class: number(content) ? "number" : null },
            typeof content === "number" ? grouped(content) : content,
        );
    return el(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
        el(
            "table",
            {},
            el("caption", {}, caption),
            el(
                "thead",
                {},
                el(
                    "tr",
                    {},
                    heads.map((head) => el("th", { scope: "col" }, head)),
                ),
            ),
            el(
                "tbody",
                {},
                rows.map((row) => el("tr", {}, row.map(cell))),
            ),
        ),
    );
}

/** 1234567 as 1,234,567. */
function grouped(number) {
    return String(number).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A number of things: `1 line`, `1,200 lines`. */
function counted(number, thing) {
    return `${grouped(number)} ${thing}${number === 1 ? "" : "s"}`;
}

/** Bytes for people. */
function bytesText(bytes) {
    if (bytes < 1024) return `${bytes} B`;
    const units = ["KiB", "MiB", "GiB", "TiB"];
    let unit = -1;
    do {
        bytes /= 1024;
        unit += 1;
    } while (bytes >= 1024 && unit < units.length - 1);
    return `${bytes.toFixed(bytes < 10 ? 2 : 1)} ${units[unit]}`;
}

/** Tells people who do not see the page what changed. */
function announce(text) {
    document.getElementById("status").textContent = text;
}
