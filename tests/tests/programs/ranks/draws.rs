//! Random numbers on several ranks: what one rank draws for the whole batch.

use fulgurite_ops::collectives::draws_of_rank;
use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::{
    bernoulli, checkpoint, dropout, dropout1d, exponential, full, linear, mean, randint, randn,
    scaled_dot_product_attention, sum, tanh, value_and_grad, value_and_grad_aux,
};
use fulgurite_ops::prims;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::transforms::fsdp::Sharding;
use fulgurite_runtime::{Array, DType, Tensor, jit, ranks};
/// Dropout of what is computed of a batch [B, 6, 4] and weights [4, 4], in a checkpoint too, of weights, and in
/// attention.
fn dropping(w: Tensor, x: Tensor, generator: Tensor) -> (Tensor, Tensor) {
    value_and_grad(w, |w| {
        let drop = |x: Tensor, p: f64| dropout::with(x).p(p).generator(generator).call();
        let hidden = drop(linear(x, *w), 0.3);
        let hidden = checkpoint("part", || drop(tanh(hidden), 0.2));
        // All sequences have the same weights.
        let queries = linear(hidden, drop(*w, 0.4));
        let attended = scaled_dot_product_attention::with(queries, hidden, hidden).dropout_p(0.25).generator(generator);
        let noise = prims::uniform(x.shape(), -0.5, 0.5, x.dtype(), generator);
        mean((attended.call() + noise) * hidden)
    })
}

/// How the ranks of a test train.
#[derive(Clone, Copy)]
enum By {
    Ddp,
    /// With the least size of tensors that are gathered again.
    Fsdp(Option<u64>),
}

/// The losses of all ranks and the gradient of [`dropping`].
fn dropped(count: usize, dtype: DType, by: By, seed: i64) -> (Vec<f64>, Vec<f64>) {
    drawn_by(dropping, count, dtype, by, seed)
}

/// A loss and its gradient by weights [4, 4], of a batch [B, 6, 4] and a generator.
type Drawing = fn(Tensor, Tensor, Tensor) -> (Tensor, Tensor);

/// The losses of all ranks and the gradient of a function.
fn drawn_by(of: Drawing, count: usize, dtype: DType, by: By, seed: i64) -> (Vec<f64>, Vec<f64>) {
    let mesh: Mesh = format!("data={count}").parse().unwrap();
    let each = 8 / count * 24;
    let batch: Vec<f64> = (0..8 * 24).map(|i| f64::from(i * 7 % 23) / 8.0 - 1.3).collect();
    let weights: Vec<f64> = (0..16).map(|i| f64::from(i * 5 % 16) / 8.0 - 0.9).collect();
    let outcomes = ranks::simulate(&mesh, |rank| {
        let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() };
        let w = Array::from_f64([4, 4], dtype, &weights).unwrap();
        let (options, w) = match by {
            By::Ddp => (options.with_ddp("data"), w),
            By::Fsdp(gather_again) => {
                let mut sharding = Sharding::new("data").with_part("w", [4, 4]);
                sharding.gather_again = gather_again;
                (options.with_fsdp(sharding), w.part(rank, &mesh.axes()[0]).unwrap())
            }
        };
        let step = jit(move |(w, x, generator): (Tensor, Tensor, Tensor)| of(w, x, generator));
        let step = step.arguments(["w", "x", "generator"]).results(["loss", "w"]).options(options);
        let x = Array::from_f64([8 / count, 6, 4], dtype, &batch[rank * each..(rank + 1) * each]).unwrap();
        let (loss, gradient) = step.call((w, x, Array::new([2], &[seed, 5i64]).unwrap())).unwrap();
        (loss.item().unwrap(), gradient.to_f64().unwrap())
    });
    let (losses, mut gradients): (Vec<f64>, Vec<Vec<f64>>) = outcomes.unwrap().into_iter().unzip();
    let gradient = if matches!(by, By::Ddp) { gradients.swap_remove(0) } else { gradients.concat() };
    (losses, gradient)
}

/// What is dropped of the whole batch does not depend on the number of ranks, by any strategy.
#[test]
fn ranks_draw_what_one_rank_draws() {
    let close = |a: &[f64], b: &[f64], most: f64| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= most * b.abs().max(0.1))
    };
    for (dtype, most) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
        let (loss, gradient) = dropped(1, dtype, By::Ddp, 3);
        assert!(!close(&dropped(1, dtype, By::Ddp, 4).0, &loss, 1e-3), "another seed drops others");
        for count in [2, 4] {
            for by in [By::Ddp, By::Fsdp(None), By::Fsdp(Some(1))] {
                let (losses, found) = dropped(count, dtype, by, 3);
                assert!(losses.iter().all(|found| close(&[*found], &loss, most)), "{count}: {losses:?}, one: {loss:?}");
                assert!(close(&found, &gradient, most), "{count}: {found:?}, one: {gradient:?}");
            }
        }
    }
}

/// Masks drawn for constants, which are not of weights, and draws that the function divides itself.
fn masked(w: Tensor, x: Tensor, generator: Tensor) -> (Tensor, Tensor) {
    value_and_grad(w, |w| {
        let ones = full::with(x.shape(), 1.0).dtype(x.dtype()).call();
        let mask = dropout::with(ones).p(0.3).generator(generator).call();
        let part = draws_of_rank(generator + 7, own_axis());
        let noise = prims::uniform(x.shape(), -0.5, 0.5, x.dtype(), part);
        let other = checkpoint("noise", || prims::uniform(x.shape(), -0.5, 0.5, x.dtype(), generator + 9) * 2.0);
        mean((linear(x, *w) * mask + noise) * (x + other))
    })
}

/// Random tensors of the batch's shape, by operators that consist of others.
fn noisy(w: Tensor, x: Tensor, generator: Tensor) -> (Tensor, Tensor) {
    value_and_grad(w, |w| {
        let hidden = linear(x, *w);
        let noise = randn::with(x.shape(), generator).dtype(x.dtype()).call();
        let kept = dropout1d::with(hidden + noise).p(0.3).generator(generator).call();
        let chosen = bernoulli::with(x, generator).p(0.4).call() + exponential(x, 2.0, generator);
        mean(kept * chosen * cast(randint(-3, 5, x.shape(), generator), x.dtype()))
    })
}

/// Random tensors have the numbers of the whole batch on any number of ranks.
#[test]
fn random_tensors_are_parts_of_those_of_one_rank() {
    let close = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12);
    let (loss, gradient) = drawn_by(noisy, 1, DType::F64, By::Ddp, 3);
    for count in [2, 4] {
        let (losses, found) = drawn_by(noisy, count, DType::F64, By::Ddp, 3);
        assert!(losses.iter().all(|found| close(&[*found], &loss)), "{count}: {losses:?}, one: {loss:?}");
        assert!(close(&found, &gradient), "{count}: {found:?}, one: {gradient:?}");
    }
}

/// The axis of the ranks of this run.
fn own_axis() -> String {
    ranks::mesh().axes()[0].to_string()
}

/// Constants of the batch's shape are drawn for as the batch is; draws of a part are not divided again.
#[test]
fn draws_for_constants_and_of_parts_are_those_of_one_rank() {
    let close = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12);
    let (loss, gradient) = drawn_by(masked, 1, DType::F64, By::Ddp, 3);
    for count in [2, 4] {
        for by in [By::Ddp, By::Fsdp(None), By::Fsdp(Some(1))] {
            let (losses, found) = drawn_by(masked, count, DType::F64, by, 3);
            assert!(losses.iter().all(|found| close(&[*found], &loss)), "{count}: {losses:?}, one: {loss:?}");
            assert!(close(&found, &gradient), "{count}: {found:?}, one: {gradient:?}");
        }
    }
}

/// Ranks along two axes divide what is drawn among all of them, in the order of ranks.
#[test]
fn draws_are_divided_along_two_axes() {
    let drawn = |mesh: &str, each: usize| -> Vec<f64> {
        let mesh: Mesh = mesh.parse().unwrap();
        let run = |rank: usize| {
            let draw = jit(move |(w, generator): (Tensor, Tensor)| {
                let noised = |w: &Tensor| {
                    let noise = prims::uniform([each], 0.0, 1.0, DType::F64, generator);
                    (sum(*w) * mean(noise), noise)
                };
                value_and_grad_aux(w, noised).0.1
            });
            let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() };
            let w = Array::new([4], &[1.0f64; 4]).unwrap();
            let (options, w) = match mesh.axis("shard") {
                None => (options, w),
                Some((_, axis)) => {
                    let sharding = Sharding::new("shard").with_part("w", [4]);
                    (options.with_fsdp(sharding).with_ddp("data"), w.part(rank % 2, axis).unwrap())
                }
            };
            let draw = draw.arguments(["w", "generator"]).results(["noise"]).options(options);
            draw.call((w, Array::new([2], &[3, 4i64]).unwrap())).unwrap().to_f64().unwrap()
        };
        ranks::simulate(&mesh, run).unwrap().concat()
    };
    assert_eq!(drawn("data=3 shard=2", 3), drawn("data=1", 18));
}
