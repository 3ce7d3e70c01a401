// The dataflow of a program as a tree of parts: lines, scopes of lines, bodies of lines; and which part of a group
// reads what of which other.

/** What a graph leaves out, by choice. */
class FlowOptions {
    constructor(views, ends) {
        /** Whether lines that only view memory are parts. Otherwise who reads a view reads what it shows. */
        this.views = views;
        /** Whether inputs and outputs of the program are parts. */
        this.ends = ends;
    }
}

/** The most parts of a group; more are parted by their numbers. */
const MOST_PARTS = 150;

/** A block, with who defines what, if views are left out. */
class Flow {
    /** `way` leads to the block: the lines whose bodies it is in. */
    constructor(block, options, way) {
        this.block = block;
        this.way = way;
        this.hidden = block.lines.map((line) => !options.views && line.executor === "view" && line.operands.length > 0);
        this.shown = new Map();
    }

    /** The value that `name` shows, through views that are left out. */
    root(name) {
        let at = name;
        for (;;) {
            const value = this.block.values.get(at);
            if (!value || value.at === null || value.at < 0 || !this.hidden[value.at]) return at;
            at = this.block.lines[value.at].operands[0];
        }
    }

    /** Where a value comes from: its line, -1 of an input. */
    definedAt(name) {
        const value = this.block.values.get(name);
        return value && value.at !== null ? value.at : -1;
    }

    /** What line `at` reads, each once. */
    reads(at) {
        if (!this.shown.has(at)) {
            this.shown.set(at, [...new Set(this.block.lines[at].operands.map((name) => this.root(name)))]);
        }
        return this.shown.get(at);
    }

    /** The lines that are parts. */
    lines() {
        return this.block.lines.map((_, at) => at).filter((at) => !this.hidden[at]);
    }
}

/** A part: a line, or a group of lines. */
class Part {
    constructor(flow, key, name, ats, level) {
        Object.assign(this, { flow, key, name, ats, level });
        /** The line, if it is one. */
        this.line = ats.length === 1 && name === null ? flow.block.lines[ats[0]] : null;
    }

    /** Whether it has parts to show. */
    opens() {
        return this.line ? this.line.body >= 0 && blockOf(this.line.body).lines.length > 0 : this.ats.length > 0;
    }

    /** The way to its first line, through bodies. */
    way() {
        return [...this.flow.way, this.ats[0]];
    }

    /** What it reads that it does not define, and what it defines. */
    values() {
        if (!this.known) {
            const own = new Set(this.ats.flatMap((at) => this.flow.block.lines[at].results));
            const reads = new Set();
            for (const at of this.ats) for (const name of this.flow.reads(at)) if (!own.has(name)) reads.add(name);
            this.known = { reads: [...reads], writes: own };
        }
        return this.known;
    }

    /** Its parts. */
    parts(options) {
        if (!this.inside) {
            if (!this.line) this.inside = partsOf(this.flow, this.ats, this.level, this.name, this.key);
            else {
                const flow = new Flow(blockOf(this.line.body), options, this.way());
                const lines = flow.lines();
                const level = lines.length > 60 ? 0 : Infinity;
                this.inside = partsOf(flow, lines, level, "", `${this.key}/`);
            }
        }
        return this.inside;
    }

    /** The names in its body of values around it. Names of the lines of a scope are those around it. */
    innerNames(names, written) {
        if (!this.line) return names;
        const body = blockOf(this.line.body);
        const outer = written ? this.line.results : this.line.operands.map((name) => this.flow.root(name));
        const inner = written ? body.results : body.parameters.map((parameter) => parameter.name);
        const found = names.flatMap((name) => inner.filter((_, i) => outer[i] === name));
        return [...new Set(written ? found.map((name) => this.inside[0].flow.root(name)) : found)];
    }
}

/**
 * The parts of lines by the words of their scopes from word `level` on. Lines of one scope are one part, unless values
 * go out of it and come back through another part; then it is several.
 */
function partsOf(flow, ats, level, prefix, key) {
    const scopes = new Map(ats.map((at) => [at, scopeAt(flow.block.lines[at], level)]));
    const times = new Map();
    const parts = groupsOf(flow, ats, (at) => scopes.get(at)[level]).map((group) => {
        if (group.length === 1) return linePart(flow, group[0], key);
        const words = scopes.get(group[0]);
        let [name, deeper] = [prefix ? `${prefix}.${words[level]}` : words[level], level + 1];
        // A scope with one scope in it, and nothing else, is one part.
        while (words[deeper] !== undefined && group.every((at) => scopes.get(at)[deeper] === words[deeper])) {
            name += `.${words[deeper]}`;
            deeper += 1;
        }
        times.set(name, (times.get(name) || 0) + 1);
        const again = times.get(name) > 1 ? ` (${times.get(name)})` : "";
        return new Part(flow, `${key}${name}${again}`, name, group, deeper);
    });
    return parts.length > MOST_PARTS ? chunks(flow, parts, key) : parts;
}

/** Lines of one word together, as lists of lines; lists depend on each other in one direction alone. */
function groupsOf(flow, ats, wordOf) {
    const counts = new Map();
    for (const at of ats) counts.set(wordOf(at), (counts.get(wordOf(at)) || 0) + 1);
    const grows = (word) => word !== undefined && counts.get(word) > 1;
    const alone = ats.reduce((sum, at) => sum + !grows(wordOf(at)), 0);
    // What comes before what is kept for each pair: of very many groups, lines that follow each other are one.
    const neighbours = alone + counts.size > 600;
    const [groups, groupOf, latest] = [[], new Map(), new Map()];
    for (const at of ats) {
        const word = wordOf(at);
        const before = new Set(flow.reads(at).map((name) => groupOf.get(flow.definedAt(name))));
        before.delete(undefined);
        let group = grows(word) ? latest.get(word) : undefined;
        const returns = (of) => of !== group && of.behind.has(group);
        if (group && (neighbours ? group !== groups[groups.length - 1] : [...before].some(returns))) group = undefined;
        if (!group) {
            group = { ats: [], behind: new Set(), ahead: new Set() };
            groups.push(group);
            latest.set(word, group);
        }
        group.ats.push(at);
        groupOf.set(at, group);
        if (!neighbours) follow(group, before);
    }
    return groups.map((group) => group.ats);
}

/** Keeps of each group which ones come before it. */
function follow(group, before) {
    const added = new Set();
    for (const of of before) {
        if (of === group) continue;
        for (const one of [of, ...of.behind]) if (one !== group && !group.behind.has(one)) added.add(one);
    }
    if (!added.size) return;
    for (const later of [group, ...group.ahead]) {
        for (const one of added) {
            later.behind.add(one);
            one.ahead.add(later);
        }
    }
}

function linePart(flow, at, key) {
    const name = flow.block.lines[at].results[0] || `line ${at}`;
    return new Part(flow, `${key}=${name}`, null, [at], 0);
}

function scopeAt(line, level) {
    return level < Infinity ? scopeOfLine(line) : [];
}

/** Very many parts in groups that follow each other. */
function chunks(flow, parts, key) {
    const order = topological(parts, edgesOf(parts, [], []));
    const size = Math.ceil(parts.length / Math.ceil(parts.length / 100));
    const found = [];
    for (let from = 0; from < order.length; from += size) {
        const some = order.slice(from, from + size).map((i) => parts[i]);
        const label = (part) => part.name || part.line.results[0] || part.line.operator;
        const name = `${label(some[0])} to ${label(some[some.length - 1])}`;
        const ats = some.flatMap((part) => part.ats).sort((a, b) => a - b);
        const chunk = new Part(flow, `${key}${name}`, name, ats, 0);
        chunk.inside = some.length > MOST_PARTS ? chunks(flow, some, chunk.key) : some;
        found.push(chunk);
    }
    return found.length > MOST_PARTS ? chunks(flow, found, key) : found;
}

/** Which part of a group reads what of which: `{from, to, names}`. `ins` and `outs` are names at the border. */
function edgesOf(parts, ins, outs) {
    const owner = new Map();
    parts.forEach((part, i) => part.values().writes.forEach((name) => owner.set(name, i)));
    const edges = new Map();
    const add = (from, to, name) => {
        const key = `${from} ${to}`;
        if (!edges.has(key)) edges.set(key, { from, to, names: [] });
        edges.get(key).names.push(name);
    };
    const border = new Map();
    ins.forEach((names, i) => names.forEach((name) => border.set(name, (border.get(name) || []).concat(i))));
    parts.forEach((part, to) => {
        for (const name of part.values().reads) {
            if (owner.has(name)) add(owner.get(name), to, name);
            else for (const i of border.get(name) || []) add(`in ${i}`, to, name);
        }
    });
    outs.forEach((names, i) => {
        for (const name of names) if (owner.has(name)) add(owner.get(name), `out ${i}`, name);
    });
    return [...edges.values()];
}
