//! Where the time of one run went, symbol by symbol: as a table, and as a file for trace viewers.

use std::fmt;
use std::time::Duration;

use serde_json::json;

use crate::trace::{BoundSymbol, Callee, Trace, print_symbol};

/// Index of a symbol of the trace, and how long it took.
pub type SymbolTime = (usize, Duration);

/// The time of each symbol of one run. On a device it is taken between events around the symbol, each enqueued by itself, so
/// that the sum is above what a replayed graph takes.
#[derive(Debug, Clone)]
pub struct Profile {
    /// The function's name.
    pub function: String,
    /// What the program was compiled for.
    pub target: String,
    /// In the order of the run.
    pub spans: Vec<Span>,
}

/// One symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The symbol's operator, or the executor's region.
    pub symbol: String,
    /// Who ran it.
    pub executor: String,
    /// The name of its first result.
    pub result: String,
    /// Its line of the trace.
    pub line: String,
    /// How long it took.
    pub time: Duration,
}

fn executor(symbol: &BoundSymbol) -> &str {
    match &symbol.callee {
        Callee::Region { executor } => executor,
        _ => symbol.executor.unwrap_or("nobody"),
    }
}

impl Profile {
    pub(crate) fn new(trace: &Trace, times: &[SymbolTime]) -> Profile {
        let span = |(index, time): &SymbolTime| {
            let symbol = &trace.block.symbols[*index];
            Span {
                symbol: symbol.name().to_owned(),
                executor: executor(symbol).to_owned(),
                result: symbol.results.first().map_or_else(String::new, |id| trace.block.value(*id).name.to_string()),
                line: print_symbol(&trace.block, symbol),
                time: *time,
            }
        };
        Profile {
            function: trace.name.clone(),
            target: trace.target.to_string(),
            spans: times.iter().map(span).collect(),
        }
    }

    /// The time of all symbols.
    pub fn total(&self) -> Duration {
        self.spans.iter().map(|span| span.time).sum()
    }

    /// Symbols of one name and executor together, the longest first: executor, name, how many, and their time.
    pub fn by_symbol(&self) -> Vec<(&str, &str, usize, Duration)> {
        let mut sums: indexmap::IndexMap<(&str, &str), (usize, Duration)> = indexmap::IndexMap::new();
        for span in &self.spans {
            let sum = sums.entry((&span.executor, &span.symbol)).or_default();
            *sum = (sum.0 + 1, sum.1 + span.time);
        }
        let mut rows: Vec<_> = sums.into_iter().map(|((e, name), (count, time))| (e, name, count, time)).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.3));
        rows
    }

    /// The trace-event format that Perfetto and Chrome read: one track for each executor, symbols one after the other,
    /// times in microseconds.
    pub fn to_chrome_trace(&self) -> String {
        let mut tracks: indexmap::IndexSet<&str> = indexmap::IndexSet::new();
        let mut events = Vec::with_capacity(self.spans.len() + 8);
        let mut start = Duration::ZERO;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        for span in &self.spans {
            let (track, _) = tracks.insert_full(&span.executor);
            events.push(json!({
                "name": span.symbol, "cat": span.executor, "ph": "X", "ts": micros(start), "dur": micros(span.time),
                "pid": 0, "tid": track, "args": {"result": span.result, "line": span.line},
            }));
            start += span.time;
        }
        let name = |kind: &str, track: usize, name: String| json!({"name": kind, "ph": "M", "pid": 0, "tid": track, "args": {"name": name}});
        events.push(name("process_name", 0, format!("{} on {}", self.function, self.target)));
        events.extend(tracks.iter().enumerate().map(|(i, track)| name("thread_name", i, (*track).to_owned())));
        json!({"traceEvents": events, "displayTimeUnit": "ns"}).to_string()
    }
}

/// The table of symbols.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total().as_secs_f64();
        writeln!(f, "{:>10}  {:>6}  {:>5}  {:<10}  symbol", "us", "share", "calls", "executor")?;
        for (executor, name, count, time) in self.by_symbol() {
            let seconds = time.as_secs_f64();
            let share = if total > 0.0 { 100.0 * seconds / total } else { 0.0 };
            writeln!(f, "{:>10.1}  {share:>5.1}%  {count:>5}  {executor:<10}  {name}", seconds * 1e6)?;
        }
        write!(f, "{:>10.1}  100.0%  {:>5}  all of {}", total * 1e6, self.spans.len(), self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let span = |symbol: &str, executor: &str, micros: u64| Span {
            symbol: symbol.into(),
            executor: executor.into(),
            result: "x".into(),
            line: format!("x = {symbol}()"),
            time: Duration::from_micros(micros),
        };
        Profile {
            function: "step".into(),
            target: "cpu".into(),
            spans: vec![span("exp", "cpu", 2), span("matmul", "blas", 7), span("exp", "cpu", 1)],
        }
    }

    #[test]
    fn symbols_are_added_up_and_sorted() {
        let profile = profile();
        let micros = Duration::from_micros;
        assert_eq!(profile.by_symbol(), [("blas", "matmul", 1, micros(7)), ("cpu", "exp", 2, micros(3))]);
        let text = profile.to_string();
        assert!(text.lines().nth(1).is_some_and(|line| line.contains("70.0%") && line.ends_with("matmul")), "{text}");
        assert!(text.ends_with("all of step"), "{text}");
    }

    #[test]
    fn the_file_is_a_chrome_trace() -> Result<(), serde_json::Error> {
        let file: serde_json::Value = serde_json::from_str(&profile().to_chrome_trace())?;
        let events = file["traceEvents"].as_array().map_or(&[][..], Vec::as_slice);
        let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!(complete.len(), 3);
        assert_eq!((&complete[2]["ts"], &complete[2]["dur"]), (&json!(9.0), &json!(1.0)), "one after the other");
        assert_eq!(complete[0]["tid"], complete[2]["tid"], "one track for each executor");
        let tracks: Vec<_> = events.iter().filter(|event| event["name"] == "thread_name").collect();
        assert_eq!(tracks.len(), 2);
        Ok(())
    }
}
