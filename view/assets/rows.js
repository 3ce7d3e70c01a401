// A program as rows: scopes and bodies fold. What is open is known by names, so that it stays from stage to stage.

/** Which folds people opened or closed. */
const folds = new Map();

/** Whether scopes are open that nobody opened or closed; null if that depends on the length of the program. */
let scopesOpen = null;

/** Whether lines that run nothing are left out. */
let idleHidden = false;

/** Whether a line is left out. */
function isHidden(line, subject) {
    return idleHidden && isIdle(line, subject);
}

function isOpen(key, unless) {
    return folds.has(key) ? folds.get(key) : unless;
}

/** The rows of a block of a subject. `marks` are its changes against the stage before, or null. */
function rowsOf(block, stage, marks, subject) {
    const rows = [];
    // A long program begins as a table of contents.
    const many = block.lines.length > 250;
    const inputs = block.parameters.length;
    const open = isOpen("inputs", inputs <= 12);
    rows.push({ kind: "inputs", key: "inputs", depth: 0, open, foldable: inputs > 0, block, count: inputs });
    if (open) {
        block.parameters.forEach((parameter, at) => {
            rows.push({
                kind: "input",
                key: "input " + parameter.name,
                depth: 1,
                block,
                parameter,
                input: stage.inputs[at],
            });
        });
    }
    const context = { rows, block, marks, many, seen: new Map(), pass: stage.firstPass, stage, subject };
    gone(context, -1, 0);
    groups(
        context,
        block.lines.map(scopeOfLine),
        0,
        block.lines.length,
        0,
        0,
        "",
    );
    const outputs = block.results.length;
    const folds = outputs > 12;
    const shown = folds && isOpen("return", false);
    rows.push({
        kind: "return",
        key: "return",
        depth: 0,
        open: shown,
        foldable: folds,
        block,
        outputs: stage.outputs,
        count: outputs,
    });
    if (shown) {
        block.results.forEach((name, at) => {
            const path = stage.outputs[at];
            rows.push({ kind: "output", key: `output ${at}`, depth: 1, block, name, path });
        });
    }
    return rows;
}

/** Lines from `from` to `to`, those of one scope below a row of their own. */
function groups(context, scopes, from, to, part, depth, prefix) {
    let at = from;
    while (at < to) {
        const word = scopes[at][part];
        if (word === undefined) {
            passRow(context, at, depth);
            lineRows(context, context.block, at, depth, "", prefix);
            gone(context, at, depth);
            at += 1;
            continue;
        }
        let end = at + 1;
        while (end < to && scopes[end][part] === word) end += 1;
        let [name, deeper] = [prefix ? prefix + "." + word : word, part + 1];
        // A scope with one scope in it, and nothing else, is one row.
        const alike = (i) =>
            scopes[at][i] !== undefined && within(scopes, at, end, i);
        while (alike(deeper)) {
            name += "." + scopes[at][deeper];
            deeper += 1;
        }
        if (end - at < 2) {
            passRow(context, at, depth);
            lineRows(context, context.block, at, depth, "", prefix);
            gone(context, at, depth);
            at = end;
            continue;
        }
        passRow(context, at, depth);
        const count = context.block.lines.slice(at, end).filter((line) => !isHidden(line, context.subject)).length;
        if (count === 0 && goneIn(context.marks, at, end) === 0) {
            at = end;
            continue;
        }
        const times = (context.seen.get(name) || 0) + 1;
        context.seen.set(name, times);
        const key = `scope ${name} ${times}`;
        const open = isOpen(key, scopesOpen ?? !context.many);
        const signs = context.marks ? context.marks.signs.slice(at, end) : [];
        context.rows.push({
            kind: "scope",
            key,
            depth,
            open,
            foldable: true,
            name,
            count,
            block: context.block,
            at,
            end,
            changed: signs.filter((sign) => sign).length + goneIn(context.marks, at, end),
        });
        if (open) groups(context, scopes, at, end, deeper, depth + 1, name);
        at = end;
    }
}

/** Whether all scopes from `from` to `to` have the same word at `part`. */
function within(scopes, from, to, part) {
    for (let i = from + 1; i < to; i += 1) if (scopes[i][part] !== scopes[from][part]) return false;
    return true;
}

function goneIn(marks, from, to) {
    let count = 0;
    if (marks) for (const [at, lines] of marks.removed) if (at >= from && at < to) count += lines.length;
    return count;
}

/** A row where the pass changes. */
function passRow(context, at, depth) {
    const pass = context.block.lines[at].pass;
    if (pass === context.pass) return;
    context.pass = pass;
    context.rows.push({ kind: "pass", key: `pass ${at}`, depth, name: pass, at, block: context.block });
}

/** The lines that the stage before had behind line `at`. */
function gone(context, at, depth) {
    const lines = (context.marks && context.marks.removed.get(at)) || [];
    lines.forEach((line, i) => {
        context.rows.push({ kind: "gone", key: `gone ${at} ${i}`, depth, line, sign: "-", block: context.block });
    });
}

/**
 * A line, and its body if that is open. Names below `scope` are written without it; `way` are the lines whose bodies
 * it is in.
 */
function lineRows(context, block, at, depth, outer, scope, way = []) {
    const line = block.lines[at];
    // Lines of bodies are all there: a kernel computes them together.
    if (outer === "" && isHidden(line, context.subject)) return;
    const name = line.results[0] || `line ${at}`;
    const key = `line ${outer}${name}`;
    const foldable = line.body >= 0;
    const open = foldable && isOpen(key, false);
    const sign = outer === "" && context.marks ? context.marks.signs[at] : "";
    const own = [...way, at];
    context.rows.push({ kind: "line", key, depth, block, at, line, foldable, open, sign, outer, scope, way: own });
    if (!open) return;
    const body = blockOf(line.body);
    const within = `${outer}${name}/`;
    context.rows.push({ kind: "parameters", key: `parameters ${within}`, depth: depth + 1, block: body });
    body.lines.forEach((_, inner) => lineRows(context, body, inner, depth + 1, within, scope, own));
    context.rows.push({ kind: "yield", key: `yield ${within}`, depth: depth + 1, block: body });
}

/** Opens the scope that hides line `at` of a program; false if none does. Scopes nest: each call opens one level. */
function reveal(at, rows) {
    const row = rows.find((of) => of.kind === "scope" && !of.open && of.at <= at && at < of.end);
    if (row) folds.set(row.key, true);
    return Boolean(row);
}
