//! How precise an operator is: its samples, run on the host, beside its f64 reference.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fulgurite::argument::{Arg, map_arguments};
use fulgurite::compile::{Choose, Options, compile};
use fulgurite::operator::{OperatorDef, OperatorKind, RuleSet};
use fulgurite::reference::ReferenceTensor;
use fulgurite::testing::rules::TestRules;
use fulgurite::testing::samples::{Sample, SampleTensor};
use fulgurite::trace::Trace;
use fulgurite::{Array, DType};
use ndarray::{ArrayD, IxDyn};

/// The element types that are measured: f64 is the type of the references themselves.
pub const MEASURED: [DType; 3] = [DType::F16, DType::BF16, DType::F32];
/// Samples that are run in each type, and the elements of the largest tensor in them.
const MOST_SAMPLES: usize = 3;
const MOST_ELEMENTS: usize = 4096;

/// What the samples of one element type gave.
#[derive(Debug)]
pub struct Measured {
    pub dtype: DType,
    pub samples: usize,
    /// The largest error, in units in the last place of the largest element of its result.
    pub worst: f64,
}

/// The largest error of the first samples in `dtype`; `None` where none has results to compare.
pub fn measure(def: &'static OperatorDef, dtype: DType, accepted: &[(usize, Sample, Trace)]) -> Option<Measured> {
    if def.effects.random || def.effects.collective || matches!(def.kind, OperatorKind::Symbol(_)) {
        return None;
    }
    TestRules::of(def).reference?;
    let small = |sample: &Sample| {
        let tensors = sample.arguments.iter().flat_map(Arg::tensors);
        tensors.map(|tensor| tensor.shape().iter().product::<usize>()).max().is_some_and(|most| most <= MOST_ELEMENTS)
    };
    let chosen = accepted.iter().filter(|(_, sample, _)| small(sample) && !is_empty(sample));
    let errors = chosen
        .take(MOST_SAMPLES)
        .filter_map(|(_, sample, trace)| catch_unwind(AssertUnwindSafe(|| error(def, sample, trace))).ok()?);
    let errors: Vec<f64> = errors.collect();
    let worst = errors.iter().copied().fold(0.0, f64::max);
    (!errors.is_empty()).then_some(Measured { dtype, samples: errors.len(), worst })
}

fn is_empty(sample: &Sample) -> bool {
    sample.arguments.iter().flat_map(Arg::tensors).any(|tensor| tensor.shape().contains(&0))
}

/// The largest error of one sample, in units of the last place of the largest element.
fn error(def: &'static OperatorDef, sample: &Sample, trace: &Trace) -> Option<f64> {
    let rule = TestRules::of(def).reference?;
    let reference = |tensor: &SampleTensor| {
        let values = ArrayD::from_shape_vec(IxDyn(tensor.shape()), tensor.values());
        values.map_or_else(
            |_| ReferenceTensor::scalar(0.0),
            |values| ReferenceTensor::from_floats(tensor.dtype(), values),
        )
    };
    let expected = rule(&map_arguments(&sample.arguments, reference)).ok()?;
    let tensors = sample.arguments.iter().flat_map(Arg::tensors);
    let inputs = tensors.map(|tensor| Array::from_f64(tensor.shape(), tensor.dtype(), &tensor.values()));
    let inputs = inputs.collect::<fulgurite::Result<Vec<Array>>>().ok()?;
    let options = Options { choose: Choose::Never, ..Options::default() };
    let (program, _) = compile(trace.clone(), &options).ok()?;
    let results = program.run(inputs).ok()?;
    let pairs = results.iter().zip(&expected).filter(|(result, _)| result.dtype().is_floating());
    let errors: Vec<f64> = pairs.filter_map(|(result, expected)| of_result(result, expected)).collect();
    errors.into_iter().reduce(f64::max)
}

fn of_result(result: &Array, expected: &ReferenceTensor) -> Option<f64> {
    if result.shape() != expected.shape() {
        return None;
    }
    let expected = expected.floats();
    let finite = || expected.iter().copied().filter(|value| value.is_finite());
    let largest = finite().fold(0.0_f64, |most, value| most.max(value.abs()));
    let unit = result.dtype().epsilon() * largest;
    if unit == 0.0 {
        return None;
    }
    let values = result.to_f64().ok()?;
    let off = |(got, expected): (&f64, &f64)| (got - expected).abs() / unit;
    Some(values.iter().zip(expected).map(off).filter(|error| error.is_finite()).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use fulgurite::Target;
    use fulgurite::registry::find_operator;

    use super::super::super::subject::accepted;
    use super::*;

    #[test]
    fn functions_are_measured_in_units_of_the_last_place() {
        let of = |name: &str, dtype: DType| {
            let def = find_operator(name).unwrap();
            measure(def, dtype, &accepted(def, dtype, &Target::cpu()))
        };
        for dtype in MEASURED {
            let exp = of("prims::exp", dtype).unwrap();
            assert!(exp.worst > 0.0 && exp.worst < 8.0 && exp.samples == MOST_SAMPLES, "{exp:?}");
            assert_eq!(of("neg", dtype).unwrap().worst, 0.0);
        }
        assert!(of("dropout", DType::F32).is_none(), "it draws random numbers");
    }
}
