//! A prim that decomposes, a composite that does not, a prim without a meta, a composite and a prim
//! with a kernel.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test")]
pub mod one {
    fn one(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        input
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator]
pub mod two {
    fn two(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(prim, no_grad = "a test")]
pub mod three {
    fn three(input: Tensor) -> Tensor;

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator]
pub mod four {
    fn four(input: Tensor) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let _ = (input, out);
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(prim, no_grad = "a test")]
pub mod five {
    fn five(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let _ = (plan, input, out);
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn main() {}
