//! The trace of a training step on a rank of any number, without them.

use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Device, Result, Target};

use crate::argument_error::wrong;
use crate::model::Model;
use crate::sharded::sharding;
use crate::train::{GATHERED_AGAIN, Strategy};

/// The last trace of a step, which was acquired on the host, on a rank of so many for `target`. Its state is the
/// argument `state`; `copies` is whether it has copies of parameters.
///
/// # Errors
/// Those of compilation.
pub fn step_of_ranks(
    acquired: &Trace,
    config: &dyn Model,
    copies: bool,
    (target, options): (&Target, &Options),
    (strategy, ranks): (Strategy, usize),
) -> Result<Trace> {
    let mesh: Mesh = if ranks == 1 { Mesh::ONE } else { data_parallel(ranks)? };
    let device = (!target.device().is_cpu()).then(|| Device::new(target.kind(), 0));
    let options = Options { mesh: mesh.clone(), device, ..options.clone() };
    let options = match strategy {
        _ if ranks == 1 => options,
        Strategy::Ddp => options.with_ddp("data"),
        Strategy::Zero2 | Strategy::Zero3 => {
            let mut sharding = sharding("state", "data", config, copies);
            sharding.gather_again = (strategy == Strategy::Zero3).then_some(GATHERED_AGAIN);
            options.with_fsdp(sharding)
        }
        Strategy::TensorParallel | Strategy::SequenceParallel => {
            let message = format!("is {strategy}, which the model of time does not know; expected ddp, zero2 or zero3");
            return Err(wrong("strategy", message));
        }
    };
    let mut all = stages(retarget(acquired, &target.clone().on_mesh(mesh)), &options)?;
    // A compilation has stages.
    Ok(all.pop().map_or_else(|| acquired.clone(), |stage| stage.trace))
}

fn data_parallel(ranks: usize) -> Result<Mesh> {
    format!("data={ranks}").parse().map_err(|message| wrong("ranks", message))
}
