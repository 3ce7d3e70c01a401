//! What is one word of a text, for the printer and the parser.

/// The bytes of `text` that are one word: letters, digits, `_`, `.`, `-` and `::`, not beginning with `.`, `-` or `:`.
pub(super) fn word_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let plain = |i: usize| bytes.get(i).is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let mut end = 0;
    while end < bytes.len() {
        if plain(end) || (end > 0 && matches!(bytes[end], b'.' | b'-')) {
            end += 1;
        } else if end > 0 && bytes[end..].starts_with(b"::") && plain(end + 2) {
            end += 2;
        } else {
            break;
        }
    }
    end
}
