//! Tests of the printed text.

use super::words::name;
use super::*;
use crate::argument::Arg;
use crate::trace::Callee;
use crate::trace::parse;
use crate::trace::test_support::{GOOD, SHORT};

#[test]
fn options_leave_out_what_they_say() {
    let trace = parse(GOOD).unwrap();
    assert_eq!(trace.to_string(), SHORT);
    assert_eq!(parse(SHORT).unwrap(), trace);
    let outline = print(&trace, PrintOptions::OUTLINE);
    assert!(!outline.contains("yield") && !outline.contains("refused") && !outline.contains("arena"), "{outline}");
    assert!(outline.contains("norm = tt::norm(values, weight=x, eps=1e-5)\n  h.0:"), "{outline}");
    assert!(
        outline.contains("  block.1.add: f32[8] = region([h.0, x], executor=tt_host) by tt_host\n  many"),
        "{outline}"
    );
    let one = print(&trace, PrintOptions { depth: 1, ..PrintOptions::COMPACT });
    assert!(one.contains("identity = tt::identity(exp)\n    yield add ="), "{one}");
}

#[test]
fn names_are_quoted_where_they_would_read_as_something_else() {
    for bare in ["x", "h.0.ln_1", "0.weight", "t0.2.1", "layer-1", "a::b", "infinity", "1e", "x.", "region"] {
        assert_eq!(name(bare), bare);
    }
    for quoted in ["", "0", "1.5", "1e-5", "nan", "none", "by", "a b", ".x", "-x", "x:", "é", "a:b", "\"", "\n"] {
        assert_eq!(name(quoted), format!("{quoted:?}"));
    }
}

#[test]
fn broken_traces_print_too() {
    let mut trace = parse(GOOD).unwrap();
    trace.block.results.push(ValueId(u32::MAX));
    trace.block.parameters.push(ValueId(99_999));
    trace.block.symbols[3].arguments.push(Arg::Attribute(crate::argument::Attribute::None));
    trace.block.values.truncate(3);
    trace.outputs.clear();
    trace.inputs.clear();
    assert!(trace.to_string().contains("\n  return ?"));
    let _ = trace.block.clone().canonical();
    assert!(print_symbol(&trace.block, &trace.block.symbols[0]).contains("= tt::exp("));
}

#[test]
fn the_full_text_leaves_nothing_out() {
    let trace = parse(GOOD).unwrap();
    let full = print(&trace, PrintOptions::FULL);
    assert_eq!(parse(&full).unwrap(), trace, "{full}");
    for part in [
        "params.w: f32[8]@cpu parameter",
        "many: f32[8]@cpu, many.1: f32[8]@cpu = tt::split",
        "tt::mixed(x, weight=none, other",
        "nested=[[1.0], [], [inf, -inf]], maybe=none)",
        "block.1.add: f32[8]@cpu = region([h.0, x], executor=tt_host) by tt_host {\n    (h.0: f32[8]@cpu, x: f32[8]@cpu)\n    \
         block.1.exp: f32[8]@cpu = tt::exp(h.0) by tt_host\n",
        "    (input: f32[8]@cpu, weight: f32[8]@cpu)\n    exp: f32[8]@cpu = tt::exp(input)\n",
        "    add: f32[8]@cpu = tt::add(identity, weight)\n    yield add\n  }\n",
        "h.0 at output, loss at none, new in params.w\n",
    ] {
        assert!(full.contains(part), "{part}\n{full}");
    }
    assert!(full.lines().count() > SHORT.lines().count());
}

#[test]
fn lines_fold_between_arguments_and_prose_between_words() {
    let long = |n: usize| (0..n).map(|i| format!("value.{i}.number")).collect::<Vec<String>>();
    let mut trace =
        parse("# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\ny: f32[4] = tt::exp(x)\nreturn y\n}\n").unwrap();
    let block = &mut trace.block;
    for name in long(40) {
        let id = block.define(name, block.meta(ValueId(0)).clone());
        block.symbols.push(BoundSymbol { results: std::iter::once(id).collect(), ..block.symbols[0].clone() });
    }
    let every: Vec<ValueId> = (1..41).map(ValueId).collect();
    let cat = crate::trace::test_support::op("tt::cat");
    block.symbols.push(BoundSymbol {
        callee: Callee::Operator(cat),
        arguments: vec![Arg::List(every), Arg::Attribute(crate::argument::Attribute::Scalar(0_i64.into()))],
        results: std::iter::once(ValueId(41)).collect(),
        ..block.symbols[0].clone()
    });
    block.symbols[0].refusals.push(crate::refusal::Refusal {
        executor: "nobody",
        reason: "words  with two spaces, \"quotes\" and a \\ backslash ".repeat(9),
    });
    block.symbols.remove(40);
    let text = trace.to_string();
    assert_eq!(parse(&text).unwrap().to_string(), text);
    assert_eq!(parse(&text).unwrap(), Trace { block: trace.block.clone().canonical(), ..trace }, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let widths: Vec<usize> = text.lines().skip_while(|line| !line.contains("tt::cat")).map(str::len).collect();
    assert!(widths.len() > 5 && widths[..4].iter().all(|width| *width > WIDTH - 20), "{text}");
    assert!(text.contains(" \\\n        "), "{text}");
}

#[test]
fn outputs_of_long_names_fold_between_their_names() {
    let name = ["attention"; 7].join(".");
    let text = format!(
        "# fulgurite trace 2\ntrace f for cpu ({name}: f32[2], y: f32[2]) {{\nreturn saved.{name} = {name}, y = y\n}}\n"
    );
    let trace = parse(&text).unwrap();
    let printed = trace.to_string();
    assert!(printed.lines().all(|line| line.chars().count() <= WIDTH), "{printed}");
    assert!(printed.contains(&format!("saved.{name} =\n        {name},\n")), "{printed}");
    assert_eq!(parse(&printed).unwrap(), trace);
}

#[test]
fn lists_of_transforms_and_types_behind_long_names_fold() {
    let transforms: Vec<String> = (0..20).map(|i| format!("transform_{i}")).collect();
    let long = ["attention"; 11].join(".");
    let text = format!(
        "# fulgurite trace 2\n# made by {}\ntrace f for cpu (x: f32[100, 200]) {{\n{long}: f32[100, 200] = \
         tt::exp(x)\nreturn {long}\n}}\n",
        transforms.join(", ")
    );
    let trace = parse(&text).unwrap();
    assert_eq!(trace.history, transforms);
    for options in [PrintOptions::COMPACT, PrintOptions::FULL] {
        let printed = print(&trace, options);
        assert!(printed.lines().all(|line| line.chars().count() <= WIDTH), "{printed}");
        assert!(printed.contains("transform_7,\n#   transform_8, "), "{printed}");
        assert_eq!(parse(&printed).unwrap(), trace);
    }
    // The comma alone says that the list goes on: another comment behind it is none of its lines.
    let other = text.replace("transform_19\n", "transform_19\n# transform_20\n");
    assert_eq!(parse(&other).unwrap().history, transforms);
    let cut = text.replace("transform_19\n", "transform_19,\n");
    assert!(parse(&cut).unwrap_err().to_string().contains("the name of a transform"));
}

#[test]
fn lists_are_grouped_by_scope_and_named_below_it() {
    let names = ["h.0.ln.weight", "h.0.ln.bias", "h.0.fc.weight", "x", "y", "x.0", "h.0.fc.bias"];
    let inputs: Vec<String> = names.iter().map(|name| format!("{name}: f32[1000, 1000, 1000] parameter")).collect();
    let outputs: Vec<String> = names.iter().map(|name| format!("new.{name} = {name}")).collect();
    let text =
        format!("# fulgurite trace 2\ntrace f for cpu ({}) {{\nreturn {}\n}}\n", inputs.join(", "), outputs.join(", "));
    let printed = parse(&text).unwrap().to_string();
    let expected = "\
# fulgurite trace 2
trace f for cpu (
  h.0.ln.weight: f32[1000, 1000, 1000] parameter, .bias: f32[1000, 1000, 1000] parameter,
  h.0.fc.weight: f32[1000, 1000, 1000] parameter,
  x: f32[1000, 1000, 1000] parameter, y: f32[1000, 1000, 1000] parameter, x.0: f32[1000, 1000, 1000] parameter,
  h.0.fc.bias: f32[1000, 1000, 1000] parameter,
) {
  return (
    new.h.0.ln.weight = h.0.ln.weight, .bias = h.0.ln.bias,
    new.h.0.fc.weight = h.0.fc.weight,
    new.x = x, .y = y, .x.0 = x.0,
    new.h.0.fc.bias = h.0.fc.bias,
  )
}
";
    assert_eq!(printed, expected);
    assert_eq!(parse(&printed).unwrap(), parse(&text).unwrap());
}

#[test]
fn views_of_one_reader_are_written_inside_its_line() {
    let lines = "  a = tt::exp(x) by tt_host
  b = tt::add(tt::look(tt::look(a)), y) by tt_host; del a
  twice = tt::look(y) by view
  region by tt_host {
    c = tt::add(twice, tt::look(b))
    yield d = tt::add(view tt::look(x), c)
  }; del b, twice
  e: f32[8] = tt::cat([tt::look(d), tt::look(x)], dim=0); del d
";
    let text = |history: &str, lines: &str| {
        format!(
            "# fulgurite trace 2\n# made by {history}\ntrace f for cpu (x: f32[8], y: f32[8]) \
             {{\n{lines}  return e\n}}\n"
        )
    };
    let ending = text("delete_last_used", lines);
    let trace = parse(&ending).unwrap();
    assert_eq!(trace.to_string(), ending);
    trace.verify().unwrap();
    let names: Vec<&str> = trace.block.values.iter().map(|value| &*value.name).collect();
    let views = ["b.input.input", "b.input", "b", "twice", "d.input", "d", "e.tensors.0", "e.tensors.1", "e"];
    assert_eq!(names[3..], views);
    let deleted: Vec<Vec<ValueId>> = trace
        .block
        .symbols
        .iter()
        .filter(|symbol| symbol.callee == Callee::Delete)
        .map(|symbol| symbol.operands().collect())
        .collect();
    let ids = |at: &[u32]| at.iter().map(|id| ValueId(*id)).collect::<Vec<_>>();
    assert_eq!(deleted, [ids(&[2, 3, 4]), ids(&[5, 6, 7]), ids(&[8, 9, 10])]);
    // The full text has a line and a name for each.
    let full = print(&trace, PrintOptions::FULL);
    assert!(full.contains("b.input: f32[8]@cpu = tt::look(b.input.input) by view\n"), "{full}");
    assert_eq!(parse(&full).unwrap(), trace);
    // Without deletes nothing ends.
    let staying = text("layout", &lines.replace("; del a", "").replace("; del b, twice", "").replace("; del d", ""));
    let trace = parse(&staying).unwrap();
    assert_eq!(trace.to_string(), staying);
    assert!(trace.block.symbols.iter().all(|symbol| symbol.callee != Callee::Delete));
    // Another name, another reader or another executor gives a view a line of its own.
    for (from, to) in [("tt::look(tt::look(a))", "b.other"), ("tt::look(d)", "e.tensors")] {
        let before = format!("  {to} = {from} by view\n");
        let lines: Vec<&str> = lines.lines().collect();
        let at = lines.iter().position(|line| line.contains(from)).unwrap();
        let with =
            [&lines[..at], &[before.trim_end(), &*lines[at].replace(from, to)], &lines[at + 1..]].concat().join("\n");
        let text = text(
            "layout",
            &format!("{}\n", with.replace("; del a", "").replace("; del b, twice", "").replace("; del d", "")),
        );
        let trace = parse(&text).unwrap();
        assert_eq!(trace.to_string(), text);
    }
}

/// A program whose inputs are three trees of one shape.
fn trees(lines: &str, outputs: &str) -> String {
    format!(
        "# fulgurite trace 2\ntrace f for cpu (\n  p.w: f32[8] donated, .b: f32[] donated,\n\
         \x20 p.h.0.w: i64[2, 3] donated,\n\
         \x20 mean.* like p.*,\n  square.* like p.*,\n  x: f32[8],\n) {{\n{lines}  return {outputs}\n}}\n"
    )
}

#[test]
fn what_is_below_one_name_is_written_once() {
    let outputs = "(\n    p.* = new.*.it,\n    rest = x,\n  )";
    let lines: String = ["w", "b", "h.0.w"]
        .iter()
        .map(|rest| format!("  new.{rest}.it, new.{rest}.other = tt::split(p.{rest}, parts=2)\n"))
        .collect();
    let lines = format!(
        "{lines}  all: f32[8] = tt::cat([x, mean.*, new.b.other, p.*, square.w], dim=0); del p.*, mean.*\n\
         \x20 all.1, all.2: f32[8], all.3: i64[] = tt::split(all, parts=3)\n\
         \x20 y: f32[8] = tt::cat([all to .3], dim=0); del all to .3\n"
    );
    let text = trees(&lines, outputs);
    let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let printed = trace.to_string();
    assert_eq!(parse(&printed).unwrap(), trace, "{printed}");
    let names: Vec<&str> = trace.block.values.iter().map(|value| &*value.name).collect();
    let inputs =
        ["p.w", "p.b", "p.h.0.w", "mean.w", "mean.b", "mean.h.0.w", "square.w", "square.b", "square.h.0.w", "x"];
    assert_eq!(names[..10], inputs);
    assert_eq!(trace.block.values[5].meta, trace.block.values[2].meta);
    assert!(trace.inputs[4].donated && !trace.inputs[9].donated);
    let paths: Vec<&str> = trace.outputs.iter().map(|output| &*output.path).collect();
    assert_eq!(paths, ["p.w", "p.b", "p.h.0.w", "rest"]);
    for part in [
        "  mean.* like p.*,\n  square.* like p.*,\n  x: f32[8],\n",
        "for p.*: new.*.it, .other = tt::split(p.*, parts=2)\n",
        "tt::cat([x, mean.*, new.b.other, p.*, square.w], dim=0); del p.*, mean.*\n",
        "tt::cat([all to .3], dim=0); del all to .3\n",
        "return p.* = new.*.it, rest = x\n",
    ] {
        assert!(printed.contains(part), "{part}\n{printed}");
    }
    // One input more, one of another type, or another order, and they are written one by one.
    for (from, to) in [
        ("square.* like p.*", "square.* like p.*, p.more: f32[8] donated"),
        ("mean.* like p.*", "mean.w: f32[9] donated, .b: f32[] donated, mean.h.0.w: i64[2, 3] donated"),
        ("mean.* like p.*", "mean.b: f32[] donated, .w: f32[8] donated, mean.h.0.w: i64[2, 3] donated"),
        ("mean.* like p.*", "mean.w: f32[8], .b: f32[] donated, mean.h.0.w: i64[2, 3] donated"),
    ] {
        let lines = "  y = tt::exp(x)\n";
        let text = trees(lines, "y").replace(from, to);
        let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let printed = trace.to_string();
        assert!(!printed.contains(from), "{printed}");
        assert_eq!(parse(&printed).unwrap(), trace, "{printed}");
    }
    let full = print(&trace, PrintOptions::FULL);
    assert!(!full.contains('*') && !full.contains(" to "), "{full}");
    assert_eq!(parse(&full).unwrap(), trace, "{full}");
}
