//! What the directives of operators allow a program's results besides: each result what those on the way to it allow,
//! as far as they speak of its executors, its templates and the element types that the operators meet there.

use crate::executor::{ExecutorDef, find_executor, find_implementation};
use crate::operator::RuleSet;
use crate::rules::TestRules;
use fulgurite_kernels::DType;

use crate::directives::{DirectiveKind, Template, Tolerance};
use crate::trace::{Block, BoundSymbol, Trace};

/// For each result the loosest tolerance of the operators that it comes from. `executors` are those that may run the
/// program, `gradient` says whether it has its vjp.
pub(super) fn tolerances(trace: &Trace, executors: &[&str], gradient: bool) -> Vec<Tolerance> {
    let block = &trace.block;
    let of = |result: usize| {
        let mut needed = vec![false; block.values.len()];
        needed[block.results[result].index()] = true;
        // What is a part of the scale is for results in the element type of the directive, or in any if it names none.
        let mut found = Tolerance { dtype: Some(block.meta(block.results[result]).dtype()), ..Tolerance::NONE };
        for symbol in block.symbols.iter().rev() {
            if symbol.results.iter().any(|id| needed[id.index()]) {
                symbol.operands().for_each(|id| needed[id.index()] = true);
                add(block, symbol, executors, gradient, &mut found);
            }
        }
        found
    };
    (0..block.results.len()).map(of).collect()
}

/// Adds what the directives of a symbol, and of those in its body, allow.
fn add(block: &Block, symbol: &BoundSymbol, executors: &[&str], gradient: bool, found: &mut Tolerance) {
    let met = |dtype: DType| {
        let mut values = symbol.operands().chain(symbol.results.iter().copied());
        values.any(|id| block.meta(id).dtype() == dtype)
    };
    let runners = || executors.iter().filter_map(|name| find_executor(name).ok());
    // Those whose precision is less than the type's, and which may run this symbol.
    let runs = |executor: &ExecutorDef| {
        symbol.operator().is_some_and(|def| {
            def.kind.is_owned_by(executor.name) || find_implementation(def.name, executor.name).is_some()
        })
    };
    for executor in runners().filter(|executor| met(DType::F32) && runs(executor)) {
        let own = Tolerance::of(executor.precision, Template::Consistency, Some(DType::F32));
        found.factor = found.factor.max(own.factor);
        if found.dtype == Some(DType::F32) {
            found.scaled = found.scaled.max(own.scaled);
        }
    }
    for directive in symbol.operator().map_or(&[][..], |def| TestRules::of(def).directives) {
        let DirectiveKind::Tolerance(own) = directive.kind else { continue };
        let has = |template: Template| directive.templates.contains(&template);
        if (has(Template::Consistency) || gradient && has(Template::Gradient))
            && directive.executor.is_none_or(|name| executors.contains(&name))
            && directive.precision.is_none_or(|precision| runners().any(|executor| executor.precision == precision))
            && directive.dtype.is_none_or(met)
        {
            found.factor = found.factor.max(own.factor);
            if directive.dtype.is_none_or(|named| found.dtype == Some(named)) {
                found.scaled = found.scaled.max(own.scaled);
            }
        }
    }
    if let Some(body) = &symbol.body {
        body.symbols.iter().for_each(|inner| add(body, inner, executors, gradient, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Arg;
    use crate::directives::Directive;
    use crate::meta::{Device, TensorMeta};
    use crate::operator::{Class, OperatorDef, OperatorKind};
    use crate::subject::trace_of;
    use crate::tracer::rules::TracingRules;
    use crate::tracer::{Tensor, call, trace_block};
    use fulgurite_ir::expansion;
    use fulgurite_ir::registry::{OPERATORS, find_operator};

    const LOOSE: Directive = Directive {
        kind: DirectiveKind::Tolerance(Tolerance::new(4096.0, 0.0)),
        templates: &[Template::Consistency],
        executor: None,
        precision: None,
        dtype: None,
        sample: None,
        reason: "to be told from the others",
    };

    const SAME: TracingRules =
        TracingRules { meta: Some(&|arguments| Ok(vec![arguments[0].tensors()[0].clone()])), ..TracingRules::EMPTY };

    const BASE: OperatorDef = OperatorDef {
        kind: OperatorKind::Prim,
        params: &[expansion::tensor::define("input", Class::Any)],
        ..expansion::OPERATOR
    };

    macro_rules! operators {
        ($($id:ident: $name:literal, $directives:expr;)*) => {$(
            #[linkme::distributed_slice(OPERATORS)]
            static $id: &OperatorDef = &OperatorDef {
                name: $name,
                rules: &[&SAME, &TestRules { directives: $directives, ..TestRules::EMPTY }],
                ..BASE
            };
        )*};
    }

    operators! {
        STRICT: "slack::strict", &[];
        EVERYWHERE: "slack::loose", &[LOOSE];
        ELSEWHERE: "slack::loose_elsewhere", &[Directive { executor: Some("elsewhere"), ..LOOSE }];
        IN_F64: "slack::loose_in_f64", &[Directive { dtype: Some(DType::F64), ..LOOSE }];
        GRADIENT: "slack::loose_gradient", &[Directive { templates: &[Template::Gradient], ..LOOSE }];
        SCALED: "slack::scaled", &[Directive { kind: DirectiveKind::Tolerance(Tolerance::new(1.0, 8.0)), ..LOOSE }];
        SCALED_IN_F64: "slack::scaled_in_f64", &[Directive {
            kind: DirectiveKind::Tolerance(Tolerance::new(1.0, 8.0)),
            dtype: Some(DType::F64),
            ..LOOSE
        }];
        SECOND: "slack::loose_second", &[Directive { templates: &[Template::SecondGradient], ..LOOSE }];
    }

    fn factors(names: &[&str], dtype: DType, executors: &[&str], gradient: bool) -> Vec<f64> {
        found(names, dtype, executors, gradient).into_iter().map(|tolerance| tolerance.factor).collect()
    }

    fn found(names: &[&str], dtype: DType, executors: &[&str], gradient: bool) -> Vec<Tolerance> {
        let parameters = [("x".into(), TensorMeta::new([2], dtype, Device::CPU))];
        let apply = |name: &str, x: Tensor| call(find_operator(name).unwrap(), vec![Arg::Tensor(x)])[0];
        // Each on its own, and then the strict one of the first.
        let block = trace_block(&parameters, |x| {
            let mut results: Vec<Tensor> = names.iter().map(|name| apply(name, x[0])).collect();
            results.push(apply("slack::strict", results[0]));
            results
        });
        tolerances(&trace_of("slack", block.unwrap()), executors, gradient)
    }

    #[test]
    fn a_loose_operator_speaks_of_what_comes_from_it_alone() {
        let names = ["slack::loose", "slack::strict"];
        assert_eq!(factors(&names, DType::F32, &["cpu"], false), [4096.0, 1.0, 4096.0]);
    }

    #[test]
    fn a_directive_speaks_of_its_executor_its_type_and_its_template() {
        let of = |name: &str, dtype, executors: &[&str], gradient| factors(&[name], dtype, executors, gradient)[0];
        assert_eq!(of("slack::loose_elsewhere", DType::F32, &["cpu"], true), 1.0);
        assert_eq!(of("slack::loose_elsewhere", DType::F32, &["elsewhere", "cpu"], true), 4096.0);
        assert_eq!(of("slack::loose_in_f64", DType::F32, &["cpu"], true), 1.0);
        assert_eq!(of("slack::loose_in_f64", DType::F64, &["cpu"], true), 4096.0);
        assert_eq!(of("slack::loose_gradient", DType::F32, &["cpu"], false), 1.0);
        assert_eq!(of("slack::loose_gradient", DType::F32, &["cpu"], true), 4096.0);
        assert_eq!(of("slack::loose_second", DType::F32, &["cpu"], true), 1.0);
    }

    #[test]
    fn a_part_of_the_scale_is_allowed_in_the_types_that_a_directive_speaks_of() {
        let of = |name: &str, dtype: DType| found(&[name], dtype, &["cpu"], false)[0].scaled_of(dtype);
        assert_eq!(of("slack::scaled", DType::F32), 8.0);
        assert_eq!(of("slack::scaled", DType::BF16), 8.0);
        assert_eq!(of("slack::scaled_in_f64", DType::F64), 8.0);
        assert_eq!(of("slack::scaled_in_f64", DType::F32), 0.0);
        assert_eq!(of("slack::strict", DType::F32), 0.0);
    }
}
