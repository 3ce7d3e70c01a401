//! Tokens to text one by one, as they are drawn: no half character is shown, and nothing of a text that ends it.

use crate::tokenizer::{Tokenizer, TokenizerError};

/// Turns tokens into text one by one, holding back a character until all of its bytes have come.
#[derive(Debug, Clone)]
pub struct StreamingDecoder {
    tokenizer: Tokenizer,
    held: Held,
}

#[derive(Debug, Clone)]
enum Held {
    /// Bytes that begin a character.
    Bytes(Vec<u8>),
    /// Of a tokenizer whose tokens' text depends on those before: the last tokens, of which the first `shown` have the
    /// text `before`.
    Tokens { tokens: Vec<u32>, shown: usize, before: String },
}

impl StreamingDecoder {
    /// A decoder after the text of `prompt`, which is not shown again.
    pub fn after(tokenizer: Tokenizer, prompt: &[u32]) -> Result<Self, TokenizerError> {
        let held = match &tokenizer {
            Tokenizer::File(_) => {
                let before = tokenizer.decode(prompt)?;
                Held::Tokens { tokens: prompt.to_vec(), shown: prompt.len(), before }
            }
            Tokenizer::Gpt2 | Tokenizer::Bytes => Held::Bytes(Vec::new()),
        };
        Ok(StreamingDecoder { tokenizer, held })
    }

    /// The text that `token` completes; empty while a character is incomplete.
    pub fn push(&mut self, token: u32) -> Result<String, TokenizerError> {
        match &mut self.held {
            Held::Bytes(held) => {
                held.extend(self.tokenizer.decode_bytes(&[token])?);
                Ok(complete(held))
            }
            Held::Tokens { tokens, shown, before } => {
                // A token without text is refused alone: those that follow have theirs.
                self.tokenizer.decode_bytes(&[token])?;
                tokens.push(token);
                let text = self.tokenizer.decode(tokens)?;
                if text.ends_with(char::REPLACEMENT_CHARACTER) {
                    return Ok(String::new());
                }
                let new = added(&self.tokenizer, before, &text, &tokens[*shown..])?;
                // A token without text, such as a special one, says nothing of what follows.
                if !new.is_empty() {
                    tokens.drain(..*shown);
                    *before = self.tokenizer.decode(tokens)?;
                }
                *shown = tokens.len();
                Ok(new)
            }
        }
    }

    /// What is left at the end: nothing, or U+FFFD for a character cut short.
    pub fn finish(self) -> String {
        match self.held {
            Held::Bytes(held) => String::from_utf8_lossy(&held).into_owned(),
            Held::Tokens { tokens, shown, before } => {
                let text = self.tokenizer.decode(&tokens);
                let new = text.and_then(|text| added(&self.tokenizer, &before, &text, &tokens[shown..]));
                new.unwrap_or_default()
            }
        }
    }
}

/// What `text` has after `before`; where tokens have changed the text of those before them (a byte that is a character
/// alone is none before one that breaks off), the text of the `new` tokens alone.
fn added(tokenizer: &Tokenizer, before: &str, text: &str, new: &[u32]) -> Result<String, TokenizerError> {
    text.strip_prefix(before).map_or_else(|| tokenizer.decode(new), |added| Ok(added.to_owned()))
}

/// The characters that are complete, taken from `held`; U+FFFD for bytes that belong to none.
fn complete(held: &mut Vec<u8>) -> String {
    let mut text = String::new();
    loop {
        let (valid, broken) = match std::str::from_utf8(held) {
            Ok(_) => (held.len(), Some(0)),
            Err(error) => (error.valid_up_to(), error.error_len()),
        };
        text.push_str(&String::from_utf8_lossy(&held[..valid]));
        held.drain(..valid);
        match broken {
            Some(0) | None => return text,
            Some(length) => {
                text.push(char::REPLACEMENT_CHARACTER);
                held.drain(..length);
            }
        }
    }
}

/// Watches a text that comes in pieces for the texts that end it.
#[derive(Debug, Clone)]
pub struct StopTexts {
    stops: Vec<String>,
    /// The end of the text so far that may begin one of them.
    held: String,
}

impl StopTexts {
    /// Watches for these; empty ones are none.
    pub fn new(stops: &[String]) -> Self {
        StopTexts { stops: stops.iter().filter(|stop| !stop.is_empty()).cloned().collect(), held: String::new() }
    }

    /// The text that can be shown once `piece` has come, and which of the texts ends it there, if one does. Of several
    /// the one that begins first counts; nothing from its beginning on is shown.
    pub fn push(&mut self, piece: &str) -> (String, Option<String>) {
        self.held.push_str(piece);
        let found = self.stops.iter().filter_map(|stop| Some((self.held.find(stop.as_str())?, stop)));
        if let Some((place, stop)) = found.min_by_key(|(place, _)| *place) {
            let stop = stop.clone();
            self.held.truncate(place);
            return (std::mem::take(&mut self.held), Some(stop));
        }
        let may_begin = |rest: &str| self.stops.iter().any(|stop| stop.starts_with(rest));
        let begins = self.held.char_indices().map(|(place, _)| place).find(|place| may_begin(&self.held[*place..]));
        let rest = self.held.split_off(begins.unwrap_or(self.held.len()));
        (std::mem::replace(&mut self.held, rest), None)
    }

    /// What was held back when the text has ended otherwise.
    pub fn finish(self) -> String {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_end_where_a_stop_begins() {
        let watched = |stops: &[&str], pieces: &[&str]| {
            let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
            let mut watch = StopTexts::new(&stops);
            let mut shown = Vec::new();
            for piece in pieces {
                let (text, stop) = watch.push(piece);
                shown.push(text);
                if let Some(stop) = stop {
                    return (shown, Some(stop));
                }
            }
            shown.push(watch.finish());
            (shown, None)
        };
        let text = |shown: &[&str]| shown.iter().map(|piece| (*piece).to_owned()).collect::<Vec<_>>();
        assert_eq!(watched(&[], &["a", "b"]), (text(&["a", "b", ""]), None));
        assert_eq!(watched(&[""], &["a", "b"]), (text(&["a", "b", ""]), None));
        assert_eq!(watched(&["\n\n"], &["a\n", "b\n", "\nc"]), (text(&["a", "\nb", ""]), Some("\n\n".into())));
        assert_eq!(watched(&["\n\n"], &["a\n", "b\n"]), (text(&["a", "\nb", "\n"]), None));
        assert_eq!(watched(&["END"], &["xENxEND y"]), (text(&["xENx"]), Some("END".into())));
        assert_eq!(watched(&["aab"], &["a", "a", "a", "b"]), (text(&["", "", "a", ""]), Some("aab".into())));
        assert_eq!(watched(&["bc", "abcd"], &["ab", "c"]), (text(&["", "a"]), Some("bc".into())));
        assert_eq!(watched(&["é"], &["caf", "é!"]), (text(&["caf", ""]), Some("é".into())));
    }
}
