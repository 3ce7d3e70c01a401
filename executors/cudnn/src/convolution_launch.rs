//! How convolutions are planned: tensors in one of two layouts, contiguous or with channels innermost, and what has
//! another one copied.

use fulgurite_executor_cuda::elementwise::copy;
use fulgurite_runtime::DType;
use fulgurite_runtime::backends::cuda::{Convolution, ConvolutionAddresses};
use fulgurite_runtime::kernels::cuda::cudnn::{ALIGNMENT, ConvolutionPass, ConvolutionProblem, strides_of};
use fulgurite_runtime::rules::{DeviceTensor, Plan, Result};

use super::geometry::Geometry;

/// The tensors of a convolution, or their gradients: one of them is written.
#[derive(Clone, Copy)]
pub(super) struct Tensors<'a> {
    pub(super) image: &'a DeviceTensor,
    pub(super) weight: &'a DeviceTensor,
    pub(super) out: &'a DeviceTensor,
    /// Whether images and results have channels innermost in the program, of which these are views.
    pub(super) channels_innermost: bool,
}

/// Whether a tensor has a layout. Along one element any stride will do.
fn has_layout(tensor: &DeviceTensor, channels_last: bool) -> bool {
    let strides = strides_of(tensor.shape(), channels_last);
    let fits = |dim: usize| tensor.shape()[dim] <= 1 || usize::try_from(tensor.strides[dim]) == Ok(strides[dim]);
    (0..tensor.shape().len()).all(fits)
}

/// The library's engines for elements of 16 bits want this many channels innermost, or multiples of it. With channels
/// before windows of several elements, 64 images 64 x 56 x 56 and windows 3 x 3 take 555 us on an H200, and 44 with
/// channels innermost: two copies take less than the difference. Windows of one element are plain products in either
/// layout.
pub(super) const CHANNELS_AT_ONCE: usize = 8;

/// Whether the library has engines for channels innermost that are as fast as any others, or faster.
pub(super) fn suits_channels_innermost(dtype: DType, weights: &[usize], groups: usize) -> bool {
    // Of each group, of results and of images.
    let channels = [weights[0] / groups.max(1), weights[1]];
    dtype.size() == 2 && channels.iter().all(|channels| channels.is_multiple_of(CHANNELS_AT_ONCE))
}

/// Whether windows have several elements.
pub(super) fn has_windows(weights: &[usize]) -> bool {
    weights[2..].iter().product::<usize>() > 1
}

/// Whether channels are to be innermost: where the library is much faster then, and where they are in what is read of
/// images and results. Weights are small in comparison, and are copied.
fn channels_are_last(pass: ConvolutionPass, tensors: &Tensors<'_>) -> bool {
    let Tensors { image, weight, out, channels_innermost } = *tensors;
    let groups = image.shape()[1] / weight.shape()[1];
    if suits_channels_innermost(image.dtype(), weight.shape(), groups)
        && (channels_innermost || has_windows(weight.shape()))
    {
        return true;
    }
    // Nothing but a call by hand asks for it where it does not suit.
    if channels_innermost {
        return false;
    }
    let read = match pass {
        ConvolutionPass::Forward => vec![image],
        ConvolutionPass::InputGradient => vec![out],
        ConvolutionPass::WeightGradient => vec![image, out],
    };
    read.iter().all(|tensor| has_layout(tensor, true)) && !read.iter().all(|tensor| has_layout(tensor, false))
}

/// A place in the workspace for a tensor, in a layout.
fn in_workspace(plan: &mut Plan, tensor: &DeviceTensor, channels_last: bool) -> DeviceTensor {
    let strides = strides_of(tensor.shape(), channels_last);
    DeviceTensor {
        meta: tensor.meta.clone(),
        strides: strides.into_iter().map(|stride| stride as isize).collect(),
        address: plan.workspace(tensor.meta.bytes() as u64),
        alignment: 256,
    }
}

/// Plans a convolution that the library takes, or a gradient of it; with `tf32` operands of f32 may be rounded.
pub(super) fn plan(
    plan: &mut Plan,
    pass: ConvolutionPass,
    tensors: &Tensors<'_>,
    geometry: &Geometry<'_>,
    tf32: bool,
) -> Result<()> {
    let channels_last = channels_are_last(pass, tensors);
    let Tensors { image, weight, out, .. } = *tensors;
    let written = match pass {
        ConvolutionPass::Forward => 2,
        ConvolutionPass::InputGradient => 0,
        ConvolutionPass::WeightGradient => 1,
    };
    let mut addresses = Vec::with_capacity(3);
    let mut displaced = None;
    for (i, tensor) in [image, weight, out].into_iter().enumerate() {
        if has_layout(tensor, channels_last) && tensor.alignment.is_multiple_of(ALIGNMENT) {
            addresses.push(tensor.address);
            continue;
        }
        let near = in_workspace(plan, tensor, channels_last);
        addresses.push(near.address);
        if i == written {
            displaced = Some((near, tensor));
        } else {
            copy(plan, tensor, &near)?;
        }
    }
    let problem = ConvolutionProblem {
        pass,
        dtype: image.dtype(),
        tf32,
        channels_last,
        image: image.shape().to_vec(),
        weight: weight.shape().to_vec(),
        out: out.shape().to_vec(),
        stride: geometry.stride.to_vec(),
        padding: geometry.padding.to_vec(),
        dilation: geometry.dilation.to_vec(),
    };
    let workspace = plan.workspace(problem.workspace_bytes());
    let addresses = ConvolutionAddresses { image: addresses[0], weight: addresses[1], out: addresses[2], workspace };
    plan.push(Convolution { problem }.command(&addresses));
    match displaced {
        Some((near, tensor)) => copy(plan, &near, tensor),
        None => Ok(()),
    }
}
