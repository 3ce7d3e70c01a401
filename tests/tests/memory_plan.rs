//! Where results lie: over a value that dies, read through a view that shows all of it, and over nothing else.

use fulgurite::Array;
use fulgurite::compile::{Options, stages};
use fulgurite::program::Program;
use fulgurite::trace::{Storage, Trace, parse};
use fulgurite_ops as _;

/// `a` is `exp(x)`, then come these lines; the last of them gives `d`.
fn planned(lines: &str) -> Trace {
    let text = format!(
        "# fulgurite trace 1\ntrace f for cpu (x: f32[4, 6]) {{\na: f32[4, 6] = prims::exp(x)\n{lines}\nreturn result = d\n}}\n"
    );
    let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let options = Options { verify: true, fuse: false, ..Options::default() };
    let stages = stages(trace, &options.with_executors(&["cpu", "reference"]).unwrap()).unwrap();
    stages.into_iter().find(|stage| stage.name == "plan_memory").unwrap().trace
}

/// Where in the arena a value lies.
fn offset(trace: &Trace, name: &str) -> u64 {
    match trace.block.values.iter().find(|value| &*value.name == name).unwrap().storage {
        Some(Storage::Arena(offset)) => offset,
        other => panic!("'{name}' lies at {other:?}\n{trace}"),
    }
}

/// The result for the numbers 0 to 23, divided by ten.
fn run(trace: Trace) -> Vec<f32> {
    let x: Vec<f32> = (0..24).map(|i| i as f32 / 10.0).collect();
    let program = Program::new(trace, None).unwrap();
    program.run(vec![Array::new([4, 6], &x).unwrap()]).unwrap()[0].to_vec().unwrap()
}

fn exps() -> Vec<f32> {
    let program = planned("d: f32[4, 6] = prims::abs(a)");
    run(program)
}

#[test]
fn a_result_lies_over_a_value_read_through_a_view_of_another_shape() {
    let trace =
        planned("b: f32[24] = prims::reshape(a, shape=[24])\nc: f32[24] = prims::neg(b)\nd: f32[24] = prims::abs(c)");
    assert_eq!(offset(&trace, "c"), offset(&trace, "a"), "{trace}");
    assert_eq!(run(trace), exps());
}

#[test]
fn a_result_does_not_lie_over_a_value_of_which_it_reads_a_part() {
    let lines = "b: f32[2, 6] = prims::slice(a, starts=[0, 0], ends=[2, 6], steps=[1, 1])\n\
                 c: f32[2, 6] = prims::neg(b)\nd: f32[2, 6] = prims::abs(c)";
    let trace = planned(lines);
    let (a, c) = (offset(&trace, "a"), offset(&trace, "c"));
    assert_ne!(a, c, "{trace}");
    assert_eq!(run(trace.clone()), exps()[..12]);
    // The verifier refuses the plan that would.
    let wrong = trace.to_string().replace(&format!("c: f32[2, 6] at arena+{c}"), &format!("c: f32[2, 6] at arena+{a}"));
    let error = parse(&wrong).unwrap().verify().unwrap_err().to_string();
    assert!(error.contains("'c' takes bytes") && error.contains("while 'a' lives"), "{error}");
}

#[test]
fn a_result_does_not_lie_over_a_value_that_it_reads_in_two_ways() {
    let lines = "b: f32[24] = prims::reshape(a, shape=[24])\nback: f32[24] = prims::flip(b, dims=[0])\n\
                 c: f32[24] = prims::add(b, back)\nd: f32[24] = prims::abs(c)";
    let expected: Vec<f32> = exps().iter().zip(exps().iter().rev()).map(|(a, b)| a + b).collect();
    let trace = planned(lines);
    assert_ne!(offset(&trace, "c"), offset(&trace, "a"), "{trace}");
    assert_eq!(run(trace), expected);
}
