//! `value_and_grad`: one line of the trace, which holds the differentiated function as its body.

use std::panic::resume_unwind;
use std::sync::Arc;

use super::tensor::{POISON, Tensor};
use super::{Poisoned, TRACER, append, build, with_top};
use crate::argument::Arg;
use crate::error::{CallStack, Error, Failure, Place};
use crate::meta::TensorMeta;
use crate::operator::ResultsDef;
use crate::trace::{BoundSymbol, Callee, Pass, Results, ValueId};
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
    let mut outer = Vec::new();
    let mut paths: Vec<String> = Vec::new();
    parameters.visit("", &mut |path, tensor| {
        outer.push(*tensor);
        paths.push(path.to_owned());
    });
    let name_of = |tensor: &Tensor| {
        with_top(|builder| tensor.value_in(builder).map(|value| builder.block.value(value).name.clone())).flatten()
    };
    let named: Vec<(Arc<str>, TensorMeta)> =
        outer.iter().map(|tensor| (name_of(tensor).unwrap_or_else(|| "parameter".into()), tensor.meta())).collect();
    let failed = |error: Error| {
        with_top(|builder| builder.fail(error.in_operator("value_and_grad", Some(place))));
    };
    let poisoned = with_top(|builder| builder.error.is_some()).unwrap_or(true);
    let (mut structure, mut aux) = (Some(parameters), aux);
    let traced = if poisoned {
        Err(None)
    } else {
        let parameters = structure.take();
        build(&named, true, |handles| {
            let mut handles = handles.iter();
            let inner = parameters
                .unwrap_or_else(|| unreachable!("taken once"))
                .map(&mut |_| *handles.next().unwrap_or_else(|| unreachable!("one for each leaf")));
            let (loss, others) = f(&inner);
            let mut results = vec![loss];
            others.visit("", &mut |_, tensor| results.push(*tensor));
            (structure, aux) = (Some(inner), Some(others));
            results
        })
        .map_err(Some)
    };
    let poison = |structure: Option<P>, aux: Option<A>| {
        let poison = with_top(|builder| builder.poison()).unwrap_or(Tensor::PLACEHOLDER);
        match (structure, aux) {
            (Some(structure), Some(aux)) => ((poison, aux.map(&mut |_| poison)), structure.map(&mut |_| poison)),
            _ => resume_unwind(Box::new(Poisoned)),
        }
    };
    let (block, captures) = match traced {
        Ok(traced) => traced,
        Err(error) => {
            if let Some(error) = error {
                failed(error);
            }
            return poison(structure, aux);
        }
    };
    let loss = block.meta(block.results[0]).clone();
    let problem = if loss.rank() != 0 || !loss.dtype().is_floating() {
        Some(Failure::new(
            "LossMeta",
            format!("the function returned {loss}, expected a zero-dimensional floating-point tensor"),
        ))
    } else {
        named.iter().zip(&paths).find(|((_, meta), _)| !meta.dtype().is_floating()).map(|((name, meta), path)| {
            // A tensor by itself has no path inside the tree of parameters.
            let path = if path.is_empty() { name } else { path.as_str() };
            Failure::new("ParameterDType", format!("parameter '{path}' is {meta}, expected a floating-point dtype"))
        })
    };
    if let Some(failure) = problem {
        failed(Error::Operator {
            operator: "value_and_grad".into(),
            failure,
            stack: CallStack { at: Some(place), frames: Vec::new() },
        });
        return poison(structure, aux);
    }
    let mut metas: Vec<TensorMeta> = block.results.iter().map(|id| block.meta(*id).clone()).collect();
    metas.extend(named.iter().map(|(_, meta)| meta.clone()));
    // Auxiliary outputs keep the names that they have inside.
    let mut bases: Vec<Arc<str>> = block.results.iter().map(|id| block.value(*id).name.clone()).collect();
    bases.extend(named.iter().map(|(name, _)| Arc::from(format!("grad.{name}"))));
    let own = block.results.len();
    let arguments = TRACER.with_borrow_mut(|tracer| {
        let level = tracer.stack.len() - 1;
        let mut values: Vec<ValueId> =
            outer.iter().map(|tensor| tracer.resolve(level, *tensor).unwrap_or(POISON)).collect();
        values.extend(captures.iter().map(|(outer, _)| *outer));
        values
    });
    let symbol = BoundSymbol {
        callee: Callee::ValueAndGrad { wrt: (0..outer.len()).collect() },
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
    let (mut others, mut gradients) = (results[1..own].iter(), results[own..].iter());
    let (Some(structure), Some(aux)) = (structure, aux) else { unreachable!("put back by the traced function") };
    let next_of = |tensors: &mut std::slice::Iter<'_, Tensor>| {
        *tensors.next().unwrap_or_else(|| unreachable!("one for each leaf"))
    };
    let aux = aux.map(&mut |_| next_of(&mut others));
    ((results[0], aux), structure.map(&mut |_| next_of(&mut gradients)))
}
