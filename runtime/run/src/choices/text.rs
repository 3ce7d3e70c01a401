//! The text of records: a first line with the version, then a line of JSON for each record, sorted.

use std::fmt;

use serde_json::{Value, json};

use super::entry::Entry;

/// The version of the text.
const VERSION: u64 = 1;
/// The field of the first line.
const HEADER: &str = "fulgurite_choices";

/// Why a text is not one of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// Records as text.
pub fn print(entries: &[Entry]) -> String {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.key().cmp(&b.key()));
    let lines = sorted.into_iter().map(|entry| format!("{}\n", entry.to_json()));
    std::iter::once(format!("{}\n", json!({HEADER: VERSION}))).chain(lines).collect()
}

/// Records of a text. Empty lines are allowed.
///
/// # Errors
/// The first line that is wrong.
pub fn parse(text: &str) -> Result<Vec<Entry>, TextError> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let value = |(number, line): (usize, &str)| -> Result<(usize, Value), TextError> {
        let value = serde_json::from_str(line)
            .map_err(|error| TextError { line: number + 1, message: format!("is no JSON: {error}") })?;
        Ok((number + 1, value))
    };
    let expected = format!("expected {} in the first line", json!({HEADER: VERSION}));
    let Some(first) = lines.next() else { return Err(TextError { line: 1, message: expected }) };
    let (line, header) = value(first)?;
    match header.get(HEADER).and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(other) => {
            let message = format!("records of version {other}, this program reads version {VERSION}");
            return Err(TextError { line, message });
        }
        None => return Err(TextError { line, message: expected }),
    }
    let mut entries: Vec<Entry> = Vec::new();
    for next in lines {
        let (line, value) = value(next)?;
        let entry = Entry::from_json(&value).map_err(|message| TextError { line, message })?;
        if entries.iter().any(|other| other.key() == entry.key()) {
            return Err(TextError { line, message: format!("is a second record of {}", entry.call) });
        }
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::{Call, DECOMPOSED, Purpose, Times, Tried};
    use crate::precision::Precision;

    fn entry(operator: &str, winner: &str) -> Entry {
        let call = Call {
            operator: operator.into(),
            arguments: "input: f32[8, 64], dim: -1".into(),
            purpose: Purpose::Differentiated,
            precisions: Precision::Tf32.into(),
            executors: String::new(),
            is_program: winner == "fast",
        };
        Entry {
            call,
            target: "cuda:sm_90a".into(),
            device: "a model".into(),
            libraries: "driver 1".into(),
            version: "0.1.0".into(),
            winner: winner.into(),
            tried: vec![
                Tried { by: "fast".into(), outcome: Ok(Times { alone: 12.25, beside: None }) },
                Tried { by: DECOMPOSED.into(), outcome: Ok(Times { alone: 15.5, beside: Some(16.0) }) },
                Tried { by: "broken".into(), outcome: Err("out of memory".into()) },
            ],
            note: (winner == DECOMPOSED).then(|| "fast won alone".into()),
        }
    }

    #[test]
    fn what_is_printed_is_read_back_sorted() {
        let (a, b) = (entry("softmax", "fast"), entry("gelu", DECOMPOSED));
        let text = print(&[a.clone(), b.clone()]);
        assert!(text.starts_with("{\"fulgurite_choices\":1}\n"), "{text}");
        assert_eq!(parse(&text), Ok(vec![b.clone(), a.clone()]));
        assert_eq!(print(&[b, a]), text, "the order of writing does not matter");
        assert_eq!(parse(&print(&[])), Ok(Vec::new()));
    }

    #[test]
    fn each_fault_names_its_line() {
        let whole = print(&[entry("gelu", "fast"), entry("softmax", "fast")]);
        let wrong = |from: &str, to: &str| parse(&whole.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(parse("").unwrap_err().to_string().starts_with("line 1: expected {\"fulgurite_choices\":1}"));
        assert!(
            wrong("\"fulgurite_choices\":1", "\"fulgurite_choices\":9").starts_with("line 1: records of version 9")
        );
        assert!(wrong("{\"arguments\"", "{arguments").starts_with("line 2: is no JSON"));
        assert!(wrong("\"winner\":\"fast\"", "\"winner\":\"broken\"").contains("line 2: the winner 'broken' is none"));
        assert!(wrong("\"winner\"", "\"victor\"").contains("'victor' is no field"));
        assert!(wrong("forward and backward", "sideways").contains("purpose is 'sideways'"));
        assert!(wrong("tf32", "fp16").contains("precision is 'fp16', expected 'exact', 'tf32', 'fp8' or"));
        assert!(
            wrong("\"is_program\":true", "\"is_program\":1").contains("'is_program' is expected to be true or false")
        );
        assert!(wrong("12.25", "-1").contains("candidate 'fast'"));
        assert!(wrong("\"operator\":\"gelu\"", "\"operator\":\"softmax\"").contains("line 3: is a second record"));
        for end in 0..whole.len() - 1 {
            // What is cut off between two lines is whole.
            if !whole.is_char_boundary(end) || whole[..end].ends_with(['\n', '}']) {
                continue;
            }
            assert!(parse(&whole[..end]).is_err(), "cut off at {end}");
        }
    }
}
