// Changed lines: both texts, with the words that differ, and links to the programs.

/** Totals of two programs. */
function totalsTable(totals) {
    const names = [
        ["symbols", "lines"],
        ["launches", "lines that run"],
        ["bytes", "bytes"],
        ["flops", "FLOPs"],
        ["peak_memory", "peak memory"],
    ];
    const rows = names.map(([key, label]) => {
        const [was, is] = [totals.before[key], totals.after[key]];
        const change = signed(was, is);
        return [label, was === null ? "none" : was, is === null ? "none" : is, change];
    });
    return table("Totals", ["total", "before", "after", "change"], rows);
}

/** A difference with its sign. */
function signed(before, after) {
    if (before === null || after === null) return "";
    if (before === after) return "same";
    return `${after > before ? "+" : "-"}${grouped(Math.abs(after - before))}`;
}

/** A changed line. `sides` are the programs before and after, each as subject and stage, or null for no link. */
function changeItem(app, line, sides) {
    const sign = { added: "+", removed: "-", changed: "~" }[line.change];
    const [was, is] = line.before && line.after ? wordDifference(line.before, line.after) : [line.before, line.after];
    const words = { claim: "executor", types: "type", storage: "memory", place: "moved" };
    const what = (line.what || []).map((one) => words[one] || one);
    if (line.body && line.body.length) what.push("body");
    const side = (label, content, place, text) =>
        el(
            "div",
            { class: "side" },
            el("span", { class: "unseen" }, `${label}: `),
            content ? el("code", { class: "wrap" }, content) : el("span", { class: "hint" }, "not there"),
            content && place && programLink(app, place, text),
        );
    return el(
        "li",
        { class: "change", "data-change": line.change },
        el(
            "p",
            { class: "what" },
            el("span", { class: "sign" }, sign),
            ` ${line.change}${what.length ? `: ${what.join(", ")}` : ""}`,
        ),
        el(
            "div",
            { class: "sides" },
            side("before", was, sides[0], line.before),
            side("after", is, sides[1], line.after),
        ),
        line.body &&
            line.body.length > 0 &&
            el(
                "details",
                { open: line.body.length <= 20 },
                el("summary", {}, `body, ${counted(line.body.length, "change")}`),
                // Names of a body are not those of the program.
                el(
                    "ol",
                    {},
                    line.body.map((inner) => changeItem(app, inner, [null, null])),
                ),
            ),
    );
}

/** A link to the line of a program that a text is of. */
function programLink(app, [subject, stage], text) {
    const name = definedBy(text);
    return (
        name !== null &&
        link("in the program", () => app.goToName(subject, stage, name), {
            "aria-label": `${written(name)} in the program ${Data.subjects[subject].name}`,
        })
    );
}

/** The first name that a line defines. */
function definedBy(text) {
    const [, quoted, word] = /^(?:("(?:[^"\\]|\\.)*")|([^\s:,=(]+))(?=[:,\s])/.exec(text) || [];
    if (quoted)
        try {
            return JSON.parse(quoted);
        } catch {
            return null;
        }
    return word && text.includes(" = ") ? word : null;
}

/** Two texts with the words marked that only one has at its place: the longest common subsequence of words. */
function wordDifference(before, after) {
    const words = (text) => text.match(/[\w.]+|\s+|[^\w\s]/g) || [];
    const [a, b] = [words(before), words(after)];
    if (a.length * b.length > 250000) return [before, after];
    const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
    for (let i = a.length - 1; i >= 0; i -= 1) {
        for (let j = b.length - 1; j >= 0; j -= 1) {
            common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
        }
    }
    const [was, is] = [[], []];
    let [i, j] = [0, 0];
    while (i < a.length || j < b.length) {
        if (i < a.length && j < b.length && a[i] === b[j]) {
            was.push(a[i]);
            is.push(b[j]);
            i += 1;
            j += 1;
        } else if (j >= b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) {
            was.push(el("del", {}, a[i]));
            i += 1;
        } else {
            is.push(el("ins", {}, b[j]));
            j += 1;
        }
    }
    return [was, is];
}
