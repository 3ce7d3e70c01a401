//! A linear layer whose results exist for one chunk of rows at a time.

use fulgurite_runtime::{DType, Tensor};

use crate::core::promotion::accumulating;
use crate::nn::{accumulate_weight_gradient, linear};
use crate::prims;

/// Rows of a tensor: from the first number up to the second.
pub(crate) type Range = [usize; 2];

/// A linear layer: rows `input` [N, H], `weight` [C, H], `bias` [C].
#[derive(Clone, Copy)]
pub(crate) struct ChunkedLinear {
    /// The rows that it is applied to.
    pub input: Tensor,
    /// A row for each result.
    pub weight: Tensor,
    /// A number for each result.
    pub bias: Option<Tensor>,
}

impl ChunkedLinear {
    /// Where the chunks begin and end: one at least, and at most 32. Their results take about half as many bytes as
    /// `weight`, or less than a thirty-second of all.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Range> + use<> {
        let (rows, width) = (self.input.size(0), self.input.size(1));
        let each = width.div_ceil(2).max(rows.div_ceil(32)).max(1);
        (0..rows.div_ceil(each).max(1)).map(move |i| [i * each, rows.min((i + 1) * each)])
    }

    /// The layer's results for a chunk.
    #[track_caller]
    pub(crate) fn logits(&self, chunk: Range) -> Tensor {
        linear::with(rows(self.input, chunk), self.weight).bias(self.bias).call()
    }
}

/// The gradients of a layer, in the types that they are summed in.
pub(crate) struct LayerGradients {
    /// That of the rows.
    pub input: Tensor,
    /// That of the weight.
    pub weight: Tensor,
    /// That of the bias, if there is one.
    pub bias: Option<Tensor>,
}

/// The gradients of a layer's operands, summed chunk by chunk.
pub(crate) struct GradientSums {
    layer: ChunkedLinear,
    inputs: Vec<Tensor>,
    /// What the weight's gradient is summed in; the bias's is in the type that sums are accumulated in.
    of_weight: DType,
    weight: Option<Tensor>,
    bias: Option<Tensor>,
}

impl GradientSums {
    /// Of no chunk yet, the weight's in `of_weight`: the weight's own type, or the one that sums are accumulated in.
    pub(crate) fn new(layer: ChunkedLinear, of_weight: DType) -> GradientSums {
        GradientSums { layer, inputs: Vec::new(), of_weight, weight: None, bias: None }
    }

    /// Adds the next chunk's, of the gradient of its results.
    #[track_caller]
    pub(crate) fn add(&mut self, chunk: Range, d_logits: Tensor) {
        let (wide, x) = (self.layer.input.dtype().accumulator(), rows(self.layer.input, chunk));
        self.inputs.push(prims::matmul::with(d_logits, self.layer.weight).out_dtype(wide).call());
        self.weight = Some(match self.weight {
            None => prims::matmul::with(prims::permute(d_logits, [1, 0]), x).out_dtype(self.of_weight).call(),
            Some(total) => accumulate_weight_gradient(total, d_logits, x),
        });
        if self.layer.bias.is_some() {
            added(&mut self.bias, prims::sum(accumulating(d_logits), [0]));
        }
    }

    /// Those of all chunks. There is one.
    #[track_caller]
    pub(crate) fn total(self) -> LayerGradients {
        LayerGradients { input: joined(self.inputs), weight: self.weight.unwrap_or(self.layer.weight), bias: self.bias }
    }
}

/// Adds to a sum, which is `None` until the first term.
#[track_caller]
pub(crate) fn added(total: &mut Option<Tensor>, term: Tensor) {
    *total = Some(total.map_or(term, |total| prims::add(total, term)));
}

/// The rows of a chunk of a tensor. What stands for a value that is none, after an error, has no dimensions to index.
#[track_caller]
pub(crate) fn rows(tensor: Tensor, [from, to]: Range) -> Tensor {
    if (from, to) == (0, tensor.size(0)) {
        return tensor;
    }
    let rank = tensor.rank();
    let starts: Vec<usize> = (0..rank).map(|dim| if dim == 0 { from } else { 0 }).collect();
    let ends: Vec<usize> = (0..rank).map(|dim| if dim == 0 { to } else { tensor.size(dim as i64) }).collect();
    prims::slice(tensor, starts, ends, vec![1; rank])
}

/// Chunks of rows one after the other.
#[track_caller]
pub(crate) fn joined(chunks: Vec<Tensor>) -> Tensor {
    if chunks.len() == 1 { chunks[0] } else { prims::cat(chunks, 0) }
}
