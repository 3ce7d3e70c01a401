//! Elements of channels as pixels, and the reverse.

use fulgurite_ops_macros::{operator, operators};
use fulgurite_runtime::reference::ReferenceTensor;
use fulgurite_runtime::{Tensor, TensorMeta};

use super::arrays::rearranged;
use super::read_as;
use crate::prims;

// Declares arrangements of channels, the third dimension from the end, and of pixels, the last two.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor, $factor: usize) -> Tensor;

        fn requires(input: &TensorMeta, $factor: usize) -> Result<()> {
            let name = stringify!($factor);
            require!(
                input.rank() >= 3,
                Rank,
                "input has shape {:?}, expected at least three dimensions",
                input.shape()
            );
            require!($factor > 0, Factor, "{name} is 0, expected a positive number");
            let [channels, height, width] = super::image(input.shape());
            let fits: fn(usize, usize, usize, usize) -> bool = $fits;
            require!(
                fits(channels, height, width, $factor),
                Extents,
                "{name} is {}, input has shape {:?}, expected {}",
                $factor,
                input.shape(),
                $expected
            );
            Ok(())
        }

        fn decomposition(input: Tensor, $factor: usize) -> Tensor {
            let shape = input.shape().to_vec();
            let [channels, height, width] = super::image(&shape);
            let batch: usize = shape[..shape.len() - 3].iter().product();
            let parts: fn([usize; 4], usize) -> ([usize; 6], [usize; 6], [usize; 3]) = $parts;
            let (apart, order, image) = parts([batch, channels, height, width], $factor);
            let moved = prims::permute(read_as(input, &apart), order);
            read_as(moved, &[&shape[..shape.len() - 3], &image].concat())
        }

        fn reference(input: &ReferenceTensor, $factor: usize) -> ReferenceTensor {
            let rank = input.shape().len();
            let mut shape = input.shape().to_vec();
            let made: fn([usize; 3], usize) -> [usize; 3] = $made;
            shape[rank - 3..].copy_from_slice(&made(super::image(input.shape()), $factor));
            let source: fn([usize; 3], usize) -> [usize; 3] = $source;
            rearranged(input, &shape, 0.0, |at| {
                let from = source([at[rank - 3], at[rank - 2], at[rank - 1]], $factor);
                Some([&at[..rank - 3], &from].concat())
            })
        }

        fn samples(s: &mut Samples) {
            let cases: [(&[usize], usize); 4] = $cases;
            for (shape, factor) in cases {
                s.case(with(s.normal(shape), factor));
            }
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Rank, with(e.normal([2, 2]), 1), "at least three dimensions");
            e.case(Factor, with(e.normal([2, 2, 2]), 0), "is 0, expected a positive number");
            e.case(Extents, with(e.normal([3, 3, 3]), 2), "input has shape [3, 3, 3]");
        }
    }

    table($name, $torch, $factor, $fits, $expected, $parts, $made, $source, $cases) {
        /// The channels of each `upscale_factor²` as one with so many more pixels: `[..., C r², H, W]` becomes
        /// `[..., C, H r, W r]`.
        pixel_shuffle, "nn.functional.pixel_shuffle", upscale_factor,
            |channels, _, _, r| r.checked_mul(r).is_some_and(|square| channels.is_multiple_of(square)),
            "a multiple of its square of channels",
            |[n, c, h, w], r| ([n * (c / (r * r)), r, r, h, w, 1], [0, 3, 1, 4, 2, 5], [c / (r * r), h * r, w * r]),
            |[c, h, w], r| [c / (r * r), h * r, w * r],
            |[c, y, x], r| [(c * r + y % r) * r + x % r, y / r, x / r],
            [(&[2, 8, 2, 3], 2), (&[9, 1, 2], 3), (&[4, 2, 0], 2), (&[2, 3, 3], 1)];
        /// The pixels of each square of `downscale_factor²` as so many channels: `[..., C, H r, W r]` becomes
        /// `[..., C r², H, W]`.
        pixel_unshuffle, "nn.functional.pixel_unshuffle", downscale_factor,
            |_, height, width, r| r <= 1 << 16 && height.is_multiple_of(r) && width.is_multiple_of(r),
            "multiples of it of rows and columns",
            |[n, c, h, w], r| ([n * c, h / r, r, w / r, r, 1], [0, 2, 4, 1, 3, 5], [c * r * r, h / r, w / r]),
            |[c, h, w], r| [c * r * r, h / r, w / r],
            |[c, y, x], r| [c / (r * r), y * r + c / r % r, x * r + c % r],
            [(&[2, 2, 4, 6], 2), (&[1, 3, 6], 3), (&[2, 2, 0], 2), (&[2, 3, 3], 1)];
    }
}

/// The last three extents.
fn image(shape: &[usize]) -> [usize; 3] {
    match shape {
        [.., channels, height, width] => [*channels, *height, *width],
        _ => [1, 1, 1],
    }
}

/// The channels, the second dimension, of `groups` groups one of each after another.
#[operator(torch = "nn.functional.channel_shuffle")]
pub mod channel_shuffle {
    fn channel_shuffle(input: Tensor, groups: usize) -> Tensor;

    fn requires(input: &TensorMeta, groups: usize) -> Result<()> {
        require!(input.rank() >= 3, Rank, "input has shape {:?}, expected at least three dimensions", input.shape());
        require!(
            groups > 0 && input.shape()[1].is_multiple_of(groups),
            Groups,
            "groups is {groups}, expected a positive number that divides the {} channels",
            input.shape()[1]
        );
        Ok(())
    }

    fn decomposition(input: Tensor, groups: usize) -> Tensor {
        let shape = input.shape().to_vec();
        let rest: usize = shape[2..].iter().product();
        let apart = prims::reshape(input, [shape[0], groups, shape[1] / groups, rest]);
        prims::reshape(prims::permute(apart, [0, 2, 1, 3]), shape)
    }

    fn reference(input: &ReferenceTensor, groups: usize) -> ReferenceTensor {
        let shape = input.shape().to_vec();
        rearranged(input, &shape, 0.0, |at| {
            let mut from = at.to_vec();
            from[1] = at[1] % groups * (shape[1] / groups) + at[1] / groups;
            Some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 6, 3]), 2));
        s.case(with(s.normal([1, 6, 2, 2]), 3));
        s.case(with(s.normal([0, 4, 2]), 4));
        s.case(with(s.normal([1, 3, 2]), 1));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([2, 2]), 1), "at least three dimensions");
        e.case(Groups, with(e.normal([2, 3, 2]), 2), "divides the 3 channels");
        e.case(Groups, with(e.normal([2, 3, 2]), 0), "groups is 0");
        e.case(Groups, with(e.normal([2, 0, 2]), 0), "groups is 0");
    }
}
