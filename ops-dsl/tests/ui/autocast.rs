//! Classes of autocast that are misspelt, of the wrong form, given twice, or that speak of nothing.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test", autocast = lwo)]
pub mod misspelt {
    fn misspelt(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(prim, no_grad = "a test", autocast)]
pub mod alone {
    fn alone(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(prim, no_grad = "a test", autocast = bf16, autocast = full)]
pub mod twice {
    fn twice(input: Tensor) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(prim, autocast = low)]
pub mod integers {
    fn integers(input: Tensor<Integer>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

fn main() {
    let _ = (misspelt, alone, twice, integers);
}
