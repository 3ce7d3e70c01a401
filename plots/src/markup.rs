//! Text within markup.

/// Text between tags, or in an attribute within double quotes.
pub fn escape_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// JSON as the text of a script element: no character of it can end the element or begin a comment in it. Outside of
/// strings JSON has none of these characters, and in strings an escape is the same character.
pub fn escape_json(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Text without control characters, which neither a page nor SVG may have: they are shown as their pictures. Line
/// breaks and tabs stay.
pub fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => c,
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(' '),
        '\u{7f}' => '\u{2421}',
        '\u{80}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}
