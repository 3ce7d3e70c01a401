//! What is moved between the ranks of a group, whatever moves it.
//!
//! A reduction goes in parts: each rank gets its part of all ranks' tensors, combines them in the order of ranks, and,
//! where all of them need the result, gives it to the others. A rank sends and gets `2 (n - 1) / n` of the bytes, the
//! least for `n` ranks, and the sum has the same bits wherever and by whatever it is computed.

use fulgurite_kernels::launch::{CopyRange, DeviceAddress};

use super::combine::Combined;
use super::transfer::{Parts, Tensors, Transfer, Transferred, slot};

/// Bytes for one other rank, and bytes from it. What ranks send to each other is in one order on both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sent {
    /// The place of the rank that gets them.
    pub(super) to_rank: usize,
    pub(super) from: DeviceAddress,
    /// Where they are written there, as the place of the like in this rank's memory.
    pub(super) to: DeviceAddress,
    pub(super) bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Received {
    /// The place of the rank that sends them.
    pub(super) from_rank: usize,
    pub(super) to: DeviceAddress,
    pub(super) bytes: usize,
}

/// What is moved at a time.
#[derive(Debug, Default)]
pub(super) struct Moves {
    pub(super) sent: Vec<Sent>,
    pub(super) received: Vec<Received>,
    /// Within this rank's memory.
    pub(super) kept: Vec<CopyRange>,
}

/// This rank among those of the group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) place: usize,
    pub(super) ranks: usize,
}

impl Member {
    /// The places of the others, from the next one on: at a time no two ranks send to the same one.
    pub(super) fn others(self) -> impl Iterator<Item = usize> {
        (1..self.ranks).map(move |further| (self.place + further) % self.ranks)
    }

    /// A transfer that combines nothing.
    pub(super) fn moved(self, of: &Tensors<'_>) -> Moves {
        let Member { place, ranks } = self;
        let mut moves = Moves::default();
        for Transferred { count, from, to } in of.tensors.iter().copied().filter(|tensor| tensor.count > 0) {
            let bytes = count * of.dtypes[0].size();
            let keep = |from, to, bytes| CopyRange { from, to, bytes };
            match of.transfer {
                Transfer::AllGather => {
                    let own = to.offset(place * bytes);
                    moves.kept.push(keep(from, own, bytes));
                    for other in self.others() {
                        moves.sent.push(Sent { to_rank: other, from, to: own, bytes });
                        moves.received.push(Received { from_rank: other, to: to.offset(other * bytes), bytes });
                    }
                }
                Transfer::AllToAll => {
                    let part = bytes / ranks;
                    moves.kept.push(keep(from.offset(place * part), to.offset(place * part), part));
                    for other in self.others() {
                        let (from, to_other) = (from.offset(other * part), to.offset(place * part));
                        moves.sent.push(Sent { to_rank: other, from, to: to_other, bytes: part });
                        moves.received.push(Received { from_rank: other, to: to.offset(other * part), bytes: part });
                    }
                }
                Transfer::Broadcast(root) if root == place => {
                    moves.kept.push(keep(from, to, bytes));
                    moves.sent.extend(self.others().map(|other| Sent { to_rank: other, from, to, bytes }));
                }
                Transfer::Broadcast(root) => moves.received.push(Received { from_rank: root, to, bytes }),
                Transfer::SendRecv(shift) if shift % ranks == 0 => moves.kept.push(keep(from, to, bytes)),
                Transfer::SendRecv(shift) => {
                    let [next, last] = [(place + shift) % ranks, (place + ranks - shift % ranks) % ranks];
                    moves.sent.push(Sent { to_rank: next, from, to, bytes });
                    moves.received.push(Received { from_rank: last, to, bytes });
                }
                Transfer::AllReduce(_) | Transfer::ReduceScatter(_) => {}
            }
        }
        moves.kept.retain(|kept| kept.from != kept.to);
        moves
    }

    /// The tensors of a reduction with their parts, and where the workspace of each begins.
    fn divided<'a>(self, of: &'a Tensors<'_>) -> impl Iterator<Item = (Transferred, Parts, DeviceAddress)> + 'a {
        let mut slots = of.workspace;
        of.tensors.iter().map(move |tensor| {
            let parts = Parts::of(of.transfer, tensor.count, of.dtypes, self.ranks);
            let own = slots;
            slots = slots.offset(parts.slot_bytes() * (self.ranks - 1));
            (*tensor, parts, own)
        })
    }

    /// The first half of a reduction: each rank gets its part of the others' tensors, in slots of its workspace.
    pub(super) fn scattered(self, of: &Tensors<'_>) -> Moves {
        let mut moves = Moves::default();
        for (tensor, parts, slots) in self.divided(of) {
            let own = parts.given(self.place).len();
            for other in self.others() {
                let part = parts.given(other);
                let to = slots.offset(slot(self.place, other) * parts.slot_bytes());
                let from = tensor.from.offset(part.start);
                moves.sent.push(Sent { to_rank: other, from, to, bytes: part.len() });
                let to = slots.offset(slot(other, self.place) * parts.slot_bytes());
                moves.received.push(Received { from_rank: other, to, bytes: own });
            }
        }
        moves.without_empty()
    }

    /// What a rank combines of a reduction.
    pub(super) fn combined(self, of: &Tensors<'_>) -> Vec<Combined> {
        let all = self.divided(of).map(|(tensor, parts, slots)| {
            let own = parts.given(self.place);
            let to = match of.transfer {
                Transfer::ReduceScatter(_) => tensor.to,
                _ => tensor.to.offset(parts.got(self.place).start),
            };
            let from = tensor.from.offset(own.start);
            Combined { own: from, others: slots, slot_bytes: parts.slot_bytes(), to, bytes: own.len() }
        });
        all.filter(|combined| combined.bytes > 0).collect()
    }

    /// The second half of a reduction whose result all ranks have: each of them gives its part to the others, to where
    /// it belongs; or, if that is not at the same place in all ranks' memory, to the slots, from where `kept` moves it
    /// on.
    pub(super) fn gathered(self, of: &Tensors<'_>, by_slots: bool) -> Moves {
        let mut moves = Moves::default();
        for (tensor, parts, slots) in self.divided(of) {
            let own = parts.got(self.place);
            for other in self.others() {
                let part = parts.got(other);
                let (from, there) = (tensor.to.offset(own.start), tensor.to.offset(part.start));
                let slot_at = |other, place| slots.offset(slot(other, place) * parts.slot_bytes());
                let [to, landed] = match by_slots {
                    true => [slot_at(self.place, other), slot_at(other, self.place)],
                    false => [from, there],
                };
                moves.sent.push(Sent { to_rank: other, from, to, bytes: own.len() });
                moves.received.push(Received { from_rank: other, to: landed, bytes: part.len() });
                if by_slots {
                    moves.kept.push(CopyRange { from: landed, to: there, bytes: part.len() });
                }
            }
        }
        moves.without_empty()
    }
}

impl Moves {
    fn without_empty(mut self) -> Moves {
        self.sent.retain(|sent| sent.bytes > 0);
        self.received.retain(|received| received.bytes > 0);
        self.kept.retain(|kept| kept.bytes > 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_kernels::DType;

    use super::super::transfer::Reduction;
    use super::*;

    /// Memory of some ranks, at the same addresses on each.
    struct Memories(Vec<Vec<u8>>);

    impl Memories {
        /// What all ranks move, as copies would.
        fn run(&mut self, all: &[Moves]) {
            let before = self.0.clone();
            let range = |at: DeviceAddress, bytes: usize| at.0 as usize..at.0 as usize + bytes;
            for (place, moves) in all.iter().enumerate() {
                for sent in &moves.sent {
                    let bytes = before[place][range(sent.from, sent.bytes)].to_vec();
                    self.0[sent.to_rank][range(sent.to, sent.bytes)].copy_from_slice(&bytes);
                }
                // What others send is what this rank waits for, in the same order.
                for (other, its) in all.iter().enumerate() {
                    let sent = its.sent.iter().filter(|sent| sent.to_rank == place);
                    let got = moves.received.iter().filter(|received| received.from_rank == other);
                    let sent: Vec<_> = sent.map(|sent| (sent.to, sent.bytes)).collect();
                    assert_eq!(sent, got.map(|received| (received.to, received.bytes)).collect::<Vec<_>>());
                }
            }
            for (place, moves) in all.iter().enumerate() {
                for kept in &moves.kept {
                    let bytes = self.0[place][range(kept.from, kept.bytes)].to_vec();
                    self.0[place][range(kept.to, kept.bytes)].copy_from_slice(&bytes);
                }
            }
        }
    }

    const FROM: usize = 0;
    const TO: usize = 1 << 12;
    const WORKSPACE: u64 = 1 << 14;

    fn members(ranks: usize) -> Vec<Member> {
        (0..ranks).map(|place| Member { place, ranks }).collect()
    }

    fn filled(ranks: usize) -> Memories {
        let byte = |place: usize, at: usize| if at < TO { (place * 31 + at * 7) as u8 } else { 0xEE };
        Memories((0..ranks).map(|place| (0..1 << 16).map(|at| byte(place, at)).collect()).collect())
    }

    fn tensors(counts: &[usize], at_to: &dyn Fn(usize) -> usize) -> Vec<Transferred> {
        let mut from = FROM;
        let mut to = TO;
        let each = counts.iter().map(|count| {
            let one = Transferred { count: *count, from: DeviceAddress(from as u64), to: DeviceAddress(to as u64) };
            (from, to) = (from + count, to + at_to(*count));
            one
        });
        each.collect()
    }

    #[test]
    fn each_rank_gets_what_the_transfer_says() {
        for ranks in [2, 3, 4] {
            for transfer in [
                Transfer::AllGather,
                Transfer::AllToAll,
                Transfer::Broadcast(1),
                Transfer::SendRecv(1),
                Transfer::SendRecv(0),
            ] {
                let counts = [12, 0, 24];
                let grows = if transfer == Transfer::AllGather { ranks } else { 1 };
                let tensors = tensors(&counts, &|count| count * grows);
                let of = Tensors {
                    transfer,
                    dtypes: [DType::U8; 2],
                    tensors: &tensors,
                    workspace: DeviceAddress(WORKSPACE),
                };
                let mut memories = filled(ranks);
                let before = memories.0.clone();
                memories.run(&members(ranks).into_iter().map(|member| member.moved(&of)).collect::<Vec<_>>());
                for place in 0..ranks {
                    for tensor in &tensors {
                        let given = |rank: usize| before[rank][tensor.from.0 as usize..][..tensor.count].to_vec();
                        let part = tensor.count / ranks;
                        let expected: Vec<u8> = match transfer {
                            Transfer::AllGather => (0..ranks).flat_map(given).collect(),
                            Transfer::AllToAll => {
                                (0..ranks).flat_map(|rank| given(rank)[place * part..][..part].to_vec()).collect()
                            }
                            Transfer::Broadcast(root) => given(root),
                            Transfer::SendRecv(shift) => given((place + ranks - shift) % ranks),
                            _ => unreachable!("not in the list"),
                        };
                        assert_eq!(&memories.0[place][tensor.to.0 as usize..][..expected.len()], &expected[..]);
                    }
                }
            }
        }
    }

    /// Sums of bytes by parts, as the kernel makes them.
    #[test]
    fn parts_are_combined_and_given_to_all() {
        for ranks in [2, 3, 4] {
            for (transfer, counts) in [
                (Transfer::AllReduce(Reduction::Sum), [1, 0, 77]),
                (Transfer::ReduceScatter(Reduction::Sum), [12, 0, 24]),
            ] {
                for by_slots in [false, true] {
                    let tensors = tensors(&counts, &|count| count);
                    let workspace = DeviceAddress(WORKSPACE);
                    let of = Tensors { transfer, dtypes: [DType::U8; 2], tensors: &tensors, workspace };
                    let mut memories = filled(ranks);
                    let before = memories.0.clone();
                    memories.run(&members(ranks).into_iter().map(|member| member.scattered(&of)).collect::<Vec<_>>());
                    let mut most = 0;
                    for member in members(ranks) {
                        let memory = &mut memories.0[member.place];
                        for part in member.combined(&of) {
                            for at in 0..part.bytes {
                                let other = |rank: usize| {
                                    let slot = slot(rank, member.place) * part.slot_bytes;
                                    memory[part.others.0 as usize + slot + at]
                                };
                                let own = memory[part.own.0 as usize + at];
                                let others = (0..ranks).filter(|rank| *rank != member.place).map(other);
                                let sum = others.fold(own, u8::wrapping_add);
                                memory[part.to.0 as usize + at] = sum;
                                most = most.max(part.others.0 as usize + (ranks - 1) * part.slot_bytes);
                            }
                        }
                    }
                    assert!(most as u64 <= WORKSPACE + transfer.workspace([DType::U8; 2], &counts, ranks));
                    let scattered = matches!(transfer, Transfer::ReduceScatter(_));
                    if !scattered {
                        let gathered = |member: Member| member.gathered(&of, by_slots);
                        memories.run(&members(ranks).into_iter().map(gathered).collect::<Vec<_>>());
                    }
                    for place in 0..ranks {
                        for tensor in &tensors {
                            let sum = |at: usize| {
                                before.iter().fold(0u8, |sum, of| sum.wrapping_add(of[tensor.from.0 as usize + at]))
                            };
                            let (first, count) = if scattered {
                                (place * (tensor.count / ranks), tensor.count / ranks)
                            } else {
                                (0, tensor.count)
                            };
                            let expected: Vec<u8> = (first..first + count).map(sum).collect();
                            assert_eq!(&memories.0[place][tensor.to.0 as usize..][..count], &expected[..]);
                        }
                    }
                }
            }
        }
    }
}
