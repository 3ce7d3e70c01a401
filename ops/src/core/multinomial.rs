use fulgurite_ops_macros::operator;

use super::arrays::array;
use super::promotion::{broadcast, cast};
use super::{exponential_array, exponential_numbers};
use crate::prims;
use crate::prims::checks;

/// Draws `num_samples` positions from each row of weights, with replacement: the position of the first partial sum of
/// the row's weights that is above a uniform number times their total. `generator` holds seed and offset as two i64.
/// A row with a weight that is negative, infinite or no number, or with no weight above zero, is an error when the
/// program runs. Without `replacement` the positions of several samples differ: they are those of the largest quotients
/// of the weights and of as many exponential numbers (Efraimidis and Spirakis, "Weighted random sampling with a
/// reservoir", 2006). Where fewer weights are above zero, positions of others come last, as in PyTorch.
#[operator(torch = "multinomial", effects(random), no_grad = "positions are drawn, they have no gradient")]
pub mod multinomial {
    fn multinomial(
        input: Tensor<Floating>,
        num_samples: usize,
        generator: Tensor<Integer>,
        #[default(false)] replacement: bool,
    ) -> Tensor;

    fn requires(input: &TensorMeta, num_samples: usize, generator: &TensorMeta, replacement: bool) -> Result<()> {
        require!(
            (1..=2).contains(&input.rank()) && input.shape()[input.rank() - 1] > 0,
            Rows,
            "input has shape {:?}, expected one or two dimensions, the last not empty",
            input.shape()
        );
        checks::generator(generator, Code::Generator)?;
        require!(num_samples > 0, SampleCount, "num_samples is 0, expected a positive number");
        require!(
            replacement || num_samples <= input.shape()[input.rank() - 1],
            Replacement,
            "num_samples is {num_samples} without replacement, expected at most {}, the number of weights",
            input.shape()[input.rank() - 1]
        );
        Ok(())
    }

    fn decomposition(input: Tensor, num_samples: usize, generator: Tensor, replacement: bool) -> Tensor {
        let shape = input.shape().to_vec();
        let (rows, classes) = (shape[..shape.len() - 1].iter().product::<usize>(), shape[shape.len() - 1]);
        let dtype = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let weights = prims::check_weights(prims::reshape(cast(input, dtype), [rows, classes]));
        let out: Vec<usize> = shape[..shape.len() - 1].iter().copied().chain([num_samples]).collect();
        if !replacement && num_samples > 1 {
            let keys = prims::div(weights, exponential_numbers(&[rows, classes], dtype, generator));
            return prims::reshape(prims::topk(keys, num_samples, 1, true).1, out);
        }
        let sums = prims::cumsum(weights, 1);
        let total = prims::slice(sums, [0, classes - 1], [rows, classes], [1, 1]);
        let draws = prims::uniform([rows, num_samples], 0.0, 1.0, dtype, generator);
        let bounds = prims::mul(draws, broadcast(total, &[rows, num_samples]));
        // How many partial sums are not above the bound; the last one always is, but for rounding.
        let all = [rows, num_samples, classes];
        let passed =
            prims::le(prims::broadcast_in_dim(sums, all, [0, 2]), prims::broadcast_in_dim(bounds, all, [0, 1]));
        let position = prims::sum(cast(passed, DType::I64), [2]);
        let position = prims::minimum(position, classes as i64 - 1);
        prims::reshape(position, out)
    }

    fn reference(
        input: &ReferenceTensor,
        num_samples: usize,
        generator: &ArrayD<i64>,
        replacement: bool,
    ) -> Result<ArrayD<i64>> {
        let rank = input.shape().len();
        let rows: usize = input.shape()[..rank - 1].iter().product();
        let dtype = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let draws = crate::nn::draws(&[rows, num_samples], dtype, generator)?;
        let classes = input.shape()[rank - 1];
        let several = !replacement && num_samples > 1;
        let divisors = if several { Some(exponential_array(&[rows, classes], dtype, generator)?) } else { None };
        let weights: Vec<f64> = input.floats().iter().copied().collect();
        let mut positions = Vec::new();
        for (row, weights) in weights.chunks(classes).enumerate() {
            let total: f64 = weights.iter().sum();
            if weights.iter().any(|weight| weight.is_nan() || *weight < 0.0) || total == 0.0 || total.is_infinite() {
                return Err(Failure::new("Weights", format!("row {row} of the weights is none to draw by")));
            }
            if let Some(divisors) = &divisors {
                let key = |i: &i64| weights[*i as usize] / divisors[[row, *i as usize]];
                let mut order: Vec<i64> = (0..classes as i64).collect();
                order.sort_by(|a, b| key(b).total_cmp(&key(a)));
                positions.extend(&order[..num_samples]);
                continue;
            }
            for sample in 0..num_samples {
                let bound = draws[[row, sample]] * total;
                let mut sum = 0.0;
                let mut position = classes - 1;
                for (i, weight) in weights.iter().enumerate() {
                    sum += weight;
                    if sum > bound {
                        position = i;
                        break;
                    }
                }
                positions.push(position as i64);
            }
        }
        let shape: Vec<usize> = input.shape()[..rank - 1].iter().copied().chain([num_samples]).collect();
        Ok(array(&shape, positions))
    }

    fn samples(s: &mut Samples) {
        // Weights whose partial sums are exact, so that rounding moves no boundary.
        let weights = [0.5, 0.0, 0.25, 1.0, 0.0, 0.25];
        s.case(with(s.values([6], weights), 1, s.integers(0, 1000, [2])));
        s.case(with(s.values([6], weights), 9, s.integers(0, 1000, [2])).replacement(true));
        s.case(with(s.values([3, 6], weights), 5, s.integers(0, 1000, [2])).replacement(true));
        s.case(with(s.values([3, 6], weights), 5, s.integers(0, 1000, [3])).replacement(true));
        s.case(with(s.values([2, 6], weights), 4, s.integers(0, 1000, [2])));
        s.case(with(s.values([4, 1], [0.5]), 1, s.integers(0, 1000, [2])));
        s.case(with(s.values([0, 3], [0.5]), 1, s.integers(0, 1000, [2])));
        // The first number of seed 2, times the total of these weights, is the first of them: the second is drawn.
        let weights = match s.dtype() {
            DType::F32 => [7_137_822.0, 9_639_394.0],
            DType::F64 => [3_832_089_421_015_479.0, 5_175_109_833_725_513.0],
            _ => return,
        };
        s.case(with(s.values([2], weights), 1, s.values([2], [2.0, 0.0]).cast(DType::I64)));
    }

    fn errors(e: &mut ErrorSamples) {
        let generator = || e.integers(0, 9, [2]);
        let (a, b, c) = (generator(), generator(), generator());
        for weight in [-1.0, 0.0, f64::NAN] {
            let weights = e.values([2], [0.0, weight]);
            e.when_run("Weights", with(weights, 1, e.integers(0, 9, [2])), "row 0 of the weights");
        }
        e.case(Rows, with(e.normal([2, 0]), 1, a), "the last not empty");
        e.case(Rows, with(e.normal([2, 2, 2]), 1, e.integers(0, 9, [2])), "one or two dimensions");
        e.case(Generator, with(e.normal([2]), 1, e.integers(0, 9, [4])), "expected i64[2]");
        let narrow = e.integers(0, 9, [2]).cast(DType::I32);
        e.case(Generator, with(e.normal([2]), 1, narrow), "generator is i32[2]");
        e.case(SampleCount, with(e.normal([2]), 0, b), "num_samples is 0");
        e.case(Replacement, with(e.normal([2]), 3, c), "expected at most 2, the number of weights");
    }
}
