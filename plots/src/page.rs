//! The frame of a page.

use crate::markup::escape_text;

const FRAME: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPTS: [&str; 2] = [include_str!("../assets/charts.js"), include_str!("../assets/reload.js")];

/// A page that holds everything that it needs.
pub struct Page<'a> {
    /// Its title, as text.
    pub title: &'a str,
    /// What is in it, as HTML.
    pub body: &'a str,
    /// Seconds after which the page reads its file again, for a file that is replaced now and then. A reader can stop
    /// that.
    pub reload: Option<u32>,
}

/// The page as HTML.
pub fn page(page: &Page) -> String {
    let seconds = page.reload.map_or(String::new(), |seconds| seconds.to_string());
    let without_script = page.reload.map_or(String::new(), |seconds| {
        format!("<noscript><meta http-equiv=\"refresh\" content=\"{seconds}\"></noscript>")
    });
    let parts = [
        ("{{RELOAD}}", &*seconds),
        ("{{REFRESH}}", &*without_script),
        ("{{TITLE}}", &*escape_text(page.title)),
        ("{{STYLE}}", STYLE),
        ("{{BODY}}", page.body),
        ("{{SCRIPT}}", &SCRIPTS.concat()),
    ];
    // One pass: what is embedded is not searched for places again.
    let (mut text, mut rest) = (String::new(), FRAME);
    for (place, part) in parts {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        text += before;
        text += part;
        rest = after;
    }
    text + rest
}
