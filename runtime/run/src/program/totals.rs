//! Symbols of a profile, added up.

use std::time::Duration;

use serde_json::{Value, json};

use super::ceilings::Ceilings;
use crate::stream_kind::StreamKind;

/// Symbols of one stream, executor and name together.
#[derive(Debug, Clone, PartialEq)]
pub struct Totals<'a> {
    /// The stream on which they ran.
    pub stream: StreamKind,
    /// The executor that ran them.
    pub executor: &'a str,
    /// Their operator, or the executor's region.
    pub symbol: &'a str,
    /// How many there are.
    pub calls: usize,
    /// How long they took.
    pub time: Duration,
    /// Bytes that they read and write.
    pub bytes: f64,
    /// Their arithmetic; none where that of one of them is not known.
    pub flops: Option<f64>,
    /// Their floors in seconds; none where one of them has none.
    pub floor: Option<f64>,
}

impl<'a> Totals<'a> {
    /// Totals of no symbol.
    pub(super) fn none((stream, executor, symbol): (StreamKind, &'a str, &'a str)) -> Totals<'a> {
        let time = Duration::ZERO;
        Totals { stream, executor, symbol, calls: 0, time, bytes: 0.0, flops: Some(0.0), floor: Some(0.0) }
    }

    /// One symbol more, by its time, its bytes, its arithmetic and its floor.
    pub(super) fn add(&mut self, time: Duration, bytes: u64, flops: Option<u64>, floor: Option<Duration>) {
        self.calls += 1;
        self.time += time;
        self.bytes += bytes as f64;
        self.flops = self.flops.zip(flops).map(|(sum, own)| sum + own as f64);
        self.floor = self.floor.zip(floor).map(|(sum, own)| sum + own.as_secs_f64());
    }

    /// Shares of the time `total`, of the ceilings for bytes and arithmetic, and that of the floor in the time.
    fn shares(&self, total: Duration, ceilings: Ceilings) -> [Option<f64>; 4] {
        let of = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let time = self.time.as_secs_f64();
        let rate = |amount: Option<f64>, most: Option<f64>| of(amount?, time * most?);
        [
            Some(of(time, total.as_secs_f64()).unwrap_or(0.0)),
            rate(Some(self.bytes), ceilings.bytes_per_second()),
            rate(self.flops, ceilings.flops_per_second()),
            self.floor.and_then(|floor| of(floor, time)),
        ]
    }

    /// The columns of a table: time, its share of `total`, calls, bytes and operations, what these are of the ceilings,
    /// and what the floor is of the time.
    pub(super) fn columns(&self, total: Duration, ceilings: Ceilings) -> String {
        let percent = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.1}%", 100.0 * part));
        let [share, copy, flops, floor] = self.shares(total, ceilings).map(percent);
        format!(
            "{:>10.1}  {share:>6}  {:>5}  {:>10.3}  {:>10}  {copy:>6}  {flops:>6}  {floor:>6}",
            self.time.as_secs_f64() * 1e6,
            self.calls,
            self.bytes / 1e6,
            self.flops.map_or("unknown".to_owned(), |flops| format!("{:.3}", flops / 1e9)),
        )
    }

    /// The row as data, times in microseconds; null is what is not known.
    pub(super) fn to_json(&self, total: Duration, ceilings: Ceilings) -> Value {
        let [share, copy, flops, floor] = self.shares(total, ceilings);
        json!({
            "symbol": self.symbol, "executor": self.executor, "stream": self.stream.name(), "calls": self.calls,
            "us": self.time.as_secs_f64() * 1e6, "share": share, "bytes": self.bytes, "flops": self.flops,
            "of_copy": copy, "of_products": flops, "floor_us": self.floor.map(|floor| floor * 1e6), "floor_share": floor,
        })
    }
}
