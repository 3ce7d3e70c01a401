//! What of the logits exists in the steps of a run: all of them, unless nobody says so and they do not fit into memory.

use std::fmt;

use fulgurite_runtime::{Error, Result};

use crate::head::Logits;

/// Why a run has its logits in chunks, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    /// What it would need with whole logits.
    whole: u64,
    /// What it may use.
    limit: u64,
    /// Peak with logits in chunks.
    chunked: u64,
}

impl fmt::Display for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [whole, limit, chunked] =
            [self.whole, self.limit, self.chunked].map(|bytes| bytes as f64 / f64::from(1 << 20));
        write!(
            f,
            "logits in chunks: the step needs {whole:.1} MiB with whole logits, the limit is {limit:.1} MiB; it needs \
             {chunked:.1} MiB in chunks"
        )
    }
}

/// What `plan` makes, and needs in bytes, with the logits that are asked for. Where nobody asks, they are whole if that
/// is not [too large](Error::PlanTooLarge), and in chunks otherwise.
///
/// # Errors
/// Those of `plan`. If neither fits, that of the smaller plan, which says what the other one needs.
pub(super) fn fitting<T>(
    asked: Option<Logits>,
    mut plan: impl FnMut(Logits) -> Result<(T, u64)>,
) -> Result<(T, Option<Chunks>)> {
    let whole = match plan(asked.unwrap_or_default()) {
        Err(error) if asked.is_none() => error,
        other => return other.map(|(made, _)| (made, None)),
    };
    let Error::PlanTooLarge { predicted, limit, .. } = whole else { return Err(whole) };
    match plan(Logits::Chunked) {
        Ok((made, chunked)) => Ok((made, Some(Chunks { whole: predicted, limit, chunked }))),
        Err(Error::PlanTooLarge { predicted: chunked, .. }) if predicted <= chunked => {
            Err(beside(whole, Logits::Whole, chunked, Logits::Chunked))
        }
        Err(chunked) => Err(beside(chunked, Logits::Chunked, predicted, Logits::Whole)),
    }
}

/// The error of a plan with `logits` beside another one, which needs `bytes`.
fn beside(error: Error, logits: Logits, bytes: u64, other: Logits) -> Error {
    match error {
        Error::PlanTooLarge { predicted, resident, transient, limit, .. } => {
            let tried = format!("; this is with {logits} logits, with {other} ones it needs {bytes} bytes");
            Error::PlanTooLarge { predicted, resident, transient, limit, tried }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn too_large(predicted: u64) -> Error {
        Error::PlanTooLarge { predicted, resident: 1, transient: predicted - 1, limit: 100, tried: String::new() }
    }

    /// Plans that need so many bytes of 100.
    fn plans(whole: u64, chunked: u64) -> impl FnMut(Logits) -> Result<(Logits, u64)> {
        move |logits| match if logits == Logits::Whole { whole } else { chunked } {
            bytes if bytes > 100 => Err(too_large(bytes)),
            bytes => Ok((logits, bytes)),
        }
    }

    #[test]
    fn chunks_are_taken_where_whole_logits_do_not_fit() {
        let of = |asked, whole, chunked| fitting(asked, plans(whole, chunked));
        assert_eq!(of(None, 100, 10).unwrap(), (Logits::Whole, None));
        let why = Chunks { whole: 101, limit: 100, chunked: 100 };
        assert_eq!(of(None, 101, 100).unwrap(), (Logits::Chunked, Some(why)));
        assert_eq!(of(Some(Logits::Whole), 100, 10).unwrap(), (Logits::Whole, None));
        assert_eq!(of(Some(Logits::Chunked), 10, 20).unwrap(), (Logits::Chunked, None));
        let mib = |count: u64| count << 20;
        let why = Chunks { whole: mib(30), limit: mib(20), chunked: mib(5) / 2 };
        assert_eq!(
            why.to_string(),
            "logits in chunks: the step needs 30.0 MiB with whole logits, the limit is 20.0 MiB; it needs 2.5 MiB in \
             chunks"
        );
    }

    #[test]
    fn where_nothing_fits_the_error_is_that_of_the_smaller_plan() {
        let error = |asked, whole, chunked| fitting(asked, plans(whole, chunked)).unwrap_err().to_string();
        let of = |bytes: u64| {
            format!("the plan needs {bytes} bytes (1 resident, {} transient), the limit is 100", bytes - 1)
        };
        let tried = "; this is with chunked logits, with whole ones it needs 300 bytes";
        assert_eq!(error(None, 300, 200), of(200) + tried);
        let tried = "; this is with whole logits, with chunked ones it needs 300 bytes";
        assert_eq!(error(None, 200, 300), of(200) + tried);
        assert_eq!(error(Some(Logits::Whole), 300, 10), of(300));
        assert_eq!(error(Some(Logits::Chunked), 10, 300), of(300));
        // Another error is told as it is, and nothing else is tried.
        let mut tried = Vec::new();
        let failing = |logits| -> Result<((), u64)> {
            tried.push(logits);
            Err(Error::Argument { argument: "x".into(), message: "is wrong".into() })
        };
        assert!(matches!(fitting(None, failing), Err(Error::Argument { .. })));
        assert_eq!(tried, [Logits::Whole]);
    }
}
