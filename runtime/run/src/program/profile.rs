//! Where the time of one run went, symbol by symbol: as a table, and as a file for trace viewers.

use std::fmt;
use std::time::Duration;

use serde_json::json;

use super::ceilings::Ceilings;
use super::totals::Totals;
use crate::cost;
use crate::device::Activity;
use crate::device::timeline::INPUTS;
use crate::stream_kind::StreamKind;
use crate::trace::{BoundSymbol, Callee, Trace, print_symbol};
use crate::traffic::Traffic;

/// When a symbol of a run ran, and how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolTime {
    /// Its index among the trace's symbols.
    pub symbol: usize,
    /// The stream that it ran on.
    pub stream: StreamKind,
    /// When it began, after the run did.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
}

/// The time of each symbol of one run. On a device it is taken between events around the symbol, each enqueued by
/// itself, so that the sum is above what a replayed graph takes.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The function's name.
    pub function: String,
    /// What the program was compiled for.
    pub target: String,
    /// In the order of the run.
    pub spans: Vec<Span>,
    /// What the streams of the device did over several runs, each replayed or enqueued as a whole
    /// ([`crate::device::DeviceState::begin_timeline`]); empty if that was not recorded.
    pub timeline: Vec<Activity>,
    /// What the device does at most. A run does not know it: the caller sets it, from a measurement or the data sheet.
    pub ceilings: Ceilings,
}

/// One symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The symbol's operator, or the executor's region.
    pub symbol: String,
    /// The executor that ran it.
    pub executor: String,
    /// The name of its first result.
    pub result: String,
    /// Its line of the trace.
    pub line: String,
    /// The stream that it ran on.
    pub stream: StreamKind,
    /// When it began, after the run did.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
    /// Bytes that it reads and writes: each value once, and of a view no more than what is behind it.
    pub bytes: u64,
    /// Its arithmetic, as [`Totals::flops`](crate::cost::Totals::flops) counts it; none where its kernel's operator has
    /// no rule for it.
    pub flops: Option<u64>,
}

fn executor(symbol: &BoundSymbol) -> &str {
    match &symbol.callee {
        Callee::Region { executor } => executor,
        _ => symbol.executor.unwrap_or("nobody"),
    }
}

impl Profile {
    /// The profile of a planned trace whose symbols took these times.
    pub fn new(trace: &Trace, times: &[SymbolTime]) -> Profile {
        let traffic = Traffic::of(&trace.block);
        let span = |SymbolTime { symbol, stream, start, time }: &SymbolTime| {
            let symbol = &trace.block.symbols[*symbol];
            Span {
                symbol: symbol.name().to_owned(),
                executor: executor(symbol).to_owned(),
                result: symbol.results.first().map_or_else(String::new, |id| trace.block.value(*id).name.to_string()),
                line: print_symbol(&trace.block, symbol),
                stream: *stream,
                start: *start,
                time: *time,
                bytes: traffic.bytes(symbol),
                flops: cost::known_flops(&trace.block, symbol),
            }
        };
        Profile {
            function: trace.name.clone(),
            target: trace.target.to_string(),
            spans: times.iter().map(span).collect(),
            timeline: Vec::new(),
            ceilings: Ceilings::default(),
        }
    }

    /// The time of all symbols.
    pub fn total(&self) -> Duration {
        self.spans.iter().map(|span| span.time).sum()
    }

    /// Symbols of one stream, executor and name together, the longest first.
    pub fn by_symbol(&self) -> Vec<Totals<'_>> {
        let mut totals: indexmap::IndexMap<(StreamKind, &str, &str), Totals<'_>> = indexmap::IndexMap::new();
        for span in &self.spans {
            let key = (span.stream, &*span.executor, &*span.symbol);
            totals.entry(key).or_insert_with(|| Totals::none(key)).add(
                span.time,
                span.bytes,
                span.flops,
                self.floor(span),
            );
        }
        let mut rows: Vec<Totals<'_>> = totals.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.time));
        rows
    }

    /// All symbols together, by the name of the function.
    pub fn all(&self) -> Totals<'_> {
        let mut all = Totals::none((StreamKind::Compute, "", &*self.function));
        self.spans.iter().for_each(|span| all.add(span.time, span.bytes, span.flops, self.floor(span)));
        all
    }

    /// The table as data: the function, the target, the ceilings, and for each symbol and for all together the time in
    /// microseconds, calls, bytes, FLOPs, and the floor.
    pub fn to_json(&self) -> serde_json::Value {
        let total = self.total();
        let row = |totals: &Totals<'_>| totals.to_json(total, self.ceilings);
        let mut about = self.ceilings.to_json();
        about["function"] = json!(self.function);
        about["target"] = json!(self.target);
        about["symbols"] = json!(self.by_symbol().iter().map(row).collect::<Vec<_>>());
        about["all"] = row(&self.all());
        about
    }

    /// The floor of a symbol: how long its bytes and its arithmetic take at least, whichever takes longer. None where
    /// no ceiling is known that says so.
    pub fn floor(&self, span: &Span) -> Option<Duration> {
        let at = |amount: Option<u64>, rate: Option<f64>| Some(amount? as f64 / rate?);
        let bytes = at(Some(span.bytes), self.ceilings.bytes_per_second());
        let flops = at(span.flops, self.ceilings.flops_per_second());
        let seconds = bytes.into_iter().chain(flops).reduce(f64::max)?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// The trace-event format that Perfetto and Chrome read, times in microseconds. One process has the symbols of one
    /// run, with a track for each executor of each stream, and bytes and FLOPs of each; another the timeline, with a
    /// track for each stream. `otherData` has the function, the target, and the ceilings with their sources.
    pub fn to_chrome_trace(&self) -> String {
        let mut events = Vec::with_capacity(self.spans.len() + self.timeline.len() + 16);
        let mut tracks: indexmap::IndexSet<(StreamKind, &str)> = indexmap::IndexSet::new();
        for span in &self.spans {
            let (track, _) = tracks.insert_full((span.stream, &span.executor));
            let arguments = json!({
                "result": span.result, "line": span.line, "stream": span.stream.name(), "bytes": span.bytes,
                "flops": span.flops,
            });
            events.push(complete((SYMBOLS, track), &span.symbol, &span.executor, (span.start, span.time), arguments));
        }
        events.push(named("process_name", (SYMBOLS, 0), format!("{} on {}", self.function, self.target)));
        for (i, (stream, executor)) in tracks.iter().enumerate() {
            let track = match stream {
                StreamKind::Compute => (*executor).to_owned(),
                _ => format!("{stream}: {executor}"),
            };
            events.push(named("thread_name", (SYMBOLS, i), track));
        }
        for activity in &self.timeline {
            let track = (TIMELINE, activity.stream.index());
            let times = (activity.start, activity.time);
            events.push(complete(track, &activity.what, activity.stream.name(), times, json!({})));
        }
        if !self.timeline.is_empty() {
            events.push(named("process_name", (TIMELINE, 0), format!("several runs on {}", self.target)));
            let names =
                StreamKind::ALL.map(|stream| named("thread_name", (TIMELINE, stream.index()), stream.to_string()));
            events.extend(names);
        }
        let mut about = self.ceilings.to_json();
        about["function"] = json!(self.function);
        about["target"] = json!(self.target);
        json!({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}).to_string()
    }

    /// For how long copies ran while the device computed, and how long copies took in all, in the timeline.
    pub fn overlap(&self) -> (Duration, Duration) {
        let of = |stream: StreamKind| self.timeline.iter().filter(move |activity| activity.stream == stream);
        let within = |copy: &Activity| -> Duration {
            let common = |run: &Activity| {
                let end = (copy.start + copy.time).min(run.start + run.time);
                end.saturating_sub(copy.start.max(run.start))
            };
            // What the compute stream copies for itself is no computation.
            of(StreamKind::Compute).filter(|activity| !activity.what.starts_with(INPUTS)).map(common).sum()
        };
        (of(StreamKind::Copy).map(within).sum(), of(StreamKind::Copy).map(|copy| copy.time).sum())
    }
}

/// The process of the symbols of one run, in files for trace viewers.
const SYMBOLS: usize = 0;
/// That of the timeline.
const TIMELINE: usize = 1;

/// Something that took its time on a track: a process and a thread.
fn complete(
    (process, thread): (usize, usize),
    name: &str,
    category: &str,
    (start, time): (Duration, Duration),
    arguments: serde_json::Value,
) -> serde_json::Value {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    json!({
        "name": name, "cat": category, "ph": "X", "ts": micros(start), "dur": micros(time), "pid": process,
        "tid": thread, "args": arguments,
    })
}

/// What a process or a track is called.
fn named(kind: &str, (process, thread): (usize, usize), name: String) -> serde_json::Value {
    json!({"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}})
}

/// The table of symbols, and the timeline.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        writeln!(
            f,
            "{:>10}  {:>6}  {:>5}  {:>10}  {:>10}  {:>6}  {:>6}  {:>6}  {:<13}  {:<10}  symbol",
            "us", "share", "calls", "MB", "GFLOP", "copy", "flops", "floor", "stream", "executor"
        )?;
        for row in self.by_symbol() {
            let columns = row.columns(total, self.ceilings);
            writeln!(f, "{columns}  {:<13}  {:<10}  {}", row.stream.name(), row.executor, row.symbol)?;
        }
        let all = self.all();
        write!(f, "{}  all of {}", all.columns(total, self.ceilings), self.function)?;
        write!(f, "\nat most {}; ", self.ceilings)?;
        match all.floor.filter(|floor| *floor > 0.0) {
            Some(floor) => {
                let times = total.as_secs_f64() / floor;
                write!(f, "the floors add up to {:.1} us, the time is {times:.2} times that", floor * 1e6)?
            }
            None => write!(f, "no floors")?,
        }
        if self.timeline.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n\n{:>10}  {:>10}  {:<13}  several runs", "from us", "to us", "stream")?;
        for Activity { what, stream, start, time } in &self.timeline {
            let (from, to) = (start.as_secs_f64() * 1e6, (*start + *time).as_secs_f64() * 1e6);
            writeln!(f, "{from:>10.1}  {to:>10.1}  {:<13}  {what}", stream.name())?;
        }
        let (beside, copies) = self.overlap();
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        write!(f, "copies took {:.1} us, {:.1} us of them beside computation", micros(copies), micros(beside))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ceilings::{Ceiling, Source};
    use super::*;

    fn profile() -> Profile {
        let span = |symbol: &str, executor: &str, start: u64, micros: u64| Span {
            symbol: symbol.into(),
            executor: executor.into(),
            result: "x".into(),
            line: format!("x = {symbol}()"),
            stream: StreamKind::Compute,
            start: Duration::from_micros(start),
            time: Duration::from_micros(micros),
            bytes: 64,
            flops: Some(16),
        };
        Profile {
            function: "step".into(),
            target: "cpu".into(),
            spans: vec![span("exp", "cpu", 0, 2), span("matmul", "blas", 2, 7), span("exp", "cpu", 9, 1)],
            timeline: Vec::new(),
            ceilings: Ceilings { bytes: Some(Ceiling { per_second: 1e9, source: Source::Measured }), flops: None },
        }
    }

    fn activity(what: &str, stream: StreamKind, start: u64, time: u64) -> Activity {
        let micros = Duration::from_micros;
        Activity { what: what.into(), stream, start: micros(start), time: micros(time) }
    }

    #[test]
    fn copies_beside_computation_are_counted() {
        let timeline = vec![
            activity("step", StreamKind::Compute, 0, 10),
            activity("in", StreamKind::Copy, 8, 4),
            activity("step", StreamKind::Compute, 11, 10),
            activity("out", StreamKind::Copy, 30, 5),
        ];
        let profile = Profile { timeline, ..profile() };
        // Two before the first run ends, one after the second begins.
        assert_eq!(profile.overlap(), (Duration::from_micros(3), Duration::from_micros(9)));
        let text = profile.to_string();
        assert!(text.ends_with("copies took 9.0 us, 3.0 us of them beside computation"), "{text}");
        let file: serde_json::Value = serde_json::from_str(&profile.to_chrome_trace()).unwrap();
        let events = file["traceEvents"].as_array().unwrap();
        let copies: Vec<_> = events.iter().filter(|event| event["cat"] == "copy").collect();
        assert_eq!(copies.len(), 2);
        assert_eq!((&copies[0]["pid"], &copies[0]["tid"]), (&json!(1), &json!(1)), "a track of their own");
    }

    #[test]
    fn symbols_are_added_up_and_sorted() {
        let profile = profile();
        let micros = Duration::from_micros;
        let rows = profile.by_symbol();
        let told = rows.iter().map(|row| (row.executor, row.symbol, row.calls, row.time)).collect::<Vec<_>>();
        assert_eq!(told, [("blas", "matmul", 1, micros(7)), ("cpu", "exp", 2, micros(3))]);
        let table = profile.to_json();
        assert_eq!(table["symbols"][1]["bytes"], json!(128.0));
        assert_eq!((&table["all"]["us"], &table["all"]["calls"]), (&json!(10.0), &json!(3)));
        assert_eq!(table["bytes_source"], json!("measured"));
        let text = profile.to_string();
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("70.0%") && line.ends_with("matmul")), "{text}");
        assert!(text.lines().nth(3).is_some_and(|line| line.ends_with("all of step")), "{text}");
        // Three times 64 bytes at 1 GB/s are 0.192 us of 10.
        assert!(
            text.ends_with(
                "at most 1.0 GB/s (measured), no TFLOP/s known; the floors add up to 0.2 us, the time is 52.08 times that"
            ),
            "{text}"
        );
        assert!(text.lines().nth(2).is_some_and(|line| line.contains("4.3%")), "{text}");
    }

    #[test]
    fn arithmetic_that_is_not_known_is_not_nothing() {
        let mut profile = profile();
        profile.spans[1].flops = None;
        profile.ceilings.flops = Some(Ceiling { per_second: 1e9, source: Source::Given });
        let text = profile.to_string();
        let line = |at: usize| text.lines().nth(at).unwrap_or_default();
        assert!(line(1).contains("unknown") && line(3).contains("unknown") && !line(2).contains("unknown"), "{text}");
        let file: serde_json::Value = serde_json::from_str(&profile.to_chrome_trace()).unwrap_or_default();
        assert_eq!(file["traceEvents"][1]["args"]["flops"], json!(null));
    }

    #[test]
    fn the_file_is_a_chrome_trace() -> Result<(), serde_json::Error> {
        let file: serde_json::Value = serde_json::from_str(&profile().to_chrome_trace())?;
        let events = file["traceEvents"].as_array().map_or(&[][..], Vec::as_slice);
        let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(complete.len(), 3);
        assert_eq!((&complete[2]["ts"], &complete[2]["dur"]), (&json!(9.0), &json!(1.0)), "one after the other");
        assert_eq!(complete[0]["tid"], complete[2]["tid"], "one track for each executor");
        assert_eq!((&complete[1]["args"]["bytes"], &complete[1]["args"]["flops"]), (&json!(64), &json!(16)));
        assert_eq!(file["otherData"]["bytes_per_second"], json!(1e9));
        assert_eq!(file["otherData"]["bytes_source"], json!("measured"));
        assert_eq!(file["otherData"]["flops_per_second"], json!(null));
        let tracks: Vec<_> = events.iter().filter(|event| event["name"] == "thread_name").collect();
        assert_eq!(tracks.len(), 2);
        Ok(())
    }
}
