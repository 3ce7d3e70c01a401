//! What the memory plan of a trace says: the bytes that it needs, and where each value is read last.

use super::{Block, Callee, Storage, Trace, ValueId};

/// Bytes that a planned program needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryUse {
    /// Inputs.
    pub inputs: u64,
    /// Outputs that are not written into donated inputs.
    pub outputs: u64,
    /// The arena.
    pub transient: u64,
}

impl MemoryUse {
    /// Everything held while the program runs.
    pub fn peak(&self) -> u64 {
        self.inputs.saturating_add(self.outputs).saturating_add(self.transient)
    }
}

/// What `trace` needs once it is planned.
pub fn memory_use(trace: &Trace) -> MemoryUse {
    let block = &trace.block;
    let outputs = block
        .values
        .iter()
        .filter(|v| v.storage == Some(Storage::Output))
        .map(|v| v.meta.bytes() as u64)
        .fold(0, u64::saturating_add);
    MemoryUse {
        inputs: block
            .parameters
            .iter()
            .filter_map(|id| block.values.get(id.index()))
            .map(|v| v.meta.bytes() as u64)
            .fold(0, u64::saturating_add),
        outputs,
        transient: trace.arena.unwrap_or(0),
    }
}

/// For each value the index of the last symbol that reads it or a view of it; `symbols.len()` for results.
pub fn last_uses(block: &Block, roots: &[ValueId]) -> Vec<usize> {
    let mut last = vec![0usize; block.values.len()];
    for (i, symbol) in block.symbols.iter().enumerate() {
        for id in symbol.results.iter() {
            last[roots[id.index()].index()] = last[roots[id.index()].index()].max(i);
        }
        if symbol.callee != Callee::Delete {
            for id in symbol.operands() {
                last[roots[id.index()].index()] = i;
                last[id.index()] = last[id.index()].max(i);
            }
        }
    }
    for id in &block.results {
        last[roots[id.index()].index()] = block.symbols.len();
    }
    last
}
