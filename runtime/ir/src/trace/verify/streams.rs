//! Streams: every line runs on one that the device has, and begins after the lines that it depends on.

use super::super::layouts::layouts;
use super::super::{Block, BoundSymbol, ValueId};
use super::ended::{Ended, runs};
use super::verifier::{Check, Verifier, name};
use crate::device::find_kind;
use crate::error::Result;
use crate::stream_kind::StreamKind;

impl Verifier<'_> {
    /// The lines of the program; those of bodies have no streams of their own.
    pub(super) fn streams(&self) -> Result<()> {
        let block = &self.trace.block;
        if block.symbols.iter().all(|symbol| symbol.schedule.is_plain()) {
            return Ok(());
        }
        let layouts = layouts(self.trace);
        let ended = Ended::of(block);
        // For each value whose memory is written, the values that are written there: a whole is written by the lines
        // that compute its parts, and is complete with the one that joins them.
        let mut written: Vec<Vec<ValueId>> = vec![Vec::new(); block.values.len()];
        for symbol in block.symbols.iter().filter(|symbol| runs(symbol)) {
            symbol.results.iter().for_each(|id| written[layouts[id.index()].root.index()].push(*id));
        }
        for (line, symbol) in block.symbols.iter().enumerate() {
            let broken = |message: String| self.broken_by(block, symbol, message);
            self.stream(symbol).map_err(broken)?;
            Self::waits(block, symbol, line, &ended).map_err(broken)?;
            if !runs(symbol) {
                continue;
            }
            for id in symbol.operands() {
                let root = layouts[id.index()].root;
                let mut writers =
                    written[root.index()].iter().filter_map(|id| Some((*id, ended.writer_before(*id, line)?)));
                let late = writers.find(|(_, writer)| !ended.before(*writer, line));
                let Some((written, writer)) = late else { continue };
                let message = format!(
                    "reads {} on the {} stream while {} may not have been written on the {} stream; wait with 'after'",
                    name(block, id),
                    symbol.schedule.stream,
                    if written == id { "it".to_owned() } else { name(block, written) },
                    block.symbols[writer].schedule.stream,
                );
                return Err(broken(message));
            }
        }
        Ok(())
    }

    /// That there is such a stream, and that something runs on it.
    fn stream(&self, symbol: &BoundSymbol) -> Check {
        if symbol.schedule.is_plain() {
            return Ok(());
        }
        if !runs(symbol) {
            return Err("has a stream, or waits, though nothing runs for it".into());
        }
        let (stream, target) = (symbol.schedule.stream, self.trace.target.kind());
        let known = match find_kind(target) {
            Ok(kind) => kind.streams(),
            // The host is no kind of device.
            Err(_) => &[],
        };
        match stream == StreamKind::Compute || known.contains(&stream) {
            true => Ok(()),
            false => Err(format!("is on the {stream} stream, which '{target}' has not")),
        }
    }

    /// That what it waits for is defined by earlier lines that run.
    fn waits(block: &Block, symbol: &BoundSymbol, line: usize, ended: &Ended) -> Check {
        for id in &symbol.schedule.after {
            let Some(writer) = ended.writer_before(*id, line) else {
                return Err(format!("waits for {}, which no earlier line computes", name(block, *id)));
            };
            if !runs(&block.symbols[writer]) {
                return Err(format!("waits for {}, for which nothing runs", name(block, *id)));
            }
        }
        Ok(())
    }
}
