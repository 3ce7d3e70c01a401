//! What launchers say in a process' environment: which rank it is, of how many, and where the ranks meet.

use std::net::{SocketAddr, ToSocketAddrs};

use super::greeting::Secret;
use crate::mesh::Mesh;

/// The variable with the secret of a run, which all its ranks have.
pub const SECRET: &str = "FULGURITE_SECRET";
/// The variable with the mesh of a run: `data=2 tensor=2`.
pub const MESH: &str = "FULGURITE_MESH";
/// The variable with the address of a rendezvous that a launcher serves: `127.0.0.1:29500`.
pub const RENDEZVOUS: &str = "FULGURITE_RENDEZVOUS";
/// The variable with the name of a run, drawn by a launcher that starts it again where a rank dies: a checkpoint that
/// notes it is the run's own.
pub const RUN: &str = "FULGURITE_RUN";

/// The variables of a launcher: rank, number of ranks, rank within the host.
type Names = [&'static str; 3];
/// torchrun's, and those of `fulgurite launch`.
pub const TORCHRUN: Names = ["RANK", "WORLD_SIZE", "LOCAL_RANK"];
/// Open MPI's.
pub const OPEN_MPI: Names = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"];
/// Slurm's.
pub const SLURM: Names = ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"];
/// The variables with the host and the port where rank 0 serves the rendezvous.
pub const MASTER: [&str; 2] = ["MASTER_ADDR", "MASTER_PORT"];

/// What a process needs to know to join its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub rank: usize,
    /// Its number among the ranks of its host: that of its device.
    pub local_rank: usize,
    /// The run's mesh.
    pub mesh: Mesh,
    /// Where the ranks meet.
    pub address: SocketAddr,
    /// Whether rank 0 serves the rendezvous there, and no launcher does.
    pub served_by_rank_0: bool,
    /// The run's secret.
    pub secret: Secret,
}

/// What launchers say of a process. Of several launchers the innermost counts: torchrun, then Open MPI, then Slurm.
struct Place {
    names: Names,
    rank: usize,
    ranks: usize,
    local_rank: usize,
}

fn number(name: &str, text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("the variable {name} is '{text}', expected a number of 0 or more"))
}

/// The place by the variables of one launcher, if it has set any.
fn place(names: Names, get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Place>, String> {
    let [rank, ranks, local] = names;
    let values = names.map(|name| get(name).filter(|text| !text.is_empty()));
    let (rank_text, ranks_text) = match &values {
        [None, None, _] => return Ok(None),
        // An allocation's shell is no rank of it.
        [None, Some(_), _] if names == SLURM => return Ok(None),
        [Some(rank_text), Some(ranks_text), _] => (rank_text, ranks_text),
        [Some(_), None, _] => return Err(format!("the variable {rank} is set, and {ranks} is not: set both or none")),
        [None, Some(_), _] => return Err(format!("the variable {ranks} is set, and {rank} is not: set both or none")),
    };
    let (own, count) = (number(rank, rank_text)?, number(ranks, ranks_text)?);
    if own >= count {
        return Err(format!("the variable {rank} is {own}, expected less than {ranks}, which is {count}"));
    }
    let local_rank = match &values[2] {
        Some(text) => number(local, text)?,
        None if count == 1 => 0,
        None => return Err(format!("the variables {rank} and {ranks} are set, and {local} is not: set all or none")),
    };
    if local_rank > own {
        return Err(format!("the variable {local} is {local_rank}, expected at most {rank}, which is {own}"));
    }
    Ok(Some(Place { names, rank: own, ranks: count, local_rank }))
}

/// Which rank this process is by its environment; `None` if no launcher has started it as one of several ranks.
///
/// # Errors
/// Variables that contradict each other, or of which some are missing, by their names.
pub fn environment() -> Result<Option<Member>, String> {
    member(&|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
}

/// As [`environment`], of variables that `get` gives.
pub fn member(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Member>, String> {
    let get = |name: &str| get(name).filter(|text| !text.is_empty());
    let (torchrun, open_mpi) = (place(TORCHRUN, &get)?, place(OPEN_MPI, &get)?);
    if let (Some(one), Some(other)) = (&torchrun, &open_mpi)
        && one.ranks == other.ranks
        && one.rank != other.rank
    {
        let ([one_name, ..], [other_name, ..]) = (one.names, other.names);
        return Err(format!("the variable {one_name} is {}, {other_name} is {}: unset one", one.rank, other.rank));
    }
    let place = match torchrun.or(open_mpi) {
        Some(place) => Some(place),
        None => place(SLURM, &get)?,
    };
    let mesh = get(MESH).map(|text| text.parse::<Mesh>().map_err(|error| format!("the variable {MESH}: {error}")));
    let mesh = mesh.transpose()?;
    let Some(Place { names: [rank_name, ranks_name, _], rank, ranks, local_rank }) = place else {
        return match mesh.filter(|mesh| mesh.ranks() > 1) {
            Some(mesh) => Err(format!("the variable {MESH} is '{mesh}', and RANK and WORLD_SIZE are not set")),
            None => Ok(None),
        };
    };
    let mesh = match mesh {
        Some(mesh) if mesh.ranks() != ranks => {
            let expected = mesh.ranks();
            return Err(format!("the variable {MESH} is '{mesh}', {expected} ranks, and {ranks_name} is {ranks}"));
        }
        Some(mesh) => mesh,
        None if ranks == 1 => return Ok(None),
        None => format!("data={ranks}").parse()?,
    };
    let Some(secret) = get(SECRET) else {
        return Err(format!(
            "the variables {rank_name} and {ranks_name} say that this is rank {rank} of {ranks}, and {SECRET} is not \
             set: set it to the same random text for all ranks, or unset {rank_name} to run alone"
        ));
    };
    let secret = Secret::new(&secret).map_err(|error| format!("the variable {SECRET} {error}"))?;
    let (address, served_by_rank_0) = match get(RENDEZVOUS) {
        Some(address) => (resolved(RENDEZVOUS, &address)?, false),
        None => {
            let [host_name, port_name] = MASTER;
            let missing = |name: &str| format!("the variable {name} is not set: where do the {ranks} ranks meet?");
            let host = get(host_name).ok_or_else(|| missing(host_name))?;
            let port = get(port_name).ok_or_else(|| missing(port_name))?;
            // An address of IPv6 has colons itself.
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            (resolved(&MASTER.join(" and "), &format!("{host}:{port}"))?, true)
        }
    };
    Ok(Some(Member { rank, local_rank, mesh, address, served_by_rank_0, secret }))
}

fn resolved(names: &str, address: &str) -> Result<SocketAddr, String> {
    let wrong = |error: String| format!("{names}: '{address}' is no address of a host and a port: {error}");
    let mut found = address.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("no host has this name".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: &str = "a secret of many characters";

    fn of(variables: &[(&str, &str)]) -> Result<Option<Member>, String> {
        member(&|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn launchers_say_which_rank_a_process_is() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&[("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0")]), Ok(None));
        assert_eq!(of(&[("SLURM_NTASKS", "4")]), Ok(None));
        let meet = [("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"), (SECRET, FEW)];
        for names in [TORCHRUN, OPEN_MPI, SLURM] {
            let variables = [(names[0], "3"), (names[1], "4"), (names[2], "1")];
            let member = of(&[&variables[..], &meet].concat()).unwrap().unwrap();
            assert_eq!((member.rank, member.local_rank, member.served_by_rank_0), (3, 1, true));
            assert_eq!((member.mesh.to_string(), member.address.port()), ("data=4".to_owned(), 29500));
        }
        let own = [("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("MASTER_PORT", "1"), (SECRET, FEW)];
        let address =
            |host: &'static str| of(&[&own[..], &[("MASTER_ADDR", host)]].concat()).map(|of| of.unwrap().address);
        assert_eq!(address("::1").unwrap().to_string(), "[::1]:1");
        assert!(address("no host").unwrap_err().contains("MASTER_ADDR and MASTER_PORT: 'no host:1' is no address"));
        let ours = [("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), (MESH, "data=2 tensor=2")];
        let place = [(SECRET, FEW), (RENDEZVOUS, "127.0.0.1:1234"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "9")];
        let member = of(&[&ours[..], &place].concat()).unwrap().unwrap();
        assert_eq!((member.rank, member.mesh.axes().len(), member.served_by_rank_0), (1, 2, false));
    }

    #[test]
    fn variables_that_do_not_fit_together_are_named() {
        let ranks = |rank, ranks| [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", "0")];
        let mpi = [(OPEN_MPI[0], "2"), (OPEN_MPI[1], "4"), (OPEN_MPI[2], "0"), (SECRET, FEW)];
        for (variables, expected) in [
            (&[("RANK", "1")][..], &["RANK is set", "WORLD_SIZE is not"][..]),
            (&[("WORLD_SIZE", "2")], &["WORLD_SIZE is set", "RANK is not"]),
            (&[("RANK", "1"), ("WORLD_SIZE", "2")], &["RANK", "WORLD_SIZE", "LOCAL_RANK is not"]),
            (&ranks("x", "2"), &["RANK is 'x'"]),
            (&ranks("2", "2"), &["RANK is 2", "WORLD_SIZE, which is 2"]),
            (&ranks("1", "2"), &["RANK and WORLD_SIZE", "FULGURITE_SECRET is not set"]),
            (&[&ranks("1", "2")[..], &[(SECRET, "short")]].concat(), &["FULGURITE_SECRET has 5 characters"]),
            (&[&ranks("1", "2")[..], &[(SECRET, FEW)]].concat(), &["MASTER_ADDR is not set"]),
            (&[&ranks("1", "2")[..], &[(MESH, "data=4")]].concat(), &["FULGURITE_MESH is 'data=4'", "WORLD_SIZE is 2"]),
            (&[&ranks("1", "4")[..], &mpi].concat(), &["RANK is 1", "OMPI_COMM_WORLD_RANK is 2"]),
            (&[(MESH, "data=4")], &["FULGURITE_MESH is 'data=4'", "RANK"]),
        ] {
            let error = of(variables).unwrap_err();
            assert!(expected.iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
