//! `value_and_grad`: one line of the trace, which holds the differentiated function as its body.

use std::panic::resume_unwind;
use std::sync::Arc;

use super::tensor::{POISON, Tensor};
use super::{Poisoned, TRACER, append, build, with_top};
use crate::argument::Arg;
use crate::error::{CallStack, Error, Failure, Place};
use crate::meta::TensorMeta;
use crate::operator::ResultsDef;
use crate::trace::{Block, BoundSymbol, Callee, Pass, Results, ValueId};
use crate::tree::Tree;

/// The value of `f` and its gradients with respect to `parameters`. `f` returns a floating-point scalar; it may use any
/// other tensor of the trace around it, and may itself call `value_and_grad`: what that gives is differentiated again.
/// The call is one line of the trace, which the autodiff transform expands.
#[track_caller]
pub fn value_and_grad<P: Tree<Leaf = Tensor, With<Tensor> = P>>(
    parameters: P,
    f: impl FnOnce(&P) -> Tensor,
) -> (Tensor, P) {
    let with_nothing = |parameters: &P| (f(parameters), Vec::<Tensor>::new());
    let ((loss, _), gradients) = differentiate(parameters, with_nothing, Some(Vec::new()), Place::caller());
    (loss, gradients)
}

/// As [`value_and_grad`], of an `f` that also returns auxiliary outputs: a tree of tensors that are not differentiated,
/// such as logits or the running statistics of a normalization. (JAX calls it `has_aux`.)
#[track_caller]
pub fn value_and_grad_aux<P, A>(parameters: P, f: impl FnOnce(&P) -> (Tensor, A)) -> ((Tensor, A), P)
where
    P: Tree<Leaf = Tensor, With<Tensor> = P>,
    A: Tree<Leaf = Tensor, With<Tensor> = A>,
{
    differentiate(parameters, f, None, Place::caller())
}

/// In a rule `grad`, and in the pullback that it returns: whether the gradient by the operand `tensor` is read, so that
/// a rule may choose a kernel that leaves it out. A frozen weight has no such reader. True outside of such a rule.
pub fn wants_gradient(tensor: Tensor) -> bool {
    with_top(|builder| !builder.constants.contains(&tensor)).unwrap_or(true)
}

/// Traces `f` and adds the line. `aux` are the auxiliary outputs where `f` fails, if their structure is known
/// beforehand.
fn differentiate<P, A>(
    parameters: P,
    f: impl FnOnce(&P) -> (Tensor, A),
    aux: Option<A>,
    place: Place,
) -> ((Tensor, A), P)
where
    P: Tree<Leaf = Tensor, With<Tensor> = P>,
    A: Tree<Leaf = Tensor, With<Tensor> = A>,
{
    let leaves = Leaves::of(&parameters);
    let (mut structure, mut aux) = (Some(parameters), aux);
    // Behind a failing call nothing is traced.
    let poisoned = with_top(|builder| builder.error.is_some()).unwrap_or(true);
    let traced = if poisoned { None } else { traced(&mut structure, &mut aux, &leaves, f, place) };
    let line = traced.and_then(|(block, captures)| {
        leaves.check(&block, place)?;
        Some(leaves.append_line(block, &captures, place))
    });
    let (Some(structure), Some(aux)) = (structure, aux) else { resume_unwind(Box::new(Poisoned)) };
    match line {
        Some((results, own)) => {
            let (mut others, mut gradients) = (results[1..own].iter(), results[own..].iter());
            let next_of = |tensors: &mut std::slice::Iter<'_, Tensor>| {
                *tensors.next().unwrap_or_else(|| unreachable!("one for each leaf"))
            };
            let aux = aux.map(&mut |_| next_of(&mut others));
            ((results[0], aux), structure.map(&mut |_| next_of(&mut gradients)))
        }
        None => {
            let poison = with_top(|builder| builder.poison()).unwrap_or(Tensor::PLACEHOLDER);
            ((poison, aux.map(&mut |_| poison)), structure.map(&mut |_| poison))
        }
    }
}

/// Records an error of the call at `place`.
fn fail(error: Error, place: Place) {
    with_top(|builder| builder.fail(error.in_operator("value_and_grad", Some(place))));
}

/// A block, and what it captures: the values outside, and those that stand for them inside.
type Traced = (Block, Vec<(ValueId, ValueId)>);

/// Traces `f` on handles of the parameters, which take the place of those outside. `structure` and `aux` are what `f`
/// was given and what it returned, if it did. An error is recorded.
fn traced<P, A>(
    structure: &mut Option<P>,
    aux: &mut Option<A>,
    leaves: &Leaves,
    f: impl FnOnce(&P) -> (Tensor, A),
    place: Place,
) -> Option<Traced>
where
    P: Tree<Leaf = Tensor, With<Tensor> = P>,
    A: Tree<Leaf = Tensor, With<Tensor> = A>,
{
    let parameters = structure.take()?;
    let made = build(&leaves.named, true, |handles| {
        let mut handles = handles.iter();
        let inner = parameters.map(&mut |_| *handles.next().unwrap_or_else(|| unreachable!("one for each leaf")));
        let (loss, others) = f(&inner);
        let mut results = vec![loss];
        others.visit("", &mut |_, tensor| results.push(*tensor));
        (*structure, *aux) = (Some(inner), Some(others));
        results
    });
    made.map_err(|error| fail(error, place)).ok()
}

/// The leaves of the parameters, outside of the differentiated function.
struct Leaves {
    outer: Vec<Tensor>,
    paths: Vec<String>,
    /// What they are called in the trace around the line, and their metas.
    named: Vec<(Arc<str>, TensorMeta)>,
}

impl Leaves {
    fn of<P: Tree<Leaf = Tensor>>(parameters: &P) -> Leaves {
        let (mut outer, mut paths) = (Vec::new(), Vec::new());
        parameters.visit("", &mut |path, tensor| {
            outer.push(*tensor);
            paths.push(path.to_owned());
        });
        let name_of = |tensor: &Tensor| {
            with_top(|builder| tensor.value_in(builder).map(|value| builder.block.value(value).name.clone())).flatten()
        };
        let named = |tensor: &Tensor| (name_of(tensor).unwrap_or_else(|| "parameter".into()), tensor.meta());
        let named = outer.iter().map(named).collect();
        Leaves { outer, paths, named }
    }

    /// Records an error, and gives nothing, if the function has no gradients: of its loss or its parameters.
    fn check(&self, block: &Block, place: Place) -> Option<()> {
        let loss = block.meta(block.results[0]);
        let failure = if loss.rank() != 0 || !loss.dtype().is_floating() {
            Failure::new(
                "LossMeta",
                format!("the function returned {loss}, expected a zero-dimensional floating-point tensor"),
            )
        } else {
            let mut leaves = self.named.iter().zip(&self.paths);
            let Some(((name, meta), path)) = leaves.find(|((_, meta), _)| !meta.dtype().is_differentiable()) else {
                return Some(());
            };
            // A tensor by itself has no path inside the tree of parameters.
            let path = if path.is_empty() { name } else { path.as_str() };
            Failure::new("ParameterDType", format!("parameter '{path}' is {meta}, expected a floating-point dtype"))
        };
        let stack = CallStack { at: Some(place), frames: Vec::new() };
        fail(Error::Operator { operator: "value_and_grad".into(), failure, stack }, place);
        None
    }

    /// Adds the line that holds the function. Its results, and how many of them are the function's own: the gradients
    /// come behind them.
    fn append_line(&self, block: Block, captures: &[(ValueId, ValueId)], place: Place) -> (Vec<Tensor>, usize) {
        let own = block.results.len();
        let mut metas: Vec<TensorMeta> = block.results.iter().map(|id| block.meta(*id).clone()).collect();
        metas.extend(self.named.iter().map(|(_, meta)| meta.clone()));
        // Auxiliary outputs keep the names that they have inside.
        let mut bases: Vec<Arc<str>> = block.results.iter().map(|id| block.value(*id).name.clone()).collect();
        bases.extend(self.named.iter().map(|(name, _)| Arc::from(format!("grad.{name}"))));
        let arguments = TRACER.with_borrow_mut(|tracer| {
            let level = tracer.stack.len() - 1;
            let mut values: Vec<ValueId> =
                self.outer.iter().map(|tensor| tracer.resolve(level, *tensor).unwrap_or(POISON)).collect();
            values.extend(captures.iter().map(|(outer, _)| *outer));
            values
        });
        let symbol = BoundSymbol {
            callee: Callee::ValueAndGrad { wrt: (0..self.outer.len()).collect() },
            arguments: vec![Arg::List(arguments)],
            results: Results::new(),
            body: Some(Arc::new(block.canonical())),
            pass: Pass::Forward,
            executor: None,
            schedule: Default::default(),
            refusals: Vec::new(),
            place: Some(place),
        };
        let results = append(symbol, "value_and_grad", ResultsDef::List, metas);
        with_top(|builder| {
            bases[0] = builder.scoped("loss");
            for (tensor, base) in results.iter().zip(bases) {
                let name = builder.fresh_name(base);
                builder.block.values[tensor.value.index()].name = name;
            }
        });
        (results, own)
    }
}
