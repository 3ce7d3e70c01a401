//! The rendezvous of the processes of a run: takes those that know the run's secret, and has them exchange as the
//! threads of a simulation do, in a [`World`].

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::greeting::{DRAWN, Hello, Secret, VERSION, drawn};
use super::told::Told;
use super::wire::{self, Content, Parts, Patient, Until};
use super::world::World;
use crate::mesh::Mesh;

/// How long a connection has to prove that it knows the secret.
const GREETING: Duration = Duration::from_secs(10);
/// The most connections that are being greeted at a time, beside one for each rank.
const MOST_STRANGERS: usize = 64;
/// How often the rendezvous looks for new connections.
const LOOK: Duration = Duration::from_millis(5);
/// How long a rendezvous that ends waits for the ranks that are still there.
const MOST_AFTER: Duration = Duration::from_secs(30);

/// See the module. It ends when it is dropped.
#[derive(Debug)]
pub struct Rendezvous {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The side that serves: `rank 0` or `the launcher`.
    host: String,
    mesh: Mesh,
    secret: Secret,
    world: World,
    gathered: Mutex<Gathered>,
    greeted: AtomicUsize,
    ended: AtomicBool,
    /// Ranks that have joined and are still there.
    present: AtomicUsize,
    /// The rank that ended or failed before all others.
    first: OnceLock<usize>,
    /// Whether a rank has said that it computes.
    begun: AtomicBool,
}

/// The ranks that came.
#[derive(Debug, Default)]
struct Gathered {
    ranks: BTreeMap<usize, Arc<Member>>,
    /// Why the run takes no rank, or none any more.
    refused: Option<String>,
}

/// A rank that came.
#[derive(Debug)]
struct Member {
    rank: usize,
    stream: TcpStream,
    /// What it drew, for the welcome.
    drawn: [u8; DRAWN],
    writing: Mutex<()>,
}

impl Member {
    fn send(&self, kind: u8, content: &[u8]) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(&self.stream, kind, content)
    }
}

impl Rendezvous {
    /// Listens at `address` for the ranks of a mesh, for so long at most. `host` is the side that serves, in the words
    /// of an error.
    ///
    /// # Errors
    /// If nothing can listen there.
    pub fn listen(
        address: SocketAddr,
        host: &str,
        mesh: &Mesh,
        secret: &Secret,
        patience: Duration,
    ) -> io::Result<Rendezvous> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            host: host.to_owned(),
            mesh: mesh.clone(),
            secret: secret.clone(),
            world: World::new(mesh.clone()),
            gathered: Mutex::default(),
            greeted: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            present: AtomicUsize::new(0),
            first: OnceLock::new(),
            begun: AtomicBool::new(false),
        });
        let serving = shared.clone();
        thread::Builder::new().name("rendezvous".into()).spawn(move || serving.gather(&listener, patience))?;
        Ok(Rendezvous { address, shared })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The rank that ended or failed before all others, if one has.
    pub fn first_ended(&self) -> Option<usize> {
        self.shared.first.get().copied()
    }

    /// Whether a rank has said that it computes.
    pub fn has_begun(&self) -> bool {
        self.shared.begun.load(Ordering::SeqCst)
    }

    /// Waits until all ranks that joined have gone, but not for ever: they may still read what they were given.
    pub(super) fn wait(&self) {
        let until = Instant::now() + MOST_AFTER;
        while self.shared.present.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        for member in self.shared.gathered().ranks.values() {
            // One that is gone needs no end.
            let _ = member.stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes connections until all ranks are there.
    fn gather(self: Arc<Shared>, listener: &TcpListener, patience: Duration) {
        let until = Instant::now() + patience;
        let ranks = self.mesh.ranks();
        let mut told = Told::new();
        while !self.ended.load(Ordering::SeqCst) {
            if Instant::now() >= until {
                let seconds = patience.as_secs();
                return self.refuse(&format!("of {ranks} ranks, {} did not join within {seconds} s", self.missing()));
            }
            if told.is_time() {
                let (count, first) = {
                    let gathered = self.gathered();
                    (gathered.ranks.len(), gathered.ranks.values().next().cloned())
                };
                if let Some(first) = first {
                    let waits = format!("{count} of {ranks} ranks have come, missing: {}", self.missing());
                    // One that is gone is noticed where it is read from.
                    let _ = first.send(wire::WAITING, waits.as_bytes());
                }
            }
            match listener.accept() {
                Ok((stream, _)) if self.greeted.load(Ordering::SeqCst) < ranks + MOST_STRANGERS => {
                    self.greeted.fetch_add(1, Ordering::SeqCst);
                    let shared = self.clone();
                    let greet = move || {
                        // A stranger that says nothing, or something else, is left alone.
                        if let Err(error) = shared.greet(stream) {
                            tracing::debug!("rendezvous: {error}");
                        }
                        shared.greeted.fetch_sub(1, Ordering::SeqCst);
                    };
                    // Where there is no thread, the connection is closed, and its rank comes again.
                    if thread::Builder::new().name("greeting a rank".into()).spawn(greet).is_err() {
                        self.greeted.fetch_sub(1, Ordering::SeqCst);
                    }
                }
                Ok(_) => {}
                Err(_) => thread::sleep(LOOK),
            }
            let mut gathered = self.gathered();
            if gathered.ranks.len() == ranks {
                // One that is still being greeted is not to end the run.
                gathered.refused = Some("the run has begun: all of its ranks are there".into());
                let members: Vec<Arc<Member>> = gathered.ranks.values().cloned().collect();
                drop(gathered);
                return self.begin(members);
            }
        }
    }

    /// The ranks that have not come.
    fn missing(&self) -> String {
        let gathered = self.gathered();
        let missing = (0..self.mesh.ranks()).filter(|rank| !gathered.ranks.contains_key(rank));
        missing.map(|rank| rank.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Ends the run before it begins: all ranks that came are told why, and so are those that come.
    fn refuse(&self, why: &str) {
        let mut gathered = self.gathered();
        gathered.refused.get_or_insert_with(|| why.to_owned());
        for member in std::mem::take(&mut gathered.ranks).into_values() {
            let _ = member.send(wire::REFUSED, why.as_bytes());
        }
    }

    /// Finds out which rank a connection is.
    fn greet(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        wire::watched(&stream)?;
        let challenge = drawn()?;
        wire::send(&stream, wire::CHALLENGE, &challenge)?;
        let (kind, content) = wire::receive(&mut Until(&stream, Instant::now() + GREETING), wire::MOST_OF_GREETING)?;
        wire::watched(&stream)?;
        let mut parts = Parts(&content);
        let (proof, own, said) = (parts.bytes()?, parts.bytes()?, parts.bytes()?);
        let expected = self.secret.proof("rank", &[&challenge, own, said]);
        // Hashes are compared in constant time.
        let known = <[u8; 32]>::try_from(proof).is_ok_and(|proof| expected == proof);
        if kind != wire::HELLO || !known {
            return wire::send(&stream, wire::REFUSED, b"its secret is not that of the run (FULGURITE_SECRET)");
        }
        let mut said = Parts(said);
        let hello = Hello { rank: said.number()?, version: said.text()?, mesh: said.text()? };
        let drawn = own.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let rank = hello.rank;
        let difference = self.difference(&hello);
        let mut gathered = self.gathered();
        if let Some(why) = &gathered.refused {
            return wire::send(&stream, wire::REFUSED, why.as_bytes());
        }
        let taken = gathered.ranks.contains_key(&rank).then(|| format!("two processes say that they are rank {rank}"));
        if let Some(why) = difference.or(taken) {
            drop(gathered);
            self.refuse(&why);
            return wire::send(&stream, wire::REFUSED, why.as_bytes());
        }
        gathered.ranks.insert(rank, Arc::new(Member { rank, stream, drawn, writing: Mutex::default() }));
        Ok(())
    }

    /// What a rank has otherwise than the side that serves.
    fn difference(&self, hello: &Hello) -> Option<String> {
        let Hello { rank, version, mesh } = hello;
        let (own, host) = (self.mesh.to_string(), &self.host);
        let count = |mesh: &str| mesh.parse::<Mesh>().map_or(0, |mesh| mesh.ranks());
        if version != VERSION {
            return Some(format!("rank {rank} runs Fulgurite {version}, {host} {VERSION}"));
        }
        if count(mesh) != self.mesh.ranks() {
            let ranks = self.mesh.ranks();
            return Some(format!("rank {rank} is one of {} ranks, {host} expects {ranks}", count(mesh)));
        }
        if *mesh != own {
            return Some(format!("rank {rank} has the mesh '{mesh}', {host} '{own}'"));
        }
        (*rank >= self.mesh.ranks()).then(|| format!("rank {rank} is not one of {}", self.mesh.ranks()))
    }

    /// Welcomes the ranks, and has them exchange from then on.
    fn begin(self: Arc<Shared>, members: Vec<Arc<Member>>) {
        self.present.store(members.len(), Ordering::SeqCst);
        // All of them before one can end, which the others are told. Of one that is gone its thread hears.
        for member in &members {
            let proof = self.secret.proof("rendezvous", &[&member.drawn]);
            let _ = member.send(wire::WELCOME, proof.as_bytes());
        }
        for member in members {
            let (send, asked) = channel();
            let (shared, listening) = (self.clone(), member.clone());
            let listen = move || {
                if let Err(error) = shared.listen(&listening, send) {
                    tracing::debug!(rank = listening.rank, "rendezvous: {error}");
                }
                shared.end(listening.rank, false);
                // A thread that still writes to it is not to wait.
                let _ = listening.stream.shutdown(Shutdown::Both);
                shared.present.fetch_sub(1, Ordering::SeqCst);
            };
            let shared = self.clone();
            let (rank, serving) = (member.rank, member.clone());
            let serve = move || shared.serve(&serving, &asked);
            let named = |name: &str| thread::Builder::new().name(format!("{name} rank {rank}"));
            if named("answers").spawn(serve).is_err() || named("hears").spawn(listen).is_err() {
                self.end(rank, false);
                let _ = member.stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Takes what a rank says, until it is gone.
    fn listen(&self, member: &Member, asked: Sender<Vec<u8>>) -> io::Result<()> {
        loop {
            match wire::receive(&mut Patient(&member.stream), wire::MOST)? {
                (wire::EXCHANGE, content) => {
                    // The other side has said why it ended.
                    let _ = asked.send(content);
                }
                (wire::FAILED, _) => self.end(member.rank, true),
                (wire::BEGUN, _) => self.begun.store(true, Ordering::SeqCst),
                (wire::ALIVE, _) => member.send(wire::ALIVE, &[])?,
                (kind, _) => return Err(io::Error::other(format!("a message of kind {kind}"))),
            }
        }
    }

    /// Has a rank exchange, and tells it what it got.
    fn serve(&self, member: &Member, asked: &Receiver<Vec<u8>>) {
        for content in asked {
            let outcome = || -> io::Result<(u8, Vec<u8>)> {
                let mut parts = Parts(&content);
                let (at, called, bytes) = (parts.number()?, parts.text()?, parts.bytes()?.to_vec());
                if at >= self.mesh.axes().len() {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let group = self.mesh.group(member.rank, at);
                Ok(wire::answer(&self.world.exchange(member.rank, (at, group), &called, Arc::new(bytes))))
            };
            let sent = outcome().and_then(|(kind, content)| member.send(kind, &content));
            if sent.is_err() {
                self.end(member.rank, false);
                let _ = member.stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    /// A rank has ended or failed: no other waits for it, and all are told.
    fn end(&self, rank: usize, failed: bool) {
        // Before others can end for it.
        self.first.get_or_init(|| rank);
        let new = if failed { self.world.fail(rank) } else { self.world.end(rank) };
        if !new {
            return;
        }
        let members: Vec<Arc<Member>> = self.gathered().ranks.values().cloned().collect();
        for member in members.iter().filter(|member| member.rank != rank) {
            // One that is gone is noticed where it is read from.
            let _ = member.send(wire::ENDED, &Content::default().number(rank).number(usize::from(failed)).0);
        }
    }
}
