// Layers for a directed graph without cycles: nodes in rows from top to bottom, edges downwards, few crossings. It
// knows nothing of programs.

/** Space between the boxes of a row, and between rows. */
const ROW_SPACE = 18;
const LAYER_SPACE = 36;
/** A row gets no wider than this by nodes that may as well be in a later one. */
const ROW_WIDTH = 1800;
/** The width of an edge that passes a row. */
const PASSING = 12;

/**
 * Places nodes `{w, h, rank}`: rank "first" and "last" are for the ends of edges on the border. `edges` are
 * `{from, to, fromDx, toDx}`, nodes by their numbers, and where on a node they end: distances from its middle.
 * Gives `{x, y}` of each node's corner, the points of each edge, and the size of all.
 */
function layered(nodes, edges) {
    const sorted = topological(nodes, edges);
    const ranks = ranksOf(nodes, edges, sorted);
    const graph = withPassing(nodes, edges, ranks);
    orderRows(graph);
    placeAcross(graph);
    return placed(nodes, edges, graph);
}

/** The nodes so that every edge leads from an earlier to a later one; otherwise in their own order. */
function topological(nodes, edges) {
    const waiting = nodes.map(() => 0);
    const after = nodes.map(() => []);
    for (const { from, to } of edges) {
        waiting[to] += 1;
        after[from].push(to);
    }
    const ready = nodes.map((_, i) => i).filter((i) => !waiting[i]);
    const sorted = [];
    while (ready.length) {
        const node = ready.shift();
        sorted.push(node);
        for (const next of after[node]) {
            waiting[next] -= 1;
            if (!waiting[next]) ready.push(next);
        }
    }
    return sorted;
}

/** The row of each node: below all that it follows. */
function ranksOf(nodes, edges, sorted) {
    const ranks = nodes.map(() => 0);
    const before = nodes.map(() => []);
    const after = nodes.map(() => []);
    for (const { from, to } of edges) {
        before[to].push(from);
        after[from].push(to);
    }
    const begin = nodes.some((node) => node.rank === "first") ? 1 : 0;
    const widths = [];
    const put = (node, rank) => {
        ranks[node] = rank;
        widths[rank] = (widths[rank] || 0) + nodes[node].w + ROW_SPACE;
    };
    for (const node of sorted) {
        if (nodes[node].rank) continue;
        let rank = Math.max(begin, ...before[node].map((of) => ranks[of] + 1));
        while ((widths[rank] || 0) > 0 && widths[rank] + nodes[node].w > ROW_WIDTH) rank += 1;
        put(node, rank);
    }
    // What follows nothing is close to what reads it.
    for (const node of [...sorted].reverse()) {
        if (nodes[node].rank || before[node].some((of) => !nodes[of].rank)) continue;
        const readers = after[node].filter((of) => !nodes[of].rank).map((of) => ranks[of]);
        const rank = readers.length ? Math.min(...readers) - 1 : ranks[node];
        if (rank > ranks[node] && (widths[rank] || 0) + nodes[node].w <= ROW_WIDTH) {
            widths[ranks[node]] -= nodes[node].w + ROW_SPACE;
            put(node, rank);
        }
    }
    const end = Math.max(begin - 1, ...ranks) + 1;
    nodes.forEach((node, i) => {
        if (node.rank === "last") ranks[i] = end;
    });
    // Rows that nobody is in any more.
    const used = [...new Set(ranks)].sort((a, b) => a - b);
    const dense = new Map(used.map((rank, i) => [rank, i]));
    return ranks.map((rank) => dense.get(rank));
}

/**
 * The rows, with a place in each row that an edge passes. Edges of one node pass together. `items` are nodes and such
 * places, `links` join items of neighbouring rows.
 */
function withPassing(nodes, edges, ranks) {
    const items = nodes.map((node, i) => ({ w: node.w, h: node.h, rank: ranks[i], x: 0, up: [], down: [] }));
    const passing = new Map();
    const join = (from, to, fromDx, toDx, weight) => {
        items[from].down.push({ item: to, own: fromDx, other: toDx, weight });
        items[to].up.push({ item: from, own: toDx, other: fromDx, weight });
    };
    const ways = edges.map(({ from, to, fromDx = 0, toDx = 0 }) => {
        const way = [];
        let [last, dx] = [from, fromDx];
        for (let rank = ranks[from] + 1; rank < ranks[to]; rank += 1) {
            const key = `${from} ${fromDx} ${rank}`;
            if (!passing.has(key)) {
                items.push({ w: PASSING, h: 0, rank, x: 0, up: [], down: [], passes: true });
                passing.set(key, items.length - 1);
                join(last, items.length - 1, dx, 0, last === from ? 2 : 8);
            }
            last = passing.get(key);
            dx = 0;
            way.push(last);
        }
        join(last, to, dx, toDx, last === from ? 1 : 2);
        return way;
    });
    const rows = [];
    items.forEach((item, i) => {
        while (rows.length <= item.rank) rows.push([]);
        rows[item.rank].push(i);
    });
    return { items, rows, ways };
}

/** Orders each row by the middle of what its items are joined to, downwards and upwards in turns; keeps the best. */
function orderRows({ items, rows }) {
    const number = () => rows.forEach((row) => row.forEach((item, i) => (items[item].order = i)));
    number();
    let best = rows.map((row) => [...row]);
    let fewest = crossings(items, rows);
    let same = 0;
    for (let turn = 0; turn < 16 && fewest > 0 && same < 4; turn += 1) {
        const down = turn % 2 === 0;
        const all = down ? rows : [...rows].reverse();
        for (const row of all) {
            for (const item of row) {
                const links = down ? items[item].up : items[item].down;
                const sum = links.reduce((total, link) => total + items[link.item].order + link.other / 10000, 0);
                items[item].key = links.length ? sum / links.length : items[item].order;
            }
            row.sort((a, b) => items[a].key - items[b].key || items[a].order - items[b].order);
            row.forEach((item, i) => (items[item].order = i));
        }
        const count = crossings(items, rows);
        same += 1;
        if (count < fewest) {
            same = 0;
            fewest = count;
            best = rows.map((row) => [...row]);
        }
    }
    best.forEach((row, i) => (rows[i] = row));
    number();
}

/** How many links cross. */
function crossings(items, rows) {
    let count = 0;
    for (const [i, row] of rows.entries()) {
        const next = rows[i + 1];
        if (!next) break;
        // Ends in the order of beginnings: each pair that is out of order crosses. Counted in a Fenwick tree.
        const tree = new Uint32Array(next.length + 1);
        let seen = 0;
        for (const item of row) {
            const ends = items[item].down.map((link) => items[link.item].order).sort((a, b) => a - b);
            for (const end of ends) {
                let below = 0;
                for (let at = end + 1; at > 0; at -= at & -at) below += tree[at];
                count += seen - below;
            }
            for (const end of ends) {
                for (let at = end + 1; at <= next.length; at += at & -at) tree[at] += 1;
                seen += 1;
            }
        }
    }
    return count;
}

/** Places along the rows: each item as close as its neighbours in the row allow to what it is joined to. */
function placeAcross({ items, rows }) {
    for (const row of rows) {
        let x = 0;
        for (const item of row) {
            items[item].x = x + items[item].w / 2;
            x += items[item].w + ROW_SPACE;
        }
    }
    const settle = (row, up, down) => {
        const wanted = row.map((number) => {
            const item = items[number];
            let [sum, weight] = [0, 0];
            const pull = (link) => {
                sum += link.weight * (items[link.item].x + link.other - link.own);
                weight += link.weight;
            };
            if (up) item.up.forEach(pull);
            if (down) item.down.forEach(pull);
            return weight ? { x: sum / weight, weight } : { x: item.x, weight: 0.05 };
        });
        spread(row, items, wanted);
    };
    // Very many places settle in fewer turns, so that it takes no longer.
    const turns = items.length > 1500 ? 5 : 24;
    for (let turn = 0; turn < turns; turn += 1) {
        for (let i = 1; i < rows.length; i += 1) settle(rows[i], true, false);
        for (let i = rows.length - 2; i >= 0; i -= 1) settle(rows[i], false, true);
    }
    for (const row of rows) settle(row, true, true);
}

/** The places nearest to those wanted, by weighted squares, that keep order and distances: pooled neighbours. */
function spread(row, items, wanted) {
    const offsets = [];
    // Neighbours that touch: their sum, weight, and how many.
    const blocks = [];
    row.forEach((item, i) => {
        offsets.push(i ? offsets[i - 1] + (items[row[i - 1]].w + items[item].w) / 2 + ROW_SPACE : 0);
        const { x, weight } = wanted[i];
        let block = { sum: (x - offsets[i]) * weight, weight, count: 1 };
        while (blocks.length) {
            const last = blocks[blocks.length - 1];
            if (last.sum / last.weight <= block.sum / block.weight) break;
            blocks.pop();
            block = {
                sum: last.sum + block.sum,
                weight: last.weight + block.weight,
                count: last.count + block.count,
            };
        }
        blocks.push(block);
    });
    let at = 0;
    for (const { sum, weight, count } of blocks) {
        for (const end = at + count; at < end; at += 1) items[row[at]].x = sum / weight + offsets[at];
    }
}

/** Corners of nodes, points of edges, and the size of all. */
function placed(nodes, edges, { items, rows, ways }) {
    const left = Math.min(...items.map((item) => item.x - item.w / 2));
    const [tops, heights] = [[], []];
    let y = 0;
    for (const row of rows) {
        const height = Math.max(0, ...row.map((item) => items[item].h));
        tops.push(y);
        heights.push(height);
        const links = row.reduce((sum, item) => sum + items[item].down.length, 0);
        y += height + LAYER_SPACE + Math.min(links, 40);
    }
    const size = { w: 0, h: rows.length ? tops[rows.length - 1] + heights[rows.length - 1] : 0 };
    const corners = nodes.map((node, i) => {
        const { x, rank } = items[i];
        size.w = Math.max(size.w, x - left + node.w / 2);
        return { x: x - left - node.w / 2, y: tops[rank] + (heights[rank] - node.h) / 2 };
    });
    for (const item of items) size.w = Math.max(size.w, item.x - left + item.w / 2);
    const points = edges.map(({ from, to, fromDx = 0, toDx = 0 }, i) => {
        const middle = (item) => items[item].x - left;
        const through = (item, x) => [
            [x, tops[items[item].rank]],
            [x, tops[items[item].rank] + heights[items[item].rank]],
        ];
        const start = middle(from) + fromDx;
        const end = middle(to) + toDx;
        return [
            [start, corners[from].y + nodes[from].h],
            through(from, start)[1],
            ...ways[i].flatMap((item) => through(item, middle(item))),
            through(to, end)[0],
            [end, corners[to].y],
        ];
    });
    return { corners, points, size };
}
