//! How convolutions and their transposes are computed of windows and products, and what executors with kernels of their
//! own need: where windows are, and the forms of tensors.

use fulgurite_runtime::argument::{Attribute, AttributeType, Scalar};
use fulgurite_runtime::rules::{Failure, Precondition};
use fulgurite_runtime::{Tensor, TensorMeta};

use super::placement::{Placement, addressable, addressable_windows, for_each, whole_windows, windows_of};
use crate::core::promotion::{cast, number};
use crate::core::{piece, read_as};
use crate::prims;

/// The padding of a convolution.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ConvPadding {
    /// So many zeros before and after each dimension; one number is that of all.
    Each(Vec<usize>),
    /// Zeros that make the result as large as `input`, for strides of one. Of an odd number one more is at the end.
    Same,
    /// None.
    Valid,
}

impl<const N: usize> From<[usize; N]> for ConvPadding {
    fn from(numbers: [usize; N]) -> ConvPadding {
        ConvPadding::Each(numbers.to_vec())
    }
}

impl AttributeType for ConvPadding {
    fn type_name() -> String {
        r#"size[]|"same"|"valid""#.into()
    }
    fn to_attribute(&self) -> Attribute {
        match self {
            ConvPadding::Each(numbers) => numbers.to_attribute(),
            ConvPadding::Same => Attribute::Text("same".into()),
            ConvPadding::Valid => Attribute::Text("valid".into()),
        }
    }
    fn from_attribute(attribute: &Attribute) -> Option<ConvPadding> {
        match attribute {
            Attribute::Text(text) if &**text == "same" => Some(ConvPadding::Same),
            Attribute::Text(text) if &**text == "valid" => Some(ConvPadding::Valid),
            Attribute::Scalar(_) => usize::from_attribute(attribute).map(|one| ConvPadding::Each(vec![one])),
            list => Vec::from_attribute(list).map(ConvPadding::Each),
        }
    }
}

/// The tensors and the groups of a convolution, or of its transpose.
pub(super) struct Convolution<'a> {
    /// Dimensions that windows are placed in.
    pub(super) rank: usize,
    pub(super) transposed: bool,
    pub(super) input: &'a TensorMeta,
    pub(super) weight: &'a TensorMeta,
    pub(super) groups: usize,
}

impl Convolution<'_> {
    /// For metas: fails with one of the caller's codes where shapes and element types do not fit.
    pub(super) fn check(&self, bias: Option<&TensorMeta>, codes: [Precondition; 6]) -> Result<(), Failure> {
        let [input_rank, weight_rank, positive_groups, channels, bias_shape, same_dtype] = codes;
        let Convolution { rank, input, weight, groups, .. } = *self;
        let (shape, weights) = (input.shape(), weight.shape());
        if !(rank + 1..=rank + 2).contains(&shape.len()) {
            let text = format_args!("input has shape {shape:?}, expected {} or {} dimensions", rank + 1, rank + 2);
            return Err(input_rank.unmet(text));
        }
        if weights.len() != rank + 2 || weights[2..].contains(&0) {
            let text = format_args!(
                "weight has shape {weights:?}, expected {} dimensions, the last {rank} of them not empty",
                rank + 2
            );
            return Err(weight_rank.unmet(text));
        }
        // Weights are [out, in / groups, ...], of the transpose [in, out / groups, ...].
        if groups == 0 || !weights[0].is_multiple_of(groups) || weights[0] == 0 {
            let text = format_args!("groups is {groups}, expected a divisor of {}, weight's first extent", weights[0]);
            return Err(positive_groups.unmet(text));
        }
        let own = shape[shape.len() - rank - 1];
        let expected = if self.transposed { weights[0] } else { weights[1].saturating_mul(groups) };
        if own != expected {
            let text = format_args!(
                "input has shape {shape:?} and {own} channels, weight has shape {weights:?}: expected {expected} \
                 channels in {groups} groups"
            );
            return Err(channels.unmet(text));
        }
        if let Some(bias) = bias {
            let (given, outputs) = (bias.shape(), self.outputs());
            if given != [outputs] {
                return Err(bias_shape.unmet(format_args!("bias has shape {given:?}, expected [{outputs}]")));
            }
        }
        let (own, others) = (input.dtype(), [Some(weight), bias]);
        if let Some(other) = others.into_iter().flatten().map(TensorMeta::dtype).find(|other| *other != own) {
            let text = format_args!("input is {own}, weight or bias {other}, expected equal dtypes");
            return Err(same_dtype.unmet(text));
        }
        Ok(())
    }

    fn outputs(&self) -> usize {
        let weights = self.weight.shape();
        if self.transposed { weights[1].saturating_mul(self.groups) } else { weights[0] }
    }

    /// For metas: whether memory holds the windows, what they are taken from or added to, and the result.
    pub(super) fn addressable(&self, placed: &[Placement]) -> bool {
        let shape = self.input.shape();
        let batch = if shape.len() == self.rank + 2 { shape[0] } else { 1 };
        let channels = if self.transposed { self.outputs() } else { shape[shape.len() - self.rank - 1] };
        windows_are_addressable([batch, channels, self.outputs()], placed)
    }

    /// The windows of a convolution, whose lists were checked.
    pub(super) fn windows(&self, stride: &[usize], padding: &ConvPadding, dilation: &[usize]) -> Vec<Placement> {
        let rank = self.rank;
        let each = |list: &[usize]| for_each(list, rank).unwrap_or_else(|| vec![1; rank]);
        let (steps, dilations) = (each(stride), each(dilation));
        let (extents, sizes) = (&self.input.shape()[self.input.rank() - rank..], &self.weight.shape()[2..]);
        let placed = |i: usize| {
            let mut placed = Placement {
                extent: extents[i],
                low: 0,
                size: sizes[i],
                step: steps[i],
                dilation: dilations[i],
                count: 0,
            };
            let high = match padding {
                ConvPadding::Valid => 0,
                ConvPadding::Each(numbers) => {
                    placed.low = if numbers.len() == 1 { numbers[0] } else { numbers[i] };
                    placed.low
                }
                ConvPadding::Same => {
                    let all = placed.span() - 1;
                    placed.low = all / 2;
                    all - placed.low
                }
            };
            whole_windows(placed, high, false)
        };
        (0..rank).map(placed).collect()
    }

    /// The windows that the transpose of a convolution adds up: those that the convolution of its result has.
    /// `None` if the result has no elements.
    pub(super) fn sums(&self, lists: [&[usize]; 4]) -> Option<Vec<Placement>> {
        let rank = self.rank;
        let [steps, padding, output_padding, dilations] =
            lists.map(|list| for_each(list, rank).unwrap_or_else(|| vec![1; rank]));
        let (counts, sizes) = (&self.input.shape()[self.input.rank() - rank..], &self.weight.shape()[2..]);
        (0..rank)
            .map(|i| {
                let [low, step, dilation] = [padding[i], steps[i], dilations[i]];
                let mut placed = Placement { extent: 0, low, size: sizes[i], step, dilation, count: counts[i] };
                let all = placed.reach().saturating_add(output_padding[i]);
                placed.extent = all.checked_sub(low.saturating_mul(2)).filter(|extent| *extent > 0)?;
                Some(placed)
            })
            .collect()
    }
}

/// The windows of a call of [`mod@super::conv1d`], [`mod@super::conv2d`] or [`mod@super::conv3d`], along each
/// dimension. Its arguments fit together.
pub fn windows_of_convolution(
    input: &TensorMeta,
    weight: &TensorMeta,
    stride: &[usize],
    padding: &ConvPadding,
    dilation: &[usize],
) -> Vec<Placement> {
    let rank = weight.rank().saturating_sub(2);
    // What is asked of the problem does not depend on groups.
    Convolution { rank, transposed: false, input, weight, groups: 1 }.windows(stride, padding, dilation)
}

/// The windows that a call of [`mod@super::conv_transpose1d`], [`mod@super::conv_transpose2d`] or
/// [`mod@super::conv_transpose3d`] adds up, along each dimension: those of the convolution of its result. `lists` are
/// stride, padding, output_padding and dilation. The arguments fit together.
pub fn windows_of_transpose(input: &TensorMeta, weight: &TensorMeta, lists: [&[usize]; 4]) -> Vec<Placement> {
    let rank = weight.rank().saturating_sub(2);
    Convolution { rank, transposed: true, input, weight, groups: 1 }.sums(lists).unwrap_or_default()
}

/// For metas: whether memory holds windows of a batch of channels, and as many results for each output.
pub fn windows_are_addressable([batch, channels, outputs]: [usize; 3], placed: &[Placement]) -> bool {
    let counts: Vec<usize> = placed.iter().map(|placed| placed.count).collect();
    addressable_windows(&[batch, channels], placed) && addressable(&[&[batch, outputs][..], &counts].concat())
}

/// A batch of one, if `input` has none.
#[track_caller]
pub fn batched(input: Tensor, rank: usize) -> Tensor {
    let shape = input.shape().to_vec();
    if shape.len() == rank + 1 { prims::reshape(input, [&[1][..], &shape].concat()) } else { input }
}

/// With a bias for each channel, without the batch if the input has none.
#[track_caller]
pub fn finished(out: Tensor, bias: Option<Tensor>, input: Tensor) -> Tensor {
    let shape = out.shape().to_vec();
    let out = match bias {
        Some(bias) => prims::add(out, prims::broadcast_in_dim(bias, &shape, [1])),
        None => out,
    };
    if input.rank() < shape.len() { prims::reshape(out, &shape[1..]) } else { out }
}

/// Matrices, one for each group; of one group no dimension counts them.
#[track_caller]
fn matrices(input: Tensor, groups: usize, [rows, columns]: [usize; 2]) -> Tensor {
    if groups == 1 { read_as(input, &[rows, columns]) } else { read_as(input, &[groups, rows, columns]) }
}

/// The product of the weights [out, in / groups, K1, ...] and of all windows, as one matrix for each group: so the
/// gradient of the weights is one product too.
#[track_caller]
pub(super) fn convolved(
    input: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    placed: &[Placement],
    groups: usize,
) -> Tensor {
    let rank = placed.len();
    let (images, weights) = (batched(input, rank), weight.shape().to_vec());
    let windows = windows_of(images, placed, number(Scalar::Int(0), input.dtype()));
    let shape: Vec<usize> = windows.shape().to_vec();
    let counts = &shape[2..2 + rank];
    let (batch, outputs) = (windows.shape()[0], weights[0]);
    // [C, K1, ..., N, O1, ...]
    let order: Vec<usize> = [1].into_iter().chain(2 + rank..2 + 2 * rank).chain([0]).chain(2..2 + rank).collect();
    let (inner, places) = (weights[1..].iter().product(), batch * counts.iter().product::<usize>());
    let columns = matrices(prims::permute(windows, order), groups, [inner, places]);
    let product = prims::matmul(matrices(weight, groups, [outputs / groups, inner]), columns);
    let split = prims::reshape(product, [&[outputs, batch][..], counts].concat());
    finished(prims::permute(split, [1, 0].into_iter().chain(2..2 + rank).collect::<Vec<_>>()), bias, input)
}

/// Sums of windows, each the weights [in, out / groups, K1, ...] times an element of `input`.
#[track_caller]
pub(super) fn convolved_transposed(
    input: Tensor,
    weight: Tensor,
    bias: Option<Tensor>,
    placed: &[Placement],
    groups: usize,
) -> Tensor {
    let rank = placed.len();
    let (images, weights) = (batched(input, rank), weight.shape().to_vec());
    let shape = images.shape().to_vec();
    let (batch, inputs, outputs) = (shape[0], shape[1], weights[1] * groups);
    let order: Vec<usize> = [1, 0].into_iter().chain(2..2 + rank).collect();
    let (places, each) = (batch * shape[2..].iter().product::<usize>(), weights[1..].iter().product::<usize>());
    let elements = matrices(prims::permute(images, order), groups, [inputs / groups, places]);
    let by_input = matrices(weight, groups, [inputs / groups, each]);
    let last = by_input.rank() - 1;
    let order: Vec<usize> = (0..last - 1).chain([last, last - 1]).collect();
    let dtype = input.dtype();
    let sums = if dtype.is_floating() { dtype.accumulator() } else { dtype };
    let product = prims::matmul::with(prims::permute(by_input, order), elements).out_dtype(Some(sums)).call();
    // [out, K1, ..., N, L1, ...] to [N, out, L1, ..., K1, ...]
    let split = prims::reshape(product, [&[outputs][..], &weights[2..], &[batch], &shape[2..]].concat());
    let order: Vec<usize> = [1 + rank, 0].into_iter().chain(2 + rank..2 + 2 * rank).chain(1..1 + rank).collect();
    let column = |of: fn(&Placement) -> usize| placed.iter().map(of).collect::<Vec<_>>();
    let extents = column(|p| p.reach().max(p.low + p.extent));
    let whole =
        prims::sum_of_windows(prims::permute(split, order), extents, column(|p| p.step), column(|p| p.dilation));
    let inside = placed.iter().enumerate().fold(whole, |all, (i, p)| piece(all, 2 + i, p.low, p.extent));
    finished(cast(inside, dtype), bias, input)
}
