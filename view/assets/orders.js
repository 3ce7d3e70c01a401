// What another order of the executors does: the program compiled with each of them asked first.

/** What an order changes, in words: which executor takes what from which, and what else there is. */
function orderText({ difference, taken, words }) {
    const parts = taken.map(([from, to, operators]) => {
        const counts = operators.slice(0, 6).map(([operator, lines]) => `${lines} × ${operator}`);
        if (operators.length > counts.length) counts.push(counted(operators.length - counts.length, "more operator"));
        const what = counts.join(", ");
        if (to === null) return `${from} no longer takes ${what}`;
        return `${to} takes ${what}${from === null ? "" : ` from ${from}`}`;
    });
    const rest = countsText({ ...difference.counts, reclaimed: 0 });
    if (rest) parts.push(rest);
    return parts.length ? parts.join("; ") : words;
}

/** The orders that were compiled, as a section; nothing if nobody asked for them. */
function ordersSection(app) {
    const { orders } = app.subject();
    if (!orders.length) return null;
    const claim = app.subject().stages.findIndex((stage) => stage.name === "claim");
    const rows = orders.map(({ first, error, totals, ...order }) => [
        first,
        error || orderText(order),
        totals ? signed(totals.before.launches, totals.after.launches) : "",
        totals ? signed(totals.before.bytes, totals.after.bytes) : "",
        totals ? signed(totals.before.peak_memory, totals.after.peak_memory) : "",
    ]);
    const differs = orders.filter(({ difference }) => difference && difference.lines.length);
    return el(
        "section",
        { id: "orders" },
        el("h2", {}, "Another order of the executors"),
        table(
            "The program compiled with one executor asked first",
            ["asked first", "after claim", "lines that run", "bytes", "peak memory"],
            rows,
        ),
        differs.map(({ first, difference }) =>
            el(
                "details",
                {},
                el("summary", {}, `${first} first: ${counted(difference.lines.length, "changed line")}`),
                el(
                    "ol",
                    { class: "changes" },
                    difference.lines
                        .slice(0, 100)
                        .map((line) => changeItem(app, line, [[app.subjectAt, claim], null])),
                    difference.lines.length > 100 && el("li", {}, `and ${difference.lines.length - 100} more`),
                ),
            ),
        ),
    );
}
