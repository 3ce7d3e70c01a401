//! A process' connection to the rendezvous of its run.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::RankError;
use super::greeting::{Secret, VERSION, drawn};
use super::told::Told;
use super::wire::{self, Content, Parts, Patient, Until};
use crate::mesh::Mesh;

/// How long a rank waits before it tries again to connect.
const AGAIN: Duration = Duration::from_millis(50);
/// Of [`Link::ended`] and [`Link::failed`]: no rank has.
const NONE: usize = usize::MAX;

type Given = Result<Vec<Arc<Vec<u8>>>, RankError>;

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    rank: usize,
    link: Arc<Link>,
    /// What was answered; one exchange at a time has it.
    answers: Mutex<Receiver<Given>>,
    /// Ends the thread that says that this rank is there.
    _alive: Sender<()>,
}

/// What the connection's threads share.
#[derive(Debug)]
struct Link {
    stream: TcpStream,
    address: SocketAddr,
    writing: Mutex<()>,
    /// The first rank that was told to have ended or failed.
    ended: AtomicUsize,
    /// The first rank that was told to have failed.
    failed: AtomicUsize,
    /// The rank that serves the rendezvous, if it is not the launcher.
    host: Option<usize>,
}

impl Link {
    fn send(&self, kind: u8, content: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(&self.stream, kind, content)
    }

    /// A rank has ended. The first one is kept.
    fn note(&self, ended: usize) {
        let _ = self.ended.compare_exchange(NONE, ended, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Takes what the rendezvous says, until the connection is lost.
    fn listen(&self, rank: usize, answers: &Sender<Given>) -> io::Result<()> {
        loop {
            match wire::receive(&mut Patient(&self.stream), wire::MOST)? {
                (wire::ALIVE, _) => {}
                (wire::ENDED, content) => {
                    let mut parts = Parts(&content);
                    let (ended, failed) = (parts.number()?, parts.number()? == 1);
                    if failed {
                        let _ = self.failed.compare_exchange(NONE, ended, Ordering::SeqCst, Ordering::SeqCst);
                    }
                    self.note(ended);
                }
                (kind @ (wire::GIVEN | wire::ERROR), content) => {
                    let outcome = wire::outcome(rank, kind, &content)?;
                    if answers.send(outcome).is_err() {
                        return Ok(());
                    }
                }
                (kind, _) => return Err(io::Error::other(format!("a message of kind {kind}"))),
            }
        }
    }
}

impl Connection {
    /// Connects to the rendezvous at `address`, which may begin later, and returns once all ranks have.
    ///
    /// # Errors
    /// What the rendezvous says, or that it cannot be reached within `patience`.
    pub(super) fn open(
        rank: usize,
        mesh: &Mesh,
        (address, host): (SocketAddr, Option<usize>),
        secret: &Secret,
        patience: Duration,
        tell: &dyn Fn(&str),
    ) -> Result<Connection, String> {
        let until = Instant::now() + patience;
        let mut told = Told::new();
        let failed = |error: io::Error| format!("the rendezvous at {address} does not answer as one: {error}");
        // The rendezvous closes a connection at once where strangers have all that it may have.
        let (stream, challenge) = loop {
            let connected = TcpStream::connect_timeout(&address, wire::SILENCE);
            match connected.and_then(|stream| challenged(&stream, until).map(|challenge| (stream, challenge))) {
                Ok(found) => break found,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(failed(error)),
                Err(error) if Instant::now() >= until => {
                    let seconds = patience.as_secs();
                    return Err(format!("nothing takes ranks at {address} for {seconds} s: {error}"));
                }
                Err(error) => {
                    if told.is_time() {
                        let ranks = mesh.ranks();
                        tell(&format!("rank {rank} of {ranks} waits for the rendezvous at {address}: {error}"));
                    }
                    thread::sleep(AGAIN);
                }
            }
        };
        greeted(&stream, (rank, &challenge), mesh, secret, (until, tell)).map_err(failed)??;
        let link = Link {
            stream,
            address,
            writing: Mutex::default(),
            ended: AtomicUsize::new(NONE),
            failed: AtomicUsize::new(NONE),
            host,
        };
        let link = Arc::new(link);
        let (send, answers) = channel();
        let listening = link.clone();
        let listen = move || {
            if let Err(error) = listening.listen(rank, &send) {
                tracing::debug!("connection to the rendezvous: {error}");
            }
            listening.note(listening.host.unwrap_or(rank));
            // Has writers end too.
            let _ = listening.stream.shutdown(Shutdown::Both);
        };
        let (alive, end) = channel::<()>();
        let beating = link.clone();
        let beat = move || {
            while end.recv_timeout(wire::BEAT) == Err(RecvTimeoutError::Timeout) {
                if beating.send(wire::ALIVE, &[]).is_err() {
                    return;
                }
            }
        };
        for (name, of) in [("hears ranks", Box::new(listen) as Box<dyn FnOnce() + Send>), ("is there", Box::new(beat))]
        {
            let begun = thread::Builder::new().name(name.into()).spawn(of);
            begun.map_err(|error| format!("there is no thread for its connection: {error}"))?;
        }
        Ok(Connection { rank, link, answers: Mutex::new(answers), _alive: alive })
    }

    /// As [`World::exchange`](super::world::World::exchange), along the axis at a place of the mesh.
    pub(super) fn exchange(&self, at: usize, called: &str, bytes: &[u8]) -> Given {
        // Taken by the order in which the threads of a rank come, which must be that of the other ranks.
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let content = Content::default().number(at).bytes(called.as_bytes()).bytes(bytes);
        // An answer may be there although the connection is lost, and says more.
        let _ = self.link.send(wire::EXCHANGE, &content.0);
        match answers.recv() {
            Ok(outcome) => outcome,
            Err(_) => Err(self.lost(called)),
        }
    }

    fn lost(&self, called: &str) -> RankError {
        let (rank, called) = (self.rank, called.to_owned());
        match self.link.host {
            Some(ended) if ended != rank => RankError::Ended { rank, called, ended },
            _ => {
                let reason = format!("the connection to the rendezvous at {} is lost", self.link.address);
                RankError::Lost { rank, called, reason }
            }
        }
    }

    /// Tells the others that a program of this rank failed.
    pub(super) fn fail(&self) {
        // Where it is lost, the others are told of that.
        let _ = self.link.send(wire::FAILED, &[]);
    }

    /// Tells the rendezvous that this rank computes from now on.
    pub(super) fn begun(&self) {
        let _ = self.link.send(wire::BEGUN, &[]);
    }

    /// A rank that has failed, if one was told.
    pub(super) fn failed(&self) -> Option<usize> {
        Some(self.link.failed.load(Ordering::SeqCst)).filter(|failed| *failed != NONE)
    }

    /// A rank that has ended or failed, if one was told; this one where it is cut off from the launcher.
    pub(super) fn ended(&self) -> Option<usize> {
        Some(self.link.ended.load(Ordering::SeqCst)).filter(|ended| *ended != NONE)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let _ = self.link.stream.shutdown(Shutdown::Both);
    }
}

/// The rendezvous' first words.
fn challenged(stream: &TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    wire::watched(stream)?;
    let (kind, challenge) = wire::receive(&mut Until(stream, until), wire::MOST_OF_GREETING)?;
    if kind != wire::CHALLENGE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(challenge)
}

/// Shows the rendezvous that this rank knows the secret, and waits for all ranks. The inner error is what the
/// rendezvous says.
fn greeted(
    stream: &TcpStream,
    (rank, challenge): (usize, &[u8]),
    mesh: &Mesh,
    secret: &Secret,
    (until, tell): (Instant, &dyn Fn(&str)),
) -> io::Result<Result<(), String>> {
    // The rendezvous says at the same time which ranks are missing.
    let mut from = Until(stream, until + wire::BEAT);
    let own = drawn()?;
    let said = Content::default().number(rank).bytes(VERSION.as_bytes()).bytes(mesh.to_string().as_bytes()).0;
    let proof = secret.proof("rank", &[challenge, &own, &said]);
    let hello = Content::default().bytes(proof.as_bytes()).bytes(&own).bytes(&said);
    wire::send(stream, wire::HELLO, &hello.0)?;
    let (kind, content) = loop {
        match wire::receive(&mut from, wire::MOST_OF_GREETING)? {
            (wire::WAITING, content) => tell(&String::from_utf8_lossy(&content)),
            other => break other,
        }
    };
    if kind == wire::REFUSED {
        return Ok(Err(String::from_utf8_lossy(&content).into_owned()));
    }
    let expected = secret.proof("rendezvous", &[&own]);
    if kind != wire::WELCOME || !<[u8; 32]>::try_from(&content[..]).is_ok_and(|proof| expected == proof) {
        return Ok(Err("the rendezvous does not know the run's secret".into()));
    }
    wire::watched(stream)?;
    Ok(Ok(()))
}
