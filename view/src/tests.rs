//! The data of a page against the traces that it is made from.

use fulgurite_executors as _;
use fulgurite_ops as _;
use fulgurite_runtime::trace::print::print_symbol;
use fulgurite_runtime::trace::{Block, Callee, Trace, parse};
use serde_json::Value;

use crate::memory::{lives, used};
use crate::page::data;
use crate::{Shown, Subject, Unread, page};

/// Names that are markup, that need quotes, and that look like the marks of names in templates.
const HOSTILE: &str = "# fulgurite trace 2\n# made by acquire\ntrace \"</script><b>\" for cpu (\n  x: f32[4], \
    \"<script>alert(1)</script>.y\": f32[4], __1: f32[4]\n) {\n  \
    \"<script>.exp\" = exp(x)\n  __0 = add(\"<script>.exp\", \"<script>alert(1)</script>.y\")\n  \
    __3 = add(__0, __1)\n  return \"<!--\" = __3\n}\n";

fn subject(texts: &[&str]) -> Subject {
    let shown = |text: &&str| Shown { name: "stage".into(), trace: parse(text).unwrap() };
    Subject { name: "<i>subject</i>".into(), stages: texts.iter().map(shown).collect(), ..Subject::default() }
}

/// The planned training steps of GPT-2 that the suite stores: for the host and for CUDA.
fn planned() -> Vec<Trace> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tests/models/snapshots");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("models__gpt2_traces__") && name.contains("planned") && name.ends_with(".snap") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push(parse(&text[text.find("# fulgurite trace").unwrap()..]).unwrap());
        }
    }
    assert!(found.len() >= 2, "no planned programs in {}", folder.display());
    found
}

fn json_of(subjects: &[Subject]) -> Value {
    serde_json::from_str(&data(subjects)).unwrap()
}

/// A line of the data with its names in the gaps.
fn filled(data: &Value, line: usize) -> String {
    let line = &data["lines"][line];
    let string = |at: &Value| data["strings"][at.as_u64().unwrap() as usize].as_str().unwrap().to_owned();
    let mut names = line[2].as_array().unwrap().iter();
    let mut text = String::new();
    for (i, part) in string(&line[0]).split('\t').enumerate() {
        if i > 0 {
            text += &string(names.next().unwrap());
        }
        text += part;
    }
    assert!(names.next().is_none(), "{text}");
    text
}

#[test]
fn lines_of_the_data_are_those_of_the_program() {
    for trace in planned() {
        let expected: Vec<String> = lines(&trace.block).map(|symbol| print_symbol(&trace.block, symbol)).collect();
        let shown = Shown { name: "plan".into(), trace };
        let data = json_of(&[Subject { stages: vec![shown], ..Subject::default() }]);
        let block = data["subjects"][0]["stages"][0]["block"].as_u64().unwrap() as usize;
        let numbers = data["blocks"][block]["l"].as_array().unwrap();
        let found: Vec<String> = numbers.iter().map(|line| filled(&data, line.as_u64().unwrap() as usize)).collect();
        assert_eq!(found, expected);
        for (number, text) in numbers.iter().zip(&expected) {
            let line = &data["lines"][number.as_u64().unwrap() as usize];
            let results = line[1].as_u64().unwrap() as usize;
            let first = data["strings"][line[2][0].as_u64().unwrap() as usize].as_str().unwrap();
            assert!(results == 0 || text.starts_with(first), "{text}: {first}");
        }
    }
}

fn lines(block: &Block) -> impl Iterator<Item = &fulgurite_runtime::trace::BoundSymbol> {
    block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete)
}

#[test]
fn definitions_and_ends_are_those_of_the_program() {
    for trace in planned() {
        let data = json_of(&[Subject {
            stages: vec![Shown { name: "plan".into(), trace: trace.clone() }],
            ..Subject::default()
        }]);
        let block = &data["blocks"][data["subjects"][0]["stages"][0]["block"].as_u64().unwrap() as usize];
        let string = |at: &Value| data["strings"][at.as_u64().unwrap() as usize].as_str().unwrap();
        let ended: usize = block["d"].as_object().unwrap().values().map(|names| names.as_array().unwrap().len()).sum();
        let deletes = trace.block.symbols.iter().filter(|symbol| symbol.callee == Callee::Delete);
        assert_eq!(ended, deletes.map(|symbol| symbol.operands().count()).sum::<usize>());
        for (number, symbol) in block["l"].as_array().unwrap().iter().zip(lines(&trace.block)) {
            let names = data["lines"][number.as_u64().unwrap() as usize][2].as_array().unwrap();
            let values =
                symbol.results.iter().copied().chain(symbol.operands()).chain(symbol.schedule.after.iter().copied());
            let expected: Vec<&str> = values.map(|id| &*trace.block.value(id).name).collect();
            assert_eq!(names.iter().map(string).collect::<Vec<_>>(), expected);
        }
    }
}

#[test]
fn lives_never_share_bytes_and_end_where_values_are_deleted() {
    for trace in planned() {
        let (block, arena) = (&trace.block, trace.arena.unwrap());
        let lives = lives(block);
        assert!(!lives.is_empty());
        for (i, a) in lives.iter().enumerate() {
            assert!(a.offset + a.bytes <= arena, "{a:?}");
            for b in &lives[i + 1..] {
                let bytes = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
                // A line may write over what it reads last.
                let lines = a.from < b.to && b.from < a.to;
                assert!(!(bytes && lines), "{a:?} and {b:?}");
            }
        }
        let mut deleted = vec![None; block.values.len()];
        let mut at = 0;
        for symbol in &block.symbols {
            if symbol.callee == Callee::Delete {
                symbol.operands().for_each(|id| deleted[id.index()] = Some(at - 1));
            } else {
                at += 1;
            }
        }
        for life in &lives {
            let names = std::iter::once(life.value).chain(life.sharing.iter().copied());
            let last = names.filter_map(|id| deleted[id.index()]).max();
            assert_eq!(last, Some(life.to), "{}", block.value(life.value).name);
        }
    }
}

#[test]
fn no_line_uses_more_than_the_arena() {
    let mut in_place = 0;
    for trace in planned() {
        let (block, arena) = (&trace.block, trace.arena.unwrap());
        let (lives, count) = (lives(block), lines(block).count());
        let used = used(&lives, count);
        for (at, used) in used.iter().enumerate() {
            // Each byte by itself, between the bounds of all lives.
            let held = |life: &&crate::memory::Life| life.from <= at && at <= life.to;
            let mut ranges: Vec<(u64, u64)> =
                lives.iter().filter(held).map(|life| (life.offset, life.offset + life.bytes)).collect();
            ranges.sort_unstable();
            let (mut sum, mut end) = (0, 0);
            for (from, to) in ranges.iter().copied() {
                sum += to.saturating_sub(from.max(end));
                end = end.max(to);
            }
            assert_eq!(*used, sum, "line {at}");
            in_place += usize::from(ranges.iter().map(|(from, to)| to - from).sum::<u64>() != sum);
            assert!(sum <= arena);
        }
    }
    assert!(in_place > 0, "no line of these programs writes in place");
}

#[test]
fn text_of_traces_is_never_markup() {
    let mut hostile = subject(&[HOSTILE]);
    hostile.ending = Some("</script><script>alert(2)</script>".into());
    hostile.unread =
        Some(Unread { text: "<!--<script>".into(), line: 1, place: 1, column: 1, message: "]]></script>".into() });
    let page = page(&[hostile]);
    // The data's own element and the script's.
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script").count(), 2);
    assert!(!page.contains("<!--") && !page.contains("<i>"));
    assert!(page.contains("<title>&lt;i&gt;subject&lt;/i&gt; - traces</title>"));
    let begin = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data: Value = serde_json::from_str(&page[begin..begin + page[begin..].find("</script>").unwrap()]).unwrap();
    let strings: Vec<&str> = data["strings"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    assert!(strings.contains(&"<script>alert(1)</script>.y"), "{strings:?}");
    assert_eq!(data["subjects"][0]["stages"][0]["function"], "</script><b>");
}

#[test]
fn names_that_look_like_marks_are_names() {
    let data = json_of(&[subject(&[HOSTILE])]);
    let texts: Vec<String> = (0..3).map(|line| filled(&data, line)).collect();
    assert_eq!(texts[1], "__0: f32[4] = prims::add(<script>.exp, <script>alert(1)</script>.y)");
    assert_eq!(texts[2], "__3: f32[4] = prims::add(__0, __1)");
}

#[test]
fn stages_share_what_they_have_in_common() {
    let one = data(&[subject(&[HOSTILE])]).len();
    let many = data(&[subject(&[HOSTILE; 8])]);
    let data: Value = serde_json::from_str(&many).unwrap();
    assert_eq!(data["lines"].as_array().unwrap().len(), 3);
    assert_eq!(data["blocks"].as_array().unwrap().len(), 1);
    assert!(many.len() < one * 4, "{one} bytes became {}", many.len());
}

#[test]
fn two_subjects_are_compared_by_stage() {
    let text = HOSTILE.replace("add(__0, __1)", "mul(__0, __1)");
    let data = json_of(&[subject(&[HOSTILE]), subject(&[&text])]);
    let comparison = &data["comparisons"][0];
    assert_eq!(comparison["words"], "lines: 1 other call");
    assert_eq!(comparison["difference"]["lines"][0]["after"], "__3: f32[4] = prims::mul(__0, __1)");
}

/// A program of two regions, whose values have these names.
fn regions(before: &str, [a, b, c, d]: [&str; 4]) -> String {
    format!(
        "# fulgurite trace 2\n# made by fuse\ntrace f for cpu (x: f32[4], y: f32[4]) {{\n{before}  \
         region by fusion {{\n    {a} = exp(x)\n    yield {b} = tanh({a})\n  }}\n  \
         region by fusion {{\n    {c} = neg({b})\n    yield {d} = exp({c})\n  }}\n  return out = {d}\n}}\n"
    )
}

#[test]
fn lines_of_two_programs_are_matched_by_what_they_compute() {
    let before = regions("", ["a", "b", "c", "d"]);
    let after = regions("  a = exp(y) by cpu\n", ["b", "c", "d", "e"]);
    let data = json_of(&[subject(&[&before]), subject(&[&after])]);
    assert_eq!(data["comparisons"][0]["matched"], serde_json::json!([[0, 1, 4]]));
    // A region that is opened corresponds to its lines.
    let split = before.replacen("  region by fusion {\n    a = exp(x)\n    yield b", "  a = exp(x) by cpu\n  b", 1);
    let split = split.replacen("tanh(a)\n  }\n", "tanh(a) by cpu\n", 1);
    let data = json_of(&[subject(&[&before]), subject(&[&split])]);
    assert_eq!(data["comparisons"][0]["matched"], serde_json::json!([[0, 0, 4]]));
}
