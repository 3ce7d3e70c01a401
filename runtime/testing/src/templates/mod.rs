//! The templates: what a declaration must hold, each in a file of its own.

pub(crate) mod autocast;
pub(crate) mod bits;
pub(crate) mod bounds;
pub(crate) mod checker;
pub(crate) mod consistency;
pub(crate) mod cotangent_linearity;
pub(crate) mod decomposition;
pub(crate) mod determinism;
pub(crate) mod effects;
pub(crate) mod errors;
pub(crate) mod golden;
pub(crate) mod gradient;
pub(crate) mod in_place;
pub(crate) mod layout;
pub(crate) mod lowered;
pub(crate) mod meta;
pub(crate) mod mixed_programs;
pub(crate) mod programs;
pub(crate) mod ranks;
pub(crate) mod rewrite;
pub(crate) mod round_trip;
pub(crate) mod samples;
pub(crate) mod second_gradient;
pub(crate) mod snapshot;
pub(crate) mod sources;
pub(crate) mod types;

use super::directives::Template;
use super::problem::Check;
use super::subject::Subject;
use super::test::{Context, Outcome};

/// A check of one sample.
pub(crate) type PerSample = fn(&Context, &Subject) -> Check<Outcome>;

/// The check of a template that looks at one sample at a time.
pub(crate) fn per_sample(template: Template) -> Option<PerSample> {
    Some(match template {
        Template::Meta => meta::check,
        Template::Consistency => consistency::check,
        Template::Layout => layout::check,
        Template::Decomposition => decomposition::check,
        Template::Gradient => gradient::check,
        Template::SecondGradient => second_gradient::check,
        Template::CotangentLinearity => cotangent_linearity::check,
        Template::Effects => effects::check,
        Template::Bounds => bounds::check,
        Template::InPlace => in_place::check,
        Template::Determinism => determinism::check,
        Template::Checker => checker::check,
        Template::RoundTrip => round_trip::check,
        Template::Golden => golden::check,
        Template::Autocast => autocast::check,
        Template::Bits => bits::check,
        Template::Samples
        | Template::Sources
        | Template::Errors
        | Template::Snapshot
        | Template::Types
        | Template::Rewrite
        | Template::Programs
        | Template::Ranks => return None,
    })
}

/// Runs a template that looks at the operator as a whole.
pub(crate) fn whole(context: &Context) -> Check<Outcome> {
    match context.template {
        Template::Samples => samples::check(context),
        Template::Sources => sources::check(context),
        Template::Errors => errors::check(context),
        Template::Snapshot => snapshot::check(context),
        Template::Types => types::check(context),
        Template::Ranks => ranks::check(context),
        _ => Ok(Outcome::Nothing("the template has tests of its own".into())),
    }
}
