//! Losses of named classes by margins. Terms of f16 and bf16 are computed and summed in f32. The mean of no terms is
//! NaN.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::{DType, Tensor};

use super::reduction::{class_rows, picked};
use super::{Reduction, reduced_and_rounded, reduced_array};
use crate::core::arrays::array;
use crate::core::promotion::{accumulating, cast};
use crate::prims::{self, add, div, eq, le, lt, mul, select, sub};

/// The loss of classes by margins: for a row x of `input` and its class t, the sum of
/// `weight[t] · max(0, margin - x_t + x_j)^p` over the other classes j, divided by the number of classes. `input` is
/// [N, C] or [C], `target` [N], or [] or [1]; without dimensions it is one class. A class out of range is an error when
/// the program runs.
#[operator(torch = "nn.functional.multi_margin_loss", autocast = full)]
pub mod multi_margin_loss {
    fn multi_margin_loss(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(1)] p: i64,
        #[default(1.0)] margin: f64,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(Args { input, target, p, weight, reduction, .. }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(p == 1 || p == 2, Power, "p is {p}, expected 1 or 2");
        let rows = super::rows_of(input.shape());
        require!(
            rows.is_some() && super::targets_fit(input.shape(), target.shape()),
            Shapes,
            "input has shape {:?} and target {:?}, expected [N, C] with C > 0 and [N], or [C] and [] or [1]",
            input.shape(),
            target.shape()
        );
        let (_, classes) = rows.unwrap_or_default();
        if let Some(weight) = weight {
            require!(
                weight.shape() == [classes] && weight.dtype() == input.dtype(),
                WeightShape,
                "weight is {weight}, expected {}[{classes}]",
                input.dtype()
            );
        }
        Ok(match reduction {
            Reduction::None => input.with_shape(target.shape()),
            _ => input.with_shape([]),
        })
    }

    fn decomposition(Args { input, target, p, margin, weight, reduction }: Args<Tensor>) -> Tensor {
        let (rows, classes) = super::rows_of(&input.shape()).unwrap_or_default();
        let x = prims::reshape(accumulating(input), [rows, classes]);
        let class = cast(prims::reshape(target, [rows]), DType::I64);
        let spread = |of_row: Tensor| prims::broadcast_in_dim(of_row, [rows, classes], [0]);
        let short = add(sub(x, spread(picked(x, class))), margin);
        let power = if p == 1 { short } else { mul(short, short) };
        let names = prims::iota(classes, 0i64, 1i64, class.dtype(), class.device());
        let is_target = eq(spread(class), prims::broadcast_in_dim(names, [rows, classes], [1]));
        let terms = select(prims::logical_or(is_target, le(short, 0.0)), 0.0, power);
        let losses = div(prims::sum(terms, [1]), classes as f64);
        let losses = match weight {
            Some(weight) => mul(losses, prims::index_select(accumulating(weight), 0, class)),
            None => losses,
        };
        super::reduced_and_rounded(prims::reshape(losses, target.shape()), reduction, input.dtype())
    }

    fn reference(Args { input, target, p, margin, weight, reduction }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let mut losses = Vec::new();
        let rows = if input.ndim() == 0 { vec![vec![input[[]]]] } else { class_rows(input) };
        for (row, class) in rows.iter().zip(target) {
            let Some(own) = usize::try_from(*class).ok().filter(|class| *class < row.len()) else {
                return Err(Failure::new("IndexOutOfRange", format!("target holds {class} of {} classes", row.len())));
            };
            let others = row.iter().enumerate().filter(|(j, _)| *j != own);
            let total: f64 = others.map(|(_, x)| (margin - row[own] + x).max(0.0).powi(p as i32)).sum();
            losses.push(total * weight.map_or(1.0, |weight| weight[[own]]) / row.len() as f64);
        }
        Ok(super::reduced_array(array(target.shape(), losses), reduction))
    }

    fn samples(s: &mut Samples) {
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            s.case(with(s.normal([4, 3]), s.integers(0, 3, [4])).reduction(reduction));
        }
        let weighted = with(s.normal([4, 3]), s.integers(0, 3, [4])).weight(s.uniform(0.5, 2.0, [3]));
        s.case(weighted.p(2).margin(0.7));
        s.case(with(s.normal([3]), s.integers(0, 3, [])));
        s.case(with(s.normal([]), s.integers(0, 1, [])));
        s.case(with(s.normal([]), s.integers(0, 1, [1])).reduction(Reduction::None));
        s.case(with(s.normal([3]), s.integers(0, 3, [1])).reduction(Reduction::None));
        s.case(with(s.normal([0, 3]), s.integers(0, 3, [0])).reduction(Reduction::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        let good = || with(e.normal([4, 3]), e.integers(0, 3, [4]));
        e.case(Power, good().p(3), "p is 3, expected 1 or 2");
        e.case(Shapes, with(e.normal([4, 3]), e.integers(0, 3, [3])), "target [3]");
        e.case(Shapes, with(e.normal([2, 0]), e.integers(0, 3, [2])), "input has shape [2, 0]");
        e.case(Shapes, with(e.normal([]), e.integers(0, 1, [2])), "target [2]");
        e.case(WeightShape, good().weight(e.normal([4])), "expected f32[3]");
        e.case(WeightShape, good().weight(e.of(DType::F64, [3])), "weight is f64[3]");
        for class in [3.0, -1.0] {
            let target = e.values([2], [0.0, class]).cast(DType::I64);
            e.when_run("IndexOutOfRange", with(e.normal([2, 3]), target), "holds");
        }
    }
}

/// The rows and the classes of a shape [N, C] or [C] with at least one class, or [], which is one class.
fn rows_of(shape: &[usize]) -> Option<(usize, usize)> {
    match *shape {
        [] => Some((1, 1)),
        [classes] if classes > 0 => Some((1, classes)),
        [rows, classes] if classes > 0 => Some((rows, classes)),
        _ => None,
    }
}

/// Whether there is a target for each row.
fn targets_fit(input: &[usize], target: &[usize]) -> bool {
    match input {
        [] | [_] => target.is_empty() || target == [1],
        _ => target == &input[..1],
    }
}

/// Whether `target` names the classes of each row: it has the shape of `input`, or both are one class.
fn named_fit(input: &[usize], target: &[usize]) -> bool {
    input == target || [input, target].iter().all(|shape| matches!(shape, [] | [1]))
}

/// The shape of one loss for each row.
fn shape_of_rows(input: &[usize]) -> &[usize] {
    &input[..input.len().saturating_sub(1)]
}

/// The loss of several classes for each row by margins: for a row x of `input` and its classes, those of `target`
/// before the first negative number, the sum of `max(0, 1 - x_t + x_j)` over its classes t and all others j, divided by
/// the number of all classes. Both are [N, C] or [C]; [] and [1] are one class. A class out of range is an error when
/// the program runs.
#[operator(torch = "nn.functional.multilabel_margin_loss", autocast = full)]
pub mod multilabel_margin_loss {
    fn multilabel_margin_loss(
        input: Tensor<Floating>,
        target: Tensor<Integer>,
        #[default(Reduction::Mean)] reduction: Reduction,
    ) -> Tensor;

    fn meta(input: &TensorMeta, target: &TensorMeta, reduction: Reduction) -> Result<TensorMeta> {
        require!(
            super::rows_of(input.shape()).is_some() && super::named_fit(input.shape(), target.shape()),
            Shapes,
            "input has shape {:?} and target {:?}, expected [N, C] or [C] with C > 0, the same for both",
            input.shape(),
            target.shape()
        );
        Ok(match reduction {
            Reduction::None => input.with_shape(super::shape_of_rows(input.shape())),
            _ => input.with_shape([]),
        })
    }

    fn decomposition(input: Tensor, target: Tensor, reduction: Reduction) -> Tensor {
        let (rows, classes) = super::rows_of(&input.shape()).unwrap_or_default();
        let x = prims::reshape(accumulating(input), [rows, classes]);
        let named = prims::reshape(target, [rows, classes]);
        let counts = match named.dtype() {
            dtype if dtype.is_unsigned() => prims::eq(named, named),
            _ => {
                let ended = prims::cumsum(cast(lt(named, 0), DType::I64), 1);
                eq(ended, 0)
            }
        };
        let class = cast(select(counts, named, 0), DType::I64);
        // [row, place in the target, class]
        let cube = [rows, classes, classes];
        let names = prims::broadcast_in_dim(prims::iota(classes, 0i64, 1i64, class.dtype(), class.device()), cube, [2]);
        let by_place = |of_place: Tensor| prims::broadcast_in_dim(of_place, cube, [0, 1]);
        let by_class = |of_class: Tensor| prims::broadcast_in_dim(of_class, cube, [0, 2]);
        let hits = prims::logical_and(by_place(counts), eq(by_place(class), names));
        let is_target = prims::gt(prims::sum(cast(hits, DType::I32), [1]), 0);
        let short = add(sub(by_class(x), by_place(prims::gather(x, 1, class))), 1.0);
        let counts = prims::logical_and(by_place(counts), by_class(prims::logical_not(is_target)));
        let terms = select(prims::logical_and(counts, prims::gt(short, 0.0)), short, 0.0);
        let losses = div(prims::sum(terms, [1, 2]), classes as f64);
        let shape = super::shape_of_rows(&input.shape()).to_vec();
        super::reduced_and_rounded(prims::reshape(losses, shape), reduction, input.dtype())
    }

    fn reference(input: &ArrayD<f64>, target: &ArrayD<i64>, reduction: Reduction) -> Result<ArrayD<f64>> {
        let classes = input.shape().last().copied().unwrap_or(1);
        let (mut losses, values, targets) = (Vec::new(), input.as_slice(), target.as_slice());
        for (row, named) in values.unwrap_or(&[]).chunks(classes).zip(targets.unwrap_or(&[]).chunks(classes)) {
            let own: Vec<i64> = named.iter().copied().take_while(|class| *class >= 0).collect();
            if let Some(class) = own.iter().find(|class| **class >= classes as i64) {
                return Err(Failure::new("IndexOutOfRange", format!("target holds {class} of {classes} classes")));
            }
            let others = || row.iter().enumerate().filter(|(j, _)| !own.contains(&(*j as i64))).map(|(_, x)| x);
            let of_class = |class: &i64| others().map(|x| (1.0 - row[*class as usize] + x).max(0.0)).sum::<f64>();
            let total: f64 = own.iter().map(of_class).sum();
            losses.push(total / classes as f64);
        }
        Ok(super::reduced_array(array(super::shape_of_rows(input.shape()), losses), reduction))
    }

    fn samples(s: &mut Samples) {
        let named = [2.0, 0.0, -1.0, 1.0, -1.0, 3.0, 1.0, 0.0, 1.0, 1.0, 3.0, -1.0];
        for reduction in [Reduction::None, Reduction::Mean, Reduction::Sum] {
            let target = s.values([3, 4], named).cast(DType::I64);
            s.case(with(s.normal([3, 4]), target).reduction(reduction));
        }
        s.case(with(s.normal([3]), s.values([3], [1.0, -1.0, 2.0]).cast(DType::I32)));
        s.case(with(s.normal([]), s.integers(0, 1, [])));
        s.case(with(s.normal([]), s.values([1], [-1.0]).cast(DType::I64)).reduction(Reduction::None));
        s.case(with(s.normal([0, 3]), s.integers(0, 3, [0, 3])).reduction(Reduction::Sum));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Shapes, with(e.normal([4, 3]), e.integers(0, 3, [4])), "expected [N, C] or [C]");
        e.case(Shapes, with(e.normal([2, 0]), e.integers(0, 3, [2, 0])), "input has shape [2, 0]");
        e.case(Shapes, with(e.normal([2]), e.integers(0, 2, [])), "target []");
        let target = e.values([1, 2], [0.0, 2.0]).cast(DType::I64);
        e.when_run("IndexOutOfRange", with(e.normal([1, 2]), target), "holds");
    }
}
