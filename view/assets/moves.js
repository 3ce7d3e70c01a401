// What two programs have in common, and what changed, in words.

/** The counts of a comparison as words for people. */
function countsText(counts) {
    const words = [
        ["added", "new"],
        ["removed", "gone"],
        ["reclaimed", "run by another executor"],
        ["other_call", "with another call"],
        ["other_body", "with another body"],
        ["retyped", "of another type"],
        ["other_refusals", "with other refusals"],
        ["moved_in_memory", "elsewhere in memory"],
        ["rescheduled", "scheduled otherwise"],
        ["moved", "at another place"],
    ];
    const found = words.filter(([key]) => counts[key]).map(([key, text]) => `${grouped(counts[key])} ${text}`);
    return found.length ? `lines: ${found.join(", ")}` : "";
}

/** A comparison in one line. */
function comparisonText(of) {
    if (of.words === "no difference") return "no difference";
    return countsText(of.difference.counts) || of.words;
}

/** How many lines of two programs define the same names, as a sentence; if they are few, that the programs differ. */
function commonText(of, names) {
    const { totals, counts } = of.difference;
    const [before, after] = [totals.before.symbols, totals.after.symbols];
    const common = before - counts.removed;
    const all = `${grouped(before)} and ${grouped(after)}`;
    const share = `${grouped(common)} lines define the same names in both, of ${all}`;
    if (common * 2 >= Math.min(before, after)) return `${share}.`;
    return (
        `${names[0]} and ${names[1]} are different programs here: ${share}. These are compared; the others are ` +
        "listed as removed and added."
    );
}

/** Lines that moved from one executor to another, by executors, as a table; nothing if none did. */
function movesTable(of, blocks) {
    const [before, after] = blocks;
    const moves = new Map();
    for (const [name, value] of before.values) {
        const other = after.values.get(name);
        if (!other || value.at === null || value.at < 0 || other.at === null || other.at < 0) continue;
        const [was, is] = [before.lines[value.at], after.lines[other.at]];
        if (was.results[0] !== name || was.executor === is.executor) continue;
        const key = `${was.executor || "nobody"}\t${is.executor || "nobody"}`;
        if (!moves.has(key)) moves.set(key, new Map());
        const label = was.operator === is.operator ? was.operator : `${was.operator} as ${is.operator}`;
        moves.get(key).set(label, (moves.get(key).get(label) || 0) + 1);
    }
    if (!moves.size) return null;
    const rows = [...moves].map(([key, operators]) => {
        const counted = [...operators].sort((a, b) => b[1] - a[1]);
        const lines = counted.reduce((sum, [, times]) => sum + times, 0);
        const words = counted.slice(0, 6).map(([operator, times]) => `${operator} ${times}`);
        return [...key.split("\t"), lines, words.join(", ")];
    });
    rows.sort((a, b) => b[2] - a[2]);
    return table("Lines that another executor runs", ["before", "after", "lines", "operators"], rows);
}

/** Which line of a program computes each name: in its results, or in its body if that is a region. */
function computedAt(block) {
    const found = new Map();
    block.lines.forEach((line, at) => {
        for (const name of line.results) found.set(name, at);
        if (line.operator !== "region" || line.body < 0) return;
        for (const inner of blockOf(line.body).lines) for (const name of inner.results) found.set(name, at);
    });
    return found;
}

/** The regions of a program whose lines several lines of the other compute: `{at, others}`. */
function scattered(block, other) {
    const owners = computedAt(other);
    const regions = block.lines.map((line, at) => ({ line, at })).filter(({ line }) => line.operator === "region");
    const found = regions.map(({ line, at }) => {
        const inside = line.body < 0 ? [] : blockOf(line.body).lines;
        const others = new Set(inside.map((of) => owners.get(of.results[0])).filter((of) => of !== undefined));
        return { at, others: [...others].sort((a, b) => a - b) };
    });
    return found.filter(({ others }) => others.length > 1);
}

/** Regions that one program has split, or put together, with links; nothing if there are none. */
function fusionsSection(app, of, blocks) {
    const [before, after] = blocks;
    const place = (side, at) => {
        const line = blocks[side].lines[at];
        const what = line.operator === "region" ? `region ${written(line.results[0])}` : shortened(textOf(line));
        return link(what, () => app.goToName(side, side ? of.after : of.before, line.results[0]));
    };
    const one = (side, words) => (found) => [
        words,
        place(side, found.at),
        el(
            "details",
            { open: found.others.length <= 4 },
            el("summary", {}, `${found.others.length} lines`),
            el(
                "ul",
                { class: "plain" },
                some(found.others, (at) => place(1 - side, at)),
            ),
        ),
    ];
    const rows = [
        ...scattered(before, after).map(one(0, "split")),
        ...scattered(after, before).map(one(1, "put together")),
    ];
    if (!rows.length) return null;
    const shown = rows.slice(0, 100);
    const note = rows.length > shown.length ? `, the first ${shown.length} of ${rows.length}` : "";
    return el(
        "section",
        { id: "fusions" },
        table(`Regions that are split or put together${note}`, ["what", "region", "lines of the other program"], shown),
    );
}
