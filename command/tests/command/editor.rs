//! The grammar of editors for the text of traces, against the parser and the stored traces of the repository.

#[path = "editor/textmate.rs"]
mod textmate;

use std::path::{Path, PathBuf};
use std::process::Command;

use fulgurite::trace::{Naming, parse_marked};
use serde_json::Value;
use textmate::{Grammar, Token};

const TRACE: &str = include_str!("../../../editors/vscode/syntaxes/fulgurite-trace.tmLanguage.json");
const SNAPSHOT: &str = include_str!("../../../editors/vscode/syntaxes/fulgurite-snapshot.tmLanguage.json");

/// Lines that stored programs have too rarely.
const RARE: &str = r#"# fulgurite trace 2
# made by acquire
trace "my step" for cpu (x: f32[4] parameter donated, "größe": f32[4] strides [2], p.w: f32[4], .b: f32[4],
  q.* like p.*) {
  for p.*: sum.* = add(p.*, 0.5 but -1e-3 for [b])
    refused by "my executor": "no"
  a: f32[4], b: f32[4] = split(x, size=nan) by cpu on copy after x
  return "größe" = a, .b = b
}
"#;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The stored programs of operators and of models.
pub fn snapshots() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["tests/snapshots", "tests/tests/models/snapshots", "tests/tests/programs/snapshots"] {
        for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            // Operators of the tests' own crate, which the command does not know.
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("builders__")) {
                continue;
            }
            if path.extension().is_some_and(|end| end == "snap") && text.contains("\n# fulgurite trace 2\n") {
                found.push((path.file_name().unwrap().to_string_lossy().into_owned(), text));
            }
        }
    }
    assert!(found.len() > 200, "{} stored texts", found.len());
    found.sort();
    found
}

/// The scope of the token that begins at byte `at`.
fn scope_at(tokens: &[Token], at: usize) -> &str {
    tokens.iter().find(|token| token.range.start == at).map_or("", |token| &token.scope)
}

#[test]
fn every_expression_of_the_grammars_compiles() {
    let grammar = Grammar::new(&[TRACE, SNAPSHOT]);
    assert!(grammar.expressions() > 40, "{} expressions", grammar.expressions());
    let name = |text: &str| serde_json::from_str::<Value>(text).unwrap()["scopeName"].clone();
    let package: Value =
        serde_json::from_str(&std::fs::read_to_string(repository().join("editors/vscode/package.json")).unwrap())
            .unwrap();
    let scopes: Vec<&Value> =
        package["contributes"]["grammars"].as_array().unwrap().iter().map(|grammar| &grammar["scopeName"]).collect();
    assert_eq!(scopes, [&name(TRACE), &name(SNAPSHOT)]);
}

#[test]
fn names_and_operators_have_the_scopes_that_the_parser_says() {
    let grammar = Grammar::new(&[TRACE]);
    let (mut definitions, mut reads, mut operators) = (0, 0, 0);
    for (file, text) in snapshots() {
        let Some((_, program)) = text.split_once("\n# fulgurite trace 2\n") else { continue };
        // The first program, as it is stored.
        let program = &program[program.find("trace ").unwrap()..];
        let program = format!("# fulgurite trace 2\n{}\n}}\n", program.split("\n}\n").next().unwrap());
        let (trace, marks) = parse_marked(&program);
        trace.unwrap_or_else(|error| panic!("{file}: {error}\n{program}"));
        let tokens = grammar.tokens("source.fulgurite-trace", &program);
        for line in &marks.lines {
            let scope = scope_at(&tokens, line.operator.start);
            let text = &program[line.operator.clone()];
            let expected = match text {
                "region" if scope.starts_with("keyword.") => "keyword.control.region",
                _ if text.starts_with("::") => "punctuation.accessor",
                _ => "entity.name.function.operator",
            };
            assert_eq!(
                scope,
                format!("{expected}.fulgurite-trace"),
                "{file}: {text} in {}",
                &program[line.range.clone()]
            );
            operators += 1;
        }
        for name in marks.names.iter().filter(|name| !name.range.is_empty()) {
            let scope = scope_at(&tokens, name.range.start);
            let text = &program[name.range.clone()];
            let allowed: &[&str] = match name.naming {
                // A view inside a line is defined where its operator is; names of a list share the type of the last.
                Naming::Definition => &[
                    "variable.other.definition",
                    "entity.name.function.operator",
                    "variable.other",
                    "punctuation.accessor",
                ],
                _ => &["variable.other", "punctuation.definition.string.begin"],
            };
            let fits = allowed.iter().any(|allowed| scope == format!("{allowed}.fulgurite-trace"));
            assert!(fits, "{file}: {text:?} has the scope {scope:?}");
            definitions += usize::from(scope.starts_with("variable.other.definition"));
            reads += usize::from(name.naming == Naming::Read);
        }
    }
    assert!(definitions > 2000 && reads > 3000 && operators > 2000, "{definitions} {reads} {operators}");
}

#[test]
fn rare_forms_have_their_scopes() {
    let grammar = Grammar::new(&[TRACE]);
    let tokens = grammar.tokens("source.fulgurite-trace", RARE);
    let found = |word: &str| {
        let at = RARE.find(word).unwrap_or_else(|| panic!("{word}"));
        scope_at(&tokens, at).trim_end_matches(".fulgurite-trace").to_owned()
    };
    for (word, scope) in [
        ("\"my step\"", "entity.name.function.trace"),
        ("cpu (", "constant.language.target"),
        ("parameter donated", "storage.modifier.role"),
        ("donated", "storage.modifier.donated"),
        ("strides", "storage.modifier.strides"),
        ("like", "keyword.other.like"),
        ("for p.*:", "keyword.control.for"),
        ("but", "keyword.other.but"),
        ("-1e-3", "constant.numeric"),
        ("for [b]", "keyword.other.for"),
        ("refused", "keyword.control.refused"),
        ("\"my executor\"", "entity.name.type.executor"),
        ("on copy", "keyword.other.on"),
        ("copy", "constant.language.stream"),
        ("after", "keyword.other.after"),
        ("nan", "constant.numeric"),
        ("size=", "variable.parameter"),
        ("return", "keyword.control.return"),
    ] {
        assert_eq!(found(word), scope, "{word}");
    }
}

#[test]
fn the_extension_starts_a_server_after_one_that_did_not_start() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/command/editor/extension.js");
    let ran = Command::new("node").arg(script).arg(repository().join("editors/vscode/extension.js")).output();
    let Ok(ran) = ran else {
        eprintln!("skipped: node is not in the PATH");
        return;
    };
    let told = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(
        told.lines().collect::<Vec<&str>>(),
        [
            "starts missing",
            "warned of [\"missing\"]",
            "warned of 7",
            "starts one",
            "runs one",
            "stopped one",
            "starts two",
            "runs two",
            "stopped two",
        ],
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

#[test]
fn snapshots_have_a_header_and_headings() {
    let grammar = Grammar::new(&[TRACE, SNAPSHOT]);
    // One in eight: all have the same header, and the places of headings differ from operator to operator.
    for (file, text) in snapshots().into_iter().step_by(8) {
        let tokens = grammar.tokens("source.fulgurite-snapshot", &text);
        let scope = |word: &str| scope_at(&tokens, text.find(word).unwrap()).to_owned();
        assert!(scope("---").starts_with("punctuation.definition.begin.metadata"), "{file}");
        assert!(scope("expression").starts_with("entity.name.tag"), "{file}");
        assert!(scope("# fulgurite trace").starts_with("comment.line"), "{file}");
        assert_eq!(scope("\ntrace ").as_str(), "", "{file}");
        if text.contains("\n== ") {
            assert!(scope("== ").starts_with("markup.heading"), "{file}");
        }
    }
}
