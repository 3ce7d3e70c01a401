//! Each call that draws from one generator gets a generator of its own: a random operator is a function of its
//! generator, so that each call of a program is given one of its own. The first call with a generator gets it as it is;
//! the n-th after it gets the sum of it and a number that follows from n. Seed and offset both move, so that no other
//! offset of the same seed gives the same draw.
//!
//! Inside an operator's rule the number follows from the operator's name as well: a composite that draws twice, called
//! twice with one generator, draws four times. Each rule counts for itself, so that the decomposition of a call and its
//! gradient rule, which is traced into the program ([`within_rule`]), draw the same numbers, and neither those of a
//! later call.

use rustc_hash::FxHashMap;

use super::decomposed::append_body;
use super::tensor::Tensor;
use super::{TRACER, add_call, with_defaults, with_top};
use crate::argument::{Arg, Attribute, Scalar};
use crate::error::Place;
use crate::operator::{OperatorDef, Role};
use crate::registry::role;
use crate::trace::ValueId;

/// Numbers above zero that are exact wherever integers are read as f64.
const BITS: u32 = 53;

/// What is added to a generator for its draw number `draw` in a rule of `operator` (empty in a program).
fn distance(operator: &str, draw: u64) -> i64 {
    // FNV-1a, then the finalizer of splitmix64: close numbers become far ones.
    let bytes = operator.bytes().chain(draw.to_le_bytes());
    let mut hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash >> (64 - BITS)) as i64 | 1
}

/// Gives a call of a random operator a generator that no earlier call had.
pub(super) fn tell_apart(def: &'static OperatorDef, arguments: &mut [Arg<Tensor>], place: Place) {
    let Some(argument) = def.effects.generator.filter(|_| def.effects.random).and_then(|at| arguments.get_mut(at))
    else {
        return;
    };
    let [generator] = argument.tensors_mut() else { return };
    // Counted where the generator was made: a function inside, of which gradients are taken, uses it from outside.
    let draw = TRACER.with_borrow_mut(|tracer| {
        let owner = tracer.stack.iter_mut().find(|builder| builder.id == generator.builder)?;
        let drawn = owner.draws.entry(generator.value).or_default();
        *drawn += 1;
        Some(*drawn - 1)
    });
    let Some(draw) = draw.filter(|draw| *draw > 0 && !generator.is_poisoned()) else { return };
    let within = with_top(|builder| builder.rule_of).unwrap_or_default();
    let number = Arg::Attribute(Attribute::Scalar(Scalar::Int(distance(within, draw))));
    // Without an operator for sums the call is made as it is; nothing with arithmetic can be traced there.
    let Ok(add) = role(Role::Add) else { return };
    let moved = add_call(add, with_defaults(add, vec![Arg::Tensor(*generator), number]), place, append_body);
    if let [moved] = moved[..] {
        *generator = moved;
    }
}

/// How often the rule of a call has been given each generator so far: its pullback goes on from there.
#[derive(Debug, Default)]
pub struct Draws(FxHashMap<ValueId, u64>);

/// Runs a rule of the gradient of `operator` whose lines are in the program being traced; `draws` is what the rule has
/// drawn, before and after, `constants` are the operands whose gradients nobody reads.
pub fn within_rule<R>(
    operator: &'static str,
    draws: &mut Draws,
    mut constants: Vec<Tensor>,
    rule: impl FnOnce() -> R,
) -> R {
    let mut around = operator;
    let mut swap = |draws: &mut Draws| {
        with_top(|builder| {
            std::mem::swap(&mut builder.rule_of, &mut around);
            std::mem::swap(&mut builder.draws, &mut draws.0);
            std::mem::swap(&mut builder.constants, &mut constants);
        });
    };
    swap(draws);
    let result = rule();
    swap(draws);
    result
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances_differ() {
        let mut seen: Vec<i64> = ["", "dropout", "prims::uniform"]
            .iter()
            .flat_map(|name| (1..2000).map(|draw| distance(name, draw)))
            .collect();
        assert!(seen.iter().all(|distance| *distance > 0 && *distance < 1 << 53));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
