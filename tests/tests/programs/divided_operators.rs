//! Every operator on ranks that have parts of its arguments, or terms of their sums: what one rank computes, and its
//! gradients.

use std::collections::BTreeMap;

use fulgurite_executors as _;
use fulgurite_ops::prelude::value_and_grad_aux;
use fulgurite_ops::prims;
use fulgurite_runtime::argument::{Arg, map_arguments};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::operator::OperatorDef;
use fulgurite_runtime::registry::operators;
use fulgurite_runtime::testing::samples::{SampleTensor, Samples};
use fulgurite_runtime::tracer;
use fulgurite_runtime::transforms::tensor_parallel::{Divided, Division};
use fulgurite_runtime::{Array, DType, Tensor, jit, ranks};

/// What is said of gradients that ranks cannot add up.
const REFUSED: &str = "takes no gradient of";
/// Cases of each operator, and the most elements of one.
const CASES: usize = 3;
const ELEMENTS: usize = 300;
/// Operators whose lines take their place, and whose gradient where elements are equal is their own ("What is missing"
/// of the page on ranks): a line that gathers would have it.
const OF_LINES: [&str; 5] = ["cosine_similarity", "max_unpool2d", "max_unpool3d", "median_of_all", "nanmedian_of_all"];
/// Operators whose lines would gather what is divided, and have another gradient than theirs: they get the whole, in
/// each way in which ranks can have their tensors.
const OF_WHOLES: [&str; 3] = ["lstsq", "max_unpool1d", "pinv"];

/// What ranks have of the tensors of a call.
#[derive(Debug, Clone, PartialEq)]
enum Had {
    /// Parts of these tensors along these dimensions.
    Parts(Vec<(usize, usize)>),
    /// Terms of the sum that a tensor is; with a dimension of sequences, along which sums are scattered.
    Terms(usize, Option<usize>),
}

/// The tensors of a call, and what is made of them.
struct Case {
    def: &'static OperatorDef,
    arguments: Vec<Arg<SampleTensor>>,
    had: Had,
    ranks: usize,
}

/// A tensor's elements and shape on each rank, or those of the whole on one.
type Given = (Vec<usize>, DType, Vec<f64>);

/// The part of elements that the rank at `place` has.
fn part((shape, dtype, values): &Given, dim: usize, place: usize, ranks: usize) -> Given {
    let own = shape[dim] / ranks;
    let inner: usize = shape[dim + 1..].iter().product();
    let rows = values.chunks((own * inner).max(1)).skip(place).step_by(ranks).flatten().copied().collect();
    let mut shape = shape.clone();
    shape[dim] = own;
    (shape, *dtype, rows)
}

impl Case {
    fn tensors(&self) -> Vec<&SampleTensor> {
        self.arguments.iter().flat_map(Arg::tensors).collect()
    }

    /// How the tensor at `at` is divided.
    fn divided(&self, at: usize) -> Option<usize> {
        match &self.had {
            Had::Parts(parts) => parts.iter().find(|(of, _)| *of == at).map(|(_, dim)| *dim),
            Had::Terms(of, _) => (*of == at).then_some(0),
        }
    }

    /// The whole of what is given for the tensor at `at`.
    fn whole(&self, at: usize) -> Given {
        let tensor = self.tensors()[at];
        let (shape, values) = (tensor.shape().to_vec(), tensor.values());
        match self.had {
            Had::Terms(of, _) if of == at => {
                let factor = |place: usize| [2.0, -1.0].get(place).copied().unwrap_or(0.0);
                let terms = (0..self.ranks).flat_map(|place| values.iter().map(move |value| value * factor(place)));
                ([&[self.ranks], &shape[..]].concat(), tensor.dtype(), terms.collect())
            }
            _ => (shape, tensor.dtype(), values),
        }
    }

    /// The results, and with `gradients` the loss and the gradients.
    fn compute(&self, list: &[Tensor], gradients: bool) -> Vec<Tensor> {
        let call = |list: &[Tensor]| {
            let mut list = list.to_vec();
            if let Had::Terms(at, _) = self.had {
                list[at] = prims::sum(list[at], [0]);
            }
            let mut list = list.into_iter();
            tracer::call(self.def, map_arguments(&self.arguments, |_| list.next().unwrap()))
        };
        if !gradients {
            return call(list);
        }
        let floating: Vec<usize> = (0..list.len()).filter(|at| list[*at].dtype().is_floating()).collect();
        let wrt: Vec<Tensor> = floating.iter().map(|at| list[*at]).collect();
        let ((loss, results), gradients) = value_and_grad_aux(wrt, |wrt| {
            let mut list = list.to_vec();
            floating.iter().zip(wrt).for_each(|(at, own)| list[*at] = *own);
            let results = call(&list);
            let terms = results.iter().filter(|result| result.dtype().is_floating()).map(|result| {
                let (shape, dtype) = (result.shape().to_vec(), result.dtype());
                let count = shape.iter().product();
                let cotangent = prims::sin(prims::iota(count, 1, 1, DType::F64, "cpu"));
                let cotangent = prims::reshape(prims::convert_element_type(cotangent, dtype), shape.clone());
                let terms = prims::mul(*result, cotangent);
                prims::convert_element_type(prims::sum(terms, (0..shape.len()).collect::<Vec<_>>()), DType::F64)
            });
            let none = || prims::full([0_usize; 0], 0.0, DType::F64, "cpu");
            (terms.reduce(|sum, term| sum + term).unwrap_or_else(none), results)
        });
        [results, vec![loss], gradients].concat()
    }

    /// What each of so many ranks gets.
    fn on(&self, ranks: usize, gradients: bool) -> Vec<Result<Vec<(DType, Vec<f64>)>, String>> {
        let mesh: Mesh = if ranks == 1 { Mesh::ONE } else { format!("tensor={ranks}").parse().unwrap() };
        let run = |rank: usize| {
            let mut options = Options { mesh: mesh.clone(), verify: true, ..Options::default() };
            let mut division = Division::new("tensor");
            let list = (0..self.tensors().len()).map(|at| {
                let mut given = self.whole(at);
                if let Some(dim) = self.divided(at).filter(|_| ranks > 1) {
                    let by = Divided::whole_extent(dim, given.0[dim]);
                    division = std::mem::take(&mut division).with_part(&format!("in.{at}"), by);
                    given = part(&given, dim, rank, ranks);
                }
                Array::from_f64(given.0, given.1, &given.2).map_err(|error| error.to_string())
            });
            let list = list.collect::<Result<Vec<Array>, String>>()?;
            if ranks > 1 {
                if let Had::Terms(_, sequence) = self.had {
                    division.sequence = sequence;
                }
                options = options.with_tensor_parallel(division);
            }
            let program = jit(|(list,): (Vec<Tensor>,)| self.compute(&list, gradients));
            let program = program.arguments(["in"]).results(["out"]).options(options);
            let out = program.call((list,)).map_err(|error| error.to_string())?;
            Ok(out.iter().map(|array| (array.dtype(), array.to_f64().unwrap())).collect())
        };
        if ranks == 1 { vec![run(0)] } else { ranks::simulate(&mesh, run).map_err(|error| error.to_string()).unwrap() }
    }

    /// What is wrong with what the ranks get.
    fn wrong(&self) -> Option<String> {
        let floating = self.tensors().iter().any(|tensor| tensor.dtype().is_floating());
        // Of what is infinite or NaN the value alone: the gradients of an operator's lines may be NaN where its own are
        // not.
        let finite = self.tensors().iter().all(|tensor| tensor.values().iter().all(|value| value.is_finite()));
        let (alone, gradients) = match self.on(1, floating && finite).remove(0) {
            Ok(alone) => (alone, floating && finite),
            Err(_) => (self.on(1, false).remove(0).ok()?, false),
        };
        let tensors = self.tensors();
        let dtypes = tensors.iter().map(|tensor| tensor.dtype()).chain(alone.iter().map(|(dtype, _)| *dtype));
        let tolerances = dtypes.map(|dtype| match dtype {
            DType::BF16 | DType::F16 => 3e-2,
            DType::F32 => 1e-5,
            _ => 1e-9,
        });
        let tolerance = tolerances.fold(0.0, f64::max);
        for (rank, found) in self.on(self.ranks, gradients).into_iter().enumerate() {
            let found = match found {
                Ok(found) => found,
                Err(message) if message.contains(REFUSED) => return None,
                Err(message) => return Some(format!("rank {rank}: error: {message}")),
            };
            for (at, ((_, found), (_, alone))) in found.iter().zip(&alone).enumerate() {
                let largest = alone.iter().filter(|x| x.is_finite()).fold(1e-3_f64, |most, x| most.max(x.abs()));
                let close =
                    |a: &f64, b: &f64| a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance * largest;
                if found.len() != alone.len() || !found.iter().zip(alone).all(|(a, b)| close(a, b)) {
                    let show = |values: &[f64]| format!("{:?}", &values[..values.len().min(12)]);
                    return Some(format!(
                        "rank {rank}: output {at} of {} (gradients {gradients}): {}, alone {}",
                        alone.len(),
                        show(found),
                        show(alone)
                    ));
                }
            }
        }
        None
    }
}

/// All that ranks can have of the tensors of a sample.
fn divisions(tensors: &[&SampleTensor]) -> Vec<(Had, usize)> {
    let factor = |extent: usize| [2, 3, 5, 7].into_iter().find(|prime| extent > 0 && extent.is_multiple_of(*prime));
    let mut all = Vec::new();
    let mut alike: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, tensor) in tensors.iter().enumerate() {
        for (dim, extent) in tensor.shape().iter().enumerate() {
            let Some(ranks) = factor(*extent) else { continue };
            all.push((Had::Parts(vec![(at, dim)]), ranks));
            let list = alike.entry(*extent).or_default();
            if list.iter().all(|(other, _)| *other != at) {
                list.push((at, dim));
            }
        }
        if tensor.dtype().is_floating() || tensor.dtype() == DType::I64 {
            all.push((Had::Terms(at, None), 2));
            if let [_, positions, _] = tensor.shape()
                && let Some(ranks) = factor(*positions)
            {
                all.push((Had::Terms(at, Some(1)), ranks));
            }
        }
    }
    for (extent, list) in alike.into_iter().filter(|(_, list)| list.len() > 1) {
        all.push((Had::Parts(list), factor(extent).unwrap()));
    }
    all
}

/// Of each operator some samples, those at kinks first, each with one of the ways in which ranks can have its tensors.
#[test]
fn operators_of_parts_compute_what_one_rank_does() {
    let (mut tried, mut wrong, mut of_lines) = (0, Vec::new(), Vec::new());
    for def in operators() {
        let mut samples: Vec<_> =
            [DType::F64, DType::I64].into_iter().flat_map(|dtype| Samples::of_operator(def, dtype)).collect();
        samples.sort_by_key(|sample| sample.forward_only.is_none());
        let small = |tensors: &[&SampleTensor]| {
            tensors.iter().map(|tensor| tensor.shape().iter().product::<usize>()).sum::<usize>() <= ELEMENTS
        };
        let before = tried;
        for sample in samples {
            let tensors: Vec<&SampleTensor> = sample.arguments.iter().flat_map(Arg::tensors).collect();
            let all = divisions(&tensors);
            if tried - before == CASES || all.is_empty() || !small(&tensors) {
                continue;
            }
            // One division of each; all of the operators of which one is known to differ, so that the list stays true.
            let known = OF_LINES.contains(&def.name);
            let every = known || OF_WHOLES.contains(&def.name);
            let chosen = if every { all } else { vec![all[(5 * tried) % all.len()].clone()] };
            tried += 1;
            for (had, ranks) in chosen {
                let case = Case { def, arguments: sample.arguments.clone(), had, ranks };
                let Some(found) = case.wrong() else { continue };
                if known {
                    of_lines.push(def.name);
                    continue;
                }
                let of: Vec<String> = tensors.iter().map(|tensor| tensor.description()).collect();
                wrong.push(format!("{} of {}, {:?} on {ranks}: {found}", def.name, of.join(", "), case.had));
            }
        }
    }
    assert!(tried > 500, "only {tried} calls were tried");
    of_lines.dedup();
    assert_eq!(of_lines, OF_LINES, "operators whose lines have another gradient");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Of equal singular values the singular vectors have no derivative, and the pseudo-inverse has one.
#[test]
fn a_pseudo_inverse_of_equal_singular_values_has_its_own_gradient() {
    let def = operators().into_iter().find(|def| def.name == "pinv").unwrap();
    let values = [2.0, 0.0, 0.0, 2.0];
    let arguments = &Samples::of_operator(def, DType::F64)[0].arguments;
    for dim in 0..2 {
        let arguments = map_arguments(arguments, |_| SampleTensor::literal(&[2, 2], DType::F64, values.into()));
        let case = Case { def, arguments, had: Had::Parts(vec![(0, dim)]), ranks: 2 };
        assert_eq!(case.wrong(), None);
    }
}
