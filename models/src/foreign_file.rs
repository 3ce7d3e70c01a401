//! Files that are given for files of a model, and are others by their first bytes: what they are, and what to do.

/// How many bytes tell what a file is.
pub(crate) const START: usize = 64;

/// The first bytes of a kind, and the message about it.
const KINDS: [(&[u8], &str); 5] = [
    (
        b"version https://git-lfs.github.com/spec/",
        "is a pointer of git-lfs and not the file itself: run 'git lfs pull' in its folder, or download the file",
    ),
    // The first piece of a model of SentencePiece is its unknown token.
    (
        b"\n\x0e\n\x05<unk>",
        "is a model of SentencePiece, a tokenizer: it is beside weights as tokenizer.model, and has none itself",
    ),
    (b"<!DOCTYPE", WEB_PAGE),
    (b"<!doctype", WEB_PAGE),
    (b"<html", WEB_PAGE),
];

const WEB_PAGE: &str = "is a web page and not the file that was to be downloaded: download it again, signed in if its \
                        model asks for that";

/// The kind of a file with this beginning and the advice for it, if it is a known file that is not read.
pub(crate) fn told(start: &[u8]) -> Option<&'static str> {
    KINDS.iter().find(|(first, _)| start.starts_with(first)).map(|(_, told)| *told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_first_bytes() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n";
        assert!(told(pointer).unwrap().contains("'git lfs pull'"));
        assert!(told(b"\n\x0e\n\x05<unk>\x15").unwrap().contains("SentencePiece"));
        assert!(told(b"<!DOCTYPE html>").unwrap().contains("web page"));
        for other in [&b"{}"[..], b"", b"GGU", b"version 1", b"PK\x03\x04"] {
            assert_eq!(told(other), None);
        }
        assert!(KINDS.iter().all(|(first, _)| first.len() <= START));
    }
}
