//! Where the windows of a convolution are, and the shapes of its three tensors.

use fulgurite_ops::nn::Placement;
use fulgurite_ops::nn::convolved::windows_are_addressable;
use fulgurite_runtime::rules::{ArrayD, DeviceTensor, Failure, IxDyn, Precondition};

/// The numbers of a convolution that its tensors do not say. Lists have a number for each dimension.
#[derive(Clone, Copy)]
pub(super) struct Geometry<'a> {
    /// Elements from one window to the next.
    pub(super) stride: &'a [usize],
    /// Elements of 0 before the images, and as many behind them.
    pub(super) padding: &'a [usize],
    /// Elements from one element of a window to the next.
    pub(super) dilation: &'a [usize],
    pub(super) groups: usize,
}

/// Extents of the tensors: images [N, C, L1, ...] or their gradient, weights [K, C / groups, I1, ...] or theirs, and
/// results [N, K, O1, ...] or theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Extents {
    pub(super) image: Vec<usize>,
    pub(super) weight: Vec<usize>,
    /// Empty if it is what the others make it.
    pub(super) out: Vec<usize>,
}

/// The dimensions of images with channels innermost, [N, L1, ..., C], in the order [N, C, L1, ...], and back.
fn order(rank: usize, back: bool) -> Vec<usize> {
    let last = rank.saturating_sub(1);
    match back {
        false => (0..rank.min(1)).chain(last.max(1)..rank).chain(1..last).collect(),
        true => (0..rank.min(1)).chain(2..rank).chain(1..rank.min(2)).collect(),
    }
}

/// The extents [N, C, L1, ...] of images of this shape, which has channels behind L1, ... if they are innermost.
pub(super) fn extents_of(shape: &[usize], channels_innermost: bool) -> Vec<usize> {
    match channels_innermost {
        true => order(shape.len(), false).into_iter().map(|dim| shape[dim]).collect(),
        false => shape.to_vec(),
    }
}

/// The shape of images of these extents [N, C, L1, ...].
pub(super) fn shape_of(extents: &[usize], channels_innermost: bool) -> Vec<usize> {
    match channels_innermost {
        true => order(extents.len(), true).into_iter().map(|dim| extents[dim]).collect(),
        false => extents.to_vec(),
    }
}

/// Images as [N, C, L1, ...].
pub(super) fn images_of(tensor: &DeviceTensor, channels_innermost: bool) -> DeviceTensor {
    let mut images = tensor.clone();
    if channels_innermost {
        let order = order(tensor.shape().len(), false);
        images.meta = tensor.meta.with_shape(order.iter().map(|dim| tensor.shape()[*dim]).collect::<Vec<_>>());
        images.strides = order.into_iter().map(|dim| tensor.strides[dim]).collect();
    }
    images
}

/// For references: images as [N, C, L1, ...].
pub(super) fn numbers_of(images: &ArrayD<f64>, channels_innermost: bool) -> ArrayD<f64> {
    match channels_innermost {
        true => images.clone().permuted_axes(IxDyn(&order(images.ndim(), false))),
        false => images.clone(),
    }
}

/// For references: the result, of images [N, C, L1, ...].
pub(super) fn result_of(images: ArrayD<f64>, channels_innermost: bool) -> ArrayD<f64> {
    match channels_innermost {
        true => {
            let order = order(images.ndim(), true);
            images.permuted_axes(IxDyn(&order)).as_standard_layout().to_owned()
        }
        false => images,
    }
}

impl Geometry<'_> {
    /// The windows along each dimension, as many as there is room for. Lists and extents have equal lengths.
    pub(super) fn placed(&self, extents: &[usize], sizes: &[usize]) -> Vec<Placement> {
        let placed = |i: usize| {
            let (low, step, dilation) = (self.padding[i], self.stride[i], self.dilation[i]);
            let mut placed = Placement { extent: extents[i], low, size: sizes[i], step, dilation, count: 0 };
            let padded = extents[i].saturating_add(low.saturating_mul(2));
            placed.count = padded.checked_sub(placed.span()).map_or(0, |rest| rest / step.max(1) + 1);
            placed
        };
        (0..extents.len()).map(placed).collect()
    }

    /// The windows that tensors of these extents have.
    pub(super) fn windows_of(&self, of: &Extents) -> Vec<Placement> {
        self.placed(&of.image[2..], &of.weight[2..])
    }

    /// The extents of the result.
    pub(super) fn out_of(&self, of: &Extents) -> Vec<usize> {
        let counts = self.windows_of(of).into_iter().map(|placed| placed.count);
        [of.image[0], of.weight[0]].into_iter().chain(counts).collect()
    }

    /// For metas: fails with one of the caller's codes where the extents do not fit together.
    pub(super) fn check(&self, of: &Extents, codes: [Precondition; 5]) -> Result<(), Failure> {
        let [rank, lists, channels, windows, memory] = codes;
        let Geometry { stride, padding, dilation, groups } = *self;
        let Extents { image, weight, out } = of;
        let dimensions = image.len().saturating_sub(2);
        let one_rank = weight.len() == image.len() && (out.is_empty() || out.len() == image.len());
        if !(1..=3).contains(&dimensions) || !one_rank {
            let ranks = [image.len(), weight.len(), out.len()];
            return Err(rank.unmet(format_args!(
                "image, weight and result have {ranks:?} dimensions, expected equally many, from 3 to 5"
            )));
        }
        let lengths = [stride.len(), padding.len(), dilation.len()];
        if lengths != [dimensions; 3] || stride.contains(&0) || dilation.contains(&0) {
            return Err(lists.unmet(format_args!(
                "stride is {stride:?}, padding {padding:?}, dilation {dilation:?}, expected {dimensions} numbers each, \
                 positive ones of stride and dilation"
            )));
        }
        let fits = groups > 0 && weight[0] > 0 && weight[0].is_multiple_of(groups);
        if !fits || image[1] == 0 || image[1] != weight[1].saturating_mul(groups) {
            return Err(channels.unmet(format_args!(
                "groups is {groups}, image has {} channels, weight is {weight:?}: expected {} channels, and outputs \
                 that are a multiple of groups",
                image[1],
                weight[1].saturating_mul(groups)
            )));
        }
        let placed = self.windows_of(of);
        let expected = self.out_of(of);
        let is_there = weight[2..].iter().all(|size| *size > 0) && placed.iter().all(|placed| placed.count > 0);
        if !is_there || !(out.is_empty() || *out == expected) {
            return Err(windows.unmet(format_args!(
                "image is {image:?}, weight {weight:?}, the result {out:?}: expected {expected:?}, with windows in \
                 each dimension"
            )));
        }
        if !windows_are_addressable([image[0], image[1], weight[0]], &placed) {
            return Err(memory.unmet(format_args!("image is {image:?}, padding {padding:?}: windows are too large")));
        }
        Ok(())
    }

    /// For references: calls `f` with the places of an element of the images, of the weights and of the result, for
    /// each product of the definition.
    pub(super) fn for_each_product(&self, of: &Extents, mut f: impl FnMut(&[usize], &[usize], &[usize])) {
        let out = self.out_of(of);
        let dimensions = self.stride.len();
        let outputs = of.weight[0] / self.groups;
        for at in ndarray::indices(IxDyn(&out)) {
            let at = ndarray::Dimension::slice(&at).to_vec();
            for inner in ndarray::indices(IxDyn(&of.weight[1..])) {
                let inner = ndarray::Dimension::slice(&inner);
                let place: Option<Vec<usize>> = (0..dimensions)
                    .map(|i| {
                        let padded = at[2 + i] * self.stride[i] + inner[1 + i] * self.dilation[i];
                        padded.checked_sub(self.padding[i]).filter(|place| *place < of.image[2 + i])
                    })
                    .collect();
                let Some(place) = place else { continue };
                let channel = at[1] / outputs * of.weight[1] + inner[0];
                f(&[&[at[0], channel][..], &place].concat(), &[&at[1..2], inner].concat(), &at);
            }
        }
    }
}

/// For references: the sum of products, each added to the element of the result that `place` names, of factors that
/// `product` names.
pub(super) fn summed(
    shape: &[usize],
    geometry: &Geometry<'_>,
    of: &Extents,
    product: impl Fn(&[usize], &[usize], &[usize]) -> f64,
    place: impl for<'a> Fn(&'a [usize], &'a [usize], &'a [usize]) -> &'a [usize],
) -> ArrayD<f64> {
    let mut sums = ArrayD::zeros(IxDyn(shape));
    geometry.for_each_product(of, |image, weight, out| {
        sums[IxDyn(place(image, weight, out))] += product(image, weight, out);
    });
    sums
}
