//! Writing to the standard streams.

use std::fmt::Arguments;
use std::io::{ErrorKind, IsTerminal, Write, stderr, stdout};

use fulgurite_plots::plain;

use super::outcome::Failed;

/// What this command is called: a crate's own command has the crate's name.
pub fn program() -> String {
    let path = std::env::args_os().next().map(std::path::PathBuf::from).unwrap_or_default();
    path.file_stem().map_or_else(|| "fulgurite".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A word as a shell reads it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Writes to standard output. The reader may close it early.
pub fn write(text: Arguments<'_>) -> Result<(), Failed> {
    let mut out = stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failed(format!("standard output: {error}"))),
        _ => Ok(()),
    }
}

/// Text for a terminal: control characters, which could be its commands, are shown as their pictures. Line breaks and
/// tabs stay.
pub fn printable(text: &str) -> String {
    plain(text)
}

/// Writes a line to standard output. A terminal gets no commands, which names of files may hold; other readers get the
/// text as it is.
pub fn write_line(text: Arguments<'_>) -> Result<(), Failed> {
    match stdout().is_terminal() {
        true => write(format_args!("{}\n", printable(&text.to_string()))),
        false => write(format_args!("{text}\n")),
    }
}

/// A line on standard output.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::output::write_line(::std::format_args!($($text)*))
    };
}
pub(crate) use say;

/// Writes data as JSON to standard output.
pub fn say_json(data: &impl serde::Serialize) -> Result<(), Failed> {
    let text =
        serde_json::to_string_pretty(data).map_err(|error| Failed(format!("cannot be written as JSON: {error}")))?;
    say!("{text}")
}

/// A line on standard error, if anybody listens. It holds no commands of terminals, which names of files may hold.
pub fn complain(message: &str) {
    let _ = writeln!(stderr().lock(), "error: {}", printable(message));
}

/// A line on standard error about what is wrong and does not end the command.
pub fn warn(message: &str) {
    let _ = writeln!(stderr().lock(), "warning: {message}");
}

/// Marks times of a debug build, on standard error: nobody should take them for those of a release build.
pub fn mark_debug_build() {
    if fulgurite::BUILD != "release" {
        note("this is a debug build: its times are not those of a release build (cargo build --release)");
    }
}

/// A line on standard error about what is no error.
pub fn note(message: &str) {
    let _ = writeln!(stderr().lock(), "note: {}", printable(message));
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn a_terminal_gets_no_commands() {
        assert_eq!(printable("é\n\t\u{1b}]0;title\u{7}\u{9b}2J\r"), "é\n\t␛]0;title␇\u{fffd}2J␍");
    }
}
