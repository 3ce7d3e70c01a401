//! Reading back what was printed, and what is said of texts that are wrong.

use super::*;
use crate::error::Error;
use crate::trace::Storage;
use crate::trace::print::MAX_DEPTH;
use crate::trace::test_support::{GOOD, Generator, Random};

/// Where and how a text fails.
fn failure(text: &str) -> (usize, usize, String) {
    match parse(text) {
        Err(Error::Parse { line, column, message }) => (line, column, message),
        other => panic!("{other:?} from\n{text}"),
    }
}

fn line_failure(line: &str) -> (usize, String) {
    let text = format!("# fulgurite trace 2\ntrace f for cpu (x: f32[4], yy: f32[4]) {{\n{line}\nreturn\n}}\n");
    let (at, column, message) = failure(&text);
    assert!(at >= 3, "{message}");
    (column, message)
}

#[test]
fn random_traces_read_back_as_they_were() {
    let mut written_once = 0;
    for seed in 0..3000 {
        let trace = Generator { random: Random(seed) }.trace();
        let text = trace.to_string();
        written_once += usize::from(text.contains(".*: "));
        let back = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
        assert_eq!(back, trace, "seed {seed}\n{text}");
        assert_eq!(back.block.clone().canonical(), trace.block, "seed {seed}");
        assert_eq!(back.to_string(), text, "seed {seed}");
    }
    assert!(written_once > 20, "{written_once} texts have a line for several inputs");
}

#[test]
fn a_value_may_be_called_as_the_word_between_the_first_and_the_last_of_a_run() {
    let lines = "  a = tt::exp(x)\n  b = tt::exp(a); del a\n  to = tt::exp(b); del b\n  return result = to\n";
    let trace = parse(&format!("# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {{\n{lines}}}\n")).unwrap();
    assert_eq!(parse(&trace.to_string()).unwrap(), trace, "{trace}");
}

#[test]
fn a_run_of_names_may_begin_with_a_value_called_as_the_word_before_a_call() {
    let lines = "  region by tt_host {
    view = tt::exp(x)
    view.1 = tt::exp(view)
    view.2 = tt::exp(view.1)
    yield all: f32[4] = tt::cat([view to .2], dim=0)
  }
";
    let text = format!("# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {{\n{lines}  return result = all\n}}\n");
    let trace = parse(&text).unwrap();
    let printed = trace.to_string();
    assert!(printed.contains("[view to .2]"), "{printed}");
    assert_eq!(parse(&printed).unwrap(), trace, "{printed}");
}

#[test]
fn traces_that_are_not_canonical_read_back_canonical() {
    let mut trace = parse(GOOD).unwrap();
    // Another numbering: every value one further, and one that is not defined.
    let shift = |id: &mut ValueId| id.0 += 1;
    let block = &mut trace.block;
    block.values.insert(0, block.values[0].clone());
    block.parameters.iter_mut().chain(&mut block.results).for_each(shift);
    for symbol in &mut block.symbols {
        symbol.results.iter_mut().for_each(shift);
        symbol.arguments = crate::argument::map_arguments(&symbol.arguments, |id| ValueId(id.0 + 1));
    }
    for value in &mut block.values {
        if let Some(Storage::Shared(id)) = &mut value.storage {
            shift(id);
        }
    }
    let back = parse(&trace.to_string()).unwrap();
    assert_ne!(back, trace);
    assert_eq!(back, Trace { block: trace.block.clone().canonical(), ..trace });
}

#[test]
fn white_space_and_comments_are_free() {
    let text = GOOD.replace("  tt::barrier(every)", "# why\n\ttt::barrier (\n every , ) # because");
    assert_eq!(parse(&text.replace('\n', "\r\n")).unwrap(), parse(GOOD).unwrap());
}

#[test]
fn messages_say_what_to_write() {
    for (line, column, part) in [
        ("y: f32[4] = tt::exq(x)", 13, "no operator is called 'tt::exq', did you mean 'tt::exp'?"),
        ("y: f32[4] = tt::exp(yyy)", 21, "no value is called 'yyy' at this line, did you mean 'yy'?"),
        ("y: f32[4], z: f32[4] = tt::exp(x)", 24, "tt::exp returns 1 tensor, this line names 2"),
        ("y: f32[4] = tt::topk(x)", 13, "tt::topk returns 2 tensors, this line names 1"),
        ("y: f32[4], z: i64[4] = tt::topk(x)", 24, "tt::topk lacks argument 'k' (size), which has no default"),
        ("y: f32[4], z: i64[4] = tt::topk(x, 4)", 36, "argument 'k' is named, write 'k=...'"),
        ("y: f32[4], z: i64[4] = tt::topk(x, k=-4)", 38, "'k' is size, found '-4'"),
        ("y: f32[4], z: i64[4] = tt::topk(x, kk=4)", 36, "tt::topk has no argument 'kk', did you mean 'k'?"),
        ("y: f32[4], z: i64[4] = tt::topk(x, k=4, k=4)", 41, "argument 'k' is given twice"),
        ("y: f32[4] = tt::norm(x, weight=none, eps=1)", 42, "'eps' is float, found '1', write 1.0"),
        ("y: f32[4] = tt::exp(x, x)", 24, "tt::exp takes 1 arguments: tt::exp(input: tensor) -> tensor"),
        ("y: f32[4] = tt::exp(3)", 21, "expected a value, found '3'; a name like this is quoted"),
        ("y: f32[4] = tt::cat(x, dim=0)", 21, "expected '[' and tensors: 'tensors' is a list"),
        ("x: f32[4] = tt::exp(x)", 1, "'x' is defined twice"),
        ("y: f33[4] = tt::exp(x)", 4, "expected a type like 'f32[4, 5]', found 'f33', did you mean 'f32'?"),
        ("y: f32[-4] = tt::exp(x)", 8, "'-4' is out of range for an extent"),
        ("y: f32[9223372036854775807, 4] = tt::exp(x)", 3, "f32[9223372036854775807, 4] is larger than any memory"),
        ("y: f32[4] = tt::exp(x)\nreturn y memory { z at 0 }", 19, "no value is called 'z'"),
        ("y: f32[4] = tt::exp(x)\nreturn y memory { y at top }", 24, "expected an offset in the arena, 'output' or"),
        ("y: f32[4] = tt::exp(x)\nreturn y memory { y at 0, y at 8 }", 27, "the memory of 'y' is told twice"),
        ("y: f32[4] = tt::exp(x)\ndel y", 1, "'del' ends the line that reads last: write '; del' behind it"),
        ("y: f32[4] = tt::exp(.x)", 21, "'.x' is below a scope, and there is none here"),
        ("y: f32[4] = tt::exp(.)", 21, "expected the rest of a name behind its dot"),
        ("y, z = tt::exp(x)", 8, "tt::exp returns 1 tensor, this line names 2"),
        ("y, z: f32[4], w = tt::split(x, parts=3)", 17, "expected ',' or ':' and a type after the name, found '='"),
        ("y = tt::add(1, 2)", 1, "expected ':' and a type after the name: no type follows from what is read"),
        ("y, z = tt::cat([x], dim=0)", 8, "tt::cat returns 1 tensor, this line names 2"),
        ("y = tt::cat([x, x], dim=0)", 1, "no type follows from what is read"),
        ("y = tt::exp(p.*)", 13, "no value is called 'p.'"),
        ("y = tt::cat([p.*], dim=0)", 14, "no inputs that follow one another are below 'p'"),
        ("y to .9999 = tt::split(x, parts=3)", 3, "names count from 'y' up to at most 4096 more"),
        ("y to .2 = tt::exp(x)", 11, "tt::exp returns 1 tensor, this line names 3"),
        ("y = tt::cat([x to .1], dim=0)", 14, "no value is called 'x.1'"),
        ("y: f32[4] = tt::exp(x) {\nyield z: f32[4] = tt::exp(input)\nyield z\n}", 1, "not both"),
        ("region by tt_host {\nyield y: f32[4] = tt::exp(xx)\n}", 27, "no value is called 'xx' at this line, did you"),
        ("region by tt_host {\nx: f32[4] = tt::exp(yy)\nyield yy: f32[4] = tt::exp(x)\n}", 7, "'yy' is defined twice"),
        ("y: f32[4] = value_and_grad(x)", 13, "value_and_grad lacks argument 'wrt' (size[])"),
        ("y: f32[4] = region(x)", 13, "region lacks argument 'executor'"),
        ("y: f32[4] = tt::add(x, 99999999999999999999)", 24, "is out of range for an integer"),
        ("y: f32[4] = tt::add(x, 1e999)", 24, "is out of range for a number"),
        ("y: f32[4] = tt::add(x, nan(0x3ff0000000000000))", 28, "expected the bits of a NaN"),
        ("y: f32[4] = tt::exp(\"x", 21, "this string does not end on its line"),
        ("y: f32[4] = tt::exp(\"\\q\")", 22, "no escape is called '\\q'"),
        ("y: f32[4] = tt::exp(\"\\u{d800}\")", 22, "expected a character's code"),
        (
            "y: f32[4] = value_and_grad(x, wrt=[0]) {\nyield\n}",
            1,
            "expected '(' and the body's parameters, found 'yield'",
        ),
        ("y: f32[4] = tt::exp(tt::exp(x))", 21, "tt::exp is no view: it takes a line of its own"),
        ("y: f32[4] = tt::exp(tt::looks(x))", 21, "no operator is called 'tt::looks'"),
        ("y: f32[4] = tt::exp(view tt::look(x))", 21, "no value is called 'view'"),
        ("tt::barrier(tt::look(x))", 13, "calls are inside lines of programs and regions that have results"),
        ("y.input: f32[4] = tt::exp(x)\ny: f32[4] = tt::exp(tt::look(x))", 21, "'y.input' is defined twice"),
        ("}", 1, "expected a line or 'return', found '}'"),
    ] {
        let (at, message) = line_failure(line);
        assert!(message.contains(part) && at == column, "{line}\n  {at}: {message}");
    }
    assert!(failure("").2.contains("expected the first line '# fulgurite trace 2'"));
    let old = failure("# fulgurite trace 1\n").2;
    assert_eq!(old, "this is version '1' of the text, only 2 is read; print the trace again with this version");
    assert!(failure("# fulgurite trace 2\ntrace f for cpu: () {").2.contains("expected a target"));
    assert!(failure(&GOOD.replace("made by acquire,", "made by ,")).2.contains("the name of a transform"));
    assert!(failure(&format!("{GOOD}more")).2.contains("expected the end of the text, found 'more'"));
    assert_eq!(failure(&GOOD.replace("x: f32[8] strides", "x: f32[é8] strides")).0, 6);
}

#[test]
fn hostile_texts_fail_quickly() {
    let head = "# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\n";
    let deep = "y: f32[4] = tt::exp(x) { (x: f32[4])\n".repeat(100_000);
    assert!(failure(&format!("{head}{deep}")).2.contains("bodies nest deeper than 64"));
    let lists = format!("{head}y: f32[4] = tt::cat([x], dim={}", "[".repeat(1_000_000));
    assert!(failure(&lists).2.contains("lists nest deeper than 64"));
    let long = "y".repeat(10_000_000);
    let views = format!("{head}y: f32[4] = tt::exp({}", "tt::look(".repeat(100_000));
    assert!(failure(&views).2.contains("calls inside lines nest deeper than 4"));
    let names = format!("{head}z: f32[4] = tt::cat([x{}", ", .x.x".repeat(100_000));
    assert!(failure(&names).2.len() < 500);
    let several = format!("{head}{}", "y to .4000 = tt::split(x, parts=9)\n".repeat(10_000));
    assert!(failure(&several).2.contains("defined twice"));
    for text in [
        format!("{head}z: f32[4] = {long}(x)"),
        format!("{head}z: f32[4] = tt::exp({long})"),
        format!("{head}z: f32[4]@{long}"),
        format!("{head}z: f32[4] = tt::exp(x) by {long}"),
        format!("{head}z: f32[4], w: i64[4] = tt::topk(x, {long}=1)"),
        format!("{head}z: f32[4] = tt::add(x, {}.5)", "1".repeat(1_000_000)),
    ] {
        assert!(failure(&text).2.len() < 500);
    }
    let kinds: String = (0..100).map(|i| format!("z{i}: f32[]@tt_kind{i} = tt::exp(x)\n")).collect();
    assert!(failure(&format!("{head}{kinds}")).2.contains("one kind of device too many"));
    let executors: String = (0..100).map(|i| format!("z{i}: f32[] = tt::exp(x) by tt_{i}\n")).collect();
    assert!(failure(&format!("{head}{executors}")).2.contains("one executor too many"));
}

#[test]
fn bodies_nest_up_to_the_bound() {
    let head = "# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\n";
    let text = format!(
        "{head}{}{}return\n}}\n",
        "y: f32[4] = tt::exp(x) {\n(x: f32[4])\n".repeat(MAX_DEPTH),
        "yield x\n}\n".repeat(MAX_DEPTH)
    );
    let trace = parse(&text).unwrap();
    assert_eq!(parse(&trace.to_string()).unwrap(), trace);
    trace.verify().unwrap();
}
