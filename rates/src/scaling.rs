//! A model of the time that a step takes on several ranks: what each line of its last trace computes and moves, on
//! which stream, and what it waits for. Nothing is run, so that it is there for any number of ranks; what it is beside
//! measured steps, `benches/RESULTS.md` says.
//!
//! A line that computes takes the time of its bytes or its operations, whichever is longer, times a factor that makes
//! the lines of one rank as long as its measured step. A collective takes the time of its bytes on the slowest link
//! that they pass, of what adds them, and of the rounds in which ranks tell each other that memory is ready and
//! written. What moves while something computes slows that down, by a part of its own time.

use std::cmp::Ordering;
use std::collections::HashMap;

use fulgurite_runtime::cost::flops;
use fulgurite_runtime::executor::{JOIN, VIEW};
use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::stream_kind::StreamKind;
use fulgurite_runtime::trace::verify::axis_of;
use fulgurite_runtime::trace::{Block, BoundSymbol, Callee, ValueId};
use fulgurite_runtime::traffic::Traffic;

/// What connects devices, and what their exchanges take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Links {
    /// Devices of a host.
    pub per_host: usize,
    /// Bytes a second that each device of a host sends to others of it, while they send to it.
    pub within: f64,
    /// Bytes a second that each device sends to other hosts, while they send to it.
    pub between: f64,
    /// Seconds of a round in which the devices of a host tell each other.
    pub round: f64,
    /// Seconds that a message to another host takes.
    pub message: f64,
    /// By which part of its own time a transfer slows down what computes meanwhile.
    pub disturbs: f64,
    /// Seconds that a step of several ranks takes beside its transfers.
    pub beside: f64,
    /// By which part the slowest of several devices is slower than the one that was measured; the others wait for it.
    pub uneven: f64,
}

impl Links {
    /// H200 with NVLink, and a port of 400 Gb/s for each device between hosts of eight. All but the two numbers between
    /// hosts, which are of data sheets, were measured on two (`benches/RESULTS.md`, 2026-11-29).
    pub const H200: Links = Links {
        per_host: 8,
        within: 383e9,
        between: 50e9,
        round: 23e-6,
        message: 10e-6,
        disturbs: 0.6,
        beside: 150e-6,
        uneven: 0.013,
    };

    /// Seconds in which each of so many ranks sends `sent` bytes to others, evenly, and is sent as many, in `rounds`.
    fn seconds(&self, ranks: usize, sent: f64, rounds: f64) -> f64 {
        let hosts = ranks.div_ceil(self.per_host.max(1));
        if hosts == 1 {
            return sent / self.within + rounds * self.round;
        }
        // There are as many rings as devices of a host, each of which leaves the host by another port.
        let slowest = self.within.min(self.between * self.per_host as f64);
        let messages = 2.0 * (hosts as f64).log2().ceil();
        sent / slowest + rounds * (self.round + messages * self.message)
    }
}

/// What a device does in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Bytes that it reads and writes.
    pub bytes: f64,
    /// Operations of its products.
    pub flops: f64,
    /// Seconds that a launch takes at least.
    pub launch: f64,
    /// How many times as long lines take as bytes, operations and launches say.
    pub factor: f64,
}

impl Speed {
    /// The same with the factor by which the lines of one rank take so many seconds.
    pub fn measured(self, one: &Block, seconds: f64) -> Speed {
        let plain = Speed { factor: 1.0, ..self };
        let traffic = Traffic::of(one);
        let least: f64 = one.symbols.iter().map(|line| plain.seconds(one, &traffic, line)).sum();
        Speed { factor: if least > 0.0 { seconds / least } else { 1.0 }, ..self }
    }

    fn seconds(&self, block: &Block, traffic: &Traffic<'_>, line: &BoundSymbol) -> f64 {
        let runs = line.callee != Callee::Delete && line.executor.is_some_and(|by| by != VIEW && by != JOIN);
        if !runs || axis_of(line).is_some() {
            return 0.0;
        }
        let (bytes, operations) = (traffic.bytes(line) as f64 / self.bytes, flops(block, line) as f64 / self.flops);
        self.factor * bytes.max(operations).max(self.launch)
    }
}

/// What the model says of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Seconds of the step.
    pub step: f64,
    /// Seconds in which lines compute, without what slows them down.
    pub computing: f64,
    /// Seconds in which collectives are under way.
    pub moving: f64,
    /// Bytes that each rank sends.
    pub sent: f64,
    /// Collectives of the step.
    pub collectives: usize,
}

/// The time of a step by the block of its last trace.
pub fn predict(block: &Block, speed: &Speed, links: &Links) -> Prediction {
    let traffic = Traffic::of(block);
    let mut ends: HashMap<ValueId, f64> = HashMap::default();
    let mut free: HashMap<StreamKind, f64> = HashMap::default();
    let mut found = Prediction { step: 0.0, computing: 0.0, moving: 0.0, sent: 0.0, collectives: 0 };
    let alone = !block.symbols.iter().any(|line| moved(block, line).is_some());
    let (slower, beside) = if alone { (1.0, 0.0) } else { (1.0 + links.uneven, links.beside) };
    for line in &block.symbols {
        let seconds = match moved(block, line) {
            Some(moved) => {
                let seconds = moved.seconds(speed, links);
                found.moving += seconds;
                found.sent += moved.sent();
                found.collectives += 1;
                seconds
            }
            None => {
                let seconds = slower * speed.seconds(block, &traffic, line);
                found.computing += seconds;
                seconds
            }
        };
        let own = free.entry(line.schedule.stream).or_default();
        let begin = line.schedule.after.iter().filter_map(|id| ends.get(id)).fold(*own, |begin, end| begin.max(*end));
        *own = begin + seconds;
        line.results.iter().for_each(|id| _ = ends.insert(*id, begin + seconds));
        found.step = found.step.max(begin + seconds);
    }
    let hidden = (found.moving - (found.step - found.computing)).max(0.0);
    found.step += links.disturbs * hidden + beside;
    found
}

/// What a collective moves, among so many ranks.
struct Moved {
    ranks: usize,
    /// Bytes that a rank gives, and that it gets.
    bytes: [f64; 2],
    kind: Kind,
}

/// The kind of a collective, by how many elements a rank gets of those that it gives.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// As many: one tensor on all ranks. (Others that give as many move less.)
    Reduced,
    /// Fewer: its part of their sum.
    Scattered,
    /// More: those of all ranks.
    Gathered,
}

/// The collective of a line; none along an axis of one rank.
fn moved(block: &Block, line: &BoundSymbol) -> Option<Moved> {
    let axis: Axis = axis_of(line)?.parse().ok()?;
    if axis.extent() == 1 || !line.operator().is_some_and(|def| def.effects.collective) {
        return None;
    }
    let metas = |ids: &mut dyn Iterator<Item = ValueId>| {
        ids.map(|id| block.meta(id))
            .fold((0, 0.0), |(elements, bytes), meta| (elements + meta.len(), bytes + meta.bytes() as f64))
    };
    let (given, got) = (metas(&mut line.operands()), metas(&mut line.results.iter().copied()));
    let kind = match got.0.cmp(&given.0) {
        Ordering::Equal => Kind::Reduced,
        Ordering::Less => Kind::Scattered,
        Ordering::Greater => Kind::Gathered,
    };
    Some(Moved { ranks: axis.extent(), bytes: [given.1, got.1], kind })
}

impl Moved {
    /// The bytes that a rank sends: the parts of others, and to all of them its own.
    fn sent(&self) -> f64 {
        let [gives, gets] = self.bytes;
        let of_others = (self.ranks - 1) as f64 / self.ranks as f64;
        of_others
            * match self.kind {
                Kind::Reduced => gives + gets,
                Kind::Scattered => gives,
                Kind::Gathered => gets,
            }
    }

    fn seconds(&self, speed: &Speed, links: &Links) -> f64 {
        // The parts of all ranks are read, and their sum is written.
        let ranks = self.ranks as f64;
        let added = if self.kind == Kind::Gathered { 0.0 } else { self.bytes[0] * (ranks + 1.0) / ranks / speed.bytes };
        let rounds = if self.kind == Kind::Reduced { 1.5 } else { 1.0 };
        links.seconds(self.ranks, self.sent(), rounds) + added
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_runtime::trace::parse;

    const SPEED: Speed = Speed { bytes: 1e12, flops: 1e15, launch: 0.0, factor: 1.0 };
    const LINKS: Links = Links {
        per_host: 2,
        within: 1e11,
        between: 1e10,
        round: 1e-3,
        message: 1e-2,
        disturbs: 0.5,
        beside: 0.0,
        uneven: 0.0,
    };

    /// A sum over the ranks of 4,000 bytes, which the last line waits for and the line before it does not.
    fn block(ranks: usize) -> Block {
        let text = format!(
            "# fulgurite trace 2\ntrace f for cpu x data={ranks} (x: f32[1000]) {{\n\
             a: f32[1000] = prims::exp(x) by cpu\n\
             s: f32[1000] = prims::all_reduce([a], axis=\"data={ranks}\", op=\"sum\") by cpu\n\
             b: f32[1000] = prims::exp(a) by cpu\nc: f32[1000] = prims::add(s, b) by cpu\nreturn result = c\n}}\n"
        );
        let mut block = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).block;
        let [first, sum] = [0, 1].map(|line: usize| block.symbols[line].results[0]);
        block.symbols[1].schedule.stream = StreamKind::Communication;
        block.symbols[1].schedule.after.push(first);
        block.symbols[3].schedule.after.push(sum);
        block
    }

    #[test]
    fn what_moves_is_hidden_behind_what_computes() {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b;
        // Three lines, of 8,000, 8,000 and 12,000 bytes.
        let slow = Speed { bytes: 8e5, ..SPEED };
        let found = predict(&block(2), &slow, &LINKS);
        assert!(close(found.computing, 0.035) && found.collectives == 1, "{found:?}");
        assert!(close(found.sent, 4000.0), "half of it to the other rank, and half of the sum: {found:?}");
        let moving = 4000.0 / 1e11 + 1.5e-3 + 4000.0 * 1.5 / 8e5;
        assert!(close(found.moving, moving), "{found:?}");
        // It takes less than the line beside it, which it slows down.
        assert!(close(found.step, 0.035 + 0.5 * moving), "{found:?}");
        // Faster devices wait for it.
        let found = predict(&block(2), &SPEED, &LINKS);
        assert!(found.step > found.computing + 1e-3, "{found:?}");
        // Two hosts tell each other, too.
        let two = predict(&block(4), &SPEED, &LINKS);
        assert!(close(two.moving - two.sent / 2e10, 1.5 * (1e-3 + 2e-2) + 4000.0 * 1.25 / 1e12), "{two:?}");
        assert_eq!(predict(&block(1), &SPEED, &LINKS).collectives, 0);
    }

    #[test]
    fn one_rank_takes_what_was_measured() {
        let speed = SPEED.measured(&block(1), 0.25);
        let found = predict(&block(1), &speed, &LINKS);
        assert!((found.step - 0.25).abs() < 1e-9 && found.step == found.computing, "{found:?}");
    }
}
