//! A model of this crate's own, with [`mod@squareplus`](mod@crate::squareplus) as its activation, and its training
//! step. The crate's command shows the traces of the step: `cargo run -p fulgurite-example-outside -- trace show step`.

use fulgurite::array_tree::zeros_like;
use fulgurite::jit::Jit;
use fulgurite::prelude::*;
use fulgurite::random::Random;
use fulgurite::trace::Trace;
use fulgurite::tree::Leaf;

use crate::squareplus;

/// Two layers.
#[derive(Clone, Tree)]
pub struct Model<T: Leaf> {
    /// Weights of the first layer, [hidden, inputs].
    pub first: T,
    /// Weights of the second layer, [outputs, hidden].
    pub second: T,
}

/// Parameters, and the running means that AdamW keeps of their gradients and of the squares.
pub type State<T> = (Model<T>, Model<T>, Model<T>);

/// The state before the first step.
///
/// # Errors
/// If there is not enough memory.
pub fn initial(seed: u64) -> Result<State<Array>, Error> {
    let mut random = Random::new(seed);
    let params = Model { first: random.normal([16, 2], 1.0)?, second: random.normal([1, 16], 0.25)? };
    Ok((params.clone(), zeros_like(&params)?, zeros_like(&params)?))
}

/// Arguments of [`step`]: the state, inputs and targets of a batch, the learning rate, the number of the step from 1.
pub type Arguments = (State<Array>, Array, Array, Array, Array);
/// The arguments in traced code.
pub type Traced = (State<Tensor>, Tensor, Tensor, Tensor, Tensor);

/// A training step: the next state, in the memory of the one before, and the loss.
pub fn step() -> Jit<Arguments, (State<Tensor>, Tensor), impl Fn(Traced) -> (State<Tensor>, Tensor)> {
    jit(|(state, x, y, lr, number): Traced| {
        let (loss, gradients) = value_and_grad(state.0.clone(), |params| {
            let error = linear(squareplus(linear(x, params.first)), params.second) - y;
            mean(error * error)
        });
        (AdamW::default().update(state, gradients, lr, number), loss)
    })
    .named("step")
    .arguments(["state", "x", "y", "lr", "number"])
    .results(["state", "loss"])
    .donate("state")
}

/// The trace of the step on a batch of 8.
///
/// # Errors
/// What fails while the step is traced.
pub fn trace() -> Result<Trace, Error> {
    let [x, y] = [[8, 2], [8, 1]].map(|shape| Array::zeros(shape, DType::F32));
    step().trace(&(initial(7)?, x?, y?, Array::scalar(1e-2), Array::scalar(1.0)))
}
