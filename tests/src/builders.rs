//! What builders make that no operator of the library is made of, as operators of the suite: so generated tests run
//! them, and mutants of the builders fail.

use fulgurite_ops::core::indexing::{Index, Indexed};
use fulgurite_ops::nn::tiled_mlp;
use fulgurite_ops::optim::AdamW;
use fulgurite_ops_macros::operator;
use fulgurite_runtime::rules::ArrayD;

/// `input` of three dimensions, indexed by the list of entries with the number `which`.
#[operator(name = "builders::indexed")]
pub mod indexed {
    fn indexed(input: Tensor<Floating>, positions: Tensor<Integer>, which: usize) -> Tensor;

    fn requires(input: &TensorMeta, which: usize) -> Result<()> {
        // The reference is written for this shape.
        require!(input.shape() == [2, 3, 4], Shape, "input has shape {:?}, expected [2, 3, 4]", input.shape());
        require!(which < super::LISTS, List, "which is {which}, expected a list below {}", super::LISTS);
        Ok(())
    }

    fn decomposition(input: Tensor, positions: Tensor, which: usize) -> Tensor {
        match which {
            0 => input.index([Index::Rest, Index::New, Index::from(1..4).step(2)]),
            1 => input.index([Index::At(-1), Index::from(..), positions.into()]),
            2 => input.index([Index::from(..), Index::from(1..), Index::from(..-3)]),
            3 => input.index([Index::from(5..9), Index::from(-9..2)]),
            4 => input.index([positions.into(), Index::Slice { start: Some(2), end: Some(1), step: 1 }, Index::New]),
            5 => input.index([Index::from(0..1), Index::Rest, Index::At(2)]),
            _ => input.index([Index::from(..).step(2), positions.into()]),
        }
    }

    fn reference(input: &ArrayD<f64>, positions: &ArrayD<i64>, which: usize) -> ArrayD<f64> {
        let whole = |dim: usize| (0..input.shape()[dim]).collect::<Vec<_>>();
        // Negative positions count from the end of dimension `dim`.
        let of = |dim: usize| {
            let extent = input.shape()[dim];
            positions
                .iter()
                .map(|at| if *at < 0 { extent - at.unsigned_abs() as usize } else { *at as usize })
                .collect()
        };
        let several = positions.shape();
        match which {
            0 => super::taken(input, [whole(0), whole(1), vec![1, 3]], &[2, 3, 1, 2]),
            1 => super::taken(input, [vec![1], whole(1), of(2)], &[&[3], several].concat()),
            2 => super::taken(input, [whole(0), vec![1, 2], vec![0]], &[2, 2, 1]),
            3 => super::taken(input, [vec![], vec![0, 1], whole(2)], &[0, 2, 4]),
            4 => super::taken(input, [of(0), vec![], whole(2)], &[several, &[0, 1, 4]].concat()),
            5 => super::taken(input, [vec![0], whole(1), vec![2]], &[1, 3]),
            _ => super::taken(input, [vec![0], of(1), whole(2)], &[&[1], several, &[4]].concat()),
        }
    }

    fn samples(s: &mut Samples) {
        let of = |s: &Samples, shape: &[usize], positions: &[f64], which: usize| {
            with(s.normal([2, 3, 4]), s.values(shape, positions).cast(DType::I64), which)
        };
        for which in [0, 2, 3, 5] {
            s.case(of(s, &[1], &[0.0], which));
        }
        s.case(of(s, &[4], &[3.0, 0.0, -1.0, -4.0], 1));
        s.case(of(s, &[2, 1], &[0.0, -2.0], 4));
        s.case(of(s, &[2, 2], &[0.0, 2.0, 1.0, -1.0], 6));
        s.case(with(s.normal([2, 3, 4]), s.values([2], [2.0, 0.0]).cast(DType::U8), 6));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Shape, with(e.normal([2, 3]), e.integers(0, 2, [1]), 0), "input has shape [2, 3]");
        e.case(List, with(e.normal([2, 3, 4]), e.integers(0, 2, [1]), 7), "which is 7");
    }
}

/// A step of AdamW with its defaults, over a tree of one parameter.
#[operator(name = "builders::stepped", no_grad = "an optimizer's update is not differentiated")]
pub mod stepped {
    #[results(out, mean, square)]
    fn stepped(
        param: Tensor<Floating>,
        grad: Tensor<Floating>,
        exp_avg: Tensor<Floating>,
        exp_avg_sq: Tensor<Floating>,
        lr: Tensor<Floating>,
        step: Tensor<Floating>,
    ) -> (Tensor, Tensor, Tensor);

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor, Tensor) {
        let Args { param, grad, exp_avg, exp_avg_sq, lr, step } = args;
        AdamW::default().update((param, exp_avg, exp_avg_sq), grad, lr, step)
    }

    fn reference(args: Args<&ReferenceTensor>) -> (ArrayD<f64>, ArrayD<f64>, ArrayD<f64>) {
        let Args { param, grad, exp_avg, exp_avg_sq, lr, step } = args;
        let (lr, t) = (lr.sum(), step.sum());
        let mean = exp_avg * 0.9 + &(grad * 0.1);
        let square = exp_avg_sq * 0.999 + &(grad * grad * 0.001);
        let root = (&square / (1.0 - 0.999f64.powf(t))).mapv(f64::sqrt) + 1e-8;
        let next = param * (1.0 - lr * 0.01) - &(&mean / (1.0 - 0.9f64.powf(t)) / root * lr);
        (next, mean, square)
    }

    fn samples(s: &mut Samples) {
        let number = |value: f64| s.values([], [value]).cast(DType::F32);
        let case = |lr: f64, step: f64| {
            let [param, grad, mean] = [s.normal([3, 5]), s.normal([3, 5]), s.normal([3, 5])];
            with(param, grad, mean, s.uniform(0.1, 1.0, [3, 5]), number(lr), number(step))
        };
        for case in [case(0.5, 1.0), case(0.25, 7.0)] {
            s.case(case);
        }
    }
}

/// `input` in parts along its last dimension but one, each times the number of its rows: so the parts show.
#[operator(name = "builders::tiled")]
pub mod tiled {
    fn tiled(input: Tensor<Floating>, #[default(None)] num_shards: Option<usize>) -> Tensor;

    fn decomposition(input: Tensor, num_shards: Option<usize>) -> Tensor {
        let rows = |part: &[usize]| if let [.., rows, _] = part { *rows as f64 } else { 1.0 };
        tiled_mlp(input, num_shards, |part| part * rows(&part.shape()))
    }

    fn reference(input: &ArrayD<f64>, num_shards: Option<usize>) -> ArrayD<f64> {
        let [.., length, width] = *input.shape() else { return input.clone() };
        let parts = num_shards.unwrap_or((length as f64 / width as f64).ceil() as usize);
        let most = length.div_ceil(parts.clamp(1, length.max(1))).max(1);
        let dim = input.ndim() - 2;
        ArrayD::from_shape_fn(input.raw_dim(), |at| {
            let row = ndarray::Dimension::slice(&at)[dim];
            input[&at] * most.min(length - row / most * most) as f64
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 5, 3])).num_shards(Some(2)));
        // Five rows in parts of two, since they are two wide.
        s.case(with(s.normal([5, 2])));
        s.case(with(s.normal([3])).num_shards(Some(2)));
        for (shape, parts) in [([0, 3], 2), ([4, 3], 9), ([4, 3], 0), ([3, 2], 1), ([1, 2], 1)] {
            s.case(with(s.normal(shape)).num_shards(Some(parts)));
        }
    }
}

/// How many lists of entries there are.
const LISTS: usize = 7;

/// For references: the elements of `input` at these places of each dimension, in their order, in another shape.
fn taken(input: &ArrayD<f64>, places: [Vec<usize>; 3], shape: &[usize]) -> ArrayD<f64> {
    let [first, second, third] = &places;
    let rows = first.iter().flat_map(|i| second.iter().map(move |j| (*i, *j)));
    let values = rows.flat_map(|(i, j)| third.iter().map(move |k| input[[i, j, *k]])).collect();
    fulgurite_ops::core::arrays::array(shape, values)
}
