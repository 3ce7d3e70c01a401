//! What the updates of parameters share: their preconditions, the type that they are computed in, and the condition
//! under which they are made.

use fulgurite_runtime::rules::Precondition;
use fulgurite_runtime::{DType, Failure, Tensor, TensorMeta};

use crate::core::promotion::{broadcast, cast};
use crate::prims;

/// The preconditions of an update: tensors of the shape of `param`, states of its type or of the one it is computed in,
/// zero-dimensional numbers.
pub(super) fn check(
    param: &TensorMeta,
    grad: &TensorMeta,
    states: &[(&str, Option<&TensorMeta>)],
    numbers: [(&str, Option<&TensorMeta>); 3],
    [shape, dtype, rank]: [Precondition; 3],
) -> Result<(), Failure> {
    let (own, wide) = (param.dtype(), param.dtype().accumulator());
    for (name, given) in [("grad", Some(grad))].iter().chain(states) {
        let Some(given) = given else { continue };
        if given.shape() != param.shape() {
            return Err(shape.unmet(format_args!("{name} has shape {:?}, param {:?}", given.shape(), param.shape())));
        }
        if *name != "grad" && ![own, wide].contains(&given.dtype()) {
            return Err(dtype.unmet(format_args!("{name} is {}, expected {own} or {wide}", given.dtype())));
        }
    }
    for (name, given) in numbers {
        let Some(given) = given.filter(|given| given.rank() > 0) else { continue };
        return Err(rank.unmet(format_args!("{name} has shape {:?}, expected []", given.shape())));
    }
    Ok(())
}

/// Fails with `code` unless a number is at least 0 and finite.
pub(super) fn not_negative(numbers: &[(&str, f64)], code: Precondition) -> Result<(), Failure> {
    match numbers.iter().find(|(_, number)| !(0.0..f64::INFINITY).contains(number)) {
        Some((name, number)) => Err(code.unmet(format_args!("{name} is {number}, expected at least 0"))),
        None => Ok(()),
    }
}

/// Fails with `code` unless a number is at least 0 and below 1.
pub(super) fn below_one(numbers: &[(&str, f64)], code: Precondition) -> Result<(), Failure> {
    match numbers.iter().find(|(_, number)| !(0.0..1.0).contains(number)) {
        Some((name, number)) => Err(code.unmet(format_args!("{name} is {number}, expected 0 to below 1"))),
        None => Ok(()),
    }
}

/// A step's numbers and the tensors of one parameter, in the type that an update is computed in.
pub(super) struct Step {
    /// The parameter.
    pub param: Tensor,
    /// The gradient.
    pub grad: Tensor,
    /// The learning rate, f64.
    pub lr: Tensor,
    /// The number of the step from 1, f64.
    pub step: Tensor,
    wide: DType,
    shape: Vec<usize>,
}

impl Step {
    /// Of a parameter and its gradient.
    #[track_caller]
    pub fn new([param, grad]: [Tensor; 2], [lr, step]: [Tensor; 2]) -> Step {
        let wide = param.dtype().accumulator();
        let shape = param.shape().to_vec();
        // The few numbers of the step in f64, as PyTorch computes them on the host.
        let [lr, step] = [lr, step].map(|number| cast(number, DType::F64));
        let [param, grad] = [param, grad].map(|tensor| cast(tensor, wide));
        Step { param, grad, lr, step, wide, shape }
    }

    /// A state in the type that is computed in.
    #[track_caller]
    pub fn state(&self, state: Tensor) -> Tensor {
        cast(state, self.wide)
    }

    /// A number of the step for every element.
    #[track_caller]
    pub fn number(&self, number: Tensor) -> Tensor {
        broadcast(cast(number, self.wide), &self.shape)
    }

    /// `1 - betaᵗ`.
    #[track_caller]
    pub fn correction(&self, beta: f64) -> Tensor {
        prims::sub(1.0, prims::pow(beta, self.step))
    }

    /// The gradient with that of `decay / 2 · param²`.
    #[track_caller]
    pub fn decayed_grad(&self, decay: f64) -> Tensor {
        if decay == 0.0 { self.grad } else { prims::add(self.grad, prims::mul(self.param, decay)) }
    }

    /// The parameter made smaller by the part `lr · decay`.
    #[track_caller]
    pub fn shrunk(&self, decay: f64) -> Tensor {
        if decay == 0.0 {
            return self.param;
        }
        prims::mul(self.param, self.number(prims::sub(1.0, prims::mul(self.lr, decay))))
    }

    /// `from - number · change`, for a number of the step.
    #[track_caller]
    pub fn moved(&self, from: Tensor, number: Tensor, change: Tensor) -> Tensor {
        prims::sub(from, prims::mul(change, self.number(number)))
    }
}

/// The running mean `mean + (1 - beta)(new - mean)`.
#[track_caller]
pub(super) fn mean_of(mean: Tensor, new: Tensor, beta: f64) -> Tensor {
    prims::add(mean, prims::mul(prims::sub(new, mean), 1.0 - beta))
}

/// The running mean of squares `beta · mean + (1 - beta) new²`.
#[track_caller]
pub(super) fn mean_of_squares(mean: Tensor, new: Tensor, beta: f64) -> Tensor {
    prims::add(prims::mul(mean, beta), prims::mul(prims::mul(new, new), 1.0 - beta))
}

/// New values in the types of the old ones; where `apply` is false the old ones.
#[track_caller]
pub(super) fn applied<const N: usize>(pairs: [(Tensor, Tensor); N], apply: Option<Tensor>) -> [Tensor; N] {
    pairs.map(|(new, old)| {
        let new = cast(new, old.dtype());
        match apply {
            Some(apply) => prims::select(broadcast(apply, &old.shape()), new, old),
            None => new,
        }
    })
}
