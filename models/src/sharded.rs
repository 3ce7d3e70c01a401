//! The state of a run in parts, one on each rank along an axis of the mesh.

use fulgurite_ops::collectives::whole;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::transforms::fsdp::Sharding;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, Device, Result, Tensor, jit};

use crate::config::Parameter;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::parameters::copied;

/// `sharding` with the parts of these parameters, which are below `path` among the arguments of a program.
pub fn with_parts(sharding: Sharding, path: &str, parameters: Vec<Parameter>) -> Sharding {
    parameters.into_iter().fold(sharding, |sharding, parameter| {
        sharding.with_part(&format!("{path}.{}", parameter.name), parameter.shape)
    })
}

/// The parts of a [`TrainState`](crate::step::TrainState) that is argument `argument` of a program, along the axis of
/// this name: of parameters and both moments, and of the copies, if the state has them.
pub fn sharding(argument: &str, axis: &str, model: &dyn Model, copies: bool) -> Sharding {
    let trees = ["params", "exp_avg", "exp_avg_sq"].map(|tree| (tree, model.parameters()));
    let copies = copies.then(|| ("copies", copied(model)));
    trees.into_iter().chain(copies).fold(Sharding::new(axis), |sharding, (tree, parameters)| {
        with_parts(sharding, &format!("{argument}.{tree}"), parameters)
    })
}

/// The parts at `place` along an axis, on the host.
///
/// # Errors
/// If there is not as much memory.
pub fn parts(params: Parameters<Array>, place: usize, axis: &Axis) -> Result<Parameters<Array>> {
    let mut failed = None;
    let parts = params.map(&mut |array: Array| {
        array.part(place, axis).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            array
        })
    });
    failed.map_or(Ok(parts), Err)
}

/// The whole tensors of parameters of which each rank along an axis has parts, on the host. All ranks call it.
///
/// # Errors
/// If a rank does not, or there is not as much memory.
pub fn wholes(
    parts: &Parameters<Array>,
    model: &dyn Model,
    axis: &Axis,
    options: &Options,
) -> Result<Parameters<Array>> {
    let names = parts.leaves().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let there = model.parameters().into_iter().filter(|parameter| names.contains(&parameter.name));
    Parameters::build(&there.collect::<Vec<_>>(), &mut |Parameter { name, shape, .. }| {
        let gather = jit(|(part,): (Tensor,)| whole(part, axis, shape.clone()));
        let gather = gather.named("whole").arguments(["part"]).results(["whole"]).options(options.clone());
        let part = parts.get(name).unwrap_or_else(|| unreachable!("one of their names"));
        gather.call((part.clone(),))?.to_device(Device::CPU)
    })
}
