//! A precondition that no error sample trips, and an error sample that trips none.
use fulgurite_ops_macros::operator;

#[operator(prim, no_grad = "a test")]
pub mod copy {
    fn copy(input: Tensor, dim: i64) -> Tensor;

    fn meta(input: &TensorMeta, dim: i64) -> Result<TensorMeta> {
        require!(input.rank() > 0, Rank, "input has no dimension");
        require!((dim as usize) < input.rank(), Dimension, "dimension {dim} is out of range");
        Ok(input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4]), 0));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Rank, with(e.normal([]), 0), "no dimension");
        e.case(Dimensions, with(e.normal([4]), 1), "out of range");
    }
}

fn main() {}
