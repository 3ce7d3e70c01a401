//! A mixture of experts on the host at a size whose gathered rows and products are beyond 8 MiB, beside all tokens by
//! all experts.

use fulgurite_executors as _;
use fulgurite_ops::nn::experts_mlp;
use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::{Array, DType, Tensor, jit, tracer};

const TOKENS: usize = 9_001;
const WIDTH: usize = 256;
const INNER: usize = 72;
const EXPERTS: usize = 5;

fn numbers(seed: u64, shape: &[usize], scale: f64) -> Array {
    let mut state = seed;
    let next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f64 / f64::from(1 << 24) - 0.5) * scale
    };
    let count = shape.iter().product();
    let values: Vec<f64> = std::iter::repeat_with(next).take(count).collect();
    Array::from_f64(shape, DType::F32, &values).unwrap()
}

/// All tokens by all experts, of which a token has those that it chose.
fn by_all(x: Tensor, layers: [&[Tensor]; 3], experts: Tensor, shares: Tensor) -> Tensor {
    let [gates, ups, downs] = layers;
    let of = |expert: usize| {
        let share = prims::sum(prims::select(prims::eq(experts, expert as i64), shares, 0.0), [1]);
        let out = linear(swiglu(linear(x, gates[expert]), linear(x, ups[expert])), downs[expert]);
        prims::mul(out, prims::broadcast_in_dim(share, out.shape(), [0]))
    };
    (0..EXPERTS).map(of).reduce(prims::add).unwrap_or(x)
}

/// A result, and the gradients of the sum of its products with numbers of both signs: of the tokens, the shares and all
/// matrices.
fn computed(by_group: bool) -> Vec<Array> {
    let step = jit(move |(inputs, experts, cotangent): (Vec<Tensor>, Tensor, Tensor)| {
        let out = |inputs: &Vec<Tensor>| {
            let layers = [0, 1, 2].map(|part| &inputs[2 + part * EXPERTS..2 + (part + 1) * EXPERTS]);
            match by_group {
                true => experts_mlp(inputs[0], layers[0], layers[1], layers[2], experts, inputs[1]),
                false => by_all(inputs[0], layers, experts, inputs[1]),
            }
        };
        let (_, gradients) =
            tracer::value_and_grad(inputs.clone(), |inputs| prims::sum(out(inputs) * cotangent, [0, 1]));
        (out(&inputs), gradients)
    });
    let mut inputs = vec![numbers(1, &[TOKENS, WIDTH], 2.0), numbers(2, &[TOKENS, 2], 1.0)];
    for (part, shape) in [[INNER, WIDTH], [INNER, WIDTH], [WIDTH, INNER]].iter().enumerate() {
        inputs.extend((0..EXPERTS).map(|expert| numbers((10 * part + expert + 3) as u64, shape, 0.2)));
    }
    // Unequal numbers of tokens; expert 3 has none, and expert 7 is not there.
    let chosen = |t: usize| [[0, 1], [0, 2], [4, 0], [1, 7], [2, 2]][(t * t + t / 3) % 5];
    let experts: Vec<f64> = (0..TOKENS).flat_map(chosen).map(f64::from).collect();
    let experts = Array::from_f64([TOKENS, 2], DType::I64, &experts).unwrap();
    let (out, mut gradients) = step.call((inputs, experts, numbers(9, &[TOKENS, WIDTH], 2.0))).unwrap();
    gradients.push(out);
    gradients
}

#[test]
fn many_tokens_meet_their_own_experts_alone() {
    let (own, all) = (computed(true), computed(false));
    assert_eq!((own.len(), all.len()), (3 + 3 * EXPERTS, 3 + 3 * EXPERTS));
    for (number, (own, all)) in own.iter().zip(&all).enumerate() {
        let (own, all) = (own.to_f64().unwrap(), all.to_f64().unwrap());
        let largest = all.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
        let off = own.iter().zip(&all).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        // Of the expert without tokens the gradients are zero.
        let alone = number >= 2 && (number - 2) % EXPERTS == 3 && number < 2 + 3 * EXPERTS;
        assert_eq!(largest == 0.0, alone, "value {number}");
        assert!(off <= 1e-5 * largest, "value {number}: off by {off} of {largest}");
    }
}
