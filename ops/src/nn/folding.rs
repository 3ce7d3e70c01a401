//! Blocks of images as columns, and sums of such columns.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::TensorMeta;

use super::placement::{Placement, fits_dimensions, for_each, positive_for_each, whole_windows, windows_of};
use crate::core::piece;
use crate::core::promotion::number;
use crate::prims;

/// The lists of both operators, which have one number, or one for each dimension.
#[derive(Clone, Copy)]
struct Lists<'a> {
    kernel_size: &'a [usize],
    dilation: &'a [usize],
    padding: &'a [usize],
    stride: &'a [usize],
}

impl Lists<'_> {
    /// The blocks of an image of these extents.
    fn blocks(self, extents: [usize; 2]) -> Vec<Placement> {
        let each = |list: &[usize]| for_each(list, 2).unwrap_or_else(|| vec![1; 2]);
        let (sizes, dilations) = (each(self.kernel_size), each(self.dilation));
        let (low, steps) = (each(self.padding), each(self.stride));
        let placed = |i: usize| {
            let (extent, low, size, step) = (extents[i], low[i], sizes[i], steps[i]);
            let placed = Placement { extent, low, size, step, dilation: dilations[i], count: 0 };
            whole_windows(placed, low, false)
        };
        vec![placed(0), placed(1)]
    }
}

/// For metas: how many images and blocks there are, as text.
fn blocks_text(placed: &[Placement]) -> String {
    format!("{} x {} blocks", placed[0].count, placed[1].count)
}

/// The extents of the last two dimensions.
fn image(input: &TensorMeta) -> [usize; 2] {
    match input.shape() {
        [.., height, width] => [*height, *width],
        _ => [0, 0],
    }
}

/// The blocks of `kernel_size` of the images `input` [N, C, H, W] (or [C, H, W]) as columns [N, C · KH · KW, blocks]
/// (or without N): row by row of blocks, with zeros for padding. PyTorch's `nn.functional.unfold`.
#[operator(torch = "nn.functional.unfold", dtypes(bool, bf16, f16, f32, f64))]
pub mod im2col {
    fn im2col(
        input: Tensor,
        kernel_size: Vec<usize>,
        #[default(vec![1])] dilation: Vec<usize>,
        #[default(vec![0])] padding: Vec<usize>,
        #[default(vec![1])] stride: Vec<usize>,
    ) -> Tensor;

    fn requires(
        input: &TensorMeta,
        kernel_size: &[usize],
        dilation: &[usize],
        padding: &[usize],
        stride: &[usize],
    ) -> Result<()> {
        let shape = input.shape();
        require!(
            matches!(shape.len(), 3 | 4) && !shape[shape.len() - 3..].contains(&0),
            InputShape,
            "input has shape {shape:?}, expected [N, C, H, W] or [C, H, W] with channels and elements"
        );
        positive_for_each(("kernel_size", kernel_size), 2, [Code::Lists, Code::Positive])?;
        positive_for_each(("dilation", dilation), 2, [Code::Lists, Code::Positive])?;
        positive_for_each(("stride", stride), 2, [Code::Lists, Code::Positive])?;
        fits_dimensions(("padding", padding), 2, Code::Lists)?;
        let placed = Lists { kernel_size, dilation, padding, stride }.blocks(super::image(input));
        require!(
            placed.iter().all(|placed| placed.count > 0),
            NoBlock,
            "input has shape {shape:?}, kernel_size is {kernel_size:?}, dilation {dilation:?}, padding {padding:?}: {}",
            super::blocks_text(&placed)
        );
        Ok(())
    }

    fn decomposition(
        input: Tensor,
        kernel_size: &[usize],
        dilation: &[usize],
        padding: &[usize],
        stride: &[usize],
    ) -> Tensor {
        let placed = Lists { kernel_size, dilation, padding, stride }.blocks(super::image(&input.meta()));
        let leading = input.rank() - 2;
        let windows = windows_of(input, &placed, number(Scalar::Int(0), input.dtype()));
        let order: Vec<usize> = (0..leading).chain([leading + 2, leading + 3, leading, leading + 1]).collect();
        let shape = input.shape().to_vec();
        let rows = shape[leading - 1].saturating_mul(placed[0].size).saturating_mul(placed[1].size);
        let columns = [&shape[..leading - 1], &[rows, placed[0].count.saturating_mul(placed[1].count)]].concat();
        prims::reshape(prims::permute(windows, order), columns)
    }

    fn reference(
        input: &ReferenceTensor,
        kernel_size: &[usize],
        dilation: &[usize],
        padding: &[usize],
        stride: &[usize],
    ) -> ReferenceTensor {
        let of = |list: &[usize], i: usize| list[i % list.len()];
        let (shape, leading) = (input.shape(), input.shape().len() - 3);
        let counts: Vec<usize> = (0..2)
            .map(|i| {
                let padded = shape[leading + 1 + i] + 2 * of(padding, i);
                (padded - of(dilation, i) * (of(kernel_size, i) - 1) - 1) / of(stride, i) + 1
            })
            .collect();
        let each = of(kernel_size, 0) * of(kernel_size, 1);
        let all = [&shape[..leading], &[shape[leading] * each, counts[0] * counts[1]]].concat();
        crate::core::arrays::rearranged(input, &all, 0.0, |at| {
            let (row, block) = (at[leading], at[leading + 1]);
            let inside = [row % each / of(kernel_size, 1), row % of(kernel_size, 1)];
            let blocks = [block / counts[1], block % counts[1]];
            let mut from = at[..leading].to_vec();
            from.push(row / each);
            for (i, (block, inside)) in blocks.iter().zip(inside).enumerate() {
                let place = block * of(stride, i) + inside * of(dilation, i);
                from.push(place.checked_sub(of(padding, i)).filter(|at| *at < shape[leading + 1 + i])?);
            }
            Some(from)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3, 5, 6]), [2, 3]));
        s.case(with(s.normal([2, 5, 6]), [2]).stride([2, 3]).padding([1]));
        s.case(with(s.normal([1, 1, 5, 5]), [2]).dilation([2, 1]).padding([0, 1]));
        s.case(with(s.normal([0, 2, 3, 3]), [3]));
        s.case(with(s.normal([1, 2, 2]), [2]));
    }

    fn errors(e: &mut ErrorSamples) {
        for shape in [&[3, 3][..], &[1; 5], &[2, 0, 3, 3], &[2, 0, 3]] {
            e.case(InputShape, with(e.normal(shape), [1]), "expected [N, C, H, W] or [C, H, W]");
        }
        let plain = |kernel: &[usize]| with(e.normal([1, 3, 4]), kernel);
        e.case(Lists, plain(&[1, 1, 1]), "kernel_size is [1, 1, 1], expected one number or 2");
        e.case(Lists, plain(&[1]).dilation([1, 1, 1]), "dilation is [1, 1, 1]");
        e.case(Lists, plain(&[1]).stride([]), "stride is []");
        e.case(Lists, plain(&[1]).padding([1, 1, 1]), "padding is [1, 1, 1]");
        e.case(Positive, plain(&[0]), "kernel_size is [0], expected positive numbers");
        e.case(Positive, plain(&[1]).dilation([0, 1]), "dilation is [0, 1]");
        e.case(Positive, plain(&[1]).stride([0]), "stride is [0]");
        e.case(NoBlock, plain(&[4]), "0 x 1 blocks");
    }
}

/// The sums of blocks: columns `input` [N, C · KH · KW, blocks] (or without N) are added where [`mod@im2col`] takes
/// them from an image of `output_size`, to [N, C, H, W] (or [C, H, W]).
#[operator(torch = "nn.functional.fold")]
pub mod fold {
    fn fold(
        input: Tensor<Floating>,
        output_size: Vec<usize>,
        kernel_size: Vec<usize>,
        #[default(vec![1])] dilation: Vec<usize>,
        #[default(vec![0])] padding: Vec<usize>,
        #[default(vec![1])] stride: Vec<usize>,
    ) -> Tensor;

    fn requires(Args { input, output_size, kernel_size, dilation, padding, stride }: Args<&TensorMeta>) -> Result<()> {
        positive_for_each(("output_size", &output_size), 2, [Code::Lists, Code::Positive])?;
        positive_for_each(("kernel_size", &kernel_size), 2, [Code::Lists, Code::Positive])?;
        positive_for_each(("dilation", &dilation), 2, [Code::Lists, Code::Positive])?;
        positive_for_each(("stride", &stride), 2, [Code::Lists, Code::Positive])?;
        fits_dimensions(("padding", &padding), 2, Code::Lists)?;
        let placed = placed(&output_size, &kernel_size, &dilation, &padding, &stride);
        let (each, shape) = (placed[0].size.saturating_mul(placed[1].size), input.shape());
        require!(
            matches!(shape.len(), 2 | 3) && shape[shape.len() - 2] > 0 && shape[shape.len() - 2].is_multiple_of(each),
            InputShape,
            "input has shape {shape:?}, expected [N, C * {each}, blocks] or [C * {each}, blocks]"
        );
        let blocks = placed[0].count.saturating_mul(placed[1].count);
        require!(
            blocks > 0 && shape[shape.len() - 1] == blocks,
            Blocks,
            "input has shape {shape:?}, expected its last extent to be that of {}, at least one",
            super::blocks_text(&placed)
        );
        Ok(())
    }

    fn placed(
        output_size: &[usize],
        kernel_size: &[usize],
        dilation: &[usize],
        padding: &[usize],
        stride: &[usize],
    ) -> Vec<Placement> {
        let extents = for_each(output_size, 2).unwrap_or_default();
        let extents = [extents.first().copied().unwrap_or(0), extents.last().copied().unwrap_or(0)];
        Lists { kernel_size, dilation, padding, stride }.blocks(extents)
    }

    fn decomposition(Args { input, output_size, kernel_size, dilation, padding, stride }: Args<Tensor>) -> Tensor {
        let placed = placed(&output_size, &kernel_size, &dilation, &padding, &stride);
        let (shape, each) = (input.shape().to_vec(), placed[0].size * placed[1].size);
        let leading = [&shape[..shape.len() - 2], &[shape[shape.len() - 2] / each]].concat();
        let column = |of: fn(&Placement) -> usize| placed.iter().map(of).collect::<Vec<_>>();
        let split = prims::reshape(input, [&leading[..], &column(|p| p.size), &column(|p| p.count)].concat());
        let first = leading.len();
        let order: Vec<usize> = (0..first).chain([first + 2, first + 3, first, first + 1]).collect();
        let extents = column(|p| p.reach().max(p.low + p.extent));
        let windows = prims::permute(split, order);
        let whole = prims::sum_of_windows(windows, extents, column(|p| p.step), column(|p| p.dilation));
        placed.iter().enumerate().fold(whole, |all, (i, p)| piece(all, first + i, p.low, p.extent))
    }

    fn reference(
        Args { input, output_size, kernel_size, dilation, padding, stride }: Args<&ReferenceTensor>,
    ) -> ArrayD<f64> {
        let of = |list: &[usize], i: usize| list[i % list.len()];
        let (each, rank) = (of(&kernel_size, 0) * of(&kernel_size, 1), input.shape().len());
        let covered = of(&dilation, 1) * (of(&kernel_size, 1) - 1) + 1;
        let across = (of(&output_size, 1) + 2 * of(&padding, 1) - covered) / of(&stride, 1) + 1;
        let channels = input.shape()[rank - 2] / each;
        let leading = &input.shape()[..rank - 2];
        let all = [leading, &[channels, of(&output_size, 0), of(&output_size, 1)]].concat();
        let mut out = ArrayD::zeros(IxDyn(&all));
        for (at, value) in input.indexed_iter() {
            let (row, block) = (at[rank - 2], at[rank - 1]);
            let inside = [row % each / of(&kernel_size, 1), row % of(&kernel_size, 1)];
            let blocks = [block / across, block % across];
            let mut to = ndarray::Dimension::slice(&at)[..rank - 2].to_vec();
            to.push(row / each);
            to.extend((0..2).map(|i| {
                let place = blocks[i] * of(&stride, i) + inside[i] * of(&dilation, i);
                place.checked_sub(of(&padding, i)).unwrap_or(usize::MAX)
            }));
            if let Some(sum) = out.get_mut(IxDyn(&to)) {
                *sum += value;
            }
        }
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 12, 12]), [4, 5], [2]));
        s.case(with(s.normal([18, 4]), [5, 6], [2, 3]).stride([3, 2]).padding([1, 0]));
        s.case(with(s.normal([1, 4, 18]), [5], [2]).dilation([2, 1]).padding([0, 1]).stride([1]));
        s.case(with(s.normal([0, 4, 4]), [3], [2]));
        s.case(with(s.normal([4, 1]), [2, 2], [2]));
        // As many blocks with other strides or dilations.
        s.case(with(s.normal([1, 4]), [4, 4], [1]).stride([2]));
        s.case(with(s.normal([4, 4]), [5, 5], [2]).stride([2]).dilation([2]));
    }

    fn errors(e: &mut ErrorSamples) {
        let plain = |shape: &[usize]| with(e.normal(shape), [3, 4], [2]);
        for shape in [&[4][..], &[1, 1, 4, 6], &[6, 6], &[0, 6]] {
            e.case(InputShape, plain(shape), "expected [N, C * 4, blocks] or [C * 4, blocks]");
        }
        e.case(Blocks, plain(&[4, 5]), "that of 2 x 3 blocks");
        e.case(Blocks, plain(&[4, 0]).dilation([4]), "that of 0 x 0 blocks");
        e.case(Lists, with(e.normal([4, 6]), [3, 4, 5], [2]), "output_size is [3, 4, 5]");
        e.case(Lists, with(e.normal([4, 6]), [3, 4], [2, 2, 2]), "kernel_size is [2, 2, 2]");
        e.case(Lists, plain(&[4, 6]).dilation([1, 1, 1]), "dilation is [1, 1, 1]");
        e.case(Lists, plain(&[4, 6]).stride([1, 1, 1]), "stride is [1, 1, 1]");
        e.case(Lists, plain(&[4, 6]).padding([1, 1, 1]), "padding is [1, 1, 1]");
        e.case(Positive, with(e.normal([4, 6]), [3, 0], [2]), "output_size is [3, 0]");
        e.case(Positive, with(e.normal([4, 6]), [3, 4], [0]), "kernel_size is [0]");
        e.case(Positive, plain(&[4, 6]).dilation([0]), "dilation is [0]");
        e.case(Positive, plain(&[4, 6]).stride([0]), "stride is [0]");
    }
}
