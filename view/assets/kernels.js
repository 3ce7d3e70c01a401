// The sources of a program's kernels beside its lines: what a line runs, and which lines run a source.

const ranBy = new Map();

/** The sources that each line of the last stage runs, by the name of its first result. */
function kernelsOf(subject) {
    if (!ranBy.has(subject)) ranBy.set(subject, new Map(subject.kernels));
    return ranBy.get(subject);
}

/** The numbers of the sources that a line of a stage runs; none in a stage where the line is another. */
function sourcesOf(app, line) {
    const subject = app.subject();
    const numbers = kernelsOf(subject).get(line.results[0]) || [];
    const last = numbers.length && blockOf(subject.stages[subject.stages.length - 1].block);
    const value = last && last.values.get(line.results[0]);
    const ran = value && value.at >= 0 ? last.lines[value.at] : null;
    return ran && ran.operator === line.operator && ran.executor === line.executor ? numbers : [];
}

/** The lines of a block that run a source. */
function linesRunning(app, block, number) {
    return block.lines.map((_, at) => at).filter((at) => sourcesOf(app, block.lines[at]).includes(number));
}

/** A source as lines; `chosen` is the line of the body that is marked, and lines that compute one lead to it. */
function sourceText(app, source, way, chosen) {
    const line = way && app.block().lines[way[0]];
    const body = line && line.body >= 0 ? blockOf(line.body) : null;
    const places = body ? statements(body, source.text) : new Map();
    const one = (text, number) => {
        const at = places.get(number);
        const go = () => app.goToWay([way[0], at]);
        const marked = at !== undefined && at === chosen;
        return el(
            "span",
            { class: `source-line${marked ? " chosen" : ""}`, "data-at": at },
            el("span", { class: "sign" }, marked ? ">" : ""),
            at === undefined
                ? text
                : [/^\s*/.exec(text)[0], link(text.trimStart(), go, { title: textOf(body.lines[at]) })],
            "\n",
        );
    };
    return el("pre", { tabindex: 0, class: "source", "aria-label": source.name }, source.text.split("\n").map(one));
}

/** A part of the details of a line: the sources that it runs. `way` leads to the line, through its body. */
function kernelDetails(app, way) {
    const subject = app.subject();
    if (!subject.sources.length || !way) return null;
    const line = app.block().lines[way[0]];
    const numbers = sourcesOf(app, line);
    if (!numbers.length) {
        const at = subject.stages.length - 1;
        const other = app.stages[app.subjectAt] !== at;
        return el(
            "p",
            { class: "kernel-note" },
            line.executor === "view" ? "No kernel: a view." : "No source of a kernel is known of this line here. ",
            other && link(`stage ${subject.stages[at].name}`, () => app.setStage(at)),
        );
    }
    return numbers.map((number) => {
        const source = subject.sources[number];
        const running = linesRunning(app, app.block(), number).filter((at) => at !== way[0]);
        return el(
            "section",
            { class: "kernel" },
            el("h3", {}, `Kernel ${source.name}`),
            el("p", { class: "code wrap" }, source.options.join(" ")),
            running.length > 0 &&
                el(
                    "details",
                    {},
                    el("summary", {}, `${running.length} other ${running.length === 1 ? "line runs" : "lines run"} it`),
                    el(
                        "ul",
                        {},
                        some(running, (at) => lineLink(app, app.block(), at)),
                    ),
                ),
            sourceText(app, source, way, way.length > 1 ? way[1] : null),
        );
    });
}

/** Brings the marked line of a source into sight, within the source alone. */
function showMarked(host) {
    // The list of steps is at the beginning; the code is what is looked for.
    const code = [...host.querySelectorAll(".source-line.chosen")].find((of) => !of.textContent.includes("//"));
    if (code) code.parentElement.scrollTop = code.offsetTop - 80;
}
