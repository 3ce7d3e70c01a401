//! Samples can tell a wrong operator from a right one: there are some, and every argument decides about a result of one
//! of them.
//!
//! An argument that nothing depends on could be ignored by every kernel without a test that fails. So each is changed,
//! in one sample after the other: data of tensors to other data, an attribute to its default and to what other samples
//! give. One change at least must change a result (as the reference has it, or else the decomposition) by more than a
//! test allows.

use crate::argument::{Arg, Attribute};
use crate::array::Array;
use crate::executor_list::List;
use crate::generate::sampled_dtypes;
use crate::meta::{Device, TensorMeta};
use crate::operator::RuleSet;
use crate::operator::{OperatorDef, ParamKind};
use crate::problem::{Check, Problem, ensure};
use crate::rules::TestRules;
use crate::subject::{Subject, subjects, values_of};
use crate::test::{Context, Outcome, PASSED};
use crate::tolerance::Expected;
use crate::tracer::rules::TracingRules;

/// How many other values of an attribute are tried in one sample.
const TRIED: usize = 6;

/// See the module.
pub(crate) fn check(context: &Context) -> Check<Outcome> {
    let def = context.def;
    ensure!(
        TestRules::of(def).reference.is_some() || TracingRules::of(def).decomposition.is_some(),
        "has neither a rule `reference` nor a decomposition, so that nothing says what its results are: \
         write `fn reference(...)`, the same in f64"
    );
    let mut all = Vec::new();
    for dtype in sampled_dtypes(def) {
        all.push(subjects(def, dtype)?);
    }
    // The smallest first: most arguments are settled by it.
    let mut samples: Vec<&Subject> = all.iter().flat_map(|subjects| subjects.iter()).collect();
    ensure!(
        !samples.is_empty(),
        "has no samples: `samples` adds no call whose element types the signature accepts, so nothing tests it; \
         write `s.case(with(s.normal([4, 8])))`"
    );
    samples.sort_by_key(|subject| subject.arrays.iter().map(|array| array.meta().len()).sum::<usize>());
    for (index, param) in def.params.iter().enumerate() {
        // On one rank the arguments of a collective decide about little; the template `ranks` looks at them.
        if def.effects.axis.is_some() && param.kind == ParamKind::Attribute {
            continue;
        }
        let waived = TestRules::of(def).undecided.iter().find(|(name, _)| *name == param.name);
        match (decides(def, index, &samples)?, waived) {
            (Ok(()), Some(_)) => {
                return Err(Problem(format!(
                    "'{}' is waived, but it decides about a result; remove the waiver",
                    param.name
                )));
            }
            (Err(found), None) => return Err(Problem(undecided(param.name, &found))),
            _ => {}
        }
    }
    PASSED
}

/// Why an argument decides about nothing.
enum Undecided {
    /// No other value is known to try.
    Constant(String),
    /// Other values give the same results.
    Same(String),
}

fn undecided(name: &str, found: &Undecided) -> String {
    let why = match found {
        Undecided::Constant(value) => format!("it is {value} in every sample; add a sample with another value"),
        Undecided::Same(tried) => {
            format!("{tried}, and in no other sample do results differ; add a sample in which they do")
        }
    };
    format!(
        "argument '{name}' changes no result in any sample, so that nothing would notice a kernel that ignores it: \
         {why}, or say why there is none: `waive({name} = \"reason\")`"
    )
}

/// Whether some change of the argument changes a result of some sample.
fn decides(def: &'static OperatorDef, index: usize, samples: &[&Subject]) -> Check<Result<(), Undecided>> {
    let (mut refused, mut same) = (false, None);
    for subject in samples {
        for change in changes(def, index, subject, samples) {
            match changed(subject, index, &change)? {
                Some(true) => return Ok(Ok(())),
                Some(false) => {
                    same.get_or_insert_with(|| format!("sample {} gives the same with {}", subject.index, change.what));
                }
                None => refused = true,
            }
        }
    }
    Ok(match (same, refused) {
        (Some(tried), _) => Err(Undecided::Same(tried)),
        // Whatever else is given is an error: the value is decided by the other arguments.
        (None, true) => Ok(()),
        (None, false) => Err(Undecided::Constant(describe(&samples[0].metas[index]))),
    })
}

fn describe(argument: &Arg<TensorMeta>) -> String {
    match argument {
        Arg::Attribute(attribute) => attribute.to_string(),
        Arg::Optional(None) => "absent".into(),
        Arg::List(tensors) if tensors.is_empty() => "empty".into(),
        _ => "without elements".into(),
    }
}

/// Another value of one argument.
struct Change {
    what: String,
    /// The other value of an attribute.
    argument: Option<Attribute>,
    /// Of tensors: how their values become others.
    values: Option<fn(&[f64]) -> Vec<f64>>,
}

fn changes(def: &'static OperatorDef, index: usize, subject: &Subject, samples: &[&Subject]) -> Vec<Change> {
    let given = &subject.metas[index];
    if !given.tensors().is_empty() {
        let data: [(&str, fn(&[f64]) -> Vec<f64>); 4] = [
            ("its elements in reverse order", |v| v.iter().rev().copied().collect()),
            ("half of each element", |v| v.iter().map(|x| (x / 2.0).trunc_if_whole(*x)).collect()),
            ("zeros", |v| vec![0.0; v.len()]),
            ("ones", |v| vec![1.0; v.len()]),
        ];
        return data
            .into_iter()
            .map(|(what, values)| Change { what: what.into(), argument: None, values: Some(values) })
            .collect();
    }
    let Arg::Attribute(own) = given else { return Vec::new() };
    let param = &def.params[index];
    let mut others: Vec<Attribute> = Vec::new();
    let default = match param.kind {
        ParamKind::Attribute | ParamKind::Operand(_) => param.default.map(|default| default()),
        _ => None,
    };
    // Where a result is made: no machine is needed to see that it is somewhere else.
    let device = matches!(own, Attribute::Text(text) if text.parse() == Ok(Device::CPU));
    let elsewhere_made = device.then(|| Attribute::Text("cuda:7".into()));
    let elsewhere = samples.iter().filter_map(|other| match &other.metas[index] {
        Arg::Attribute(attribute) => Some(attribute.clone()),
        _ => None,
    });
    for value in default.into_iter().chain(elsewhere_made).chain(elsewhere) {
        let known = param.kind != ParamKind::Attribute || (param.accepts)(&value);
        if known && value != *own && !others.contains(&value) && others.len() < TRIED {
            others.push(value);
        }
    }
    others
        .into_iter()
        .map(|value| Change { what: format!("{value} instead of {own}"), argument: Some(value), values: None })
        .collect()
}

/// Integers stay whole.
trait TruncateIfWhole {
    fn trunc_if_whole(self, of: f64) -> f64;
}

impl TruncateIfWhole for f64 {
    fn trunc_if_whole(self, of: f64) -> f64 {
        if of.fract() == 0.0 { self.trunc() } else { self }
    }
}

/// Whether the change changes a result; `None` if the operator refuses the changed call.
fn changed(subject: &Subject, index: usize, change: &Change) -> Check<Option<bool>> {
    let mut metas = subject.metas.clone();
    let mut arrays = subject.arrays.clone();
    if let Some(attribute) = &change.argument {
        metas[index] = Arg::Attribute(attribute.clone());
    }
    if let Some(values) = change.values {
        let first: usize = subject.metas[..index].iter().map(|argument| argument.tensors().len()).sum();
        let own = first..first + subject.metas[index].tensors().len();
        for array in &mut arrays[own] {
            *array = Array::from_f64(array.shape(), array.dtype(), &values(&array.to_f64()?))?;
        }
    }
    let other = Subject::with(subject.def, subject.dtype, subject.index, subject.sample.clone(), metas, arrays);
    let Ok(now) = other.results() else { return Ok(None) };
    let before = subject.results()?;
    if now != before {
        return Ok(Some(true));
    }
    let was = results(subject)?;
    let Ok(is) = results(&other) else { return Ok(None) };
    let differs = was.iter().zip(&is).zip(&before).any(|((was, is), meta)| {
        Expected::rounded(was.clone(), meta.dtype()).compare_values(is, meta.shape(), meta.dtype()).is_err()
    });
    Ok(Some(differs))
}

/// Values of the results as the reference has them, or else the decomposition.
fn results(subject: &Subject) -> Check<Vec<Vec<f64>>> {
    if let Some(results) = subject.reference()? {
        let metas = subject.results()?;
        return Ok(results.iter().zip(&metas).map(|(result, meta)| values_of(result, meta.dtype())).collect());
    }
    let ran = subject.forward(&List::plain()?);
    let ran = ran.as_ref().as_ref().map_err(Problem::clone)?;
    Ok(ran.outputs.iter().map(Array::to_f64).collect::<crate::error::Result<_>>()?)
}
