//! Why ranks could not exchange anything.

use crate::buffer::OutOfMemory;
use crate::mesh::Mesh;

/// See the module. Calls are told as `all_reduce along data=2 of f32[3]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// The axis is not one of the mesh that runs.
    #[error(
        "the program has the axis {axis}, and runs on {}; start as many ranks as it is compiled for",
        if mesh.axes().is_empty() { "one rank".to_owned() } else { format!("the mesh '{mesh}'") }
    )]
    OtherMesh {
        /// The axis of the program.
        axis: String,
        /// The mesh that runs.
        mesh: Mesh,
    },
    /// The program was loaded by the ranks of another simulation, with which it would exchange.
    #[error("the program was loaded by the ranks of another simulation; compile it in the one that runs it")]
    OtherSimulation,
    /// Two ranks of one group call different collectives.
    #[error(
        "rank {rank} calls {}, rank {other} calls {}: all ranks must run the same program",
        apart(called, other_called),
        apart(other_called, called)
    )]
    Differs {
        /// The rank that sees it.
        rank: usize,
        /// Its call.
        called: String,
        /// The first rank that calls something else.
        other: usize,
        /// The call of that rank.
        other_called: String,
    },
    /// A rank of the group has ended, or failed, and will never call.
    #[error("rank {rank} waits in {}, and rank {ended} has ended or failed without calling it", brief(called))]
    Ended {
        /// The rank that waits.
        rank: usize,
        /// Its call.
        called: String,
        /// The rank that is no longer there.
        ended: usize,
    },
    /// This rank has failed before: the others do not know how far it came.
    #[error("rank {rank} calls {} after a program of it failed; all ranks end with the first failure", brief(called))]
    Failed {
        /// This rank.
        rank: usize,
        /// Its call.
        called: String,
    },
    /// All ranks wait, in different groups.
    #[error("rank {rank} waits in {}, rank {other} in {}, and no rank can go on", brief(called), brief(other_called))]
    Stuck {
        /// The rank that sees it.
        rank: usize,
        /// Its call.
        called: String,
        /// A rank that it waits for.
        other: usize,
        /// The call of that rank.
        other_called: String,
    },
    /// The system gives no thread for a rank.
    #[error("there is no thread for rank {rank} of {ranks}: {reason}")]
    NoThread {
        /// The rank.
        rank: usize,
        /// The number of ranks.
        ranks: usize,
        /// What the system says.
        reason: String,
    },
    /// The connection to the other processes is lost.
    #[error("rank {rank} calls {}: {reason}", brief(called))]
    Lost {
        /// This rank.
        rank: usize,
        /// Its call.
        called: String,
        /// The connection that is lost.
        reason: String,
    },
    /// A process is not one of the run's.
    #[error("rank {rank} does not join the run: {reason}")]
    Refused {
        /// The rank that it would be.
        rank: usize,
        /// The difference from the other ranks, or the fault of the connection.
        reason: String,
    },
    /// There is no memory for what is given.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// The most characters of a call that are told: it may be of all gradients of a model, or a line of a program.
const MOST: usize = 160;
/// How many characters are told before the first one that differs.
const BEFORE: usize = 40;

/// The beginning of a call.
fn brief(call: &str) -> String {
    let line = call.lines().next().unwrap_or_default();
    let characters = line.chars().count();
    if characters <= MOST {
        return line.to_owned();
    }
    let start: String = line.chars().take(MOST).collect();
    // Not half a tensor.
    let start = start.rfind("], ").filter(|at| *at > MOST / 2).map_or(&*start, |at| &start[..=at]);
    format!("{start}, ... ({} characters more)", characters - start.chars().count())
}

/// What a call has where it differs from another one.
fn apart(call: &str, other: &str) -> String {
    let (line, characters) = (call.lines().next().unwrap_or_default(), call.chars().count());
    let alike = call.chars().zip(other.chars()).take_while(|(own, other)| own == other).count();
    if characters <= MOST || alike <= MOST / 2 {
        return brief(call);
    }
    let name: String = line.chars().take(BEFORE).collect();
    let part: String = call.chars().skip(alike - BEFORE).take(MOST - BEFORE).collect();
    let rest = if alike - BEFORE + part.chars().count() < characters { "..." } else { "" };
    format!("{name}... {part}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_calls_are_told_in_short() {
        let of = |tensors: &[&str]| format!("AllReduce {{ op: Mean }} along data=2 of {}", tensors.join(", "));
        let long = of(&["f32[768, 3072]"; 148]);
        let waits = RankError::Ended { rank: 0, called: long.clone(), ended: 1 }.to_string();
        assert!(
            waits.len() < 300 && waits.contains("of f32[768, 3072], f32[768") && waits.contains("3072], ... ("),
            "{waits}"
        );
        assert!(waits.ends_with("characters more), and rank 1 has ended or failed without calling it"), "{waits}");
        let mut tensors = ["f32[768, 3072]"; 148];
        tensors[140] = "f32[7]";
        let differs = RankError::Differs { rank: 0, called: long, other: 1, other_called: of(&tensors) }.to_string();
        assert!(differs.len() < 500, "{differs}");
        assert!(differs.contains("rank 0 calls AllReduce") && differs.contains("rank 1 calls AllReduce"), "{differs}");
        assert!(differs.contains("f32[768, 3072], f32[7], f32[768, 3072]"), "{differs}");
        let short = of(&["f32[3]"]);
        let other_called = of(&["f32[4]"]);
        let differs = RankError::Differs { rank: 0, called: short.clone(), other: 1, other_called }.to_string();
        assert!(differs.starts_with(&format!("rank 0 calls {short}, rank 1")), "{differs}");
    }
}
