//! Both sides of a rewrite agree on its samples, forward and backward; it fires on its own pattern, and on nothing that
//! only looks like it: where two tensors of the pattern are told apart, both sides must differ only as the program
//! does. It fires as well where operands that commute are in the other order, and, if it keeps inner
//! values, where one of them is returned; otherwise it leaves such a program alone, or right. An attribute that the
//! pattern binds is tried with other values than the samples have, and with another value in one of its places.

use fulgurite_kernels::DType;

use crate::argument::{Arg, Attribute, map_arguments};
use crate::array::Array;
use crate::error::Result;
use crate::executor::RewriteDef;
use crate::executor_list::List;
use crate::fuel::Fuel;
use crate::meta::{Device, TensorMeta};
use crate::operator::ParamKind;
use crate::problem::{Check, Problem, ensure};
use crate::samples::Samples;
use crate::subject::{joint_trace, random_like, trace_of};
use crate::test::{Outcome, PASSED};
use crate::tolerance::{Expected, SAME_IN_F64};
use crate::trace::{Block, BoundSymbol, StageName, Trace, ValueId};
use crate::tracer::rules::TracedRule;
use crate::transforms::rewrite;

/// How often it fires on a program at most: on a pattern once, unless it matches what it writes.
const FUEL: u64 = 64;
/// How many other values of an attribute are tried beside each sample.
const OTHER_VALUES: usize = 2;

/// See the module.
pub(crate) fn check(def: &'static RewriteDef) -> Check<Outcome> {
    rewrite::check(def)?;
    let mut tested = 0;
    // Of each attribute, whether both sides were compared with more than one value of it.
    let mut values: Vec<Vec<Attribute>> = vec![Vec::new(); def.params.len()];
    for dtype in [DType::F64, DType::F32] {
        let mut samples = Samples::new(None, dtype);
        let Some(declare) = def.samples else { return Err("declares no samples".into()) };
        declare(&mut samples);
        for (i, sample) in samples.into_cases().into_iter().enumerate() {
            let arguments = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
            ensure!(
                arguments.len() == def.params.len(),
                "sample {i} has {} arguments, the pattern takes {}",
                arguments.len(),
                def.params.len()
            );
            if def.accepts(&arguments).is_err() {
                continue;
            }
            let arrays = sample
                .arguments
                .iter()
                .flat_map(Arg::tensors)
                .map(|tensor| Array::from_f64(tensor.shape(), tensor.dtype(), &tensor.values()))
                .collect::<Result<Vec<Array>>>()?;
            let within = |problem: Problem| problem.within(format!("sample {i} in {dtype}"));
            one(def, &arguments, &arrays, dtype, sample.forward_only.is_none()).map_err(within)?;
            with_other_values(def, &arguments, &arrays, dtype, &mut values).map_err(within)?;
            tested += 1;
        }
    }
    ensure!(tested > 0, "no sample meets its condition");
    for (param, values) in def.params.iter().zip(&values).filter(|(param, _)| param.kind == ParamKind::Attribute) {
        ensure!(
            values.len() > 1,
            "{} has the same value in all samples, and no other value that was tried meets the condition; add a sample \
             with another one",
            param.name
        );
    }
    PASSED
}

fn side(def: &RewriteDef, arguments: &[Arg<TensorMeta>], rule: TracedRule, name: &str) -> Check<Trace> {
    let block = rewrite::side(def, arguments, rule).map_err(|error| Problem::from(error).within(name))?;
    Ok(trace_of(name, block))
}

fn one(
    def: &'static RewriteDef,
    arguments: &[Arg<TensorMeta>],
    arrays: &[Array],
    dtype: DType,
    gradients: bool,
) -> Check {
    let pattern = side(def, arguments, def.pattern, "pattern")?;
    let replacement = side(def, arguments, def.replacement, "replacement")?;
    let mut fuel = Fuel::limited(FUEL);
    let rewritten = rewritten_by(def, &pattern, &mut fuel)?;
    ensure!(fuel != Fuel::limited(FUEL), "it does not fire on its own pattern:\n{pattern}");
    ensure!(fuel != Fuel::limited(0), "it fires on its own replacement, without end:\n{replacement}");
    agree(&pattern, &replacement, arrays, dtype, gradients)?;
    agree(&pattern, &rewritten, arrays, dtype, gradients).map_err(|p| p.within("the rewritten program"))?;
    let commuted = with_exchanged(&pattern, rewrite::commutes);
    for program in &commuted {
        fires_and_agrees(def, program, arrays, dtype, "with operands that commute in the other order")?;
    }
    // Arguments of other samples may let operands commute.
    let others = |symbol: &BoundSymbol| rewrite::exchangeable(symbol) && !rewrite::commutes(symbol);
    for program in with_exchanged(&pattern, others) {
        stays_right(def, &program, arrays, dtype)?;
    }
    for program in [&pattern].into_iter().chain(&commuted) {
        for (exposed, whole) in exposed(program) {
            // A symbol that also makes a result of the pattern cannot stay.
            if def.keep_inner && whole {
                fires_and_agrees(def, &exposed, arrays, dtype, "with an inner value that is read elsewhere")?;
            } else {
                stays_right(def, &exposed, arrays, dtype)?;
            }
        }
        // A tensor that is more than once in the pattern is told apart: the rewrite must leave the program alone,
        // or keep what it means.
        for apart in told_apart(program) {
            stays_right(def, &apart, arrays, dtype)?;
        }
    }
    Ok(())
}

/// Both sides agree with other values of each attribute that the pattern binds, and the rewrite fires on them; where
/// only a part of the pattern's symbols have the other value, the program keeps what it means. `values` are those that
/// were compared.
fn with_other_values(
    def: &'static RewriteDef,
    arguments: &[Arg<TensorMeta>],
    arrays: &[Array],
    dtype: DType,
    values: &mut [Vec<Attribute>],
) -> Check {
    let pattern = side(def, arguments, def.pattern, "pattern")?;
    for (place, param) in def.params.iter().enumerate() {
        let Arg::Attribute(value) = &arguments[place] else { continue };
        let mut compared = vec![value.clone()];
        for other in rewrite::other_values(param, value) {
            let mut arguments = arguments.to_vec();
            arguments[place] = Arg::Attribute(other.clone());
            // An operator of the pattern, or the condition, may be for some values alone.
            let Ok(changed) = side(def, &arguments, def.pattern, "pattern") else { continue };
            if def.accepts(&arguments).is_err() {
                continue;
            }
            let within = |problem: Problem| problem.within(format!("with {} = {other}", param.name));
            let replacement = side(def, &arguments, def.replacement, "replacement").map_err(within)?;
            agree(&changed, &replacement, arrays, dtype, false).map_err(within)?;
            fires_and_agrees(def, &changed, arrays, dtype, "with another attribute").map_err(within)?;
            for mixed in mixed(&pattern, &changed) {
                stays_right(def, &mixed, arrays, dtype).map_err(within)?;
            }
            compared.push(other);
            if compared.len() > OTHER_VALUES {
                break;
            }
        }
        compared.into_iter().for_each(|value| {
            if !values[place].contains(&value) {
                values[place].push(value);
            }
        });
    }
    Ok(())
}

/// The pattern with one symbol at a time as it is with another value, if several symbols differ in it alone.
fn mixed(pattern: &Trace, changed: &Trace) -> Vec<Trace> {
    let (one, other) = (&pattern.block, &changed.block);
    let metas = |block: &Block| block.values.iter().map(|value| value.meta.clone()).collect::<Vec<_>>();
    let alike = |(one, other): (&BoundSymbol, &BoundSymbol)| {
        one.callee == other.callee && one.results == other.results && one.operands().eq(other.operands())
    };
    let same_length = one.symbols.len() == other.symbols.len();
    if !same_length || metas(one) != metas(other) || !one.symbols.iter().zip(&other.symbols).all(alike) {
        return Vec::new();
    }
    let differs = |i: &usize| one.symbols[*i].arguments != other.symbols[*i].arguments;
    let differing: Vec<usize> = (0..one.symbols.len()).filter(differs).collect();
    let with_one = |i: &usize| {
        let mut block = one.clone();
        block.symbols[*i] = other.symbols[*i].clone();
        trace_of("mixed", block)
    };
    if differing.len() < 2 { Vec::new() } else { differing.iter().map(with_one).collect() }
}

fn fires_and_agrees(def: &'static RewriteDef, program: &Trace, arrays: &[Array], dtype: DType, how: &str) -> Check {
    let mut fuel = Fuel::limited(FUEL);
    let rewritten = rewritten_by(def, program, &mut fuel)?;
    ensure!(fuel != Fuel::limited(FUEL), "it does not fire on its own pattern {how}:\n{program}");
    agree(program, &rewritten, arrays, dtype, false).map_err(|problem| problem.within(format!("{how}, on\n{program}")))
}

/// What the rewrite makes of a program means what the program means, whether it fires or not.
fn stays_right(def: &'static RewriteDef, program: &Trace, arrays: &[Array], dtype: DType) -> Check {
    let rewritten = rewritten_by(def, program, &mut Fuel::limited(FUEL))?;
    let mut inputs = arrays.to_vec();
    for (i, id) in program.block.parameters.iter().enumerate().skip(inputs.len()) {
        inputs.push(random_like(program.block.meta(*id), 100 + i as u64)?);
    }
    agree(program, &rewritten, &inputs, dtype, false)
        .map_err(|problem| problem.within(format!("it fires where it must not, on\n{program}")))
}

/// The pattern with the first two arguments exchanged of each symbol that `chosen` holds for by itself, and of all of
/// them at once if there are several.
fn with_exchanged(pattern: &Trace, chosen: impl Fn(&BoundSymbol) -> bool) -> Vec<Trace> {
    let symbols = &pattern.block.symbols;
    let places: Vec<usize> = (0..symbols.len()).filter(|i| chosen(&symbols[*i])).collect();
    let exchanged = |places: &[usize]| {
        let mut block = pattern.block.clone();
        places.iter().for_each(|i| block.symbols[*i].arguments.swap(0, 1));
        block
    };
    let mut blocks: Vec<Block> = places.iter().map(|i| exchanged(&[*i])).collect();
    if places.len() > 1 {
        blocks.push(exchanged(&places));
    }
    blocks.into_iter().map(|block| trace_of("commuted", block)).collect()
}

/// The pattern with each of its inner values returned as well, and whether the symbol that makes it makes no result of
/// the pattern.
fn exposed(pattern: &Trace) -> Vec<(Trace, bool)> {
    let block = &pattern.block;
    let mut found = Vec::new();
    for symbol in &block.symbols {
        let inner = |id: &ValueId| !block.results.contains(id);
        for id in symbol.results.iter().copied().filter(inner) {
            let mut exposed = block.clone();
            exposed.results.push(id);
            found.push((trace_of("exposed", exposed), symbol.results.iter().all(inner)));
        }
    }
    found
}

/// What the rewrite makes of a program, whenever it takes part otherwise.
fn rewritten_by(def: &'static RewriteDef, trace: &Trace, fuel: &mut Fuel) -> Result<Trace> {
    Ok(trace.at_stage(StageName::Rewrite, rewrite::apply(&trace.block, def, fuel)?))
}

/// The pattern with one occurrence of a tensor that occurs more than once replaced by a tensor of its own.
fn told_apart(pattern: &Trace) -> Vec<Trace> {
    let block = &pattern.block;
    let mut found = Vec::new();
    for parameter in &block.parameters {
        let uses: usize =
            block.symbols.iter().map(|symbol| symbol.operands().filter(|id| id == parameter).count()).sum();
        for which in 1..uses {
            let mut apart = pattern.block.clone();
            let meta = apart.meta(*parameter).clone();
            let other = apart.define(format!("{}.other", block.value(*parameter).name), meta);
            apart.parameters.push(other);
            let mut seen = 0;
            for symbol in &mut apart.symbols {
                symbol.arguments = map_arguments(&symbol.arguments, |id| {
                    if id == parameter {
                        seen += 1;
                        if seen == which + 1 {
                            return other;
                        }
                    }
                    *id
                });
            }
            found.push(trace_of("told_apart", apart));
        }
    }
    found
}

fn agree(left: &Trace, right: &Trace, arrays: &[Array], dtype: DType, gradients: bool) -> Check {
    let mut list = List::plain()?;
    list.executors = crate::executor::default_executors("cpu");
    list.fuel = Fuel::UNLIMITED;
    let run = |trace: &Trace| -> Check<(Vec<Array>, Vec<String>)> {
        let joint = if gradients { joint_trace(trace, &list.executors)? } else { None };
        let trace = joint.unwrap_or_else(|| trace.clone());
        let mut inputs = arrays.to_vec();
        for (i, id) in trace.block.parameters.iter().enumerate().skip(inputs.len()) {
            inputs.push(random_like(trace.block.meta(*id), i as u64)?);
        }
        let names = trace.outputs.iter().map(|output| output.path.clone()).collect();
        // The rewrites under test stay out of what they are compared with.
        let mut options = list.options();
        options.rewrites = Some(Vec::new());
        let (program, _) = crate::compile::compile(trace, &options)?;
        let outputs = program.run(inputs)?;
        Ok((outputs, names))
    };
    let ((left, names), (right, _)) = (run(left)?, run(right)?);
    ensure!(left.len() == right.len(), "one side has {} results, the other {}", left.len(), right.len());
    for ((a, b), name) in left.iter().zip(&right).zip(names) {
        ensure!(a.meta() == b.meta(), "{name}: the pattern gives {}, the replacement {}", a.meta(), b.meta());
        let relative = if dtype == DType::F64 { SAME_IN_F64 } else { 64.0 * a.dtype().epsilon() };
        Expected::rounded(a.to_f64()?, a.dtype())
            .with_relative(relative)
            .compare(b)
            .map_err(|problem| problem.within(format!("{name} of the pattern against the replacement")))?;
    }
    Ok(())
}
