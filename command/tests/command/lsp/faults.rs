//! Faults are told where they are.

use serde_json::json;

use super::client::{Client, position_of};
use super::program::{PROGRAM, URI};

#[test]
fn faults_are_where_they_are() {
    let mut client = Client::open(URI, PROGRAM);
    assert_eq!(client.diagnostics(), json!([]));
    for (from, to, code, at, message) in [
        ("sub(input, broad", "sub(inputt, broad", "parse", ("inputt", 0), "did you mean 'input'?"),
        ("amax: f32[]", "amax: f32[2]", "verify", ("amax: f32[2]", 0), "gives f32[]"),
        ("h.0.norm = softmax(exp", "h.0.norm = softmax(\"größe 🔥\" exp", "parse", ("exp, dim", 0), "','"),
        (
            "exp = exp(\"größe 🔥\") by cpu",
            "exp = exp(\"größe 🔥\") by nobody",
            "verify",
            ("exp = exp(\"", 0),
            "nobody",
        ),
        ("  return out = h.0.add", "  return out = exp", "verify", ("return", 0), "exp"),
        ("# fulgurite trace 2", "# fulgurite trace 9", "parse", ("9\n", 0), "version"),
    ] {
        let text = PROGRAM.replacen(from, to, 1);
        client.change(URI, None, &text);
        let found = client.diagnostics();
        assert_eq!(found.as_array().unwrap().len(), 1, "{to}: {found}");
        assert_eq!((&found[0]["code"], &found[0]["source"]), (&json!(code), &json!("fulgurite")), "{to}: {found}");
        assert_eq!(found[0]["range"]["start"], position_of(&text, at.0, at.1), "{to}: {found}");
        assert!(found[0]["message"].as_str().unwrap().contains(message), "{to}: {found}");
    }
    // What is closed has no faults.
    client.notify("textDocument/didClose", json!({"textDocument": {"uri": URI}}));
    assert_eq!(client.diagnostics(), json!([]));
    client.close();
}

#[test]
fn lines_that_print_alike_have_faults_of_their_own() {
    let text = |lines: &str| {
        let header = "trace f for cpu (x: f32[8], y: f32[2, 4])";
        format!("# fulgurite trace 2\n{header} {{\n{lines}  return out = x\n}}\n")
    };
    let body = |input: &str, shape: &str| {
        format!(
            "  {input}.softmax = softmax({input}, dim=-1) {{\n    amax: f32[] = amax(input, dims=[0])\n    \
             broadcast: f32{shape} = broadcast_in_dim(amax, shape={shape}, dims=[])\n    \
             sub = sub(input, broadcast)\n    yield exp = exp(sub)\n  }}\n"
        )
    };
    for (lines, line, message) in [
        (&*(body("x", "[8]") + &body("y", "[2, 4]")), 9, "gives f32[4]"),
        ("  exp = exp(x)\n  neg = neg(exp); del exp\n  other = neg(neg); del exp\n", 4, "del"),
        ("  exp = exp(x)\n  neg = neg(exp); del exp\n  sin = sin(neg); del neg\n  cos = cos(exp)\n", 5, "del"),
    ] {
        let mut client = Client::open(URI, &text(lines));
        let found = client.diagnostics();
        assert_eq!(found.as_array().unwrap().len(), 1, "{lines}: {found}");
        assert_eq!(found[0]["code"], "verify", "{lines}: {found}");
        assert_eq!(found[0]["range"]["start"]["line"], line, "{lines}: {found}");
        assert!(found[0]["message"].as_str().unwrap().contains(message), "{lines}: {found}");
        client.close();
    }
}
