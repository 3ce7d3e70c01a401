//! Lines folded at a width. What is printed marks where a line may end; one rule decides where it does: as late as it
//! can.

/// Lines are folded at this many characters, at spaces between arguments.
pub const WIDTH: usize = 120;

/// A space between two arguments, at which a line may end. Names and strings have such characters escaped.
pub(super) const SOFT: char = '\u{1}';
/// A space within a string, at which the string may go on in the next line.
const SOFT_IN_STRING: char = '\u{2}';
/// By how much lines that go on are indented further.
pub(super) const HANG: usize = 4;

/// Items separated by commas, after each of which a line may end.
pub(super) fn comma(items: &[String]) -> String {
    items.join(&format!(",{SOFT}"))
}

/// A string in quotes that may go on in the next line.
pub(super) fn prose(text: &str) -> String {
    let quoted = format!("{text:?}");
    let mut soft = String::with_capacity(quoted.len());
    let mut previous = ' ';
    let mut characters = quoted.chars().peekable();
    while let Some(c) = characters.next() {
        // Reading swallows the white space that a line begins with, so only a single space will do.
        let single = c == ' ' && previous != ' ' && characters.peek() != Some(&' ');
        soft.push(if single { SOFT_IN_STRING } else { c });
        previous = c;
    }
    soft
}

/// How much narrower than a line a result is whose type stays on the line of its name: more than lines are indented.
const INDENTED: usize = 20;

/// A result, `name: f32[4]`, whose line may end behind its name if it has no room for both.
pub(super) fn soft_at_type(result: &str) -> String {
    // Quoted names may hold anything.
    match result.chars().count() < WIDTH - INDENTED || result.contains('"') {
        true => result.to_owned(),
        false => result.replacen(": ", &format!(":{SOFT}"), 1),
    }
}

/// A comment of these words, in as many lines as it needs.
pub(super) fn comment<'a>(out: &mut String, words: impl Iterator<Item = &'a str>) {
    let mut column = 1;
    out.push('#');
    for word in words {
        let width = word.chars().count();
        if column + 1 + width > WIDTH {
            out.push_str("\n#  ");
            column = 3;
        }
        out.push(' ');
        out.push_str(word);
        column += 1 + width;
    }
    out.push('\n');
}

/// The text on one line.
pub(super) fn unfolded(text: &str) -> String {
    text.replace([SOFT, SOFT_IN_STRING], " ")
}

/// Adds `text` and a line break to `out`, indented by `indent`, and by `hang` more from the second line on.
pub(super) fn fold(out: &mut String, indent: usize, hang: usize, text: &str) {
    let mut column = indent;
    out.extend(std::iter::repeat_n(' ', indent));
    let mut rest = text;
    let mut before = None;
    loop {
        let end = rest.find([SOFT, SOFT_IN_STRING]).unwrap_or(rest.len());
        let (piece, next) = (&rest[..end], rest[end..].chars().next());
        let width = piece.chars().count();
        if let Some(space) = before {
            // A string that goes on in the next line ends with a space and a backslash.
            let reserved = if next == Some(SOFT_IN_STRING) { 2 } else { 0 };
            if column + 1 + width + reserved > WIDTH {
                out.push_str(if space == SOFT_IN_STRING { " \\\n" } else { "\n" });
                out.extend(std::iter::repeat_n(' ', indent + hang));
                column = indent + hang;
            } else {
                out.push(' ');
                column += 1;
            }
        }
        out.push_str(piece);
        column += width;
        let Some(mark) = next else { break };
        before = Some(mark);
        rest = &rest[end + mark.len_utf8()..];
    }
    out.push('\n');
}
