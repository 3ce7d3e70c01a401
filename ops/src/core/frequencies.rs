//! Frequencies of Fourier transforms, and the orders that they are kept in.

use fulgurite_ops_macros::operators;

use super::arrays::{array, rearranged};
use super::promotion::{cast, named_dims, position};
use super::roll;
use crate::prims;

// Declares the frequencies of a transform of `n` samples.
operators! {
    #[operator(torch = $torch, no_grad = "frequencies are made of numbers")]
    pub mod $name {
        fn $name(
            n: usize,
            #[default(1.0)] d: f64,
            #[default(None)] dtype: Option<DType>,
            #[default("cpu")] device: String,
        ) -> Tensor;

        fn requires(n: usize, dtype: Option<DType>, device: &str) -> Result<()> {
            let known = device.parse::<Device>().is_ok();
            require!(known, UnknownDevice, "'{device}' is not a device, expected 'cpu', ...");
            let own = dtype.unwrap_or(DType::F32);
            require!(own.is_floating(), Types, "dtype is {own}, expected a floating-point type");
            require!(n <= super::MOST, Count, "n is {n}, expected at most {}", super::MOST);
            Ok(())
        }

        fn decomposition(n: usize, d: f64, dtype: Option<DType>, device: &str) -> Tensor {
            let device = device.parse().unwrap_or(Device::CPU);
            let place = prims::iota($count, 0i64, 1i64, DType::I64, device);
            let number: Tensor = $number;
            cast(prims::mul(cast(number, DType::F64), 1.0 / (n as f64 * d)), dtype.unwrap_or(DType::F32))
        }

        fn reference(n: usize, d: f64) -> ArrayD<f64> {
            let numbers: Vec<i64> = $reference;
            array(&[numbers.len()], numbers.iter().map(|i| *i as f64 / (n as f64 * d)).collect())
        }

        fn samples(s: &mut Samples) {
            s.case(with(5));
            s.case(with(6).d(0.25).dtype(DType::F64));
            s.case(with(1));
            s.case(with(4).d(-2.0));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(UnknownDevice, with(2).device("?"), "'?' is not a device");
            e.case(Types, with(2).dtype(DType::I64), "expected a floating-point type");
            e.case(Count, with((1usize << 53) + 1), "expected at most");
        }
    }

    table($name, $torch, $count, $number, $reference) {
        /// The frequencies of the discrete Fourier transform of `n` samples at distances `d`: 0, 1, ... up to the half
        /// of `n`, then the negative ones up to -1, each divided by `n · d`; f32 unless `dtype` says otherwise.
        fftfreq, "fft.fftfreq", n,
            prims::select(prims::lt(place, n.div_ceil(2) as i64), place, prims::sub(place, n as i64)),
            (0..n as i64).map(|i| if 2 * i < n as i64 { i } else { i - n as i64 }).collect();
        /// The frequencies of the transform of `n` real samples at distances `d`: 0, 1, ... up to the half of `n`, each
        /// divided by `n · d`; f32 unless `dtype` says otherwise.
        rfftfreq, "fft.rfftfreq", n / 2 + 1, place, (0..=n as i64 / 2).collect();
    }
}

/// The most samples: their numbers are exact in f64.
const MOST: usize = 1 << 53;

fn half(extent: usize) -> usize {
    extent / 2
}

fn rest(extent: usize) -> usize {
    extent.div_ceil(2)
}

// Declares rotations by half of each dimension.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor, #[default(None)] dim: Option<Vec<i64>>) -> Tensor;

        fn requires(input: &TensorMeta, dim: Option<&[i64]>) -> Result<()> {
            let Some(dims) = dim else { return Ok(()) };
            require!(
                input.rank() > 0 && named_dims(dims, input.rank()).is_some(),
                Dims,
                "dim is {dims:?}, expected distinct dimensions of a tensor of rank {}",
                input.rank()
            );
            Ok(())
        }

        fn decomposition(input: Tensor, dim: Option<&[i64]>) -> Tensor {
            let dims: Vec<i64> = dim.map_or_else(|| (0..input.rank() as i64).collect(), <[i64]>::to_vec);
            if dims.is_empty() {
                return input;
            }
            let extents = input.shape();
            let named = |dim: &i64| position(*dim, extents.len());
            let shifts: Vec<i64> = dims.iter().map(|dim| $shift(extents[named(dim)]) as i64).collect();
            roll::with(input, shifts).dims(dims).call()
        }

        fn reference(input: &ReferenceTensor, dim: Option<&[i64]>) -> ReferenceTensor {
            let shape = input.shape().to_vec();
            let rank = shape.len() as i64;
            let turned = |i: usize| dim.is_none_or(|dims| dims.iter().any(|dim| dim.rem_euclid(rank) == i as i64));
            rearranged(input, &shape, 0.0, |at| {
                let from = |(i, at): (usize, &usize)| match turned(i) {
                    true => (at + $back(shape[i])) % shape[i],
                    false => *at,
                };
                Some(at.iter().enumerate().map(from).collect())
            })
        }

        fn samples(s: &mut Samples) {
            s.case(with(s.normal([5])));
            s.case(with(s.normal([2, 5, 4])));
            s.case(with(s.normal([3, 5])).dim(vec![-1]));
            s.case(with(s.normal([])));
            s.case(with(s.normal([0, 3])));
            s.case(with(s.normal([5])).dim(vec![0]));
        }

        fn errors(e: &mut ErrorSamples) {
            e.case(Dims, with(e.normal([2, 3])).dim(vec![2]), "dim is [2]");
            e.case(Dims, with(e.normal([])).dim(vec![0]), "of a tensor of rank 0");
        }
    }

    table($name, $torch, $shift, $back) {
        /// Frequencies of a transform in ascending order: each of the dimensions `dim`, of all if it is absent, rotated
        /// by half of its extent, so that what was at 0 is in the middle.
        fftshift, "fft.fftshift", half, rest;
        /// What [`mod@fftshift`] did is undone.
        ifftshift, "fft.ifftshift", rest, half;
    }
}
