//! A program symbol by symbol, by the references in f64, with values of the range that their types have, and moved by
//! their roundings. It tells which elements of a result say something about an executor, and how far two computations
//! that round some values differently may be apart.
//!
//! Moving the inputs alone would not: what is rounded on the way to a step (`floor` of a product in bf16) or cancels
//! there jumps although the inputs are far from it, and what overflows on the way (`log(exp(199))` in f32) is finite
//! in f64.

use crate::operator::RuleSet;
use crate::rules::TestRules;
use crate::strided::LayoutRules;
use fulgurite_kernels::DType;
use ndarray::{ArrayD, IxDyn};
use rustc_hash::FxHashMap;

use crate::argument::map_arguments;
use crate::arithmetic::{Arithmetic, Elements};
use crate::array::Array;
use crate::problem::{Check, Problem, ensure};
use crate::reference::ReferenceTensor;
use crate::samples::Random;
use crate::tolerance::Expected;
use crate::trace::{Block, BoundSymbol, Trace, ValueId};
use crate::transforms::decompose::decompose;

/// How often values are moved, by one rounding and by several.
const TIMES: u64 = 4;
/// The larger moves, in roundings.
const FAR: f64 = 8.0;
/// A response to far moves that is this many times that to near ones is no slope but a step.
const STEP: f64 = 4.0 * FAR;

/// A program whose composites are opened.
pub(crate) struct Interpreter {
    block: Block,
}

/// The values of a program that are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moved {
    /// Each that is computed.
    All,
    /// Reductions, and what is computed from them: what adds in another order has other roundings from there on.
    FromReductions,
}

/// Where the results of a program go when each value is moved by its roundings.
pub(crate) struct Moves {
    /// By one rounding: for each time, each result.
    pub near: Vec<Vec<Vec<f64>>>,
    far: Vec<Vec<Vec<f64>>>,
}

impl Interpreter {
    pub fn new(trace: &Trace) -> Interpreter {
        Interpreter { block: decompose(trace, |_| true).block }
    }

    /// The results, with every computed value of `moved` moved up or down by `roundings` of its type, at random.
    fn run(&self, inputs: &[Array], moved: Moved, roundings: f64, seed: u64) -> Check<Vec<Vec<f64>>> {
        let block = &self.block;
        let mut random = Random::new(seed ^ 0x0F0E);
        let mut values: FxHashMap<ValueId, ReferenceTensor> = FxHashMap::default();
        for (id, input) in block.parameters.iter().zip(inputs) {
            values.insert(*id, input.to_reference()?);
        }
        let reduced = self.behind_reductions();
        for symbol in &block.symbols {
            let Some(def) = symbol.operator() else { return Err("a program of samples has operators alone".into()) };
            let Some(rule) = TestRules::of(def).reference else {
                return Err(format!("{} has no reference", def.name).into());
            };
            let results = rule(&map_arguments(&symbol.arguments, |id| values[id].clone())).map_err(Problem::from)?;
            ensure!(results.len() == symbol.results.len(), "{}: the reference has other results", def.name);
            for (id, result) in symbol.results.iter().zip(results) {
                let dtype = block.meta(*id).dtype();
                let moves = LayoutRules::of(def).view.is_none() && (moved == Moved::All || reduced[id.index()]);
                values.insert(*id, held(result, dtype, if moves { roundings } else { 0.0 }, &mut random));
            }
        }
        Ok(block.results.iter().map(|id| values[id].numbers()).collect())
    }

    /// The results moved near and far.
    pub fn moves(&self, inputs: &[Array]) -> Check<Moves> {
        let times =
            |roundings: f64| (0..TIMES).map(|seed| self.run(inputs, Moved::All, roundings, seed)).collect::<Check<_>>();
        Ok(Moves { near: times(1.0)?, far: times(FAR)? })
    }

    /// How far each element of each result moves when values are moved by one rounding.
    pub fn steps(&self, inputs: &[Array], moved: Moved) -> Check<Vec<Vec<f64>>> {
        let still = self.run(inputs, moved, 0.0, 0)?;
        let mut steps: Vec<Vec<f64>> = still.iter().map(|values| vec![0.0; values.len()]).collect();
        for seed in 0..TIMES {
            for ((steps, moved), still) in steps.iter_mut().zip(self.run(inputs, moved, 1.0, seed)?).zip(&still) {
                for ((step, moved), still) in steps.iter_mut().zip(moved).zip(still) {
                    let own = (moved - still).abs();
                    *step = step.max(if own.is_finite() { own } else { 0.0 });
                }
            }
        }
        Ok(steps)
    }

    /// For each value, whether it is a reduction or depends on one.
    fn behind_reductions(&self) -> Vec<bool> {
        let reduces = |symbol: &BoundSymbol| {
            let elements = symbol.operator().and_then(|def| Arithmetic::of(def).elements);
            matches!(elements, Some(Elements::Sum | Elements::Max | Elements::Min))
        };
        let mut found = vec![false; self.block.values.len()];
        for symbol in &self.block.symbols {
            if reduces(symbol) || symbol.operands().any(|id| found[id.index()]) {
                symbol.results.iter().for_each(|id| found[id.index()] = true);
            }
        }
        found
    }

    /// Whether a value that is computed has fewer digits than `dtype`.
    fn rounds_below(&self, dtype: DType) -> bool {
        let block = &self.block;
        let mut computed = block.symbols.iter().flat_map(|symbol| &symbol.results).map(|id| block.meta(*id).dtype());
        dtype.is_floating() && computed.any(|own| own.is_floating() && own.epsilon() > dtype.epsilon())
    }
}

/// Compares result `i` of a program with these inputs. A loss in f32 may be computed from logits of 16 bits: two
/// computations that add their products in different orders round some logits differently, by a unit of 16 bits, which
/// is far above the roundings of the loss. So where a value on the way has fewer digits than the result, the result may
/// be off as far as it moves when each value is moved by a rounding of its own type. (If a line of the program has no
/// reference, the bound is `expected`'s own.)
pub(crate) fn compare_rounded_below(
    trace: &Trace,
    inputs: &[Array],
    i: usize,
    expected: &Expected,
    output: &Array,
) -> Check {
    let Err(problem) = expected.compare(output) else { return Ok(()) };
    let interpreter = Interpreter::new(trace);
    if !interpreter.rounds_below(output.dtype()) {
        return Err(problem);
    }
    let Ok(steps) = interpreter.steps(inputs, Moved::All) else { return Err(problem) };
    expected.clone().with_steps(&steps[i]).compare(output)
}

/// What `dtype` holds of a result: nothing beyond its range, nothing below its smallest number.
fn held(result: ReferenceTensor, dtype: DType, roundings: f64, random: &mut Random) -> ReferenceTensor {
    if !dtype.is_floating() {
        return result;
    }
    let (largest, smallest) = range(dtype);
    let unit = roundings * dtype.epsilon();
    let hold = |value: f64| {
        let value = if random.next().is_multiple_of(2) { value * (1.0 + unit) } else { value * (1.0 - unit) };
        if value.abs() > largest {
            f64::INFINITY.copysign(value)
        } else if value.abs() < smallest {
            0.0
        } else {
            value
        }
    };
    let shape = result.shape().to_vec();
    let values: Vec<f64> = result.floats().iter().copied().map(hold).collect();
    let values =
        ArrayD::from_shape_vec(IxDyn(&shape), values).unwrap_or_else(|_| unreachable!("as many as there were"));
    ReferenceTensor::from_floats(dtype, values)
}

/// The largest number and the smallest positive one with all its digits.
fn range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F16 => (65504.0, 6.2e-5),
        DType::BF16 => (3.38e38, 1.2e-38),
        DType::F32 => (3.4e38, 1.2e-38),
        _ => (f64::MAX, f64::MIN_POSITIVE),
    }
}

impl Moves {
    /// Whether element `j` of result `i`, which should be `value`, tells anything about an executor: it neither
    /// overflows, nor moves by more than `jump` of its size (or of one), nor is at a step.
    pub fn settled(&self, i: usize, j: usize, value: f64, jump: f64) -> bool {
        let wild = |v: f64| !v.is_finite() || v.abs() > 1e30 || (v != 0.0 && v.abs() < 1e-30);
        let moved = |times: &[Vec<Vec<f64>>]| {
            times
                .iter()
                .map(|results| (results[i][j] - value).abs())
                .fold(0.0, |a: f64, b| if b.is_nan() { b } else { a.max(b) })
        };
        let all = self.near.iter().chain(&self.far);
        if wild(value) || all.clone().any(|results| wild(results[i][j])) {
            return false;
        }
        let (near, far) = (moved(&self.near), moved(&self.far));
        let limit = jump * (1.0 + value.abs());
        near <= limit && (far <= limit || far <= STEP * near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Arg;
    use crate::meta::{Device, TensorMeta};
    use crate::operator::{Class, OperatorDef, OperatorKind};
    use crate::subject::trace_of;
    use crate::tracer::rules::TracingRules;
    use crate::tracer::{Tensor, call, trace_block};
    use fulgurite_ir::expansion;
    use fulgurite_ir::registry::{OPERATORS, find_operator};

    const BASE: OperatorDef = OperatorDef {
        kind: OperatorKind::Prim,
        params: &[expansion::tensor::define("input", Class::Any)],
        ..expansion::OPERATOR
    };

    macro_rules! operators {
        ($($id:ident: $name:literal, $meta:expr, $reference:expr, $elements:expr;)*) => {$(
            #[linkme::distributed_slice(OPERATORS)]
            static $id: &OperatorDef = &OperatorDef {
                name: $name,
                rules: &[
                    &TracingRules { meta: Some(&$meta), ..TracingRules::EMPTY },
                    &TestRules { reference: Some(&$reference), ..TestRules::EMPTY },
                    &Arithmetic { elements: $elements, ..Arithmetic::EMPTY },
                ],
                ..BASE
            };
        )*};
    }

    fn in_type(arguments: &[Arg<TensorMeta>], dtype: DType) -> TensorMeta {
        arguments[0].tensors()[0].with_dtype(dtype)
    }

    fn values_of(arguments: &[Arg<ReferenceTensor>], dtype: DType) -> ReferenceTensor {
        ReferenceTensor::from_floats(dtype, arguments[0].tensors()[0].floats().clone())
    }

    operators! {
        LOW: "interpret::low", |a| Ok(vec![in_type(a, DType::BF16)]), |a| Ok(vec![values_of(a, DType::BF16)]),
            Some(Elements::Convert);
        WIDE: "interpret::wide", |a| Ok(vec![in_type(a, DType::F32)]), |a| Ok(vec![values_of(a, DType::F32)]),
            Some(Elements::Convert);
        SUM: "interpret::sum", |a| Ok(vec![in_type(a, DType::F32).with_shape([])]), |a| {
            let sum = a[0].tensors()[0].floats().sum();
            Ok(vec![ReferenceTensor::from_floats(DType::F32, ArrayD::from_elem(IxDyn(&[]), sum))])
        }, Some(Elements::Sum);
    }

    /// A value of f32, the same by way of bf16, and its sum.
    fn program() -> (Trace, Vec<Array>) {
        let parameters = [("x".into(), TensorMeta::new([2], DType::F32, Device::CPU))];
        let apply = |name: &str, x: Tensor| call(find_operator(name).unwrap(), vec![Arg::Tensor(x)])[0];
        let block = trace_block(&parameters, |x| {
            let rounded = apply("interpret::wide", apply("interpret::low", x[0]));
            vec![apply("interpret::wide", x[0]), rounded, apply("interpret::sum", x[0])]
        });
        (trace_of("interpret", block.unwrap()), vec![Array::new([2], &[1.0_f32, 3.0]).unwrap()])
    }

    #[test]
    fn a_result_in_f32_may_be_off_by_what_was_rounded_to_16_bits_on_the_way() {
        let (trace, inputs) = program();
        let expected = Expected::rounded(vec![1.0, 3.0], DType::F32);
        let off = |relative: f64| Array::new([2], &[(1.0 + relative) as f32, 3.0]).unwrap();
        let compared = |relative: f64| compare_rounded_below(&trace, &inputs, 1, &expected, &off(relative));
        assert!(expected.compare(&off(DType::BF16.epsilon())).is_err());
        assert!(compared(DType::BF16.epsilon()).is_ok());
        assert!(compared(64.0 * DType::BF16.epsilon()).is_err());
        // The result that no value in bf16 is on the way to moves by roundings of f32 alone.
        assert!(compare_rounded_below(&trace, &inputs, 0, &expected, &off(DType::BF16.epsilon())).is_err());
    }

    #[test]
    fn without_fewer_digits_on_the_way_nothing_is_allowed_besides() {
        let parameters = [("x".into(), TensorMeta::new([2], DType::F32, Device::CPU))];
        let block = trace_block(&parameters, |x| {
            call(find_operator("interpret::wide").unwrap(), vec![Arg::Tensor(x[0])]).to_vec()
        });
        let inputs = [Array::new([2], &[1.0_f32, 3.0]).unwrap()];
        let expected = Expected::exact(vec![1.0, 3.0]);
        let off = Array::new([2], &[1.0_f32, 3.0 + 1e-6]).unwrap();
        assert!(compare_rounded_below(&trace_of("interpret", block.unwrap()), &inputs, 0, &expected, &off).is_err());
    }

    #[test]
    fn only_what_depends_on_a_reduction_is_moved_with_reductions() {
        let (trace, inputs) = program();
        let steps = |moved| Interpreter::new(&trace).steps(&inputs, moved).unwrap();
        assert!(steps(Moved::All).iter().flatten().all(|step| *step > 0.0));
        assert_eq!(steps(Moved::FromReductions)[..2], [vec![0.0; 2], vec![0.0; 2]]);
        let sum = steps(Moved::FromReductions)[2][0];
        assert!(sum > 0.0 && sum <= 8.0 * f64::from(f32::EPSILON), "{sum}");
    }
}
