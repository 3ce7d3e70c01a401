//! `view --serve`: which requests get which answers, and pages that follow their files.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::browser::Browser;
use crate::{run, run_in};

const TRACE: &str = "# fulgurite trace 2\n# made by acquire\ntrace first for cpu (x: f32[4]) {\n  y = exp(x)\n  \
    return out = y\n}\n";

/// A server of a file, which ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn of(folder: &Path, what: &[&str]) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
            .args([&["view"], what, &["--serve"]].concat())
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.strip_prefix("http://localhost:").and_then(|rest| rest.split('/').next()?.parse().ok());
        let Some(port) = port else { panic!("{line}") };
        Server { child, port }
    }

    /// What it answers to these bytes: a request without a `Host` has none.
    fn answer(&self, request: &[u8]) -> String {
        let mut stream = self.open(request);
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A connection with these bytes on their way.
    fn open(&self, request: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        // An answer without an end is what has come until then.
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        // It may refuse before all is written.
        let _ = stream.write_all(request);
        stream
    }

    fn get(&self, path: &str, host: &str) -> String {
        self.answer(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.trace"), TRACE).unwrap();
    folder
}

#[test]
fn requests_for_other_hosts_are_refused() {
    let folder = folder();
    let server = Server::of(folder.path(), &["a.trace"]);
    for host in ["localhost".to_owned(), format!("127.0.0.1:{}", server.port), "[::1]".into()] {
        let page = server.get("/", &host);
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("<!doctype html>"), "{host}: {page}");
        assert!(page.contains("Cache-Control: no-store\r\n") && page.contains("connect-src 'self'"));
    }
    for host in ["example.org", "localhost.example.org", "localhost:1", "192.168.1.7"] {
        let refused = server.get("/", host);
        assert!(refused.starts_with("HTTP/1.1 421 ") && !refused.contains("first"), "{host}: {refused}");
        assert!(server.get("/changes", host).starts_with("HTTP/1.1 421 "));
    }
    let foreign = b"GET /changes HTTP/1.1\r\nHost: localhost\r\nOrigin: http://example.org\r\n\r\n";
    assert!(server.answer(foreign).starts_with("HTTP/1.1 403 Forbidden\r\n"));
    assert!(server.get("/a.trace", "localhost").starts_with("HTTP/1.1 404 "));
    assert!(server.answer(b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 405 "));
}

#[test]
fn only_the_loopback_address_is_listened_on() {
    let folder = folder();
    let server = Server::of(folder.path(), &["a.trace"]);
    // The address that this machine has for others; nothing is sent.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let own = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    let Ok(own) = own.map(|address| address.ip()) else {
        eprintln!("skipped: this machine has no other address");
        return;
    };
    if own.is_loopback() || own.is_unspecified() {
        eprintln!("skipped: this machine has no other address");
        return;
    }
    let second = std::time::Duration::from_secs(1);
    assert!(TcpStream::connect_timeout(&SocketAddr::new(own, server.port), second).is_err(), "{own}");
    assert!(server.get("/", "localhost").starts_with("HTTP/1.1 200 "));
}

#[test]
fn malformed_requests_are_refused_and_the_server_goes_on() {
    let folder = folder();
    let server = Server::of(folder.path(), &["a.trace"]);
    let long = [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec(), vec![b'a'; 100_000]].concat();
    let requests: [&[u8]; 7] = [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\xff\xfe\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: example.org\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        &long,
    ];
    for request in requests {
        let answer = server.answer(request);
        // Of what is too long the connection may end before the answer is read.
        let refused = answer.starts_with("HTTP/1.1 400 ") || answer.is_empty() && request.len() > 10_000;
        assert!(refused, "{:?}: {answer}", String::from_utf8_lossy(&request[..request.len().min(80)]));
    }
}

#[test]
fn what_is_too_much_is_refused_and_the_server_goes_on() {
    let folder = folder();
    let server = Server::of(folder.path(), &["a.trace"]);
    // Pages that wait for changes are counted by themselves: the page is served however many there are.
    let request = b"GET /changes HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let waiting: Vec<TcpStream> = (0..64).map(|_| server.open(request)).collect();
    for mut stream in &waiting {
        let mut start = [0; 12];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200");
    }
    assert!(server.get("/changes", "localhost").starts_with("HTTP/1.1 503 "));
    assert!(server.get("/", "localhost").starts_with("HTTP/1.1 200 "));
    // More than are answered at once say nothing: the last ones are told that there are too many, the first ones that
    // it took too long. The answer to a connection that ends meanwhile may be lost.
    let answer = |mut stream: TcpStream| {
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let silent: Vec<TcpStream> = (0..200).map(|_| server.open(b"G")).collect();
    let answers: Vec<String> = silent.into_iter().map(answer).collect();
    for status in ["503", "408"] {
        assert!(answers.iter().any(|answer| answer.starts_with(&format!("HTTP/1.1 {status} "))), "{answers:?}");
    }
    assert!(server.get("/", "localhost").starts_with("HTTP/1.1 200 "));
}

#[test]
fn an_open_page_follows_its_file() {
    let folder = folder();
    let server = Server::of(folder.path(), &["a.trace"]);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    stream.write_all(b"GET /changes HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap).filter(|line| line.starts_with("data: "));
    let first = lines.next().unwrap();
    let mut browser = Browser::start();
    if let Some(browser) = &mut browser {
        browser.visit(&format!("http://localhost:{}/", server.port));
        assert!(browser.text(".row.line").contains("exp("), "{}", browser.text(".row.line"));
    }
    std::fs::write(folder.path().join("a.trace"), TRACE.replace("exp(x)", "tanh(x)")).unwrap();
    assert_ne!(lines.next().unwrap(), first);
    assert!(server.get("/", "localhost").contains("prims::tanh"));
    if let Some(browser) = &mut browser {
        browser.wait_for_another_document();
        assert!(browser.text(".row.line").contains("tanh("), "{}", browser.text(".row.line"));
        browser.check();
    }
    // A file that is no trace any more has a page that says so.
    std::fs::write(folder.path().join("a.trace"), "# fulgurite trace 2\nnonsense").unwrap();
    lines.next().unwrap();
    assert!(server.get("/", "localhost").contains("\"unread\":{"));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let folder = folder();
    let server = Server::of(folder.path(), &["a.trace"]);
    let complaint = run_in(folder.path(), &["view", "a.trace", "--serve", &server.port.to_string()]).fails(1);
    assert!(complaint.contains(&format!("--serve {}: ", server.port)), "{complaint}");
    assert_eq!(run(&["view", "gelu", "--serve", "70000"]).code, 2);
    assert_eq!(run(&["view", "gelu"]).code, 2);
    assert_eq!(run(&["view", "gelu", "--serve", "-o", "page.html"]).code, 2);
}
