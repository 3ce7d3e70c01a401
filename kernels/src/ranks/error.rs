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
    #[error("rank {rank} calls {called}, rank {other} calls {other_called}: all ranks must run the same program")]
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
    #[error("rank {rank} waits in {called}, and rank {ended} has ended or failed without calling it")]
    Ended {
        /// The rank that waits.
        rank: usize,
        /// Its call.
        called: String,
        /// The rank that is no longer there.
        ended: usize,
    },
    /// This rank has failed before: the others do not know how far it came.
    #[error("rank {rank} calls {called} after a program of it failed; all ranks end with the first failure")]
    Failed {
        /// This rank.
        rank: usize,
        /// Its call.
        called: String,
    },
    /// All ranks wait, in different groups.
    #[error("rank {rank} waits in {called}, rank {other} in {other_called}, and no rank can go on")]
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
    #[error("rank {rank} calls {called}: {reason}")]
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
