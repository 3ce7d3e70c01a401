//! Indented lines of a language with braces.

/// Lines at a depth of braces.
#[derive(Debug)]
pub(super) struct Text {
    out: String,
    depth: usize,
    /// The line before a loop that is unrolled.
    unroll: &'static str,
}

impl Text {
    /// Nothing yet, at a depth of braces.
    pub(super) fn at_depth(depth: usize, unroll: &'static str) -> Text {
        Text { out: String::new(), depth, unroll }
    }

    /// A line; an empty one has no indentation.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            (0..self.depth).for_each(|_| self.out.push_str("    "));
            self.out.push_str(line);
        }
        self.out.push('\n');
    }

    /// The head of a block, which the lines up to [`Text::close`] are the body of.
    pub(super) fn open(&mut self, head: impl AsRef<str>) {
        let head = head.as_ref();
        self.line(if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        self.depth += 1;
    }

    /// Ends a block.
    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// A loop whose counter is a compile-time constant in each iteration, so that arrays indexed by it are in
    /// registers.
    pub(super) fn open_unrolled(&mut self, counter: char, count: usize) {
        self.line(self.unroll);
        self.open(format!("for (int {counter} = 0; {counter} < {count}; ++{counter})"));
    }

    /// Where the next line starts.
    pub(super) fn mark(&self) -> usize {
        self.out.len()
    }

    /// Takes away the definition of `name` in the line at `mark`, if no line behind it reads it.
    pub(super) fn sweep(&mut self, mark: usize, name: &str) {
        let end = self.out[mark..].find('\n').map_or(self.out.len(), |length| mark + length + 1);
        let part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let reads = |line: &str| {
            let bytes = line.as_bytes();
            line.match_indices(name)
                .any(|(at, _)| !part(bytes.get(at.wrapping_sub(1))) && !part(bytes.get(at + name.len())))
        };
        let is_read = self.out[end..].lines().any(|line| !line.trim_start().starts_with("//") && reads(line));
        if !is_read {
            self.out.replace_range(mark..end, "");
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// `name` as an identifier.
pub(super) fn identifier(name: &str) -> String {
    let clean: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if clean.starts_with(|c: char| c.is_ascii_alphabetic()) { clean } else { format!("region_{clean}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_identifiers() {
        assert_eq!(identifier("h.0.attn.softmax"), "h_0_attn_softmax");
        assert_eq!(identifier("0.x"), "region_0_x");
        assert_eq!(identifier(""), "region_");
    }
}
