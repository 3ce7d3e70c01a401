// The page: its views as tabs, which program and stage they show, and what is chosen.

class App {
    constructor() {
        this.subjectAt = 0;
        this.marked = true;
        this.selection = null;
        this.stages = Data.subjects.map(lastStage);
        // Whether a stage was chosen, in this page or by its address.
        this.settled = false;
        this.cached = null;
        this.aside = el("section", { class: "details", "aria-label": "details", tabindex: -1 });
        for (const subject of Data.subjects) {
            subject.stages.forEach((stage) => {
                stage.firstPass = stage.inputs.some(([role]) => role === "cotangent") ? "backward" : "forward";
            });
        }
        this.program = new ProgramView(this);
        this.graph = new GraphView(this);
        this.views = [
            ["program", "Program", this.program],
            ["why", "Why", new WhyView(this)],
            ["memory", "Memory", new MemoryView(this)],
            ["graph", "Graph", this.graph],
        ];
        this.time = new TimeView(this);
        if (Data.subjects.some((subject) => subject.time)) this.views.push(["time", "Time", this.time]);
        if (Data.comparisons.length) this.views.push(["compare", "Compare", new CompareView(this)]);
        if (Data.subjects.some((subject) => subject.unread || subject.sources.length)) {
            this.views.push(["texts", "Texts", new TextsView(this)]);
        }
    }

    subject() {
        return Data.subjects[this.subjectAt];
    }

    stage() {
        return this.subject().stages[this.stages[this.subjectAt]];
    }

    block() {
        return blockOf(this.stage().block);
    }

    /** What the stage changed, or null where nobody asks or nothing is before it. */
    changes() {
        const at = this.stages[this.subjectAt];
        if (!this.marked || at === 0) return null;
        const key = `${this.subjectAt} ${at}`;
        if (!this.cached || this.cached.key !== key) {
            const before = this.subject().stages[at - 1];
            // The backward program does not come from the forward program's last stage.
            if (passOf(before) && passOf(before) !== passOf(this.stage())) return null;
            this.cached = { key, changes: changesBetween(blockOf(before.block), this.block()) };
        }
        return this.cached.changes;
    }

    start() {
        const tabs = this.views.map(([id, label], i) =>
            button(label, () => this.choose(id), {
                role: "tab",
                id: `tab-${id}`,
                "aria-controls": "view",
                "aria-selected": "false",
                tabindex: i ? -1 : 0,
            }),
        );
        const bar = el(
            "div",
            { role: "tablist", "aria-label": "views", class: "tabs", onkeydown: (event) => this.tabKey(event) },
            tabs,
        );
        this.host = el("section", { role: "tabpanel", id: "view" });
        const names = Data.subjects.map((subject) => subject.name);
        const between = Data.comparisons.length ? " against " : " and ";
        document
            .getElementById("app")
            .append(
                el("header", {}, el("h1", {}, names.join(between)), bar),
                ...this.about(),
                el("main", {}, this.banners(), this.host),
                el(
                    "footer",
                    {},
                    "Keys: / search, n and N next and previous hit, [ and ] stage, v lines that run nothing, ",
                    "arrows in the program, ",
                    "Enter to the details.",
                ),
                el("p", { id: "status", class: "unseen", role: "status" }),
            );
        document.addEventListener("keydown", (event) => this.key(event));
        const [wanted, stage] = location.hash.slice(1).split("/").map(decoded);
        const view = this.viewOf(wanted, this.placeOf(stage));
        if (!this.settled) this.stages = Data.subjects.map((subject) => firstStage(subject, view));
        this.open(view);
    }

    /** Goes to a stage, on the first side that has it, and to its comparison; says whether it is known and compared. */
    placeOf(stage) {
        const at = Data.subjects.map((subject) => subject.stages.findIndex((of) => of.name === stage));
        at.forEach((place, side) => {
            if (place >= 0) this.stages[side] = place;
        });
        const known = at.findIndex((place) => place >= 0);
        this.settled = known >= 0;
        // Without a stage, a program that there is: of a file that is new the side before has none.
        const first = Data.subjects.findIndex((subject) => subject.stages.length);
        this.subjectAt = Math.max(known >= 0 ? known : first, 0);
        const compared = Data.comparisons.findIndex((of) => of.before === at[0] || of.after === at[1]);
        if (compared >= 0) this.views.find(([id]) => id === "compare")[2].at = compared;
        return { known: known >= 0, compared: compared >= 0 };
    }

    /** The view to begin with: the one that is wanted, if it can show the stage. */
    viewOf(wanted, { known, compared }) {
        const has = (view) => this.views.some(([id]) => id === view);
        if (wanted === "compare" && known && !compared) return "program";
        if (has(wanted)) return wanted;
        if (has("compare")) return "compare";
        if (this.subject().time) return "time";
        return this.stage() || !has("texts") ? "program" : "texts";
    }

    /** For what and by whom the programs were compiled. */
    about() {
        const known = Data.subjects.filter((subject) => subject.about);
        const one = ({ name, about }) => el("p", { class: "about" }, Data.subjects.length > 1 && `${name}: `, about);
        return known.map(one);
    }

    banners() {
        return Data.subjects
            .flatMap((subject) => [
                subject.ending && el("p", { class: "banner" }, `${subject.name}: ${subject.ending}`),
                subject.notes.map((note) => el("p", { class: "banner" }, `${subject.name}: ${note}`)),
                subject.unread &&
                    el(
                        "p",
                        { class: "banner" },
                        `${subject.name}: line ${subject.unread.place}, column ` +
                            `${subject.unread.column}: ${subject.unread.message} `,
                        link("show", () => this.open("texts")),
                    ),
            ])
            .filter(Boolean);
    }

    /** Opens a view, at the stage that says most there unless one was chosen. */
    choose(id) {
        if (!this.settled) {
            const at = firstStage(this.subject(), id);
            if (at !== this.stages[this.subjectAt]) this.selection = null;
            this.stages = Data.subjects.map((subject) => firstStage(subject, id));
        }
        this.open(id);
    }

    /** Opens a view at the stage that is shown. */
    open(id) {
        this.current = id;
        for (const [other] of this.views) {
            const tab = document.getElementById(`tab-${other}`);
            tab.setAttribute("aria-selected", String(other === id));
            tab.tabIndex = other === id ? 0 : -1;
        }
        this.host.setAttribute("aria-labelledby", `tab-${id}`);
        this.draw();
    }

    draw() {
        const [, , view] = this.views.find(([id]) => id === this.current);
        if (!this.stage() && this.current !== "texts" && this.current !== "compare") {
            this.host.replaceChildren(this.stageTools(), el("p", {}, "No program could be read."));
        } else view.show(this.host);
        // A search begins in any view.
        if (this.stage()) prepareSearch(this.block());
        // A frame of a notebook has no address of its own.
        if (this.stage() && location.protocol !== "about:") {
            const stage = encodeURIComponent(this.stage().name);
            history.replaceState(null, "", `#${this.current}/${stage}`);
        }
    }

    /** The choice of program and stage. */
    stageTools() {
        const subjects = Data.subjects.map((subject, i) => [i, subject.name]);
        const { stages } = this.subject();
        const at = this.stages[this.subjectAt];
        const range = el("input", {
            type: "range",
            id: "stage",
            min: 0,
            max: Math.max(stages.length - 1, 0),
            value: at,
            "aria-valuetext": stages[at] ? stages[at].name : "none",
            oninput: () => this.setStage(Number(range.value)),
        });
        return el(
            "div",
            { class: "tools stages" },
            subjects.length > 1 &&
                select("program", subjects, this.subjectAt, (value) => this.setSubject(Number(value))),
            stages.length > 1 && [
                el("label", { class: "field", for: "stage" }, "stage"),
                button("‹", () => this.setStage(this.stages[this.subjectAt] - 1), { "aria-label": "stage before" }),
                range,
                button("›", () => this.setStage(this.stages[this.subjectAt] + 1), { "aria-label": "next stage" }),
            ],
            stages[at] && el("strong", { class: "stage-name" }, `${stages[at].name} (${at + 1} of ${stages.length})`),
        );
    }

    setSubject(at) {
        this.subjectAt = at;
        this.selection = null;
        this.draw();
    }

    setStage(at) {
        if (at < 0 || at >= this.subject().stages.length) return;
        const focused = document.activeElement && document.activeElement.id === "stage";
        const inDetails = this.aside.contains(document.activeElement);
        this.stages[this.subjectAt] = at;
        this.settled = true;
        const chosen = this.selection;
        if (chosen && chosen.kind === "value") chosen.block = this.block();
        else if (chosen && chosen.kind === "line") {
            const value = this.block().values.get(chosen.block.lines[chosen.at].results[0]);
            this.selection = value && value.at >= 0 ? { kind: "line", block: this.block(), at: value.at } : null;
        } else this.selection = null;
        this.draw();
        if (focused) document.getElementById("stage").focus();
        if (inDetails) this.focusDetails();
        announce(`stage ${this.stage().name}`);
    }

    select(selection) {
        this.selection = selection;
        this.drawAside();
    }

    showValue(name, block) {
        this.select({ kind: "value", name, block });
        this.focusDetails();
    }

    /** Moves the focus to the details, which are beside the program or, on a narrow screen, below it. */
    focusDetails() {
        this.aside.focus({ preventScroll: window.matchMedia("(min-width: 48rem)").matches });
    }

    /** Shows a line: in its program, or, of a body, in the details. */
    goToLine(block, at) {
        this.settled = true;
        if (block !== this.block()) return this.select({ kind: "line", block, at });
        if (this.current !== "program") this.open("program");
        this.program.goTo(at);
        this.program.list.grid.focus({ preventScroll: true });
        return undefined;
    }

    /** Shows a line in the program; of a body, `way` leads through the lines that it is in. */
    goToWay([at, ...within]) {
        this.settled = true;
        if (this.current !== "program") this.open("program");
        this.program.goTo(at, within);
        this.program.list.grid.focus({ preventScroll: true });
    }

    /** Shows the line of the program `subject` that defines `name`. */
    goToName(subject, stage, name) {
        this.subjectAt = subject;
        this.stages[subject] = stage;
        this.settled = true;
        this.open("program");
        const value = this.block().values.get(name);
        if (value && value.at >= 0) this.program.goTo(value.at);
        else if (value) this.showValue(name, this.block());
    }

    drawAside() {
        const chosen = this.selection;
        const content = !chosen
            ? el("p", { class: "hint" }, "Choose a line or a name.")
            : chosen.details
              ? chosen.details()
              : chosen.kind === "line"
              ? lineDetails(this, chosen.block, chosen.at, chosen.way)
              : chosen.kind === "gone"
                ? el(
                      "div",
                      {},
                      el("h2", {}, "Line of the stage before"),
                      el("p", { class: "code wrap" }, textOf(chosen.line)),
                  )
                : valueDetails(this, chosen.name, chosen.block);
        this.aside.replaceChildren(content);
        showMarked(this.aside);
    }

    tabKey(event) {
        const ids = this.views.map(([id]) => id);
        const at = ids.indexOf(this.current);
        const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: ids.length - 1 }[event.key];
        if (to === undefined) return;
        this.choose(ids[(to + ids.length) % ids.length]);
        document.getElementById(`tab-${this.current}`).focus();
        event.preventDefault();
    }

    key(event) {
        if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName))
            return;
        const step = (by) => this.setStage(this.stages[this.subjectAt] + by);
        if (event.key === "/") {
            if (this.current !== "program") this.open("program");
            document.getElementById("search").focus();
        } else if (event.key === "[") step(-1);
        else if (event.key === "]") step(1);
        else if (event.key === "v" && this.current === "program" && this.stage()) this.program.hideIdle(!idleHidden);
        else if (event.key === "n" && this.current === "program") this.program.next(1);
        else if (event.key === "N" && this.current === "program") this.program.next(-1);
        else return;
        event.preventDefault();
    }
}

/** A part of the address's fragment; one that is malformed names nothing. */
function decoded(part) {
    try {
        return decodeURIComponent(part);
    } catch {
        return "";
    }
}

/** The last stage of a program. */
function lastStage(subject) {
    return Math.max(subject.stages.length - 1, 0);
}

/** The stage that a view begins with: `fuse` has every kernel and no line of the later ones yet; the memory plan and the
 *  times are of the last one. */
function firstStage(subject, view) {
    const fused = subject.stages.findLastIndex((stage) => /(^|[:,] )fuse$/.test(stage.name));
    return fused >= 0 && ["program", "why", "graph"].includes(view) ? fused : lastStage(subject);
}

/** Of a function and its derivative as two programs, which of them a stage is of: `forward: claim`. */
function passOf(stage) {
    const [, pass] = /^(forward|backward)[:,] /.exec(stage.name) || [];
    return pass;
}

const app = new App();
app.start();
