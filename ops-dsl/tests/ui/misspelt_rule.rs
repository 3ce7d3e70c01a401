//! Functions that are nearly rules, or rules of another declaration. A helper that is called may be named as it likes.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test")]
pub mod copy {
    fn copy(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(metas(input))
    }

    fn metas(input: &TensorMeta) -> TensorMeta {
        input.clone()
    }

    fn refernce(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.clone()
    }

    fn checker() -> Claim {
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn main() {}
