//! What is offered for what is written.

use serde_json::json;

use super::client::{Client, position_of};
use super::program::{PROGRAM, URI};

#[test]
fn names_are_completed() {
    let text = PROGRAM.replacen("h.0.norm = softmax(exp", "h.0.norm = softmax(e", 1);
    let mut client = Client::open(URI, &text);
    let place = position_of(&text, "softmax(e", 9);
    let found = client.ask("textDocument/completion", json!({"textDocument": {"uri": URI}, "position": place}));
    let labels: Vec<&str> =
        found["items"].as_array().unwrap().iter().map(|item| item["label"].as_str().unwrap()).collect();
    assert_eq!(labels[0], "exp", "{labels:?}");
    assert!(labels.contains(&"erf") && labels.iter().all(|label| label.starts_with('e')), "{labels:?}");
    let place = position_of(&text, "by cpu", 3);
    let found = client.ask("textDocument/completion", json!({"textDocument": {"uri": URI}, "position": place}));
    assert!(found["items"].as_array().unwrap().iter().any(|item| item["label"] == "fusion"), "{found}");
    // A word that ends with `by` is not that word.
    let text = PROGRAM.replacen("broadcast)", "baby ex", 1);
    client.change(URI, None, &text);
    let place = position_of(&text, "baby ex", 7);
    let found = client.ask("textDocument/completion", json!({"textDocument": {"uri": URI}, "position": place}));
    assert!(found["items"].as_array().unwrap().iter().any(|item| item["label"] == "exp"), "{found}");
    // A name that needs quotes is written with them, whether they are opened, and closed, or not.
    for (written, at) in [("softmax(gr", 10), ("softmax(größ", 12), ("softmax(\"größe ", 15), ("softmax(\"gr\"", 11)]
    {
        let text = PROGRAM.replacen("softmax(exp", written, 1);
        client.change(URI, None, &text);
        let place = position_of(&text, "softmax(", 0);
        let place = json!({"line": place["line"], "character": place["character"].as_u64().unwrap() + at});
        let found = client.ask("textDocument/completion", json!({"textDocument": {"uri": URI}, "position": place}));
        let item = found["items"].as_array().unwrap().iter().find(|item| item["label"] == "größe 🔥");
        let edit = &item.unwrap_or_else(|| panic!("{written}: {found}"))["textEdit"];
        assert_eq!(edit["newText"], "\"größe 🔥\"", "{written}");
        let behind =
            |end: &str| edit["range"][end]["character"].as_u64().unwrap() - place["character"].as_u64().unwrap();
        assert_eq!(edit["range"]["start"], position_of(&text, "softmax(", 8), "{written}");
        assert_eq!(behind("end"), u64::from(written.ends_with('"')), "{written}");
    }
    client.close();
}
