//! Frames between a rank and the rendezvous: a kind, the length of the content, and the content. Numbers have eight
//! bytes, little end first.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::RankError;

/// A rank gives something: the place of the axis, the call, the bytes.
pub(super) const EXCHANGE: u8 = 1;
/// What the ranks of its group gave, in order.
pub(super) const GIVEN: u8 = 2;
/// Why it got nothing.
pub(super) const ERROR: u8 = 3;
/// Both sides are still there.
pub(super) const ALIVE: u8 = 4;
/// A program of the rank failed.
pub(super) const FAILED: u8 = 5;
/// Another rank has ended or failed: its number, and 1 if it has said that it failed.
pub(super) const ENDED: u8 = 6;
/// The rendezvous' first words: a number drawn for this connection.
pub(super) const CHALLENGE: u8 = 7;
/// The rank's answer: a proof of the secret, a number that it drew, and which rank it is.
pub(super) const HELLO: u8 = 8;
/// All ranks are there; the rendezvous' proof of the secret.
pub(super) const WELCOME: u8 = 9;
/// The rank is not taken: why.
pub(super) const REFUSED: u8 = 10;

/// The rank has done all that may refuse the run; it computes from now on.
pub(super) const BEGUN: u8 = 11;
/// Ranks are waited for: which, in words.
pub(super) const WAITING: u8 = 12;

/// How often each side says that it is still there.
pub(super) const BEAT: Duration = Duration::from_secs(5);
/// How long a read waits. The second one in a row that gets nothing is the loss of the connection: after a process was
/// stopped for a while, the first one ends before the other side can say anything.
pub(super) const SILENCE: Duration = Duration::from_secs(10);
/// The most bytes of content before the other side has proved that it knows the secret.
pub(super) const MOST_OF_GREETING: u64 = 16 << 10;
/// The most bytes of content afterwards.
pub(super) const MOST: u64 = 1 << 36;

/// Reads from a side that says every [`BEAT`] that it is there.
pub(super) struct Patient<'a>(pub(super) &'a TcpStream);

impl Read for Patient<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let waited = |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        match self.0.read(to) {
            Err(error) if waited(&error) => self.0.read(to),
            read => read,
        }
    }
}

/// Reads until a time, however slowly the other side writes.
pub(super) struct Until<'a>(pub(super) &'a TcpStream, pub(super) Instant);

impl Read for Until<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = self.1.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.0.set_read_timeout(Some(left))?;
        self.0.read(to)
    }
}

/// Has reads and writes of a connection end where the other side is gone. Within a host the system closes the
/// connection of a process that has ended; one that says nothing was stopped, and may go on.
pub(super) fn watched(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let silence = (!stream.peer_addr()?.ip().is_loopback()).then_some(SILENCE);
    stream.set_read_timeout(silence)?;
    stream.set_write_timeout(silence.map(|silence| 2 * silence))
}

/// Writes a frame.
pub(super) fn send(mut to: &TcpStream, kind: u8, content: &[u8]) -> io::Result<()> {
    let mut head = [0; 9];
    head[0] = kind;
    head[1..].copy_from_slice(&(content.len() as u64).to_le_bytes());
    if content.len() > 1 << 16 {
        to.write_all(&head)?;
        return to.write_all(content);
    }
    // One packet for a small one.
    to.write_all(&[&head, content].concat())
}

/// Reads a frame whose content has `most` bytes at most.
pub(super) fn receive(from: &mut impl Read, most: u64) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let length = u64::from_le_bytes(head[1..].try_into().unwrap_or_default());
    if length > most {
        return Err(wrong(&format!("a message of {length} bytes, expected {most} at most")));
    }
    // It grows with what comes, not with what is announced.
    let mut content = Vec::new();
    from.take(length).read_to_end(&mut content)?;
    if content.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((head[0], content))
}

fn wrong(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// The content of a frame as it is put together.
#[derive(Default)]
pub(super) struct Content(pub(super) Vec<u8>);

impl Content {
    pub(super) fn number(mut self, number: usize) -> Content {
        self.0.extend_from_slice(&(number as u64).to_le_bytes());
        self
    }

    pub(super) fn bytes(self, bytes: &[u8]) -> Content {
        let mut content = self.number(bytes.len());
        content.0.extend_from_slice(bytes);
        content
    }
}

/// The content of a frame as it is taken apart.
pub(super) struct Parts<'a>(pub(super) &'a [u8]);

impl<'a> Parts<'a> {
    pub(super) fn number(&mut self) -> io::Result<usize> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(|| wrong("a message ends too early"))?;
        self.0 = rest;
        usize::try_from(u64::from_le_bytes(*number)).map_err(|_| wrong("a message has a number that is too large"))
    }

    pub(super) fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(|| wrong("a message ends too early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }
}

/// What a rank gets from an exchange, as a frame.
pub(super) fn answer(outcome: &Result<Vec<Arc<Vec<u8>>>, RankError>) -> (u8, Vec<u8>) {
    let error = match outcome {
        Ok(given) => {
            let content = Content::default().number(given.len());
            return (GIVEN, given.iter().fold(content, |content, bytes| content.bytes(bytes)).0);
        }
        Err(error) => error,
    };
    let with = |number: usize, called: &str, other: usize, text: &str| {
        Content::default().number(number).bytes(called.as_bytes()).number(other).bytes(text.as_bytes()).0
    };
    let content = match error {
        RankError::Differs { called, other, other_called, .. } => with(0, called, *other, other_called),
        RankError::Ended { called, ended, .. } => with(1, called, *ended, ""),
        RankError::Failed { called, .. } => with(2, called, 0, ""),
        RankError::Stuck { called, other, other_called, .. } => with(3, called, *other, other_called),
        other => with(4, "", 0, &other.to_string()),
    };
    (ERROR, content)
}

/// What an answer says to rank `rank`.
pub(super) fn outcome(rank: usize, kind: u8, content: &[u8]) -> io::Result<Result<Vec<Arc<Vec<u8>>>, RankError>> {
    let mut parts = Parts(content);
    if kind == GIVEN {
        let count = parts.number()?;
        let given = (0..count).map(|_| Ok(Arc::new(parts.bytes()?.to_vec())));
        return Ok(Ok(given.collect::<io::Result<_>>()?));
    }
    let (which, called, other, other_called) = (parts.number()?, parts.text()?, parts.number()?, parts.text()?);
    Ok(Err(match which {
        0 => RankError::Differs { rank, called, other, other_called },
        1 => RankError::Ended { rank, called, ended: other },
        2 => RankError::Failed { rank, called },
        3 => RankError::Stuck { rank, called, other, other_called },
        _ => RankError::Lost { rank, called, reason: other_called },
    }))
}
