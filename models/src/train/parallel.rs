//! Training on several ranks: which part of a step each of them takes.

use fulgurite_kernels::mesh::{Axis, Mesh};
use fulgurite_kernels::ranks::{self, RankError};
use fulgurite_ops::collectives::{Reduce, all_reduce};
use fulgurite_ops::prelude::{Tensor, scope};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Result};

use super::options::TrainOptions;
use super::strategy::DATA;
use crate::argument_error::wrong;
use crate::parameter_list::Parameters;

impl TrainOptions {
    /// The ranks that a batch is divided among.
    pub(super) fn ranks(&self) -> usize {
        self.compile.mesh.ranks()
    }

    /// Sequences of a batch of all ranks together, if they can be counted.
    pub(super) fn whole_batch(&self) -> usize {
        self.batch.saturating_mul(self.ranks())
    }

    /// The axis that gradients are averaged along; none on one rank.
    pub(super) fn averaged_along(&self) -> Option<&Axis> {
        self.compile.mesh.axis(DATA).map(|(_, axis)| axis)
    }

    /// The options of a program whose gradients are those of all ranks.
    pub(super) fn with_averages(&self) -> Options {
        match self.averaged_along() {
            Some(axis) => self.compile.clone().with_ddp(axis.name()),
            None => self.compile.clone(),
        }
    }
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

/// The gradients of a step over several batches and its loss, averaged over the ranks along `axis`.
pub(super) fn averaged(
    gradients: Parameters<Tensor>,
    loss: Tensor,
    axis: Option<&Axis>,
) -> (Parameters<Tensor>, Tensor) {
    let Some(axis) = axis else { return (gradients, loss) };
    scope("ddp", || {
        let mean = |value: Tensor| all_reduce(value, axis, Reduce::Mean);
        (gradients.map(&mut |gradient: Tensor| mean(gradient)), mean(loss))
    })
}

/// As [`averaged`], of gradients that were computed.
pub(super) fn averages(options: &TrainOptions, gradients: Parameters<Array>) -> Result<Parameters<Array>> {
    let Some(axis) = options.averaged_along() else { return Ok(gradients) };
    let mean = |(gradients,): (Parameters<Tensor>,)| {
        gradients.map(&mut |gradient: Tensor| all_reduce(gradient, axis, Reduce::Mean))
    };
    fulgurite_runtime::jit(mean).named("mean_gradients").options(options.compile.clone()).call((gradients,))
}

/// The place of this rank among those that a batch is divided among.
pub(super) fn place(mesh: &Mesh) -> Result<usize, RankError> {
    mesh.axis(DATA).map_or(Ok(0), |(_, axis)| ranks::place(axis))
}
