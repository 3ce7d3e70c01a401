//! A page that is served: it loads itself anew when the server has another one.

/// What a page's policy lets it load, and what it says besides if it is served.
const POLICY: (&str, &str) = ("default-src 'none';", "default-src 'none'; connect-src 'self';");

const SCRIPT: &str = include_str!("../assets/live.js");

/// The page as a server gives it out: it asks the server's `/changes` for events, whose data are the version of the
/// page, and loads itself anew if that is not `version`, a word of letters, digits and `-`.
pub fn live(page: &str, version: &str) -> String {
    let script = format!("<script>\n{}</script>\n</body>", SCRIPT.replace("{{VERSION}}", version));
    let page = page.replacen(POLICY.0, POLICY.1, 1);
    match page.rsplit_once("</body>") {
        Some((before, after)) => format!("{before}{script}{after}"),
        None => page,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::page;

    #[test]
    fn only_a_served_page_may_ask_its_server() {
        let alone = page(&[]);
        assert!(!alone.contains("EventSource") && !alone.contains("connect-src"));
        let served = live(&alone, "7-1");
        assert!(served.contains("EventSource") && served.contains("connect-src 'self'"));
        assert!(served.contains("\"7-1\"") && !served.contains("{{VERSION}}"));
        assert_eq!(served.matches("</body>").count(), 1);
    }
}
