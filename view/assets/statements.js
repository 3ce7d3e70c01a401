// Which line of a region's body a generated source computes where. A generated kernel begins with a list of its steps
// as comments, `//   n3 = sub(n0, n1)`, and its code calls the same values by the same names. Steps are in the order of
// the body, so the lines of the body are found in it one after the other.

/** The step of a list: name, operation, operands; null for other lines. */
function stepOf(text) {
    const [, name, rest] = /^\/\/ {3}(n\d+) = (.*)$/.exec(text) || [];
    if (!name) return null;
    const input = /^input (\d+), /.exec(rest);
    if (input) return { name, input: Number(input[1]) };
    const cast = /^(n\d+) as \w+$/.exec(rest);
    if (cast) return { name, cast: cast[1] };
    const reduced = /^(sum|maximum|minimum) of each row of (.+)$/.exec(rest);
    const reductions = { sum: "sum", maximum: "amax", minimum: "amin" };
    if (reduced) return { name, operation: reductions[reduced[1]], operands: [reduced[2]] };
    const call = /^(\w+)\((.*)\)$/.exec(rest);
    return call ? { name, operation: call[1], operands: call[2].split(", ") } : null;
}

/** The name of each value of a body in a source, as a map; empty if the source has no list of steps. */
function namesInSource(body, source) {
    const steps = source.split("\n").map(stepOf).filter(Boolean);
    const found = new Map();
    if (!steps.length) return found;
    // A conversion is the same value in another type.
    const rootOf = new Map();
    for (const { name, cast } of steps) rootOf.set(name, cast ? rootOf.get(cast) || cast : name);
    const same = (a, b) => (rootOf.get(a) || a) === (rootOf.get(b) || b);
    for (const { name, input } of steps) {
        const parameter = input !== undefined && body.parameters[input];
        if (parameter) found.set(parameter.name, name);
    }
    let from = 0;
    for (const line of body.lines) {
        const [result] = line.results;
        const operands = [...new Set(line.operands)];
        const operation = line.operator.replace(/^prims::/, "").replaceAll("_", "");
        const fits = (step) =>
            step.operation === operation &&
            operands.every((name) => !found.has(name) || step.operands.some((of) => same(of, found.get(name))));
        let at = steps.findIndex((step, i) => i >= from && fits(step));
        if (at >= 0) from = at + 1;
        // What is computed twice has one step.
        else at = steps.findIndex(fits);
        if (at >= 0) found.set(result, steps[at].name);
        // A view or a conversion is the value that it shows.
        else if (operands.length === 1 && found.has(operands[0])) found.set(result, found.get(operands[0]));
    }
    return found;
}

/** The value that a line of code computes, or null. */
function computedBy(code) {
    const [, name] = /(?:^|[\s*(])(?:kept_)?(n\d+)(?:\[\w+\])? = /.exec(code) || [];
    return name || null;
}

/** The lines of a source that compute a line of a body: their numbers from 0; and for each, which line of the body. */
function statements(body, source) {
    const names = namesInSource(body, source);
    const lineOfName = new Map();
    body.lines.forEach((line, at) => {
        const name = names.get(line.results[0]);
        // Of a value and views of it, the line that computes it.
        if (name && !lineOfName.has(name)) lineOfName.set(name, at);
    });
    const inputs = new Set(body.parameters.map((parameter) => names.get(parameter.name)));
    const found = new Map();
    source.split("\n").forEach((text, number) => {
        const step = stepOf(text);
        const name = step ? step.name : computedBy(text);
        if (name && !inputs.has(name) && lineOfName.has(name)) found.set(number, lineOfName.get(name));
    });
    return found;
}
