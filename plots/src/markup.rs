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
