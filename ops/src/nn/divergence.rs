//! What divergences between distributions share: how their terms are reduced, and which rows count.

use fulgurite_runtime::attribute_enum;
use fulgurite_runtime::rules::Precondition;
use fulgurite_runtime::{Failure, Tensor, TensorMeta};

use crate::core::promotion::{broadcast, cast, differs_from};
use crate::nn::restored_along;
use crate::prims::{self, checks};

attribute_enum! {
    /// The reduction of the terms of a divergence, one for each element.
    pub enum DivergenceReduction {
        /// The terms are not reduced.
        None = "none",
        /// Their mean over all elements.
        Mean = "mean",
        /// Their sum over all elements, divided by the number of rows: the mean of the rows' divergences.
        BatchMean = "batchmean",
        /// Their sum over all elements.
        Sum = "sum",
    }
}

/// The shape of reduced terms.
pub(crate) fn reduced_shape(shape: &[usize], reduction: DivergenceReduction) -> Vec<usize> {
    if reduction == DivergenceReduction::None { shape.to_vec() } else { Vec::new() }
}

/// For metas of functions of two distributions in rows: fails with the caller's codes unless `first`, an argument with
/// its name, is [N, C], `second` is like it, and `labels` are [N].
pub(crate) fn check_distributions(
    first: (&str, &TensorMeta),
    second: (&str, &TensorMeta),
    labels: Option<&TensorMeta>,
    [rows, alike, labelled]: [Precondition; 3],
) -> Result<(), Failure> {
    let (name, meta) = first;
    if meta.rank() != 2 {
        return Err(rows.unmet(format_args!("{name} is {meta}, expected [N, C]")));
    }
    checks::is_like(second, meta, alike)?;
    match labels {
        Some(labels) if labels.shape() != &meta.shape()[..1] => {
            let rows = meta.shape()[0];
            Err(labelled.unmet(format_args!("shift_labels has shape {:?}, expected [{rows}]", labels.shape())))
        }
        _ => Ok(()),
    }
}

/// The rows of distributions that count: those whose label is not `ignore_index`; without labels all.
#[derive(Clone, Copy)]
pub(crate) struct CountedRows {
    labels: Option<Tensor>,
    ignore_index: i64,
}

impl CountedRows {
    /// All rows.
    pub(crate) const ALL: CountedRows = CountedRows { labels: None, ignore_index: 0 };

    /// Those whose label, an item of `labels` [N], is not `ignore_index`.
    pub(crate) fn new(labels: Option<Tensor>, ignore_index: i64) -> CountedRows {
        CountedRows { labels, ignore_index }
    }

    /// `terms` [N, C], with zeros in the rows that do not count.
    #[track_caller]
    pub(crate) fn only(&self, terms: Tensor) -> Tensor {
        match self.labels {
            Some(labels) => {
                prims::select(restored_along(differs_from(labels, self.ignore_index), terms, 1), terms, 0.0)
            }
            None => terms,
        }
    }

    /// `sum` divided by the number of rows that count; if there is none, by one, since the sum is zero. Without labels
    /// all `rows` count.
    #[track_caller]
    pub(crate) fn mean(&self, sum: Tensor, rows: usize) -> Tensor {
        match self.labels {
            Some(labels) => {
                let counted = prims::sum(cast(differs_from(labels, self.ignore_index), sum.dtype()), [0]);
                prims::div(sum, broadcast(prims::maximum(counted, 1.0), &sum.shape()))
            }
            None => prims::div(sum, rows.max(1) as f64),
        }
    }

    /// `terms` reduced; those of rows that do not count are zeros.
    #[track_caller]
    pub(crate) fn reduced(&self, terms: Tensor, reduction: DivergenceReduction) -> Tensor {
        let (terms, shape) = (self.only(terms), terms.shape());
        // Row by row first: a region sums a row while it computes the terms, which are never written.
        let sum = |terms: Tensor| match shape.len() {
            0 => terms,
            1 => prims::sum(terms, [0]),
            rank => prims::sum(prims::sum(terms, (1..rank).collect::<Vec<_>>()), [0]),
        };
        let each: usize = shape.iter().skip(1).product();
        match reduction {
            DivergenceReduction::None => terms,
            DivergenceReduction::Sum => sum(terms),
            DivergenceReduction::BatchMean => self.mean(sum(terms), shape[0]),
            DivergenceReduction::Mean if shape.is_empty() => terms,
            DivergenceReduction::Mean => prims::div(self.mean(sum(terms), shape[0]), each as f64),
        }
    }
}

/// `e^a (a - b)`, elementwise; zero where `e^a` is.
#[track_caller]
fn pull(a: Tensor, b: Tensor) -> Tensor {
    let p = prims::exp(a);
    prims::select(prims::gt(p, 0.0), prims::mul(p, prims::sub(a, b)), 0.0)
}

/// `log (beta e^y + (1 - beta) e^x)`, elementwise, for a `beta` between 0 and 1: around the larger of the two.
#[track_caller]
fn log_mixture(x: Tensor, y: Tensor, beta: f64) -> Tensor {
    let top = prims::maximum(x, y);
    let part = |of: Tensor, share: f64| prims::mul(prims::exp(prims::sub(of, top)), share);
    prims::add(top, prims::log(prims::add(part(y, beta), part(x, 1.0 - beta))))
}

/// The terms of the divergence of log-probabilities `x` of a student from `y` of a teacher, elementwise.
#[track_caller]
pub(crate) fn divergence_terms(x: Tensor, y: Tensor, beta: f64) -> Tensor {
    match beta {
        0.0 => pull(y, x),
        1.0 => pull(x, y),
        _ => {
            let m = log_mixture(x, y, beta);
            prims::add(prims::mul(pull(y, m), beta), prims::mul(pull(x, m), 1.0 - beta))
        }
    }
}

/// The derivatives of [`divergence_terms`] by `x` and by `y`.
#[track_caller]
pub(crate) fn divergence_slopes(x: Tensor, y: Tensor, beta: f64) -> [Tensor; 2] {
    let one_sided = |of, from| prims::add(pull(of, from), prims::exp(of));
    match beta {
        0.0 => [prims::neg(prims::exp(y)), one_sided(y, x)],
        1.0 => [one_sided(x, y), prims::neg(prims::exp(x))],
        _ => {
            let m = log_mixture(x, y, beta);
            [prims::mul(pull(x, m), 1.0 - beta), prims::mul(pull(y, m), beta)]
        }
    }
}

/// For references: `terms` [N, ...] reduced, of rows without a label or with another one than `ignore_index`.
pub(crate) fn plainly_reduced(
    terms: ndarray::ArrayD<f64>,
    labels: Option<&ndarray::ArrayD<i64>>,
    ignore_index: i64,
    reduction: DivergenceReduction,
) -> ndarray::ArrayD<f64> {
    let mut terms = terms;
    let mut counted = terms.shape().first().copied().unwrap_or(1) as f64;
    if let Some(labels) = labels {
        for (mut row, label) in terms.outer_iter_mut().zip(labels) {
            if *label == ignore_index {
                row.fill(0.0);
                counted -= 1.0;
            }
        }
    }
    counted = counted.max(1.0);
    let each: usize = terms.shape().iter().skip(1).product();
    let divisor = match reduction {
        DivergenceReduction::None => return terms,
        DivergenceReduction::Sum => 1.0,
        DivergenceReduction::BatchMean => counted,
        DivergenceReduction::Mean => counted * each as f64,
    };
    crate::core::arrays::array(&[], vec![terms.sum() / divisor])
}

/// For references: a term of [`divergence_terms`].
pub(crate) fn plain_divergence(x: f64, y: f64, beta: f64) -> f64 {
    let (q, p) = (x.exp(), y.exp());
    let from = |p: f64, q: f64| if p == 0.0 { 0.0 } else { p * (p / q).ln() };
    match beta {
        0.0 => from(p, q),
        1.0 => from(q, p),
        _ => {
            let m = beta * p + (1.0 - beta) * q;
            beta * from(p, m) + (1.0 - beta) * from(q, m)
        }
    }
}
