//! Signatures that are missing, misnamed, or say what cannot be.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test")]
pub mod missing {
    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(prim, no_grad = "a test")]
pub mod named {
    fn nmaed(
        input: Tensor<Float>,
        #[default(None)] weight: Tensor,
        dims: &[usize],
        pairs: Vec<Option<Tensor>>,
        _eps: f64,
        out: f64,
    ) -> usize;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(_s: &mut Samples) {}
}

/// Words that traces and kernels have no way to write.
#[operator(prim, no_grad = "a test", name = "a b")]
pub mod keywords {
    #[results(r#where, other)]
    fn keywords(r#type: Tensor) -> (Tensor, Tensor);

    fn meta(r#type: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        Ok((r#type.clone(), r#type.clone()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator]
pub use self::named as other;

fn main() {}
