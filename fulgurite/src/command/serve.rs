//! A page for the browsers of this machine: served on the loopback address alone, and anew when its files change.
//!
//! Any page of the web can make a browser send requests here. Such a request names another host, or comes with a name
//! that was made to point here, so that every request whose `Host` is not this machine's is refused. Nothing is ever
//! written for a request.

mod request;
mod watch;

use std::io::{ErrorKind, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use fulgurite_view::live;

use super::outcome::{Failed, Outcome};
use super::output::{complain, say};
use request::{Answer, answer, read_head};
use watch::Watched;

/// Connections that are open at once; each page that somebody looks at has one.
const CONNECTIONS: usize = 64;

/// How long a browser may take to send its request, or to take the answer.
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
    connections: AtomicUsize,
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
    let served = Served { current, changed: Condvar::new(), connections: AtomicUsize::new(0), port: address.port() };
    let served = Arc::new(served);
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
                say!("made anew")?;
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
        let held = served.connections.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(served);
        let connection = move || {
            let _ = talk(stream, &shared, held >= CONNECTIONS);
            shared.connections.fetch_sub(1, Ordering::SeqCst);
        };
        if thread::Builder::new().name("connection".into()).spawn(connection).is_err() {
            served.connections.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Answers the one request of a connection.
fn talk(mut stream: TcpStream, served: &Served, full: bool) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let answer = match read_head(&mut stream) {
        _ if full => Answer::Refused(503, "Too many connections are open."),
        Ok(head) => answer(&head, served.port),
        Err(error) if error.kind() == ErrorKind::InvalidData => Answer::Refused(400, "The request is malformed."),
        Err(error) => return Err(error),
    };
    match answer {
        Answer::Refused(status, reason) => {
            write_head(&mut stream, status, "text/plain; charset=utf-8", Some(reason.len()))?;
            stream.write_all(reason.as_bytes())
        }
        Answer::Nothing => write_head(&mut stream, 204, "text/plain", Some(0)),
        Answer::Page { body } => {
            let (page, number) = {
                let current = served.current();
                (Arc::clone(&current.page), current.number)
            };
            let page = live(&page, &version(number));
            write_head(&mut stream, 200, "text/html; charset=utf-8", Some(page.len()))?;
            if body { stream.write_all(page.as_bytes()) } else { Ok(()) }
        }
        Answer::Changes => changes(&mut stream, served),
    }
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
        404 => "Not Found",
        405 => "Method Not Allowed",
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
