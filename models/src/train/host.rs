//! What the host does for a step, by part, and apart from waiting for the device.

use std::time::{Duration, Instant};

use fulgurite_runtime::device::HostTime;
use serde::Serialize;

/// The host's time for one turn of the loop over the steps: the batch is made, the step enqueued, and the report of the
/// step before it read and told. On the host, where nothing is enqueued ahead, the report is that of the step itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Turn {
    /// The batch, the learning rate and the generator, or taking them from the thread that makes them.
    pub(super) batch: Duration,
    /// The compiled step is found for its arguments, which are checked, and their addresses gathered.
    pub(super) arguments: Duration,
    /// Small inputs on their way to the device are gathered and enqueued.
    pub(super) inputs: Duration,
    /// The graph, or each kernel, is launched; on the host the step itself.
    pub(super) launch: Duration,
    /// Results are handed out as arrays.
    pub(super) results: Duration,
    /// The report is told: progress, the table, the page.
    pub(super) report: Duration,
    /// Waiting for the device, which is in no other part.
    pub(super) waiting: Duration,
}

/// Medians of turns, in microseconds. On the host, `launch` is the step itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HostParts {
    /// Making the batch and the step's numbers, or taking them from the thread that makes them.
    pub batch: f64,
    /// Finding the compiled step for its arguments, checking them, gathering their addresses.
    pub arguments: f64,
    /// Gathering small inputs, and enqueuing their copies.
    pub inputs: f64,
    /// Launching the graph, or each kernel.
    pub launch: f64,
    /// Handing out the results.
    pub results: f64,
    /// Telling the report of a step: progress, table, page.
    pub report: f64,
}

impl Turn {
    /// The time in which the host is busy.
    pub(super) fn busy(&self) -> Duration {
        self.batch + self.arguments + self.inputs + self.launch + self.results + self.report
    }
}

impl HostParts {
    /// What `median` says of each part.
    pub(super) fn of(median: impl Fn(fn(&Turn) -> Duration) -> f64) -> HostParts {
        HostParts {
            batch: median(|turn| turn.batch),
            arguments: median(|turn| turn.arguments),
            inputs: median(|turn| turn.inputs),
            launch: median(|turn| turn.launch),
            results: median(|turn| turn.results),
            report: median(|turn| turn.report),
        }
    }

    /// The parts with their names, in the order of a step.
    pub fn named(&self) -> [(&'static str, f64); 6] {
        let HostParts { batch, arguments, inputs, launch, results, report } = *self;
        [
            ("batch", batch),
            ("arguments", arguments),
            ("inputs", inputs),
            ("launch", launch),
            ("results", results),
            ("report", report),
        ]
    }
}

/// Times the parts of turns.
pub(super) struct Meter {
    turn: Turn,
    begun: Instant,
    spent: HostTime,
}

impl Meter {
    /// A turn begins.
    pub(super) fn start() -> Meter {
        Meter { turn: Turn::default(), begun: Instant::now(), spent: HostTime::now() }
    }

    /// What was done since the last call, or since the start: all of it, and what the runtime counted of it.
    fn lap(&mut self) -> (Duration, HostTime) {
        let (now, spent) = (Instant::now(), HostTime::now());
        let lap = (now - self.begun, spent.since(&self.spent));
        (self.begun, self.spent) = (now, spent);
        self.turn.waiting += lap.1.waiting;
        lap
    }

    /// The batch was made.
    pub(super) fn batch(&mut self) {
        let (all, spent) = self.lap();
        self.turn.batch += all.saturating_sub(spent.waiting);
    }

    /// The step was enqueued.
    pub(super) fn step(&mut self) {
        let (all, spent) = self.lap();
        self.turn.arguments += all.saturating_sub(spent.total());
        self.turn.inputs += spent.inputs;
        self.turn.launch += spent.launching;
        self.turn.results += spent.results;
    }

    /// A report was read and told.
    pub(super) fn report(&mut self) {
        let (all, spent) = self.lap();
        self.turn.report += all.saturating_sub(spent.waiting);
    }

    /// The parts, once the turn has ended.
    pub(super) fn end(self) -> Turn {
        self.turn
    }
}
