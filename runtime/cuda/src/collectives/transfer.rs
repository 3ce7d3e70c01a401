//! What goes through a group of ranks, and how a reduction divides tensors among them.

use std::ops::Range;

use fulgurite_kernels::DType;
use fulgurite_kernels::launch::DeviceAddress;

/// How elements of several devices become one, with `ncclRedOp_t`'s number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Reduction {
    /// Their sum.
    Sum = 0,
    /// Their product.
    Product = 1,
    /// The largest; NaN if one of them is NaN.
    Max = 2,
    /// The smallest; NaN if one of them is NaN.
    Min = 3,
    /// Their mean.
    Mean = 4,
}

/// What goes through a group. Counts are elements that one rank gives, of contiguous tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// All ranks' tensors as one, on each of them.
    AllReduce(Reduction),
    /// The part of this rank's place of all ranks' tensors as one.
    ReduceScatter(Reduction),
    /// One after another.
    AllGather,
    /// That of the rank at this place.
    Broadcast(usize),
    /// Equal parts, one to each rank, one after another.
    AllToAll,
    /// That of the rank as many places before.
    SendRecv(usize),
}

impl Transfer {
    /// How it combines elements, if it does.
    pub(super) fn reduction(self) -> Option<Reduction> {
        match self {
            Transfer::AllReduce(by) | Transfer::ReduceScatter(by) => Some(by),
            _ => None,
        }
    }

    /// Bytes of workspace for tensors of so many elements, of one dtype and with results of another: what a reduction
    /// gets from the other ranks.
    pub fn workspace(self, dtypes: [DType; 2], counts: &[usize], ranks: usize) -> u64 {
        let slots = |count: &usize| Parts::of(self, *count, dtypes, ranks).slot_bytes() as u64;
        let all: u64 = counts.iter().map(slots).sum();
        if self.reduction().is_some() { all * (ranks as u64 - 1) } else { 0 }
    }
}

/// A tensor that goes through a group.
#[derive(Debug, Clone, Copy)]
pub struct Transferred {
    /// How many elements this rank gives.
    pub count: usize,
    /// The first element that this rank gives.
    pub from: DeviceAddress,
    /// Where the first element that it gets is written.
    pub to: DeviceAddress,
}

/// Tensors that go through a group as one.
#[derive(Debug, Clone, Copy)]
pub struct Tensors<'a> {
    /// What all ranks get of what each gives.
    pub transfer: Transfer,
    /// The type of what all ranks give, and that of what they get, in which a reduction is made if it is wider.
    pub dtypes: [DType; 2],
    /// Where each tensor is given and got.
    pub tensors: &'a [Transferred],
    /// [`Transfer::workspace`] bytes, from a multiple of 256 on.
    pub workspace: DeviceAddress,
}

/// Slots of the workspace start on multiples of this.
const ALIGNMENT: usize = 256;

/// The parts of a tensor, of which each rank combines one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    count: usize,
    /// Elements of a part; the last ones may have fewer, or none.
    share: usize,
    /// Bytes of an element of what is given, and of what is got.
    sizes: [usize; 2],
}

impl Parts {
    /// Those of a tensor of `count` elements. What is scattered has equal parts; other parts begin on multiples of 16
    /// bytes, which a thread of a kernel reads at once.
    pub(super) fn of(transfer: Transfer, count: usize, dtypes: [DType; 2], ranks: usize) -> Parts {
        let sizes = dtypes.map(DType::size);
        let share = match transfer {
            Transfer::ReduceScatter(_) => count / ranks,
            _ => count.div_ceil(ranks).next_multiple_of(16 / sizes[0].min(sizes[1])),
        };
        Parts { count, share, sizes }
    }

    /// The elements of the part of the rank at a place.
    fn elements(&self, place: usize) -> Range<usize> {
        let at = |place: usize| (place * self.share).min(self.count);
        at(place)..at(place + 1)
    }

    /// The bytes of the part of the rank at a place, of what is given.
    pub(super) fn given(&self, place: usize) -> Range<usize> {
        let Range { start, end } = self.elements(place);
        start * self.sizes[0]..end * self.sizes[0]
    }

    /// The same of what is got.
    pub(super) fn got(&self, place: usize) -> Range<usize> {
        let Range { start, end } = self.elements(place);
        start * self.sizes[1]..end * self.sizes[1]
    }

    /// The bytes of the workspace that have a part of one other rank's tensor.
    pub(super) fn slot_bytes(&self) -> usize {
        (self.share.min(self.count) * self.sizes[0].max(self.sizes[1])).next_multiple_of(ALIGNMENT)
    }
}

/// Which of the slots for the other ranks' parts, at the rank at `place`, has that of `other`.
pub(super) fn slot(other: usize, place: usize) -> usize {
    other - usize::from(other > place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole_tensor() {
        for (count, ranks) in [(0, 2), (1, 4), (7, 2), (17, 4), (4096, 3), (5, 64)] {
            for dtypes in [[DType::F64; 2], [DType::BF16; 2], [DType::U8; 2], [DType::BF16, DType::F32]] {
                let parts = Parts::of(Transfer::AllReduce(Reduction::Sum), count, dtypes, ranks);
                let of = [Parts::given, Parts::got];
                for (part, dtype) in of.into_iter().zip(dtypes) {
                    let mut end = 0;
                    for place in 0..ranks {
                        let bytes = part(&parts, place);
                        assert_eq!(bytes.start, end, "{count} of {dtype} on {ranks}");
                        assert!(bytes.is_empty() || bytes.start.is_multiple_of(16));
                        assert!(bytes.len() <= parts.slot_bytes());
                        end = bytes.end;
                    }
                    assert_eq!(end, count * dtype.size());
                }
            }
        }
    }

    #[test]
    fn a_rank_has_a_slot_for_each_other_one() {
        for place in 0..4 {
            let slots: Vec<usize> = (0..4).filter(|other| *other != place).map(|other| slot(other, place)).collect();
            assert_eq!(slots, [0, 1, 2]);
        }
    }
}
