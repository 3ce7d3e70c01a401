//! What a program must give: its decomposition, one reference after another, and how far roundings on the way may move
//! it.
//!
//! The program is run as the references say, each result rounded to its element type. It is run again with every
//! rounding made anew at random ([`Noise`]): how far an element moves is how far executors, which round elsewhere or
//! add in another order, may differ there. An element that moves by more than a part of its own size is
//! ill-conditioned, or is at a discontinuity, and says nothing about an executor. It is counted as skipped.

use crate::arithmetic::Arithmetic;
use crate::operator::RuleSet;
use crate::rules::TestRules;
use fulgurite_kernels::DType;
use fulgurite_kernels::scalar::{ScalarNode, ScalarOp};

use super::case::work;
use super::noise::{MOVES, Noise, moved_operands, nearly, run_alike};
use super::terms::of_floats;
use crate::argument::{Arg, Attribute, map_arguments};
use crate::array::Array;
use crate::directives::Tolerance;
use crate::elementwise::as_rounded;
use crate::exact::is_exact;
use crate::generate::guarded;
use crate::problem::{Check, Problem, ensure};
use crate::reference::ReferenceTensor;
use crate::samples::{Random, round_to};
use crate::tolerance::{position, root_mean_square, roundings};
use crate::trace::{Block, BoundSymbol, Trace, ValueId};
use crate::transforms::dce;
use crate::transforms::decompose::decompose;

/// An element that moves by more than this part of its size, or of one, is left out.
const JUMP: f64 = 0.1;

struct Expected {
    dtype: DType,
    shape: Vec<usize>,
    /// As the references say, with the roundings of the element types, and without any.
    rounded: Vec<f64>,
    exact: Vec<f64>,
    /// As they say with other roundings.
    moved: Vec<Vec<f64>>,
    /// How far each element may be off; `None` where it says nothing.
    allowed: Vec<Option<f64>>,
}

/// What a program must give.
pub(super) struct Oracle {
    results: Vec<Expected>,
}

/// How many elements were compared, and how many said nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Compared {
    pub elements: u64,
    pub skipped: u64,
}

/// What a program's references say to its inputs.
pub(super) enum Answer {
    /// What it must give.
    Gives(Oracle),
    /// They refuse the data, or panic on it.
    Refuses(Problem),
    /// Some symbol has no reference.
    Nothing,
    /// They would take too long.
    TooLong,
}

impl Oracle {
    /// What the references say to a trace for the host, on these inputs, if its values have no more than `most`
    /// elements in all. `tolerances` are what directives allow each result.
    pub(super) fn ask(trace: &Trace, inputs: &[Array], tolerances: &[Tolerance], most: usize) -> Check<Answer> {
        let block = dce::live(decompose(trace, |_| true).block).canonical();
        if block.symbols.iter().any(|symbol| symbol.operator().is_none_or(|def| TestRules::of(def).reference.is_none()))
        {
            return Ok(Answer::Nothing);
        }
        if work(&block).elements > most {
            return Ok(Answer::TooLong);
        }
        let given = inputs.iter().map(Array::to_reference).collect::<Result<Vec<_>, _>>()?;
        let run = |noise: Noise| guarded(|| interpret(&block, &given, noise));
        let rounded = match run(Noise::Rounded) {
            Ok(rounded) => rounded,
            Err(problem) => return Ok(Answer::Refuses(problem)),
        };
        // What is refused a rounding further says nothing.
        let exact = match run(Noise::Exact) {
            Ok(exact) => exact,
            Err(problem) if problem.is_panic() => return Ok(Answer::Refuses(problem)),
            Err(_) => return Ok(Answer::Nothing),
        };
        let runs = |noises: &[Noise]| noises.iter().map(|noise| run(*noise)).collect::<Check<Vec<_>>>();
        let far: &[Noise] = if decides(&block) { &Noise::FAR } else { &[] };
        let (Ok(moved), Ok(far)) = (runs(&Noise::NEAR), runs(far)) else {
            return Ok(Answer::Nothing);
        };
        let results = (block.results.iter().enumerate())
            .map(|(i, id)| {
                let meta = block.meta(*id);
                let of = |runs: &'_ [Vec<Vec<f64>>]| runs.iter().map(|run| run[i].clone()).collect::<Vec<_>>();
                let (mut moved, mut far) = (of(&moved), of(&far));
                let allowed = allowed(meta.dtype(), &rounded[i], &exact[i], [&moved, &far], tolerances[i]);
                let (rounded, exact) = (rounded[i].clone(), exact[i].clone());
                moved.append(&mut far);
                Expected { dtype: meta.dtype(), shape: meta.shape().to_vec(), rounded, exact, moved, allowed }
            })
            .collect();
        Ok(Answer::Gives(Oracle { results }))
    }

    /// Compares what an executor gave.
    pub(super) fn compare(&self, outputs: &[Array]) -> Check<Compared> {
        let mut compared = Compared::default();
        ensure!(outputs.len() == self.results.len(), "{} results, expected {}", outputs.len(), self.results.len());
        for (i, (output, expected)) in outputs.iter().zip(&self.results).enumerate() {
            let own = expected.compare(output).map_err(|problem| problem.within(format!("result {i}")))?;
            compared.elements += own.elements;
            compared.skipped += own.skipped;
        }
        Ok(compared)
    }

    /// That some elements of what an executor gave, by their numbers for each result, are as far from the references
    /// as roundings move them. Those that say nothing otherwise are compared too.
    pub(super) fn explain(&self, outputs: &[Array], elements: &[Vec<usize>]) -> Check {
        for (i, ((output, expected), elements)) in outputs.iter().zip(&self.results).zip(elements).enumerate() {
            let got = output.to_f64()?;
            if let Some(j) = elements.iter().copied().find(|j| !expected.explains(*j, got[*j])) {
                let (at, value) = (position(j, &expected.shape), expected.rounded[j]);
                return Err(Problem(format!(
                    "result {i}: element {at:?}: expected {value:?}, got {:?}, which is farther than other roundings \
                     move it",
                    got[j]
                )));
            }
        }
        Ok(())
    }
}

impl Expected {
    /// At least as near to what is exact as the references, rounded one after the other.
    fn is_right(&self, j: usize, got: f64, allowed: f64) -> bool {
        let (rounded, exact) = (self.rounded[j], self.exact[j]);
        let near = |value: f64, allowed: f64| got == value || (got - value).abs() <= allowed;
        near(rounded, allowed) || near(exact, allowed + (exact - rounded).abs()) || (got.is_nan() && rounded.is_nan())
    }

    fn explains(&self, j: usize, got: f64) -> bool {
        if let Some(allowed) = self.allowed[j] {
            return self.is_right(j, got, allowed);
        }
        let runs = self.moved.iter().map(|run| run[j]).chain([self.exact[j], self.rounded[j]]);
        is_among(self.dtype, self.rounded[j], runs, got)
    }

    fn compare(&self, output: &Array) -> Check<Compared> {
        ensure!(
            output.shape() == &self.shape[..] && output.dtype() == self.dtype,
            "is {}, expected {}{:?}",
            output.meta(),
            self.dtype,
            self.shape
        );
        let got = output.to_f64()?;
        let mut compared = Compared::default();
        let mut wrong = 0;
        let mut first = None;
        for (j, got) in got.iter().enumerate() {
            let Some(allowed) = self.allowed[j] else {
                compared.skipped += 1;
                continue;
            };
            compared.elements += 1;
            if !self.is_right(j, *got, allowed) {
                wrong += 1;
                first.get_or_insert((j, *got, self.rounded[j], allowed));
            }
        }
        let Some((j, got, expected, allowed)) = first else { return Ok(compared) };
        let others =
            if wrong > 1 { format!("; {wrong} of {} elements are wrong", self.rounded.len()) } else { String::new() };
        let at = position(j, &self.shape);
        Err(Problem(format!("element {at:?}: expected {expected:?}, got {got:?} (allowed {allowed:.3e}){others}")))
    }
}

/// Whether an element that roundings move far is what they may make of it, where `runs` are what the references give
/// with several roundings: what one of them gives, or a number within twice of their largest distance.
fn is_among(dtype: DType, rounded: f64, runs: impl Iterator<Item = f64> + Clone, got: f64) -> bool {
    let found = runs.clone().any(|run| run == got || (run.is_nan() && got.is_nan()));
    if found || !dtype.is_floating() {
        return found;
    }
    let step = runs.clone().map(|run| (run - rounded).abs()).fold(0.0, f64::max);
    if rounded.is_finite() && step.is_finite() {
        return (got - rounded).abs() <= 2.0 * step + roundings(dtype) * dtype.epsilon() * rounded.abs();
    }
    // Some overflow, and others do not.
    let least = runs.clone().fold(f64::INFINITY, f64::min);
    (least..=runs.fold(f64::NEG_INFINITY, f64::max)).contains(&got)
}

/// The largest magnitude below which nothing overflows on the way.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e4,
        DType::F64 => 1e200,
        _ => 1e30,
    }
}

/// How far each element of a result may be off; `moved` and `far` are what it is with [`Noise::NEAR`] and
/// [`Noise::FAR`].
fn allowed(
    dtype: DType,
    rounded: &[f64],
    exact: &[f64],
    [moved, far]: [&[Vec<f64>]; 2],
    tolerance: Tolerance,
) -> Vec<Option<f64>> {
    let step = |j: usize| moved.iter().map(|run| (run[j] - rounded[j]).abs()).fold(0.0, f64::max);
    let usual = root_mean_square((0..rounded.len()).map(step).filter(|step| *step < JUMP));
    let scale = root_mean_square(rounded.iter().copied());
    let one = |j: usize| {
        let value = rounded[j];
        let all = || moved.iter().map(|run| run[j]).chain([exact[j]]);
        if !dtype.is_floating() {
            let far = far.iter().map(|run| run[j]);
            return all().chain(far).all(|other| other == value).then_some(0.0);
        }
        if !value.is_finite() {
            // An infinity or no number, if everybody says so.
            return all().all(|other| other == value || (other.is_nan() && value.is_nan())).then_some(0.0);
        }
        let wild = |v: f64| !v.is_finite() || v.abs() > largest(dtype) || (v != 0.0 && v.abs() < 1.0 / largest(dtype));
        let step = step(j);
        let drifts = (exact[j] - value).abs() > JUMP * (1.0 + value.abs());
        if wild(value) || all().any(wild) || step > JUMP * (1.0 + value.abs()) || drifts {
            return None;
        }
        // Some decision on the way falls otherwise, and the element with it.
        let jumps = |run: &Vec<f64>| {
            let far = (run[j] - value).abs();
            far > JUMP * (1.0 + value.abs()) && far > MOVES * MOVES * (step + usual)
        };
        if far.iter().any(jumps) {
            return None;
        }
        // Roundings alone decide where they move an element by half of what results are large: the vectors of a matrix
        // whose singular values are equal.
        let moves = MOVES * (step + usual);
        if moves > JUMP && 2.0 * moves > value.abs() + scale {
            return None;
        }
        let own = roundings(dtype) * dtype.epsilon() * value.abs();
        let scaled = tolerance.scaled_of(dtype) * (value.abs() + scale);
        // References compute in f64: against f64 they are as far off as what they judge.
        let both = if dtype == DType::F64 { 2.0 } else { 1.0 };
        Some(tolerance.factor * (own + both * MOVES * (step + usual) + 1.0 / largest(dtype)) + scaled)
    };
    (0..rounded.len()).map(one).collect()
}

/// Whether numbers are compared on the way to an index, or to a result that is not floating-point.
fn decides(block: &Block) -> bool {
    let floating = |id: &ValueId| block.meta(*id).dtype().is_floating();
    let indices = |symbol: &BoundSymbol| {
        symbol.operands().any(|id| floating(&id))
            && symbol.results.iter().any(|id| block.meta(*id).dtype().is_integer())
    };
    !block.results.iter().all(floating) || block.symbols.iter().any(indices)
}

/// Runs a decomposed block by the references; the values of its results.
fn interpret(block: &Block, inputs: &[ReferenceTensor], noise: Noise) -> Check<Vec<Vec<f64>>> {
    let mut random = Random::new(if let Noise::Moved { seed, .. } = noise { seed + 911 } else { 0 });
    let mut last = vec![usize::MAX; block.values.len()];
    for (at, symbol) in block.symbols.iter().enumerate() {
        symbol.operands().for_each(|id| last[id.index()] = at);
    }
    block.results.iter().for_each(|id| last[id.index()] = usize::MAX);
    let mut values: Vec<Option<ReferenceTensor>> = vec![None; block.values.len()];
    for (id, input) in block.parameters.iter().zip(inputs) {
        values[id.index()] = Some(input.clone());
    }
    for (at, symbol) in block.symbols.iter().enumerate() {
        let results = call(block, symbol, &values, noise, &mut random)?;
        for (id, result) in symbol.results.iter().zip(results) {
            values[id.index()] = Some(result);
        }
        for id in symbol.operands() {
            if last[id.index()] == at {
                values[id.index()] = None;
            }
        }
    }
    let missing = || Problem("a value is not defined".into());
    block
        .results
        .iter()
        .map(|id| Ok(values[id.index()].as_ref().ok_or_else(missing)?.floats().iter().copied().collect()))
        .collect()
}

fn call(
    block: &Block,
    symbol: &BoundSymbol,
    values: &[Option<ReferenceTensor>],
    noise: Noise,
    random: &mut Random,
) -> Check<Vec<ReferenceTensor>> {
    let def = symbol.operator().ok_or("not an operator")?;
    let rule = TestRules::of(def).reference.ok_or("has no reference")?;
    let moves = noise.moves() && !is_exact(block, symbol);
    // Elementwise arithmetic rounds its result alone; sums and products round their terms, in the type that they are
    // added in.
    let terms = moves && Arithmetic::of(def).scalar.is_none();
    let plain: Vec<Arg<ReferenceTensor>> = map_arguments(&symbol.arguments, |id| {
        values[id.index()].clone().unwrap_or_else(|| ReferenceTensor::scalar(f64::NAN))
    });
    let plain = as_rounded(def.params, &plain);
    let plain = if noise.is_far() && tells_equal(block, symbol) { brought_together(&plain) } else { plain };
    let run =
        |arguments: &[Arg<ReferenceTensor>]| rule(arguments).map_err(|failure| Problem::from(failure).within(def.name));
    let results = match noise {
        Noise::Alike if terms => run_alike(rule, &plain, run)?,
        _ if terms => run(&moved_operands(&plain, |value, unit| noise.moved(value, unit, random)))?,
        _ => run(&plain)?,
    };
    ensure!(results.len() == symbol.results.len(), "{}: its reference gives {} results", def.name, results.len());
    // In one of two runs that are moved the opposite ways.
    let cancels = noise.is_far() && matches!(noise, Noise::Moved { down: true, .. }) && adds(block, symbol);
    let rounded = results.into_iter().zip(&symbol.results).map(|(result, id)| {
        let dtype = block.meta(*id).dtype();
        match dtype {
            _ if dtype.is_integer() => {
                ReferenceTensor::from_integers(dtype, result.integers().mapv(|v| dtype.wrapped(v)))
            }
            DType::Bool => ReferenceTensor::from_floats(dtype, result.booleans().mapv(|v| f64::from(u8::from(v)))),
            _ => {
                let unit = dtype.epsilon();
                let one = |v: &f64| match noise {
                    Noise::Exact => *v,
                    // Where terms cancel, or there are none, zero has the sign of the order that they are added in.
                    Noise::Moved { seed, .. } if terms && *v == 0.0 => [0.0, -0.0][(seed % 2) as usize],
                    // The sign of what is no number is any.
                    Noise::Moved { seed, .. } if v.is_nan() => [f64::NAN, -f64::NAN][(seed % 2) as usize],
                    _ if moves => nearly(noise.moved(*v, unit, random), dtype),
                    _ => round_to(*v, dtype),
                };
                let mut floats: Vec<f64> = result.floats().iter().map(one).collect();
                if cancels {
                    cancelled(&mut floats, &plain, unit);
                }
                of_floats(dtype, result.shape(), floats)
            }
        }
    });
    Ok(rounded.collect())
}

/// Whether a symbol adds or subtracts elements.
fn adds(block: &Block, symbol: &BoundSymbol) -> bool {
    applies(block, symbol, |op| matches!(op, ScalarOp::Add | ScalarOp::Sub))
}

/// Makes those sums zero that roundings of their terms may make zero: runs that are moved never meet zero exactly, as
/// rounded numbers may, and an operator that asks whether a number is zero would seem certain.
fn cancelled(sums: &mut [f64], operands: &[Arg<ReferenceTensor>], unit: f64) {
    let mut largest = vec![0.0_f64; sums.len()];
    for operand in operands {
        match operand {
            Arg::Tensor(tensor) if tensor.dtype().is_floating() && tensor.floats().len() == sums.len() => {
                largest.iter_mut().zip(tensor.floats()).for_each(|(most, term)| *most = most.max(term.abs()));
            }
            Arg::Attribute(Attribute::Scalar(number)) => {
                largest.iter_mut().for_each(|most| *most = most.max(number.to_f64().abs()));
            }
            _ => {}
        }
    }
    // Terms may have been moved several times on the way. In 16 bits that much is most of a number, so there a sum
    // within two roundings of its terms is zero.
    let roundings = if unit < 1e-5 { 8.0 * MOVES } else { 2.0 };
    for (sum, most) in sums.iter_mut().zip(largest) {
        if sum.abs() <= roundings * unit * most {
            *sum = 0.0;
        }
    }
}

fn applies(block: &Block, symbol: &BoundSymbol, wanted: fn(&ScalarOp) -> bool) -> bool {
    let scalar = symbol.operator().and_then(|def| Arithmetic::of(def).scalar);
    let node = |node: &ScalarNode| matches!(node, ScalarNode::Apply(op, _) if wanted(op));
    scalar.is_some_and(|rule| rule(&block.argument_metas(symbol)).0.nodes.iter().any(node))
}

/// Whether a symbol asks which elements of two tensors are equal.
fn tells_equal(block: &Block, symbol: &BoundSymbol) -> bool {
    applies(block, symbol, |op| matches!(op, ScalarOp::Eq | ScalarOp::Ne))
}

/// Two operands, the second with the elements of the first where these are as near as roundings may bring them: runs
/// that are moved never meet another number exactly, as what is rounded may. Two numbers of their type that were not
/// moved stay as they are.
fn brought_together(operands: &[Arg<ReferenceTensor>]) -> Vec<Arg<ReferenceTensor>> {
    let mut together = operands.to_vec();
    let [Arg::Tensor(one), Arg::Tensor(other)] = operands else { return together };
    if !one.dtype().is_floating() || one.shape() != other.shape() {
        return together;
    }
    let moved = |value: f64| round_to(value, one.dtype()) != value;
    let near = |a: f64, b: f64| (a - b).abs() <= 2.0 * MOVES * one.dtype().epsilon() * a.abs().max(b.abs());
    let pairs = one.floats().iter().zip(other.floats());
    let meet = pairs.map(|(a, b)| if (moved(*a) || moved(*b)) && near(*a, *b) { *a } else { *b });
    together[1] = Arg::Tensor(of_floats(other.dtype(), other.shape(), meet.collect()));
    together
}

/// Compares two arrays bit for bit; one NaN is like another.
pub(super) fn same_values(got: &[Array], expected: &[Array]) -> Check<Compared> {
    let mut compared = Compared::default();
    ensure!(got.len() == expected.len(), "{} results, expected {}", got.len(), expected.len());
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let same = got.shape() == expected.shape() && got.dtype() == expected.dtype();
        ensure!(same, "result {i} is {}, expected {}", got.meta(), expected.meta());
        compared.elements += got.meta().len() as u64;
        let (a, b) = (got.to_bytes()?, expected.to_bytes()?);
        if a == b {
            continue;
        }
        let size = got.dtype().size();
        let differ: Vec<usize> =
            (a.chunks(size).zip(b.chunks(size)).enumerate()).filter_map(|(j, (a, b))| (a != b).then_some(j)).collect();
        let (a, b) = (got.to_f64()?, expected.to_f64()?);
        let wrong: Vec<usize> = differ.into_iter().filter(|j| !(a[*j].is_nan() && b[*j].is_nan())).collect();
        if let Some(j) = wrong.first() {
            let others = match wrong.len() {
                1 => String::new(),
                n => format!("; {n} of {} elements differ", a.len()),
            };
            let at = position(*j, got.shape());
            return Err(Problem(format!(
                "result {i}: element {at:?}: expected the bits of {:?}, got {:?}{others}",
                b[*j], a[*j]
            )));
        }
    }
    Ok(compared)
}

/// Compares large results, of which the references would take too long, with those of another way to run them: where
/// one has numbers the other has numbers, and few elements are far apart.
pub(super) fn about_same(got: &[Array], expected: &[Array], coarsest: DType) -> Check<Compared> {
    let mut compared = Compared::default();
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let (a, b) = (got.to_f64()?, expected.to_f64()?);
        ensure!(a.len() == b.len(), "result {i} has {} elements, expected {}", a.len(), b.len());
        compared.elements += a.len() as u64;
        let scale = root_mean_square(b.iter().copied());
        let near = 256.0 * coarsest.epsilon();
        let wrong = |(a, b): &(&f64, &f64)| match (a.is_finite(), b.is_finite()) {
            (true, true) => (*a - *b).abs() > near * (b.abs() + scale),
            (false, false) => false,
            _ => b.abs().max(a.abs()) < largest(got.dtype()) || a.is_nan() != b.is_nan(),
        };
        let count = a.iter().zip(&b).filter(wrong).count();
        if count * 1000 > a.len() {
            let first = a.iter().zip(&b).position(|pair| wrong(&pair)).unwrap_or(0);
            return Err(Problem(format!(
                "result {i}: element {:?}: expected about {:?}, got {:?}; {count} of {} elements are far off",
                position(first, got.shape()),
                b[first],
                a[first],
                a.len()
            )));
        }
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_roundings_may_make_zero_are_zero() {
        let floats = ndarray::ArrayD::from_shape_vec(vec![3], vec![-0.999_999_97, -0.5, 1e-9]).unwrap();
        let terms = Arg::Tensor(ReferenceTensor::from_floats(DType::F32, floats));
        let one = Arg::Attribute(Attribute::Scalar(crate::argument::Scalar::Float(1.0)));
        let mut sums = [3e-8, 0.5, 1.0];
        cancelled(&mut sums, &[one, terms], DType::F32.epsilon());
        assert_eq!(sums, [0.0, 0.5, 1.0]);
    }

    #[test]
    fn elements_that_roundings_move_by_half_of_what_is_large_are_not_compared() {
        let allowed = |rounded: &[f64], step: f64| {
            let moved = [rounded.iter().map(|value| value + step).collect::<Vec<f64>>()];
            allowed(DType::F32, rounded, rounded, [&moved, &[]], Tolerance::NONE)
        };
        // Vectors of equal singular values, and numbers that are merely badly conditioned.
        assert_eq!(allowed(&[0.8, -0.6], 0.09), [None, None]);
        assert!(allowed(&[0.8, -0.6], 0.01).iter().all(Option::is_some));
        // What cancels is compared, however small it is beside its roundings.
        assert!(allowed(&[0.0, 1e-9], 1e-7).iter().all(Option::is_some));
    }

    #[test]
    fn an_element_that_roundings_move_is_among_what_they_make_of_it() {
        let among = |dtype, runs: &[f64], got| is_among(dtype, runs[0], runs.iter().copied(), got);
        let moved = [0.0, 6.0, -9.0];
        assert!(among(DType::F32, &moved, 17.0) && among(DType::F32, &moved, -18.0));
        assert!(!among(DType::F32, &moved, 18.5) && !among(DType::F32, &moved, f64::NAN));
        assert!(among(DType::I64, &moved, 6.0) && !among(DType::I64, &moved, 5.0));
        let overflows = [3e38, f64::INFINITY, f64::NAN];
        assert!(among(DType::F32, &overflows, 3.2e38) && among(DType::F32, &overflows, f64::NAN));
        assert!(!among(DType::F32, &overflows, 1.0));
    }

    #[test]
    fn numbers_that_roundings_may_make_equal_are_brought_together() {
        let of = |values: &[f64]| {
            let floats = ndarray::ArrayD::from_shape_vec(vec![values.len()], values.to_vec()).unwrap();
            Arg::Tensor(ReferenceTensor::from_floats(DType::F16, floats))
        };
        // Moved and near; moved and far; two numbers of f16 side by side, which are inputs; equal ones.
        let (moved, fixed) = (of(&[-2.8013, 1.3001, 2.0, 0.5]), of(&[-2.80078125, 1.5, 2.001953125, 0.5]));
        let together = brought_together(&[moved, fixed]);
        let Arg::Tensor(other) = &together[1] else { panic!("no tensor") };
        assert_eq!(other.floats().iter().copied().collect::<Vec<_>>(), [-2.8013, 1.5, 2.001953125, 0.5]);
    }
}
