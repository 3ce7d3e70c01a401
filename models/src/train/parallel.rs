//! Training on several ranks: which part of a step each of them takes, and what they must agree on.

use std::fmt;
use std::str::FromStr;

use fulgurite_kernels::mesh::{Axis, Mesh};
use fulgurite_kernels::ranks::{self, RankError};
use fulgurite_ops::collectives::{Reduce, all_reduce, all_reduce_one};
use fulgurite_ops::prelude::{Tensor, scope};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::transforms::fsdp::Sharding;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Result};

use super::failure::TrainError;
use super::options::TrainOptions;
use super::run::Run;
use super::settings;
use crate::argument_error::wrong;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::parameters::{copied, to_host, zeros};
use crate::sharded::{parts, wholes, with_parts};

/// How the ranks of a run divide its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Data parallel: each rank has the whole state and its own part of each batch; gradients are averaged.
    #[default]
    Ddp,
    /// Data parallel with a part of the state on each rank: gradients are scattered, parameters are gathered once a
    /// step.
    Zero2,
    /// As [`Strategy::Zero2`], and parameters are gathered again for the backward pass in place of being kept.
    Zero3,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 3] = [Strategy::Ddp, Strategy::Zero2, Strategy::Zero3];

    /// Its name as an option.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Ddp => "ddp",
            Strategy::Zero2 => "zero2",
            Strategy::Zero3 => "zero3",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Strategy {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Strategy, String> {
        let names = Strategy::ALL.map(Strategy::name).join(", ");
        let found = Strategy::ALL.into_iter().find(|strategy| strategy.name() == text);
        found.ok_or_else(|| format!("'{text}' is no strategy, expected one of: {names}"))
    }
}

/// The axis of the ranks that have parts of a batch.
const DATA: &str = "data";

impl TrainOptions {
    /// The ranks that a batch is divided among.
    pub(super) fn ranks(&self) -> usize {
        self.compile.mesh.ranks()
    }

    /// Sequences of a batch of all ranks together, if they can be counted.
    pub(super) fn whole_batch(&self) -> usize {
        self.batch.saturating_mul(self.ranks())
    }

    /// The axis of the ranks that have parts of a batch; none on one rank.
    fn along(&self) -> Option<&Axis> {
        self.compile.mesh.axis(DATA).map(|(_, axis)| axis)
    }

    /// The axis that gradients of whole parameters are averaged along.
    pub(super) fn averaged_along(&self) -> Option<&Axis> {
        self.along().filter(|_| self.strategy == Strategy::Ddp)
    }

    /// The axis along which each rank has a part of the state.
    pub(super) fn sharded_along(&self) -> Option<&Axis> {
        self.along().filter(|_| self.strategy != Strategy::Ddp)
    }

    /// The options of a program with parameters below these paths among its arguments, or with copies of them. Its
    /// gradients, if it `differentiates`, are those of all ranks.
    pub(super) fn of_program(&self, config: &dyn Model, trees: &[(&str, Leaves)], differentiates: bool) -> Options {
        let compile = self.compile.clone();
        if let Some(axis) = self.averaged_along() {
            return if differentiates { compile.with_ddp(axis.name()) } else { compile };
        }
        let Some(axis) = self.sharded_along() else { return compile };
        let mut sharding = Sharding::new(axis.name());
        for (path, leaves) in trees {
            let parameters = match leaves {
                Leaves::Parameters => config.parameters(),
                Leaves::Copies if self.precision.copies().is_some() => copied(config),
                Leaves::Copies => Vec::new(),
            };
            sharding = with_parts(sharding, path, parameters);
        }
        sharding.gather_again = (self.strategy == Strategy::Zero3).then_some(GATHERED_AGAIN);
        compile.with_fsdp(sharding)
    }

    /// What this rank has of parameters or moments.
    ///
    /// # Errors
    /// If there is not as much memory.
    pub(super) fn own(&self, whole: Parameters<Array>) -> Result<Parameters<Array>> {
        match self.sharded_along() {
            Some(axis) => parts(whole, ranks::place(axis).map_err(|error| wrong("ranks", error))?, axis),
            None => Ok(whole),
        }
    }

    /// What this rank has of moments, or of sums of gradients, at their start.
    ///
    /// # Errors
    /// As [`TrainOptions::own`].
    pub(super) fn own_zeros(&self, config: &dyn Model) -> Result<Parameters<Array>> {
        let (dtype, device) = (self.precision.parameters(), self.device());
        match self.sharded_along() {
            Some(axis) => Parameters::build(&config.parameters(), &mut |own| {
                Array::zeros_on(device, [axis.part_length(&own.shape)], dtype)
            }),
            None => zeros(config, dtype, device),
        }
    }

    /// The whole tensors of what this rank has. All ranks call it.
    ///
    /// # Errors
    /// As [`wholes`].
    pub(super) fn whole(&self, config: &dyn Model, own: &Parameters<Array>) -> Result<Parameters<Array>> {
        match self.sharded_along() {
            Some(axis) => wholes(own, config, axis, &self.compile),
            None => Ok(own.clone()),
        }
    }
}

/// What the leaves of a tree of a program's arguments are.
#[derive(Debug, Clone, Copy)]
pub(super) enum Leaves {
    Parameters,
    Copies,
}

/// The trees of a state that is the argument `state`.
pub(super) const STATE: [(&str, Leaves); 4] = [
    ("state.params", Leaves::Parameters),
    ("state.exp_avg", Leaves::Parameters),
    ("state.exp_avg_sq", Leaves::Parameters),
    ("state.copies", Leaves::Copies),
];

/// The least bytes of a tensor that is gathered again: smaller ones take next to no room.
const GATHERED_AGAIN: u64 = 1 << 18;

/// Whether this rank writes what a run leaves: one of them does.
pub(super) fn writes() -> bool {
    ranks::rank() == 0
}

/// The options of this rank's programs: on the mesh that runs.
///
/// # Errors
/// A mesh, or a setting, that the strategy cannot use.
pub(super) fn compile_options(options: &TrainOptions, compile: Options) -> Result<Options> {
    let mesh = ranks::mesh();
    let (strategy, ranks) = (options.strategy, mesh.ranks());
    if ranks == 1 {
        return Ok(compile);
    }
    if mesh.axes().len() != 1 || mesh.axis(DATA).is_none() {
        let message = format!("{strategy} takes the mesh '{DATA}={ranks}', and the ranks are '{mesh}'");
        return Err(wrong("strategy", message));
    }
    if options.dropout > 0.0 {
        let dropout = options.dropout;
        let message = format!("is {dropout} on {ranks} ranks, expected 0: all of them would drop the same places");
        return Err(wrong("dropout", message));
    }
    Ok(Options { mesh, ..compile })
}

/// The least memory that a rank may use: all of them have the same programs.
///
/// # Errors
/// Those of the ranks.
pub(super) fn memory_limit(own: Option<u64>) -> Result<Option<u64>, RankError> {
    let least = fewest("the memory of a rank", own.unwrap_or(u64::MAX))?;
    Ok(Some(least).filter(|least| *least < u64::MAX))
}

/// The least of the numbers of all ranks.
pub(super) fn fewest(called: &str, own: u64) -> Result<u64, RankError> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    ranks::mesh().axes().iter().try_fold(own, |least, axis| {
        let given = ranks::exchange(axis, called, &least.to_le_bytes())?;
        Ok(given.iter().map(|bytes| number(bytes)).fold(least, u64::min))
    })
}

/// The sums of some numbers over all ranks, the same on each.
pub(super) fn sums<const N: usize>(called: &str, own: [f64; N]) -> Result<[f64; N], RankError> {
    let bytes = |numbers: [f64; N]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    ranks::mesh().axes().iter().try_fold(own, |own, axis| {
        let mut sums = [0.0; N];
        for given in ranks::exchange(axis, called, &bytes(own))? {
            for (sum, number) in sums.iter_mut().zip(given.chunks_exact(8)) {
                *sum += number.try_into().map_or(f64::NAN, f64::from_le_bytes);
            }
        }
        Ok(sums)
    })
}

/// What a rank says where all of them agree on how to go on.
#[derive(Clone)]
struct Said {
    stop: bool,
    /// The first rank that failed, whether the run's numbers were not finite, and why it failed.
    failed: Option<(usize, bool, String)>,
}

impl Said {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.stop)];
        if let Some((rank, diverged, message)) = &self.failed {
            bytes.push(u8::from(*diverged));
            bytes.extend_from_slice(&(*rank as u64).to_le_bytes());
            bytes.extend_from_slice(message.as_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8]) -> Said {
        let failed = bytes.get(1).and_then(|diverged| {
            let (rank, message) = bytes[2..].split_first_chunk()?;
            let message = String::from_utf8_lossy(message).into_owned();
            Some((u64::from_le_bytes(*rank) as usize, *diverged == 1, message))
        });
        Said { stop: bytes.first() == Some(&1), failed }
    }
}

/// All ranks come here with what they have, and go on together: the result is this rank's, and whether one of them is
/// to stop.
///
/// # Errors
/// This rank's own; [`TrainError::OtherRank`] where another one has failed, also where that is a rank of a lower number
/// with the same error.
pub(super) fn agree<T>(called: &str, stop: bool, own: Result<T, TrainError>) -> Result<(T, bool), TrainError> {
    let rank = ranks::rank();
    let failed = own.as_ref().err().map(|error| (rank, matches!(error, TrainError::Diverged(_)), error.to_string()));
    let mut said = Said { stop, failed };
    for axis in ranks::mesh().axes() {
        let given = match ranks::exchange(axis, called, &said.bytes()) {
            Ok(given) => given,
            // Its own error says more than that others have ended.
            Err(error) => return Err(own.err().unwrap_or_else(|| error.into())),
        };
        let all: Vec<Said> = given.iter().map(|bytes| Said::of(bytes)).collect();
        said.stop |= all.iter().any(|said| said.stop);
        said.failed = all.into_iter().filter_map(|said| said.failed).min_by_key(|(rank, ..)| *rank);
    }
    match (own, said.failed) {
        (Ok(own), None) => Ok((own, said.stop)),
        (Err(error), Some((other, _, message))) if other == rank || message != error.to_string() => Err(error),
        (Err(error), None) => Err(error),
        (_, Some((rank, diverged, message))) => Err(TrainError::OtherRank { rank, diverged, message }),
    }
}

/// What the rank that writes does, and all wait for.
///
/// # Errors
/// As [`agree`].
pub(super) fn written(called: &str, write: impl FnOnce() -> Result<(), TrainError>) -> Result<(), TrainError> {
    let own = if writes() { write() } else { Ok(()) };
    agree(called, false, own).map(|_| ())
}

/// Compares what the ranks begin with: settings, the place in the data, weights.
///
/// # Errors
/// The first line that another rank has otherwise.
pub(super) fn same_run(options: &TrainOptions, run: &mut Run) -> Result<(), TrainError> {
    if options.ranks() == 1 {
        return Ok(());
    }
    let mut lines = String::new();
    let settings = settings::subject(options, run).settings;
    for (name, value) in settings.iter().filter(|(name, _)| name != "device") {
        lines += &format!("{name}: {}\n", value.replace('\n', " "));
    }
    let position = run.batches.position();
    lines += &format!("steps done: {}\nplace in the data: {position:?}\n", run.done);
    let state = run.state.get()?;
    if options.sharded_along().is_some() {
        return Ok(ranks::same("the settings of the run", &lines)?);
    }
    for (what, tree) in [("weights", &state.params), ("means", &state.exp_avg), ("squares", &state.exp_avg_sq)] {
        lines += &format!("{what} with the checksum {}\n", checksum(tree)?);
    }
    Ok(ranks::same("the settings of the run", &lines)?)
}

/// Checks that the ranks end with the same weights, to the bit: what went wrong on one of them is not to go unnoticed.
///
/// # Errors
/// Two ranks and their checksums.
pub(super) fn same_weights(options: &TrainOptions, run: &mut Run) -> Result<(), TrainError> {
    if options.averaged_along().is_none() {
        return Ok(());
    }
    let found = checksum(&run.state.get()?.params)?;
    let line = format!("weights after step {} with the checksum {found}", run.done);
    Ok(ranks::same("the weights of the run", &line)?)
}

fn checksum(tree: &Parameters<Array>) -> Result<String> {
    let mut hasher = crc32fast::Hasher::new();
    for (_, array) in tree.leaves() {
        hasher.update(to_host(array)?.bytes());
    }
    Ok(format!("{:08x}", hasher.finalize()))
}

/// The gradients of a step over several batches and its loss, averaged over the ranks along `axis`.
pub(super) fn averaged(
    gradients: Parameters<Tensor>,
    loss: Tensor,
    axis: Option<&Axis>,
) -> (Parameters<Tensor>, Tensor) {
    let Some(axis) = axis else { return (gradients, loss) };
    scope("ddp", || {
        // The loss may be of another type.
        let loss = all_reduce_one(loss, &String::from(axis), Reduce::Mean);
        let mut means = all_reduce(leaves(&gradients).collect::<Vec<_>>(), axis, Reduce::Mean).into_iter();
        (gradients.map(&mut |gradient| means.next().unwrap_or(gradient)), loss)
    })
}

fn leaves(gradients: &Parameters<Tensor>) -> impl Iterator<Item = Tensor> {
    gradients.leaves().into_iter().map(|(_, gradient)| *gradient)
}

/// As [`averaged`], of gradients that were computed.
pub(super) fn averages(options: &TrainOptions, gradients: Parameters<Array>) -> Result<Parameters<Array>> {
    let Some(axis) = options.averaged_along() else { return Ok(gradients) };
    let mean = |(gradients,): (Parameters<Tensor>,)| {
        let mut means = all_reduce(leaves(&gradients).collect::<Vec<_>>(), axis, Reduce::Mean).into_iter();
        gradients.map(&mut |gradient| means.next().unwrap_or(gradient))
    };
    fulgurite_runtime::jit(mean).named("mean_gradients").options(options.compile.clone()).call((gradients,))
}

/// The place of this rank among those that a batch is divided among.
pub(super) fn place(mesh: &Mesh) -> Result<usize, RankError> {
    mesh.axis(DATA).map_or(Ok(0), |(_, axis)| ranks::place(axis))
}
