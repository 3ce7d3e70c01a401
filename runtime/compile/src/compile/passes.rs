//! The table of passes: what a compilation does to a trace, in this order.

use std::ops::Range;

use super::options::{Options, Place};
use crate::choices::{Ranking, Told};
use crate::error::Result;
use crate::executor::{ExecutorDef, RewriteDef};
use crate::fuel::Fuel;
use crate::trace::{StageName, Trace};
use crate::transforms::autodiff::{self, GradientRule};
use crate::transforms::recompute::Least;
use crate::transforms::{
    autocast, batch, bucket, channels, claim, complex_to_real, cse, dce, donate, fuse, layout, nest, pad, plan,
    recompute, rewrite, schedule,
};

/// The parts of a compilation. A program that is split into forward and backward runs the first and the third on the
/// joint program, with `vjp` in place of the second, and the last on each half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The program as it was written.
    Written,
    /// Its derivatives.
    Differentiated,
    /// The differentiated program, forward and backward together.
    Simplified,
    /// The executor of each line, and where every value is kept.
    Placed,
}

/// A row of the table.
pub(super) struct Row {
    pub(super) part: Part,
    pub(super) step: Step,
    /// Whether it is done to this trace. A pass may find nothing to do, too.
    pub(super) applies: fn(&Given<'_>, &Trace) -> bool,
}

/// What a row does.
pub(super) enum Step {
    /// Makes this stage by this function; none if nothing changes and the stage is left out.
    Pass(StageName, PassFn),
    /// Runs the user's transforms of this place.
    Own(Place),
}

pub(super) type PassFn = fn(&Given<'_>, &Trace, &mut Fuel) -> Result<Option<Made>>;

/// What a compilation was given, and whom it asks about the calls of the trace at hand.
pub(super) struct Given<'a> {
    pub(super) options: &'a Options,
    pub(super) executors: &'a [&'static ExecutorDef],
    pub(super) rewrites: &'a [&'static RewriteDef],
    pub(super) ranking: Ranking<'a>,
    /// Whether forward and backward become two programs.
    pub(super) split: bool,
}

/// What a pass made.
pub(super) struct Made {
    pub(super) trace: Trace,
    /// The sources of the gradient rules that it used.
    pub(super) gradients: Vec<GradientRule>,
    /// What was recorded of the calls that it asked executors about.
    pub(super) choices: Vec<Told>,
}

impl From<Trace> for Made {
    fn from(trace: Trace) -> Made {
        Made { trace, gradients: Vec::new(), choices: Vec::new() }
    }
}

const fn pass(part: Part, stage: StageName, applies: fn(&Given<'_>, &Trace) -> bool, run: PassFn) -> Row {
    Row { part, step: Step::Pass(stage, run), applies }
}

const fn own(part: Part, place: Place, applies: fn(&Given<'_>, &Trace) -> bool) -> Row {
    Row { part, step: Step::Own(place), applies }
}

/// Every compilation, from the acquired trace to the planned one.
#[rustfmt::skip]
pub(super) const TABLE: [Row; 23] = [
    pass(Part::Written,        StageName::ComplexToReal,  is_complex,    without_complex),
    pass(Part::Written,        StageName::Rewrite,        always,        early_rewrites),
    own (Part::Written,        Place::Start,              always),
    pass(Part::Written,        StageName::Autocast,       is_autocast,   to_low_precision),
    own (Part::Written,        Place::BeforeAutodiff,     always),
    pass(Part::Differentiated, StageName::Autodiff,       always,        gradients),
    own (Part::Simplified,     Place::AfterAutodiff,      always),
    pass(Part::Simplified,     StageName::Dce,            always,        |_, trace, _| made(dce::dce(trace))),
    pass(Part::Simplified,     StageName::Cse,            always,        |_, trace, _| made(cse::cse(trace))),
    pass(Part::Simplified,     StageName::Batch,          is_batched,    batched),
    pass(Part::Simplified,     StageName::LateRewrite,    always,        late_rewrites),
    pass(Part::Simplified,     StageName::Recompute,      is_recomputed, recomputed),
    own (Part::Placed,         Place::BeforeClaim,        is_unclaimed),
    pass(Part::Placed,         StageName::Claim,          is_unplanned,  claimed),
    pass(Part::Placed,         StageName::Bucket,         is_bucketed,   bucketed),
    pass(Part::Placed,         StageName::Pad,            is_padded,     padded),
    pass(Part::Placed,         StageName::Channels,       is_turned,     turned),
    pass(Part::Placed,         StageName::Fuse,           is_fused,      fused),
    pass(Part::Placed,         StageName::Layout,         is_unplanned,  laid_out),
    pass(Part::Placed,         StageName::Schedule,       is_unplanned,  scheduled),
    pass(Part::Placed,         StageName::Donate,         is_unplanned,  |_, trace, _| made(donate::donate(trace))),
    pass(Part::Placed,         StageName::PlanMemory,     is_unplanned,  |_, trace, _| made(plan::plan(trace))),
    pass(Part::Placed,         StageName::DeleteLastUsed, is_undeleted,  deleted),
];

/// The rows of a part, which follow each other.
pub(super) fn rows(part: Part) -> Range<usize> {
    let first = TABLE.iter().position(|row| row.part == part).unwrap_or(TABLE.len());
    first..first + TABLE.iter().filter(|row| row.part == part).count()
}

/// How many of the rows are passes.
const COUNT: usize = {
    let (mut row, mut count) = (0, 0);
    while row < TABLE.len() {
        if let Step::Pass(..) = TABLE[row].step {
            count += 1;
        }
        row += 1;
    }
    count
};

/// The names of the stages of a compilation, in order. `complex_to_real` exists only if there are complex numbers,
/// `autocast` exists only if it is enabled, `batch` only if calls are batched, `recompute` only if a value is
/// recomputed, `bucket` only if collectives become one, `pad` only if a kernel gets larger operands, `channels` only if
/// a kernel has channels innermost, `fuse` only if fusion is enabled, and `schedule` only if a line is not on the
/// compute stream.
pub const STAGES: [&str; COUNT] = {
    let (mut names, mut row, mut count) = ([""; COUNT], 0, 0);
    while row < TABLE.len() {
        if let Step::Pass(stage, _) = TABLE[row].step {
            names[count] = stage.name();
            count += 1;
        }
        row += 1;
    }
    names
};

fn made(trace: Trace) -> Result<Option<Made>> {
    Ok(Some(trace.into()))
}

fn found(trace: Option<Trace>) -> Result<Option<Made>> {
    Ok(trace.map(Made::from))
}

// When a row applies. A trace that was stored after some stage goes on from there.

fn always(_: &Given<'_>, _: &Trace) -> bool {
    true
}

fn is_complex(_: &Given<'_>, trace: &Trace) -> bool {
    !trace.has_been_through(StageName::ComplexToReal)
}

fn is_autocast(given: &Given<'_>, trace: &Trace) -> bool {
    given.options.autocast.is_some() && !trace.has_been_through(StageName::Autocast)
}

fn is_batched(given: &Given<'_>, _: &Trace) -> bool {
    // What the forward program saves has memory of its own, and would be copied to be adjacent.
    given.options.batch && !given.split
}

fn is_recomputed(given: &Given<'_>, _: &Trace) -> bool {
    let Least { computed, gathered } = least(given);
    computed.is_some() || gathered.is_some()
}

fn least(given: &Given<'_>) -> Least {
    let gathered = given.options.sharding.as_ref().and_then(|sharding| sharding.gather_again);
    Least { computed: given.options.recompute, gathered }
}

fn is_unclaimed(given: &Given<'_>, trace: &Trace) -> bool {
    is_unplanned(given, trace) && !trace.has_been_through(StageName::Claim)
}

fn is_unplanned(_: &Given<'_>, trace: &Trace) -> bool {
    !trace.has_been_through(StageName::PlanMemory)
}

fn is_bucketed(given: &Given<'_>, trace: &Trace) -> bool {
    let unfused = !trace.has_been_through(StageName::Bucket) && !trace.has_been_through(StageName::Fuse);
    unfused && is_unplanned(given, trace)
}

fn is_padded(given: &Given<'_>, trace: &Trace) -> bool {
    let unfused = !trace.has_been_through(StageName::Pad) && !trace.has_been_through(StageName::Fuse);
    given.options.pad && unfused && is_unplanned(given, trace)
}

fn is_turned(given: &Given<'_>, trace: &Trace) -> bool {
    let unfused = !trace.has_been_through(StageName::Channels) && !trace.has_been_through(StageName::Fuse);
    given.options.channels && unfused && is_unplanned(given, trace)
}

fn is_fused(given: &Given<'_>, trace: &Trace) -> bool {
    given.options.fuse && !trace.has_been_through(StageName::Fuse) && is_unplanned(given, trace)
}

fn is_undeleted(_: &Given<'_>, trace: &Trace) -> bool {
    !trace.has_been_through(StageName::DeleteLastUsed)
}

// The passes: what they give to the transforms, and what they keep of them.

fn without_complex(_: &Given<'_>, trace: &Trace, _: &mut Fuel) -> Result<Option<Made>> {
    found(complex_to_real::complex_to_real(trace)?)
}

fn early_rewrites(given: &Given<'_>, trace: &Trace, fuel: &mut Fuel) -> Result<Option<Made>> {
    made(rewrite::rewrite(trace, given.rewrites, given.executors, fuel)?)
}

fn late_rewrites(given: &Given<'_>, trace: &Trace, fuel: &mut Fuel) -> Result<Option<Made>> {
    made(rewrite::late(trace, given.rewrites, given.executors, fuel)?)
}

fn to_low_precision(given: &Given<'_>, trace: &Trace, _: &mut Fuel) -> Result<Option<Made>> {
    found(given.options.autocast.map(|low| autocast::autocast(trace, low)).transpose()?)
}

fn gradients(given: &Given<'_>, trace: &Trace, _: &mut Fuel) -> Result<Option<Made>> {
    let mut gradients = Vec::new();
    let trace = autodiff::autodiff_with(trace, &given.ranking, &mut gradients)?;
    Ok(Some(Made { trace, gradients, choices: given.ranking.told() }))
}

fn batched(_: &Given<'_>, trace: &Trace, fuel: &mut Fuel) -> Result<Option<Made>> {
    found(batch::batch(trace, fuel)?)
}

fn recomputed(given: &Given<'_>, trace: &Trace, fuel: &mut Fuel) -> Result<Option<Made>> {
    found(recompute::recompute(trace, least(given), fuel))
}

fn claimed(given: &Given<'_>, trace: &Trace, fuel: &mut Fuel) -> Result<Option<Made>> {
    let claimed = claim::claim(trace, &given.ranking, fuel)?;
    // Decompositions bring symbols that nothing reads and symbols that the program has already.
    let merged = dce::live(cse::merge(&claimed.block)).canonical();
    let trace = Trace { block: claim::without_bodies(merged), ..claimed };
    Ok(Some(Made { choices: given.ranking.told(), ..Made::from(trace) }))
}

fn bucketed(given: &Given<'_>, trace: &Trace, _: &mut Fuel) -> Result<Option<Made>> {
    found(bucket::bucket(trace, given.options.bucket))
}

fn padded(given: &Given<'_>, trace: &Trace, fuel: &mut Fuel) -> Result<Option<Made>> {
    found(pad::pad(trace, &given.ranking, fuel)?)
}

fn turned(given: &Given<'_>, trace: &Trace, fuel: &mut Fuel) -> Result<Option<Made>> {
    found(channels::channels(trace, &given.ranking, fuel)?)
}

fn fused(given: &Given<'_>, trace: &Trace, fuel: &mut Fuel) -> Result<Option<Made>> {
    made(fuse::fuse(trace, given.executors, fuel))
}

fn scheduled(_: &Given<'_>, trace: &Trace, _: &mut Fuel) -> Result<Option<Made>> {
    found(schedule::schedule(trace))
}

fn deleted(_: &Given<'_>, trace: &Trace, _: &mut Fuel) -> Result<Option<Made>> {
    made(plan::delete_last_used(trace))
}

fn laid_out(given: &Given<'_>, trace: &Trace, _: &mut Fuel) -> Result<Option<Made>> {
    let laid = layout::layout(trace, given.executors)?;
    let block = nest::nest(dce::live(laid.block.clone())).canonical();
    made(Trace { block, ..laid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_in_the_order_of_their_names_and_parts_follow_each_other() {
        let stages: Vec<StageName> = STAGES.iter().map(|name| StageName::of(name).unwrap()).collect();
        assert!(stages.is_sorted() && stages.len() == StageName::ALL.len() - 3, "{stages:?}");
        let parts = [Part::Written, Part::Differentiated, Part::Simplified, Part::Placed].map(rows);
        assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>(), (0..TABLE.len()).collect::<Vec<_>>());
        for place in [Place::Start, Place::BeforeAutodiff, Place::AfterAutodiff, Place::BeforeClaim] {
            let rows = TABLE.iter().filter(|row| matches!(row.step, Step::Own(own) if own == place));
            assert_eq!(rows.count(), 1, "{place:?}");
        }
    }
}
