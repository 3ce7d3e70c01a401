//! The inverses of pools of largest elements.

use fulgurite_ops_macros::operators;
use fulgurite_runtime::TensorMeta;

use super::placement::{fits_dimensions, for_each, last, positive_for_each};
use crate::core::read_as;
use crate::prims;
use crate::prims::support::zeros;

/// The extents of the result, and whether they are those of a pool: those that it has without `output_size`, or others
/// by less than a stride.
fn extents(
    input: &TensorMeta,
    rank: usize,
    [kernel_size, stride, padding]: [&[usize]; 3],
    output_size: Option<&[usize]>,
) -> Option<Vec<usize>> {
    let each = |list: &[usize]| for_each(list, rank).unwrap_or_else(|| vec![1; rank]);
    let sizes = each(kernel_size);
    let steps = if stride.is_empty() { sizes.clone() } else { each(stride) };
    let low = each(padding);
    let own = &input.shape()[input.rank() - rank..];
    // PyTorch takes the shape of the whole result, too.
    let asked = match output_size {
        Some(sizes) if sizes.len() == rank + 2 => Some(&sizes[2..]),
        Some(sizes) if sizes.len() == rank => Some(sizes),
        Some(_) => return None,
        None => None,
    };
    (0..rank)
        .map(|i| {
            let before = own[i].checked_sub(1)?.saturating_mul(steps[i]).saturating_add(sizes[i]);
            let usual = before as i128 - 2 * low[i] as i128;
            match asked {
                Some(asked) => {
                    ((asked[i] as i128 - usual).abs() < steps[i] as i128).then_some(asked[i]).filter(|at| *at > 0)
                }
                None => usize::try_from(usual).ok().filter(|extent| *extent > 0),
            }
        })
        .collect()
}

operators! {
    #[operator(torch = $torch)]
    pub mod $name {
        fn $name(
            input: Tensor<Floating>,
            indices: Tensor<Integer>,
            kernel_size: Vec<usize>,
            #[default(None)] stride: Option<Vec<usize>>,
            #[default(vec![0])] padding: Vec<usize>,
            #[default(None)] output_size: Option<Vec<usize>>,
        ) -> Tensor;

        fn requires(
            Args { input, indices, kernel_size, stride, padding, output_size }: Args<&TensorMeta>,
        ) -> Result<()> {
            let shape = input.shape();
            require!(
                (input.rank() == $rank + 1 || input.rank() == $rank + 2)
                    && !shape[input.rank() - $rank - 1..].contains(&0),
                InputShape,
                "input has shape {shape:?}, expected {} or {} dimensions, none of them empty but that of a batch",
                $rank + 1,
                $rank + 2
            );
            require!(
                indices.shape() == shape && indices.dtype() == DType::I64,
                Indices,
                "indices is {indices}, expected i64 and the shape {shape:?} of input"
            );
            positive_for_each(("kernel_size", &kernel_size), $rank, [Code::Lists, Code::Positive])?;
            let stride = stride.unwrap_or_default();
            if !stride.is_empty() {
                positive_for_each(("stride", &stride), $rank, [Code::Lists, Code::Positive])?;
            }
            fits_dimensions(("padding", &padding), $rank, Code::Lists)?;
            require!(
                super::extents(input, $rank, [&kernel_size, &stride, &padding], output_size.as_deref()).is_some(),
                OutputSize,
                "output_size is {output_size:?}, expected {} extents that windows {kernel_size:?}, {stride:?} apart, \
                 of padding {padding:?} make of input of shape {shape:?}",
                $rank
            );
            Ok(())
        }

        fn decomposition(
            Args { input, indices, kernel_size, stride, padding, output_size }: Args<Tensor>,
        ) -> Tensor {
            let own = input.meta();
            let stride = stride.unwrap_or_default();
            let extents = super::extents(&own, $rank, [&kernel_size, &stride, &padding], output_size.as_deref());
            let (extents, leading) = (extents.unwrap_or_default(), own.rank() - $rank);
            let line = |count: usize| [&own.shape()[..leading], &[count]].concat();
            let flat = line(own.shape()[leading..].iter().product());
            let empty = zeros(&own.with_shape(line(extents.iter().fold(1, |all, extent| all.saturating_mul(*extent)))));
            let all = prims::scatter(empty, leading, read_as(indices, &flat), read_as(input, &flat));
            read_as(all, &[&own.shape()[..leading], &extents[..]].concat())
        }

        /// Every element has the cotangent at its position, as in PyTorch, also where another one is kept: windows that
        /// overlap have one largest element in common.
        fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let (own, indices) = (args.input.meta(), args.indices);
            (args.call(), move |d_out: Tensor| {
                let leading = own.rank() - $rank;
                let line = |shape: &[usize]| [&shape[..leading], &[shape[leading..].iter().product()]].concat();
                let all = read_as(d_out, &line(&d_out.shape()));
                let found = prims::gather(all, leading, read_as(indices, &line(own.shape())));
                Grads { input: read_as(found, own.shape()) }
            })
        }

        fn reference(
            Args { input, indices, kernel_size, stride, padding, output_size }: Args<&ReferenceTensor>,
        ) -> Result<ArrayD<f64>> {
            let (shape, leading) = (input.shape().to_vec(), input.ndim() - $rank);
            let of = |list: &[usize], i: usize| list[i % list.len()];
            let stride = stride.unwrap_or(kernel_size.clone());
            let usual = |i: usize| {
                (shape[leading + i] - 1) * of(&stride, i) + of(&kernel_size, i) - 2 * of(&padding, i)
            };
            let extents: Vec<usize> = (0..$rank)
                .map(|i| output_size.as_ref().map_or_else(|| usual(i), |sizes| sizes[sizes.len() - $rank + i]))
                .collect();
            let mut out = ArrayD::zeros(IxDyn(&[&shape[..leading], &extents[..]].concat()));
            for (at, value) in input.indexed_iter() {
                let mut place = indices[&at];
                if place < 0 || place >= extents.iter().product::<usize>() as i64 {
                    return Err(Failure::new("IndexOutOfRange", format!("indices holds {place}")));
                }
                let mut to = ndarray::Dimension::slice(&at).to_vec();
                for i in (0..$rank).rev() {
                    to[leading + i] = place as usize % extents[i];
                    place /= extents[i] as i64;
                }
                out[to.as_slice()] = *value;
            }
            Ok(out)
        }

        fn samples(s: &mut Samples) {
            let shape = |leading: &[usize]| [leading, &last($rank, [1, 1, 3])].concat();
            let places = |s: &Samples, leading: &[usize], at: &[f64]| s.values(shape(leading), at).cast(DType::I64);
            let two = places(s, &[1, 2], &[0.0, 3.0, 5.0, 1.0, 2.0, 4.0]);
            s.case(with(s.normal(shape(&[1, 2])), two.clone(), [2]));
            let one = places(s, &[1], &[1.0, 3.0, 4.0]);
            s.case(with(s.normal(shape(&[1])), one, [3]).stride([2]).padding([1]));
            s.case(with(s.normal(shape(&[1, 2])), two, [2]).output_size(last($rank, [2, 3, 7])));
            let twice = places(s, &[1], &[2.0, 0.0, 2.0]);
            let twice = with(s.normal(shape(&[1])), twice, [2]);
            s.case(twice).forward_only("one element is kept, both have a gradient").gradients([&[3.0, 1.0, 3.0]]);
        }

        fn errors(e: &mut ErrorSamples) {
            let shape = |leading: &[usize]| [leading, &[2; $rank]].concat();
            let call = |shape: &[usize], kernel: &[usize]| with(e.normal(shape), e.integers(0, 4, shape), kernel);
            let plain = |kernel: &[usize]| call(&shape(&[1, 2]), kernel);
            e.case(InputShape, call(&shape(&[]), &[1]), "none of them empty but that of a batch");
            e.case(InputShape, call(&shape(&[1, 1, 1]), &[1]), "input has shape [1, 1, 1, 2");
            e.case(InputShape, call(&shape(&[1, 0]), &[1]), "input has shape [1, 0, 2");
            let (values, other) = (e.normal(shape(&[2])), shape(&[1]));
            e.case(Indices, with(values.clone(), e.integers(0, 2, other), [1]), "expected i64 and the shape [2, 2");
            let narrow = e.integers(0, 2, shape(&[2])).cast(DType::I32);
            e.case(Indices, with(values, narrow, [1]), "expected i64");
            e.case(Lists, plain(&[1; 4]), "kernel_size is [1, 1, 1, 1], expected one number");
            e.case(Lists, plain(&[1]).stride([1; 4]), "stride is [1, 1, 1, 1]");
            e.case(Lists, plain(&[1]).padding([0; 4]), "padding is [0, 0, 0, 0]");
            e.case(Positive, plain(&[0]), "kernel_size is [0]");
            e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
            e.case(OutputSize, plain(&[2]).output_size([1; 6]), "output_size is Some([1, 1, 1, 1, 1, 1])");
            e.case(OutputSize, plain(&[2]).output_size(vec![6; $rank]), "output_size is Some([6");
            e.case(OutputSize, plain(&[1]).padding([1]), "output_size is None");
        }
    }

    table($name, $torch, $rank) {
        /// The elements of `input` [N, C, L] (or [C, L]) at the positions `indices` of a longer result, whose other
        /// elements are 0: the inverse of [`mod@super::max_pool1d_with_indices`]. Of several for one position the last
        /// is kept, and each has the gradient there. The result has as many elements as `output_size`, or as windows of
        /// `kernel_size`, `stride` apart, of `padding` reach over. A position out of range is an error when the program
        /// runs.
        max_unpool1d, "nn.functional.max_unpool1d", 1;
        /// As [`mod@max_unpool1d`], of two dimensions: [N, C, H, W] (or [C, H, W]).
        max_unpool2d, "nn.functional.max_unpool2d", 2;
        /// As [`mod@max_unpool1d`], of three dimensions: [N, C, D, H, W] (or [C, D, H, W]).
        max_unpool3d, "nn.functional.max_unpool3d", 3;
    }
}
