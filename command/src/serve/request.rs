//! The head of a request, and what it is answered with.

use std::io::{Error, ErrorKind, Read};
use std::net::TcpStream;
use std::time::Instant;

/// Bytes that the head of a request may have.
const HEAD: usize = 16 << 10;

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The page; its head alone without `body`.
    Page { body: bool },
    /// Events, one for each new page.
    Changes,
    /// An empty answer: there is no such file, and no error either.
    Nothing,
    /// An error: its HTTP status, and the reason as text.
    Refused(u16, &'static str),
}

/// A connection that is read until a moment, however little arrives at a time. Beyond, reading is
/// [`ErrorKind::TimedOut`].
pub struct Timed<'a> {
    /// The connection.
    pub stream: &'a TcpStream,
    /// The deadline.
    pub until: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, Error> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(bytes).map_err(|error| match error.kind() {
            // What systems say of a time that is over.
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

/// Reads the head of a request, up to its empty line. What is too long or no text is [`ErrorKind::InvalidData`].
pub fn read_head(stream: &mut impl Read) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            bytes.truncate(end);
            return String::from_utf8(bytes).map_err(|_| Error::from(ErrorKind::InvalidData));
        }
        if bytes.len() > HEAD {
            return Err(ErrorKind::InvalidData.into());
        }
        match stream.read(&mut part)? {
            0 => return Err(ErrorKind::InvalidData.into()),
            read => bytes.extend_from_slice(&part[..read]),
        }
    }
}

/// What the head of a request asks for. `port` is the one that is listened on.
pub fn answer(head: &str, port: u16) -> Answer {
    let malformed = Answer::Refused(400, "The request is malformed.");
    let mut lines = head.split("\r\n");
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = words[..] else { return malformed };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return malformed;
    }
    let (mut hosts, mut origins, mut sites, mut modes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for line in lines {
        // A name with a space, or a line that goes on with the one before, is read differently by different readers.
        let Some((name, value)) = line.split_once(':') else { return malformed };
        if name.is_empty() || name.contains([' ', '\t']) {
            return malformed;
        }
        for (known, values) in [
            ("host", &mut hosts),
            ("origin", &mut origins),
            ("sec-fetch-site", &mut sites),
            ("sec-fetch-mode", &mut modes),
        ] {
            if name.eq_ignore_ascii_case(known) {
                values.push(value.trim());
            }
        }
    }
    match hosts[..] {
        [host] if is_here(host, port) => {}
        [_] => return Answer::Refused(421, "This server answers requests for localhost alone."),
        _ => return malformed,
    }
    // Another server of this machine is `same-site`, and as foreign.
    let from_elsewhere = sites.iter().any(|site| !matches!(*site, "same-origin" | "none"));
    if !origins.iter().all(|origin| is_own(origin, port)) || (from_elsewhere && modes != ["navigate"]) {
        return Answer::Refused(403, "This server answers its own page alone.");
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    match (method, path) {
        ("GET" | "HEAD", "/") => Answer::Page { body: method == "GET" },
        ("GET", "/changes") => Answer::Changes,
        // Browsers ask for it on their own.
        ("GET" | "HEAD", "/favicon.ico") => Answer::Nothing,
        ("GET" | "HEAD", _) => Answer::Refused(404, "There is one page here, at /."),
        _ => Answer::Refused(405, "There is a page to read here, and nothing to change."),
    }
}

/// Whether an origin is that of the page that is served here.
fn is_own(origin: &str, port: u16) -> bool {
    origin.strip_prefix("http://").is_some_and(|host| host.ends_with(&format!(":{port}")) && is_here(host, port))
}

/// Whether a host is this machine's loopback address, with this port or without one.
fn is_here(host: &str, port: u16) -> bool {
    let name = match host.rsplit_once(':') {
        // The colons of `[::1]` are its own.
        Some((name, digits)) if !digits.ends_with(']') => {
            if digits != port.to_string() {
                return false;
            }
            name
        }
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &str) -> Answer {
        answer(&format!("GET / HTTP/1.1\r\nAccept: */*\r\nHost: {host}"), 7000)
    }

    #[test]
    fn only_this_machine_is_answered() {
        for host in ["localhost", "LOCALHOST:7000", "127.0.0.1", "127.0.0.1:7000", "[::1]", "[::1]:7000"] {
            assert_eq!(of(host), Answer::Page { body: true }, "{host}");
        }
        for host in [
            "example.org",
            "example.org:7000",
            "localhost:7001",
            "localhost:+7000",
            "localhost:07000",
            "localhost:\u{663}",
            "localhost.example.org",
            "127.0.0.1.nip.io",
            "192.168.0.1",
            "0.0.0.0",
            "[::]",
            "localhost:",
            ":7000",
            "localhost:7000:7000",
        ] {
            assert!(matches!(of(host), Answer::Refused(421, _)), "{host}: {:?}", of(host));
        }
    }

    #[test]
    fn requests_of_other_pages_are_refused() {
        let with = |lines: &str| answer(&format!("GET /changes HTTP/1.1\r\nHost: localhost:7000\r\n{lines}"), 7000);
        for lines in [
            "Accept: */*",
            "Origin: http://localhost:7000",
            "origin: http://127.0.0.1:7000\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors",
            "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate",
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate",
        ] {
            assert_eq!(with(lines), Answer::Changes, "{lines}");
        }
        for lines in [
            "Origin: http://example.org",
            "Origin: null",
            "Origin: http://localhost",
            "Origin: http://localhost:7001",
            "Origin: https://localhost:7000",
            "Origin: http://localhost:7000\r\nOrigin: http://example.org",
            "Origin: http://example.org\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate",
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors",
            "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors",
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Mode: cors",
        ] {
            assert!(matches!(with(lines), Answer::Refused(403, _)), "{lines}");
        }
    }

    #[test]
    fn malformed_heads_are_refused() {
        for head in [
            "",
            "GET",
            "GET /",
            "GET  / HTTP/1.1\r\nHost: localhost",
            "GET / HTTP/2\r\nHost: localhost",
            "GET / HTTP/1.1",
            "GET / HTTP/1.1\r\nHost localhost",
            "GET / HTTP/1.1\r\nHost : localhost",
            "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost",
            "\u{0}\u{1}",
            "GET / HTTP/1.1\r\n: x",
        ] {
            assert!(matches!(answer(head, 1), Answer::Refused(400, _)), "{head:?}");
        }
        let asked = |line: &str| answer(&format!("{line} HTTP/1.1\r\nHost: localhost"), 1);
        assert!(matches!(asked("POST /"), Answer::Refused(405, _)));
        assert!(matches!(asked("GET /../etc/passwd"), Answer::Refused(404, _)));
        assert_eq!(asked("GET /changes?1"), Answer::Changes);
        assert_eq!(asked("HEAD /"), Answer::Page { body: false });
    }

    #[test]
    fn heads_have_an_end() {
        let mut text = &b"GET / HTTP/1.1\r\nHost: x\r\n\r\nrest"[..];
        assert_eq!(read_head(&mut text).unwrap(), "GET / HTTP/1.1\r\nHost: x");
        assert!(read_head(&mut &b"GET / HTTP/1.1\r\n"[..]).is_err());
        assert!(read_head(&mut &b"\xff\r\n\r\n"[..]).is_err());
        assert!(read_head(&mut std::io::repeat(b'a')).is_err());
    }
}
