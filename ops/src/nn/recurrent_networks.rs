//! Recurrent networks of several layers over sequences, unrolled: each step of a layer is lines of its own in the
//! trace.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition};
use fulgurite_runtime::{Tensor, TensorMeta};

use super::{
    Step, StepOfRow, affine, gru_row, gru_step, linear, lstm_row, lstm_step, relu_row, relu_step, tanh_row, tanh_step,
};
use crate::core::arrays::permuted;
use crate::prims;

/// How the layers of a network are put together.
#[derive(Clone, Copy)]
struct Form {
    has_biases: bool,
    layers: usize,
    bidirectional: bool,
    batch_first: bool,
}

impl Form {
    fn directions(self) -> usize {
        1 + usize::from(self.bidirectional)
    }
    /// The parameters of one layer in one direction.
    fn parameters(self) -> usize {
        if self.has_biases { 4 } else { 2 }
    }
}

/// The most layers, so that no count of theirs overflows.
const MOST_LAYERS: usize = 1 << 10;

/// For metas: fails unless input, states and parameters are those of a network of cells of `gates` gates.
fn fits(
    input: &TensorMeta,
    states: &[&TensorMeta],
    params: &[&TensorMeta],
    form: Form,
    gates: usize,
    [of_input, of_states, of_params]: [Precondition; 3],
) -> Result<(), Failure> {
    let shape = input.shape();
    let (steps, rows, inputs) = match (shape, form.batch_first) {
        ([steps, rows, inputs], false) | ([rows, steps, inputs], true) => (*steps, *rows, *inputs),
        _ => return Err(of_input.unmet(format_args!("input has shape {shape:?}, expected three dimensions"))),
    };
    if steps == 0 {
        return Err(of_input.unmet(format_args!("input has shape {shape:?}, expected at least one step")));
    }
    if !(1..=MOST_LAYERS).contains(&form.layers) {
        return Err(of_params.unmet(format_args!("num_layers is {}, expected 1 to {MOST_LAYERS}", form.layers)));
    }
    let lines = form.layers * form.directions();
    let width = states.first().and_then(|state| state.shape().last().copied()).unwrap_or(0);
    for state in states {
        let expected = [lines, rows, width];
        if state.shape() != expected || state.dtype() != input.dtype() {
            let own = input.dtype();
            return Err(of_states.unmet(format_args!("hx is {state}, expected {own}{expected:?}")));
        }
    }
    if params.len() != lines * form.parameters() {
        let (count, expected) = (params.len(), lines * form.parameters());
        return Err(of_params.unmet(format_args!("params has {count} tensors, expected {expected}")));
    }
    for (line, params) in params.chunks(form.parameters()).enumerate() {
        let inputs = if line < form.directions() { inputs } else { form.directions() * width };
        let all = [vec![gates * width, inputs], vec![gates * width, width], vec![gates * width], vec![gates * width]];
        for (i, (param, expected)) in params.iter().zip(&all).enumerate() {
            if param.shape() != expected || param.dtype() != input.dtype() {
                let (number, own) = (line * form.parameters() + i, input.dtype());
                let message = format_args!("params[{number}] is {param}, expected {own}{expected:?}");
                return Err(of_params.unmet(message));
            }
        }
    }
    Ok(())
}

/// The outputs of the last layer and the states after the last step, one tensor `[lines, N, H]` for each state.
#[track_caller]
fn run(input: Tensor, states: &[Tensor], params: &[Tensor], form: Form, step: Step) -> (Tensor, Vec<Tensor>) {
    let (count, width) = (states.len(), states[0].shape()[2]);
    let mut sequence = if form.batch_first { prims::permute(input, [1, 0, 2]) } else { input };
    let (steps, rows) = (sequence.shape()[0], sequence.shape()[1]);
    let slice = |from: Tensor, i: usize| {
        let shape = from.shape().to_vec();
        let part = prims::slice(from, [i, 0, 0], [i + 1, shape[1], shape[2]], [1, 1, 1]);
        prims::reshape(part, &shape[1..])
    };
    let mut last: Vec<Vec<Tensor>> = vec![Vec::new(); count];
    for layer in 0..form.layers {
        let mut outputs = Vec::new();
        for direction in 0..form.directions() {
            let line = layer * form.directions() + direction;
            let own = &params[line * form.parameters()..(line + 1) * form.parameters()];
            let (w_ih, w_hh) = (own[0], own[1]);
            let (b_ih, b_hh) = (own.get(2).copied(), own.get(3).copied());
            // The products of all steps are one.
            let of_input = linear::with(sequence, w_ih).bias(b_ih).call();
            let mut state: Vec<Tensor> = states.iter().map(|all| slice(*all, line)).collect();
            let mut all = Vec::new();
            for at in 0..steps {
                let at = if direction == 0 { at } else { steps - 1 - at };
                let of_state = linear::with(state[0], w_hh).bias(b_hh).call();
                state = step(slice(of_input, at), of_state, &state);
                all.push(prims::reshape(state[0], [1, rows, width]));
            }
            if direction == 1 {
                all.reverse();
            }
            outputs.push(if steps == 1 { all[0] } else { prims::cat(all, 0) });
            last.iter_mut().zip(&state).for_each(|(last, state)| {
                last.push(prims::reshape(*state, [1, rows, width]));
            });
        }
        sequence = if outputs.len() == 1 { outputs[0] } else { prims::cat(outputs, 2) };
    }
    let out = if form.batch_first { prims::permute(sequence, [1, 0, 2]) } else { sequence };
    let joined = |all: Vec<Tensor>| if all.len() == 1 { all[0] } else { prims::cat(all, 0) };
    (out, last.into_iter().map(joined).collect())
}

/// For references: as [`run`], row by row and step by step.
fn by_hand(
    input: &ArrayD<f64>,
    states: &[&ArrayD<f64>],
    params: &[&ArrayD<f64>],
    form: Form,
    step: StepOfRow,
) -> (ArrayD<f64>, Vec<ArrayD<f64>>) {
    let turned = |x: &ArrayD<f64>| permuted(x, &[1, 0, 2]);
    let sequence = if form.batch_first { turned(input) } else { input.clone() };
    let (steps, rows) = (sequence.shape()[0], sequence.shape()[1]);
    let (width, directions) = (states[0].shape()[2], form.directions());
    let mut last: Vec<ArrayD<f64>> = states.iter().map(|state| ArrayD::zeros(state.raw_dim())).collect();
    let mut out = ArrayD::zeros(ndarray::IxDyn(&[steps, rows, directions * width]));
    for row in 0..rows {
        let of = |x: &ArrayD<f64>, i: usize| (0..x.shape()[2]).map(|j| x[[i, row, j]]).collect::<Vec<f64>>();
        let mut line: Vec<Vec<f64>> = (0..steps).map(|at| of(&sequence, at)).collect();
        for layer in 0..form.layers {
            let mut outputs: Vec<Vec<f64>> = vec![Vec::new(); steps];
            for direction in 0..directions {
                let number = layer * directions + direction;
                let own = &params[number * form.parameters()..];
                let bias = |i: usize| form.has_biases.then(|| own[i]);
                let mut state: Vec<Vec<f64>> = states.iter().map(|all| of(all, number)).collect();
                for at in 0..steps {
                    let at = if direction == 0 { at } else { steps - 1 - at };
                    let of_input = affine(&line[at], own[0], bias(2));
                    let of_state = affine(&state[0], own[1], bias(3));
                    state = step(&of_input, &of_state, &state);
                    outputs[at].extend(&state[0]);
                }
                for (last, state) in last.iter_mut().zip(&state) {
                    state.iter().enumerate().for_each(|(j, x)| last[[number, row, j]] = *x);
                }
            }
            line = outputs;
        }
        for (at, values) in line.iter().enumerate() {
            values.iter().enumerate().for_each(|(j, x)| out[[at, row, j]] = *x);
        }
    }
    (if form.batch_first { turned(&out) } else { out }, last)
}

// Declares networks of cells with one state.
operators! {
    #[operator(
        torch = $torch,
        autocast = low,
        waive(
            dropout = "nothing is drawn: it is refused where it would be",
            train = "it says whether dropout is, which is refused"
        )
    )]
    pub mod $name {
        #[results(output, h_n)]
        fn $name(
            input: Tensor<Floating>,
            hx: Tensor<Floating>,
            params: Vec<Tensor<Floating>>,
            has_biases: bool,
            num_layers: usize,
            dropout: f64,
            train: bool,
            bidirectional: bool,
            batch_first: bool,
        ) -> (Tensor, Tensor);

        fn requires(args: Args<&TensorMeta>) -> Result<()> {
            let Args { input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first } = args;
            let drops = train && dropout != 0.0 && num_layers > 1;
            require!(!drops, Dropout, "dropout is {dropout}, expected 0 while training: nothing is drawn here");
            let form = Form { has_biases, layers: num_layers, bidirectional, batch_first };
            super::fits(input, &[hx], &params, form, $gates, [Code::Input, Code::State, Code::Parameters])
        }

        fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
            let Args { input, hx, params, has_biases, num_layers, dropout: _, train: _, bidirectional, batch_first } =
                args;
            let form = Form { has_biases, layers: num_layers, bidirectional, batch_first };
            let (output, last) = super::run(input, &[hx], &params, form, $step);
            (output, last[0])
        }

        fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>) {
            let Args { input, hx, params, has_biases, num_layers, bidirectional, batch_first, .. } = args;
            let form = Form { has_biases, layers: num_layers, bidirectional, batch_first };
            let (output, mut last) = super::by_hand(input, &[hx], &params, form, $row);
            (output, last.remove(0))
        }

        fn samples(s: &mut Samples) {
            let weights = |s: &Samples, inputs: usize| {
                [vec![$rows, inputs], vec![$rows, 2], vec![$rows], vec![$rows]].map(|d| s.normal(d))
            };
            let plain = weights(s, 3);
            s.case(with(s.normal([3, 2, 3]), s.normal([1, 2, 2]), plain, true, 1, 0.0, true, false, false));
            let two: Vec<_> = [3, 3, 4, 4].iter().flat_map(|n| weights(s, *n).into_iter().take(2)).collect();
            s.case(with(s.normal([1, 2, 3]), s.normal([4, 1, 2]), two, false, 2, 0.5, false, true, true));
            // Nothing is dropped behind the last layer.
            let single = weights(s, 3);
            s.case(with(s.normal([2, 2, 3]), s.normal([1, 2, 2]), single, true, 1, 0.5, true, false, false));
        }

        fn errors(e: &mut ErrorSamples) {
            let of = |e: &ErrorSamples, input: &[usize], state: &[usize], layers: usize, dropout: f64| {
                let params = [vec![$rows, 3], vec![$rows, 2]].map(|d| e.normal(d));
                with(e.normal(input), e.normal(state), params, false, layers, dropout, true, false, false)
            };
            e.case(Dropout, of(e, &[3, 2, 3], &[2, 2, 2], 2, 0.5), "dropout is 0.5, expected 0");
            e.case(Dropout, of(e, &[3, 2, 3], &[2, 2, 2], 2, 0.25), "dropout is 0.25, expected 0");
            e.case(Input, of(e, &[2, 3], &[1, 2, 2], 1, 0.0), "input has shape [2, 3], expected three dimensions");
            e.case(Input, of(e, &[0, 2, 3], &[1, 2, 2], 1, 0.0), "expected at least one step");
            e.case(State, of(e, &[3, 2, 3], &[1, 3, 2], 1, 0.0), "expected ");
            e.case(Parameters, of(e, &[3, 2, 3], &[2, 2, 2], 2, 0.0), "params has 2 tensors, expected 4");
            e.case(Parameters, of(e, &[3, 2, 4], &[1, 2, 2], 1, 0.0), "params[0] is ");
            e.case(Parameters, of(e, &[3, 2, 3], &[1, 2, 2], 0, 0.0), "num_layers is 0");
        }
    }

    table($name, $torch, $gates, $rows, $step, $row) {
        /// The outputs of all steps and the states after the last one of a network of
        /// [`rnn_tanh_cell`](super::rnn_tanh_cell): input [T, N, in] ([N, T, in] if `batch_first`), states [layers ·
        /// directions, N, H], and for each layer and direction the weights and, if `has_biases`, the biases of the cell
        /// in `params`. Each layer but the first has the outputs of the one before as its input; of two directions the
        /// second goes from the last step to the first, and both outputs are side by side. Dropout between the layers
        /// is refused: nothing is drawn here.
        rnn_tanh, "rnn_tanh", 1, 2, tanh_step, tanh_row;
        /// [`mod@rnn_tanh`] of [`rnn_relu_cell`](super::rnn_relu_cell).
        rnn_relu, "rnn_relu", 1, 2, relu_step, relu_row;
        /// [`mod@rnn_tanh`] of [`gru_cell`](super::gru_cell).
        gru, "gru", 3, 6, gru_step, gru_row;
    }
}

/// [`mod@rnn_tanh`] of [`lstm_cell`](super::lstm_cell): `hx` are outputs and cells before, and both are results of the
/// last step.
#[operator(
    torch = "lstm",
    autocast = low,
    waive(
        dropout = "nothing is drawn: it is refused where it would be",
        train = "it says whether dropout is, which is refused"
    )
)]
pub mod lstm {
    #[results(output, h_n, c_n)]
    fn lstm(
        input: Tensor<Floating>,
        hx: Vec<Tensor<Floating>>,
        params: Vec<Tensor<Floating>>,
        has_biases: bool,
        num_layers: usize,
        dropout: f64,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> (Tensor, Tensor, Tensor);

    fn requires(args: Args<&TensorMeta>) -> Result<()> {
        let Args { input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first } = args;
        let drops = train && dropout != 0.0 && num_layers > 1;
        require!(!drops, Dropout, "dropout is {dropout}, expected 0 while training: nothing is drawn here");
        require!(hx.len() == 2, State, "hx has {} tensors, expected outputs and cells", hx.len());
        let form = Form { has_biases, layers: num_layers, bidirectional, batch_first };
        super::fits(input, &hx, &params, form, 4, [Code::Input, Code::State, Code::Parameters])
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { input, hx, params, has_biases, num_layers, dropout: _, train: _, bidirectional, batch_first } = args;
        let form = Form { has_biases, layers: num_layers, bidirectional, batch_first };
        let (output, last) = super::run(input, &hx, &params, form, lstm_step);
        (output, last[0], last[1])
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { input, hx, params, has_biases, num_layers, bidirectional, batch_first, .. } = args;
        let form = Form { has_biases, layers: num_layers, bidirectional, batch_first };
        let (output, mut last) = super::by_hand(input, &hx, &params, form, lstm_row);
        let cells = last.remove(1);
        (output, last.remove(0), cells)
    }

    fn samples(s: &mut Samples) {
        let weights =
            |s: &Samples, inputs: usize| [vec![8, inputs], vec![8, 2], vec![8], vec![8]].map(|shape| s.normal(shape));
        let states = |s: &Samples, lines: usize, rows: usize| [s.normal([lines, rows, 2]), s.normal([lines, rows, 2])];
        let plain = weights(s, 3);
        s.case(with(s.normal([3, 2, 3]), states(s, 1, 2), plain, true, 1, 0.0, true, false, false));
        let two: Vec<_> = [3, 3, 4, 4].iter().flat_map(|n| weights(s, *n).into_iter().take(2)).collect();
        s.case(with(s.normal([1, 2, 3]), states(s, 4, 1), two, false, 2, 0.5, false, true, true));
        let single = weights(s, 3);
        s.case(with(s.normal([2, 2, 3]), states(s, 1, 2), single, true, 1, 0.5, true, false, false));
    }

    fn errors(e: &mut ErrorSamples) {
        let of = |e: &ErrorSamples, input: &[usize], states: usize, layers: usize, dropout: f64| {
            let states: Vec<_> = (0..states).map(|_| e.normal([1, 2, 2])).collect();
            let params = [vec![8, 3], vec![8, 2]].map(|shape| e.normal(shape));
            with(e.normal(input), states, params, false, layers, dropout, true, false, false)
        };
        e.case(Dropout, of(e, &[3, 2, 3], 2, 2, 0.5), "dropout is 0.5, expected 0");
        e.case(Dropout, of(e, &[3, 2, 3], 2, 2, 0.25), "dropout is 0.25, expected 0");
        e.case(Input, of(e, &[2, 3], 2, 1, 0.0), "input has shape [2, 3], expected three dimensions");
        e.case(State, of(e, &[3, 2, 3], 1, 1, 0.0), "hx has 1 tensors");
        e.case(State, of(e, &[3, 4, 3], 2, 1, 0.0), "expected ");
        e.case(Parameters, of(e, &[3, 2, 4], 2, 1, 0.0), "params[0] is ");
        let states = vec![e.normal([2, 2, 2]), e.normal([2, 2, 2])];
        let params = [[8, 3], [8, 2], [8, 3], [8, 2]].map(|shape| e.normal(shape));
        let second = with(e.normal([3, 2, 3]), states, params, false, 2, 0.0, true, false, false);
        e.case(Parameters, second, "params[2] is ");
    }
}
