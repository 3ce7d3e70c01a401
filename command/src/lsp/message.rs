//! Messages of the protocol: a header with the length, and JSON.

use std::io::{self, BufRead, Read, Write};

use serde_json::{Value, json};

/// Longer messages are passed over.
const MAX_MESSAGE: u64 = 256 << 20;
/// Longer lines of a header end the connection.
const MAX_HEADER: u64 = 4096;

/// The text is no JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The message is no request that has a place here.
pub const INVALID_REQUEST: i32 = -32600;
/// No such method.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The parameters are not those of the method.
pub const INVALID_PARAMS: i32 = -32602;
/// The server failed.
pub const INTERNAL_ERROR: i32 = -32603;
/// Nothing comes before `initialize`.
pub const NOT_INITIALIZED: i32 = -32002;

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The protocol's number.
    pub code: i32,
    /// The message for the editor.
    pub message: String,
}

/// An answer with an error.
pub fn refused(code: i32, message: impl Into<String>) -> Refused {
    Refused { code, message: message.into() }
}

/// The next message, or what is wrong with it; nothing after the last.
pub fn read(input: &mut impl BufRead) -> Option<Result<Value, Refused>> {
    let mut length: Option<u64> = None;
    let mut fault = None;
    let mut header_lines = 0;
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(MAX_HEADER).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) if line.last() != Some(&b'\n') => return None,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line.is_empty() {
            if header_lines == 0 {
                continue;
            }
            break;
        }
        header_lines += 1;
        match line.split_once(':') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse().ok();
            }
            Some(_) => {}
            None => fault = Some(format!("expected a header 'Content-Length: N', found {line:?}")),
        }
    }
    let Some(length) = length else {
        let fault = fault.unwrap_or_else(|| "expected a header 'Content-Length: N'".into());
        return Some(Err(refused(PARSE_ERROR, fault)));
    };
    if length > MAX_MESSAGE {
        let read = io::copy(&mut input.by_ref().take(length), &mut io::sink());
        return read.ok().map(|_| {
            Err(refused(INVALID_REQUEST, format!("the message has {length} bytes, at most {MAX_MESSAGE} are read")))
        });
    }
    let mut body = Vec::new();
    match input.by_ref().take(length).read_to_end(&mut body) {
        Ok(read) if read as u64 == length => {}
        _ => return None,
    }
    Some(
        serde_json::from_slice(&body).map_err(|error| refused(PARSE_ERROR, format!("the message is no JSON: {error}"))),
    )
}

fn write(output: &mut impl Write, message: &Value) -> io::Result<()> {
    let text = message.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{text}", text.len())?;
    output.flush()
}

/// Answers the request `id`.
pub fn answer(output: &mut impl Write, id: &Value, outcome: Result<Value, Refused>) -> io::Result<()> {
    let message = match outcome {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(Refused { code, message }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    };
    write(output, &message)
}

/// Tells the editor something that it did not ask for.
pub fn notify(output: &mut impl Write, method: &str, parameters: Value) -> io::Result<()> {
    write(output, &json!({"jsonrpc": "2.0", "method": method, "params": parameters}))
}
