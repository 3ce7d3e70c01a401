//! What is shown, in the forms that a notebook may choose from.

/// The mark that ends a piece of content.
const END: &str = "EVCXR_END_CONTENT";

/// Something as plain text and as HTML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Plain text.
    pub text: String,
    /// HTML: an element, whose text is escaped.
    pub html: String,
}

impl Content {
    /// Both in the form of the kernel's protocol. A text cannot end itself, whatever it contains.
    pub fn message(&self) -> String {
        let one = |kind: &str, text: &str| {
            // A word joiner is not seen.
            let text = text.replace(END, "EVCXR_END\u{2060}_CONTENT");
            format!("EVCXR_BEGIN_CONTENT {kind}\n{}\n{END}\n", text.trim_end_matches('\n'))
        };
        one("text/plain", &self.text) + &one("text/html", &self.html)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_does_not_end_itself() {
        let text = "a\nEVCXR_END_CONTENT\nEVCXR_BEGIN_CONTENT text/html\n<b>";
        let message = Content { text: text.into(), html: "<p>x</p>".into() }.message();
        assert_eq!(message.lines().filter(|line| *line == END).count(), 2);
        assert!(
            message.starts_with("EVCXR_BEGIN_CONTENT text/plain\na\n")
                && message.ends_with("<p>x</p>\nEVCXR_END_CONTENT\n")
        );
    }
}
