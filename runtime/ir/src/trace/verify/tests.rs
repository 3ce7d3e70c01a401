//! Each rule, broken in the text or in the trace.

use std::sync::Arc;
use std::time::Instant;

use super::verify;
use crate::argument::{Arg, Attribute};
use crate::error::{CallStack, Error, Place};
use crate::meta::TensorMeta;
use crate::trace::print::MAX_DEPTH;
use crate::trace::test_support::{GOOD, op};
use crate::trace::{Block, BoundSymbol, Callee, Storage, Trace, ValueId, parse};
use crate::tracer::{call, trace_block};
use crate::{DType, Device};

fn failure(trace: &Trace) -> (String, String, String, CallStack) {
    match verify(trace) {
        Err(Error::Verify { transform, line, message, stack }) => (transform, line, message, stack),
        other => panic!("{other:?} from\n{trace}"),
    }
}

/// The message for the good trace with `from` replaced.
fn edited(from: &str, to: &str) -> (String, String) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let (_, line, message, _) = failure(&trace);
    (line, message)
}

fn changed(change: impl FnOnce(&mut Trace)) -> String {
    let mut trace = parse(GOOD).unwrap();
    change(&mut trace);
    failure(&trace).2
}

#[test]
fn a_good_trace_is_good() {
    parse(GOOD).unwrap().verify().unwrap();
    parse("# fulgurite trace 2\ntrace f for cpu () {\nreturn\n}").unwrap().verify().unwrap();
}

/// A predicate that both share would pass the planner's mistakes.
#[test]
fn no_predicate_of_the_planner_is_asked() {
    let files = [
        ("claims", include_str!("claims.rs")),
        ("ended", include_str!("ended.rs")),
        ("kernels", include_str!("kernels.rs")),
        ("memory", include_str!("memory.rs")),
        ("places", include_str!("places.rs")),
        ("regions", include_str!("regions.rs")),
        ("streams", include_str!("streams.rs")),
    ];
    for (file, text) in files {
        // Tests compare both.
        let own = text.split("#[cfg(test)]").next().unwrap();
        for planner in ["in_place::", "joins::", "order::", "donations::", "implied::", "memory_use::"] {
            assert!(!own.contains(planner), "{file}.rs uses {planner}");
        }
        assert!(own.contains("layouts::") == ["claims", "memory", "places", "streams"].contains(&file), "{file}.rs");
    }
}

#[test]
fn a_planned_value_has_a_place() {
    let text = |made, at| {
        let line = format!("  y: f32[4] = tt::exp(x) by tt_host\n  return result = y\n{at}}}\n");
        parse(&format!("# fulgurite trace 2\n# made by {made}\ntrace f for cpu (x: f32[4]) arena 0 {{\n{line}"))
            .unwrap()
    };
    text("claim", "").verify().unwrap();
    text("plan_memory", "").verify().unwrap();
    let (_, line, message, _) = failure(&text("plan_memory", "memory { y at none }"));
    assert!(line.starts_with("y: f32[4]"), "{line}");
    assert_eq!(message, "was made by 'plan_memory', but 'y' has no place in memory");
}

#[test]
fn every_rule_has_a_text_that_breaks_it() {
    for (from, to, line, message) in [
        // Lives of values.
        ("other=-0.0, last=many", "other=values, last=exp", "mixed: f32[8] =", "reads 'exp' after its 'del'"),
        ("del exp, view", "del exp, exp", "del exp, exp", "reads 'exp' after its 'del'"),
        (
            "return loss = loss,",
            "return loss = exp,",
            "return loss = exp, params.w = new",
            "returns 'exp' after its 'del'",
        ),
        // Metas.
        ("cat: f32[8]", "cat: f32[9]", "cat: f32[9] = tt::cat", "'cat' is f32[9], tt::cat gives f32[8]"),
        ("view, k=8", "view, k=7", "values: f32[8]", "input is f32[8], expected 7 elements"),
        ("parts=2", "parts=3", "many, many.1: f32[8]", "tt::split returns 3 tensors, the line names 2"),
        (
            "cat: f32[8] = tt::cat([mixed, x], dim=0)",
            "cat: f32[8] = tt::fails(x)",
            "cat:",
            "its rules fail: tt::topk: input is f32[8], expected 7",
        ),
        // Bodies.
        (
            "eps=1e-5) {",
            "eps=1e-5) {\n(input: f32[8], weight: f32[9])",
            "norm:",
            "its body's parameter 'weight' is f32[9], the argument 'x' is f32[8]",
        ),
        (
            "eps=1e-5) {",
            "eps=1e-5) {\n(input, weight, more: f32[8])",
            "norm:",
            "its body takes 3 parameters, the call has 2 tensors",
        ),
        (
            "yield add: f32[8] = tt::add(identity, weight)",
            "add: f32[8] = tt::add(identity, weight)\nyield add, add",
            "norm:",
            "its body gives 2 results, the line names 1",
        ),
        (
            "yield add: f32[8] = tt::add(identity, weight)",
            "yield m: f32[] = tt::mean(input)",
            "norm:",
            "its body gives f32[] for 'norm', which is f32[8]",
        ),
        (
            "identity: f32[8] = tt::identity(exp) {",
            "identity: f32[] = tt::identity(exp) {",
            "identity: f32[] =",
            "'identity' is f32[], tt::identity gives f32[8]",
        ),
        // Executors.
        (
            "tt::exp(x) by tt_host",
            "tt::exp(x) by tt_hose",
            "exp:",
            "no executor is called 'tt_hose', did you mean 'tt_host'?",
        ),
        (
            "tt::exp(x) by tt_host",
            "tt::exp(x) by tt_elsewhere",
            "exp:",
            "executor 'tt_elsewhere' runs on tt_device, the trace is for cpu",
        ),
        (
            "other=-0.0, last=many)",
            "other=-0.0, last=many) by tt_host",
            "mixed:",
            "is claimed by 'tt_host', which does not take it: takes exp and add",
        ),
        ("= tt::look(exp)", "= tt::exp(exp)", "view:", "'tt::exp' is not a view"),
        ("= tt::exp(x) by tt_host", "= tt::own(x) by tt_other_host", "exp:", "'tt::own' belongs to 'tt_host', not to"),
        ("= tt::exp(x) by tt_host", "= tt::own(x) by tt_host", "exp:", "'tt::own' has no kernel for cpu"),
        (
            "executor=tt_host) by tt_host",
            "executor=view) by view",
            "h.0:",
            "is a region of 'view', which runs no regions",
        ),
        // What a plan needs.
        (
            "# made by acquire",
            "# made by acquire, plan_memory",
            "values: f32[8]",
            "was made by 'plan_memory', but no executor has taken this line",
        ),
        // Gradients.
        ("wrt=[0]", "wrt=[2]", "loss:", "wrt names parameter 2, the body has 2 parameters"),
        (
            "loss: f32[], grad.w: f32[8] = value_and_grad([params.w, x], wrt=[0])",
            "loss: f32[], grad.w: f32[8], g: f32[8] = value_and_grad([params.w, x], wrt=[0, 0])",
            "loss:",
            "wrt names parameter 0 twice",
        ),
        (
            "value_and_grad([params.w, x], wrt=[0]) {\n    (w, x: f32[8])",
            "value_and_grad([indices, x], wrt=[0]) {\n    (w: i64[8], x: f32[8])",
            "loss:",
            "no gradient with respect to 'w': it is i64[8]",
        ),
        (
            "loss: f32[], grad.w: f32[8] =",
            "loss: f32[], grad.w: f32[9] =",
            "loss:",
            "'grad.w' is f32[9], value_and_grad gives f32[8]",
        ),
        (
            "loss: f32[], grad.w: f32[8] =",
            "loss: f32[] =",
            "loss:",
            "value_and_grad returns 2 tensors, the line names 1",
        ),
        (
            "yield mean: f32[] = tt::mean(w)",
            "yield w",
            "loss:",
            "the body gives f32[8], expected a zero-dimensional floating-point tensor",
        ),
        // The loss, what else the body gives, and the gradients.
        (
            "yield mean: f32[] = tt::mean(w)",
            "mean: f32[] = tt::mean(w)\nyield mean, w",
            "loss:",
            "value_and_grad returns 3 tensors, the line names 2",
        ),
        ("yield mean: f32[]", "mean: f32[]", "loss:", "the body gives nothing, expected the loss first"),
        (
            "value_and_grad([params.w, x]",
            "value_and_grad([params.w]",
            "loss:",
            "its body takes 2 parameters, the call has 1 tensor",
        ),
        // Regions.
        ("executor=tt_host)", "executor=tt_hose)", "h.0:", "no executor is called 'tt_hose', did you mean 'tt_host'?"),
        (
            "executor=tt_host)",
            "executor=tt_other_host)",
            "h.0:",
            "is a region of 'tt_other_host', but claimed by another executor",
        ),
        (
            "tt::add(a, b) by tt_host",
            "tt::add(a, b) by tt_other_host",
            "h.0:",
            "is a region of 'tt_host', but 'tt::add' in it is claimed by 'tt_other_host'",
        ),
        (
            "r: f32[8] = tt::add(a, b) by tt_host",
            "r: f32[8] = region(a, executor=tt_host) {\n(a: f32[8])\nyield a\n}",
            "h.0:",
            "a region holds operators, not 'region'",
        ),
        ("region([norm, dy]", "region([norm]", "h.0:", "its body takes 2 parameters, the call has 1 tensor"),
        ("h.0: f32[8]", "h.0: f32[7]", "h.0:", "'h.0' is f32[7], region gives f32[8]"),
        // Effects.
        (
            "cat: f32[8] = tt::cat([mixed, x], dim=0)",
            "cat: f32[8] = tt::sly_random(x) {\n(input: f32[8])\nd: f32[8] = tt::dropout(input)\nyield d\n}",
            "cat:",
            "its body draws random numbers, which tt::sly_random does not declare",
        ),
        (
            "cat: f32[8] = tt::cat([mixed, x], dim=0)",
            "cat: f32[8] = tt::sly_collective(x) {\n(input: f32[8])\nd: f32[8] = tt::all_reduce(input)\nyield d\n}",
            "cat:",
            "its body has a collective, which tt::sly_collective does not declare",
        ),
        // The header.
        ("strides [1]", "strides [1, 2]", "x: f32[8] strides [1, 2]", "has 2 strides for 1 dimension"),
        // Memory.
        ("arena 96 {", "{", "exp:", "'exp' is in the arena, but the trace has none"),
        ("arena 96 ", "arena 63 ", "values:", "'values' ends at byte 64 of the arena, which has 63"),
        (
            "values at 32",
            "values at 31",
            "values:",
            "'values' takes bytes 31..63 of the arena while 'exp' lives in bytes 0..32",
        ),
        (
            "norm at 0",
            "norm at 40",
            "norm:",
            "'norm' takes bytes 40..72 of the arena while 'values' lives in bytes 32..64",
        ),
        ("norm at 0", "norm at 18446744073709551615", "norm:", "ends at byte 18446744073709551615"),
        ("norm at 0", "norm at 0, h.0 at 64", "return", "returns 'h.0', which is in the arena"),
        ("exp at 0", "exp in view", "exp:", "shares memory in a circle"),
        ("values at 32", "values at 33", "values:", "'values' is at byte 33 of the arena, not a multiple of 4"),
        ("norm at 0", "norm at 0, h.0 in dy", "h.0:", "'h.0' takes the memory of the input 'dy', which is not donated"),
        ("loss at none", "loss in params.w", "loss:", "'loss' is f32[], and takes the memory of 'params.w'"),
    ] {
        let (at, said) = edited(from, to);
        assert!(at.starts_with(line) && said.contains(message), "{from} -> {to}\n  {at}\n  {said}");
    }
}

#[test]
fn every_rule_has_a_trace_that_breaks_it() {
    let far = ValueId(u32::MAX);
    for (message, expected) in [
        (changed(|t| t.inputs.truncate(1)), "declares 1 input, the block has 4 parameters"),
        (changed(|t| t.outputs.clear()), "declares 0 outputs, the block has 3 results"),
        (changed(|t| t.block.parameters[1] = t.block.parameters[0]), "defines 'params.w' a second time"),
        (changed(|t| t.block.parameters[1] = far), "defines value 4294967295, the block has"),
        (changed(|t| t.block.values[1].name = "params.w".into()), "another value is called 'params.w' too"),
        (changed(|t| t.block.values[4].name = "x".into()), "another value is called 'x' too"),
        (changed(|t| t.block.symbols[0].results[0] = far), "defines value 4294967295, the block has"),
        (changed(|t| t.block.symbols[0].results[0] = ValueId(0)), "'params.w' a second time"),
        (changed(|t| t.block.symbols[0].arguments = vec![Arg::Tensor(far)]), "reads value 4294967295, the block has"),
        (changed(|t| t.block.symbols[0].arguments = vec![Arg::Tensor(ValueId(4))]), "reads 'exp' before it is defined"),
        (changed(|t| t.block.symbols.swap(0, 1)), "reads 'exp' before it is defined"),
        (changed(|t| t.block.results[0] = far), "returns value 4294967295"),
        (changed(|t| t.block.symbols[0].arguments.clear()), "takes 1 arguments, got 0"),
        (changed(|t| t.block.symbols[0].arguments = vec![Arg::Optional(None)]), "argument 'input' must be tensor"),
        (changed(|t| t.block.symbols[0].results.clear()), "tt::exp returns 1 tensor, the line names 0"),
        (changed(|t| t.block.symbols[3].arguments.clear()), "'del' takes values, and nobody runs it"),
        (changed(|t| t.block.symbols[3].executor = Some("tt_host")), "'del' takes values, and nobody runs it"),
        (
            changed(|t| t.block.symbols[3].arguments.push(Arg::Attribute(Attribute::None))),
            "arguments of 'del' are tensors",
        ),
        (changed(|t| t.block.symbols[5].body = None), "region lacks its body"),
        (changed(|t| body(t, 5).results[0] = far), "the body gives a value that it does not have"),
        (changed(|t| body(t, 5).parameters[0] = far), "its body's parameter ?4294967295 is no value"),
        (changed(|t| body(t, 4).results[0] = far), "its body gives no value for 'norm'"),
        (changed(|t| gradient(t).body = None), "value_and_grad lacks its body"),
        (
            changed(|t| t.block.values[5].storage = Some(Storage::Shared(far))),
            "'view' shares the memory of value 4294967295",
        ),
    ] {
        assert!(message.contains(expected), "{message}\n  expected {expected}");
    }
}

fn body(trace: &mut Trace, symbol: usize) -> &mut Block {
    Arc::make_mut(trace.block.symbols[symbol].body.as_mut().unwrap())
}

fn gradient(trace: &mut Trace) -> &mut BoundSymbol {
    trace.block.symbols.iter_mut().find(|s| matches!(s.callee, Callee::ValueAndGrad { .. })).unwrap()
}

#[test]
fn errors_name_the_transform_and_the_way_in() {
    let mut trace = parse(GOOD).unwrap();
    let place = Place::caller();
    trace.block.symbols[4].place = Some(place);
    body(&mut trace, 4).symbols.remove(0);
    let (transform, line, message, stack) = failure(&trace);
    assert_eq!((&*transform, &*line), ("delete-last-used", "identity: f32[8] = tt::identity(exp)"));
    assert_eq!(message, "reads 'exp' before it is defined");
    assert_eq!(stack.frames, [("tt::norm".to_owned(), Some(place))]);
    trace.history.clear();
    assert_eq!(failure(&trace).0, "tracing");
}

#[test]
fn bodies_nest_no_deeper_than_the_text() {
    let meta = TensorMeta::new([4], DType::F32, Device::CPU);
    let mut block = trace_block(&[("input".into(), meta.clone())], |x| vec![x[0]]).unwrap();
    for _ in 0..=MAX_DEPTH {
        let mut outer =
            trace_block(&[("input".into(), meta.clone())], |x| call(op("tt::exp"), vec![Arg::Tensor(x[0])])).unwrap();
        outer.symbols[0].body = Some(Arc::new(block));
        block = outer;
    }
    let good = parse(GOOD).unwrap();
    let trace = Trace { inputs: good.inputs[..1].to_vec(), outputs: good.outputs[..1].to_vec(), block, ..good };
    let trace = Trace { inputs: vec![crate::trace::Input { strides: None, ..trace.inputs[0].clone() }], ..trace };
    assert!(failure(&trace).2.contains("bodies nest deeper than 64"));
}

#[test]
fn shared_bodies_are_checked_once() {
    // Some thousand calls of a composite of composites: as many lines as a training step has.
    let meta = TensorMeta::new([4], DType::F32, Device::CPU);
    let block = trace_block(&[("x".into(), meta)], |x| {
        let mut y = x[0];
        for _ in 0..3000 {
            y = call(op("tt::deep"), vec![Arg::Tensor(y), Arg::Optional(Some(x[0]))])[0];
        }
        vec![y]
    });
    let good = parse(GOOD).unwrap();
    let input = crate::trace::Input { role: Default::default(), donated: false, strides: None };
    let trace = Trace { inputs: vec![input], outputs: good.outputs[..1].to_vec(), block: block.unwrap(), ..good };
    let started = Instant::now();
    trace.verify().unwrap();
    let took = started.elapsed();
    assert!(took.as_millis() < 500, "{took:?}");
    println!("verified {} lines in {took:?}", trace.block.symbols.len());
    let text = trace.to_string();
    let started = Instant::now();
    assert_eq!(parse(&text).unwrap(), trace);
    println!("parsed {} lines in {:?}", text.lines().count(), started.elapsed());
}
