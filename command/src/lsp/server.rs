//! The conversation with an editor.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{TryRecvError, sync_channel};

use fulgurite::trace::Naming;
use serde_json::{Value, json};

use super::document::Document;
use super::message::{
    INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, NOT_INITIALIZED, Refused, answer, notify, read,
    refused,
};
use super::{completion, hover, names, outline};

/// As many messages are read before the first of them is answered.
const AHEAD: usize = 256;

#[derive(Default)]
struct Server {
    initialized: bool,
    shut_down: bool,
    documents: HashMap<String, Document>,
    /// Documents whose faults the editor does not know.
    changed: HashSet<String>,
}

/// Answers what `input` asks. Returns whether the editor said `shutdown` before the end.
///
/// # Errors
/// `output` cannot be written to.
pub fn serve(mut input: impl BufRead + Send + 'static, output: &mut impl Write) -> io::Result<bool> {
    let (sender, messages) = sync_channel(AHEAD);
    // It ends with the input, or with this function: at the latest when it reads the next message.
    std::thread::spawn(move || {
        while let Some(message) = read(&mut input) {
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    let mut server = Server::default();
    loop {
        let message = match messages.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Disconnected) => return Ok(server.shut_down),
            Err(TryRecvError::Empty) => {
                // Nothing is waiting: what was typed meanwhile is one change.
                server.publish(output)?;
                match messages.recv() {
                    Ok(message) => message,
                    Err(_) => return Ok(server.shut_down),
                }
            }
        };
        match message {
            Err(fault) => answer(output, &Value::Null, Err(fault))?,
            Ok(message) if message.get("method").and_then(Value::as_str) == Some("exit") => return Ok(server.shut_down),
            Ok(message) => server.message(&message, output)?,
        }
    }
}

impl Server {
    fn message(&mut self, message: &Value, output: &mut impl Write) -> io::Result<()> {
        let id = message.get("id");
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            // An answer to a question that was never asked, or no message at all.
            let answers = message.get("result").is_some() || message.get("error").is_some();
            return match answers {
                true => Ok(()),
                false => answer(
                    output,
                    id.unwrap_or(&Value::Null),
                    Err(refused(INVALID_REQUEST, "expected a request or a notification with a 'method'")),
                ),
            };
        };
        let none = Value::Null;
        let parameters = message.get("params").unwrap_or(&none);
        let Some(id) = id else {
            // A rule of the user's operator may panic; the editor's other texts must not suffer.
            let _ = catch_unwind(AssertUnwindSafe(|| self.notification(method, parameters)));
            return Ok(());
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.request(method, parameters)));
        answer(output, id, outcome.unwrap_or_else(|_| Err(refused(INTERNAL_ERROR, format!("{method} panicked")))))
    }

    fn request(&mut self, method: &str, parameters: &Value) -> Result<Value, Refused> {
        if self.shut_down {
            return Err(refused(INVALID_REQUEST, "the server is shut down"));
        }
        match method {
            "initialize" if self.initialized => return Err(refused(INVALID_REQUEST, "initialize comes once")),
            "initialize" => {
                self.initialized = true;
                return Ok(capabilities());
            }
            _ if !self.initialized => return Err(refused(NOT_INITIALIZED, "expected 'initialize' first")),
            "shutdown" => {
                self.shut_down = true;
                return Ok(Value::Null);
            }
            _ => {}
        }
        let of_text =
            ["definition", "references", "documentHighlight", "hover", "documentSymbol", "foldingRange", "completion"];
        let Some(question) = method.strip_prefix("textDocument/").filter(|question| of_text.contains(question)) else {
            return Err(refused(METHOD_NOT_FOUND, format!("no method is called '{method}'")));
        };
        let uri = parameters.pointer("/textDocument/uri").and_then(Value::as_str);
        let uri = uri.ok_or_else(|| refused(INVALID_PARAMS, format!("{method}: expected textDocument.uri")))?;
        let document = self.documents.get(uri);
        let document = document.ok_or_else(|| refused(INVALID_PARAMS, format!("{method}: {uri} is not open")))?;
        match question {
            "documentSymbol" => return Ok(outline::symbols(document)),
            "foldingRange" => return Ok(outline::folds(document)),
            _ => {}
        }
        let at = parameters.get("position").and_then(|position| document.lines.offset(&document.text, position));
        let at = at.ok_or_else(|| refused(INVALID_PARAMS, format!("{method}: expected a position")))?;
        let range = |range: &_| document.lines.positions(&document.text, range);
        let location = |found| json!({"uri": uri, "range": range(&found)});
        Ok(match question {
            "definition" => names::definitions(document, at).into_iter().map(location).collect(),
            "references" => {
                let with = parameters.pointer("/context/includeDeclaration").and_then(Value::as_bool).unwrap_or(true);
                names::references(document, at, with).into_iter().map(location).collect()
            }
            "documentHighlight" => {
                let found = names::highlights(document, at).into_iter();
                // Text, read, write.
                let kind = |naming| match naming {
                    Naming::Definition => 3,
                    Naming::Read => 2,
                    Naming::End | Naming::Mention => 1,
                };
                found.map(|(found, naming)| json!({"range": range(&found), "kind": kind(naming)})).collect()
            }
            "completion" => completion::complete(document, at),
            _ => match hover::hover(document, at) {
                Some((text, found)) => {
                    json!({"contents": {"kind": "markdown", "value": text}, "range": range(&found)})
                }
                None => Value::Null,
            },
        })
    }

    fn notification(&mut self, method: &str, parameters: &Value) {
        if !self.initialized {
            return;
        }
        let Some(uri) = parameters.pointer("/textDocument/uri").and_then(Value::as_str) else { return };
        match method {
            "textDocument/didOpen" => {
                let text = parameters.pointer("/textDocument/text").and_then(Value::as_str).unwrap_or("");
                self.documents.insert(uri.to_owned(), Document::new(uri, text.to_owned()));
                self.changed.insert(uri.to_owned());
            }
            "textDocument/didChange" => {
                let Some(document) = self.documents.get_mut(uri) else { return };
                for change in parameters.get("contentChanges").and_then(Value::as_array).into_iter().flatten() {
                    let Some(text) = change.get("text").and_then(Value::as_str) else { continue };
                    let at = |end: &str| document.lines.offset(&document.text, change.pointer(end)?);
                    match (change.get("range"), at("/range/start"), at("/range/end")) {
                        (Some(_), Some(start), Some(end)) => document.replace(start.min(end)..end.max(start), text),
                        (Some(_), ..) => {}
                        (None, ..) => document.replace(0..document.text.len(), text),
                    }
                }
                self.changed.insert(uri.to_owned());
            }
            "textDocument/didClose" => {
                self.documents.remove(uri);
                self.changed.insert(uri.to_owned());
            }
            _ => {}
        }
    }

    /// Tells the faults of the texts that changed.
    fn publish(&mut self, output: &mut impl Write) -> io::Result<()> {
        let mut changed: Vec<String> = self.changed.drain().collect();
        changed.sort();
        for uri in changed {
            let found = self.documents.get(&uri).map(|document| {
                let programs = catch_unwind(AssertUnwindSafe(|| document.programs()));
                let faults = programs.unwrap_or_default().iter().filter_map(|program| program.fault.as_ref());
                faults.map(|fault| fault.to_json(&document.text, &document.lines)).collect::<Vec<Value>>()
            });
            let diagnostics = found.unwrap_or_default();
            notify(output, "textDocument/publishDiagnostics", json!({"uri": uri, "diagnostics": diagnostics}))?;
        }
        Ok(())
    }
}

/// What the server answers.
fn capabilities() -> Value {
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": {"openClose": true, "change": 2},
            "definitionProvider": true,
            "referencesProvider": true,
            "documentHighlightProvider": true,
            "hoverProvider": true,
            "documentSymbolProvider": true,
            "foldingRangeProvider": true,
            "completionProvider": {"triggerCharacters": ["."]},
        },
        "serverInfo": {"name": "fulgurite", "version": env!("CARGO_PKG_VERSION")},
    })
}
