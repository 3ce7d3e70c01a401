// What is known of a line or a value: definition, uses, type, executor, refusals, memory, the stages of a value.

/** A name as a link to its details. */
function valueLink(app, name, block) {
    return link(written(name), () => app.showValue(name, block));
}

/** A line as a link to its place. */
function lineLink(app, block, at, label) {
    return link(label || shortened(textOf(block.lines[at])), () => app.goToLine(block, at));
}

function shortened(text) {
    return text.length > 90 ? `${text.slice(0, 88)}…` : text;
}

/** The text of a line, its names as links; of a line with more than `most` names the first ones and the end. */
function linked(line, ofName, most = Infinity) {
    const parts = line.template.split("\t");
    if (line.names.length > most) {
        const shown = parts.slice(0, most).flatMap((part, i) => [part, ofName(line.names[i])]);
        return [...shown, ` … ${counted(line.names.length - most, "more name")} … `, parts[parts.length - 1]];
    }
    return parts.flatMap((part, i) => (i < line.names.length ? [part, ofName(line.names[i])] : [part]));
}

function item(name, ...content) {
    return [el("dt", {}, name), el("dd", {}, ...content)];
}

/** Links from a line to where it is in the other views. */
function placesOf(app, block, at, way) {
    const to = way || (block === app.block() ? [at] : null);
    const links = [];
    if (to && app.current !== "program") links.push(link("in the program", () => app.goToWay(to)));
    if (block === app.block() && app.current !== "graph") links.push(link("in the graph", () => app.graph.goTo(at)));
    return links.length > 0 && el("p", { class: "places" }, commas(links));
}

/** The details of a line; of a body, `way` leads to it. */
function lineDetails(app, block, at, way) {
    const line = block.lines[at];
    const stage = app.stage();
    const facts = [];
    facts.push(item("taken by", line.executor || "nobody yet"));
    if (line.refusals.length) {
        facts.push(
            item(
                "refused by",
                el(
                    "ul",
                    {},
                    line.refusals.map(([executor, reason]) =>
                        el("li", {}, el("strong", {}, executor), `: ${reason}`),
                    ),
                ),
            ),
        );
    }
    line.results.forEach((name, i) =>
        facts.push(
            item(
                "result",
                valueLink(app, name, block),
                ` ${line.types[i][0]}, ${bytesText(line.types[i][1])}`,
                memoryOf(app, block, name),
            ),
        ),
    );
    const operands = [...new Set(line.operands)];
    if (operands.length) facts.push(item("reads", commas(operands.map((name) => valueLink(app, name, block)))));
    const readers = [...new Set(line.results.flatMap((name) => block.values.get(name).uses))];
    if (readers.length)
        facts.push(
            item(
                "read by",
                el(
                    "ul",
                    {},
                    some(readers, (use) => lineLink(app, block, use)),
                ),
            ),
        );
    const ends = block.ends.get(at);
    if (ends) facts.push(item("ends here", commas(ends.map((name) => valueLink(app, name, block)))));
    facts.push(timeFact(app, line) || []);
    facts.push(item("pass", line.pass));
    facts.push(item("operator", line.operator));
    if (line.place) facts.push(item("source", el("code", {}, line.place)));
    const changes = block === app.block() && app.changes();
    return el(
        "div",
        {},
        el("h2", {}, "Line"),
        el(
            "p",
            { class: "code wrap" },
            linked(line, (name) => valueLink(app, name, block)),
        ),
        placesOf(app, block, at, way),
        kernelDetails(app, way || (block === app.block() ? [at] : null)),
        changes && changeDetails(changes, line, at, stage),
        el("dl", {}, facts),
    );
}

/** What a stage did to a line. */
function changeDetails(changes, line, at, stage) {
    const sign = changes.signs[at];
    if (sign === "+") return el("p", { class: "note" }, `+ new after ${stage.name}`);
    if (sign !== "~") return null;
    const was = changes.old(line);
    return el(
        "div",
        { class: "note" },
        el("p", {}, `~ changed by ${stage.name}: ${aspects(was, line).join(", ")}`),
        el("p", { class: "code wrap before" }, "- ", textOf(was)),
        el("p", { class: "code wrap after" }, "+ ", textOf(line)),
        was.executor !== line.executor &&
            el("p", {}, `executor: ${was.executor || "none"} → ${line.executor || "none"}`),
    );
}

function commas(nodes) {
    return nodes.flatMap((node, i) => (i ? [", ", node] : [node]));
}

/** List items, the first hundred. */
function some(all, one) {
    const items = all.slice(0, 100).map((of) => el("li", {}, one(of)));
    if (all.length > 100) items.push(el("li", {}, `and ${all.length - 100} more`));
    return items;
}

/** The details of a value, in a block and through all stages. */
function valueDetails(app, name, block) {
    const value = block.values.get(name);
    const facts = [];
    if (value && value.type) facts.push(item("type", `${value.type[0]}, ${bytesText(value.type[1])}`));
    if (value && value.at === -1) facts.push(item("defined", "an input"));
    else if (value && value.at !== null) facts.push(item("defined", lineLink(app, block, value.at)));
    if (value) {
        const last = value.uses[value.uses.length - 1];
        facts.push(
            item(
                "uses",
                value.uses.length
                    ? el(
                          "ul",
                          {},
                          some(value.uses, (at) => [lineLink(app, block, at), at === last ? " (last use)" : ""]),
                      )
                    : "none",
            ),
        );
        if (value.returned) facts.push(item("returned", "yes"));
        const memory = memoryOf(app, block, name);
        if (memory) facts.push(item("memory", memory));
    }
    return el(
        "div",
        {},
        el("h2", {}, "Value ", el("code", {}, written(name))),
        el("dl", {}, facts),
        el("h3", {}, "Through the stages"),
        el("ol", { class: "journey" }, journey(app, name)),
    );
}

/** Where a value is in each stage, stages that say the same in one. */
function journey(app, name) {
    const found = app
        .subject()
        .stages.map((stage, at) => ({ at, stage: stage.name, ...whereIs(blockOf(stage.block), name) }));
    const steps = [];
    for (const step of found) {
        const last = steps[steps.length - 1];
        if (last && last.what === step.what) last.until = step.stage;
        else steps.push({ ...step, until: step.stage });
    }
    return steps.map((step) =>
        el(
            "li",
            {},
            link(step.stage === step.until ? step.stage : `${step.stage} to ${step.until}`, () =>
                app.setStage(step.at),
            ),
            ": ",
            step.what,
        ),
    );
}

/** Where a value is in a program: in words, the same words for the same thing. */
function whereIs(block, name) {
    const value = block.values.get(name);
    if (value && value.at === -1) return { what: "an input" };
    if (value && value.at !== null) {
        const line = block.lines[value.at];
        const by = line.executor ? ` by ${line.executor}` : "";
        const end = [...block.ends].find(([, names]) => names.includes(name));
        const ends = end ? `, ends with line ${end[0] + 1}` : "";
        return { what: `result of ${line.operator}${by}${ends}` };
    }
    for (const line of block.lines) {
        // Bodies of operators have names of their own.
        const holds = line.body >= 0 && ["region", "value_and_grad", "checkpoint"].includes(line.operator);
        if (holds && blockOf(line.body).values.has(name)) {
            const by = line.executor ? ` by ${line.executor}` : "";
            return { what: `inside ${line.operator}${by}` };
        }
    }
    return { what: "not there" };
}

/** Where a value is in memory, in words; null if nothing is planned. */
function memoryOf(app, block, name) {
    const { memory } = app.stage();
    if (!memory || block !== app.block()) return null;
    const number = Data.strings.indexOf(name);
    for (const [own, offset, bytes, from, to, sharing] of memory.lives) {
        if (own === number)
            return ` at ${grouped(offset)} of the arena (${bytesText(bytes)}), lines ${from + 1} to ${to + 1}`;
        if (sharing.includes(number)) return ` in the memory of ${written(Data.strings[own])}`;
    }
    return null;
}
