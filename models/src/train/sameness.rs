//! What is the same on all ranks of a run, and is compared.

use fulgurite_kernels::ranks;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Result};

use super::failure::TrainError;
use super::options::TrainOptions;
use super::run::Run;
use super::settings;
use crate::parameter_list::Parameters;
use crate::parameters::to_host;

/// Compares what the ranks begin with: settings, the place in the data, weights.
///
/// # Errors
/// The first line that another rank has otherwise.
pub(super) fn same_run(options: &TrainOptions, run: &mut Run) -> Result<(), TrainError> {
    if options.all_ranks() == 1 {
        return Ok(());
    }
    let mut lines = String::new();
    let settings = settings::subject(options, run).settings;
    for (name, value) in settings.iter().filter(|(name, _)| name != "device") {
        lines += &format!("{name}: {}\n", value.replace('\n', " "));
    }
    let position = run.batches.position();
    lines += &format!("steps done: {}\nplace in the data: {position:?}\n", run.done);
    if options.has_parts() {
        return Ok(ranks::same("the settings of the run", &lines)?);
    }
    let state = run.state.get()?;
    for (what, tree) in [("weights", &state.params), ("means", &state.exp_avg), ("squares", &state.exp_avg_sq)] {
        lines += &format!("{what} with the checksum {}\n", checksum(tree)?);
    }
    Ok(ranks::same("the settings of the run", &lines)?)
}

/// Checks that ranks that have all weights end with the same ones, to the bit: what went wrong on one of them is not to
/// go unnoticed.
///
/// # Errors
/// Two ranks and their checksums.
pub(super) fn same_weights(options: &TrainOptions, run: &mut Run) -> Result<(), TrainError> {
    if options.averaged_along().is_none() || options.has_parts() {
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
