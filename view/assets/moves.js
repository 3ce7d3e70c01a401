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
        ["renamed", "renamed"],
    ];
    const found = words.filter(([key]) => counts[key]).map(([key, text]) => `${grouped(counts[key])} ${text}`);
    return found.length ? `lines: ${found.join(", ")}` : "";
}

/** A comparison in one line. */
function comparisonText(of) {
    if (of.words === "no difference") return "no difference";
    return countsText(of.difference.counts) || of.words;
}

/**
 * The lines of a program, with those of its regions in place of the regions, by whose numbers comparisons match them:
 * `at` is the line of the program, `region` whether the line is in that line's body.
 */
function opened(block) {
    return block.lines.flatMap((line, at) => {
        if (line.operator !== "region" || line.body < 0) return [{ line, at, region: false, executor: line.executor }];
        const inside = (inner) => ({ line: inner, at, region: true, executor: inner.executor || line.executor });
        return blockOf(line.body).lines.map(inside);
    });
}

/** The lines of two opened programs that correspond: pairs of the line before and the line after. */
function matchedLines(of, [before, after]) {
    return of.matched.flatMap(([was, is, length]) =>
        Array.from({ length }, (_, i) => [before[was + i], after[is + i]]),
    );
}

/** How many lines of two opened programs correspond, in words; if they are few, that the programs differ. */
function commonText(matched, lines, names) {
    const common = matched.length;
    const [before, after] = lines.map((all) => all.length);
    const regions = lines.some((all) => all.some(({ region }) => region));
    const share =
        `${counted(common, "line")} ${common === 1 ? "corresponds" : "correspond"}, of ${grouped(before)} before and ` +
        `${grouped(after)} after${regions ? "; lines of regions are counted one by one" : ""}.`;
    if (common * 2 >= Math.min(before, after)) return share;
    return (
        `${names[0]} and ${names[1]} are different programs here: ${share} These are compared; the others are ` +
        "listed as removed and added."
    );
}

/**
 * Lines that moved from one executor to another, by executors, as a table; nothing if none did. Lines that left a
 * region or came into one are in the table of regions.
 */
function movesTable(matched) {
    const moves = new Map();
    for (const [was, is] of matched) {
        if (was.executor === is.executor || was.region !== is.region) continue;
        const key = `${was.executor || "nobody"}\t${is.executor || "nobody"}`;
        if (!moves.has(key)) moves.set(key, new Map());
        const [from, to] = [was.line.operator, is.line.operator];
        const label = from === to ? from : `${from} as ${to}`;
        moves.get(key).set(label, (moves.get(key).get(label) || 0) + 1);
    }
    if (!moves.size) return null;
    const rows = [...moves].map(([key, operators]) => {
        const most = [...operators].sort((a, b) => b[1] - a[1]);
        const lines = most.reduce((sum, [, times]) => sum + times, 0);
        const words = most.slice(0, 6).map(([operator, times]) => `${operator} ${times}`);
        return [...key.split("\t"), lines, words.join(", ")];
    });
    rows.sort((a, b) => b[2] - a[2]);
    return table("Lines that another executor runs", ["before", "after", "lines", "operators"], rows);
}

/** The regions of one side that correspond to several lines of the other: `{at, others}`, numbers of lines. */
function scattered(matched, side) {
    const found = new Map();
    for (const pair of matched) {
        const [own, other] = [pair[side], pair[1 - side]];
        if (!own.region) continue;
        if (!found.has(own.at)) found.set(own.at, new Set());
        found.get(own.at).add(other.at);
    }
    const ascending = (numbers) => [...numbers].sort((a, b) => a - b);
    const several = ascending(found.keys()).filter((at) => found.get(at).size > 1);
    return several.map((at) => ({ at, others: ascending(found.get(at)) }));
}

/** Regions that one program has split, or put together, with links; nothing if there are none. */
function fusionsSection(app, of, blocks, matched) {
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
            el("summary", {}, counted(found.others.length, "line")),
            el(
                "ul",
                { class: "plain" },
                some(found.others, (at) => place(1 - side, at)),
            ),
        ),
    ];
    const rows = [
        ...scattered(matched, 0).map(one(0, "split")),
        ...scattered(matched, 1).map(one(1, "put together")),
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
