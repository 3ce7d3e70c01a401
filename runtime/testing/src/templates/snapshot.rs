//! Forward and backward traces, acquired and claimed, as stored.

use crate::compile::{Options, stages};
use crate::device::find_kind;
use crate::executor::find_executor;
use crate::meta::Target;
use crate::operator::OperatorKind;
use crate::problem::Check;
use crate::registry::snapshot_name;
use crate::snapshot;
use crate::subject::{Subject, joint_trace, subjects};
use crate::test::{Context, Outcome, PASSED, nothing};
use crate::trace::{StageName, Trace, print};
use crate::transforms::autodiff::split;
use crate::transforms::dce::dce;
use crate::transforms::retarget::retarget;
use fulgurite_kernels::DType;

/// See the module. The sample shown is the first with data and at least one dimension.
pub(crate) fn check(context: &Context) -> Check<Outcome> {
    let def = context.def;
    let order = [DType::F32, DType::I64, DType::Bool, DType::F64, DType::I32, DType::U8, DType::BF16, DType::F16];
    for dtype in order {
        let all = subjects(def, dtype)?;
        let shown = all
            .iter()
            .filter(|subject| subject.trace().is_ok())
            .find(|subject| subject.arrays.iter().any(|array| array.meta().rank() > 0 && !array.meta().is_empty()))
            .or_else(|| all.iter().find(|subject| subject.trace().is_ok()));
        if let Some(subject) = shown {
            let file = context.settings.snapshots.join(format!("{}.snap", snapshot_name(def.name)));
            snapshot::compare(&file, &format!("{}({})", def.name, subject.describe()), &text(subject)?)?;
            return PASSED;
        }
    }
    nothing("no sample is accepted")
}

fn text(subject: &Subject) -> Check<String> {
    let options = Options::default();
    let trace = &on_target(subject)?;
    let mut text = format!("{}\n", print::first_line());
    text += &section("forward, acquired", trace);
    text += &claimed("forward, claimed", trace, &options)?;
    let executors = options.executor_list(trace.target.kind());
    let joint = if subject.differentiable()? { joint_trace(trace, &executors)? } else { None };
    if let Some(joint) = joint {
        let (_, backward) = split(&dce(&joint), trace.block.results.len());
        text += &section("backward, acquired", &backward);
        text += &claimed("backward, claimed", &backward, &options)?;
    }
    Ok(text)
}

/// The call where it can be claimed: a symbol of a device's executor on that device, everything else on the host.
fn on_target(subject: &Subject) -> Check<Trace> {
    let trace = subject.trace()?;
    let owner = match subject.def.kind {
        OperatorKind::Symbol([first, ..]) => find_executor(first)?.device,
        _ => "cpu",
    };
    if owner == trace.target.kind() {
        return Ok(trace.clone());
    }
    // One architecture speaks for all: a snapshot needs no device.
    let architecture = find_kind(owner).ok().and_then(|kind| kind.usual_architecture());
    Ok(retarget(trace, &Target::new(owner, architecture.map(str::to_owned))))
}

/// A trace without its first lines: the version is that of the whole file, and the transforms are those of the title.
fn section(title: &str, trace: &Trace) -> String {
    let text = trace.to_string();
    let program: Vec<&str> = text.lines().skip_while(|line| line.starts_with('#')).collect();
    format!("== {title}\n{}\n", program.join("\n"))
}

fn claimed(title: &str, acquired: &Trace, options: &Options) -> Check<String> {
    let stages = stages(acquired.clone(), options)?;
    let Some(claimed) = stages.iter().find(|stage| stage.is(StageName::Claim)).map(|stage| &stage.trace) else {
        return Ok(String::new());
    };
    Ok(match taken_whole(acquired, claimed) {
        Some(executor) => format!("== {title}: as acquired, by {executor}\n"),
        None => section(title, claimed),
    })
}

/// The executor that takes every line of a program as it was acquired.
fn taken_whole(acquired: &Trace, claimed: &Trace) -> Option<&'static str> {
    let executor = claimed.block.symbols.first()?.executor?;
    let calls = |trace: &Trace| {
        let mut trace = Trace { history: Vec::new(), ..trace.clone() };
        for symbol in &mut trace.block.symbols {
            (symbol.executor, symbol.body) = (None, None);
        }
        trace
    };
    let whole = claimed.block.symbols.iter().all(|symbol| symbol.executor == Some(executor));
    (whole && calls(acquired) == calls(claimed)).then_some(executor)
}
