// The data of the page: strings, types, lines and blocks are shared, and named by their numbers.

const Data = jsonOf("data");
const PASSES = ["forward", "backward", "recomputed"];
const lineCache = new Map();
const blockCache = new Map();

/** The data in an element; null where there is none. */
function jsonOf(id) {
    const element = document.getElementById(id);
    return element && JSON.parse(element.textContent);
}

/** A line by its number. */
function lineOf(number) {
    let line = lineCache.get(number);
    if (line) return line;
    const [text, results, names, types, operator, executor, pass, body, refusals, place] = Data.lines[number];
    const string = (i) => (i < 0 ? null : Data.strings[i]);
    const all = names.map(string);
    line = {
        number,
        template: Data.strings[text],
        names: all,
        results: all.slice(0, results),
        operands: all.slice(results),
        types: types.map((type) => Data.types[type]),
        operator: string(operator),
        executor: string(executor),
        pass: PASSES[pass],
        body,
        refusals: refusals.map((refusal) => JSON.parse(string(refusal))),
        place: string(place),
    };
    lineCache.set(number, line);
    return line;
}

/** A name as a text has it. */
function written(name) {
    return /^[A-Za-z0-9_][A-Za-z0-9_.:-]*$/.test(name) ? name : JSON.stringify(name);
}

/** What the last stage of a subject tells of the stages before. */
const lastStages = new Map();

/** The names that lines of the last stage define, which of them run, and the operators of those that run nothing. */
function lastOf(subject) {
    if (!lastStages.has(subject)) {
        const last = subject.stages[subject.stages.length - 1];
        const lines = last ? blockOf(last.block).lines : [];
        const idle = (line) => Data.idle.includes(line.executor);
        lastStages.set(subject, {
            running: new Set(lines.filter((line) => !idle(line)).flatMap((line) => line.results)),
            operators: new Set(lines.filter(idle).map((line) => line.operator)),
        });
    }
    return lastStages.get(subject);
}

/**
 * Whether a line that an executor has taken runs nothing: it is a view, or a whole that its parts are written to. Before
 * the layout is known it is a line of such an operator that the last stage does not run: it has a view of another name.
 */
function isIdle(line, subject) {
    if (!line.executor) return false;
    if (Data.idle.includes(line.executor)) return true;
    const { running, operators } = lastOf(subject);
    return operators.has(line.operator) && !line.results.some((name) => running.has(name));
}

/** The text of a line. */
function textOf(line) {
    if (line.text === undefined) {
        let next = 0;
        line.text = line.template.replace(/\t/g, () => written(line.names[next++]));
    }
    return line.text;
}

/** A block by its number, with who defines and who reads each name. */
function blockOf(number) {
    let block = blockCache.get(number);
    if (block) return block;
    const raw = Data.blocks[number];
    block = {
        number,
        parameters: raw.p.map(([name, type]) => ({
            name: Data.strings[name],
            type: type < 0 ? null : Data.types[type],
        })),
        lines: raw.l.map(lineOf),
        ends: new Map(
            Object.entries(raw.d).map(([at, names]) => [Number(at), names.map((name) => Data.strings[name])]),
        ),
        results: raw.y.map((name) => Data.strings[name]),
        values: new Map(),
    };
    const value = (name) => {
        if (!block.values.has(name))
            block.values.set(name, { name, at: null, type: null, uses: [], returned: false });
        return block.values.get(name);
    };
    for (const { name, type } of block.parameters) Object.assign(value(name), { at: -1, type });
    block.lines.forEach((line, at) => {
        line.results.forEach((name, i) => Object.assign(value(name), { at, type: line.types[i] }));
        for (const name of new Set(line.operands)) value(name).uses.push(at);
    });
    for (const name of block.results) value(name).returned = true;
    blockCache.set(number, block);
    return block;
}

/** The parts of the scope of a name: without its counter and its last word; `h.0` is one part. */
function scopeOf(name) {
    const words = name.replace(/\.\d+$/, "").split(".");
    words.pop();
    const parts = [];
    for (const word of words) {
        if (/^\d+$/.test(word) && parts.length) parts[parts.length - 1] += "." + word;
        else parts.push(word);
    }
    return parts;
}

/** The parts of the scope of a line; it has that of its first result. */
function scopeOfLine(line) {
    line.scope ||= line.results.length ? scopeOf(line.results[0]) : [];
    return line.scope;
}

/** What changed from one block to another: a sign for each line, and which lines are gone behind which line. */
function changesBetween(before, after) {
    const key = (line) => (line.results.length ? "=" + line.results[0] : "!" + textOf(line));
    const old = new Map(before.lines.map((line) => [key(line), line]));
    const now = new Map(after.lines.map((line, at) => [key(line), at]));
    const signs = after.lines.map((line) => {
        const was = old.get(key(line));
        return was === undefined ? "+" : was.number === line.number ? "" : "~";
    });
    const removed = new Map();
    let behind = -1;
    let gone = 0;
    for (const line of before.lines) {
        const at = now.get(key(line));
        if (at !== undefined) {
            behind = at;
            continue;
        }
        gone += 1;
        if (!removed.has(behind)) removed.set(behind, []);
        removed.get(behind).push(line);
    }
    return {
        signs,
        removed,
        old: (line) => old.get(key(line)),
        counts: {
            added: signs.filter((sign) => sign === "+").length,
            changed: signs.filter((sign) => sign === "~").length,
            removed: gone,
        },
    };
}

/** In what two lines of one name differ. */
function aspects(was, is) {
    const found = [];
    if (was.types.map((type) => type[0]).join() !== is.types.map((type) => type[0]).join()) found.push("type");
    if (was.operator !== is.operator) found.push("operator");
    else if (was.operands.join("\t") !== is.operands.join("\t")) found.push("operands");
    if (was.executor !== is.executor) found.push("executor");
    if (JSON.stringify(was.refusals) !== JSON.stringify(is.refusals)) found.push("refusals");
    if (was.pass !== is.pass) found.push("pass");
    if (was.body !== is.body) found.push("body");
    if (!found.length) found.push("attributes");
    return found;
}
