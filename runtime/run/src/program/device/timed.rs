//! Runs whose symbols are timed, each between events on its stream.

use std::time::Duration;

use super::{DeviceProgram, Edge};
use crate::array::Array;
use crate::error::Result;
use crate::program::profile::SymbolTime;

impl DeviceProgram {
    /// Runs each symbol by itself, between events.
    pub(in crate::program) fn run_timed(&self, inputs: Vec<Array>) -> Result<(Vec<Array>, Vec<SymbolTime>)> {
        self.check_inputs(&inputs)?;
        let mut times = Vec::with_capacity(self.steps.len());
        let outputs = self.run_with(inputs, |loaded, starts| {
            let state = loaded.state.clone();
            let event = || state.context().event(true);
            let origin = event()?;
            let pair = |_| Ok((event()?, event()?));
            let events = (0..self.steps.len()).map(pair).collect::<Result<Vec<_>>>()?;
            loaded.code.step_together()?;
            loaded.room.begin(state.stream())?;
            state.stream().record(&*origin)?;
            self.step_all(loaded, starts, |stream, step, at| {
                let (begin, end) = &events[step];
                Ok(stream.record(if at == Edge::Begin { &**begin } else { &**end })?)
            })?;
            state.synchronize()?;
            let duration = |milliseconds: f64| Duration::from_secs_f64(milliseconds.max(0.0) / 1e3);
            for ((step, work), (begin, end)) in self.steps.iter().zip(&self.code.steps).zip(&events) {
                // Nothing runs for a join: its time would be that between two events.
                if work.commands.is_empty() && step.outside.is_none() {
                    continue;
                }
                let start = duration(begin.milliseconds_since(&*origin)?);
                let time = duration(end.milliseconds_since(&**begin)?);
                times.push(SymbolTime { symbol: step.symbol, stream: work.stream, start, time });
            }
            Ok(())
        })?;
        Ok((outputs, times))
    }
}
