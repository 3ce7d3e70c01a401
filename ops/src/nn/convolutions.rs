//! Convolutions of one to three dimensions, and their transposes: products of weights and windows. Products of bf16 and
//! f16 are accumulated in f32.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::rules::{ArrayD, IxDyn};

use super::convolved::{ConvPadding, Convolution, convolved, convolved_transposed};
use super::placement::{as_floats, fits_dimensions, last, positive_for_each};

/// For references: an element of each image at a place that may be outside, where it is 0.
fn element(array: &ArrayD<f64>, leading: &[usize], place: &[Option<usize>]) -> f64 {
    let rest: Option<Vec<usize>> = place.iter().copied().collect();
    rest.and_then(|rest| array.get(IxDyn(&[leading, &rest].concat())).copied()).unwrap_or(0.0)
}

/// For references: with a batch of one, if there is none.
fn as_batch(input: &ArrayD<f64>, rank: usize) -> ArrayD<f64> {
    let shape = input.shape();
    if shape.len() == rank + 1 {
        crate::core::arrays::reshaped(input, &[&[1][..], shape].concat())
    } else {
        input.clone()
    }
}

/// For references: without the batch of one that [`as_batch`] made.
fn like_input(out: ArrayD<f64>, rank: usize) -> ArrayD<f64> {
    if out.ndim() == rank { out } else { crate::core::arrays::reshaped(&out, &out.shape()[1..]) }
}

// Declares convolutions.
operators! {
    #[operator(torch = $torch, autocast = low)]
    pub mod $name {
        fn $name(
            input: Tensor<Number>,
            weight: Tensor<Number>,
            #[default(None)] bias: Option<Tensor<Number>>,
            #[default(vec![1])] stride: Vec<usize>,
            #[default(ConvPadding::Each(vec![0]))] padding: ConvPadding,
            #[default(vec![1])] dilation: Vec<usize>,
            #[default(1)] groups: usize,
        ) -> Tensor;

        fn requires(
            Args { input, weight, bias, stride, padding, dilation, groups }: Args<&TensorMeta>,
        ) -> Result<()> {
            let problem = Convolution { rank: $rank, transposed: false, input, weight, groups };
            let tensors = [
                Code::InputRank,
                Code::WeightShape,
                Code::Groups,
                Code::Channels,
                Code::BiasShape,
                Code::SameDType,
            ];
            problem.check(bias, tensors)?;
            positive_for_each(("stride", &stride), $rank, [Code::Lists, Code::Positive])?;
            positive_for_each(("dilation", &dilation), $rank, [Code::Lists, Code::Positive])?;
            if let ConvPadding::Each(numbers) = &padding {
                fits_dimensions(("padding", numbers), $rank, Code::Lists)?;
            }
            require!(
                padding != ConvPadding::Same || stride.iter().all(|step| *step == 1),
                SameStride,
                "stride is {stride:?}, expected ones where padding is \"same\""
            );
            let placed = problem.windows(&stride, &padding, &dilation);
            require!(
                placed.iter().all(|placed| placed.count > 0),
                KernelReach,
                "weight has shape {:?}, with dilation {dilation:?} more than input of shape {:?} with padding has",
                weight.shape(),
                input.shape()
            );
            require!(
                problem.addressable(&placed),
                MemorySize,
                "input has shape {:?}, padding is {padding:?}, dilation {dilation:?}: the windows are larger than any \
                 memory",
                input.shape()
            );
            Ok(())
        }

        fn decomposition(
            Args { input, weight, bias, stride, padding, dilation, groups }: Args<Tensor>,
        ) -> Tensor {
            let (own, weights) = (input.meta(), weight.meta());
            let problem = Convolution { rank: $rank, transposed: false, input: &own, weight: &weights, groups };
            convolved(input, weight, bias, &problem.windows(&stride, &padding, &dilation), groups)
        }

        fn reference(
            Args { input, weight, bias, stride, padding, dilation, groups }: Args<&ReferenceTensor>,
        ) -> ArrayD<f64> {
            let (images, weight) = (super::as_batch(&as_floats(input), $rank), as_floats(weight));
            let bias = bias.map(as_floats);
            let (shape, weights) = (images.shape().to_vec(), weight.shape().to_vec());
            let of = |list: &[usize], i: usize| list[i % list.len()];
            let padded = |i: usize| match &padding {
                ConvPadding::Each(numbers) => [of(numbers, i); 2],
                ConvPadding::Valid => [0; 2],
                ConvPadding::Same => {
                    let all = of(&dilation, i) * (weights[2 + i] - 1);
                    [all / 2, all.div_ceil(2)]
                }
            };
            let extents = (0..$rank).map(|i| {
                let covered = of(&dilation, i) * (weights[2 + i] - 1) + 1;
                (shape[2 + i] + padded(i)[0] + padded(i)[1] - covered) / of(&stride, i) + 1
            });
            let all: Vec<usize> = [shape[0], weights[0]].into_iter().chain(extents).collect();
            let out = ArrayD::from_shape_fn(IxDyn(&all), |at| {
                let mut total = bias.as_ref().map_or(0.0, |bias| bias[[at[1]]]);
                let group = at[1] / (weights[0] / groups);
                for inner in ndarray::indices(&weights[1..]) {
                    let inner = ndarray::Dimension::slice(&inner);
                    let place: Vec<Option<usize>> = (0..$rank)
                        .map(|i| {
                            let at = at[2 + i] * of(&stride, i) + inner[1 + i] * of(&dilation, i);
                            at.checked_sub(padded(i)[0])
                        })
                        .collect();
                    let channel = group * weights[1] + inner[0];
                    let factor = weight[[&[at[1]][..], inner].concat().as_slice()];
                    total += factor * super::element(&images, &[at[0], channel], &place);
                }
                total
            });
            super::like_input(out, input.shape().len())
        }

        fn samples(s: &mut Samples) {
            // As many extents as there are dimensions.
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: [usize; 2], extents: [usize; 3]| [&leading[..], &some(extents)].concat();
            let (images, weight) = (shape([2, 3], [4, 5, 6]), shape([4, 3], [1, 2, 3]));
            s.case(with(s.normal(&images), s.normal(&weight)));
            s.case(with(s.normal(&images[1..]), s.normal(&weight)).bias(s.normal([4])));
            let strided = with(s.normal(&images), s.normal(&weight)).stride(some([1, 2, 3])).padding([1].into());
            s.case(strided);
            let grouped = shape([6, 1], [2, 1, 2]);
            let grouped = with(s.normal(&images), s.normal(&grouped)).groups(3).dilation(some([2, 1, 2]));
            s.case(grouped.bias(s.normal([6])));
            let sides = ConvPadding::Each(some([1, 0, 2]));
            s.case(with(s.normal(&images), s.normal(&weight)).padding(sides).stride([2]));
            let even = shape([1, 3], [2, 3, 4]);
            s.case(with(s.normal(&images), s.normal(&even)).padding(ConvPadding::Same).dilation([2]));
            s.case(with(s.normal(&images), s.normal(&weight)).padding(ConvPadding::Valid).stride([2]));
            s.case(with(s.normal(shape([0, 3], [4, 5, 6])), s.normal(&weight)));
            s.case(with(s.normal(shape([2, 3], [1, 1, 1])), s.normal(shape([2, 3], [1, 1, 1]))));
            s.case(with(s.normal(shape([1, 4], [1, 2, 3])), s.normal(shape([2, 2], [1, 1, 2]))).groups(2));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize], extent: usize| [leading, &[extent; $rank]].concat();
            let (images, weight) = (shape(&[2, 4], 5), shape(&[2, 4], 3));
            let plain = || with(e.normal(&images), e.normal(&weight));
            let flat = with(e.normal(shape(&[], 5)), e.normal(&weight));
            e.case(InputRank, flat, "input has shape [5");
            e.case(InputRank, with(e.normal(shape(&[1, 2, 4], 5)), e.normal(&weight)), "input has shape [1, 2, 4, 5");
            e.case(WeightShape, with(e.normal(&images), e.normal(shape(&[4], 3))), "weight has shape [4, 3");
            e.case(WeightShape, with(e.normal(&images), e.normal(shape(&[2, 4], 0))), "of them not empty");
            e.case(Groups, plain().groups(0), "groups is 0");
            e.case(Groups, plain().groups(3), "groups is 3, expected a divisor of 2");
            e.case(Groups, with(e.normal(&images), e.normal(shape(&[0, 4], 3))), "groups is 1");
            e.case(Channels, plain().groups(2), "expected 8 channels in 2 groups");
            e.case(BiasShape, plain().bias(e.normal([3])), "bias has shape [3], expected [2]");
            let other = if e.dtype() == DType::I64 { DType::I32 } else { DType::I64 };
            e.case(SameDType, with(e.normal(&images), e.of(other, &weight)), "expected equal dtypes");
            e.case(SameDType, plain().bias(e.of(other, [2])), "expected equal dtypes");
            e.case(Lists, plain().stride([1; 4]), "stride is [1, 1, 1, 1], expected one number");
            e.case(Lists, plain().dilation([1; 4]), "dilation is [1, 1, 1, 1], expected one number");
            e.case(Lists, plain().padding([0; 4].into()), "padding is [0, 0, 0, 0], expected one number");
            e.case(Positive, plain().stride([0]), "stride is [0]");
            e.case(Positive, plain().dilation([0]), "dilation is [0]");
            e.case(SameStride, plain().padding(ConvPadding::Same).stride([2]), "stride is [2]");
            e.case(KernelReach, plain().dilation([3]), "with dilation [3] more than input");
            e.case(MemorySize, plain().padding([1usize << 50].into()), "the windows are larger than any memory");
        }
    }

    table($name, $torch, $rank) {
        /// The convolution of `input` [N, C, L] (or [C, L]) and `weight` [out, C / groups, K]: the products of all
        /// windows of `input`, `stride` apart, and of the weights of each output, plus its `bias`.
        conv1d, "nn.functional.conv1d", 1;
        /// As [`mod@conv1d`], of two dimensions: `input` [N, C, H, W] (or [C, H, W]), `weight` [out, C / groups, KH,
        /// KW].
        conv2d, "nn.functional.conv2d", 2;
        /// As [`mod@conv1d`], of three dimensions: `input` [N, C, D, H, W] (or [C, D, H, W]), `weight` [out, C /
        /// groups, KD, KH, KW].
        conv3d, "nn.functional.conv3d", 3;
    }
}

// Declares transposes of convolutions.
operators! {
    #[operator(torch = $torch, autocast = low)]
    pub mod $name {
        fn $name(
            input: Tensor<Number>,
            weight: Tensor<Number>,
            #[default(None)] bias: Option<Tensor<Number>>,
            #[default(vec![1])] stride: Vec<usize>,
            #[default(vec![0])] padding: Vec<usize>,
            #[default(vec![0])] output_padding: Vec<usize>,
            #[default(1)] groups: usize,
            #[default(vec![1])] dilation: Vec<usize>,
        ) -> Tensor;

        fn requires(
            Args { input, weight, bias, stride, padding, output_padding, groups, dilation }: Args<&TensorMeta>,
        ) -> Result<()> {
            let problem = Convolution { rank: $rank, transposed: true, input, weight, groups };
            let tensors = [
                Code::InputRank,
                Code::WeightShape,
                Code::Groups,
                Code::Channels,
                Code::BiasShape,
                Code::SameDType,
            ];
            problem.check(bias, tensors)?;
            positive_for_each(("stride", &stride), $rank, [Code::Lists, Code::Positive])?;
            positive_for_each(("dilation", &dilation), $rank, [Code::Lists, Code::Positive])?;
            fits_dimensions(("padding", &padding), $rank, Code::Lists)?;
            fits_dimensions(("output_padding", &output_padding), $rank, Code::Lists)?;
            let of = |list: &[usize], i: usize| list[i % list.len()];
            require!(
                (0..$rank).all(|i| of(&output_padding, i) < of(&stride, i).max(of(&dilation, i))),
                OutputPadding,
                "output_padding is {output_padding:?}, expected less than stride {stride:?} or dilation {dilation:?}"
            );
            let placed = problem.sums([&stride, &padding, &output_padding, &dilation]);
            require!(
                placed.is_some(),
                OutputExtent,
                "input has shape {:?}, weight {:?}, padding is {padding:?}: the result has no elements",
                input.shape(),
                weight.shape()
            );
            require!(
                placed.is_some_and(|placed| problem.addressable(&placed)),
                MemorySize,
                "input has shape {:?}, stride is {stride:?}, padding {padding:?}, output_padding {output_padding:?}, \
                 dilation {dilation:?}: the result is larger than any memory",
                input.shape()
            );
            Ok(())
        }

        fn decomposition(
            Args { input, weight, bias, stride, padding, output_padding, groups, dilation }: Args<Tensor>,
        ) -> Tensor {
            let (own, weights) = (input.meta(), weight.meta());
            let problem = Convolution { rank: $rank, transposed: true, input: &own, weight: &weights, groups };
            let placed = problem.sums([&stride, &padding, &output_padding, &dilation]).unwrap_or_default();
            convolved_transposed(input, weight, bias, &placed, groups)
        }

        fn reference(
            Args { input, weight, bias, stride, padding, output_padding, groups, dilation }: Args<&ReferenceTensor>,
        ) -> ArrayD<f64> {
            let (images, weight) = (super::as_batch(&as_floats(input), $rank), as_floats(weight));
            let bias = bias.map(as_floats);
            let (shape, weights) = (images.shape().to_vec(), weight.shape().to_vec());
            let of = |list: &[usize], i: usize| list[i % list.len()];
            let extents = (0..$rank).map(|i| {
                let covered = (shape[2 + i] - 1) * of(&stride, i) + of(&dilation, i) * (weights[2 + i] - 1) + 1;
                covered + of(&output_padding, i) - 2 * of(&padding, i)
            });
            let all: Vec<usize> = [shape[0], weights[1] * groups].into_iter().chain(extents).collect();
            let mut out = ArrayD::from_shape_fn(IxDyn(&all), |at| bias.as_ref().map_or(0.0, |bias| bias[[at[1]]]));
            // Each element of the input is spread by the weights of its channel.
            for (from, value) in images.indexed_iter() {
                for inner in ndarray::indices(&weights[1..]) {
                    let inner = ndarray::Dimension::slice(&inner);
                    let group = from[1] / (shape[1] / groups);
                    let place: Option<Vec<usize>> = (0..$rank)
                        .map(|i| {
                            let at = from[2 + i] * of(&stride, i) + inner[1 + i] * of(&dilation, i);
                            at.checked_sub(of(&padding, i))
                        })
                        .collect();
                    let Some(place) = place else { continue };
                    let to = [&[from[0], group * weights[1] + inner[0]][..], &place].concat();
                    if let Some(sum) = out.get_mut(IxDyn(&to)) {
                        *sum += value * weight[[&[from[1]][..], inner].concat().as_slice()];
                    }
                }
            }
            super::like_input(out, input.shape().len())
        }

        fn samples(s: &mut Samples) {
            let some = |extents: [usize; 3]| last($rank, extents);
            let shape = |leading: [usize; 2], extents: [usize; 3]| [&leading[..], &some(extents)].concat();
            let (images, weight) = (shape([2, 3], [2, 3, 4]), shape([3, 2], [1, 2, 3]));
            s.case(with(s.normal(&images), s.normal(&weight)));
            s.case(with(s.normal(&images[1..]), s.normal(&weight)).bias(s.normal([2])));
            let strided = with(s.normal(&images), s.normal(&weight)).stride(some([1, 2, 3])).padding(some([0, 1, 1]));
            s.case(strided);
            let grouped = with(s.normal(&images), s.normal(&weight)).groups(3).dilation(some([2, 1, 2]));
            s.case(grouped.bias(s.normal([6])));
            s.case(with(s.normal(&images), s.normal(&weight)).stride([2]).output_padding([1]));
            // The result reaches further than the windows do.
            s.case(with(s.normal(&images), s.normal(&weight)).dilation([3]).output_padding(some([2, 1, 2])));
            s.case(with(s.normal(shape([0, 3], [2, 3, 4])), s.normal(&weight)));
            s.case(with(s.normal(shape([1, 4], [1, 2, 3])), s.normal(shape([4, 1], [1, 1, 2]))).groups(2));
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize], extent: usize| [leading, &[extent; $rank]].concat();
            let (images, weight) = (shape(&[2, 4], 5), shape(&[4, 2], 3));
            let plain = || with(e.normal(&images), e.normal(&weight));
            e.case(InputRank, with(e.normal(shape(&[], 5)), e.normal(&weight)), "input has shape [5");
            e.case(InputRank, with(e.normal(shape(&[1, 2, 4], 5)), e.normal(&weight)), "input has shape [1, 2, 4, 5");
            e.case(WeightShape, with(e.normal(&images), e.normal(shape(&[4], 3))), "weight has shape [4, 3");
            e.case(WeightShape, with(e.normal(&images), e.normal(shape(&[4, 2], 0))), "of them not empty");
            e.case(Groups, plain().groups(0), "groups is 0");
            e.case(Groups, plain().groups(3), "groups is 3, expected a divisor of 4");
            e.case(Groups, with(e.normal(&images), e.normal(shape(&[0, 4], 3))), "groups is 1");
            e.case(Channels, with(e.normal(&images), e.normal(shape(&[3, 2], 3))), "expected 3 channels");
            e.case(BiasShape, plain().bias(e.normal([3])), "bias has shape [3], expected [2]");
            let other = if e.dtype() == DType::I64 { DType::I32 } else { DType::I64 };
            e.case(SameDType, with(e.normal(&images), e.of(other, &weight)), "expected equal dtypes");
            e.case(SameDType, plain().bias(e.of(other, [2])), "expected equal dtypes");
            for (name, call) in [
                ("stride is [1, 1, 1, 1]", plain().stride([1; 4])),
                ("dilation is [1, 1, 1, 1]", plain().dilation([1; 4])),
                ("padding is [0, 0, 0, 0]", plain().padding([0; 4])),
                ("output_padding is [0, 0, 0, 0]", plain().output_padding([0; 4])),
            ] {
                e.case(Lists, call, name);
            }
            e.case(Positive, plain().stride([0]), "stride is [0]");
            e.case(Positive, plain().dilation([0]), "dilation is [0]");
            e.case(OutputPadding, plain().output_padding([1]), "output_padding is [1], expected less than stride [1]");
            e.case(OutputExtent, plain().padding([4]), "the result has no elements");
            e.case(MemorySize, plain().stride([1usize << 50]), "the result is larger than any memory");
        }
    }

    table($name, $torch, $rank) {
        /// The transpose of a convolution, the gradient of [`mod@conv1d`] by its input: each element of `input` [N, C,
        /// L] (or [C, L]) times the weights [C, out / groups, K] of its channel, added where its window is, plus
        /// `bias`. `padding` elements are cut off on both sides of the result; `output_padding` more are at its end.
        conv_transpose1d, "nn.functional.conv_transpose1d", 1;
        /// As [`mod@conv_transpose1d`], of two dimensions: `input` [N, C, H, W] (or [C, H, W]), `weight` [C, out /
        /// groups, KH, KW].
        conv_transpose2d, "nn.functional.conv_transpose2d", 2;
        /// As [`mod@conv_transpose1d`], of three dimensions: D, H and W in place of L, and KD, KH and KW of K.
        conv_transpose3d, "nn.functional.conv_transpose3d", 3;
    }
}
