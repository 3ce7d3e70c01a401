//! How a rank and the rendezvous of its run know each other: both prove that they know the run's secret, which is not
//! sent itself. What they send afterwards is not encrypted.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use blake3::Hash;

/// The fewest characters of a secret.
const FEWEST: usize = 16;
/// Bytes of a number that is drawn for one connection.
pub(super) const DRAWN: usize = 32;

/// What the ranks of a run know, and nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A secret that is given.
    ///
    /// # Errors
    /// If it is so short that it can be guessed.
    pub fn new(text: &str) -> Result<Secret, String> {
        let length = text.chars().count();
        if length < FEWEST {
            return Err(format!("has {length} characters, expected {FEWEST} at least, drawn at random"));
        }
        Ok(Secret(text.to_owned()))
    }

    /// A new one, drawn by the system.
    ///
    /// # Errors
    /// If the system draws no numbers.
    pub fn draw() -> io::Result<Secret> {
        Ok(Secret(blake3::Hash::from_bytes(drawn()?).to_hex().to_string()))
    }

    /// Its text, to be given to the processes of the run alone.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What `of` (a side of the connection) proves with, for what was drawn and is said. Hashes are compared in
    /// constant time.
    pub(super) fn proof(&self, of: &str, parts: &[&[u8]]) -> Hash {
        let key = blake3::derive_key("Fulgurite, the rendezvous of ranks, 2026-11", self.0.as_bytes());
        let mut hasher = blake3::Hasher::new_keyed(&key);
        for part in [of.as_bytes()].iter().chain(parts) {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize()
    }
}

/// Numbers that nobody can guess.
pub(super) fn drawn() -> io::Result<[u8; DRAWN]> {
    let mut bytes = [0; DRAWN];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What a rank says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) rank: usize,
    pub(super) version: String,
    pub(super) mesh: String,
}

/// The version of the ranks of this build.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
