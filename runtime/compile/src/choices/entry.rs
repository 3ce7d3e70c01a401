//! A record: which executor won a call on a machine, and what was measured.

use std::fmt;

use serde_json::{Map, Value, json};

use super::call::{Call, Purpose};
use crate::precision::Precisions;

/// The candidate that no executor takes as it is: the call's decomposition; where it is differentiated, the operator's
/// own gradient rule, or that of its decomposition.
pub const DECOMPOSED: &str = "decomposed";

/// Medians of measured times, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Times {
    /// Of the call alone.
    pub alone: f64,
    /// With a neighbour that may be fused with the decomposition, where that was measured.
    pub beside: Option<f64>,
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} us", self.alone)?;
        match self.beside {
            Some(beside) => write!(f, " ({beside:.1} with a neighbour)"),
            None => Ok(()),
        }
    }
}

/// A candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried {
    /// An executor, or [`DECOMPOSED`].
    pub by: String,
    /// Its times, or why it was dropped.
    pub outcome: Result<Times, String>,
}

/// A record.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What was chosen for.
    pub call: Call,
    /// What programs were compiled for: `cuda:sm_90a`.
    pub target: String,
    /// The device's model.
    pub device: String,
    /// Versions of its driver and libraries.
    pub libraries: String,
    /// The version of this library.
    pub version: String,
    /// The candidate that is taken.
    pub winner: String,
    /// All candidates; those of the list are the first, in its order.
    pub tried: Vec<Tried>,
    /// Why the winner is not the fastest, where that is so.
    pub note: Option<String>,
}

impl Entry {
    /// Order in files: by call, then by machine.
    pub fn key(&self) -> (&Call, &str, &str, &str, &str) {
        (&self.call, &self.target, &self.device, &self.libraries, &self.version)
    }

    /// As one line of a file.
    pub fn to_json(&self) -> Value {
        let tried = |tried: &Tried| match &tried.outcome {
            Ok(Times { alone, beside: None }) => json!({"by": tried.by, "microseconds": rounded(*alone)}),
            Ok(Times { alone, beside: Some(beside) }) => {
                json!({"by": tried.by, "microseconds": rounded(*alone), "with_neighbour": rounded(*beside)})
            }
            Err(reason) => json!({"by": tried.by, "dropped": reason}),
        };
        let mut value = json!({
            "operator": self.call.operator,
            "arguments": self.call.arguments,
            "purpose": self.call.purpose.name(),
            "precision": self.call.precisions.to_string(),
            "target": self.target,
            "device": self.device,
            "libraries": self.libraries,
            "fulgurite": self.version,
            "winner": self.winner,
            "candidates": self.tried.iter().map(tried).collect::<Vec<_>>(),
        });
        if !self.call.executors.is_empty() {
            value["executors"] = json!(self.call.executors);
        }
        if self.call.is_program {
            value["is_program"] = json!(true);
        }
        if let Some(note) = &self.note {
            value["note"] = json!(note);
        }
        value
    }

    /// From a line of a file.
    ///
    /// # Errors
    /// The field that is missing, or has another type or value than expected.
    pub fn from_json(value: &Value) -> Result<Entry, String> {
        let object = value.as_object().ok_or("expected an object with the fields of a record")?;
        let known = [
            "operator",
            "arguments",
            "purpose",
            "precision",
            "executors",
            "is_program",
            "target",
            "device",
            "libraries",
            "fulgurite",
            "winner",
            "candidates",
            "note",
        ];
        if let Some(other) = object.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!("'{other}' is no field of a record, expected {}", known.join(", ")));
        }
        let purpose = text(object, "purpose")?;
        let precision = text(object, "precision")?;
        let call = Call {
            operator: text(object, "operator")?,
            arguments: text(object, "arguments")?,
            purpose: Purpose::named(&purpose)
                .ok_or_else(|| format!("purpose is '{purpose}', expected 'forward' or 'forward and backward'"))?,
            precisions: Precisions::named(&precision).ok_or_else(|| {
                format!("precision is '{precision}', expected 'exact', 'tf32', 'fp8' or 'tf32 and fp8'")
            })?,
            executors: object.get("executors").map(|_| text(object, "executors")).transpose()?.unwrap_or_default(),
            is_program: match object.get("is_program") {
                None => false,
                Some(value) => value.as_bool().ok_or("'is_program' is expected to be true or false")?,
            },
        };
        let candidates = object.get("candidates").and_then(Value::as_array);
        let tried: Vec<Tried> =
            candidates.ok_or("expected a list 'candidates'")?.iter().map(tried_from).collect::<Result<_, _>>()?;
        let winner = text(object, "winner")?;
        if !tried.iter().any(|tried| tried.by == winner && tried.outcome.is_ok()) {
            return Err(format!("the winner '{winner}' is none of the measured candidates"));
        }
        Ok(Entry {
            call,
            target: text(object, "target")?,
            device: text(object, "device")?,
            libraries: text(object, "libraries")?,
            version: text(object, "fulgurite")?,
            winner,
            tried,
            note: object.get("note").map(|_| text(object, "note")).transpose()?,
        })
    }

    /// The executor without a record: the first candidate that could be run.
    pub fn listed(&self) -> Option<&str> {
        self.tried.iter().find(|tried| tried.outcome.is_ok()).map(|tried| tried.by.as_str())
    }

    /// The same record with the winner that is taken without a record, and the reason.
    pub fn left_to_the_list(&self, note: String) -> Entry {
        let winner = self.listed().unwrap_or(&self.winner).to_owned();
        Entry { winner, note: Some(note), ..self.clone() }
    }

    /// The times of the winner.
    pub fn best(&self) -> Option<Times> {
        self.tried.iter().find(|tried| tried.by == self.winner)?.outcome.clone().ok()
    }
}

impl fmt::Display for Entry {
    /// The winner, and all candidates with their times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried = |tried: &Tried| match &tried.outcome {
            Ok(times) => format!("{} {times}", tried.by),
            Err(reason) => format!("{} dropped: {reason}", tried.by),
        };
        write!(f, "{} of {}", self.winner, self.tried.iter().map(tried).collect::<Vec<_>>().join(", "))?;
        self.note.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// Microseconds to hundredths, at least one: as records hold them.
pub fn rounded(microseconds: f64) -> f64 {
    ((microseconds * 100.0).round() / 100.0).max(0.01)
}

fn text(object: &Map<String, Value>, key: &str) -> Result<String, String> {
    object.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| format!("expected a text '{key}'"))
}

fn tried_from(value: &Value) -> Result<Tried, String> {
    let object = value.as_object().ok_or("a candidate is expected to be an object")?;
    let by = text(object, "by").map_err(|error| format!("a candidate: {error}"))?;
    let number = |key: &str| match object.get(key).map(Value::as_f64) {
        None => Ok(None),
        Some(Some(number)) if number > 0.0 => Ok(Some(number)),
        Some(_) => Err(format!("candidate '{by}': '{key}' is expected to be a number above 0")),
    };
    let beside = number("with_neighbour")?;
    let outcome = match (number("microseconds")?, object.get("dropped")) {
        (Some(alone), None) => Ok(Times { alone, beside }),
        (None, Some(Value::String(reason))) => Err(reason.clone()),
        _ => return Err(format!("candidate '{by}' is expected to have a number 'microseconds' or a text 'dropped'")),
    };
    Ok(Tried { by, outcome })
}
