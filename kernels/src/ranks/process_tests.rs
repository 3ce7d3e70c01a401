//! Ranks that are processes: here each is a connection of its own.

use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::Instant;

use super::greeting::VERSION;
use super::wire::{self, Content};
use super::*;

const SOON: Duration = Duration::from_secs(20);

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn listen(mesh: &Mesh, secret: &Secret, patience: Duration) -> Rendezvous {
    Rendezvous::listen(loopback(), "the launcher", mesh, secret, patience).unwrap()
}

fn open(
    rank: usize,
    mesh: &Mesh,
    at: (SocketAddr, Option<usize>),
    secret: &Secret,
    patience: Duration,
) -> Result<Connection, String> {
    Connection::open(rank, mesh, at, secret, patience, &|_| {})
}

/// What `f` gives on each rank of a mesh, each with a connection.
fn connected<T: Send>(text: &str, f: impl Fn(usize, Connection) -> T + Sync) -> Vec<T> {
    let (mesh, secret) = (text.parse::<Mesh>().unwrap(), Secret::draw().unwrap());
    let rendezvous = listen(&mesh, &secret, SOON);
    let (address, f) = (rendezvous.address(), &f);
    thread::scope(|scope| {
        let begin = |rank| {
            let (mesh, secret) = (&mesh, &secret);
            scope.spawn(move || f(rank, open(rank, mesh, (address, None), secret, SOON).unwrap()))
        };
        let ranks: Vec<_> = (0..mesh.ranks()).map(begin).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn processes_get_what_their_group_gave() {
    let large = vec![7u8; 3 << 20];
    let got = connected("data=2 tensor=2", |rank, connection| {
        let mut all = Vec::new();
        for round in 0..20u8 {
            for at in [1, 0] {
                let given = connection.exchange(at, "test", &[rank as u8, round]).unwrap();
                assert!(given.iter().all(|bytes| bytes[1] == round));
                all.push(given.iter().map(|bytes| bytes[0]).collect::<Vec<u8>>());
            }
        }
        assert!(connection.exchange(0, "large", &large).unwrap().iter().all(|bytes| **bytes == large));
        all
    });
    for (rank, all) in got.into_iter().enumerate() {
        let rank = rank as u8;
        let (tensor, data) = (vec![rank / 2 * 2, rank / 2 * 2 + 1], vec![rank % 2, rank % 2 + 2]);
        assert!(all.chunks(2).all(|pair| pair == [tensor.clone(), data.clone()]), "{rank}: {all:?}");
    }
}

#[test]
fn processes_that_do_not_fit_together_get_the_errors_of_threads() {
    let outcomes = connected("data=2", |rank, connection| connection.exchange(0, ["this", "that"][rank], &[]));
    let differs = RankError::Differs { rank: 0, called: "this".into(), other: 1, other_called: "that".into() };
    assert_eq!(outcomes[0], Err(differs));
    let outcomes = connected("data=2 tensor=2", |rank, connection| {
        connection.exchange(usize::from([0, 3].contains(&rank)), "all_reduce", &[]).unwrap_err()
    });
    assert!(outcomes.iter().all(|error| matches!(error, RankError::Stuck { .. })), "{outcomes:?}");
    let outcomes = connected("data=2", |rank, connection| {
        if rank == 1 {
            connection.fail();
        }
        connection.exchange(0, "step", &[])
    });
    assert_eq!(outcomes[0], Err(RankError::Ended { rank: 0, called: "step".into(), ended: 1 }));
    assert_eq!(outcomes[1], Err(RankError::Failed { rank: 1, called: "step".into() }));
}

/// Its connection is closed by the system, as where the process is killed, while others wait for it or for it and
/// others.
#[test]
fn a_process_that_is_gone_is_noticed_by_all() {
    let gone = Barrier::new(3);
    let begun = Instant::now();
    let outcomes = connected("data=3", |rank, connection| {
        connection.exchange(0, "first", &[]).unwrap();
        if rank == 2 {
            drop(connection);
            gone.wait();
            return None;
        }
        let outcome = connection.exchange(0, "second", &[]);
        // All are told, in their own time.
        while connection.ended().is_none() && begun.elapsed() < SOON {
            thread::sleep(Duration::from_millis(1));
        }
        gone.wait();
        Some((outcome, connection.ended()))
    });
    assert!(begun.elapsed() < Duration::from_secs(10));
    for (rank, outcome) in outcomes.into_iter().enumerate().take(2) {
        let (outcome, ended) = outcome.unwrap();
        assert_eq!(outcome, Err(RankError::Ended { rank, called: "second".into(), ended: 2 }));
        assert_eq!(ended, Some(2));
    }
}

#[test]
fn a_rendezvous_that_is_gone_is_noticed() {
    let (mesh, secret) = ("data=1".parse::<Mesh>().unwrap(), Secret::draw().unwrap());
    for (host, expected) in [(None, "is lost"), (Some(3), "rank 3 has ended or failed")] {
        let rendezvous = listen(&mesh, &secret, SOON);
        let connection = open(0, &mesh, (rendezvous.address(), host), &secret, SOON).unwrap();
        drop(rendezvous);
        let error = connection.exchange(0, "step", &[]).unwrap_err().to_string();
        assert!(error.contains("rank 0") && error.contains("step") && error.contains(expected), "{error}");
        assert_eq!(connection.ended(), Some(host.unwrap_or(0)));
    }
}

/// As where its host is lost: nothing closes the connection.
#[test]
fn a_side_that_says_nothing_twice_is_gone() {
    let listener = std::net::TcpListener::bind(loopback()).unwrap();
    let mut speaking = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let heard = listener.accept().unwrap().0;
    let silence = Duration::from_millis(200);
    heard.set_read_timeout(Some(silence)).unwrap();
    // Within the second time of waiting.
    let late = thread::spawn(move || {
        thread::sleep(silence * 3 / 2);
        std::io::Write::write_all(&mut speaking, &[7]).unwrap();
        speaking
    });
    let read = || std::io::Read::read(&mut wire::Patient(&heard), &mut [0]);
    assert_eq!(read().unwrap(), 1);
    let _speaking = late.join().unwrap();
    let (begun, error) = (Instant::now(), read().unwrap_err());
    assert!(begun.elapsed() >= silence * 2, "{:?} {error}", begun.elapsed());
}

#[test]
fn who_does_not_know_the_secret_is_refused_alone() {
    let (mesh, secret) = ("data=2".parse::<Mesh>().unwrap(), Secret::draw().unwrap());
    let rendezvous = listen(&mesh, &secret, SOON);
    let address = rendezvous.address();
    // One says nothing, one too much, one another secret; the run begins all the same.
    let silent = TcpStream::connect(address).unwrap();
    let loud = TcpStream::connect(address).unwrap();
    wire::send(&loud, wire::HELLO, &vec![0; 1 << 17]).unwrap();
    let other = Secret::draw().unwrap();
    let error = open(0, &mesh, (address, None), &other, SOON).unwrap_err();
    assert!(error.contains("its secret is not that of the run"), "{error}");
    thread::scope(|scope| {
        for rank in 0..2 {
            let (mesh, secret) = (&mesh, &secret);
            scope.spawn(move || {
                let connection = open(rank, mesh, (address, None), secret, SOON).unwrap();
                assert_eq!(connection.exchange(0, "step", &[]).unwrap().len(), 2);
            });
        }
    });
    drop((silent, loud));
}

/// More silent strangers than the rendezvous speaks with keep ranks waiting, and no longer than they stay.
#[test]
fn ranks_come_again_where_strangers_have_all_connections() {
    let (mesh, secret) = ("data=2".parse::<Mesh>().unwrap(), Secret::draw().unwrap());
    let rendezvous = listen(&mesh, &secret, SOON);
    let address = rendezvous.address();
    let strangers: Vec<TcpStream> = (0..70).map(|_| TcpStream::connect(address).unwrap()).collect();
    // All of them were taken or closed.
    thread::sleep(Duration::from_millis(200));
    thread::scope(|scope| {
        for rank in 0..2 {
            let (mesh, secret) = (&mesh, &secret);
            scope.spawn(move || open(rank, mesh, (address, None), secret, SOON).unwrap());
        }
        thread::sleep(Duration::from_millis(200));
        drop(strangers);
    });
}

#[test]
fn a_second_process_of_a_rank_does_not_end_a_run_that_has_begun() {
    let (mesh, secret) = ("data=2".parse::<Mesh>().unwrap(), Secret::draw().unwrap());
    let rendezvous = listen(&mesh, &secret, SOON);
    let address = rendezvous.address();
    let late = TcpStream::connect(address).unwrap();
    let (_, challenge) = wire::receive(&mut wire::Patient(&late), 100).unwrap();
    let (begun, refused) = (Barrier::new(3), Barrier::new(3));
    thread::scope(|scope| {
        for rank in 0..2 {
            let (mesh, secret, begun, refused) = (&mesh, &secret, &begun, &refused);
            scope.spawn(move || {
                let connection = open(rank, mesh, (address, None), secret, SOON).unwrap();
                begun.wait();
                refused.wait();
                assert_eq!(connection.exchange(0, "step", &[]).unwrap().len(), 2);
            });
        }
        begun.wait();
        let said = Content::default().number(1).bytes(VERSION.as_bytes()).bytes(b"data=2").0;
        let proof = secret.proof("rank", &[&challenge, &[0; 32], &said]);
        let hello = Content::default().bytes(proof.as_bytes()).bytes(&[0; 32]).bytes(&said);
        wire::send(&late, wire::HELLO, &hello.0).unwrap();
        let answer = wire::receive(&mut wire::Patient(&late), 1000);
        refused.wait();
        let (kind, why) = answer.unwrap();
        assert_eq!((kind, &*why), (wire::REFUSED, &b"the run has begun: all of its ranks are there"[..]));
    });
}

#[test]
fn ranks_that_disagree_do_not_begin() {
    let secret = Secret::draw().unwrap();
    let mesh_of = |text: &str| text.parse::<Mesh>().unwrap();
    let refused = |wrong: usize, mesh: &str| {
        let rendezvous = listen(&mesh_of("data=4"), &secret, SOON);
        let (address, secret) = (rendezvous.address(), &secret);
        let others = mesh_of("data=4");
        thread::scope(|scope| {
            let right = scope.spawn(|| open(0, &others, (address, None), secret, SOON).unwrap_err());
            let said = open(wrong, &mesh_of(mesh), (address, None), secret, SOON).unwrap_err();
            (said, right.join().unwrap())
        })
    };
    for (wrong, mesh, expected) in [
        (1, "data=2", "rank 1 is one of 2 ranks, the launcher expects 4"),
        (1, "data=2 tensor=2", "rank 1 has the mesh 'data=2 tensor=2', the launcher 'data=4'"),
        (0, "data=4", "two processes say that they are rank 0"),
    ] {
        let (said, other) = refused(wrong, mesh);
        assert_eq!((said.as_str(), other.as_str()), (expected, expected));
    }
    let rendezvous = listen(&mesh_of("data=3"), &secret, Duration::from_millis(200));
    let error = open(1, &mesh_of("data=3"), (rendezvous.address(), None), &secret, SOON).unwrap_err();
    assert_eq!(error, "of 3 ranks, 0, 2 did not join within 0 s");
}

#[test]
fn ranks_of_another_version_do_not_begin() {
    let (mesh, secret) = ("data=2".parse::<Mesh>().unwrap(), Secret::draw().unwrap());
    let rendezvous = listen(&mesh, &secret, SOON);
    let stream = TcpStream::connect(rendezvous.address()).unwrap();
    let (_, challenge) = wire::receive(&mut wire::Patient(&stream), 100).unwrap();
    let said = Content::default().number(1).bytes(b"0.0.1").bytes(b"data=2").0;
    let proof = secret.proof("rank", &[&challenge, &[0; 32], &said]);
    let hello = Content::default().bytes(proof.as_bytes()).bytes(&[0; 32]).bytes(&said);
    wire::send(&stream, wire::HELLO, &hello.0).unwrap();
    let (kind, why) = wire::receive(&mut wire::Patient(&stream), 1000).unwrap();
    assert_eq!(kind, wire::REFUSED);
    let expected = format!("rank 1 runs Fulgurite 0.0.1, the launcher {VERSION}");
    assert_eq!(String::from_utf8_lossy(&why), expected);
}

/// One of those that have come says which are missing; one that finds no rendezvous says that.
#[test]
fn ranks_that_wait_for_each_other_say_so() {
    let (mesh, secret) = ("data=4".parse::<Mesh>().unwrap(), Secret::draw().unwrap());
    let rendezvous = listen(&mesh, &secret, Duration::from_secs(6));
    let nobody = std::net::TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let told = |rank: usize, address: SocketAddr| {
        let lines = std::sync::Mutex::new(Vec::new());
        let tell = |line: &str| lines.lock().unwrap().push(line.to_owned());
        let error = Connection::open(rank, &mesh, (address, None), &secret, Duration::from_secs(6), &tell).unwrap_err();
        (lines.into_inner().unwrap(), error)
    };
    let address = rendezvous.address();
    thread::scope(|scope| {
        let [one, three, lost] = [(1, address), (3, address), (2, nobody)].map(|(rank, address)| {
            let told = &told;
            scope.spawn(move || told(rank, address))
        });
        let (lines, error) = one.join().unwrap();
        assert_eq!(lines, ["2 of 4 ranks have come, missing: 0, 2"]);
        assert_eq!(error, "of 4 ranks, 0, 2 did not join within 6 s");
        assert!(three.join().unwrap().0.is_empty());
        let (lines, _) = lost.join().unwrap();
        assert!(lines.len() == 1 && lines[0].starts_with("rank 2 of 4 waits for the rendezvous at "), "{lines:?}");
    });
}

/// A rank that fails is told from one that ends.
#[test]
fn a_failure_is_told_from_an_end() {
    let told = connected("data=2", |rank, connection| {
        if rank == 1 {
            connection.fail();
        }
        // It comes back when the others know.
        let _ = connection.exchange(0, "step", &[]);
        let until = Instant::now() + SOON;
        while rank == 0 && connection.ended().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        (connection.ended(), connection.failed())
    });
    assert_eq!(told[0], (Some(1), Some(1)));
    let told = connected("data=2", |rank, connection| {
        if rank == 1 {
            return (None, None);
        }
        assert!(connection.exchange(0, "step", &[]).is_err());
        let until = Instant::now() + SOON;
        while connection.ended().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        (connection.ended(), connection.failed())
    });
    assert_eq!(told[0], (Some(1), None));
    let of_threads = simulate(&"data=2".parse().unwrap(), |rank| {
        if rank == 1 {
            fail();
            return (None, None);
        }
        let _ = exchange(&"data=2".parse().unwrap(), "step", &[]);
        (ended(), failed())
    });
    assert_eq!(of_threads.unwrap()[0], (Some(1), Some(1)));
    let of_threads = simulate(&"data=2".parse().unwrap(), |rank| {
        if rank == 0 {
            let _ = exchange(&"data=2".parse().unwrap(), "step", &[]);
        }
        (ended(), failed())
    });
    assert_eq!(of_threads.unwrap()[0], (Some(1), None));
}

/// A launcher asks whether a run has begun.
#[test]
fn a_rank_says_that_it_computes() {
    let (mesh, secret) = ("data=1".parse::<Mesh>().unwrap(), Secret::draw().unwrap());
    let rendezvous = listen(&mesh, &secret, SOON);
    let connection = open(0, &mesh, (rendezvous.address(), None), &secret, SOON).unwrap();
    connection.exchange(0, "x", &[]).unwrap();
    assert!(!rendezvous.has_begun());
    connection.begun();
    connection.exchange(0, "x", &[]).unwrap();
    assert!(rendezvous.has_begun());
}

/// The only test that makes this whole process a rank: one of one, so that tests beside it see no other mesh of more.
#[test]
fn every_thread_of_a_process_that_joined_is_its_rank() {
    let mesh: Mesh = "alone=1".parse().unwrap();
    let free = std::net::TcpListener::bind(loopback()).unwrap().local_addr().unwrap();
    let secret = Secret::draw().unwrap();
    let member = Member { rank: 0, local_rank: 0, mesh: mesh.clone(), address: free, served_by_rank_0: true, secret };
    let joined = join(&member, SOON).unwrap();
    assert!(matches!(join(&member, SOON), Err(RankError::Refused { rank: 0, .. })));
    let elsewhere = thread::spawn(|| (super::mesh(), run_number(), exchange(&"alone=1".parse().unwrap(), "x", &[5])));
    let (of_thread, run, given) = elsewhere.join().unwrap();
    assert_eq!((of_thread, given.unwrap()[0].as_slice()), (mesh, &[5][..]));
    assert!(run > 0);
    let simulated = simulate(&"data=2".parse().unwrap(), |_| super::mesh().to_string()).unwrap();
    assert_eq!(simulated, ["data=2", "data=2"]);
    let begun = Instant::now();
    drop(joined);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(super::mesh(), Mesh::ONE);
}
