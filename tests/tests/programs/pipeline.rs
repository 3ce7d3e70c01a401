//! The whole way of a program: traced, differentiated, claimed, fused, planned, run.

use fulgurite_executors as _;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::{Options, Stage, UserTransform, stages, stages_reached};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::meta::Target;
use fulgurite_runtime::rules::Scalar;
use fulgurite_runtime::trace::{Pass, Trace, parse};
use fulgurite_runtime::tracer::value_and_grad;
use fulgurite_runtime::{Array, DType, Tensor, jit};

fn softmax(x: Tensor) -> Tensor {
    let shape = x.shape().to_vec();
    let last = shape.len() - 1;
    let rows: Vec<usize> = (0..last).collect();
    let max = prims::broadcast_in_dim(prims::amax(x, [last]), &shape, &rows);
    let e = prims::exp(prims::sub(x, max));
    prims::div(e, prims::broadcast_in_dim(prims::sum(e, [last]), &shape, &rows))
}

#[test]
fn a_loss_and_its_gradient_agree_between_executors_and_with_the_formula() {
    let x = Array::new([3, 5], &(0..15).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<_>>()).unwrap();
    let f = |x: Tensor| {
        value_and_grad(x, |x| {
            let p = softmax(*x);
            prims::sum(prims::mul(p, p), [0, 1])
        })
    };
    let mut results = Vec::new();
    for (executors, fuse) in [(&["reference"][..], true), (&["cpu"], false), (&["cpu", "reference"], true)] {
        let options = Options { fuse, ..Options::default() }.with_executors(executors).unwrap();
        let step = jit(f).options(options).results(["loss", "grad"]);
        let compiled = step.compile(&x).unwrap();
        let text = compiled.stages().last().unwrap().trace.to_string();
        if fuse && executors.len() == 2 {
            println!("{text}");
            assert!(text.contains("region"), "{text}");
        }
        let (loss, grad) = step.call(x.clone()).unwrap();
        results.push((loss.item().unwrap(), grad.to_f64().unwrap()));
    }
    for (loss, grad) in &results[1..] {
        assert!((loss - results[0].0).abs() < 1e-6);
        assert!(grad.iter().zip(&results[0].1).all(|(a, b)| (a - b).abs() < 1e-6), "{grad:?} {:?}", results[0].1);
    }
    let p: Vec<f64> = {
        let v = x.to_f64().unwrap();
        v.chunks(5)
            .flat_map(|row| {
                let s: f64 = row.iter().map(|x| x.exp()).sum();
                row.iter().map(|x| x.exp() / s).collect::<Vec<_>>()
            })
            .collect()
    };
    let expected: f64 = p.iter().map(|p| p * p).sum();
    assert!((results[0].0 - expected).abs() < 1e-6);
}

#[test]
fn an_error_names_the_operator_and_the_callers_line() {
    let step = jit(|x: Tensor| prims::add(x, prims::full([7], Scalar::Float(0.0), DType::F32, "cpu".to_owned())));
    let error = step.call(Array::scalar(1.0)).unwrap_err().to_string();
    assert!(error.contains("prims::add") && error.contains("pipeline.rs"), "{error}");
}

#[test]
fn a_stage_that_is_not_valid_is_kept_with_those_before() {
    let x = Array::new([2], &[1f32; 2]).unwrap();
    let (traced, _) = trace("f", Target::cpu(), &Names::default(), x.meta().clone(), prims::exp).unwrap();
    let forgets = UserTransform::new("forgets", |trace| {
        let mut block = trace.block.clone();
        block.symbols.clear();
        Ok(trace.transformed("forgets", block))
    });
    let options = Options { transforms: vec![forgets], verify: true, ..Options::default() };
    let reached = stages_reached(traced.clone(), &options);
    let names: Vec<&str> = reached.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names, ["acquire", "rewrite", "forgets"]);
    let ending = reached.ending.unwrap();
    assert_eq!(ending.stage, "forgets");
    let said = ending.to_string();
    assert!(said.starts_with("compilation ends in stage 'forgets': after forgets: line 'return"), "{said}");
    assert_eq!(stages(traced, &options).unwrap_err().to_string(), ending.error.to_string());
}

/// The same leaves, divided otherwise among lists and options, are another program.
#[test]
fn programs_are_kept_by_the_form_of_their_trees() {
    let one = |value: f32| Array::new([1], &[value]).unwrap();
    let twice = |x: Tensor| prims::add(x, x);
    let either = jit(move |(a, b): (Option<Tensor>, Option<Tensor>)| match (a, b) {
        (Some(a), None) => twice(a),
        (None, Some(b)) => prims::mul(b, b),
        _ => unreachable!("one of them"),
    });
    assert_eq!(either.call((Some(one(3.0)), None)).unwrap().to_f64().unwrap(), [6.0]);
    assert_eq!(either.call((None, Some(one(3.0)))).unwrap().to_f64().unwrap(), [9.0]);
    let lists = jit(move |(a, b): (Vec<Tensor>, Vec<Tensor>)| {
        let doubled = a.into_iter().map(twice);
        doubled.chain(b).reduce(prims::add).unwrap_or_else(|| unreachable!("three tensors"))
    });
    assert_eq!(lists.call((vec![one(1.0), one(2.0)], vec![one(4.0)])).unwrap().to_f64().unwrap(), [10.0]);
    assert_eq!(lists.call((vec![one(1.0)], vec![one(2.0), one(4.0)])).unwrap().to_f64().unwrap(), [8.0]);
    assert_eq!((either.compiles(), lists.compiles()), (2, 2));
}

/// Whatever the build: programs trust claims and plans.
#[test]
fn what_was_claimed_elsewhere_is_verified_unasked() {
    let text =
        |line: &str| format!("# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {{\n  {line}\n  return y = y\n}}\n");
    let options = Options { verify: false, ..Options::default() };
    let ending = |line: &str| {
        let trace = fulgurite_runtime::trace::parse(&text(line)).unwrap();
        stages(trace, &options).map(drop).map_err(|error| error.to_string())
    };
    ending("y: f32[4] = prims::exp(x) by cpu").unwrap();
    let message = ending("y: f32[4] = prims::exp(x) by view").unwrap_err();
    assert!(message.contains("'prims::exp' is not a view"), "{message}");
}

#[test]
fn what_is_donated_is_there() {
    let x = || Array::new([1], &[1f32]).unwrap();
    let f = jit(|(x, _cache): (Tensor, Option<Tensor>)| prims::add(x, x)).arguments(["x", "cache"]);
    f.donate("cache").call((x(), None::<Array>)).unwrap();
    let f = jit(|(x, _cache): (Tensor, Option<Tensor>)| prims::add(x, x)).arguments(["x", "cache"]).donate("weights");
    let message = f.call((x(), None::<Array>)).unwrap_err().to_string();
    assert!(
        message.contains("argument 'weights': is to be donated, but no argument's path starts with it: x"),
        "{message}"
    );
}

#[test]
fn a_program_for_the_host_has_no_values_elsewhere() {
    let f = jit(|x: Tensor| (x, prims::full([1], 1.0, DType::F32, "cuda")));
    let message = f.call(Array::new([1], &[1.0f32]).unwrap()).map(drop).unwrap_err().to_string();
    assert!(message.contains("prims::full: 'full' is on cuda:0, the program runs on cpu"), "{message}");
    assert!(message.contains("pipeline.rs:"), "{message}");
}

#[test]
fn views_larger_than_memory_are_errors() {
    let x = Array::new([1, 1], &[1.0f32]).unwrap();
    let message = x.expand(&[1 << 40, 1 << 40]).map(drop).unwrap_err().to_string();
    assert!(message.contains("larger than any memory"), "{message}");
    let message = x.expand(&[1 << 55, 1]).unwrap().to_vec::<f32>().unwrap_err().to_string();
    assert!(message.contains("cannot be laid out in memory"), "{message}");
    // So are the values for references, of integers and of others.
    let integer = Array::new([1, 1], &[1i64]).unwrap();
    for large in [x.expand(&[1 << 55, 1]), integer.expand(&[1 << 55, 1])] {
        let message = large.unwrap().to_reference().map(drop).unwrap_err().to_string();
        assert!(message.contains("cannot be laid out in memory"), "{message}");
    }
}

#[test]
fn donated_state_is_updated_in_place() {
    let step = jit(|(w, g): (Tensor, Tensor)| (prims::sub(w, prims::mul(g, g)), prims::sum(g, [0])))
        .arguments(["w", "g"])
        .results(["w", "total"])
        .donate("w");
    let w = Array::new([4], &[1f32; 4]).unwrap();
    let address = w.view().unwrap().as_ptr();
    let g = Array::new([4], &[0.5f32; 4]).unwrap();
    let (w, total) = step.call((w, g.clone())).unwrap();
    assert_eq!(w.view().unwrap().as_ptr(), address);
    assert_eq!((w.to_f64().unwrap(), total.item().unwrap()), (vec![0.75; 4], 2.0));
    let shared = w.clone();
    assert!(step.call((w, g)).unwrap_err().to_string().contains("donated"));
    drop(shared);
    assert_eq!(step.compiles(), 1);
}

/// The stages of a program for `target` whose lines behind the first are of the backward pass.
fn backward_lines(target: &str, inputs: &str, first: &str, lines: &str) -> Vec<Stage> {
    let text = format!(
        "# fulgurite trace 2\ntrace f for {target} ({inputs}) {{\n{first}\npass backward\n{lines}\nreturn d\n}}\n"
    );
    let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    stages(trace, &Options { verify: true, ..Options::default() }).unwrap()
}

fn stage<'s>(stages: &'s [Stage], name: &str) -> &'s Trace {
    &stages.iter().find(|stage| stage.name == name).unwrap().trace
}

/// Lines that the compiler adds belong to the pass of what they are made for.
#[test]
fn lines_that_are_added_belong_to_the_pass_of_the_lines_about_them() {
    let exp = "a: f32[4, 6] = exp(x)";
    let stages = backward_lines("cpu", "x: f32[4, 6]", exp, "d: f32[6, 4] = permute(a, dims=[1, 0])");
    let layout = stage(&stages, "layout");
    let copy = layout.block.symbols.iter().find(|symbol| symbol.name() == "prims::contiguous").unwrap();
    assert_eq!(copy.pass, Pass::Backward, "{layout}");
    // A view that one line reads is of the pass of this line, so that it is written in it.
    let first = format!("{exp}\nt: f32[6, 4] = permute(a, dims=[1, 0])");
    let stages = backward_lines("cpu", "x: f32[4, 6]", &first, "d: f32[4, 4] = matmul(a, t)");
    let layout = stage(&stages, "layout");
    assert!(layout.to_string().contains("= matmul(a, permute(a, dims=[1, 0]))"), "{layout}");
    let inputs = "p: f32[8], q: f32[8], g: f32[8], m: f32[8], v: f32[8], r: f32[], s: f32[]";
    let updates = "b, bm, bv = adamw(p, g, m, v, r, s)\nc, cm, cv = adamw(q, g, m, v, r, s)\nd = add(b, c)";
    let stages = backward_lines("cuda:sm_90a", inputs, "", updates);
    let fused = stage(&stages, "fuse");
    let regions = fused.block.symbols.iter().filter(|symbol| symbol.executor == Some("optim"));
    let passes: Vec<Pass> = regions.map(|symbol| symbol.pass).collect();
    assert_eq!(passes, [Pass::Backward], "{fused}");
}
