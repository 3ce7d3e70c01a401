//! Memory of results: that of a value that dies, read through a view that shows all of it, and no other. The verifier
//! refuses every other plan, of any planner.

use fulgurite_executors as _;
use fulgurite_ops::prims;
use fulgurite_runtime::compile::{Options, compile, prepare, split_stages, stages};
use fulgurite_runtime::jit::jit;
use fulgurite_runtime::program::Program;
use fulgurite_runtime::trace::in_place::may_lie_over;
use fulgurite_runtime::trace::{Storage, Trace, ValueId, parse};
use fulgurite_runtime::transforms::layout::layouts;
use fulgurite_runtime::transforms::plan;
use fulgurite_runtime::{Array, Tensor};

/// `a` is `exp(x)`, then come these lines; the last of them gives `d`.
fn planned(lines: &str) -> Trace {
    let text = format!(
        "# fulgurite trace 2\ntrace f for cpu (x: f32[4, 6]) {{\n\
         a: f32[4, 6] = prims::exp(x)\n{lines}\nreturn result = d\n}}\n"
    );
    let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let options = Options { verify: true, fuse: false, ..Options::default() };
    let stages = stages(trace, &options.with_executors(&["cpu", "reference"]).unwrap()).unwrap();
    stages.into_iter().find(|stage| stage.name == "plan_memory").unwrap().trace
}

/// The offset of a value in the arena, in bytes.
fn offset(trace: &Trace, name: &str) -> u64 {
    match trace.block.values.iter().find(|value| &*value.name == name).unwrap().storage {
        Some(Storage::Arena(offset)) => offset,
        other => panic!("'{name}' is at {other:?}\n{trace}"),
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

/// The rest of the value dies with it.
#[test]
fn a_result_lies_over_the_beginning_of_a_value_that_it_reads() {
    let lines = "b: f32[2, 6] = prims::slice(a, starts=[0, 0], ends=[2, 6], steps=[1, 1])\n\
                 c: f32[2, 6] = prims::neg(b)\nd: f32[2, 6] = prims::abs(c)";
    let trace = planned(lines);
    assert_eq!(offset(&trace, "c"), offset(&trace, "a"), "{trace}");
    assert_eq!(run(trace), exps()[..12]);
}

#[test]
fn a_result_does_not_lie_over_a_value_of_which_it_reads_another_part() {
    let lines = "b: f32[2, 6] = prims::slice(a, starts=[2, 0], ends=[4, 6], steps=[1, 1])\n\
                 c: f32[2, 6] = prims::neg(b)\nd: f32[2, 6] = prims::abs(c)";
    let trace = planned(lines);
    let (a, c) = (offset(&trace, "a"), offset(&trace, "c"));
    assert_ne!(a, c, "{trace}");
    assert_eq!(run(trace.clone()), exps()[12..]);
    // The verifier refuses the plan that would.
    let (told, there) = (format!("c at {c}"), format!("c at {a}"));
    let wrong = trace.to_string().replace(&told, &there);
    assert!(wrong.contains(&there), "{trace}");
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

/// What the verifier says of a planned trace with these inputs and lines; no program is made of it either.
fn refused(inputs: &str, arena: u64, lines: &str) -> String {
    let text = format!(
        "# fulgurite trace 2\n# made by layout, donate, plan_memory\n\
         trace f for cpu ({inputs}) arena {arena} {{\n{lines}\n}}\n"
    );
    let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let Err(error) = trace.verify() else { panic!("verifies:\n{text}") };
    let message = error.to_string();
    assert_eq!(Program::new(trace.clone(), None).unwrap_err().to_string(), message);
    let unverified = Options { verify: false, ..Options::default() };
    assert_eq!(compile(trace, &unverified).unwrap_err().to_string(), message);
    message
}

/// A trace of which the metas are wrong has no plan yet; its kernels would run over the end of `x`.
#[test]
fn what_is_compiled_is_verified_whatever_the_options_say() {
    let unverified = Options { verify: false, ..Options::default() };
    let text = "# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\ny: f32[4096] = prims::exp(x)\nreturn y\n}\n";
    let message = compile(parse(text).unwrap(), &unverified).unwrap_err().to_string();
    assert!(message.contains("f32[4096]"), "{message}");
    // Two programs are made of stages that anybody may change.
    let text = "# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\ny: f32[4] = prims::exp(x)\nreturn y\n}\n";
    let programs = || split_stages(parse(text).unwrap(), &[0], &[0], &unverified).unwrap();
    prepare(&programs(), &unverified).unwrap();
    let mut changed = programs();
    changed.backward.clear();
    prepare(&changed, &unverified).map(drop).unwrap_err();
    for forward in [true, false] {
        let mut changed = programs();
        let stages = if forward { &mut changed.forward } else { &mut changed.backward };
        let block = &mut stages.last_mut().unwrap().trace.block;
        let at = block.parameters[0].index();
        block.values[at].meta = block.values[at].meta.with_shape([2]);
        let message = prepare(&changed, &unverified).map(drop).unwrap_err().to_string();
        assert!(message.contains("after delete_last_used") && message.contains("[2]"), "{message}");
    }
}

const TWO: &str = "x: f32[8] donated, y: f32[8]";

#[test]
fn an_input_is_not_written_over_while_it_is_read() {
    let message = refused(
        TWO,
        0,
        "b: f32[8] = prims::exp(x) by cpu\nc: f32[8] = prims::add(x, y) by cpu\nreturn b = b, c = c memory { b in x }",
    );
    assert!(message.contains("'b' takes the memory of 'x', which is read later"), "{message}");
    let message = refused(TWO, 0, "b: f32[8] = prims::exp(y) by cpu\nreturn b = b, x = x memory { b in x }");
    assert!(message.contains("'b' takes the memory of 'x', which is read later"), "{message}");
    // A view of it is read later.
    let message = refused(
        TWO,
        0,
        "v: f32[2, 4] = prims::reshape(x, shape=[2, 4]) by view\nb: f32[8] = prims::exp(y) by cpu\n\
         c: f32[2, 4] = prims::neg(v) by cpu\nreturn b = b, c = c memory { b in x }",
    );
    assert!(message.contains("'b' takes the memory of 'x', which is read later"), "{message}");
}

#[test]
fn a_value_in_the_arena_is_not_written_over_while_it_is_read() {
    let lines = "a: f32[8] = prims::exp(y) by cpu\nb: f32[8] = prims::neg(y) by cpu\n\
                 c: f32[8] = prims::add(a, b) by cpu\nreturn c = c memory { a at 0, b in a }";
    let message = refused(TWO, 64, lines);
    assert!(message.contains("'b' takes bytes 0..32 of the arena while 'a' lives in bytes 0..32"), "{message}");
    let lines =
        "a: f32[8] = prims::exp(y) by cpu\nb: f32[8] = prims::neg(y) by cpu\nreturn a = a, b = b memory { b in a }";
    let message = refused(TWO, 64, lines);
    assert!(message.contains("'b' takes the memory of 'a', which is read later"), "{message}");
}

/// The planner's predicate is about values that are computed in memory of their own, and says yes of the whole too. The
/// verifier looks at which bytes the line reads and writes.
#[test]
fn a_whole_is_not_written_over_what_its_part_reads_in_another_order() {
    let program = |seen: &str| {
        let text = format!(
            "# fulgurite trace 2\n# made by layout, donate\ntrace f for cpu (x: f32[5, 5, 8]) {{\n\
             a: f32[5, 5, 8] = prims::exp(x) by cpu\np: f32[5, 5, 8] = prims::neg(a) by cpu\n\
             v: f32[5, 5, 8] = prims::permute(p, dims=[{seen}]) by view\nw: f32[5, 5, 8] = prims::contiguous(v) by join\n\
             z: f32[5, 5, 8] = prims::abs(w) by cpu\nreturn z = z\n}}\n"
        );
        let laid_out = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let planned = plan::plan(&laid_out);
        planned.verify().unwrap();
        let id = |name: &str| planned.block.values.iter().position(|value| &*value.name == name).unwrap();
        let mut over = planned.clone();
        over.block.values[id("w")].storage = over.block.values[id("a")].storage;
        let ids = [id("w"), id("a")].map(|index| ValueId(index as u32));
        let allowed = may_lie_over(&over.block, &layouts(&over), &over.block.symbols[1], ids[0], ids[1]);
        assert!(allowed, "the planner's predicate allows it");
        over
    };
    let message = program("1, 0, 2").verify().unwrap_err().to_string();
    assert!(message.contains("'w' takes bytes 0..800 of the arena while 'a' lives"), "{message}");
    // In the same order it is an update in place.
    let right = program("0, 1, 2");
    right.verify().unwrap();
    let x: Vec<f32> = (0..200).map(|i| i as f32 / 100.0).collect();
    let found = Program::new(right, None).unwrap().run(vec![Array::new([5, 5, 8], &x).unwrap()]).unwrap();
    let expected = Array::new([200], &x.iter().map(|x| x.exp()).collect::<Vec<f32>>()).unwrap();
    for (a, b) in found[0].to_vec::<f32>().unwrap().iter().zip(expected.to_vec::<f32>().unwrap()) {
        assert!((a - b).abs() <= 1e-5 * b, "{a} for {b}");
    }
}

#[test]
fn a_number_for_each_row_is_not_written_over_in_a_region() {
    // Every thread that has a part of the row reads it.
    let region = "s: f32[], b: f32[8] = region([k, y], executor=cpu) by cpu {\n(k: f32[], y: f32[8])\n\
                  s: f32[] = prims::neg(k) by cpu\n\
                  all: f32[8] = prims::broadcast_in_dim(s, shape=[8], dims=[]) by cpu\n\
                  b: f32[8] = prims::add(y, all) by cpu\nyield s, b\n}\nreturn s = s, b = b memory { s in k }";
    let message = refused("k: f32[] donated, y: f32[8]", 0, region);
    assert!(message.contains("'s' takes the memory of 'k', which the same line reads"), "{message}");
}

#[test]
fn a_region_that_is_given_a_value_twice_is_not_written_over_it() {
    let region = "b: f32[8] = region([x, x], executor=cpu) by cpu {\n(x: f32[8], same: f32[8])\n\
                  a: f32[8] = prims::exp(x) by cpu\nb: f32[8] = prims::add(a, same) by cpu\nyield b\n}\nreturn b = b\n\
                  memory { b in x }";
    let message = refused(TWO, 0, region);
    assert!(message.contains("'b' takes the memory of 'x', which the same line reads"), "{message}");
}

#[test]
fn a_row_is_not_written_over_before_it_is_read_for_the_last_time() {
    // The double of `x` is known before the sum of the row, after which `x` is read again.
    let traced = |x: Tensor| {
        let rows = prims::broadcast_in_dim(prims::sum(x, [1]), x.shape(), [0]);
        (x * 2.0, prims::sub(x, rows))
    };
    for width in [2, 6, 4097, 9001] {
        let array = || {
            let values: Vec<f32> = (0..3 * width).map(|i| (i % 17) as f32 / 16.0).collect();
            Array::new([3, width], &values).unwrap()
        };
        let results = |(double, rest): (Array, Array)| [double.to_vec::<f32>().unwrap(), rest.to_vec::<f32>().unwrap()];
        let apart = results(jit(traced).call(array()).unwrap());
        let over = jit(traced).arguments(["x"]).results(["x", "rest"]).donate("x");
        assert_eq!(results(over.call(array()).unwrap()), apart, "rows of {width}");
        // In a chain the double takes the memory of what dies there.
        let chain = jit(|x: Tensor| {
            let (double, rest) = traced(prims::exp(x));
            prims::add(prims::flip(double, vec![1]), prims::flip(rest, vec![1]))
        });
        let unfused = jit(|x: Tensor| {
            let (double, rest) = traced(prims::exp(x));
            prims::add(prims::flip(double, vec![1]), prims::flip(rest, vec![1]))
        })
        .options(Options { fuse: false, ..Options::default() });
        let (a, b) = (chain.call(array()).unwrap(), unfused.call(array()).unwrap());
        for (a, b) in a.to_vec::<f32>().unwrap().iter().zip(b.to_vec::<f32>().unwrap()) {
            assert!((a - b).abs() <= 1e-3 * (1.0 + b.abs()), "rows of {width}: {a} for {b}");
        }
    }
}

#[test]
fn what_is_returned_has_memory_of_its_own() {
    let lines = "v: f32[2, 4] = prims::reshape(y, shape=[2, 4]) by view\nreturn v = v";
    let message = refused(TWO, 0, lines);
    assert!(message.contains("returns 'v', which is a view"), "{message}");
}

#[test]
fn a_region_is_what_its_executor_reads() {
    let region = |broadcast: &str| {
        format!(
            "b: f32[8, 8] = region([x], executor=cpu) by cpu {{\n(x: f32[8, 8])\n\
             s: f32[8] = prims::sum(x, dims=[1]) by cpu\n\
             all: f32[8, 8] = prims::broadcast_in_dim(s, shape=[8, 8], dims=[{broadcast}]) by cpu\n\
             b: f32[8, 8] = prims::sub(x, all) by cpu\nyield b\n}}\nreturn b = b"
        )
    };
    let message = refused("x: f32[8, 8]", 0, &region("1"));
    assert!(message.contains("'cpu' does not run this region") && message.contains("dims=[1]"), "{message}");
    let text = format!(
        "# fulgurite trace 2\n# made by plan_memory\ntrace f for cpu (x: f32[8, 8]) arena 0 {{\n{}\n}}\n",
        region("0")
    );
    parse(&text).unwrap().verify().unwrap();
    // A program is made of what verifies alone.
    let unverified = parse(&text.replace("dims=[0]", "dims=[1]")).unwrap();
    let message = Program::new(unverified, None).unwrap_err().to_string();
    assert!(message.contains("does not run this region"), "{message}");
}

#[test]
fn all_values_are_on_one_device() {
    let text = "# fulgurite trace 2\ntrace f for cuda:sm_90a (x: f32[8]) {\n\
                a: i64[8]@cpu = prims::full(size=[8], fill_value=1, dtype=i64, device=\"cpu\")\nreturn x = x, a = \
                    a\n}\n";
    let trace = parse(text).unwrap();
    let message = trace.verify().unwrap_err().to_string();
    assert!(message.contains("'a' is on cpu, the program runs on cuda:0"), "{message}");
    let message = stages(trace, &Options { verify: false, ..Options::default() }).unwrap_err().to_string();
    assert!(message.contains("prims::full") && message.contains("create it on cuda:0"), "{message}");
    let two = "# fulgurite trace 2\ntrace f for cuda:sm_90a (x: f32[8], y: f32[8]@cuda:1) {\nreturn x = x, y = y\n}\n";
    let message = parse(two).unwrap().verify().unwrap_err().to_string();
    assert!(message.contains("'y' is on cuda:1, the program runs on cuda:0"), "{message}");
}

#[test]
fn a_kernel_gets_the_strides_that_it_takes() {
    let lines = "t: f32[6, 4] = prims::permute(x, dims=[1, 0]) by view\n\
                 c: f32[6, 4] = prims::neg(t) by cpu\nreturn c = c";
    let text =
        format!("# fulgurite trace 2\n# made by plan_memory\ntrace f for cpu (x: f32[4, 6]) arena 0 {{\n{lines}\n}}\n");
    parse(&text).unwrap().verify().unwrap();
}
