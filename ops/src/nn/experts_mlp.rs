use fulgurite_ops_macros::operator;
use fulgurite_runtime::Tensor;

use super::{grouped_linear, grouped_outer, own_rows};
use crate::core::promotion::{accumulating, cast};
use crate::nn::{linear, swiglu, swiglu_gradient};
use crate::prims;

/// A mixture of gated MLPs, of which each token has `k`: the sum over its chosen experts e of
/// `share · swiglu(input · gates[e]ᵀ, input · ups[e]ᵀ) · downs[e]ᵀ`. Tokens `input` [T, width], the numbers of the
/// `experts` that a router chose [T, k], and their `shares` [T, k]; a matrix for each expert: `gates` and `ups`
/// [inner, width], `downs` [width, inner]. out [T, width]. An expert that is not there adds nothing; one that is chosen
/// twice adds both shares. Jiang and others, "Mixtral of Experts", 2024.
///
/// The decomposition computes all tokens by all experts, because shapes do not depend on data. An executor that gathers
/// the tokens of each expert runs [`experts_by_group`].
#[operator(autocast = low)]
pub mod experts_mlp {
    fn experts_mlp(
        input: Tensor<Floating>,
        gates: Vec<Tensor<Floating>>,
        ups: Vec<Tensor<Floating>>,
        downs: Vec<Tensor<Floating>>,
        experts: Tensor<Integer>,
        shares: Tensor<Floating>,
    ) -> Tensor;

    fn meta(Args { input, gates, ups, downs, experts, shares }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(input.rank() == 2, Tokens, "input is {input}, expected [T, width]");
        let [tokens, width] = [input.shape()[0], input.shape()[1]];
        let chosen = experts.rank() == 2 && experts.shape()[0] == tokens;
        require!(chosen, Experts, "experts is {experts}, expected [{tokens}, k]");
        let weighed = shares.shape() == experts.shape() && shares.dtype() == input.dtype();
        require!(weighed, Shares, "shares is {shares}, expected {}{:?}", input.dtype(), experts.shape());
        let count = gates.len();
        require!(
            count > 0 && ups.len() == count && downs.len() == count,
            Count,
            "there are {count} gates, {} ups and {} downs, expected one of each for every expert",
            ups.len(),
            downs.len()
        );
        let inner = gates[0].shape().first().copied().unwrap_or(0);
        for (name, matrices, shape) in
            [("gates", gates, [inner, width]), ("ups", ups, [inner, width]), ("downs", downs, [width, inner])]
        {
            let expected = input.with_shape(shape);
            for (expert, matrix) in matrices.iter().enumerate() {
                require!(**matrix == expected, Matrices, "{name}[{expert}] is {matrix}, expected {expected}");
            }
        }
        Ok(input.clone())
    }

    fn decomposition(Args { input, gates, ups, downs, experts, shares }: Args<Tensor>) -> Tensor {
        let one = |expert: usize| {
            let own = prims::eq(experts, expert as i64);
            let share = prims::sum(prims::select(own, shares, 0.0), [1]);
            // Tokens of other experts are zeros before the products and after them: what this expert would make of
            // them may be infinite, and 0 times that is NaN, in the sum and in the gradients.
            let chosen = prims::gt(prims::sum(cast(own, DType::I64), [1]), 0);
            let x = own_rows(input, chosen);
            let inner = swiglu(linear(x, gates[expert]), linear(x, ups[expert]));
            let out = linear(inner, downs[expert]);
            own_rows(prims::mul(out, prims::broadcast_in_dim(share, out.shape(), [0])), chosen)
        };
        (0..gates.len()).map(one).reduce(prims::add).unwrap_or(input)
    }

    fn reference(Args { input, gates, ups, downs, experts, shares }: Args<&ReferenceTensor>) -> ArrayD<f64> {
        let inner = gates[0].shape()[0];
        let mut out = ArrayD::zeros(input.raw_dim());
        for ((token, slot), expert) in (0..experts.shape()[0])
            .flat_map(|token| (0..experts.shape()[1]).map(move |slot| (token, slot)))
            .map(|at| (at, experts[[at.0, at.1]]))
        {
            let Some(expert) = usize::try_from(expert).ok().filter(|expert| *expert < gates.len()) else { continue };
            let along = |matrix: &ArrayD<f64>, i: usize| -> f64 {
                (0..input.shape()[1]).map(|h| input[[token, h]] * matrix[[i, h]]).sum()
            };
            for i in 0..inner {
                let gate = along(gates[expert], i);
                let value = gate / (1.0 + (-gate).exp()) * along(ups[expert], i) * shares[[token, slot]];
                for h in 0..input.shape()[1] {
                    out[[token, h]] += value * downs[expert][[h, i]];
                }
            }
        }
        out
    }

    fn samples(s: &mut Samples) {
        let call = |s: &Samples, [tokens, width, inner]: [usize; 3], chosen: &[&[f64]], count: usize| {
            let matrices = |shape: [usize; 2]| (0..count).map(|_| s.normal(shape)).collect::<Vec<_>>();
            let [gates, ups, downs] = [[inner, width], [inner, width], [width, inner]].map(matrices);
            let each = chosen.first().map_or(2, |slots| slots.len());
            let experts = s.values([tokens, each], chosen.concat()).cast(DType::I64);
            with(s.normal([tokens, width]), gates, ups, downs, experts, s.uniform(0.1, 0.9, [tokens, each]))
        };
        let cases = [
            // Expert 1 has no token.
            call(s, [4, 6, 5], &[&[0.0, 2.0], &[3.0, 0.0], &[2.0, 3.0], &[0.0, 3.0]], 4),
            // All tokens are one expert's; every token has every expert; a token of an expert that is not there.
            call(s, [3, 4, 3], &[&[1.0], &[1.0], &[1.0]], 3),
            call(s, [2, 4, 8], &[&[0.0, 1.0, 2.0], &[2.0, 0.0, 1.0]], 3),
            call(s, [2, 4, 3], &[&[0.0, 7.0], &[-1.0, 1.0]], 2),
            call(s, [2, 4, 3], &[&[1.0, 1.0], &[0.0, 0.0]], 2),
            call(s, [0, 4, 3], &[], 2),
            call(s, [1, 16, 24], &[&[2.0, 0.0]], 3),
        ];
        for case in cases {
            s.case(case);
        }
        let chosen: Vec<[f64; 2]> =
            (0..37).map(|t| [f64::from(t * t % 5), f64::from((t * t + 1 + t % 3) % 5)]).collect();
        let chosen: Vec<&[f64]> = chosen.iter().map(|slots| &slots[..]).collect();
        s.case(call(s, [37, 40, 24], &chosen, 5));
        // What an expert that no token chose would make of them is infinite.
        let large = match s.dtype() {
            DType::F64 => 1e200,
            DType::F16 => 300.0,
            _ => 1e20,
        };
        let layer = |shape: [usize; 2]| vec![s.normal(shape), s.values(shape, vec![large; shape[0] * shape[1]])];
        let (gates, ups, downs) = (layer([3, 4]), layer([3, 4]), layer([4, 3]));
        let experts = s.values([2, 1], [0.0; 2]).cast(DType::I64);
        let input = s.uniform(0.5, 1.5, [2, 4]);
        s.case(with(input, gates, ups, downs, experts, s.uniform(0.1, 0.9, [2, 1])));
    }

    fn errors(e: &mut ErrorSamples) {
        let two = |shape: [usize; 2]| vec![e.normal(shape), e.normal(shape)];
        let good = || {
            let (gates, ups, downs) = (two([3, 4]), two([3, 4]), two([4, 3]));
            with(e.normal([5, 4]), gates, ups, downs, e.integers(0, 2, [5, 2]), e.normal([5, 2]))
        };
        e.case(Tokens, ARGUMENTS.input.set(good(), e.normal([4])), "expected [T, width]");
        e.case(Experts, ARGUMENTS.experts.set(good(), e.integers(0, 2, [4, 2])), "expected [5, k]");
        e.case(Shares, ARGUMENTS.shares.set(good(), e.normal([5, 1])), "[5, 2]");
        e.case(Count, ARGUMENTS.ups.set(good(), vec![e.normal([3, 4])]), "2 gates, 1 ups and 2 downs");
        let none = with(e.normal([5, 4]), [], [], [], e.integers(0, 2, [5, 2]), e.normal([5, 2]));
        e.case(Count, none, "0 gates, 0 ups and 0 downs");
        e.case(Matrices, ARGUMENTS.downs.set(good(), two([3, 4])), "downs[0] is");
    }
}

/// Gradients of [`mod@experts_mlp`], of each argument.
pub struct ExpertGradients {
    /// [T, width].
    pub input: Tensor,
    /// [inner, width] of each expert.
    pub gates: Vec<Tensor>,
    /// [inner, width] of each expert.
    pub ups: Vec<Tensor>,
    /// [width, inner] of each expert.
    pub downs: Vec<Tensor>,
    /// [T, k].
    pub shares: Tensor,
}

/// [`mod@experts_mlp`] by [`grouped_linear`]: a row for each choice of a token, which meets the matrices of its expert
/// alone. And its gradients, from the cotangent of the result.
#[track_caller]
pub fn experts_by_group(
    input: Tensor,
    gates: Vec<Tensor>,
    ups: Vec<Tensor>,
    downs: Vec<Tensor>,
    experts: Tensor,
    shares: Tensor,
) -> (Tensor, impl FnOnce(Tensor) -> ExpertGradients) {
    let (width, chosen) = (input.size(1), experts.shape().to_vec());
    let (each, rows) = ([chosen[0], chosen[1], width], chosen[0] * chosen[1]);
    let groups = prims::reshape(experts, [rows]);
    // What a token has, for each of its choices.
    let repeated = move |x: Tensor| prims::broadcast_in_dim(x, each, [0, 2]);
    let spread = move |share: Tensor| prims::broadcast_in_dim(share, each, [0, 1]);
    let x = prims::reshape(repeated(input), [rows, width]);
    let (gate, up) = (grouped_linear(x, &gates, groups), grouped_linear(x, &ups, groups));
    let inner = swiglu(gate, up);
    let outs = prims::reshape(grouped_linear(inner, &downs, groups), each);
    let total = move |choices: Tensor| cast(prims::sum(accumulating(choices), [1]), input.dtype());
    let weighed = prims::mul(accumulating(outs), spread(accumulating(shares)));
    let out = cast(prims::sum(weighed, [1]), input.dtype());
    (out, move |d_out: Tensor| {
        let d = repeated(accumulating(d_out));
        let d_shares = cast(prims::sum(prims::mul(d, accumulating(outs)), [2]), shares.dtype());
        let d_outs = cast(prims::mul(d, spread(accumulating(shares))), input.dtype());
        let d_outs = prims::reshape(d_outs, [rows, width]);
        let count = gates.len();
        let back = |d: Tensor, matrices: &[Tensor]| grouped_linear::with(d, matrices, groups).turned(true).call();
        let [d_gate, d_up] = swiglu_gradient(gate, up, back(d_outs, &downs));
        let of_choices = |d: Tensor| prims::reshape(d, each);
        let d_x = prims::add(accumulating(back(d_gate, &gates)), accumulating(back(d_up, &ups)));
        ExpertGradients {
            input: total(of_choices(d_x)),
            gates: grouped_outer(d_gate, x, groups, count),
            ups: grouped_outer(d_up, x, groups, count),
            downs: grouped_outer(d_outs, inner, groups, count),
            shares: d_shares,
        }
    })
}
