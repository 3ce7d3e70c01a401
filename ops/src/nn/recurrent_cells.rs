//! One step of recurrent networks.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition};
use fulgurite_runtime::{Tensor, TensorMeta};

use super::{linear, logistic};
use crate::core::arrays::array;
use crate::core::promotion::{accumulating, cast};
use crate::prims::{self, add, mul, sub, tanh};

/// The states after a step, the first of them the output, from what the gates get of the input and of the state before,
/// `[N, gates · H]` each, and from the states before, `[N, H]` each.
pub(crate) type Step = fn(Tensor, Tensor, &[Tensor]) -> Vec<Tensor>;

/// For references: as [`Step`], of one row.
pub(crate) type StepOfRow = fn(&[f64], &[f64], &[Vec<f64>]) -> Vec<Vec<f64>>;

/// Gate number `i`, in the type that sums are in.
#[track_caller]
fn gate(all: Tensor, i: usize, like: Tensor) -> Tensor {
    let width = like.shape()[1];
    let part = prims::slice(all, [0, i * width], [all.shape()[0], (i + 1) * width], [1, 1]);
    accumulating(part)
}

/// `tanh` of the sum of both.
#[track_caller]
pub(crate) fn tanh_step(of_input: Tensor, of_state: Tensor, states: &[Tensor]) -> Vec<Tensor> {
    let sum = add(accumulating(of_input), accumulating(of_state));
    vec![cast(tanh(sum), states[0].dtype())]
}

/// The sum of both, or zero if it is below.
#[track_caller]
pub(crate) fn relu_step(of_input: Tensor, of_state: Tensor, states: &[Tensor]) -> Vec<Tensor> {
    let sum = add(accumulating(of_input), accumulating(of_state));
    vec![super::relu(cast(sum, states[0].dtype()))]
}

/// Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014, with the reset gate behind the
/// product.
#[track_caller]
pub(crate) fn gru_step(of_input: Tensor, of_state: Tensor, states: &[Tensor]) -> Vec<Tensor> {
    let before = states[0];
    let both = |i: usize| add(gate(of_input, i, before), gate(of_state, i, before));
    let (reset, update) = (logistic(both(0)), logistic(both(1)));
    let new = tanh(add(gate(of_input, 2, before), mul(reset, gate(of_state, 2, before))));
    vec![cast(add(mul(update, sub(accumulating(before), new)), new), before.dtype())]
}

/// Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997, with the gate that forgets of Gers et al., 2000.
#[track_caller]
pub(crate) fn lstm_step(of_input: Tensor, of_state: Tensor, states: &[Tensor]) -> Vec<Tensor> {
    let (before, dtype) = (states[1], states[1].dtype());
    let both = |i: usize| add(gate(of_input, i, before), gate(of_state, i, before));
    let (enter, forget, leave) = (logistic(both(0)), logistic(both(1)), logistic(both(3)));
    let cell = cast(add(mul(forget, accumulating(before)), mul(enter, tanh(both(2)))), dtype);
    vec![cast(mul(leave, tanh(accumulating(cell))), dtype), cell]
}

/// For references: the logistic function.
fn squashed(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// For references: as [`tanh_step`].
pub(crate) fn tanh_row(of_input: &[f64], of_state: &[f64], _: &[Vec<f64>]) -> Vec<Vec<f64>> {
    vec![of_input.iter().zip(of_state).map(|(a, b)| (a + b).tanh()).collect()]
}

/// For references: as [`relu_step`].
pub(crate) fn relu_row(of_input: &[f64], of_state: &[f64], _: &[Vec<f64>]) -> Vec<Vec<f64>> {
    vec![of_input.iter().zip(of_state).map(|(a, b)| (a + b).max(0.0)).collect()]
}

/// For references: as [`gru_step`].
pub(crate) fn gru_row(of_input: &[f64], of_state: &[f64], states: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let width = states[0].len();
    let one = |i: usize| {
        let reset = squashed(of_input[i] + of_state[i]);
        let update = squashed(of_input[width + i] + of_state[width + i]);
        let new = (of_input[2 * width + i] + reset * of_state[2 * width + i]).tanh();
        (1.0 - update) * new + update * states[0][i]
    };
    vec![(0..width).map(one).collect()]
}

/// For references: as [`lstm_step`].
pub(crate) fn lstm_row(of_input: &[f64], of_state: &[f64], states: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let width = states[0].len();
    let sum = |gate: usize, i: usize| of_input[gate * width + i] + of_state[gate * width + i];
    let cell: Vec<f64> =
        (0..width).map(|i| squashed(sum(1, i)) * states[1][i] + squashed(sum(0, i)) * sum(2, i).tanh()).collect();
    vec![(0..width).map(|i| squashed(sum(3, i)) * cell[i].tanh()).collect(), cell]
}

/// For references: `matrix · row + bias`.
pub(crate) fn affine(row: &[f64], matrix: &ArrayD<f64>, bias: Option<&ArrayD<f64>>) -> Vec<f64> {
    let out = |i: usize| {
        let product: f64 = row.iter().enumerate().map(|(j, x)| matrix[[i, j]] * x).sum();
        product + bias.map_or(0.0, |bias| bias[[i]])
    };
    (0..matrix.shape()[0]).map(out).collect()
}

/// The weights and biases of a cell: `[gates · H, in]`, `[gates · H, H]` and `[gates · H]` twice.
pub(crate) struct Weights<T> {
    pub(crate) w_ih: T,
    pub(crate) w_hh: T,
    pub(crate) b_ih: Option<T>,
    pub(crate) b_hh: Option<T>,
}

impl Weights<Tensor> {
    /// The states after one step.
    #[track_caller]
    fn stepped(&self, input: Tensor, states: &[Tensor], step: Step) -> Vec<Tensor> {
        let product = |x: Tensor, weight: Tensor, bias: Option<Tensor>| linear::with(x, weight).bias(bias).call();
        step(product(input, self.w_ih, self.b_ih), product(states[0], self.w_hh, self.b_hh), states)
    }
}

impl Weights<&ArrayD<f64>> {
    /// For references: the states after one step.
    fn stepped(&self, input: &ArrayD<f64>, states: &[&ArrayD<f64>], step: StepOfRow) -> Vec<ArrayD<f64>> {
        let rows = input.shape()[0];
        let row = |tensor: &ArrayD<f64>, i: usize| tensor.index_axis(ndarray::Axis(0), i).iter().copied().collect();
        let mut all: Vec<Vec<f64>> = vec![Vec::new(); states.len()];
        for i in 0..rows {
            let (x, before): (Vec<f64>, Vec<Vec<f64>>) = (row(input, i), states.iter().map(|s| row(s, i)).collect());
            let (of_input, of_state) = (affine(&x, self.w_ih, self.b_ih), affine(&before[0], self.w_hh, self.b_hh));
            let after = step(&of_input, &of_state, &before);
            all.iter_mut().zip(after).for_each(|(all, after)| all.extend(after));
        }
        all.into_iter().map(|values| array(states[0].shape(), values)).collect()
    }
}

/// For metas: fails unless the shapes are those of a cell of `gates` gates, and all in one element type.
fn fits(
    input: &TensorMeta,
    states: &[&TensorMeta],
    weights: &Weights<&TensorMeta>,
    gates: usize,
    [shapes, types]: [Precondition; 2],
) -> Result<(), Failure> {
    let Weights { w_ih, w_hh, b_ih, b_hh } = weights;
    let first = states.first().map_or(&[][..], |state| state.shape());
    let (rows, width) = match (input.shape(), first) {
        ([rows, _], [_, width]) => (*rows, *width),
        _ => {
            let message =
                format_args!("input has shape {:?} and hx {first:?}, expected [N, in] and [N, H]", input.shape());
            return Err(shapes.unmet(message));
        }
    };
    let inputs = input.shape()[1];
    let named = [
        ("w_ih", Some(*w_ih), vec![gates * width, inputs]),
        ("w_hh", Some(*w_hh), vec![gates * width, width]),
        ("b_ih", *b_ih, vec![gates * width]),
        ("b_hh", *b_hh, vec![gates * width]),
    ];
    let states = states.iter().map(|state| ("hx", Some(*state), vec![rows, width]));
    for (name, meta, expected) in named.into_iter().chain(states) {
        let Some(meta) = meta else { continue };
        if meta.shape() != expected {
            return Err(shapes.unmet(format_args!("{name} has shape {:?}, expected {expected:?}", meta.shape())));
        }
        if meta.dtype() != input.dtype() {
            let (own, of_input) = (meta.dtype(), input.dtype());
            return Err(types.unmet(format_args!("{name} is {own}, input is {of_input}, expected one dtype")));
        }
    }
    Ok(())
}

// Declares cells of one state.
operators! {
    #[operator(torch = $torch, autocast = low)]
    pub mod $name {
        fn $name(
            input: Tensor<Floating>,
            hx: Tensor<Floating>,
            w_ih: Tensor<Floating>,
            w_hh: Tensor<Floating>,
            #[default(None)] b_ih: Option<Tensor<Floating>>,
            #[default(None)] b_hh: Option<Tensor<Floating>>,
        ) -> Tensor;

        fn requires(Args { input, hx, w_ih, w_hh, b_ih, b_hh }: Args<&TensorMeta>) -> Result<()> {
            let weights = Weights { w_ih, w_hh, b_ih, b_hh };
            super::fits(input, &[hx], &weights, $gates, [Code::Shapes, Code::SameDType])
        }

        fn decomposition(Args { input, hx, w_ih, w_hh, b_ih, b_hh }: Args<Tensor>) -> Tensor {
            Weights { w_ih, w_hh, b_ih, b_hh }.stepped(input, &[hx], $step)[0]
        }

        fn reference(Args { input, hx, w_ih, w_hh, b_ih, b_hh }: Args<&ReferenceTensor>) -> ArrayD<f64> {
            Weights { w_ih, w_hh, b_ih, b_hh }.stepped(input, &[hx], $row).swap_remove(0)
        }

        fn samples(s: &mut Samples) {
            let of = |s: &Samples, rows: usize| {
                with(s.normal([rows, 3]), s.normal([rows, 2]), s.normal([$rows, 3]), s.normal([$rows, 2]))
            };
            s.case(of(s, 4));
            s.case(of(s, 2).b_ih(s.normal([$rows])).b_hh(s.normal([$rows])));
            s.case(of(s, 0));
        }

        fn errors(e: &mut ErrorSamples) {
            let of = |e: &ErrorSamples, input: &[usize], matrix: &[usize]| {
                with(e.normal(input), e.normal([2, 2]), e.normal(matrix), e.normal([$rows, 2]))
            };
            e.case(Shapes, of(e, &[3], &[$rows, 3]), "expected [N, in] and [N, H]");
            e.case(Shapes, of(e, &[2, 3], &[3, 3]), "w_ih has shape [3, 3], expected [");
            let other = e.of(DType::F64, [$rows, 3]);
            let mixed = with(e.of(DType::F32, [2, 3]), e.of(DType::F32, [2, 2]), other, e.of(DType::F32, [$rows, 2]));
            e.case(SameDType, mixed, "w_ih is f64, input is f32");
        }
    }

    table($name, $torch, $gates, $rows, $step, $row) {
        /// The state of a recurrent network after a step: `tanh(input · w_ihᵀ + b_ih + hx · w_hhᵀ + b_hh)` of the input
        /// [N, in] and the state before, [N, H], with weights [H, in] and [H, H].
        rnn_tanh_cell, "rnn_tanh_cell", 1, 2, super::tanh_step, super::tanh_row;
        /// [`mod@rnn_tanh_cell`] with `max(0, x)` in the place of `tanh(x)`.
        rnn_relu_cell, "rnn_relu_cell", 1, 2, super::relu_step, super::relu_row;
        /// The state of a gated recurrent unit after a step, `(1 - z) · n + z · hx`, of the input [N, in] and the state
        /// before, [N, H]. The weights [3 H, in] and [3 H, H] are those of the gates `r` and `z` and of
        /// `n = tanh(x + r · y)`, where `x` is the product of the input and `y` that of the state (Cho et al.,
        /// "Learning Phrase Representations using RNN Encoder-Decoder", 2014, with `r` behind the product).
        gru_cell, "gru_cell", 3, 6, super::gru_step, super::gru_row;
    }
}

/// Output and cell of a network of long short-term memory after a step (Hochreiter and Schmidhuber, 1997; Gers et al.,
/// 2000): `c = f · hx[1] + i · g` and `h = o · tanh(c)` of the input [N, in] and of both states before, [N, H] each.
/// The weights [4 H, in] and [4 H, H] are those of `i`, `f`, `g = tanh(...)` and `o`.
#[operator(torch = "lstm_cell", autocast = low)]
pub mod lstm_cell {
    #[results(h, c)]
    fn lstm_cell(
        input: Tensor<Floating>,
        hx: Vec<Tensor<Floating>>,
        w_ih: Tensor<Floating>,
        w_hh: Tensor<Floating>,
        #[default(None)] b_ih: Option<Tensor<Floating>>,
        #[default(None)] b_hh: Option<Tensor<Floating>>,
    ) -> (Tensor, Tensor);

    fn requires(Args { input, hx, w_ih, w_hh, b_ih, b_hh }: Args<&TensorMeta>) -> Result<()> {
        require!(hx.len() == 2, States, "hx has {} tensors, expected output and cell", hx.len());
        let weights = Weights { w_ih, w_hh, b_ih, b_hh };
        super::fits(input, &hx, &weights, 4, [Code::Shapes, Code::SameDType])
    }

    fn decomposition(Args { input, hx, w_ih, w_hh, b_ih, b_hh }: Args<Tensor>) -> (Tensor, Tensor) {
        let after = Weights { w_ih, w_hh, b_ih, b_hh }.stepped(input, &hx, super::lstm_step);
        (after[0], after[1])
    }

    fn reference(Args { input, hx, w_ih, w_hh, b_ih, b_hh }: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>) {
        let mut after = Weights { w_ih, w_hh, b_ih, b_hh }.stepped(input, &hx, super::lstm_row);
        let cell = after.remove(1);
        (after.remove(0), cell)
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, rows: usize| {
            let states = [s.normal([rows, 2]), s.normal([rows, 2])];
            with(s.normal([rows, 3]), states, s.normal([8, 3]), s.normal([8, 2]))
        };
        s.case(of(s, 4));
        s.case(of(s, 2).b_ih(s.normal([8])).b_hh(s.normal([8])));
        s.case(of(s, 0));
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |e: &ErrorSamples, states: usize, matrix: &[usize]| {
            let states: Vec<_> = (0..states).map(|_| e.of(DType::F32, [2, 2])).collect();
            with(e.of(DType::F32, [2, 3]), states, e.of(DType::F32, matrix), e.of(DType::F32, [8, 2]))
        };
        e.case(States, of(e, 1, &[8, 3]), "hx has 1 tensors, expected output and cell");
        e.case(Shapes, of(e, 2, &[6, 3]), "w_ih has shape [6, 3], expected [8, 3]");
        e.case(SameDType, of(e, 2, &[8, 3]).b_ih(e.of(DType::F64, [8])), "b_ih is f64, input is f32");
    }
}
