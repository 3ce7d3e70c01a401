//! A review for the terminal: what is in a line is the same with colours and without.

use console::{Style, Term};

use super::counts::{counts, in_words};
use super::not_linked;
use super::reviewed::{Change, Program, Review, Reviewed};
use super::words::{number, plural};

/// How the text is laid out.
pub struct Layout {
    /// Columns of a line.
    pub width: usize,
    /// Whether escape sequences colour it.
    pub colours: bool,
}

impl Layout {
    /// That of standard output: colours on a terminal alone, and nowhere with `NO_COLOR`.
    pub fn of_output() -> Layout {
        let term = Term::stdout();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let width = term.size_checked().map(|(_, columns)| columns as usize);
        let width = width.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok());
        let colours = term.is_term() && !refused && console::colors_enabled();
        Layout { width: width.unwrap_or(100).clamp(40, 160), colours }
    }

    fn styled(&self, text: &str, style: Style) -> String {
        style.force_styling(self.colours).apply_to(text).to_string()
    }

    /// A label and its text below one another at one column, the text's lines broken between words.
    fn paragraph(&self, indent: usize, label: &str, style: Style, text: &str) -> String {
        let column = indent + LABEL;
        let mut out = format!("{}{}", " ".repeat(indent), self.styled(label, style));
        out += &" ".repeat(LABEL.saturating_sub(label.chars().count()).max(1));
        for (i, line) in wrapped(text, self.width.saturating_sub(column).max(20)).iter().enumerate() {
            if i > 0 {
                out += &" ".repeat(column);
            }
            out += line;
            out.push('\n');
        }
        out
    }
}

/// Columns of a label.
const LABEL: usize = 13;

/// Files that are told in full.
const FILES: usize = 40;

/// Programs of a file that are told in full.
const PROGRAMS: usize = 6;

/// The review as text.
pub fn to_text(review: &Review, layout: &Layout) -> String {
    let [before, after] = &review.between;
    let mut out = format!("{}\n", layout.styled(&format!("{before} → {after}"), Style::new().bold()));
    let counts = counts(review);
    out += &format!("{}\n", in_words(&counts));
    let told: Vec<&Reviewed> = review.files.iter().filter(|file| file.is_told()).collect();
    for file in told.iter().take(FILES) {
        out.push('\n');
        out += &of_file(file, layout);
    }
    if told.len() > FILES {
        out.push('\n');
        let rest: Vec<String> = told[FILES..].iter().map(|file| printable(&file.subject)).collect();
        let text = format!("{}; --only and --markdown show them", rest.join(", "));
        out += &layout.paragraph(0, &format!("{} more", rest.len()), Style::new().bold(), &text);
    }
    let trivial = review.files.iter().filter(|file| file.is_trivial());
    let trivial: Vec<String> = trivial.map(|file| printable(&file.subject)).collect();
    if !trivial.is_empty() {
        out.push('\n');
        out += &layout.paragraph(0, "names alone", Style::new().bold(), &trivial.join(", "));
    }
    if !review.texts.is_empty() {
        out.push('\n');
        let paths: Vec<String> = review.texts.iter().map(|pair| printable(&pair.path)).collect();
        out += &layout.paragraph(0, "other texts", Style::new().bold(), &paths.join(", "));
    }
    if let Some(note) = not_linked::note(review) {
        out.push('\n');
        out += &layout.paragraph(0, "not linked", Style::new().bold(), &printable(&note));
    }
    out
}

fn of_file(file: &Reviewed, layout: &Layout) -> String {
    let state = file.state_in_words();
    let subject = layout.styled(&printable(&file.subject), Style::new().bold());
    let path = layout.styled(&printable(&file.pair.path), Style::new().dim());
    let mut out = format!("{subject}  {state}  {path}\n");
    let told: Vec<&Program> = file.programs.iter().filter(|program| program.is_told()).collect();
    for program in told.iter().take(PROGRAMS) {
        out += &of_program(program, layout);
    }
    let mut rest = Vec::new();
    if told.len() > PROGRAMS {
        rest.push(format!("{} more", plural(told.len() - PROGRAMS, "program")));
    }
    let trivial = file.programs.iter().filter(|program| program.is_trivial()).count();
    if trivial > 0 {
        rest.push(format!("{} in names, order or memory alone", plural(trivial, "program")));
    }
    if file.same > 0 {
        rest.push(format!("{} as before", file.same));
    }
    if !rest.is_empty() {
        out += &format!("  {}\n", rest.join(", "));
    }
    out
}

fn of_program(program: &Program, layout: &Layout) -> String {
    let target = if program.target.is_empty() { String::new() } else { format!(" for {}", program.target) };
    let mut out = format!("  {}\n", printable(&format!("{}{target}", program.heading)));
    match &program.change {
        Change::New(totals) | Change::Gone(totals) => {
            let (label, style) = match program.change {
                Change::New(_) => ("new", Style::new().green()),
                _ => ("gone", Style::new().red()),
            };
            let text = format!("{}, {} moved", plural(totals.symbols as usize, "line"), number(totals.bytes, true));
            out += &layout.paragraph(4, label, style, &text);
        }
        Change::Unreadable(faults) => {
            for fault in faults {
                out += &layout.paragraph(4, "error", Style::new().red().bold(), &printable(&fault.in_words()));
            }
        }
        // All of these have one note.
        Change::NotLinked(_) => {}
        Change::Differs { findings, .. } => {
            for finding in findings {
                out += &layout.paragraph(4, finding.about, Style::new().yellow(), &printable(&finding.text));
            }
        }
    }
    out
}

/// A text of a trace without what a terminal would obey.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '�' } else { c }).collect()
}

/// The lines of a text, of at most so many characters; a longer word has a line of its own, and is cut.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + word.len() <= width {
            lines.last_mut().into_iter().for_each(|line| line.push(' '));
            used += 1;
        } else if used > 0 {
            lines.push(String::new());
            used = 0;
        }
        while word.len() > width {
            let rest = word.split_off(width);
            lines.last_mut().into_iter().for_each(|line| line.extend(word.iter()));
            lines.push(String::new());
            word = rest;
        }
        used += word.len();
        lines.last_mut().into_iter().for_each(|line| line.extend(word.iter()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("", 7), [""]);
    }

    #[test]
    fn escapes_of_a_terminal_are_not_printed() {
        assert_eq!(printable("a\u{1b}[31mb"), "a�[31mb");
    }
}
