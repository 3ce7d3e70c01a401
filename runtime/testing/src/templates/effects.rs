//! Inputs stay unchanged; results have memory of their own; random draws stay apart.

use crate::operator::RuleSet;
use crate::strided::LayoutRules;
use fulgurite_kernels::view::contiguous_strides;

use crate::argument::map_arguments;
use crate::error::Place;
use crate::meta::Device;
use crate::problem::{Check, Problem, ensure};
use crate::strided::Strided;
use crate::subject::{Subject, trace_of};
use crate::test::{Context, Outcome, PASSED};
use crate::trace::{Callee, Trace};
use crate::tracer::{self, trace_rule};
use crate::transforms::{cse, dce};

/// See the module.
pub(crate) fn check(context: &Context, subject: &Subject) -> Check<Outcome> {
    let list = context.list()?;
    let ran = subject.forward(&list);
    let ran = ran.as_ref().as_ref().map_err(Problem::clone)?;
    // Where the program runs, so that it gets the arrays themselves and no copies.
    let device = Device::new(list.device(), 0);
    let inputs =
        ran.inputs.iter().map(|array| array.to_contiguous()?.to_device(device)).collect::<Result<Vec<_>, _>>()?;
    let before = inputs.iter().map(crate::Array::to_bytes).collect::<Result<Vec<_>, _>>()?;
    let outputs = ran.program.run(inputs.clone())?;
    let names = parameter_names(subject.trace()?);
    for ((input, before), name) in inputs.iter().zip(&before).zip(&names) {
        ensure!(
            input.to_bytes()? == *before,
            "input '{name}' was changed; a kernel writes its results alone, and takes the memory of an operand for one \
             where it declares `in_place`"
        );
    }
    let block = &ran.program.trace().block;
    for (i, output) in outputs.iter().enumerate() {
        for (j, input) in inputs.iter().enumerate() {
            let shared = output.shares_memory(input) && !output.meta().is_empty();
            // A result that is the argument itself shares it as a value, which nothing can write to.
            let same_value = block.results[i] == block.parameters[j];
            ensure!(
                !shared || same_value,
                "{} shares the memory of input '{}'",
                subject.def.results.describe(i),
                names[j]
            );
        }
    }
    viewed(subject)?;
    merging(subject)?;
    PASSED
}

/// What can be seen as a view is no copy, where the operands are contiguous.
fn viewed(subject: &Subject) -> Check {
    let Some(rule) = LayoutRules::of(subject.def).view else { return Ok(()) };
    let arguments =
        map_arguments(&subject.metas, |meta| Strided { strides: contiguous_strides(meta.shape()), meta: meta.clone() });
    ensure!(rule(&arguments).is_some(), "the rule `view` refuses a contiguous operand, which is copied for it");
    Ok(())
}

fn parameter_names(trace: &Trace) -> Vec<String> {
    trace.block.parameters.iter().map(|id| trace.block.value(*id).name.to_string()).collect()
}

/// Two equal calls become one exactly where no declared effect keeps them apart.
fn merging(subject: &Subject) -> Check {
    let def = subject.def;
    let block = trace_rule(def, &subject.metas, |arguments| {
        let mut results = tracer::calls::call_at(def, arguments.to_vec(), Place::declared(def));
        results.extend(tracer::calls::call_at(def, arguments.to_vec(), Place::declared(def)));
        results
    })?;
    // And two draws from one generator are made with two.
    let drawn: Vec<&[crate::trace::ValueId]> = (block.symbols.iter())
        .filter(|symbol| symbol.callee == Callee::Operator(def))
        .filter_map(|symbol| Some(symbol.arguments.get(def.effects.generator?)?.tensors()))
        .collect();
    if let ([first, second], true) = (&drawn[..], def.effects.random) {
        ensure!(first.is_empty() || first != second, "two calls with one generator draw the same numbers");
    }
    let merged = dce::dce(&cse::cse(&trace_of(def.short_name(), block)));
    let calls = merged.block.symbols.iter().filter(|symbol| symbol.callee == Callee::Operator(def)).count();
    let inner_effects = subject.trace()?.block.symbols.iter().any(|symbol| has_effects(symbol.body.as_deref()));
    let expected = if def.effects.mergeable() && !inner_effects { 1 } else { 2 };
    ensure!(
        calls == expected,
        "two equal calls became {calls} after common subexpression elimination, expected {expected}, by the declared \
         effects {:?}",
        def.effects
    );
    Ok(())
}

/// Whether something inside a decomposition keeps calls apart.
fn has_effects(body: Option<&crate::trace::Block>) -> bool {
    body.is_some_and(|body| {
        body.symbols.iter().any(|symbol| {
            symbol.operator().is_some_and(|def| !def.effects.mergeable()) || has_effects(symbol.body.as_deref())
        })
    })
}
