//! Windows of the last dimensions, and sums of windows that overlap. Each is the transpose of the other.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::{Failure, Precondition, Scalar};

use super::support::{accumulated, rearranged};

/// How windows are placed in one dimension: window `o` has the elements `o * step + k * dilation`, `k` below `size`.
#[derive(Clone, Copy)]
struct Placed {
    extent: usize,
    count: usize,
    size: usize,
    step: usize,
    dilation: usize,
}

impl Placed {
    /// Of the lists in their order, which have equal lengths.
    fn all(extents: &[usize], lists: [&[usize]; 4]) -> Vec<Placed> {
        let [counts, sizes, steps, dilations] = lists;
        let placed = |i: usize| Placed {
            extent: extents[i],
            count: counts[i],
            size: sizes[i],
            step: steps[i],
            dilation: dilations[i],
        };
        (0..counts.len()).map(placed).collect()
    }

    /// How many elements the windows reach over: none if there are none.
    fn reach(&self) -> usize {
        if self.count == 0 || self.size == 0 {
            return 0;
        }
        let (last, inner) = ((self.count - 1).saturating_mul(self.step), (self.size - 1).saturating_mul(self.dilation));
        last.saturating_add(inner).saturating_add(1)
    }
}

/// Fails with the first code if a step or a dilation is zero, with the second if windows reach beyond an extent.
fn check_places(placed: &[Placed], [positive, reach]: [Precondition; 2]) -> Result<(), Failure> {
    if let Some(found) = placed.iter().find(|placed| placed.step == 0 || placed.dilation == 0) {
        let Placed { step, dilation, .. } = found;
        return Err(positive.unmet(format_args!("a step is {step}, a dilation {dilation}, expected positive numbers")));
    }
    if let Some(found) = placed.iter().find(|placed| placed.reach() > placed.extent) {
        let Placed { extent, count, size, .. } = found;
        let text = format_args!(
            "{count} windows of {size} elements reach over {} elements, expected at most {extent}",
            found.reach()
        );
        return Err(reach.unmet(text));
    }
    Ok(())
}

/// Windows of the last dimensions: `[..., L1, ..., Lk] -> [..., O1, ..., Ok, K1, ..., Kk]`, where `out[..., o, k] =
/// input[..., o * steps + k * dilations]`. `counts` are the numbers of windows O, `sizes` their extents K; all lists
/// have one length. Windows are inside of `input`, and may overlap: the result is a view. [Dumoulin and
/// Visin](https://arxiv.org/abs/1603.07285), 2016.
#[operator(prim)]
pub mod windows {
    use crate::prims::sum_of_windows;

    fn windows(
        input: Tensor,
        counts: Vec<usize>,
        sizes: Vec<usize>,
        steps: Vec<usize>,
        dilations: Vec<usize>,
    ) -> Tensor;

    fn meta(
        input: &TensorMeta,
        counts: &[usize],
        sizes: &[usize],
        steps: &[usize],
        dilations: &[usize],
    ) -> Result<TensorMeta> {
        let rank = counts.len();
        require!(
            [sizes, steps, dilations].iter().all(|list| list.len() == rank) && rank <= input.rank(),
            Rank,
            "counts, sizes, steps and dilations have {rank}, {}, {} and {} numbers, expected equally many, at most {}, \
             the rank of input",
            sizes.len(),
            steps.len(),
            dilations.len(),
            input.rank()
        );
        let (leading, extents) = input.shape().split_at(input.rank() - rank);
        let placed = super::Placed::all(extents, [counts, sizes, steps, dilations]);
        super::check_places(&placed, [Code::Step, Code::Reach])?;
        Ok(input.with_shape([leading, counts, sizes].concat()))
    }

    fn view(input: &Strided, counts: &[usize], steps: &[usize], dilations: &[usize]) -> Option<View> {
        let (leading, windowed) = input.strides.split_at(input.strides.len() - counts.len());
        let extents = &input.meta.shape()[leading.len()..];
        // A factor beyond the extent reaches one element only, as the extent itself does.
        let times = |factors: &[usize]| -> Vec<isize> {
            (0..factors.len()).map(|i| windowed[i] * factors[i].min(extents[i].max(1)) as isize).collect()
        };
        Some(View { strides: [leading, &times(steps), &times(dilations)].concat(), offset: 0 })
    }

    fn grad(Args { input, counts, sizes, steps, dilations }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = windows(input, &counts, &sizes, &steps, &dilations);
        (out, move |d_out: Tensor| {
            let shape = input.shape().to_vec();
            let extents = &shape[shape.len() - counts.len()..];
            Grads { input: sum_of_windows(d_out, extents, steps, dilations) }
        })
    }

    fn reference(
        input: &ReferenceTensor,
        counts: &[usize],
        sizes: &[usize],
        steps: &[usize],
        dilations: &[usize],
    ) -> ReferenceTensor {
        let (rank, leading) = (counts.len(), input.shape().len() - counts.len());
        let shape = [&input.shape()[..leading], counts, sizes].concat();
        rearranged(input, &shape, Scalar::Int(0), |at| {
            let inside = |i: usize| at[leading + i] * steps[i] + at[leading + rank + i] * dilations[i];
            Some(at[..leading].iter().copied().chain((0..rank).map(inside)).collect())
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), [], [], [], []));
        s.case(with(s.normal([7]), [5], [3], [1], [1]));
        s.case(with(s.normal([2, 9]), [3], [2], [3], [2]));
        s.case(with(s.normal([2, 5, 7]), [2, 3], [2, 3], [3, 1], [1, 2]));
        s.case(with(s.normal([4, 3, 5]), [2, 2, 2], [2, 1, 3], [2, 1, 1], [1, 5, 1]));
        // Elements between and behind windows that none has; windows side by side.
        s.case(with(s.normal([11]), [2], [2], [5], [1]));
        s.case(with(s.normal([3, 6]), [3], [2], [2], [1]));
        s.case(with(s.normal([2, 5]), [1], [2], [7], [3]));
        s.case(with(s.normal([0, 5]), [4], [2], [1], [1]));
        s.case(with(s.normal([2, 5]), [0], [9], [1], [1]));
        s.case(with(s.normal([2, 5]), [3], [0], [1], [1]));
        s.case(with(s.normal([2, 33, 34]), [16, 17], [3, 2], [2, 2], [1, 1]));
    }

    fn errors(e: &mut ErrorSamples) {
        for lists in [[1, 2, 1, 1], [1, 1, 0, 1], [1, 1, 1, 2], [3, 3, 3, 3]] {
            let [counts, sizes, steps, dilations] = lists.map(|length| vec![1; length]);
            e.case(Rank, with(e.normal([4, 4]), counts, sizes, steps, dilations), "expected equally many, at most 2");
        }
        e.case(Step, with(e.normal([4]), [1], [1], [0], [1]), "a step is 0, a dilation 1");
        e.case(Step, with(e.normal([4]), [1], [1], [1], [0]), "a step is 1, a dilation 0");
        e.case(Reach, with(e.normal([4]), [2], [2], [2], [2]), "2 windows of 2 elements reach over 5 elements");
        e.case(Reach, with(e.normal([0]), [1], [1], [1], [1]), "reach over 1 elements, expected at most 0");
    }
}

/// Sums of windows that overlap, the transpose of [`mod@windows`]: `[..., O1, ..., Ok, K1, ..., Kk] ->
/// [..., L1, ..., Lk]` with the extents `extents`, where `out[..., l]` is the sum of all `input[..., o, k]` with
/// `o * steps + k * dilations = l`, in the order of `k`. What no window reaches is 0. bf16 and f16 are accumulated in
/// f32; integers wrap.
#[operator(prim)]
pub mod sum_of_windows {
    use crate::prims::windows;

    fn sum_of_windows(input: Tensor<Number>, extents: Vec<usize>, steps: Vec<usize>, dilations: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, extents: &[usize], steps: &[usize], dilations: &[usize]) -> Result<TensorMeta> {
        let rank = extents.len();
        require!(
            steps.len() == rank && dilations.len() == rank && 2 * rank <= input.rank(),
            Rank,
            "extents, steps and dilations have {rank}, {} and {} numbers, expected equally many, at most half of the \
             {} dimensions of input",
            steps.len(),
            dilations.len(),
            input.rank()
        );
        let (leading, windows) = input.shape().split_at(input.rank() - 2 * rank);
        let (counts, sizes) = windows.split_at(rank);
        let placed = super::Placed::all(extents, [counts, sizes, steps, dilations]);
        super::check_places(&placed, [Code::Step, Code::Reach])?;
        Ok(input.with_shape([leading, extents].concat()))
    }

    /// An addition for each element of windows.
    fn flops(input: &TensorMeta) -> u64 {
        input.len() as u64
    }

    fn grad(Args { input, extents, steps, dilations }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let rank = extents.len();
        let out = sum_of_windows(input, extents, &steps, &dilations);
        (out, move |d_out: Tensor| {
            let shape = input.shape().to_vec();
            let (counts, sizes) = shape[shape.len() - 2 * rank..].split_at(rank);
            Grads { input: windows(d_out, counts, sizes, steps, dilations) }
        })
    }

    fn reference(input: &ReferenceTensor, extents: &[usize], steps: &[usize], dilations: &[usize]) -> ReferenceTensor {
        let (rank, leading) = (extents.len(), input.shape().len() - 2 * extents.len());
        let shape = [&input.shape()[..leading], extents].concat();
        let none = match input.dtype().is_floating() {
            true => ReferenceTensor::from_floats(input.dtype(), ArrayD::zeros(IxDyn(&shape))),
            false => ReferenceTensor::from_integers(input.dtype(), ArrayD::zeros(IxDyn(&shape))),
        };
        accumulated(&none, input, |at| {
            let inside = |i: usize| at[leading + i] * steps[i] + at[leading + rank + i] * dilations[i];
            at[..leading].iter().copied().chain((0..rank).map(inside)).collect()
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), [], [], []));
        s.case(with(s.normal([5, 3]), [7], [1], [1]));
        s.case(with(s.normal([2, 3, 2]), [9], [3], [2]));
        s.case(with(s.normal([2, 2, 3, 2, 3]), [5, 7], [3, 1], [1, 2]));
        s.case(with(s.normal([2, 2, 2, 2, 1, 3]), [4, 3, 5], [2, 1, 1], [1, 5, 1]));
        // What no window reaches, between windows and behind them.
        s.case(with(s.normal([2, 2]), [11], [5], [1]));
        s.case(with(s.normal([2, 1, 2]), [5], [7], [3]));
        s.case(with(s.normal([0, 4, 2]), [5], [1], [1]));
        s.case(with(s.normal([2, 0, 9]), [5], [1], [1]));
        s.case(with(s.normal([2, 3, 0]), [5], [1], [1]));
        s.case(with(s.normal([3, 16, 17, 3, 2]), [33, 34], [2, 2], [1, 1]));
    }

    fn errors(e: &mut ErrorSamples) {
        for [extents, steps, dilations] in [[1, 2, 1], [1, 1, 0], [2, 2, 2]] {
            let [extents, steps, dilations] = [vec![4; extents], vec![1; steps], vec![1; dilations]];
            e.case(Rank, with(e.normal([4, 1, 1]), extents, steps, dilations), "at most half of the 3 dimensions");
        }
        e.case(Step, with(e.normal([1, 1]), [1], [0], [1]), "a step is 0, a dilation 1");
        e.case(Step, with(e.normal([1, 1]), [1], [1], [0]), "a step is 1, a dilation 0");
        e.case(Reach, with(e.normal([2, 2]), [4], [2], [2]), "2 windows of 2 elements reach over 5 elements");
        e.case(Reach, with(e.normal([1, 1]), [0], [1], [1]), "expected at most 0");
    }
}
