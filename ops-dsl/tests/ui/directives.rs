//! Directives of tests that do not exist, without reasons, or incomplete.
use fulgurite_ops_macros::operator;

#[operator(
    prim,
    no_grad = "a test",
    skip(goldn, reason = "not stored"),
    skip(golden, executor = "cpu"),
    expected_failure(gradient, dtype = bf17, reason = ""),
    tolerance(consistency, reason = "cancels"),
    tolerance(factor = 2.0, reason = "cancels"),
    skip(golden, device = "cpu", reason = "slow"),
)]
pub mod copy {
    fn copy(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn main() {}
