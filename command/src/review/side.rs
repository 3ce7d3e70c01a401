//! One side of a file: its text, or why there is none to compare.

use std::io::ErrorKind;
use std::path::Path;

use super::header::parts;

/// What is found under the path of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A file.
    Bytes(Vec<u8>),
    /// A folder.
    Folder,
    /// A file that the system does not let us read, and why.
    Unread(String),
}

/// The text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// The text. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Why its programs cannot be read: it is empty, or no text.
    pub fault: Option<String>,
}

impl Text {
    /// The text of what was found.
    pub fn of(content: Content) -> Text {
        let without_text = |fault: String| Text { text: String::new(), fault: Some(fault) };
        let bytes = match content {
            Content::Bytes(bytes) => bytes,
            Content::Folder => return without_text("it is a folder".into()),
            Content::Unread(error) => return without_text(error),
        };
        match String::from_utf8(bytes) {
            Ok(text) => Text { fault: empty(&text).map(str::to_owned), text },
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let fault = format!("it is not UTF-8, byte {at} is {:#04x}", error.as_bytes()[at]);
                Text { text: String::from_utf8_lossy(error.as_bytes()).into_owned(), fault: Some(fault) }
            }
        }
    }
}

/// How a text without contents is empty.
fn empty(text: &str) -> Option<&'static str> {
    if text.trim().is_empty() {
        return Some("it is empty");
    }
    parts(text).filter(|(_, contents)| contents.trim().is_empty()).map(|_| "it is empty below its header")
}

/// What is at a path; `None` if there is nothing.
pub fn read(path: &Path) -> Option<Content> {
    match std::fs::read(path) {
        Ok(bytes) => Some(Content::Bytes(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(_) if path.is_dir() => Some(Content::Folder),
        Err(error) => Some(Content::Unread(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_told() {
        let fault = |bytes: &[u8]| Text::of(Content::Bytes(bytes.to_vec())).fault;
        assert_eq!(fault(b"ab\xff").as_deref(), Some("it is not UTF-8, byte 2 is 0xff"));
        assert_eq!(fault(b" \n").as_deref(), Some("it is empty"));
        assert_eq!(fault(b"---\nsource: x\n---\n\n").as_deref(), Some("it is empty below its header"));
        assert_eq!(fault(b"---\nsource: x\n---\nx\n"), None);
        assert_eq!(Text::of(Content::Folder).fault.as_deref(), Some("it is a folder"));
    }
}
