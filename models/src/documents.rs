//! Text to a stream of documents, as llm.c's `dev/data/tinyshakespeare.py` does it.

use crate::tokenizer::{Tokenizer, TokenizerError};

/// Text whose tokens cannot go to shards.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentsError {
    /// Text that does not encode.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A token id beyond 16 bits.
    #[error("token {index} has id {id}, shards hold ids up to 65535")]
    TooWide {
        /// Position in the stream, counted from 0.
        index: usize,
        /// The id.
        id: u32,
    },
}

/// The tokens of a text whose documents are separated by blank lines. Each document is encoded by itself, with the
/// blank line that ends it (the last one has none), and begins with the tokenizer's end of text, if it has one.
pub fn tokens_of_documents(text: &str, tokenizer: &Tokenizer) -> Result<Vec<u16>, DocumentsError> {
    let mut tokens: Vec<u16> = Vec::new();
    let mut documents = text.split("\n\n").peekable();
    while let Some(document) = documents.next() {
        let blank = if documents.peek().is_some() { "\n\n" } else { "" };
        let ids = tokenizer.encode(&format!("{document}{blank}"))?;
        for id in tokenizer.end_of_text().into_iter().chain(ids) {
            let narrow = u16::try_from(id).map_err(|_| DocumentsError::TooWide { index: tokens.len(), id })?;
            tokens.push(narrow);
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::TINY_SHAKESPEARE;
    use crate::llmc::Shard;

    /// The figures that llm.c documents.
    #[test]
    fn tinyshakespeare_has_the_documented_size() {
        let tokens = tokens_of_documents(TINY_SHAKESPEARE, &Tokenizer::gpt2()).unwrap();
        let (validation, train) = tokens.split_at(32_768);
        assert_eq!(train.len(), 305_260);
        assert_eq!(Shard::to_bytes(validation).unwrap().len(), 66_560);
        assert_eq!(Shard::to_bytes(train).unwrap().len(), 611_544);
        assert_eq!(Shard::parse(&Shard::to_bytes(train).unwrap()).unwrap(), train);
        // "First Citizen:"
        assert_eq!(tokens[..4], [50_256, 5962, 22_307, 25]);
    }

    #[test]
    fn documents_keep_their_blank_line_and_begin_with_the_end_of_text() {
        let gpt2 = Tokenizer::gpt2();
        let decoded = |text: &str| {
            let tokens: Vec<u32> = tokens_of_documents(text, &gpt2).unwrap().into_iter().map(u32::from).collect();
            gpt2.decode(&tokens).unwrap().replace("<|endoftext|>", "|")
        };
        for (text, expected) in
            [("a\n\nb", "|a\n\n|b"), ("a\n\n\n\nb\n\n", "|a\n\n|\n\n|b\n\n|"), ("a", "|a"), ("\n\n\n", "|\n\n|\n")]
        {
            assert_eq!(decoded(text), expected, "{text:?}");
        }
        assert_eq!(tokens_of_documents("a\n\nb", &Tokenizer::bytes()).unwrap(), [97, 10, 10, 98]);
    }
}
