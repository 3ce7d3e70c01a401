//! What `cudnn` and `cudnn_tf32` take of the operators of convolutions and of their transposes.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::precision::Precision;
use fulgurite_runtime::{Tensor, TensorMeta, refuse_unless};

use super::convolution_launch::{CHANNELS_AT_ONCE, has_windows, suits_channels_innermost};
use super::convolutions::{
    convolution, convolution_input_gradient, convolution_weight_gradient, library_fits, placed_extents, takes,
};
use super::geometry::{Extents, Geometry};
use super::{cudnn, cudnn_tf32};
use fulgurite_ops::nn::Placement;
use fulgurite_ops::nn::convolved::{batched, finished, windows_of_convolution, windows_of_transpose};
use fulgurite_ops::prims;

/// The lists of a convolution in the form of the kernel symbols, which have as many zeros before as behind.
#[derive(Debug, Clone)]
struct Lists {
    /// The extents of the images, with the zeros that are put behind them first.
    extents: Vec<usize>,
    /// More zeros behind the images than before them.
    more_behind: Vec<usize>,
    stride: Vec<usize>,
    padding: Vec<usize>,
    dilation: Vec<usize>,
    groups: usize,
    tf32: bool,
}

impl Lists {
    fn of(placed: &[Placement], groups: usize, precision: Precision) -> Lists {
        let column = |of: fn(&Placement) -> usize| placed.iter().map(of).collect::<Vec<_>>();
        let more_behind = column(|p| p.high().saturating_sub(p.low));
        let extents = placed.iter().zip(&more_behind).map(|(p, more)| p.extent.saturating_add(*more)).collect();
        let (stride, padding, dilation) = (column(|p| p.step), column(|p| p.low), column(|p| p.dilation));
        let tf32 = precision == Precision::Tf32;
        Lists { extents, more_behind, stride, padding, dilation, groups, tf32 }
    }

    fn geometry(&self) -> Geometry<'_> {
        let Lists { stride, padding, dilation, groups, .. } = self;
        Geometry { stride, padding, dilation, groups: *groups }
    }

    /// Images with the zeros that are more behind them than before.
    #[track_caller]
    fn padded(&self, images: Tensor) -> Tensor {
        if self.more_behind.iter().all(|more| *more == 0) {
            return images;
        }
        let high: Vec<usize> = [0, 0].into_iter().chain(self.more_behind.iter().copied()).collect();
        prims::pad(images, vec![0; high.len()], high, 0.0)
    }

    /// The images themselves of what [`Self::padded`] gives.
    #[track_caller]
    fn unpadded(&self, padded: Tensor) -> Tensor {
        if self.more_behind.iter().all(|more| *more == 0) {
            return padded;
        }
        let mut ends = padded.shape().to_vec();
        for (end, more) in ends[2..].iter_mut().zip(&self.more_behind) {
            *end -= more;
        }
        prims::slice(padded, vec![0; ends.len()], &ends, vec![1; ends.len()])
    }

    /// How many channels of zeros images of few channels get, so that the library has engines for channels innermost:
    /// of three channels those for channels where they are take up to ten times as long. Images do not become larger
    /// than the result is.
    fn more_channels(&self, images: Tensor, weight: Tensor) -> usize {
        let (mut image, mut shape) = (images.shape().to_vec(), weight.shape().to_vec());
        let channels = shape[1];
        let padded = channels.next_multiple_of(CHANNELS_AT_ONCE);
        (image[1], shape[1]) = (padded, padded);
        let suits = self.groups == 1
            && channels < CHANNELS_AT_ONCE
            && has_windows(&shape)
            && suits_channels_innermost(weight.dtype(), &shape, 1);
        if !suits {
            return 0;
        }
        let of = Extents { image, weight: shape, out: Vec::new() };
        let elements = |extents: &[usize]| extents.iter().fold(1usize, |all, extent| all.saturating_mul(*extent));
        let fits = elements(&of.image) <= elements(&self.geometry().out_of(&of));
        if fits && library_fits(&of, &self.geometry()).is_ok() { padded - channels } else { 0 }
    }

    /// Images, or weights, with more channels of zeros.
    #[track_caller]
    fn with_channels(tensor: Tensor, more: usize) -> Tensor {
        if more == 0 {
            return tensor;
        }
        let mut high = vec![0; tensor.rank()];
        high[1] = more;
        prims::pad(tensor, vec![0; high.len()], high, 0.0)
    }

    /// A gradient without the channels that were added to its tensor.
    #[track_caller]
    fn without_channels(gradient: Tensor, more: usize) -> Tensor {
        if more == 0 {
            return gradient;
        }
        let mut ends = gradient.shape().to_vec();
        ends[1] -= more;
        prims::slice(gradient, vec![0; ends.len()], &ends, vec![1; ends.len()])
    }

    #[track_caller]
    fn convolution(&self, images: Tensor, weight: Tensor) -> Tensor {
        let Lists { stride, padding, dilation, groups, tf32, .. } = self;
        convolution::with(images, weight, stride, padding, dilation, *groups).tf32(*tf32).call()
    }

    #[track_caller]
    fn input_gradient(&self, d_out: Tensor, weight: Tensor) -> Tensor {
        let Lists { extents, stride, padding, dilation, groups, tf32, .. } = self;
        let call = convolution_input_gradient::with(d_out, weight, extents, stride, padding, dilation, *groups);
        call.tf32(*tf32).call()
    }

    #[track_caller]
    fn weight_gradient(&self, d_out: Tensor, images: Tensor, weight: Tensor) -> Tensor {
        let Lists { stride, padding, dilation, groups, tf32, .. } = self;
        let sizes = placed_extents(weight);
        let call = convolution_weight_gradient::with(d_out, images, sizes, stride, padding, dilation, *groups);
        call.tf32(*tf32).call()
    }
}

/// A tensor in the form of another, without the batch of one if that has none.
#[track_caller]
fn like(tensor: Tensor, other: Tensor) -> Tensor {
    if tensor.rank() == other.rank() { tensor } else { prims::reshape(tensor, other.shape()) }
}

/// The gradient of a bias.
#[track_caller]
fn bias_gradient(d_out: Tensor) -> Tensor {
    prims::sum(d_out, (0..d_out.rank()).filter(|dim| *dim != 1).collect::<Vec<_>>())
}

/// The images' own extents of a call, and those of its channels.
fn batch_and_channels(input: &TensorMeta, weight: &TensorMeta) -> [usize; 2] {
    match input.shape() {
        [batch, channels, ..] if input.rank() == weight.rank() => [*batch, *channels],
        [channels, ..] => [1, *channels],
        [] => [0, 0],
    }
}

fn claims_convolution(
    precision: Precision,
    input: &TensorMeta,
    weight: &TensorMeta,
    placed: &[Placement],
    groups: usize,
) -> Claim {
    takes(precision, input.dtype())?;
    let lists = Lists::of(placed, groups, precision);
    let image = [&batch_and_channels(input, weight)[..], &lists.extents].concat();
    let of = Extents { image, weight: weight.shape().to_vec(), out: Vec::new() };
    library_fits(&of, &lists.geometry())
}

fn claims_transpose(
    precision: Precision,
    input: &TensorMeta,
    weight: &TensorMeta,
    placed: &[Placement],
    groups: usize,
) -> Claim {
    takes(precision, input.dtype())?;
    let lists = Lists::of(placed, groups, precision);
    let [batch, channels] = batch_and_channels(input, weight);
    let outputs = weight.shape().get(1).map_or(0, |each| each.saturating_mul(groups));
    let image = [&[batch, outputs][..], &lists.extents].concat();
    let of = Extents { image, weight: weight.shape().to_vec(), out: Vec::new() };
    let counts = placed.iter().map(|placed| placed.count);
    let input: Vec<usize> = [batch, channels].into_iter().chain(counts).collect();
    let convolved = lists.geometry().out_of(&of);
    refuse_unless!(
        convolved == input,
        "output_padding makes the result as large as that of an input {convolved:?}, which is {input:?}"
    );
    library_fits(&of, &lists.geometry())
}

macro_rules! convolutions {
    ($($module:ident: $of:ident;)*) => {$(
        #[implementation(of = fulgurite_ops::nn::$of, by = [cudnn, cudnn_tf32])]
        mod $module {
            fn checker(
                Args { input, weight, bias: _, stride, padding, dilation, groups }: Args<&TensorMeta>,
                precision: Precision,
            ) -> Claim {
                let placed = windows_of_convolution(input, weight, &stride, &padding, &dilation);
                claims_convolution(precision, input, weight, &placed, groups)
            }

            fn execution(
                Args { input, weight, bias, stride, padding, dilation, groups }: Args<Tensor>,
                precision: Precision,
            ) -> Tensor {
                let placed = windows_of_convolution(&input.meta(), &weight.meta(), &stride, &padding, &dilation);
                let lists = Lists::of(&placed, groups, precision);
                let images = lists.padded(batched(input, placed.len()));
                let more = lists.more_channels(images, weight);
                let [images, weight] = [images, weight].map(|tensor| Lists::with_channels(tensor, more));
                finished(lists.convolution(images, weight), bias, input)
            }

            fn grad(
                Args { input, weight, bias, stride, padding, dilation, groups }: Args<Tensor>,
                precision: Precision,
            ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
                let placed = windows_of_convolution(&input.meta(), &weight.meta(), &stride, &padding, &dilation);
                let lists = Lists::of(&placed, groups, precision);
                let images = lists.padded(batched(input, placed.len()));
                let more = lists.more_channels(images, weight);
                let [images, weight] = [images, weight].map(|tensor| Lists::with_channels(tensor, more));
                let out = finished(lists.convolution(images, weight), bias, input);
                (out, move |d_out: Tensor| {
                    let d_out = batched(d_out, placed.len());
                    let own = |gradient: Tensor| Lists::without_channels(gradient, more);
                    Grads {
                        input: like(lists.unpadded(own(lists.input_gradient(d_out, weight))), input),
                        weight: own(lists.weight_gradient(d_out, images, weight)),
                        bias: bias.map(|_| bias_gradient(d_out)),
                    }
                })
            }
        }
    )*};
}

convolutions! {
    conv1d_by_cudnn: conv1d;
    conv2d_by_cudnn: conv2d;
    conv3d_by_cudnn: conv3d;
}

macro_rules! transposes {
    ($($module:ident: $of:ident;)*) => {$(
        #[implementation(of = fulgurite_ops::nn::$of, by = [cudnn, cudnn_tf32])]
        mod $module {
            fn checker(
                Args { input, weight, bias: _, stride, padding, output_padding, groups, dilation }: Args<&TensorMeta>,
                precision: Precision,
            ) -> Claim {
                let placed = windows_of_transpose(input, weight, [&stride, &padding, &output_padding, &dilation]);
                claims_transpose(precision, input, weight, &placed, groups)
            }

            fn execution(
                Args { input, weight, bias, stride, padding, output_padding, groups, dilation }: Args<Tensor>,
                precision: Precision,
            ) -> Tensor {
                let all = [&stride[..], &padding, &output_padding, &dilation];
                let lists = Lists::of(&windows_of_transpose(&input.meta(), &weight.meta(), all), groups, precision);
                finished(lists.input_gradient(batched(input, lists.stride.len()), weight), bias, input)
            }

            fn grad(
                Args { input, weight, bias, stride, padding, output_padding, groups, dilation }: Args<Tensor>,
                precision: Precision,
            ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
                let all = [&stride[..], &padding, &output_padding, &dilation];
                let lists = Lists::of(&windows_of_transpose(&input.meta(), &weight.meta(), all), groups, precision);
                let images = batched(input, lists.stride.len());
                let out = finished(lists.input_gradient(images, weight), bias, input);
                (out, move |d_out: Tensor| {
                    let d_out = batched(d_out, lists.stride.len());
                    Grads {
                        input: like(lists.convolution(d_out, weight), input),
                        weight: lists.weight_gradient(images, d_out, weight),
                        bias: bias.map(|_| bias_gradient(d_out)),
                    }
                })
            }
        }
    )*};
}

transposes! {
    conv_transpose1d_by_cudnn: conv_transpose1d;
    conv_transpose2d_by_cudnn: conv_transpose2d;
    conv_transpose3d_by_cudnn: conv_transpose3d;
}
