//! An editor's side of the protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// The position of byte `at` of `text`: a line and UTF-16 units, from 0.
pub fn position(text: &str, at: usize) -> Value {
    let before = &text[..at];
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    json!({"line": before.matches('\n').count(), "character": before[line..].encode_utf16().count()})
}

/// The position of the first `word` in `text`, so many characters behind its beginning.
#[track_caller]
pub fn position_of(text: &str, word: &str, behind: usize) -> Value {
    let at = text.find(word).unwrap_or_else(|| panic!("no {word:?} in\n{text}"));
    let behind: usize = word.chars().take(behind).map(char::len_utf8).sum();
    position(text, at + behind)
}

/// A running server.
pub struct Client {
    server: Child,
    answers: BufReader<ChildStdout>,
    questions: u64,
    /// The faults of a text that came between two answers.
    faults: Option<Value>,
}

impl Client {
    /// A server that was told nothing.
    pub fn raw() -> Client {
        let mut server = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(server.stdout.take().unwrap());
        Client { server, answers, questions: 0, faults: None }
    }

    /// A server that is ready.
    pub fn start() -> Client {
        let mut client = Client::raw();
        client.initialize();
        client
    }

    /// A server with one open text.
    pub fn open(uri: &str, text: &str) -> Client {
        let mut client = Client::start();
        client.open_text(uri, text);
        client
    }

    pub fn initialize(&mut self) {
        let found = self.ask("initialize", json!({"capabilities": {}, "rootUri": null}));
        assert_eq!(found["capabilities"]["definitionProvider"], true, "{found}");
        self.notify("initialized", json!({}));
    }

    pub fn open_text(&mut self, uri: &str, text: &str) {
        let document = json!({"uri": uri, "languageId": "fulgurite-trace", "version": 1, "text": text});
        self.notify("textDocument/didOpen", json!({"textDocument": document}));
    }

    /// Replaces a range of the text, or all of it.
    pub fn change(&mut self, uri: &str, range: Option<Value>, text: &str) {
        let mut change = json!({"text": text});
        if let Some(range) = range {
            change["range"] = range;
        }
        let parameters = json!({"textDocument": {"uri": uri, "version": 2}, "contentChanges": [change]});
        self.notify("textDocument/didChange", parameters);
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let input = self.server.stdin.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    pub fn send(&mut self, message: &Value) {
        let text = message.to_string();
        self.send_bytes(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    pub fn notify(&mut self, method: &str, parameters: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": parameters}));
    }

    /// The next message.
    pub fn receive(&mut self) -> Value {
        let mut header = String::new();
        self.answers.read_line(&mut header).unwrap();
        let length = header.trim().strip_prefix("Content-Length: ").unwrap_or_else(|| panic!("{header:?}"));
        let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
        self.answers.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    /// The result of a request.
    #[track_caller]
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.questions += 1;
        let id = self.questions;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters}));
        loop {
            let mut message = self.receive();
            if message.get("method").is_some() {
                self.faults = Some(message["params"]["diagnostics"].take());
                continue;
            }
            assert_eq!(message["id"], id, "{message}");
            assert!(message.get("error").is_none(), "{method}: {message}");
            return message["result"].take();
        }
    }

    /// The text of a hover.
    #[track_caller]
    pub fn hover(&mut self, uri: &str, place: &Value) -> String {
        let found = self.ask("textDocument/hover", json!({"textDocument": {"uri": uri}, "position": place}));
        found["contents"]["value"].as_str().unwrap_or_else(|| panic!("no hover at {place}")).to_owned()
    }

    /// The faults that the server told last, or tells next.
    pub fn diagnostics(&mut self) -> Value {
        if let Some(faults) = self.faults.take() {
            return faults;
        }
        let mut message = self.receive();
        assert_eq!(message["method"], "textDocument/publishDiagnostics", "{message}");
        message["params"]["diagnostics"].take()
    }

    /// The exit code after the connection is closed.
    pub fn end(mut self) -> i32 {
        drop(self.server.stdin.take());
        self.server.wait().unwrap().code().unwrap_or(-1)
    }

    /// The end as an editor does it.
    pub fn close(mut self) {
        assert_eq!(self.ask("shutdown", json!(null)), Value::Null);
        self.notify("exit", json!(null));
        assert_eq!(self.end(), 0);
    }
}
