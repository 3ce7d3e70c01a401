//! Stored texts in the format of insta, so that `cargo insta review` works on them: a mismatch leaves a `.snap.new`
//! beside the stored file. `INSTA_UPDATE=always` accepts what there is, `INSTA_UPDATE=no` writes nothing,
//! `INSTA_FORCE_PASS=1` lets pass.

use std::fs;
use std::path::Path;

use super::problem::{Check, Problem, excerpt};

fn contents(file: &str) -> &str {
    let body = file.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n")).map_or(file, |(_, body)| body);
    body.trim_end()
}

/// Said of a text for which there is no file: no other mistake is behind it.
pub(crate) const NEVER_STORED: &str = " was never stored";

/// Compares `text` with the stored one.
pub(crate) fn compare(file: &Path, description: &str, text: &str) -> Check {
    let stored = fs::read_to_string(file).ok();
    let pending = file.with_extension("snap.new");
    if stored.as_deref().map(contents) == Some(text.trim_end()) {
        // What a former run left is settled.
        let _ = fs::remove_file(&pending);
        return Ok(());
    }
    let update = std::env::var("INSTA_UPDATE").unwrap_or_default();
    let whole = format!(
        "---\nsource: runtime/testing/src/snapshot.rs\nexpression: {}\n---\n{}\n",
        serde_json::Value::from(description),
        text.trim_end()
    );
    let write = |path: &Path| -> Check {
        let failed = |error: std::io::Error| Problem(format!("{}: {error}", path.display()));
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(path, &whole).map_err(failed)
    };
    let unseen = stored.is_none() && update == "unseen";
    if update == "always" || update == "1" || unseen {
        let _ = fs::remove_file(&pending);
        return write(file);
    }
    if update != "no" {
        write(&pending)?;
    }
    if std::env::var("INSTA_FORCE_PASS").is_ok_and(|value| value == "1") {
        return Ok(());
    }
    Err(Problem(message(file, stored.as_deref(), text)))
}

/// What is said where the stored text is another, or there is none.
fn message(file: &Path, stored: Option<&str>, text: &str) -> String {
    let file = file.display();
    match stored {
        None => format!(
            "{file}{NEVER_STORED}; the text is\n{}\n  store: INSTA_UPDATE=unseen before the command below, or cargo insta \
             review",
            excerpt(text.trim_end())
        ),
        Some(stored) => format!(
            "the text differs from {file}:\n{}\n  accept: INSTA_UPDATE=always, or cargo insta review",
            difference(contents(stored), text)
        ),
    }
}

/// The lines that differ, `-` stored and `+` now, with two lines around them.
fn difference(stored: &str, now: &str) -> String {
    similar::TextDiff::from_lines(stored.trim_end(), now.trim_end())
        .unified_diff()
        .context_radius(2)
        .missing_newline_hint(false)
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_stored_says_how_it_is_stored() {
        let said = |stored| message(Path::new("new.snap"), stored, "a\n");
        let unseen = said(None);
        assert!(unseen.starts_with("new.snap was never stored; the text is\na\n"), "{unseen}");
        assert!(unseen.contains("INSTA_UPDATE=unseen") && !unseen.contains("accept"), "{unseen}");
        let other = said(Some("---\nsource: x\n---\nb\n"));
        assert!(other.starts_with("the text differs from new.snap:\n"), "{other}");
        assert!(other.contains("accept: INSTA_UPDATE=always"), "{other}");
    }

    #[test]
    fn only_the_lines_that_differ_are_shown() {
        let (stored, now) = ("a\nb\nc\nd\ne\nf\ng", "a\nx\nc\nd\ne\nf\ny");
        let text = difference(stored, now);
        let changed: Vec<&str> = text.lines().filter(|line| line.starts_with(['+', '-'])).collect();
        assert_eq!(changed, ["-b", "+x", "-g", "+y"], "{text}");
        assert_eq!(contents("---\nsource: x\n---\na\nb\n"), "a\nb");
    }
}
