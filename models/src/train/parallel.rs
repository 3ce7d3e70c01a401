//! Training on several ranks: which part of a step, and of the state, each of them has.

use fulgurite_kernels::mesh::{Axis, Mesh};
use fulgurite_kernels::ranks::{self, RankError};
use fulgurite_ops::collectives::{Reduce, all_reduce, all_reduce_one};
use fulgurite_ops::prelude::{Tensor, scope};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::transforms::fsdp::Sharding;
use fulgurite_runtime::transforms::tensor_parallel::Division;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Result};

use super::options::TrainOptions;
use super::strategy::{DATA, StateDict, Strategy};
use crate::argument_error::wrong;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::parameters::{copied, zeros};
use crate::sharded::{parts, wholes, with_parts};
use crate::tensor_parallel::{self, TENSOR, with_divided};

impl TrainOptions {
    /// The ranks that a batch is divided among.
    pub(super) fn ranks(&self) -> usize {
        self.along().map_or(1, Axis::extent)
    }

    /// All ranks.
    pub(super) fn all_ranks(&self) -> usize {
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
        self.along().filter(|_| self.strategy == Strategy::Ddp || self.strategy.divides_layers())
    }

    /// The axis along which each rank has a part of the state.
    pub(super) fn sharded_along(&self) -> Option<&Axis> {
        self.along().filter(|_| matches!(self.strategy, Strategy::Zero2 | Strategy::Zero3))
    }

    /// The axis along which each rank has parts of layers.
    pub(super) fn divided_along(&self) -> Option<&Axis> {
        self.compile.mesh.axis(TENSOR).map(|(_, axis)| axis).filter(|_| self.strategy.divides_layers())
    }

    /// Whether ranks have different parts of the state.
    pub(super) fn has_parts(&self) -> bool {
        self.sharded_along().is_some() || self.divided_along().is_some()
    }

    /// The axis along which each rank writes a part of a checkpoint.
    pub(super) fn saved_along(&self) -> Option<&Axis> {
        self.sharded_along().filter(|_| self.state_dict != Some(StateDict::Full))
    }

    /// The options of a program with parameters below these paths among its arguments, or with copies of them, and
    /// with others that all ranks have the `same` of. Its gradients, if it `differentiates`, are those of all ranks.
    pub(super) fn of_program(
        &self,
        config: &dyn Model,
        trees: &[(&str, Leaves)],
        same: &[&str],
        differentiates: bool,
    ) -> Result<Options> {
        let mut compile = self.compile.clone();
        let parameters = |leaves: &Leaves| match leaves {
            Leaves::Parameters => config.parameters(),
            Leaves::Copies if self.precision.copies().is_some() => copied(config),
            Leaves::Copies => Vec::new(),
        };
        if let Some(axis) = self.averaged_along().filter(|_| differentiates) {
            compile = compile.with_ddp(axis.name());
        }
        if let Some(axis) = self.divided_along() {
            let mut division = Division::new(axis.name());
            for (path, leaves) in trees {
                division = with_divided(division, path, (config, parameters(leaves)), axis.extent())?;
            }
            division.sequence = (self.strategy == Strategy::SequenceParallel).then_some(1);
            return Ok(compile.with_tensor_parallel(division));
        }
        let Some(axis) = self.sharded_along() else { return Ok(compile) };
        let mut sharding = Sharding::new(axis.name());
        for path in same {
            sharding = sharding.with_same(path);
        }
        for (path, leaves) in trees {
            sharding = with_parts(sharding, path, parameters(leaves));
        }
        sharding.gather_again = (self.strategy == Strategy::Zero3).then_some(GATHERED_AGAIN);
        Ok(compile.with_fsdp(sharding))
    }

    /// What this rank has of parameters or moments.
    ///
    /// # Errors
    /// If there is not as much memory, or the model cannot be divided.
    pub(super) fn own(&self, config: &dyn Model, whole: Parameters<Array>) -> Result<Parameters<Array>> {
        if let Some(axis) = self.divided_along() {
            let place = ranks::place(axis).map_err(|error| wrong("ranks", error))?;
            return tensor_parallel::parts(whole, config, place, axis);
        }
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
        if let Some(axis) = self.divided_along() {
            return Parameters::build(&config.parameters(), &mut |own| {
                let by = tensor_parallel::divided(config, own, axis.extent())?;
                let shape = by.map_or_else(|| own.shape.clone(), |by| by.part(&own.shape, axis.extent()));
                Array::zeros_on(device, shape, dtype)
            });
        }
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
        if let Some(axis) = self.divided_along() {
            return tensor_parallel::wholes(own, config, axis, &self.compile);
        }
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

/// The trees of a state that is the argument `state`, with those states of parameters that the optimizer has.
pub(super) fn state_trees(options: &TrainOptions) -> Vec<(&'static str, Leaves)> {
    let [first, second] = options.optimizer.kind.states(&options.optimizer);
    let trees = [
        ("state.params", Leaves::Parameters, true),
        ("state.exp_avg", Leaves::Parameters, first),
        ("state.exp_avg_sq", Leaves::Parameters, second),
        ("state.copies", Leaves::Copies, true),
    ];
    trees.into_iter().filter(|(.., there)| *there).map(|(path, leaves, _)| (path, leaves)).collect()
}

/// The least bytes of a tensor that is gathered again: smaller ones take next to no room.
pub(crate) const GATHERED_AGAIN: u64 = 1 << 18;

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
    let names: Vec<&str> = mesh.axes().iter().map(Axis::name).collect();
    let fits = match strategy.divides_layers() {
        true => names == [TENSOR] || names == [DATA, TENSOR],
        false => names == [DATA],
    };
    if !fits {
        let expected = match strategy.divides_layers() {
            true => format!("'{TENSOR}={ranks}', or one like '{DATA}=2 {TENSOR}=2'"),
            false => format!("'{DATA}={ranks}'"),
        };
        return Err(wrong("strategy", format!("{strategy} takes the mesh {expected}, and the ranks are '{mesh}'")));
    }
    if !matches!(strategy, Strategy::Zero2 | Strategy::Zero3) && options.state_dict == Some(StateDict::Sharded) {
        let message = format!(
            "is sharded, and with {strategy} one rank writes the whole state; expected full, or the strategy zero2 or \
             zero3"
        );
        return Err(wrong("state_dict", message));
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
