//! Error samples fail at trace time, as they say and at the caller's line; each declared precondition is tripped by
//! one. Data that is refused is refused when the call runs, by every executor of the host.

use crate::operator::RuleSet;
use crate::rules::TestRules;
use fulgurite_kernels::DType;

use crate::argument::{Arg, Attribute, map_arguments};
use crate::array::Array;
use crate::error::Error;
use crate::executor::{ExecutorDef, executors};
use crate::executor_list::List;
use crate::meta::{Device, TensorMeta};
use crate::operator::{OperatorDef, OperatorKind, ParamKind};
use crate::problem::{Check, ensure};
use crate::samples::{ErrorSample, ErrorSamples};
use crate::subject::{Subject, accepted_samples, describe, sample_metas, trace_call};
use crate::test::selected_sample;
use crate::test::{Context, Outcome, PASSED};

/// See the module.
pub(crate) fn check(context: &Context) -> Check<Outcome> {
    let def = context.def;
    let mut dtypes = [DType::F32].into_iter().chain(DType::ALL);
    let dtype = dtypes.find(|dtype| !accepted_samples(def, *dtype).is_empty()).unwrap_or(DType::F32);
    if let Some(executor) = context.executor {
        for (i, sample) in ErrorSamples::of_data(def, dtype).iter().enumerate() {
            let subject = Subject::of_arguments(def, DType::F32, sample.arguments.clone())?;
            refused_by(executor, &subject, sample)
                .map_err(|problem| problem.within(format!("sample {i} of data that is refused")))?;
        }
        return PASSED;
    }
    let samples = ErrorSamples::of_operator(def, dtype);
    for (i, sample) in samples.iter().enumerate() {
        if selected_sample().is_none_or(|selected| selected == i) {
            one(def, sample).map_err(|problem| problem.within(format!("error sample {i}")))?;
        }
    }
    for (i, sample) in ErrorSamples::of_data(def, dtype).iter().enumerate() {
        refused(def, sample).map_err(|problem| problem.within(format!("sample {i} of data that is refused")))?;
    }
    for code in TestRules::of(def).codes {
        ensure!(samples.iter().any(|sample| sample.code == *code), "no error sample trips the precondition '{code}'");
    }
    if let Some((_, sample)) = accepted_samples(def, dtype).first() {
        let metas = sample_metas(sample, Device::CPU);
        wrong_dtypes(def, &metas)?;
        wrong_attributes(def, &metas)?;
        wrong_device(def, &metas)?;
    }
    PASSED
}

fn one(def: &'static OperatorDef, sample: &ErrorSample) -> Check {
    let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
    expect(def, &metas, sample.code, sample.message)
}

/// The call must fail with `code` and a message that contains `message`, and must name the caller's line.
fn expect(def: &'static OperatorDef, metas: &[Arg<TensorMeta>], code: &str, message: &str) -> Check {
    let call = format!("{}({})", def.name, describe(metas));
    let error = match trace_call(def, metas) {
        Ok(_) => return Err(format!("{call}: expected the error '{code}', it was accepted").into()),
        Err(error) => error,
    };
    ensure!(error.code() == code, "{call}: expected the error '{code}', got '{}': {error}", error.code());
    let text = error.to_string();
    ensure!(text.contains(message), "{call}: expected a message with '{message}', got '{text}'");
    let Error::Operator { operator, stack, .. } = &error else {
        return Err(format!("{call}: expected an error of the operator, got {error:?}").into());
    };
    let here = stack.at.iter().chain(stack.frames.iter().filter_map(|(_, place)| place.as_ref()));
    ensure!(
        here.clone().any(|place| place.file() == def.file && place.line() == def.line),
        "{call}: the error does not name the caller's line: {text}"
    );
    ensure!(
        operator == def.name || stack.frames.iter().any(|(frame, _)| frame == def.name),
        "{call}: the error does not name the operator: {text}"
    );
    // What it is made of may refuse the call as well, with the same code and text, about arguments that the caller did
    // not give.
    ensure!(
        operator == def.name || !TestRules::of(def).codes.contains(&code),
        "{call}: the precondition '{code}' is not checked by the operator itself, but by {operator}: {text}"
    );
    Ok(())
}

/// The call is traced, and fails with the sample's code and message when it runs: by the operator's own reference,
/// which says that it must, and by every executor of the host. (A device tells of wrong data when the host waits for
/// it.)
fn refused(def: &'static OperatorDef, sample: &ErrorSample) -> Check {
    let subject = Subject::of_arguments(def, DType::F32, sample.arguments.clone())?;
    let call = format!("{}({})", def.name, subject.describe());
    if let Some(rule) = TestRules::of(def).reference {
        let answer = rule(&subject.reference_arguments(&subject.arrays)?);
        let code = answer.as_ref().err().map(|failure| failure.code);
        ensure!(
            code == Some(sample.code),
            "{call}: expected the error '{}', the reference says {:?}",
            sample.code,
            answer.err()
        );
    }
    let may_run = |executor: &&ExecutorDef| match def.kind {
        OperatorKind::Symbol(owners) => owners.contains(&executor.name),
        _ => Device::is_host(executor.device),
    };
    executors().into_iter().filter(may_run).try_for_each(|executor| refused_by(executor, &subject, sample))
}

/// The call fails when `executor` runs it, or, on a device, when the host waits for its results.
fn refused_by(executor: &'static ExecutorDef, subject: &Subject, sample: &ErrorSample) -> Check {
    let call = format!("{}({})", subject.def.name, subject.describe());
    let program = List::of(executor).compile(subject.trace()?)?;
    let ran = program.run(subject.arrays.clone());
    let error = match ran.and_then(|outputs| outputs.iter().map(Array::to_host).collect::<crate::Result<Vec<_>>>()) {
        Ok(_) => {
            let expected = sample.code;
            return Err(format!("{call}: expected the error '{expected}', {} ran it", executor.name).into());
        }
        Err(error) => error,
    };
    let text = error.to_string();
    ensure!(
        error.code() == sample.code && text.contains(sample.message),
        "{call}, executor {}: expected the error '{}' with '{}', got '{}': {text}",
        executor.name,
        sample.code,
        sample.message,
        error.code()
    );
    Ok(())
}

/// Every tensor in an element type that its class, or the operator, does not accept.
fn wrong_dtypes(def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> Check {
    for (i, param) in def.params.iter().enumerate() {
        let class = match param.kind {
            ParamKind::Tensor(class)
            | ParamKind::Optional(class)
            | ParamKind::List(class)
            | ParamKind::Operand(class) => class,
            ParamKind::Attribute => continue,
        };
        if metas[i].tensors().is_empty() {
            continue;
        }
        for dtype in DType::ALL.into_iter().filter(|dtype| !def.takes(class, *dtype)) {
            let mut metas = metas.to_vec();
            metas[i] = metas[i].map(|meta| meta.with_dtype(dtype));
            expect(def, &metas, "ArgumentDType", &format!("{} has dtype {dtype}", param.name))?;
        }
    }
    Ok(())
}

/// Every attribute as something that it cannot be.
fn wrong_attributes(def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> Check {
    for (i, param) in def.params.iter().enumerate() {
        if param.kind == ParamKind::Attribute {
            let mut metas = metas.to_vec();
            metas[i] = Arg::Attribute(Attribute::List([Attribute::Text("no such value".into())].into()));
            expect(def, &metas, "AttributeType", param.name)?;
        }
    }
    Ok(())
}

/// One tensor on another device than the others.
fn wrong_device(def: &'static OperatorDef, metas: &[Arg<TensorMeta>]) -> Check {
    let tensors = metas.iter().filter(|argument| !argument.tensors().is_empty()).count();
    let last = metas.iter().rposition(|argument| !argument.tensors().is_empty());
    let (Some(last), true) = (last, tensors > 1) else { return Ok(()) };
    let mut metas = metas.to_vec();
    metas[last] = metas[last].map(|meta| TensorMeta::new(meta.shape(), meta.dtype(), Device::new("elsewhere", 0)));
    expect(def, &metas, "ArgumentDevice", def.params[last].name)
}
