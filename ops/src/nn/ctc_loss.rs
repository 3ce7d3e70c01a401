//! The loss of connectionist temporal classification: sequences of classes whose places in a longer sequence of
//! probabilities nobody has written down. Graves et al., "Connectionist Temporal Classification", 2006.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::{ArrayD, Failure, IxDyn, Precondition};
use fulgurite_runtime::{DType, Tensor, TensorMeta};

use super::Reduction;
use crate::core::promotion::{accumulating, broadcast, cast, constant_like};
use crate::core::{logaddexp, read_as};
use crate::prims;
use crate::prims::support::zeros;

/// Positions 0, 1, ... along dimension `dim` of a tensor of shape `shape`.
#[track_caller]
fn places(like: Tensor, shape: [usize; 2], dim: usize) -> Tensor {
    let line = prims::iota(shape[dim], 0i64, 1i64, DType::I64, like.device());
    prims::broadcast_in_dim(line, shape, [dim])
}

/// A number for each sequence in every element of a row: [N] as [N, width].
#[track_caller]
fn in_rows(numbers: Tensor, width: usize) -> Tensor {
    prims::broadcast_in_dim(numbers, [numbers.size(0), width], [0])
}

/// What paths go through: at each step one of the states blank, first class, blank, second class, ..., blank.
struct Lattice {
    /// Logarithms of probabilities, [N, T, C].
    log_probs: Tensor,
    /// The class of each state, [N, L] with L = 2 S + 1; those behind the last state of a sequence are blank.
    labels: Tensor,
    /// The number of steps of each sequence, and of its states, [N].
    steps: Tensor,
    states: Tensor,
    /// What each state emits at each step, [N, T, L].
    emissions: Tensor,
}

impl Lattice {
    #[track_caller]
    fn new(log_probs: Tensor, targets: Tensor, [input_lengths, target_lengths]: [Tensor; 2], blank: usize) -> Lattice {
        let [batch, width] = [targets.size(0), targets.size(1)];
        let [targets, steps, lengths] = [targets, input_lengths, target_lengths].map(|own| cast(own, DType::I64));
        let is_class = prims::lt(places(targets, [batch, width], 1), in_rows(lengths, width));
        let classes = read_as(prims::select(is_class, targets, blank as i64), &[batch, width, 1]);
        let pairs = prims::cat([constant_like(classes, blank as i64), classes], 2);
        let last = prims::full([batch, 1], blank as i64, DType::I64, targets.device());
        let labels = prims::cat([read_as(pairs, &[batch, 2 * width]), last], 1);
        let log_probs = prims::permute(accumulating(log_probs), [1, 0, 2]);
        let states = prims::add(prims::mul(lengths, 2), 1);
        let emissions = prims::gather(log_probs, 2, each_step(labels, log_probs.size(1)));
        Lattice { log_probs, labels, steps, states, emissions }
    }

    /// The logarithms of the probabilities of all beginnings that end in a state at a step, [N, T, L].
    #[track_caller]
    fn beginnings(&self) -> Tensor {
        path_sums(self.emissions, self.labels)
    }

    /// The negative logarithms of the probabilities of the targets, [N], from those of the beginnings: of all that end
    /// in one of the last two states at the last step. Without steps there is nothing but an empty target.
    #[track_caller]
    fn losses(&self, beginnings: Tensor) -> Tensor {
        let (batch, width) = (self.labels.size(0), self.labels.size(1));
        let column = |tensor: Tensor| read_as(tensor, &[batch, 1]);
        let has_none = prims::eq(self.steps, 0);
        let last = prims::select(has_none, 0, prims::sub(self.steps, 1));
        let at_last = prims::broadcast_in_dim(last, [batch, 1, width], [0]);
        let row = read_as(prims::gather(beginnings, 1, at_last), &[batch, width]);
        let is_empty = prims::eq(self.states, 1);
        let end = |place: Tensor| read_as(prims::gather(row, 1, column(place)), &[batch]);
        let blank = end(prims::sub(self.states, 1));
        let class = end(prims::select(is_empty, 0, prims::sub(self.states, 2)));
        let class = prims::select(is_empty, f64::NEG_INFINITY, class);
        let nothing = prims::select(is_empty, constant_like(blank, 0.0), f64::INFINITY);
        prims::select(has_none, nothing, prims::neg(logaddexp(blank, class)))
    }

    /// Of each class at each step the probability that a path of the target is there, [N, T, C], from the beginnings
    /// and the losses. Ends are the beginnings of the sequences read backwards.
    #[track_caller]
    fn occupancy(&self, beginnings: Tensor, losses: Tensor) -> Tensor {
        let Lattice { log_probs, labels, steps, states, emissions } = *self;
        let [batch, count, width] = [0, 1, 2].map(|dim| emissions.size(dim));
        let backwards = |numbers: Tensor, extent: usize| {
            let from_end = prims::sub(in_rows(numbers, extent), places(numbers, [batch, extent], 1));
            prims::maximum(prims::sub(from_end, 1), 0)
        };
        let (step, state) = (backwards(steps, count), backwards(states, width));
        let reversed = |tensor: Tensor| {
            let at_step = prims::broadcast_in_dim(step, [batch, count, width], [0, 1]);
            prims::gather(prims::gather(tensor, 1, at_step), 2, each_step(state, count))
        };
        let ends = reversed(path_sums(reversed(emissions), prims::gather(labels, 1, state)));
        let is_step = prims::lt(places(steps, [batch, count], 1), in_rows(steps, count));
        let is_state = prims::lt(places(states, [batch, width], 1), in_rows(states, width));
        let is_step = prims::broadcast_in_dim(is_step, [batch, count, width], [0, 1]);
        let inside = prims::logical_and(is_step, each_step(is_state, count));
        let has_paths = |sums: Tensor| prims::ne(sums, f64::NEG_INFINITY);
        let inside = prims::logical_and(inside, prims::logical_and(has_paths(beginnings), has_paths(ends)));
        let whole = prims::sub(prims::add(beginnings, ends), emissions);
        let share = prims::exp(prims::add(whole, prims::broadcast_in_dim(losses, [batch, count, width], [0])));
        let share = prims::select(inside, share, 0.0);
        prims::scatter_add(zeros(&log_probs.meta()), 2, each_step(labels, count), share)
    }
}

/// The sums over paths through states of these classes. Only two different classes may follow each other directly; a
/// blank between equal ones tells them apart.
#[track_caller]
fn path_sums(emissions: Tensor, labels: Tensor) -> Tensor {
    let [batch, width] = [labels.size(0), labels.size(1)];
    let none = prims::full([batch, width.min(2)], false, DType::Bool, labels.device());
    let skips = if width <= 2 {
        none
    } else {
        let part = |start: usize, end: usize| prims::slice(labels, [0, start], [batch, end], [1, 1]);
        prims::cat([none, prims::ne(part(2, width), part(0, width - 2))], 1)
    };
    prims::log_path_sums(emissions, skips)
}

/// A row of each sequence for each of its steps: [N, L] as [N, T, L].
#[track_caller]
fn each_step(rows: Tensor, count: usize) -> Tensor {
    prims::broadcast_in_dim(rows, [rows.size(0), count, rows.size(1)], [0, 2])
}

/// Negative logarithms of the probabilities of `targets` [N, S], by the probabilities of classes whose logarithms are
/// `log_probs` [T, N, C]: of all sequences of `input_lengths` classes that become `target_lengths` classes of the
/// target where repetitions and then blanks are dropped. Infinite where there are none. The cotangent of `log_probs` is
/// that of PyTorch: the probability of a class less that of its being on a path, which follows if the probabilities of
/// a step have the sum 1, and which a `log_softmax` before it takes for the slope. It is NaN where the loss is
/// infinite, unless the cotangent of that loss is 0. Lengths out of range are errors when the program runs.
#[operator(
    autocast = full,
    skip(gradient, decomposition, dtype = f64, reason = "as in PyTorch it is the slope among probabilities of sum 1")
)]
pub mod ctc_negative_log_likelihood {
    fn ctc_negative_log_likelihood(
        log_probs: Tensor<Floating>,
        targets: Tensor<Integer>,
        input_lengths: Tensor<Integer>,
        target_lengths: Tensor<Integer>,
        blank: usize,
    ) -> Tensor;

    fn requires(Args { log_probs, targets, input_lengths, target_lengths, blank }: Args<&TensorMeta>) -> Result<()> {
        let shape = log_probs.shape();
        require!(
            shape.len() == 3 && !shape.contains(&0),
            LogProbsShape,
            "log_probs has shape {shape:?}, expected steps, sequences and classes"
        );
        require!(
            targets.rank() == 2 && targets.shape()[0] == shape[1],
            TargetsShape,
            "targets has shape {:?}, expected classes for each of {} sequences",
            targets.shape(),
            shape[1]
        );
        let all = [("input_lengths", input_lengths), ("target_lengths", target_lengths)];
        super::fit([all[0], all[1]], shape[1], Code::Lengths)?;
        require!(blank < shape[2], Blank, "blank is {blank}, expected a class below {}", shape[2]);
        Ok(())
    }

    fn decomposition(Args { log_probs, targets, input_lengths, target_lengths, blank }: Args<Tensor>) -> Tensor {
        let lattice = Lattice::new(log_probs, targets, [input_lengths, target_lengths], blank);
        cast(lattice.losses(lattice.beginnings()), log_probs.dtype())
    }

    fn grad(
        Args { log_probs, targets, input_lengths, target_lengths, blank }: Args<Tensor>,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let lattice = Lattice::new(log_probs, targets, [input_lengths, target_lengths], blank);
        let beginnings = lattice.beginnings();
        let losses = lattice.losses(beginnings);
        (cast(losses, log_probs.dtype()), move |d_out: Tensor| {
            let own = lattice.log_probs.meta();
            let of_each = |tensor: Tensor| prims::broadcast_in_dim(tensor, own.shape(), [0]);
            let d_out = cast(d_out, own.dtype());
            let expected = prims::sub(prims::exp(lattice.log_probs), lattice.occupancy(beginnings, losses));
            let undefined = prims::select(prims::eq(d_out, 0.0), constant_like(d_out, 0.0), f64::NAN);
            let impossible = prims::eq(losses, f64::INFINITY);
            let d = prims::select(of_each(impossible), of_each(undefined), prims::mul(expected, of_each(d_out)));
            let count = own.shape()[1];
            let is_step = prims::lt(
                super::places(lattice.steps, [own.shape()[0], count], 1),
                super::in_rows(lattice.steps, count),
            );
            let d = prims::select(prims::broadcast_in_dim(is_step, own.shape(), [0, 1]), d, 0.0);
            Grads { log_probs: cast(prims::permute(d, [1, 0, 2]), log_probs.dtype()) }
        })
    }

    fn reference(
        Args { log_probs, targets, input_lengths, target_lengths, blank }: Args<&ReferenceTensor>,
    ) -> Result<ArrayD<f64>> {
        super::by_hand(log_probs, targets, [input_lengths, target_lengths], blank)
    }

    fn samples(s: &mut Samples) {
        let lengths = |s: &Samples, values: &[f64]| s.values([values.len()], values).cast(DType::I64);
        let targets = s.values([2, 3], [1.0, 1.0, 3.0, 2.0, 9.0, -1.0]).cast(DType::I64);
        let [steps, classes] = [lengths(s, &[6.0, 4.0]), lengths(s, &[3.0, 1.0])];
        s.case(with(s.normal([6, 2, 4]), targets, steps, classes, 0));
        let [steps, classes] = [lengths(s, &[0.0, 3.0]), lengths(s, &[0.0, 0.0])];
        let none = s.integers(0, 1, [2, 0]);
        s.case(with(s.normal([3, 2, 2]), none, steps.cast(DType::I32), classes.cast(DType::I32), 1));
        let impossible = s.values([2, 2], [0.0, 0.0, 1.0, 0.0]).cast(DType::I32);
        let [steps, classes] = [lengths(s, &[2.0, 0.0]), lengths(s, &[2.0, 1.0])];
        s.case(with(s.normal([2, 2, 3]), impossible, steps, classes, 2)).forward_only("infinite");
        // Room for one class: no state is two behind another.
        let one = s.values([2, 1], [2.0, 1.0]).cast(DType::I64);
        let [steps, classes] = [lengths(s, &[3.0, 2.0]), lengths(s, &[1.0, 1.0])];
        s.case(with(s.normal([3, 2, 3]), one, steps, classes, 0));
    }

    fn errors(e: &mut ErrorSamples) {
        let lengths = |count: usize, value: f64| e.values([count], [value]).cast(DType::I64);
        let classes = || e.integers(1, 3, [2, 2]);
        let call = |shape: &[usize]| with(e.normal(shape), classes(), lengths(2, 2.0), lengths(2, 1.0), 0);
        e.case(LogProbsShape, call(&[4, 2]), "log_probs has shape [4, 2]");
        e.case(LogProbsShape, call(&[0, 2, 3]), "log_probs has shape [0, 2, 3]");
        e.case(TargetsShape, call(&[4, 3, 3]), "expected classes for each of 3 sequences");
        let own = || e.normal([4, 2, 3]);
        let few = with(own(), classes(), lengths(1, 2.0), lengths(2, 1.0), 0);
        e.case(Lengths, few, "input_lengths has shape [1], expected a number for each of 2 sequences");
        let few = with(own(), classes(), lengths(2, 2.0), lengths(3, 1.0), 0);
        e.case(Lengths, few, "target_lengths has shape [3]");
        let beyond = with(own(), classes(), lengths(2, 2.0), lengths(2, 1.0), 3);
        e.case(Blank, beyond, "blank is 3, expected a class below 3");
        for (steps, number) in [(5.0, 1.0), (-1.0, 1.0), (4.0, 3.0), (4.0, -1.0)] {
            let call = with(own(), classes(), lengths(2, steps), lengths(2, number), 0);
            e.when_run("IndexOutOfRange", call, "out of range");
        }
        let class = e.values([2, 2], [3.0]).cast(DType::I64);
        e.when_run("IndexOutOfRange", with(own(), class, lengths(2, 4.0), lengths(2, 1.0), 0), "of size 3");
    }
}

/// For metas: fails with the caller's code unless both have a number for each sequence.
fn fit(lengths: [(&str, &TensorMeta); 2], sequences: usize, code: Precondition) -> Result<(), Failure> {
    for (name, own) in lengths {
        if own.rank() > 1 || own.len() != sequences {
            let shape = own.shape();
            let expected =
                format_args!("{name} has shape {shape:?}, expected a number for each of {sequences} sequences");
            return Err(code.unmet(expected));
        }
    }
    Ok(())
}

/// For references: the losses by the probabilities that the first classes of a target are there, and that what is there
/// ends in a blank or in the last of them.
fn by_hand(
    log_probs: &ArrayD<f64>,
    targets: &ArrayD<i64>,
    [input_lengths, target_lengths]: [&ArrayD<i64>; 2],
    blank: usize,
) -> Result<ArrayD<f64>, Failure> {
    let [steps, batch, classes] = [0, 1, 2].map(|dim| log_probs.shape()[dim]);
    let out_of_range = |what: &str, value: i64| {
        Err(Failure::new("IndexOutOfRange", format!("{what} holds {value}, which is out of range")))
    };
    let mut losses = Vec::new();
    let lengths = input_lengths.iter().copied().zip(target_lengths.iter().copied());
    for (n, (step_count, class_count)) in lengths.enumerate() {
        if !(0..=steps as i64).contains(&step_count) {
            return out_of_range("input_lengths", step_count);
        }
        if !(0..=targets.shape()[1] as i64).contains(&class_count) {
            return out_of_range("target_lengths", class_count);
        }
        let own: Vec<i64> = (0..class_count as usize).map(|i| targets[[n, i]]).collect();
        if let Some(class) = own.iter().find(|class| !(0..classes as i64).contains(class)) {
            return Err(Failure::new("IndexOutOfRange", format!("targets holds {class}, of size {classes}")));
        }
        let mut in_blank = vec![0.0; own.len() + 1];
        let mut in_class = vec![0.0; own.len() + 1];
        in_blank[0] = 1.0;
        for t in 0..step_count as usize {
            let probability = |class: usize| log_probs[[t, n, class]].exp();
            for k in (0..=own.len()).rev() {
                let stays = in_blank[k] + in_class[k];
                in_class[k] = match k {
                    0 => 0.0,
                    k => {
                        let may_follow = k > 1 && own[k - 1] != own[k - 2];
                        let before = in_blank[k - 1] + if may_follow { in_class[k - 1] } else { 0.0 };
                        probability(own[k - 1] as usize) * (in_class[k] + before)
                    }
                };
                in_blank[k] = probability(blank) * stays;
            }
        }
        losses.push(-(in_blank[own.len()] + in_class[own.len()]).ln());
    }
    Ok(crate::core::arrays::array(&[batch], losses))
}

/// Targets that follow each other in `line` as rows: [N, width], with as many classes as `lengths` says and zeros.
#[track_caller]
fn in_lines(line: Tensor, lengths: Tensor, width: usize) -> Tensor {
    let batch = lengths.size(0);
    let first = prims::sub(prims::cumsum(lengths, 0), lengths);
    let at = places(line, [batch, width], 1);
    let is_class = prims::lt(at, in_rows(lengths, width));
    let place = prims::select(is_class, prims::add(in_rows(first, width), at), 0);
    read_as(prims::index_select(line, 0, read_as(place, &[batch * width])), &[batch, width])
}

/// The loss of connectionist temporal classification of `log_probs` [T, N, C], or [T, C] of a single sequence: the
/// negative logarithms of the probabilities of `targets`, reduced. `targets` is [N, S], of which the first
/// `target_lengths` count, or one line with the classes of one sequence after another. A mean is that of the losses
/// divided by the lengths of their targets (or 1). With `zero_infinity` what is impossible costs nothing and has no
/// gradient. The gradient is that of PyTorch: see [`mod@ctc_negative_log_likelihood`]. For lengths that are no tensors
/// see [`mod@ctc_loss_of_lengths`]; a line of targets of several sequences takes less memory there. f16 and bf16 are
/// computed in f32. Lengths and classes out of range are errors when the program runs.
#[operator(
    torch = "nn.functional.ctc_loss",
    autocast = full,
    skip(gradient, dtype = f64, reason = "as in PyTorch it is the slope among probabilities of sum 1")
)]
pub mod ctc_loss {
    fn ctc_loss(
        log_probs: Tensor<Floating>,
        targets: Tensor<Integer>,
        input_lengths: Tensor<Integer>,
        target_lengths: Tensor<Integer>,
        #[default(0)] blank: i64,
        #[default(Reduction::Mean)] reduction: Reduction,
        #[default(false)] zero_infinity: bool,
    ) -> Tensor;

    fn requires(
        Args { log_probs, targets, input_lengths, target_lengths, blank, .. }: Args<&TensorMeta>,
    ) -> Result<()> {
        let codes = [Code::LogProbsShape, Code::TargetsShape, Code::Blank];
        let sequences = super::sequences(log_probs, targets, blank, codes)?;
        super::fit([("input_lengths", input_lengths), ("target_lengths", target_lengths)], sequences, Code::Lengths)
    }

    fn decomposition(
        Args { log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity }: Args<Tensor>,
    ) -> Tensor {
        let (shape, dtype) = (log_probs.shape().to_vec(), log_probs.dtype());
        let (steps, classes, is_single) = (shape[0], shape[shape.len() - 1], shape.len() == 2);
        let batch = if is_single { 1 } else { shape[1] };
        let lengths = [input_lengths, target_lengths].map(|own| read_as(cast(own, DType::I64), &[batch]));
        let targets = match targets.rank() {
            2 => targets,
            _ if batch == 1 => read_as(targets, &[1, targets.size(0)]),
            _ => super::in_lines(targets, lengths[1], targets.size(0)),
        };
        let batched = read_as(accumulating(log_probs), &[steps, batch, classes]);
        let losses = ctc_negative_log_likelihood(batched, targets, lengths[0], lengths[1], blank as usize);
        let losses = match zero_infinity {
            true => prims::select(prims::eq(losses, f64::INFINITY), 0.0, losses),
            false => losses,
        };
        let reduced = match reduction {
            Reduction::None if is_single => read_as(losses, &[]),
            Reduction::None => losses,
            Reduction::Sum => prims::sum(losses, [0]),
            Reduction::Mean => {
                let each = prims::div(losses, cast(prims::maximum(lengths[1], 1), losses.dtype()));
                prims::div(prims::sum(each, [0]), batch as f64)
            }
        };
        cast(reduced, dtype)
    }

    fn reference(
        Args { log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity }: Args<
            &ReferenceTensor,
        >,
    ) -> Result<ArrayD<f64>> {
        super::reduced_by_hand((log_probs, targets), [input_lengths, target_lengths], blank, (reduction, zero_infinity))
    }

    fn samples(s: &mut Samples) {
        let lengths = |s: &Samples, values: &[f64]| s.values([values.len()], values).cast(DType::I64);
        let both = |s: &Samples| (lengths(s, &[6.0, 4.0]), lengths(s, &[3.0, 1.0]));
        let rows = |s: &Samples| s.values([2, 3], [1.0, 1.0, 3.0, 2.0, 1.0, 1.0]).cast(DType::I64);
        let line = |s: &Samples| s.values([4], [1.0, 1.0, 3.0, 2.0]).cast(DType::I32);
        let call = |s: &Samples| {
            let (steps, classes) = both(s);
            with(s.normal([6, 2, 4]), rows(s), steps, classes)
        };
        s.case(call(s));
        s.case(call(s).reduction(Reduction::Sum).zero_infinity(true));
        let (steps, classes) = both(s);
        s.case(with(s.normal([6, 2, 4]), line(s), steps, classes).reduction(Reduction::None));
        // Blanks of another class, and a target that is longer than what there is.
        let impossible = |s: &Samples| {
            let classes = s.values([2, 3], [0.0, 2.0, 2.0, 0.0, 1.0, 0.0]).cast(DType::I64);
            with(s.normal([3, 2, 4]), classes, lengths(s, &[3.0, 3.0]), lengths(s, &[3.0, 2.0])).blank(3)
        };
        s.case(impossible(s).zero_infinity(true));
        s.case(impossible(s).reduction(Reduction::None)).forward_only("infinite");
        let single = |s: &Samples| s.values([2], [2.0, 1.0]).cast(DType::I64);
        let one = |s: &Samples, value: f64| s.values([], [value]).cast(DType::I64);
        s.case(with(s.normal([5, 3]), single(s), one(s, 4.0), one(s, 2.0)).reduction(Reduction::None));
        s.case(with(s.normal([5, 3]), s.integers(1, 3, [1, 2]), lengths(s, &[5.0]), lengths(s, &[0.0])));
    }

    fn errors(e: &mut ErrorSamples) {
        let lengths = |count: usize, value: f64| e.values([count], [value]).cast(DType::I64);
        let classes = || e.integers(1, 3, [2, 2]);
        let call = |shape: &[usize]| with(e.normal(shape), classes(), lengths(2, 2.0), lengths(2, 1.0));
        e.case(LogProbsShape, call(&[4]), "log_probs has shape [4]");
        e.case(LogProbsShape, call(&[4, 0, 3]), "log_probs has shape [4, 0, 3]");
        e.case(TargetsShape, call(&[4, 3, 3]), "expected a row for each of 3 sequences");
        e.case(TargetsShape, call(&[4, 3]), "expected a row for each of 1 sequences");
        e.case(Blank, call(&[4, 2, 3]).blank(3), "blank is 3, expected a class below 3");
        e.case(Blank, call(&[4, 2, 3]).blank(-1), "blank is -1");
        let few = with(e.normal([4, 2, 3]), classes(), lengths(1, 2.0), lengths(2, 1.0));
        e.case(Lengths, few, "input_lengths has shape [1]");
        let few = with(e.normal([4, 2, 3]), classes(), lengths(2, 2.0), lengths(1, 1.0));
        e.case(Lengths, few, "target_lengths has shape [1]");
        let long = with(e.normal([4, 2, 3]), e.integers(1, 3, [3]), lengths(2, 4.0), lengths(2, 2.0));
        e.when_run("IndexOutOfRange", long, "out of range");
    }
}

/// For metas: the number of sequences, if `log_probs`, `targets` and `blank` fit.
fn sequences(
    log_probs: &TensorMeta,
    targets: &TensorMeta,
    blank: i64,
    [log_probs_shape, targets_shape, blank_class]: [Precondition; 3],
) -> Result<usize, Failure> {
    let shape = log_probs.shape();
    if !matches!(shape.len(), 2 | 3) || shape.contains(&0) {
        let message = format_args!("log_probs has shape {shape:?}, expected steps, perhaps sequences, and classes");
        return Err(log_probs_shape.unmet(message));
    }
    let (sequences, classes) = (if shape.len() == 2 { 1 } else { shape[1] }, shape[shape.len() - 1]);
    if targets.rank() != 1 && (targets.rank() != 2 || targets.shape()[0] != sequences) {
        let own = targets.shape();
        return Err(targets_shape.unmet(format_args!(
            "targets has shape {own:?}, expected a row for each of {sequences} sequences, or all in one line"
        )));
    }
    if usize::try_from(blank).map_or(true, |blank| blank >= classes) {
        return Err(blank_class.unmet(format_args!("blank is {blank}, expected a class below {classes}")));
    }
    Ok(sequences)
}

/// For references: the losses of [`ctc_loss`].
fn reduced_by_hand(
    (log_probs, targets): (&ArrayD<f64>, &ArrayD<i64>),
    [input_lengths, target_lengths]: [&ArrayD<i64>; 2],
    blank: i64,
    (reduction, zero_infinity): (Reduction, bool),
) -> Result<ArrayD<f64>, Failure> {
    let is_single = log_probs.ndim() == 2;
    let batched = if is_single { log_probs.clone().insert_axis(ndarray::Axis(1)) } else { log_probs.clone() };
    let counts: Vec<i64> = target_lengths.iter().copied().collect();
    let rows = match targets.ndim() {
        2 => targets.clone(),
        _ => {
            let line: Vec<i64> = targets.iter().copied().collect();
            let first = |n: usize| counts[..n].iter().sum::<i64>() as usize;
            if first(counts.len()) > line.len() {
                return Err(Failure::new("IndexOutOfRange", "targets is out of range"));
            }
            let class = |n: usize, j: usize| if (j as i64) < counts[n] { line[first(n) + j] } else { 0 };
            ArrayD::from_shape_fn(IxDyn(&[counts.len(), line.len()]), |at| class(at[0], at[1]))
        }
    };
    let losses = by_hand(&batched, &rows, [input_lengths, target_lengths], blank as usize)?;
    let losses = losses.mapv(|loss| if zero_infinity && loss == f64::INFINITY { 0.0 } else { loss });
    let number = |value: f64| crate::core::arrays::array(&[], vec![value]);
    Ok(match reduction {
        Reduction::None if is_single => number(losses[[0]]),
        Reduction::None => losses,
        Reduction::Sum => number(losses.sum()),
        Reduction::Mean => {
            let each = losses.iter().zip(&counts).map(|(loss, count)| loss / (*count).max(1) as f64);
            number(each.sum::<f64>() / counts.len() as f64)
        }
    })
}

/// [`mod@ctc_loss`] with lengths that are known when the program is traced, which are checked then. A line of targets
/// takes no more memory than rows.
#[operator(
    autocast = full,
    skip(gradient, dtype = f64, reason = "as in PyTorch it is the slope among probabilities of sum 1")
)]
pub mod ctc_loss_of_lengths {
    fn ctc_loss_of_lengths(
        log_probs: Tensor<Floating>,
        targets: Tensor<Integer>,
        input_lengths: Vec<usize>,
        target_lengths: Vec<usize>,
        #[default(0)] blank: i64,
        #[default(Reduction::Mean)] reduction: Reduction,
        #[default(false)] zero_infinity: bool,
    ) -> Tensor;

    fn requires(
        Args { log_probs, targets, input_lengths, target_lengths, blank, .. }: Args<&TensorMeta>,
    ) -> Result<()> {
        let codes = [Code::LogProbsShape, Code::TargetsShape, Code::Blank];
        let sequences = super::sequences(log_probs, targets, blank, codes)?;
        let steps = log_probs.shape()[0];
        require!(
            input_lengths.len() == sequences && input_lengths.iter().all(|length| *length <= steps),
            InputLengths,
            "input_lengths is {input_lengths:?}, expected at most {steps} for each of {sequences} sequences"
        );
        let classes = targets.shape()[targets.rank() - 1];
        let fit = match targets.rank() {
            1 => target_lengths.iter().fold(0, |sum: usize, length| sum.saturating_add(*length)) <= classes,
            _ => target_lengths.iter().all(|length| *length <= classes),
        };
        require!(
            target_lengths.len() == sequences && fit,
            TargetLengths,
            "target_lengths is {target_lengths:?}, targets has shape {:?}, expected what is there for each of \
             {sequences} sequences",
            targets.shape()
        );
        Ok(())
    }

    fn decomposition(
        Args { log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity }: Args<Tensor>,
    ) -> Tensor {
        let numbers = |lengths: &[usize]| {
            let number = |length: usize| prims::full([1], length as i64, DType::I64, log_probs.device());
            match lengths.iter().all(|length| *length == lengths[0]) {
                true => broadcast(number(lengths[0]), &[lengths.len()]),
                false => prims::cat(lengths.iter().map(|length| number(*length)).collect::<Vec<Tensor>>(), 0),
            }
        };
        let (steps, counts) = (numbers(&input_lengths), numbers(&target_lengths));
        let targets = match targets.rank() {
            1 => super::in_lines(targets, counts, target_lengths.iter().copied().max().unwrap_or(0)),
            _ => targets,
        };
        let call = ctc_loss::with(log_probs, targets, steps, counts);
        call.blank(blank).reduction(reduction).zero_infinity(zero_infinity).call()
    }

    fn reference(
        Args { log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity }: Args<
            &ReferenceTensor,
        >,
    ) -> Result<ArrayD<f64>> {
        let numbers = |lengths: &[usize]| {
            crate::core::arrays::array(&[lengths.len()], lengths.iter().map(|length| *length as i64).collect())
        };
        let (steps, counts) = (numbers(&input_lengths), numbers(&target_lengths));
        super::reduced_by_hand((log_probs, targets), [&steps, &counts], blank, (reduction, zero_infinity))
    }

    fn samples(s: &mut Samples) {
        let line = s.values([4], [1.0, 1.0, 3.0, 2.0]).cast(DType::I64);
        s.case(with(s.normal([6, 2, 4]), line, [6, 4], [3, 1]).reduction(Reduction::None));
        let rows = s.values([2, 2], [0.0, 2.0, 1.0, 1.0]).cast(DType::I32);
        s.case(with(s.normal([3, 2, 4]), rows, [3, 2], [2, 2]).blank(3).zero_infinity(true));
        s.case(with(s.normal([5, 3]), s.integers(1, 3, [2]), [4], [2]).reduction(Reduction::Sum));
        s.case(with(s.normal([3, 2, 4]), s.integers(1, 4, [2, 2]), [3, 3], [1, 2]));
    }

    fn errors(e: &mut ErrorSamples) {
        let call = |shape: &[usize], steps: &[usize], counts: &[usize]| {
            with(e.normal(shape), e.integers(1, 3, [2, 2]), steps, counts)
        };
        e.case(LogProbsShape, call(&[4], &[4], &[1]), "log_probs has shape [4]");
        e.case(TargetsShape, call(&[4, 3, 3], &[4; 3], &[1; 3]), "expected a row for each of 3 sequences");
        e.case(Blank, call(&[4, 2, 3], &[4, 4], &[1, 1]).blank(3), "blank is 3, expected a class below 3");
        e.case(InputLengths, call(&[4, 2, 3], &[4], &[1, 1]), "input_lengths is [4]");
        e.case(InputLengths, call(&[4, 2, 3], &[4, 5], &[1, 1]), "expected at most 4");
        e.case(TargetLengths, call(&[4, 2, 3], &[4, 4], &[1]), "target_lengths is [1]");
        e.case(TargetLengths, call(&[4, 2, 3], &[4, 4], &[1, 3]), "target_lengths is [1, 3]");
        let line = with(e.normal([4, 2, 3]), e.integers(1, 3, [3]), [4, 4], [2, 2]);
        e.case(TargetLengths, line, "targets has shape [3]");
    }
}
