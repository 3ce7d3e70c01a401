// What a search looks at: the texts of lines, written while nothing else is to do.

/** The most hits that a search lists. */
const MOST_HITS = 5000;

/** Where a text is: for each line that has it the way to it, through the lines whose bodies it is in. */
function hitsOf(block, wanted, way) {
    const hits = [];
    for (let at = 0; at < block.lines.length && hits.length < MOST_HITS; at += 1) {
        const line = block.lines[at];
        if (!searchable(line).includes(wanted)) continue;
        if (searchableAlone(line).includes(wanted)) hits.push([...way, at]);
        if (line.body >= 0) hits.push(...hitsOf(blockOf(line.body), wanted, [...way, at]));
    }
    return hits.slice(0, MOST_HITS);
}

/** What a search looks at of a line itself: its text, and who refused it for which reason. */
function searchableAlone(line) {
    if (line.searchableAlone === undefined) {
        line.searchableAlone = `${textOf(line)} ${line.refusals.flat().join(" ")}`.toLowerCase();
    }
    return line.searchableAlone;
}

/** The same with all that is in its body. */
function searchable(line) {
    if (line.searchable === undefined) {
        const inside = line.body >= 0 ? bodyText(line.body) : "";
        line.searchable = inside ? `${searchableAlone(line)}\n${inside}` : searchableAlone(line);
    }
    return line.searchable;
}

/** Writes the texts that a search looks at ahead of the first search, while nothing else is to do. */
function prepareSearch(block) {
    if (block.prepared) return;
    block.prepared = true;
    let next = 0;
    const part = (deadline) => {
        do {
            for (const end = next + 100; next < Math.min(end, block.lines.length); next += 1)
                searchable(block.lines[next]);
        } while (next < block.lines.length && deadline && deadline.timeRemaining() > 2);
        if (next < block.lines.length) whenIdle(part);
    };
    whenIdle(part);
}

/** Calls `work` when the page has nothing to do: with how long that lasts, where the browser tells. */
function whenIdle(work) {
    if (window.requestIdleCallback) window.requestIdleCallback(work);
    else setTimeout(work);
}

const bodyTexts = new Map();

/** The searchable text of a body, which many lines may share. */
function bodyText(number) {
    if (!bodyTexts.has(number)) bodyTexts.set(number, blockOf(number).lines.map(searchable).join("\n"));
    return bodyTexts.get(number);
}
