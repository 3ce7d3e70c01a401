//! `lsp`: the language server as an editor talks to it, over pipes.

#[path = "lsp/client.rs"]
mod client;
#[path = "lsp/completion.rs"]
mod completion;
#[path = "lsp/faults.rs"]
mod faults;
#[path = "lsp/program.rs"]
mod program;

use client::{Client, position_of};
use program::{PROGRAM, URI};
use serde_json::{Value, json};

use crate::editor::snapshots;
use crate::run;

#[test]
fn definitions_references_and_highlights() {
    let text = "# fulgurite trace 2\ntrace f for cpu (\"größe 🔥\": f32[8], p.a: f32[8], .b: f32[8]) {\n  \
        h.0.add = add(\"größe 🔥\", p.b)\n  region by fusion in h.0 {\n    .mul = mul(.add, p.b)\n    \
        yield .exp = exp(.mul)\n  }; del .add\n  return out = h.0.exp, other = \"größe 🔥\"\n}\n";
    let mut client = Client::open(URI, text);
    for (at, definition, uses) in [
        // The third name of the header is behind characters of several bytes.
        (("p.b)", 0), (".b: f32", 0), 3),
        (("\"größe 🔥\", p.b", 2), ("\"größe", 0), 3),
        ((".add, p.b", 1), ("h.0.add", 0), 3),
        (("h.0.exp", 3), (".exp = ", 0), 2),
        ((".mul)", 0), (".mul = ", 0), 2),
    ] {
        let place = position_of(text, at.0, at.1);
        let found = client.ask("textDocument/definition", json!({"textDocument": {"uri": URI}, "position": place}));
        assert_eq!(found[0]["range"]["start"], position_of(text, definition.0, definition.1), "{at:?}: {found}");
        assert_eq!((found.as_array().unwrap().len(), &found[0]["uri"]), (1, &json!(URI)));
        let both = json!({"textDocument": {"uri": URI}, "position": place, "context": {"includeDeclaration": true}});
        let found = client.ask("textDocument/references", both);
        assert_eq!(found.as_array().unwrap().len(), uses, "{at:?}: {found}");
        let found =
            client.ask("textDocument/documentHighlight", json!({"textDocument": {"uri": URI}, "position": place}));
        assert_eq!(found.as_array().unwrap().len(), uses, "{at:?}: {found}");
        assert_eq!(found.as_array().unwrap().iter().filter(|one| one["kind"] == 3).count(), 1, "{found}");
    }
    client.close();
}

#[test]
fn hover_says_type_executor_refusals_memory_and_life() {
    let planned = |(name, _): &(String, String)| name == "models__gpt2_traces__gpt2_train_step_planned.snap";
    let (_, text) = snapshots().into_iter().find(planned).unwrap();
    let mut client = Client::open(URI, &text);
    let found = client.hover(URI, &position_of(&text, "h.0.attn.c_attn.linear.matmul: ", 9));
    for part in [
        "linear.matmul: f32[16, 48]",
        "run by `cpu`",
        "made by `prims::matmul`",
        "- read once, line ",
        "of the arena",
        "alive from line ",
    ] {
        assert!(found.contains(part), "{part} in {found}");
    }
    let found = client.hover(URI, &position_of(&text, "matmul(reshape(h.0.attn.ln_1", 1));
    assert!(found.contains("prims::matmul(") && found.contains("run by `cpu`"), "{found}");
    let found = client.hover(URI, &position_of(&text, "state.params.h.0.*", 3));
    assert!(found.contains("values, ") && found.contains("state.params.h.0.ln_1.weight: f32[16]"), "{found}");
    let found = client.hover(URI, &position_of(&text, "state.params.wte.weight", 3));
    assert!(found.contains("input, number 1 of the program, donated"), "{found}");

    client.change(URI, None, PROGRAM);
    let found = client.hover(URI, &position_of(PROGRAM, "exp, dim", 0));
    assert!(found.contains("exp: f32[8]") && found.contains("32 bytes"), "{found}");
    // A reason is code, whatever characters it has.
    assert!(found.contains("refused by `mine`: ``takes `bf16`, input is f32``"), "{found}");
    assert!(found.contains("alive from line 3 to line 10, where it ends"), "{found}");
    let found = client.hover(URI, &position_of(PROGRAM, "\"größe 🔥\")", 9));
    assert!(found.contains("größe 🔥: f32[8]") && found.contains("input, number 3"), "{found}");
    let found = client.hover(URI, &position_of(PROGRAM, "reshape(x", 2));
    assert!(found.contains("h.0.add.other: f32[8]") && found.contains("prims::reshape("), "{found}");
    client.close();
}

#[test]
fn changes_are_edits_of_what_was_there() {
    let mut client = Client::open(URI, PROGRAM);
    assert_eq!(client.diagnostics(), json!([]));
    // Behind the characters of two and four bytes, which are one and two units.
    let start = position_of(PROGRAM, "\") by cpu", 3);
    let end = position_of(PROGRAM, "\") by cpu", 9);
    client.change(URI, Some(json!({"start": start, "end": end})), "by nobody");
    let found = client.diagnostics();
    assert!(found[0]["message"].as_str().unwrap().contains("nobody"), "{found}");
    let place = position_of(PROGRAM, "refused", 0);
    client.change(URI, Some(json!({"start": place, "end": place})), "\n\n");
    assert_eq!(client.diagnostics(), found, "the fault is above the change");
    let all = json!({"start": {"line": 0, "character": 0}, "end": {"line": 9999, "character": 9999}});
    client.change(URI, Some(all), PROGRAM);
    assert_eq!(client.diagnostics(), json!([]));
    client.close();
}

#[test]
fn stored_texts_have_an_outline_and_no_faults() {
    let mut client = Client::start();
    for (name, text) in snapshots() {
        let uri = format!("file:///t/{name}");
        client.open_text(&uri, &text);
        let faults = client.diagnostics();
        // Those that are printed without their bodies and their memory are no whole programs.
        let in_part = [
            "models__gpt2_programs__gpt2_programs_cuda_fused.snap",
            "models__gpt2_programs__gpt2_programs_planned.snap",
        ];
        let in_part = in_part.contains(&&*name);
        assert_eq!(faults.as_array().unwrap().is_empty(), !in_part, "{name}: {faults}");
        let symbols = client.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": uri}}));
        let programs = text.lines().filter(|line| line.starts_with("trace ")).count();
        let symbols = symbols.as_array().unwrap().clone();
        assert_eq!(symbols.len(), programs, "{name}");
        assert!(symbols.iter().all(|symbol| !symbol["children"].as_array().unwrap().is_empty()), "{name}");
        symbols.iter().for_each(|symbol| contained(symbol, &name));
        let folds = client.ask("textDocument/foldingRange", json!({"textDocument": {"uri": uri}}));
        let last = text.lines().count() as u64;
        for fold in folds.as_array().unwrap() {
            assert!(fold["startLine"].as_u64() < fold["endLine"].as_u64() && fold["endLine"].as_u64() < Some(last));
        }
        assert!(folds.as_array().unwrap().len() >= programs, "{name}: {folds}");
    }
    client.close();
}

/// A symbol's own range, and its children, are in its range.
fn contained(symbol: &Value, name: &str) {
    let place =
        |range: &Value, end: &str| (range[end]["line"].as_u64().unwrap(), range[end]["character"].as_u64().unwrap());
    let inside = |inner: &Value, outer: &Value| {
        place(outer, "start") <= place(inner, "start") && place(inner, "end") <= place(outer, "end")
    };
    assert!(inside(&symbol["selectionRange"], &symbol["range"]), "{name}: {symbol}");
    for child in symbol["children"].as_array().into_iter().flatten() {
        assert!(inside(&child["range"], &symbol["range"]), "{name}: {child}");
        contained(child, name);
    }
}

#[test]
fn programs_of_one_file_have_values_of_their_own() {
    let (name, text) = snapshots().into_iter().find(|(name, _)| name == "rms_norm.snap").unwrap();
    let uri = format!("file:///t/{name}");
    let mut client = Client::start();
    client.open_text(&uri, &text);
    assert_eq!(client.diagnostics(), json!([]));
    let second = text.find("== forward, claimed").unwrap();
    let use_of_it = second + text[second..].find("mul(input, input)").unwrap();
    let place = client::position(&text, use_of_it + 5);
    let found = client.ask("textDocument/definition", json!({"textDocument": {"uri": uri}, "position": place}));
    let header = second + text[second..].find("input: f32").unwrap();
    assert_eq!(found[0]["range"]["start"], client::position(&text, header), "{found}");
    // A fault of one is no fault of the others.
    let broken = text[..second].to_owned() + &text[second..].replacen("rms_norm.rsqrt = rsqrt(.add)", "rsqrt(", 1);
    client.change(&uri, None, &broken);
    let found = client.diagnostics();
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
    assert_eq!(
        found[0]["range"]["start"]["line"],
        client::position(&broken, broken.find("rsqrt( by").unwrap())["line"]
    );
    let found = client.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": uri}}));
    assert_eq!(found.as_array().unwrap().len(), 3, "{found}");
    // A carriage return alone ends a line for an editor, and none of a program.
    client.change(&uri, None, &text.replacen("---\n", "---\n\r", 1));
    assert_eq!(client.diagnostics(), json!([]));
    client.close();
}

#[test]
fn broken_texts_are_answered() {
    let text = run(&["trace", "show", "softmax", "--stage", "delete_last_used"]).ok();
    let mut client = Client::open(URI, "");
    let questions =
        ["definition", "references", "documentHighlight", "hover", "completion", "documentSymbol", "foldingRange"];
    // Cut short, and with a piece in the wrong place, at places that differ from run to run of nothing.
    const PLACES: usize = 20;
    for step in 0..PLACES {
        let mut at = text.len() * step / PLACES;
        while !text.is_char_boundary(at) {
            at += 1;
        }
        for broken in [text[..at].to_owned(), format!("{}\" {{ (é🔥 {}", &text[..at], &text[at..])] {
            client.change(URI, None, &broken);
            let place = client::position(&broken, at.saturating_sub(1));
            for question in questions {
                let place = json!({"textDocument": {"uri": URI}, "position": place});
                client.ask(&format!("textDocument/{question}"), place);
            }
        }
    }
    client.close();
}

#[test]
fn messages_that_are_none_are_answered_with_an_error() {
    let mut client = Client::raw();
    client.send_bytes(b"Content-Length: 5\r\n\r\n{oops");
    assert_eq!(client.receive()["error"]["code"], -32700);
    client.send_bytes(b"No header at all\r\n\r\n");
    assert_eq!(client.receive()["error"]["code"], -32700);
    client.send_bytes(b"Content-Length: 2\r\nContent-Type: x\r\n\r\n[]");
    assert_eq!(client.receive()["error"]["code"], -32600);
    let early = json!({"jsonrpc": "2.0", "id": 1, "method": "textDocument/hover", "params": {}});
    client.send(&early);
    assert_eq!(client.receive()["error"]["code"], -32002);
    client.initialize();
    for (method, parameters, code) in [
        ("textDocument/hover", json!({}), -32602),
        ("textDocument/hover", json!({"textDocument": {"uri": "file:///t/never.trace"}}), -32602),
        ("textDocument/rename", json!({}), -32601),
        ("initialize", json!({}), -32600),
    ] {
        client.send(&json!({"jsonrpc": "2.0", "id": "x", "method": method, "params": parameters}));
        let answer = client.receive();
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &json!("x")), "{method}: {answer}");
    }
    // Parameters of the wrong kind in what needs no answer change nothing.
    client.notify("textDocument/didChange", json!({"textDocument": {"uri": 7}, "contentChanges": "no"}));
    client.notify("textDocument/didOpen", json!([1, 2]));
    client.notify("no/such/notification", json!(null));
    client.close();
}

#[test]
fn the_server_ends_with_its_editor() {
    // `exit` without `shutdown`, and a connection that is closed, in the middle of a message too.
    let mut client = Client::start();
    client.notify("exit", json!(null));
    assert_eq!(client.end(), 1);
    assert_eq!(Client::start().end(), 1);
    let mut client = Client::start();
    client.send_bytes(b"Content-Length: 4000\r\n\r\n{\"jsonrpc\"");
    assert_eq!(client.end(), 1);
    let mut client = Client::start();
    client.ask("shutdown", json!(null));
    client.send(&json!({"jsonrpc": "2.0", "id": 9, "method": "textDocument/hover", "params": {}}));
    assert_eq!(client.receive()["error"]["code"], -32600);
    assert_eq!(client.end(), 0);
}
