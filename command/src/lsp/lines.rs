//! Positions of the protocol, lines and UTF-16 code units from 0, and bytes of a text.

use std::ops::Range;

use serde_json::{Value, json};

/// Where the lines of a text begin.
#[derive(Debug, Clone)]
pub struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    /// The lines of `text`, which end with `\n`, `\r\n` or `\r`.
    pub fn of(text: &str) -> Lines {
        Lines { starts: std::iter::once(0).chain(starts(text, 0..text.len())).collect() }
    }

    /// After `range` of the text before became `length` bytes of `text`. Only the bytes of the change are read: an
    /// editor may send thousands of changes of a long text at once.
    pub fn replace(&mut self, text: &str, range: &Range<usize>, length: usize) {
        // Whether the byte before the change ends a line depends on the byte behind it.
        let old = self.starts.partition_point(|start| *start < range.start.max(1))
            ..self.starts.partition_point(|start| *start <= range.end);
        let (first, end) = (range.start, range.start + length);
        self.starts[old.end..].iter_mut().for_each(|start| *start = *start - range.end + end);
        self.starts.splice(old, starts(text, first.saturating_sub(1)..end));
    }

    /// The number of the line of byte `at`, from 0.
    pub fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// The bytes of a line without its end.
    pub fn range(&self, text: &str, line: usize) -> Range<usize> {
        let Some(start) = self.starts.get(line).copied() else { return text.len()..text.len() };
        let end = self.starts.get(line + 1).copied().unwrap_or(text.len());
        start..start + text[start..end].trim_end_matches(['\r', '\n']).len()
    }

    /// The position of byte `at`.
    pub fn position(&self, text: &str, at: usize) -> Value {
        let at = floor(text, at);
        let line = self.line(at);
        let character = text[self.starts[line]..at].encode_utf16().count();
        json!({"line": line, "character": character})
    }

    /// The positions of a range of bytes.
    pub fn positions(&self, text: &str, range: &Range<usize>) -> Value {
        json!({"start": self.position(text, range.start), "end": self.position(text, range.end)})
    }

    /// The byte of a position. What is beyond the end of a line, or of the text, is its end.
    pub fn offset(&self, text: &str, position: &Value) -> Option<usize> {
        let line = usize::try_from(position.get("line")?.as_u64()?).ok()?;
        let units = position.get("character")?.as_u64()?;
        let range = self.range(text, line);
        let mut left = units;
        for (at, c) in text[range.clone()].char_indices() {
            let width = c.len_utf16() as u64;
            if left < width {
                return Some(range.start + at);
            }
            left -= width;
        }
        Some(range.end)
    }
}

/// Where the lines begin whose predecessors end in `range`.
fn starts(text: &str, range: Range<usize>) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    let ends = |at: &usize| bytes[*at] == b'\n' || (bytes[*at] == b'\r' && bytes.get(at + 1) != Some(&b'\n'));
    range.filter(ends).map(|at| at + 1)
}

/// The last boundary of a character up to `at`.
pub fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_move_the_lines_behind_them() {
        let pieces = ["", "x", "\n", "\r", "\r\n", "a\r\nb\n", "\n\r"];
        let text = "\ra\r\n\nbc\r\rd\n";
        for start in 0..=text.len() {
            for end in start..=text.len() {
                for piece in pieces {
                    let mut changed = text.to_owned();
                    changed.replace_range(start..end, piece);
                    let mut lines = Lines::of(text);
                    lines.replace(&changed, &(start..end), piece.len());
                    assert_eq!(lines.starts, Lines::of(&changed).starts, "{start}..{end} {piece:?}");
                }
            }
        }
    }

    #[test]
    fn columns_are_utf16() {
        let text = "a = \"größe\"\r\n\u{1f525}x\rlast";
        let lines = Lines::of(text);
        assert_eq!(lines.starts.len(), 3);
        let x = text.find('x').unwrap();
        assert_eq!(lines.position(text, x), json!({"line": 1, "character": 2}));
        assert_eq!(lines.offset(text, &json!({"line": 1, "character": 2})), Some(x));
        // Inside of a pair of surrogates, and beyond the line: the character, and the end of the line.
        assert_eq!(lines.offset(text, &json!({"line": 1, "character": 1})), Some(x - 4));
        assert_eq!(lines.offset(text, &json!({"line": 0, "character": 900})), text.find('\r'));
        assert_eq!(lines.offset(text, &json!({"line": 9, "character": 0})), Some(text.len()));
        assert_eq!(lines.offset(text, &json!({"line": -1, "character": 0})), None);
        for (at, _) in text.char_indices().filter(|(_, c)| !c.is_control()) {
            assert_eq!(lines.offset(text, &lines.position(text, at)), Some(at));
        }
    }
}
