//! The maker and the readers of each value of a block, where each operator is called, and the normal form of each call.

use rustc_hash::FxHashMap;

use super::normal::Normals;
use crate::operator::OperatorDef;
use crate::trace::{Block, Callee, ValueId};

/// An index over a block. It is built in one pass, and valid until the block changes.
pub(super) struct Uses {
    /// The symbol that makes each value; `None` for parameters.
    producers: Vec<Option<u32>>,
    /// Where the readers of each value begin in `readers`; one more entry than there are values.
    starts: Vec<u32>,
    /// The symbols that read each value, in order, each once.
    readers: Vec<u32>,
    /// The symbols that call each operator, as they were written or in normal form, in order.
    calls: FxHashMap<*const OperatorDef, Vec<u32>>,
    /// Whether the block returns each value.
    returned: Vec<bool>,
    /// The normal form of each symbol.
    pub(super) normals: Normals,
}

impl Uses {
    pub(super) fn of(block: &Block, late: bool) -> Uses {
        let (count, normals) = (block.values.len(), Normals::of(block, late));
        let (mut producers, mut returned) = (vec![None; count], vec![false; count]);
        let mut calls: FxHashMap<*const OperatorDef, Vec<u32>> = FxHashMap::default();
        // Lengths first, then places: no list of its own for each value.
        let (mut starts, mut last) = (vec![0u32; count + 1], vec![u32::MAX; count]);
        for (i, symbol) in (0u32..).zip(&block.symbols) {
            for (_, form) in normals.variants(block, i as usize) {
                if let Callee::Operator(def) = form.callee {
                    let calls = calls.entry(std::ptr::from_ref(def)).or_default();
                    if calls.last() != Some(&i) {
                        calls.push(i);
                    }
                }
            }
            symbol.results.iter().for_each(|id| producers[id.index()] = Some(i));
            for id in symbol.operands() {
                if std::mem::replace(&mut last[id.index()], i) != i {
                    starts[id.index() + 1] += 1;
                }
            }
        }
        block.results.iter().for_each(|id| returned[id.index()] = true);
        for i in 0..count {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut readers = vec![0u32; starts[count] as usize];
        last.fill(u32::MAX);
        for (i, symbol) in (0u32..).zip(&block.symbols) {
            for id in symbol.operands() {
                if std::mem::replace(&mut last[id.index()], i) != i {
                    readers[next[id.index()] as usize] = i;
                    next[id.index()] += 1;
                }
            }
        }
        Uses { producers, starts, readers, calls, returned, normals }
    }

    /// The symbol that makes a value.
    pub(super) fn producer(&self, id: ValueId) -> Option<u32> {
        self.producers[id.index()]
    }

    /// The symbols that read a value, in order.
    pub(super) fn readers(&self, id: ValueId) -> &[u32] {
        &self.readers[self.starts[id.index()] as usize..self.starts[id.index() + 1] as usize]
    }

    /// The symbols that call an operator, as they were written or in normal form, in order.
    pub(super) fn calls(&self, def: &'static OperatorDef) -> &[u32] {
        self.calls.get(&std::ptr::from_ref(def)).map_or(&[], Vec::as_slice)
    }

    /// Whether the block returns a value.
    pub(super) fn is_returned(&self, id: ValueId) -> bool {
        self.returned[id.index()]
    }
}
