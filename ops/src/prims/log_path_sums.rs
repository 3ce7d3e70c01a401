use fulgurite_ops_macros::operator;

use super::support::without;

/// `out[n, t, s]`: the logarithm of the sum over all paths of sequence n that are in state s at step t, of the products
/// of what they pass, whose logarithms are `emissions[n, t, s]`. A path begins in state 0 or 1. From each step to the
/// next it stays in its state, goes to the next one, or to the one after that where `skips[n, s]` holds for the state
/// that it goes to. These are the forward variables of Graves et al., "Connectionist Temporal Classification", 2006,
/// equations 6 to 8, and backwards over steps and states the backward variables. Executors keep rows in f64 on the
/// host, and in the type of `emissions` on devices.
#[operator(
    prim,
    dtypes(f32, f64),
    autocast = full,
    no_grad = "what it is a part of has the gradient, by the same sums backwards"
)]
pub mod log_path_sums {
    fn log_path_sums(emissions: Tensor<Floating>, skips: Tensor<Boolean>) -> Tensor;

    fn meta(emissions: &TensorMeta, skips: &TensorMeta) -> Result<TensorMeta> {
        require!(
            emissions.rank() == 3,
            EmissionsRank,
            "emissions has shape {:?}, expected sequences, steps and states",
            emissions.shape()
        );
        require!(
            skips.shape() == without(emissions.shape(), &[1]),
            SkipsShape,
            "skips has shape {:?}, expected the sequences and states of emissions, which has shape {:?}",
            skips.shape(),
            emissions.shape()
        );
        Ok(emissions.clone())
    }

    fn flops(emissions: &TensorMeta) -> u64 {
        8 * emissions.len() as u64
    }

    fn reference(emissions: &ArrayD<f64>, skips: &ArrayD<bool>) -> ArrayD<f64> {
        let mut out = emissions.clone();
        for (at, emitted) in emissions.indexed_iter() {
            let at = ndarray::Dimension::slice(&at);
            let (n, t, s) = (at[0], at[1], at[2]);
            let may_come = |from: usize| from == s || from + 1 == s || (from + 2 == s && skips[[n, s]]);
            let sources: Vec<f64> = match t {
                0 => (0..2).filter(|first| *first == s).map(|_| 0.0).collect(),
                _ => (0..=s).filter(|from| may_come(*from)).map(|from| out[[n, t - 1, from]]).collect(),
            };
            let most = sources.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = sources.iter().map(|x| if *x == most { 1.0 } else { (x - most).exp() }).sum();
            out[[n, t, s]] = emitted + if sources.is_empty() { most } else { most + sum.ln() };
        }
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 5, 7]), s.booleans([2, 7])));
        s.case(with(s.normal([3, 3, 3]), s.booleans([3, 3])));
        s.case(with(s.normal([1, 4, 1]), s.booleans([1, 1])));
        s.case(with(s.normal([2, 0, 3]), s.booleans([2, 3])));
        s.case(with(s.normal([0, 2, 3]), s.booleans([0, 3])));
        s.case(with(s.normal([2, 2, 0]), s.booleans([2, 0])));
        // More states than a block has threads, and sequences for several threads.
        s.case(with(s.normal([3, 9, 1100]), s.booleans([3, 1100])));
        let infinity = f64::INFINITY;
        let impossible = [0.0, -infinity, -1.0, -infinity, -infinity, -2.0, -0.5, -1e4, -infinity];
        s.case(with(s.values([1, 3, 3], impossible), s.booleans([1, 3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(EmissionsRank, with(e.normal([2, 3]), e.booleans([2, 3])), "expected sequences, steps and states");
        e.case(SkipsShape, with(e.normal([2, 4, 3]), e.booleans([4, 3])), "skips has shape [4, 3]");
    }
}
