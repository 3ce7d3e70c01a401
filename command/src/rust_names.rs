//! Names in Rust: what may be one.

/// Words that Rust keeps for itself (those in lower case that could be meant as a name).
pub const KEYWORDS: [&str; 49] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "unsafe", "use", "virtual", "where", "while", "yield",
];

/// The name of an operator, an executor or a crate.
///
/// # Errors
/// What is wrong with the text, if it is none.
pub fn identifier(text: &str) -> Result<String, String> {
    let starts = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    let plain = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !starts || !plain || text.len() > 64 {
        return Err("expected a lower-case letter, then lower-case letters, digits or '_', 64 at most".into());
    }
    if KEYWORDS.contains(&text) {
        return Err("is a word that Rust keeps for itself".into());
    }
    Ok(text.to_owned())
}
