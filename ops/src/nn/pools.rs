//! Pools of one to three dimensions: means, largest elements and norms of windows. Means of bf16 and f16 are computed
//! in f32.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::rules::{ArrayD, ReferenceTensor};
use fulgurite_runtime::{Tensor, TensorMeta};

use super::placement::{as_floats, last};
use super::pooling::{Pool, first_largest, maxima, means, of_windows, picked};
use crate::core::promotion::{accumulating, cast};
use crate::core::{mul, pow};
use crate::nn::relu;
use crate::prims;

// Declares means of windows.
operators! {
    #[operator(torch = $torch, dtypes(i64, bf16, f16, f32, f64))]
    pub mod $name {
        fn $name(
            input: Tensor<Number>,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(vec![0])] padding: Vec<usize>,
            #[default(false)] ceil_mode: bool,
            #[default(true)] count_include_pad: bool,
            #[default(None)] divisor_override: Option<i64>,
        ) -> Tensor;

        fn requires(
            Args { input, kernel_size, stride, padding, ceil_mode, divisor_override, .. }: Args<&TensorMeta>,
        ) -> Result<()> {
            let pool = pool(&kernel_size, stride.as_deref(), &padding, ceil_mode);
            pool.check(input, [Code::InputShape, Code::Lists, Code::Positive, Code::HalfPadding, Code::NoWindow])?;
            require!(divisor_override != Some(0), Divisor, "divisor_override is 0, expected another number");
            Ok(())
        }

        fn pool<'a>(
            kernel_size: &'a [usize],
            stride: Option<&'a [usize]>,
            padding: &'a [usize],
            ceil_mode: bool,
        ) -> Pool<'a> {
            Pool { rank: $rank, kernel_size, stride, padding, dilation: &[1], ceil_mode }
        }

        fn decomposition(
            Args { input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override }: Args<Tensor>,
        ) -> Tensor {
            let placed = pool(&kernel_size, stride.as_deref(), &padding, ceil_mode).windows(&input.shape());
            super::means(input, &placed, count_include_pad, divisor_override)
        }

        fn reference(
            Args { input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override }: Args<
                &ReferenceTensor,
            >,
        ) -> ReferenceTensor {
            let pool = pool(&kernel_size, stride.as_deref(), &padding, ceil_mode);
            let values = as_floats(input);
            let means = super::of_windows(&values, &pool, |places, padded| {
                let counted = if count_include_pad { padded } else { places.len() };
                let divisor = divisor_override.unwrap_or(counted as i64);
                places.iter().map(|place| values[place.as_slice()]).sum::<f64>() / divisor as f64
            });
            match input.dtype().is_floating() {
                true => ReferenceTensor::from_floats(input.dtype(), means),
                false => ReferenceTensor::from_integers(input.dtype(), means.mapv(|x| x as i64)),
            }
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: &[usize]| [leading, &some([3, 4, 5])].concat();
            s.case(with(s.normal(shape(&[2, 3])), [2]));
            s.case(with(s.normal(shape(&[3])), some([1, 2, 3])).stride(some([1, 1, 2])).padding(some([0, 1, 1])));
            let cut = |s: &Samples| with(s.normal(shape(&[1, 2])), [2]).padding([1]).ceil_mode(true);
            s.case(cut(s).stride([2]).count_include_pad(false));
            s.case(cut(s).stride([2]));
            s.case(cut(s).stride([]).divisor_override(-3));
            s.case(with(s.normal(shape(&[0, 2])), [3]).stride([1]));
            // Windows of one size in some dimensions, and of several in the last.
            let uneven = with(s.normal(shape(&[3])), some([2, 2, 3])).stride([2]).padding(some([0, 0, 1]));
            s.case(uneven.count_include_pad(false));
            // One window, as large as the image, and one that reaches beyond its end.
            s.case(with(s.normal(shape(&[2])), some([3, 4, 5])));
            s.case(with(s.normal(shape(&[2])), some([3, 4, 6])).stride([2]).ceil_mode(true));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            let plain = |kernel: &[usize]| with(e.normal(shape(&[1, 2])), kernel);
            e.case(InputShape, with(e.normal(shape(&[])), [1]), "none of them empty but that of a batch");
            e.case(InputShape, with(e.normal(shape(&[1, 1, 2])), [1]), "input has shape [1, 1, 2, 4");
            e.case(InputShape, with(e.normal(shape(&[2, 0])), [1]), "input has shape [2, 0, 4");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Lists, plain(&[1]).stride([1; 4]), "stride is [1, 1, 1, 1]");
            e.case(Lists, plain(&[1]).padding([0; 4]), "padding is [0, 0, 0, 0]");
            e.case(Positive, plain(&[0]), "kernel_size is [0]");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(HalfPadding, plain(&[3]).padding([2]), "padding is [2], expected at most half of kernel_size [3]");
            e.case(NoWindow, plain(&[5]), "there is no window");
            e.case(Divisor, plain(&[2]).divisor_override(0), "divisor_override is 0");
        }
    }

    table($name, $torch, $rank) {
        /// The means of windows of `input` [N, C, L] (or [C, L]), `stride` apart (their size if absent). Zeros of the
        /// padding count unless `count_include_pad` is false; sums are divided by `divisor_override` if there is one,
        /// which PyTorch has for more dimensions only. With `ceil_mode` a last window may reach beyond the end; what is
        /// beyond the padding does not count. Quotients of integers are rounded towards zero.
        avg_pool1d, "nn.functional.avg_pool1d", 1;
        /// As [`mod@avg_pool1d`], of two dimensions: [N, C, H, W] (or [C, H, W]).
        avg_pool2d, "nn.functional.avg_pool2d", 2;
        /// As [`mod@avg_pool1d`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]).
        avg_pool3d, "nn.functional.avg_pool3d", 3;
    }
}

// Declares largest elements of windows, with their positions.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        #[results(values, indices)]
        fn $name(
            input: Tensor<Number>,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(vec![0])] padding: Vec<usize>,
            #[default(vec![1])] dilation: Vec<usize>,
            #[default(false)] ceil_mode: bool,
        ) -> (Tensor, Tensor);

        fn requires(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<&TensorMeta>,
        ) -> Result<()> {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            pool.check(input, [Code::InputShape, Code::Lists, Code::Positive, Code::HalfPadding, Code::NoWindow])
        }

        fn decomposition(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<Tensor>,
        ) -> (Tensor, Tensor) {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            super::maxima(input, &pool.windows(&input.shape()))
        }

        fn reference(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<&ReferenceTensor>,
        ) -> (ReferenceTensor, ArrayD<i64>) {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            let values = as_floats(input);
            let best = super::of_windows(&values, &pool, |places, _| {
                places[super::first_largest(&values, places)].clone()
            });
            super::picked(input, &best, $rank)
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: &[usize]| [leading, &some([3, 4, 6])].concat();
            s.case(with(s.normal(shape(&[2, 3])), [2]));
            s.case(with(s.normal(shape(&[3])), some([1, 2, 3])).stride(some([1, 1, 2])).padding(some([0, 1, 1])));
            s.case(with(s.normal(shape(&[1, 2])), [2]).stride([2]).padding([1]).ceil_mode(true));
            s.case(with(s.normal(shape(&[1, 2])), some([1, 2, 3])).stride([]).dilation(some([1, 2, 2])).padding([0]));
            s.case(with(s.normal(shape(&[0, 2])), [3]).stride([1]));
            let count = some([3, 4, 6]).iter().product::<usize>();
            let ties: Vec<f64> = (0..count).map(|i| (i * 7 % 3) as f64).collect();
            let tied = with(s.values(shape(&[1]), ties), [3]).stride([1]).padding([1]);
            s.case(tied).forward_only("ties");
            if s.dtype().is_floating() {
                let low: Vec<f64> = (0..count).map(|i| if i == 4 { f64::NAN } else { f64::NEG_INFINITY }).collect();
                let low = with(s.values(shape(&[1]), low), [2]).stride([1]).padding([1]);
                s.case(low).forward_only("special values");
            }
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            let plain = |kernel: &[usize]| with(e.normal(shape(&[1, 2])), kernel);
            e.case(InputShape, with(e.normal(shape(&[])), [1]), "none of them empty but that of a batch");
            e.case(InputShape, with(e.normal(shape(&[2, 0])), [1]), "input has shape [2, 0, 4");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Lists, plain(&[1]).stride([1; 4]), "stride is [1, 1, 1, 1]");
            e.case(Lists, plain(&[1]).padding([0; 4]), "padding is [0, 0, 0, 0]");
            e.case(Lists, plain(&[1]).dilation([1; 4]), "dilation is [1, 1, 1, 1]");
            e.case(Positive, plain(&[0]), "kernel_size is [0]");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(Positive, plain(&[1]).dilation([0]), "dilation is [0]");
            e.case(HalfPadding, plain(&[3]).padding([2]), "padding is [2], expected at most half of kernel_size [3]");
            e.case(NoWindow, plain(&[5]), "there is no window");
        }
    }

    table($name, $torch, $rank) {
        /// The largest elements of windows of `input` [N, C, L] (or [C, L]), `stride` apart (their size if absent), and
        /// their positions in `input`: of equal ones the first. If one is NaN it is chosen, the first of several, where
        /// PyTorch's is the last. Padding is never chosen.
        /// With `ceil_mode` a last window may reach beyond the end.
        max_pool1d_with_indices, "nn.functional.max_pool1d_with_indices", 1;
        /// As [`mod@max_pool1d_with_indices`], of two dimensions: [N, C, H, W] (or [C, H, W]). Positions are those in
        /// H · W elements.
        max_pool2d_with_indices, "nn.functional.max_pool2d_with_indices", 2;
        /// As [`mod@max_pool1d_with_indices`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]). Positions are
        /// those in D · H · W elements.
        max_pool3d_with_indices, "nn.functional.max_pool3d_with_indices", 3;
    }
}

// Declares largest elements of windows.
operators! {
    #[operator(torch = $torch, $dtypes)]
    pub mod $name {
        fn $name(
            input: Tensor<Number>,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(vec![0])] padding: Vec<usize>,
            #[default(vec![1])] dilation: Vec<usize>,
            #[default(false)] ceil_mode: bool,
        ) -> Tensor;

        fn requires(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<&TensorMeta>,
        ) -> Result<()> {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            pool.check(input, [Code::InputShape, Code::Lists, Code::Positive, Code::HalfPadding, Code::NoWindow])
        }

        fn decomposition(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<Tensor>,
        ) -> Tensor {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            super::maxima(input, &pool.windows(&input.shape())).0
        }

        fn reference(
            Args { input, kernel_size, stride, padding, dilation, ceil_mode }: Args<&ReferenceTensor>,
        ) -> ReferenceTensor {
            let (kernel_size, stride, padding) = (&kernel_size[..], stride.as_deref(), &padding[..]);
            let pool = Pool { rank: $rank, kernel_size, stride, padding, dilation: &dilation, ceil_mode };
            let values = as_floats(input);
            let best = super::of_windows(&values, &pool, |places, _| {
                places[super::first_largest(&values, places)].clone()
            });
            super::picked(input, &best, $rank).0
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: &[usize]| [leading, &some([3, 4, 6])].concat();
            s.case(with(s.normal(shape(&[3])), some([1, 2, 3])).stride(some([1, 1, 2])).padding(some([0, 1, 1])));
            s.case(with(s.normal(shape(&[1, 2])), [2]).stride([2]).padding([1]).ceil_mode(true));
            s.case(with(s.normal(shape(&[1, 2])), some([1, 2, 3])).dilation(some([1, 2, 2])));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            let plain = |kernel: &[usize]| with(e.normal(shape(&[1, 2])), kernel);
            e.case(InputShape, with(e.normal(shape(&[])), [1]), "none of them empty but that of a batch");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(HalfPadding, plain(&[3]).padding([2]), "padding is [2], expected at most half of kernel_size [3]");
            e.case(NoWindow, plain(&[5]), "there is no window");
        }
    }

    table($name, $torch, $dtypes, $rank) {
        /// The values of [`mod@max_pool1d_with_indices`]. The gradient of a window goes to the first of its largest
        /// elements.
        max_pool1d, "nn.functional.max_pool1d", dtypes(bf16, f16, f32, f64), 1;
        /// The values of [`mod@max_pool2d_with_indices`]. The gradient of a window goes to the first of its largest
        /// elements.
        max_pool2d, "nn.functional.max_pool2d", _, 2;
        /// The values of [`mod@max_pool3d_with_indices`]. The gradient of a window goes to the first of its largest
        /// elements.
        max_pool3d, "nn.functional.max_pool3d", _, 3;
    }
}

// Declares norms of windows.
operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(
            input: Tensor<Floating>,
            norm_type: f64,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(false)] ceil_mode: bool,
        ) -> Tensor;

        fn requires(
            input: &TensorMeta,
            norm_type: f64,
            kernel_size: &[usize],
            stride: Option<&[usize]>,
            ceil_mode: bool,
        ) -> Result<()> {
            let pool = Pool { rank: $rank, kernel_size, stride, padding: &[0], dilation: &[1], ceil_mode };
            pool.check(input, [Code::InputShape, Code::Lists, Code::Positive, Code::Lists, Code::NoWindow])?;
            require!(norm_type != 0.0, NormType, "norm_type is 0, expected another number");
            Ok(())
        }

        fn decomposition(
            input: Tensor,
            norm_type: f64,
            kernel_size: &[usize],
            stride: Option<&[usize]>,
            ceil_mode: bool,
        ) -> Tensor {
            let pool = Pool { rank: $rank, kernel_size, stride, padding: &[0], dilation: &[1], ceil_mode };
            let placed = pool.windows(&input.shape());
            let elements: f64 = placed.iter().map(|placed| placed.size as f64).product();
            let means = super::means(pow(accumulating(input), norm_type), &placed, true, None);
            let sums = mul(mul(prims::sign(means), relu(prims::abs(means))), elements);
            cast(pow(sums, 1.0 / norm_type), input.dtype())
        }

        fn reference(
            input: &ArrayD<f64>,
            norm_type: f64,
            kernel_size: &[usize],
            stride: Option<&[usize]>,
            ceil_mode: bool,
        ) -> ArrayD<f64> {
            let pool = Pool { rank: $rank, kernel_size, stride, padding: &[0], dilation: &[1], ceil_mode };
            let elements: usize = (0..$rank).map(|i| kernel_size[i % kernel_size.len()]).product();
            super::of_windows(input, &pool, |places, counted| {
                let sum: f64 = places.iter().map(|place| input[place.as_slice()].powf(norm_type)).sum();
                (sum / counted as f64 * elements as f64).powf(1.0 / norm_type)
            })
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: &[usize]| [leading, &some([3, 4, 5])].concat();
            s.case(with(s.normal(shape(&[2, 3])), 2.0, some([1, 2, 3])));
            s.case(with(s.uniform(0.5, 2.0, shape(&[3])), 1.5, [2]).stride(some([1, 1, 2])).ceil_mode(true));
            s.case(with(s.normal(shape(&[2])), 2.0, some([3, 4, 5])));
            let odd = with(s.normal(shape(&[2])), 3.0, [2]);
            s.case(odd).forward_only("negative sums have no root");
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[4; $rank]].concat();
            let plain = |kernel: &[usize]| with(e.normal(shape(&[1, 2])), 2.0, kernel);
            e.case(InputShape, with(e.normal(shape(&[])), 2.0, [1]), "none of them empty but that of a batch");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(NoWindow, plain(&[5]), "there is no window");
            e.case(NormType, with(e.normal(shape(&[2])), 0.0, [1]), "norm_type is 0");
        }
    }

    table($name, $torch, $rank) {
        /// The norms `(Σ xᵖ)^(1/p)` of windows of `input` [N, C, L] (or [C, L]), p being `norm_type`, `stride` apart
        /// (their size if absent). With `ceil_mode` a last window may reach beyond the end: its sum is scaled to that
        /// of a whole window. Negative numbers are not made positive.
        lp_pool1d, "nn.functional.lp_pool1d", 1;
        /// As [`mod@lp_pool1d`], of two dimensions: [N, C, H, W] (or [C, H, W]).
        lp_pool2d, "nn.functional.lp_pool2d", 2;
        /// As [`mod@lp_pool1d`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]).
        lp_pool3d, "nn.functional.lp_pool3d", 3;
    }
}
