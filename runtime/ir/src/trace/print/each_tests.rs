//! Lines that are written once for several inputs.

use super::together::COMPARED;
use super::*;
use crate::error::Error;
use crate::trace::Storage;
use crate::trace::parse;

/// A program with trees of three inputs.
fn program(lines: &str) -> String {
    format!(
        "# fulgurite trace 2\ntrace f for cpu (\n  p.w: f32[8] donated, .b: f32[8] donated,\n\
         \x20 p.h.0.w: f32[8] donated,\n  m.* like p.*,\n  k: f32[8], k.1: f32[8], k.2: f32[8], x: f32[8],\n\
         ) {{\n{lines}}}\n"
    )
}

/// The program that `lines` are when they are written one by one.
fn one_by_one(trace: &Trace) -> String {
    trace.block.symbols.iter().map(|symbol| format!("{}\n", print_symbol(&trace.block, symbol))).collect()
}

#[test]
fn lines_that_are_alike_for_every_input_are_written_once() {
    for (line, last) in [
        ("for p.*: new.* = tt::exp(p.*)", "= tt::exp(p.h.0.w)"),
        ("for p.*: new.* = tt::add(p.*, x) by tt_host", "= tt::add(p.h.0.w, x) by tt_host"),
        (
            "for m.*: new.*.it, .other = tt::split(m.*, parts=2)",
            "new.h.0.w.other: f32[8] = tt::split(m.h.0.w, parts=2)",
        ),
        ("for m.*: new.* = tt::mixed(m.*, weight=k to .2, other=2, last=p.*)", ", weight=k.2, other=2, last=p.h.0.w)"),
        ("for p.*: new.* = tt::norm(p.*, eps=0.5 but 1.0 for [h.0.w])", "= tt::norm(p.h.0.w, eps=1.0)"),
        ("for p.*: new.* = tt::norm(p.*, eps=0.5 but 1.0 for [b] but 2.0 for [h.0.w])", "(p.h.0.w, eps=2.0)"),
    ] {
        let text = program(&format!("  {line}\n  return x\n"));
        let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(trace.to_string(), text);
        let lines = one_by_one(&trace);
        assert!(trace.block.symbols.len() == 3 && lines.trim_end().ends_with(last), "{lines}");
        // Written one by one it is the same program, and is printed the same.
        assert_eq!(parse(&program(&format!("{lines}return x\n"))).unwrap().to_string(), text);
        let full = print(&trace, PrintOptions::FULL);
        assert!(!full.contains(".*: ") && parse(&full).unwrap() == trace, "{full}");
        // Of other lines each is written by itself.
        for (from, to) in [("p.b", "x"), ("new.h.0.w", "other"), ("new.b", "another"), ("p.w, ", "m.b, ")] {
            let lines = lines.replacen(from, to, 1);
            let other = parse(&program(&format!("{lines}return x\n"))).unwrap();
            let printed = other.to_string();
            assert_eq!(parse(&printed).unwrap(), other, "{printed}");
            assert!(!printed.contains(".*: ") || one_by_one(&trace) == lines, "{printed}");
        }
    }
}

#[test]
fn regions_yield_such_lines_together() {
    let text =
        program("  region by tt_host {\n    for p.*: yield new.* = tt::add(p.*, k to .2)\n  }\n  return p.* = new.*\n");
    let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(trace.block.symbols[0].results.len(), 3);
    assert_eq!(trace.to_string(), text);
    // Two of three are no results.
    let lines =
        "    new.w = tt::add(p.w, k)\n    yield new.b = tt::add(p.b, k.1)\n    new.h.0.w = tt::add(p.h.0.w, k.2)\n";
    let text = text.replace("    for p.*: yield new.* = tt::add(p.*, k to .2)\n", lines);
    let trace = parse(&text.replace("p.* = new.*", "new.b")).unwrap();
    assert!(trace.to_string().contains(lines), "{trace}");
}

#[test]
fn a_value_may_be_called_for() {
    let text = program("  for = tt::exp(p.w)\n  for.1, for.2 = tt::split(for, parts=2); del for\n  return for.1\n");
    assert_eq!(parse(&text).unwrap().to_string(), text);
}

#[test]
fn messages_say_what_a_line_for_each_input_lacks() {
    for (line, part) in [
        ("for q.*: new.* = tt::exp(q.*)", "no inputs that follow one another are below 'q'"),
        ("for p.* new.* = tt::exp(p.*)", "expected ':' and a line"),
        ("for p.*: tt::barrier(p.*)", "a line for each input has results"),
        ("for p.*: new = tt::exp(p.*)", "'new' is defined twice"),
        ("for p.*: new.* = tt::exp(q.*)", "no value is called 'q.w'"),
        ("for p.*: new.* = tt::add(p.*, k to .1)", "these are 2 names for 3 inputs"),
        (
            "for p.*: new.* = tt::norm(p.*, eps=0.5 but 1.0 for [c])",
            "'c' is no input that the line is for, or is listed",
        ),
        ("for p.*: new.* = tt::norm(p.*, eps=0.5 but 1.0 for [b, b])", "'b' is no input that the line is for, or is"),
        ("for p.*: new.* = tt::norm(p.*, eps=0.5 but 1 for [b])", "'eps' is float, found '1', write 1.0"),
        ("for p.*: new.* = tt::add(p.*, 1 but none for [b])", "expected a number, found 'none'"),
        ("for p.*: new.* = tt::exp(p.*) {\n  yield x = tt::exp(input)\n}", "a line for each input has no body"),
    ] {
        match parse(&program(&format!("{line}\nreturn x\n"))) {
            Err(Error::Parse { message, .. }) => assert!(message.contains(part), "{line}\n  {message}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn a_line_for_many_inputs_is_bounded() {
    // Each line doubles the inputs.
    let trees: String = (0..22).map(|i| format!("t.{i}.* like t.*, ")).collect();
    let head = format!("# fulgurite trace 2\ntrace f for cpu (t.a.x: f32[], t.a.y: f32[], t.a.z: f32[], {trees}) {{\n");
    let text = format!("{head}for t.*: u.* = tt::every(t.*, text=\"{}\")\nreturn\n}}\n", "x".repeat(1_000_000));
    assert!(parse(&text).unwrap_err().to_string().contains("too many values together"));
}

/// A result of the size of an operand that ends there is written over it, unless the text says another place.
#[test]
fn memory_that_is_written_over_is_not_listed() {
    let text = "\
# fulgurite trace 2
# made by plan_memory, delete_last_used
# memory: 32 resident (32 in inputs, 0 in outputs) + 96 transient = 128 bytes
trace f for cpu (x: f32[8]) arena 96 {
  a = tt::exp(x) by tt_host
  b = tt::exp(a) by tt_host; del a
  c = tt::exp(b) by tt_host; del b
  d, e = tt::split(c, parts=2) by tt_host; del c
  f: f32[] = tt::mean(d) by tt_host; del d, e
  return
  memory {
    a at 0, c at 32, e at 64, f at 0
  }
}
";
    let trace = parse(text).unwrap();
    let places: Vec<Option<Storage>> = trace.block.values[1..].iter().map(|value| value.storage).collect();
    assert_eq!(places, [0, 0, 32, 32, 64, 0].map(|at| Some(Storage::Arena(at))));
    assert_eq!(trace.to_string(), text);
    assert_eq!(parse(&print(&trace, PrintOptions::FULL)).unwrap(), trace);
}

/// Numbers in place of operands, and lists of several names that all lines read, are told apart from what differs.
#[test]
fn numbers_and_lists_of_lines_that_are_alike_read_back() {
    let lines = |call: &dyn Fn(&str, usize) -> String| -> String {
        ["w", "b", "h.0.w"].iter().enumerate().map(|(i, rest)| format!("  new.{rest} = {}\n", call(rest, i))).collect()
    };
    let numbers = lines(&|rest, i| format!("tt::add(p.{rest}, {})", [0.9, 0.9, 0.1][i]));
    let first = lines(&|rest, i| format!("tt::mixed(p.{rest}, other={}, last=x)", [2, 3, 2][i]));
    let inputs = lines(&|rest, _| format!("tt::gather(p.{rest}, [m.w, m.b, m.h.0.w], dim=1)"));
    let counted = lines(&|rest, i| format!("tt::gather(p.{rest}, [x, k, k.1, k.2], dim={i})"));
    for (lines, part) in [
        (numbers, "tt::add(p.*, 0.9 but 0.1 for [h.0.w])"),
        (first, "other=2 but 3 for [b]"),
        (inputs, "(p.*, [m.w, .b, .h.0.w], dim=1)"),
        (counted, "(p.*, [x, k, k.1, k.2], dim=0 but 1 for [b] but 2 for [h.0.w])"),
    ] {
        let trace = parse(&program(&format!("{lines}  return x\n"))).unwrap();
        let text = trace.to_string();
        assert!(text.contains(part), "{text}");
        let back = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(back, trace, "{text}");
    }
}

/// The last counter is that of 32 bits.
#[test]
fn counters_end_where_numbers_do() {
    let inputs = "k.4294967293: f32[8], k.4294967294: f32[8], k.4294967295: f32[8], k.4294967296: f32[8],\n";
    let list = "k.4294967293, k.4294967294, k.4294967295, k.4294967296";
    let lines = format!("  y: f32[8] = tt::cat([{list}], dim=0)\n  return y\n");
    let text = program(&lines).replace("  p.w:", &format!("  {inputs}  p.w:"));
    let trace = parse(&text).unwrap();
    let text = trace.to_string();
    assert_eq!(parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), trace);
}

#[test]
fn regions_delete_a_value_called_view() {
    let lines = "    view = tt::exp(x)\n    y = tt::exp(view); del view\n    yield z = tt::exp(y)\n";
    let text = program(&format!("  region by tt_host {{\n{lines}  }}\n  return z\n"));
    assert_eq!(parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).to_string(), text);
}

/// Runs in a line for many inputs are read once for each, not all of them for each.
#[test]
fn a_tree_of_many_inputs_reads_back() {
    let count = 1_100;
    let inputs: String = (0..count).map(|i| format!("p.h.{i}.w: f32[8] donated, ")).collect();
    let counted: String = (1..count).map(|i| format!(", k.{i}: f32[8]")).collect();
    let last = count - 1;
    let text = format!(
        "# fulgurite trace 2\ntrace f for cpu ({inputs}m.* like p.*, k: f32[8]{counted}) {{\n\
         \x20 for m.*: mean.p.* = tt::add(m.*, k to .{last})\n\
         \x20 for p.*: new.p.* = tt::add(p.*, mean.p.*)\n\
         \x20 norm: f32[8] = tt::cat([mean.p.*, new.p.*], dim=0); del mean.p.*\n\
         \x20 return p.* = new.p.*, norm = norm\n}}\n"
    );
    let trace = parse(&text).unwrap();
    trace.verify().unwrap();
    assert_eq!(trace.block.symbols.len(), 2 * count + 2);
    let printed = trace.to_string();
    for line in text.lines().filter(|line| line.starts_with("  for ")) {
        assert!(printed.contains(&format!("{line}\n")), "{line}");
    }
    let back = parse(&printed).unwrap();
    assert_eq!(back, trace);
    back.verify().unwrap();
    let full = print(&trace, PrintOptions::FULL);
    assert!(!full.contains(".*") && parse(&full).unwrap() == trace);
}

/// A program of `inputs` inputs below one name and these lines.
fn of_inputs(inputs: usize, lines: &str) -> Trace {
    let inputs: Vec<String> = (0..inputs).map(|i| format!("p.x{i}: f32[8]")).collect();
    let head = format!("# fulgurite trace 2\ntrace f for cpu ({}) {{\n", inputs.join(", "));
    parse(&format!("{head}{lines}return\n}}\n")).unwrap()
}

/// What the parser takes is what the printer writes: beyond the bound, names are written one by one.
#[test]
fn a_text_that_names_too_many_values_together_is_written_name_by_name() {
    let mut trace = of_inputs(1100, "y = tt::gather(p.x0, [p.*], dim=0)\n");
    for (lines, together) in [(300, true), (1000, false)] {
        let block = &mut trace.block;
        while block.symbols.len() < lines {
            let mut symbol = block.symbols[0].clone();
            let meta = block.meta(symbol.results[0]).clone();
            symbol.results[0] = block.define(format!("y{}", block.symbols.len()), meta);
            block.symbols.push(symbol);
        }
        let text = trace.to_string();
        assert_eq!(text.contains("p.*"), together);
        assert!(parse(&text).unwrap() == trace, "{lines} lines");
    }
}

/// Lines that read the first of many inputs, but are not written as one, are not compared with all that follow.
#[test]
fn the_search_for_lines_that_are_alike_takes_time_in_proportion_to_their_number() {
    for count in [1250, 5000] {
        let lines: String = (0..count).map(|i| format!("e{i} = tt::exp(p.x0)\n")).collect();
        let trace = of_inputs(count, &lines);
        COMPARED.set(0);
        let text = trace.to_string();
        assert!(parse(&text).unwrap() == trace);
        assert!(COMPARED.get() <= 2 * count, "{} comparisons for {count} lines", COMPARED.get());
    }
    let lines: String = (0..5000).map(|i| format!("e.x{i} = tt::exp(p.x{i})\n")).collect();
    COMPARED.set(0);
    let text = of_inputs(4000, &lines[..lines.find("e.x4000").unwrap()]).to_string();
    assert!(text.contains("for p.*: e.* = tt::exp(p.*)") && COMPARED.get() <= 8000, "{}", COMPARED.get());
}
