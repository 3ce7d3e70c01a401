//! The header of a snapshot, which insta writes above its contents.

/// The lines of the header without those that fence it, and the contents; `None` if there is no header.
pub fn parts(text: &str) -> Option<(Vec<&str>, &str)> {
    let rest = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"))?;
    let mut header = Vec::new();
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        at += line.len();
        if line.trim_end() == "---" {
            return Some((header, &rest[at..]));
        }
        header.push(line.trim_end_matches(['\n', '\r']));
    }
    None
}
