//! Roundings made anew: how the results of references move where others round elsewhere, or add in another order.

use fulgurite_kernels::DType;

use super::terms::{of_floats, terms_of_each};
use crate::argument::{Arg, map_arguments};
use crate::problem::Check;
use crate::reference::ReferenceTensor;
use crate::rules::ReferenceRule;
use crate::samples::{Random, round_to};

/// How many times a program is run with other roundings.
const RUNS: usize = 3;
/// How many times the largest of these moves is free. Each run draws one rounding for each operation; a sum of many
/// terms makes one for each of them.
pub(super) const MOVES: f64 = 16.0;
/// Of how many terms that are alike each adds a rounding to a sum. With [`MOVES`], a sum of n terms is allowed n / 8
/// roundings more, one of products n / 4. (Like terms added one after another are off by n / 4 at most.)
const ALIKE: f64 = 128.0;
/// By which part of themselves terms that are alike are moved: sums and products answer in proportion to so little.
const PROBE: f64 = 1.0 / (1u64 << 20) as f64;

/// The treatment of roundings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Noise {
    /// None are made.
    Exact,
    /// Each result is rounded to its element type.
    Rounded,
    /// Each result of arithmetic is moved by about so many roundings, up or down at random, and so are the terms of
    /// sums; `down` changes up and down.
    Moved { seed: u64, roundings: f64, down: bool },
    /// As `Moved`, but all terms of a sum the same way: terms that are alike are rounded alike, and a sum of many is
    /// off by a part of a rounding for each of them.
    Alike,
}

impl Noise {
    /// How far roundings may move an element.
    pub(super) const NEAR: [Noise; RUNS + 1] = [Noise::near(0), Noise::near(1), Noise::near(2), Noise::Alike];
    /// Whether an element changes by as much as it is allowed: of two numbers that are nearly equal the larger one is
    /// another in one of two runs that are moved the opposite ways, but for those that happen to be moved alike.
    pub(super) const FAR: [Noise; 6] = [
        Noise::far(0, false),
        Noise::far(0, true),
        Noise::far(1, false),
        Noise::far(1, true),
        Noise::far(2, false),
        Noise::far(2, true),
    ];

    const fn near(seed: u64) -> Noise {
        Noise::Moved { seed, roundings: 1.0, down: false }
    }

    const fn far(seed: u64, down: bool) -> Noise {
        Noise::Moved { seed: seed + 64, roundings: MOVES, down }
    }

    pub(super) fn moves(self) -> bool {
        matches!(self, Noise::Moved { .. } | Noise::Alike)
    }

    /// Whether it moves elements as far as they may be off.
    pub(super) fn is_far(self) -> bool {
        matches!(self, Noise::Moved { roundings, .. } if roundings >= MOVES)
    }

    /// A number moved by this noise, where `unit` is a rounding of numbers about one. It moves by half to three halves
    /// of a rounding: where results of equal moves cancel, nothing would be left to see.
    pub(super) fn moved(self, value: f64, unit: f64, random: &mut Random) -> f64 {
        let (roundings, down) = match self {
            Noise::Moved { roundings, down, .. } => (roundings, down),
            _ => (1.0, false),
        };
        let size = roundings * unit * (0.5 + random.unit());
        if random.next().is_multiple_of(2) == down { value * (1.0 - size) } else { value * (1.0 + size) }
    }
}

/// Runs an operator with all terms of its sums moved the same way, each element by as much as it has terms. They are
/// moved by [`PROBE`], and the results by the part of it that is asked for: by less, in f64 the roundings of the
/// reference itself, which may go either way, would hide what is looked for.
pub(super) fn run_alike(
    rule: ReferenceRule,
    plain: &[Arg<ReferenceTensor>],
    run: impl Fn(&[Arg<ReferenceTensor>]) -> Check<Vec<ReferenceTensor>>,
) -> Check<Vec<ReferenceTensor>> {
    let counts = terms_of_each(rule, plain);
    let unit = plain.iter().flat_map(Arg::tensors).filter(|operand| operand.dtype().is_floating());
    let unit = unit.map(|operand| operand.dtype().accumulator().epsilon()).fold(0.0, f64::max);
    let probes = run(&moved_operands(plain, |value, _| value * (1.0 + PROBE)))?;
    let own = |(at, (probe, still)): (usize, (ReferenceTensor, ReferenceTensor))| {
        if !probe.dtype().is_floating() {
            return probe;
        }
        let terms = |j: usize| counts.get(at).and_then(|counts| counts.get(j)).copied().unwrap_or(1.0);
        let elements = probe.floats().iter().zip(still.floats()).enumerate();
        let values = elements.map(|(j, (probe, still))| match probe - still {
            step if step.is_finite() => still + step * (unit / PROBE) * (1.0 + terms(j) / ALIKE),
            _ => *probe,
        });
        of_floats(probe.dtype(), probe.shape(), values.collect())
    };
    Ok(probes.into_iter().zip(run(plain)?).enumerate().map(own).collect())
}

/// Operands with each number moved, given the rounding of the type in which sums of it are added up.
pub(super) fn moved_operands(
    plain: &[Arg<ReferenceTensor>],
    mut to: impl FnMut(f64, f64) -> f64,
) -> Vec<Arg<ReferenceTensor>> {
    map_arguments(plain, |value| {
        if !value.dtype().is_floating() {
            return value.clone();
        }
        let unit = value.dtype().accumulator().epsilon();
        of_floats(value.dtype(), value.shape(), value.floats().iter().map(|v| to(*v, unit)).collect())
    })
}

/// A moved number: the nearest one of its type only where that is farther than a rounding, as where it underflows.
/// (Rounded, two numbers that are moved by about as much would be moved by just as much.)
pub(super) fn nearly(value: f64, dtype: DType) -> f64 {
    let nearest = round_to(value, dtype);
    if (nearest - value).abs() <= dtype.epsilon() * value.abs() { value } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the runs that tell how far an element moves, one at least moves two numbers differently: what is left where
    /// they cancel is seen to move.
    #[test]
    fn two_numbers_are_not_moved_alike_by_all_runs() {
        let mut random = Random::new(5);
        for _ in 0..500 {
            let apart = |noise: &Noise| {
                let mut moved = || nearly(noise.moved(148.25, DType::F32.epsilon(), &mut random), DType::F32);
                (moved() - moved()).abs() / (148.25 * DType::F32.epsilon())
            };
            let most = Noise::NEAR[..RUNS].iter().map(apart).fold(0.0, f64::max);
            assert!(most > 1.0 / MOVES, "{most}");
        }
    }

    #[test]
    fn a_run_and_the_opposite_one_move_each_number_as_far_up_as_down() {
        for pair in Noise::FAR.chunks(2) {
            let steps = |noise: &Noise| -> Vec<f64> {
                let mut random = Random::new(9);
                (0..100).map(|_| noise.moved(1.0, DType::F32.epsilon(), &mut random) - 1.0).collect()
            };
            let (up, down) = (steps(&pair[0]), steps(&pair[1]));
            assert!(up.iter().zip(&down).all(|(up, down)| (up + down).abs() < f64::EPSILON && up.abs() > 1e-7));
            assert!(up.iter().any(|step| *step > 0.0) && up.iter().any(|step| *step < 0.0));
        }
    }

    #[test]
    fn what_underflows_is_rounded() {
        assert_eq!(nearly(1e-9, DType::F16), 0.0);
        assert_eq!(nearly(1e6, DType::F16), f64::INFINITY);
        assert_eq!(nearly(1.0001, DType::F16), 1.0001);
    }
}
