//! Statistics that a step updates beside its gradients: batch normalization with running means and variances as
//! auxiliary outputs, against PyTorch 2.15 (`torch.nn.functional.batch_norm(x, mean, var, w, b, training=True,
//! momentum=0.1, eps=1e-5)`, then `((y - target) ** 2).mean()`).

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, Result, Tensor, jit};

const MOMENTUM: f64 = 0.1;
const EPS: f64 = 1e-5;

/// The normalized `x`, and the running statistics after it.
fn batch_norm(x: Tensor, (w, b): (Tensor, Tensor), (mean, var): (Tensor, Tensor)) -> (Tensor, (Tensor, Tensor)) {
    let own = mean::with(x).dim([0]).call();
    // What normalizes is not corrected, what is kept is.
    let spread = var::with(x).dim([0]).correction(0.0).call();
    let unbiased = var::with(x).dim([0]).correction(1.0).call();
    let y = (x - own) / (spread + EPS).sqrt() * w + b;
    let moved = |running: Tensor, new: Tensor| running * (1.0 - MOMENTUM) + new * MOMENTUM;
    (y, (moved(mean, own), moved(var, unbiased)))
}

fn near(name: &str, array: &Array, expected: &[f32]) -> Result<()> {
    let values: Vec<f32> = array.to_vec()?;
    let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 2e-6 * (1.0 + b.abs());
    assert!(
        values.len() == expected.len() && values.iter().zip(expected).all(close),
        "{name}: {values:?}, expected {expected:?}"
    );
    Ok(())
}

#[test]
fn running_statistics_come_back_beside_the_gradients() -> Result<()> {
    let x = Array::new([4, 2], &[1.0_f32, -2.0, 0.5, 3.0, -1.5, 0.25, 2.0, 1.0])?;
    let target = Array::new([4, 2], &[0.5_f32, 1.0, -1.0, 0.0, 2.0, 1.5, 0.0, -0.75])?;
    let pair =
        |first: [f32; 2], second: [f32; 2]| -> Result<_> { Ok((Array::new([2], &first)?, Array::new([2], &second)?)) };
    let plain = Options::default().with_executors(&["reference"])?;
    for options in [Options::default(), Options { fuse: false, ..Options::default() }, plain] {
        type Pair = (Tensor, Tensor);
        let step = jit(|(params, running, x, target): (Pair, Pair, Tensor, Tensor)| {
            value_and_grad_aux(params, |params| {
                let (y, running) = batch_norm(x, *params, running);
                let off = y - target;
                (mean(off * off), (y, running))
            })
        })
        .arguments(["params", "running", "x", "target"])
        .options(Options { verify: true, ..options });
        let params = || pair([1.5, -0.5], [0.25, 1.0]);
        let ((loss, (y, running)), (d_w, d_b)) =
            step.call((params()?, pair([0.1, -0.2], [1.0, 2.0])?, x.clone(), target.clone()))?;
        near("loss", &loss, &[3.251183])?;
        let expected = [0.8383466, 1.716327, 0.25, 0.3186159, -2.103386, 1.087357, 2.01504, 0.8777002];
        near("y", &y, &expected)?;
        near("mean", &running.0, &[0.14, -0.12375])?;
        near("var", &running.1, &[1.116667, 2.226562])?;
        near("gradient of w", &d_w, &[2.235424, -0.03045489])?;
        near("gradient of b", &d_b, &[-0.125, 0.5624999])?;
        // The next step starts from these: they are states like any others, and change neither loss nor gradients.
        let ((again, (_, next)), (same, _)) = step.call((params()?, running, x.clone(), target.clone()))?;
        assert_eq!(again.to_vec::<f32>()?, loss.to_vec::<f32>()?);
        assert_eq!(same.to_vec::<f32>()?, d_w.to_vec::<f32>()?);
        near("mean after two steps", &next.0, &[0.176, -0.055125])?;
        near("var after two steps", &next.1, &[1.221667, 2.430468])?;
    }
    Ok(())
}
