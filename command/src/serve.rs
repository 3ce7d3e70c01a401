//! A page for the browsers of this machine: served on the loopback address alone, and anew when its files change.
//!
//! Any page of the web can make a browser send requests here. One to a name that was made to point here has that name
//! as its `Host`, so every `Host` but this machine's is refused. One to `localhost` has the right `Host`; the browser
//! keeps its answer from the page that sent it, and says in `Origin` and `Sec-Fetch-Site` where it comes from, by which
//! it is refused as well, unless the user follows a link to here. Nothing is ever written for a request.

mod request;
mod slots;
mod watch;

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fulgurite_view::live;

use super::outcome::{Failed, Outcome};
use super::output::{complain, say};
use request::{Answer, Timed, answer, read_head};
use slots::{Slot, Slots};
use watch::Watched;

/// Requests that are answered at once.
const REQUESTS: usize = 64;

/// Pages that wait for changes at once: one for each that is open in a browser.
const WAITING: usize = 64;

/// How long a browser may take to send the head of its request.
const HEAD: Duration = Duration::from_secs(2);

/// How long a browser may take to read a part of the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often an event without meaning shows whether a browser is still there.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How often files are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// The page that is served now.
struct Current {
    page: Arc<String>,
    number: u64,
}

struct Served {
    current: Mutex<Current>,
    changed: Condvar,
    requests: Arc<Slots>,
    waiting: Arc<Slots>,
    port: u16,
}

impl Served {
    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, page: String) {
        let mut current = self.current();
        *current = Current { page: Arc::new(page), number: current.number + 1 };
        self.changed.notify_all();
    }
}

/// Of another process each version is another one: a page of an earlier server loads itself anew.
fn version(number: u64) -> String {
    format!("{}-{number}", std::process::id())
}

/// Serves what `make` makes, again whenever one of `files` changes, until the process ends. Port 0 is any free one.
pub fn serve(port: u16, files: &[PathBuf], make: &dyn Fn() -> Result<String, Failed>) -> Outcome {
    let mut watched = Watched::of(files);
    let page = make()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let listener = listener.map_err(|error| Failed(format!("--serve {port}: {error}")))?;
    let address = listener.local_addr().map_err(|error| Failed(format!("--serve: {error}")))?;
    let current = Mutex::new(Current { page: Arc::new(page), number: 1 });
    let (requests, waiting) = (Slots::new(REQUESTS), Slots::new(WAITING));
    let served = Arc::new(Served { current, changed: Condvar::new(), requests, waiting, port: address.port() });
    let shared = Arc::clone(&served);
    thread::Builder::new()
        .name("serve".into())
        .spawn(move || accept(&listener, &shared))
        .map_err(|error| Failed(format!("--serve: {error}")))?;
    say!("http://localhost:{}/ (Ctrl-C ends it)", address.port())?;
    if files.is_empty() {
        // Operators and models are part of this program, which does not change while it runs.
        loop {
            thread::park();
        }
    }
    loop {
        thread::sleep(LOOK);
        if !watched.changed() {
            continue;
        }
        match make() {
            Ok(page) => {
                served.replace(page);
                say!("page rebuilt")?;
            }
            // A file may be half written; the next look sees the rest.
            Err(Failed(message)) => complain(&message),
        }
    }
    #[expect(unreachable_code, reason = "commands give an exit code")]
    Ok(ExitCode::SUCCESS)
}

fn accept(listener: &TcpListener, served: &Arc<Served>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, say: others may end.
            thread::sleep(LOOK);
            continue;
        };
        // Before a thread is made for it: a machine has fewer of them than connections.
        let Some(slot) = Slots::take(&served.requests) else {
            let _ = turn_away(stream);
            continue;
        };
        let shared = Arc::clone(served);
        let connection = move || {
            let _ = talk(stream, &shared, slot);
        };
        // Without a thread the connection is closed, and its slot is free again.
        let _ = thread::Builder::new().name("connection".into()).spawn(connection);
    }
}

/// Answers a connection that is one too many, without waiting for what it asks: the answer fits into any buffer.
fn turn_away(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(true)?;
    // A connection that is closed with bytes unread ends before its answer is read.
    let _ = stream.read(&mut [0; 4096]);
    write_answer(&mut stream, FULL)
}

/// Answers the one request of a connection, which holds a slot meanwhile.
fn talk(mut stream: TcpStream, served: &Served, slot: Slot) -> std::io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let answer = match read_head(&mut Timed { stream: &stream, until: Instant::now() + HEAD }) {
        Ok(head) => answer(&head, served.port),
        Err(error) => match error.kind() {
            ErrorKind::InvalidData => Answer::Refused(400, "The request is malformed."),
            ErrorKind::TimedOut => Answer::Refused(408, "The request took too long."),
            _ => return Err(error),
        },
    };
    match answer {
        Answer::Page { body } => {
            let (page, number) = {
                let current = served.current();
                (Arc::clone(&current.page), current.number)
            };
            let page = live(&page, &version(number));
            write_head(&mut stream, 200, "text/html; charset=utf-8", Some(page.len()))?;
            if body { stream.write_all(page.as_bytes()) } else { Ok(()) }
        }
        Answer::Changes => {
            let Some(_waiting) = Slots::take(&served.waiting) else { return write_answer(&mut stream, FULL) };
            drop(slot);
            changes(&mut stream, served)
        }
        Answer::Nothing => write_head(&mut stream, 204, "text/plain", Some(0)),
        Answer::Refused(status, reason) => write_answer(&mut stream, (status, reason)),
    }
}

/// What a connection that is one too many is told.
const FULL: (u16, &str) = (503, "Too many connections are open.");

fn write_answer(stream: &mut TcpStream, (status, reason): (u16, &str)) -> std::io::Result<()> {
    write_head(stream, status, "text/plain; charset=utf-8", Some(reason.len()))?;
    stream.write_all(reason.as_bytes())
}

/// Sends an event now, and one for each page, until the browser is gone.
fn changes(stream: &mut TcpStream, served: &Served) -> std::io::Result<()> {
    write_head(stream, 200, "text/event-stream", None)?;
    let mut sent = 0;
    loop {
        let mut current = served.current();
        if current.number == sent {
            current = served.changed.wait_timeout(current, HEARTBEAT).unwrap_or_else(PoisonError::into_inner).0;
        }
        let number = current.number;
        drop(current);
        match number == sent {
            true => stream.write_all(b": still here\n\n")?,
            false => stream.write_all(format!("data: {}\n\n", version(number)).as_bytes())?,
        }
        sent = number;
    }
}

fn write_head(stream: &mut TcpStream, status: u16, kind: &str, length: Option<usize>) -> std::io::Result<()> {
    let reason = match status {
        200 => "OK",
        204 => "No Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        421 => "Misdirected Request",
        _ => "Service Unavailable",
    };
    let length = length.map_or_else(String::new, |length| format!("Content-Length: {length}\r\n"));
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\n{length}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())
}
