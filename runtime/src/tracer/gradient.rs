//! `value_and_grad`: one line of the trace, which holds the differentiated function as its body.

use std::panic::resume_unwind;
use std::sync::Arc;

use super::{POISON, Poisoned, TRACER, Tensor, append, build, with_top};
use crate::argument::Arg;
use crate::error::{CallStack, Error, Failure, Place};
use crate::meta::TensorMeta;
use crate::trace::{BoundSymbol, Callee, Results, ValueId};
use crate::tree::Tree;

/// The value of `f` and its gradients with respect to `parameters`. `f` returns a floating-point scalar; it may use any
/// other tensor of the trace around it. The call is one line of the trace, which the autodiff transform expands.
#[track_caller]
pub fn value_and_grad<P: Tree<Leaf = Tensor, With<Tensor> = P>>(
    parameters: P,
    f: impl FnOnce(&P) -> Tensor,
) -> (Tensor, P) {
    let place = Place::caller();
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
    let mut structure = Some(parameters);
    let traced = if poisoned {
        Err(None)
    } else {
        let parameters = structure.take();
        build(&named, true, |handles| {
            let mut handles = handles.iter();
            let inner = parameters
                .unwrap_or_else(|| unreachable!("taken once"))
                .map(&mut |_| *handles.next().unwrap_or_else(|| unreachable!("one for each leaf")));
            let loss = f(&inner);
            structure = Some(inner);
            vec![loss]
        })
        .map_err(Some)
    };
    let poison = |structure: Option<P>| {
        let poison = with_top(|builder| builder.poison()).unwrap_or(Tensor::PLACEHOLDER);
        match structure {
            Some(structure) => (poison, structure.map(&mut |_| poison)),
            None => resume_unwind(Box::new(Poisoned)),
        }
    };
    let (block, captures) = match traced {
        Ok(traced) => traced,
        Err(error) => {
            if let Some(error) = error {
                failed(error);
            }
            return poison(structure);
        }
    };
    let loss = block.meta(block.results[0]).clone();
    let problem = if loss.rank() != 0 || !loss.dtype().is_floating() {
        Some(Failure::new(
            "LossMeta",
            format!("the function returned {loss}, expected a zero-dimensional floating-point tensor"),
        ))
    } else {
        named.iter().zip(&paths).find(|((_, meta), _)| !meta.dtype().is_floating()).map(|((_, meta), path)| {
            Failure::new("ParameterDType", format!("parameter '{path}' is {meta}, expected a floating-point dtype"))
        })
    };
    if let Some(failure) = problem {
        failed(Error::Operator {
            operator: "value_and_grad".into(),
            failure,
            stack: CallStack { at: Some(place), frames: Vec::new() },
        });
        return poison(structure);
    }
    let mut metas = vec![loss];
    metas.extend(named.iter().map(|(_, meta)| meta.clone()));
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
        executor: None,
        refusals: Vec::new(),
        place: Some(place),
    };
    let results = append(symbol, "value_and_grad", metas);
    with_top(|builder| {
        let names: Vec<Arc<str>> = std::iter::once(builder.scoped("loss"))
            .chain(named.iter().map(|(name, _)| Arc::from(format!("grad.{name}"))))
            .map(|base| builder.fresh_name(base))
            .collect();
        for (tensor, name) in results.iter().zip(names) {
            builder.block.values[tensor.value.index()].name = name;
        }
    });
    let mut gradients = results[1..].iter();
    let structure = structure.unwrap_or_else(|| unreachable!("put back by the traced function"));
    (results[0], structure.map(&mut |_| *gradients.next().unwrap_or_else(|| unreachable!("one for each leaf"))))
}
