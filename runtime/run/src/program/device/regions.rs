//! The memory of a program on a device: which part of its own memory is for what, and what alignment kernels may count
//! on.

use std::ops::Range;

use rustc_hash::FxHashSet;

use super::staging::LANDINGS;
use crate::meta::TensorMeta;
use crate::program::placement::{Base, Placement, Source as OutputSource};
use crate::stream_kind::StreamKind;
use crate::trace::Trace;

/// Larger inputs and outputs, in bytes, are used where they are; smaller ones have a place of the program's own, so
/// that their addresses do not change from run to run, but for inputs that kernels read in place.
pub(super) const LARGEST_STAGED: usize = 1 << 20;
/// What the address of an input's first element is a multiple of, in bytes: the widest load.
pub(super) const INPUT_ALIGNMENT: usize = 16;
/// Alignment of the regions of the program's memory, in bytes.
pub(super) const ALIGNMENT: u64 = 256;

/// The program's own memory, in bytes from its start.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// Of the steps of each stream, by [`StreamKind::index`].
    pub(super) workspaces: [u64; StreamKind::ALL.len()],
    /// Of all of them.
    pub(super) workspace: Range<u64>,
    /// For each input that is staged.
    pub(super) staging: Vec<Option<u64>>,
    /// What the staged inputs take up together.
    pub(super) staged: Range<u64>,
    /// Where copies of the staged inputs land, each with room for all of them.
    pub(super) landings: [u64; LANDINGS],
    /// For each fresh output that is small; larger ones are written where the caller gets them.
    pub(super) outputs: Vec<Option<u64>>,
    pub(super) total: u64,
}

/// The largest power of two that divides the distance of a value's first element from the start of an allocation.
pub(super) fn alignment(base: Base, offset: isize) -> usize {
    let start = match base {
        Base::Arena(start) => start as usize,
        Base::Input(_) | Base::Output(_) => 0,
    };
    let distance = start.wrapping_add_signed(offset);
    let whole = ALIGNMENT as usize;
    let own = if distance == 0 { whole } else { (1 << distance.trailing_zeros()).min(whole) };
    // An input may be a view of an array; the driver sees to it.
    if matches!(base, Base::Input(_)) { own.min(INPUT_ALIGNMENT) } else { own }
}

impl Regions {
    /// Divides the memory of a planned trace whose steps of each stream use at most `workspace_bytes` of workspace,
    /// whose kernels read the inputs `in_place` where the caller has them, and whose runs may be replayed: those of a
    /// program that is not are written where the caller gets them.
    pub(super) fn new(
        trace: &Trace,
        placement: &Placement,
        (workspace_bytes, in_place): ([u64; StreamKind::ALL.len()], &FxHashSet<usize>),
        replayed: bool,
    ) -> Regions {
        let mut end = 0u64;
        let mut take = |bytes: u64| {
            let start = end;
            end = end.saturating_add(bytes.next_multiple_of(ALIGNMENT));
            start
        };
        take(trace.arena.unwrap_or(0));
        let workspaces = workspace_bytes.map(&mut take);
        let staged_from = take(0);
        let workspace = workspaces[0]..staged_from;
        let staging = trace
            .block
            .parameters
            .iter()
            .enumerate()
            .map(|(i, id)| {
                let meta = trace.block.meta(*id);
                let given_out = placement
                    .outputs
                    .iter()
                    .any(|source| matches!(source, OutputSource::Passed(n) | OutputSource::Donated(n) if *n == i));
                let small =
                    meta.bytes() <= LARGEST_STAGED && trace.inputs[i].strides.is_none() && !in_place.contains(&i);
                (small && !given_out && !trace.inputs[i].donated).then(|| take(meta.bytes() as u64))
            })
            .collect();
        let staged = staged_from..take(0);
        let landings = std::array::from_fn(|_| take(staged.end - staged.start));
        let place = |meta: &TensorMeta| (replayed && meta.bytes() <= LARGEST_STAGED).then(|| take(meta.bytes() as u64));
        let outputs = placement.fresh.iter().map(place).collect();
        Regions { workspaces, workspace, staging, staged, landings, outputs, total: end }
    }
}
