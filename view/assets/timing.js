// The data of a profile: spans with their floors, and how amounts of time and rates are written.

/** The time of a subject, its spans in the order of the run; null without a profile. */
function timeOf(subject) {
    if (!subject.time || subject.time.read) return subject.time;
    const string = (i) => (i < 0 ? null : Data.strings[i]);
    const { time } = subject;
    time.read = true;
    time.spans = time.spans.map(([name, executor, result, stream, start, took, bytes, flops, line], at) => {
        const span = { at, start, took, bytes, flops, line: string(line) };
        Object.assign(span, { name: string(name), executor: string(executor), result: string(result) });
        span.stream = string(stream);
        span.floor = floorOf(time, span);
        return span;
    });
    time.timeline = time.timeline.map(([what, stream, start, took], at) => ({
        at,
        name: string(what),
        stream: string(stream),
        start,
        took,
    }));
    time.total = time.spans.reduce((sum, span) => sum + span.took, 0);
    time.byResult = new Map(time.spans.map((span) => [span.result, span]));
    return time;
}

/** The least microseconds that the device needs for a span, by what is known of it; null if nothing is. */
function floorOf(time, { bytes, flops }) {
    const parts = [
        [bytes, time.bytes_per_second],
        [flops, time.flops_per_second],
    ].filter(([amount, rate]) => amount !== null && rate !== null);
    return parts.length ? Math.max(...parts.map(([amount, rate]) => (amount / rate) * 1e6)) : null;
}

/** Microseconds for people. */
function timeText(micros) {
    if (micros >= 1e6) return `${(micros / 1e6).toFixed(2)} s`;
    return micros >= 1000 ? `${(micros / 1000).toFixed(2)} ms` : `${micros.toFixed(micros < 10 ? 2 : 1)} us`;
}

/** Amounts a second for people: `12.3 GB/s`. */
function rateText(amount, micros, unit) {
    if (!amount || !micros) return "-";
    return perSecondText((amount / micros) * 1e6, unit);
}

function perSecondText(rate, unit) {
    const scales = [
        [1e12, "T"],
        [1e9, "G"],
        [1e6, "M"],
        [1e3, "k"],
    ];
    const [scale, letter] = scales.find(([scale]) => rate >= scale) || [1, ""];
    return `${Number((rate / scale).toPrecision(3))} ${letter}${unit}`;
}

function percent(part, whole) {
    return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "-";
}

/** What the details of a line say of its time; null if the profile has nothing of it. */
function timeFact(app, line) {
    const time = timeOf(app.subject());
    const span = time && line.results.length ? time.byResult.get(line.results[0]) : null;
    if (!span) return null;
    const floor = span.floor === null ? "" : `, ${percent(span.floor, span.took)} of it is the floor`;
    return item(
        "time",
        link(`${timeText(span.took)}, ${percent(span.took, time.total)} of the run${floor}`, () => {
            app.time.choose(span, true);
            app.open("time");
        }),
    );
}
