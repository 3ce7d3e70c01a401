//! A comment in Markdown that is never longer than GitHub takes, and texts in it that are no markup.

/// Comments of GitHub have at most so many characters. Bytes are counted here, which are never fewer.
const MOST: usize = 65_536;

/// Room for the line that says that something is left out, and for what is written above the comment where it is
/// posted.
const RESERVED: usize = 1_600;

/// A text that stays within the limit.
#[derive(Default)]
pub struct Comment {
    text: String,
    /// Whether something did not fit.
    cut: bool,
}

impl Comment {
    /// Adds a whole part. Where it does not fit, the end of the comment says that something is left out.
    pub fn push(&mut self, part: &str) {
        let fits = self.push_up_to(part, MOST - RESERVED);
        self.cut |= !fits;
    }

    /// Adds a whole part if the text stays within so many bytes; whether it was added.
    pub fn push_up_to(&mut self, part: &str, most: usize) -> bool {
        let fits = self.text.len() + part.len() <= most.min(MOST - RESERVED);
        if fits {
            self.text += part;
        }
        fits
    }

    /// The bytes that are left.
    pub fn room(&self) -> usize {
        (MOST - RESERVED).saturating_sub(self.text.len())
    }

    /// The comment.
    pub fn text(mut self) -> String {
        if self.cut {
            self.text += "\nMore is left out: the comment is full.\n";
        }
        assert!(self.text.len() <= MOST, "a comment of {} bytes", self.text.len());
        self.text
    }
}

/// Text as code: nothing in it is markup or mentions anybody.
pub fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let fence = "`".repeat(longest_run(&text) + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Text as code in a cell of a table, which a bar would end, in code too.
pub fn cell(text: &str) -> String {
    code(text).replace('|', "\\|")
}

/// Lines as a block of code.
pub fn fenced(language: &str, lines: &str) -> String {
    let fence = "`".repeat(longest_run(lines).max(2) + 1);
    format!("{fence}{language}\n{lines}{fence}\n")
}

/// Text between tags of HTML.
pub fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    // What Markdown would read as its own.
    text.replace('`', "&#96;").replace('*', "&#42;").replace('_', "&#95;").replace('[', "&#91;").replace('@', "&#64;")
}

fn longest_run(text: &str) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_shown() {
        assert_eq!(code("a|`b` <script>"), "``a|`b` <script>``");
        assert_eq!(cell("a|b"), "`a\\|b`");
        assert_eq!(code("`"), "`` ` ``");
        assert_eq!(escaped("<b>_x_ @all"), "&lt;b&gt;&#95;x&#95; &#64;all");
    }

    #[test]
    fn a_comment_stays_within_the_limit() {
        let mut comment = Comment::default();
        (0..100).for_each(|_| comment.push(&"é".repeat(1000)));
        let text = comment.text();
        assert!(text.len() <= MOST && text.len() > MOST - RESERVED - 3000, "{}", text.len());
        assert!(text.ends_with("More is left out: the comment is full.\n"));
        let mut comment = Comment::default();
        comment.push("x");
        assert_eq!((comment.room(), comment.text().as_str()), (MOST - RESERVED - 1, "x"));
    }
}
