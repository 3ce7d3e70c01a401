//! How losses are reduced, and the arrangement of their arguments.

use fulgurite_runtime::attribute_enum;
use fulgurite_runtime::{Tensor, TensorMeta};

use crate::core::promotion::{cast, differs_from};
use crate::prims;

attribute_enum! {
    /// The reduction of the elements' losses.
    pub enum Reduction {
        /// The losses are not reduced.
        None = "none",
        /// Their weighted mean.
        Mean = "mean",
        /// The sum of the losses.
        Sum = "sum",
    }
}

/// `input` [N, C, d₁, ...] as [N d₁ ..., C]; [C] as [1, C].
#[track_caller]
pub(crate) fn classes_last(input: Tensor) -> Tensor {
    let shape = input.shape().to_vec();
    match shape.len() {
        1 => prims::reshape(input, [1, shape[0]]),
        2 => input,
        rank => {
            let order: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
            let rows: usize = shape[0] * shape[2..].iter().product::<usize>();
            prims::reshape(prims::permute(input, order), [rows, shape[1]])
        }
    }
}

/// The loss of classes `target` (any shape), reduced. `surprise` gives -log p of one class of each row, of classes
/// [rows]; the class of rows that do not count, whose target is `ignore_index`, is 0.
#[track_caller]
pub(crate) fn class_loss(
    target: Tensor,
    weight: Option<Tensor>,
    ignore_index: i64,
    reduction: Reduction,
    surprise: impl FnOnce(Tensor) -> Tensor,
) -> Tensor {
    let shape = target.shape().to_vec();
    let rows: usize = shape.iter().product();
    let target = prims::reshape(target, [rows]);
    let counted = differs_from(target, ignore_index);
    let class = prims::select(counted, target, 0);
    let losses = surprise(class);
    // An ignored row must not bring in an infinity, neither its own nor that of a weight; nor may their gradients.
    let if_counted = |rows: Tensor| prims::select(counted, rows, 0.0);
    let losses = if_counted(losses);
    let weights = weight.map(|weight| if_counted(prims::index_select(weight, 0, class)));
    let losses = weights.map_or(losses, |weights| prims::mul(losses, weights));
    match reduction {
        Reduction::None => prims::reshape(losses, shape),
        Reduction::Sum => prims::sum(losses, [0]),
        Reduction::Mean => {
            let weights = weights.unwrap_or_else(|| cast(counted, losses.dtype()));
            prims::div(prims::sum(losses, [0]), prims::sum(weights, [0]))
        }
    }
}

/// Of each row of `input` [rows, C] the element of its class: [rows].
#[track_caller]
pub(crate) fn picked(input: Tensor, class: Tensor) -> Tensor {
    let rows = class.size(0);
    prims::reshape(prims::gather(input, 1, prims::reshape(class, [rows, 1])), [rows])
}

/// The extents of a target of classes for `input`: all but the second, or none for [C].
pub(crate) fn target_shape(input: &[usize]) -> Vec<usize> {
    if input.len() <= 1 { Vec::new() } else { [&input[..1], &input[2..]].concat() }
}

/// Position of the classes' dimension.
pub(crate) fn class_dim(rank: usize) -> usize {
    usize::from(rank > 1)
}

/// The meta of a loss.
pub(crate) fn loss_meta(input: &TensorMeta, reduction: Reduction) -> TensorMeta {
    match reduction {
        Reduction::None => input.with_shape(target_shape(input.shape())),
        Reduction::Mean | Reduction::Sum => input.with_shape([]),
    }
}

/// A loss over rows of classes, computed plainly for references: `row` gives the log-probabilities of row i.
pub(crate) struct Rows {
    /// Loss and weight of each row.
    pub losses: Vec<(f64, f64)>,
}

impl Rows {
    /// The losses reduced; `shape` is that of unreduced losses.
    pub fn reduced(self, reduction: Reduction, shape: &[usize]) -> ndarray::ArrayD<f64> {
        let total: f64 = self.losses.iter().map(|(loss, _)| loss).sum();
        let weight: f64 = self.losses.iter().map(|(_, weight)| weight).sum();
        match reduction {
            Reduction::None => {
                crate::core::arrays::array(shape, self.losses.into_iter().map(|(loss, _)| loss).collect())
            }
            Reduction::Mean => crate::core::arrays::array(&[], vec![total / weight]),
            Reduction::Sum => crate::core::arrays::array(&[], vec![total]),
        }
    }
}

/// The rows of classes of an array [N, C, d₁, ...], in the order of the flattened target.
pub(crate) fn class_rows(input: &ndarray::ArrayD<f64>) -> Vec<Vec<f64>> {
    let shape = input.shape();
    let (dim, classes) = (class_dim(shape.len()), shape[class_dim(shape.len())]);
    let outer = target_shape(shape);
    let mut rows = Vec::new();
    for index in ndarray::indices(outer) {
        let at = ndarray::Dimension::slice(&index).to_vec();
        rows.push(
            (0..classes)
                .map(|class| {
                    let mut full = at.clone();
                    full.insert(dim, class);
                    input[full.as_slice()]
                })
                .collect(),
        );
    }
    rows
}
