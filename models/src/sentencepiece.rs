//! SentencePiece's `tokenizer.model`: the fields of its protobuf message that decide how text becomes tokens.
//!
//! The message is `sentencepiece.ModelProto` (sentencepiece_model.proto): pieces with scores, how the model was
//! trained, and how text is normalized. Each field is used, or listed here as one that changes no token, or refused.

/// A model as its file says it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SentencePiece {
    pub pieces: Vec<Piece>,
    pub algorithm: Algorithm,
    /// Whether a character that no piece has becomes the pieces of its bytes.
    pub byte_fallback: bool,
    pub begin: i64,
    pub end: i64,
    /// The rules of normalization in the library's compiled form; empty for none.
    pub charsmap: Vec<u8>,
    /// Whether a text is read as if a space were before it.
    pub dummy_prefix: bool,
    pub remove_extra_whitespaces: bool,
}

/// How a text is split into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Unigram,
    Bpe,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub text: String,
    pub score: f32,
    pub kind: PieceKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
    /// It fills a vocabulary up to a size, and is never found in text; files of GGUF have such.
    Padding,
}

enum Field<'a> {
    Number(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The fields of a message, in order.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for at in 0..10 {
            let byte = *self.rest.get(at).ok_or("is cut short")?;
            value |= u64::from(byte & 0x7F).checked_shl(7 * at as u32).unwrap_or(0);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err("is damaged: a number has more than ten bytes".into())
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let count = usize::try_from(count).ok().filter(|count| *count <= self.rest.len()).ok_or("is cut short")?;
        let (taken, rest) = self.rest.split_at(count);
        self.rest = rest;
        Ok(taken)
    }

    /// The next field's number and value.
    fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Bytes(self.take(8)?),
            2 => {
                let length = self.varint()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| "is cut short")?)),
            kind => return Err(format!("is damaged: a field of kind {kind}")),
        };
        Ok(Some((key >> 3, value)))
    }
}

fn each<'a>(message: &'a [u8], mut f: impl FnMut(u64, Field<'a>) -> Result<(), String>) -> Result<(), String> {
    let mut fields = Fields { rest: message };
    while let Some((number, value)) = fields.next()? {
        f(number, value)?;
    }
    Ok(())
}

fn of_another_type(message: &str, number: u64) -> String {
    format!("is damaged: field {number} of {message} has another type")
}

fn flag(message: &str, number: u64, value: &Field<'_>) -> Result<bool, String> {
    match value {
        Field::Number(value) => Ok(*value != 0),
        _ => Err(of_another_type(message, number)),
    }
}

/// Reads the bytes of a `tokenizer.model`.
///
/// # Errors
/// Bytes that are no such message, a kind of model that is not read, and a setting that would change tokens and is not
/// known here. The message says what is wrong.
pub(crate) fn parse(bytes: &[u8]) -> Result<SentencePiece, String> {
    let mut model = SentencePiece {
        pieces: Vec::new(),
        algorithm: Algorithm::Unigram,
        byte_fallback: false,
        begin: 1,
        end: 2,
        charsmap: Vec::new(),
        dummy_prefix: true,
        remove_extra_whitespaces: true,
    };
    each(bytes, |number, value| match (number, value) {
        (1, Field::Bytes(message)) => {
            model.pieces.push(piece(message)?);
            Ok(())
        }
        (2, Field::Bytes(message)) => trainer(message, &mut model),
        (3, Field::Bytes(message)) => normalizer(message, &mut model),
        // Samples of its authors' own tests.
        (4, Field::Bytes(_)) => Ok(()),
        // How tokens become text again; the library writes an empty one unless it is asked for rules.
        (5, Field::Bytes(message)) => each(message, |number, value| match (number, value) {
            (2, Field::Bytes(rules)) if !rules.is_empty() => {
                Err("has rules of denormalization, which are not read".into())
            }
            _ => Ok(()),
        }),
        (number, _) => Err(format!("is no model of SentencePiece that is known: it has field {number}")),
    })?;
    if model.pieces.is_empty() {
        return Err("has no pieces".into());
    }
    Ok(model)
}

fn piece(message: &[u8]) -> Result<Piece, String> {
    let mut piece = Piece { text: String::new(), score: 0.0, kind: PieceKind::Normal };
    each(message, |number, value| {
        match (number, value) {
            (1, Field::Bytes(text)) => {
                piece.text = String::from_utf8(text.to_vec()).map_err(|_| "is damaged: a piece is no UTF-8")?;
            }
            (2, Field::Fixed32(score)) => piece.score = f32::from_bits(score),
            (3, Field::Number(kind)) => {
                piece.kind = match kind {
                    1 => PieceKind::Normal,
                    2 => PieceKind::Unknown,
                    3 => PieceKind::Control,
                    4 => PieceKind::UserDefined,
                    5 => PieceKind::Unused,
                    6 => PieceKind::Byte,
                    kind => return Err(format!("is damaged: a piece is of kind {kind}")),
                };
            }
            (number, _) => return Err(of_another_type("a piece", number)),
        }
        Ok(())
    })?;
    Ok(piece)
}

/// How the model was trained. Only these fields say how it is used.
fn trainer(message: &[u8], model: &mut SentencePiece) -> Result<(), String> {
    let name = "trainer_spec";
    // Whole numbers are written as 64 bits, negative ones too.
    let id = |number: u64, value: &Field<'_>| match value {
        Field::Number(value) => Ok(*value as i64),
        _ => Err(of_another_type(name, number)),
    };
    each(message, |number, value| {
        match number {
            3 => {
                model.algorithm = match id(number, &value)? {
                    1 => Algorithm::Unigram,
                    2 => Algorithm::Bpe,
                    3 => return Err("is a model of whole words, which is not read; BPE and unigram are".into()),
                    4 => return Err("is a model of characters, which is not read; BPE and unigram are".into()),
                    other => return Err(format!("is damaged: its model is of type {other}")),
                };
            }
            24 if flag(name, number, &value)? => {
                return Err("has treat_whitespace_as_suffix, which is not read".into());
            }
            35 => model.byte_fallback = flag(name, number, &value)?,
            41 => model.begin = id(number, &value)?,
            42 => model.end = id(number, &value)?,
            // What the vocabulary was made of, and how.
            _ => {}
        }
        Ok(())
    })
}

fn normalizer(message: &[u8], model: &mut SentencePiece) -> Result<(), String> {
    let spec = "normalizer_spec";
    each(message, |number, value| {
        match (number, &value) {
            // The name of the rules, and their source, of which the compiled form is used.
            (1 | 6, _) => {}
            (2, Field::Bytes(rules)) => model.charsmap = rules.to_vec(),
            (3, value) => model.dummy_prefix = flag(spec, number, value)?,
            (4, value) => model.remove_extra_whitespaces = flag(spec, number, value)?,
            (5, value) if flag(spec, number, value)? => {}
            (5, _) => return Err("does not escape white space, which is not read".into()),
            (number, _) => return Err(format!("has field {number} of {spec}, which is not read")),
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `field` of kind 2 with these bytes.
    fn part(field: u8, bytes: &[u8]) -> Vec<u8> {
        [&[field << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    #[test]
    fn fields_are_read_by_their_numbers() {
        let piece = [part(1, "▁a".as_bytes()), vec![2 << 3 | 5], (-1.5_f32).to_le_bytes().to_vec()].concat();
        let control = [part(1, b"<s>"), vec![3 << 3, 3]].concat();
        // Field 35, and an id of -1 in ten bytes.
        let negative = [&[0xC8, 0x02][..], &[0xFF; 9], &[1]].concat();
        let trainer = [vec![3 << 3, 2, 0x98, 0x02, 1], negative].concat();
        let normalizer = [part(1, b"identity"), vec![3 << 3, 0, 4 << 3, 0]].concat();
        let bytes = [part(1, &control), part(1, &piece), part(2, &trainer), part(3, &normalizer)].concat();
        let model = parse(&bytes).unwrap();
        assert_eq!(model.pieces[1], Piece { text: "▁a".into(), score: -1.5, kind: PieceKind::Normal });
        assert_eq!((model.pieces[0].kind, model.algorithm), (PieceKind::Control, Algorithm::Bpe));
        assert!(model.byte_fallback && !model.dummy_prefix && !model.remove_extra_whitespaces);
        assert_eq!(model.begin, -1);
        for length in 1..bytes.len() {
            // A cut between two fields leaves a smaller message.
            let _ = parse(&bytes[..length]);
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for (bytes, expected) in [
            (vec![], "has no pieces"),
            (vec![0x0A], "is cut short"),
            (vec![0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1], "is cut short"),
            (vec![0xFF; 12], "more than ten bytes"),
            (vec![0x0B], "a field of kind 3"),
            (part(9, b""), "it has field 9"),
            (part(1, &part(1, &[0xFF])), "no UTF-8"),
            (part(2, &[3 << 3, 4]), "a model of characters"),
            (part(2, &[0xC0, 0x01, 1]), "treat_whitespace_as_suffix"),
            (part(3, &[5 << 3, 0]), "does not escape white space"),
            (part(5, &part(2, b"x")), "rules of denormalization"),
        ] {
            let message = parse(&bytes).unwrap_err();
            assert!(message.contains(expected), "{bytes:?}: {message}");
        }
    }
}
