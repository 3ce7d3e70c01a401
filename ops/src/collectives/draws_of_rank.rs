use fulgurite_ops_macros::operator;

use super::among;
use crate::prims::checks;

/// The generator by which this rank draws its part of what the ranks along `axis` draw together: of a tensor with the
/// leading dimension divided among them, in order. `generator` is i64[2] of seed and offset; the result is i64[3] of
/// seed, offset, and the sum of the offset and the number of the part. A sum of it and a number, which is another
/// stream, is so of the same part. A generator that is of a part already gives a part of that part.
///
/// Nothing is communicated. `Options::with_ddp` and `with_fsdp` put it before each draw in the function of
/// `value_and_grad`: as many ranks as there are then draw what one rank draws for the whole batch.
#[operator(
    prim,
    exact,
    overload = DrawsOfRank,
    effects(place),
    no_grad = "random numbers do not depend on anything differentiable"
)]
pub mod draws_of_rank {
    fn draws_of_rank(generator: Tensor<Integer>, axis: String) -> Tensor;

    fn meta(generator: &TensorMeta, axis: &str) -> Result<TensorMeta> {
        among::extent(axis, Code::Axis)?;
        checks::generator(generator, Code::Generator)?;
        Ok(generator.with_shape([3]))
    }

    fn reference(generator: &ArrayD<i64>, axis: &str) -> Result<ArrayD<i64>> {
        let (own, ranks) = among::place_along(axis)?;
        let outer = generator.get(2).map_or(0, |mark| mark.wrapping_sub(generator[1]));
        let part = outer.wrapping_mul(ranks as i64).wrapping_add(own as i64);
        let mark = generator[1].wrapping_add(part);
        Ok(ndarray::arr1(&[generator[0], generator[1], mark]).into_dyn())
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::I64 {
            s.case(with(s.integers(-9, 1 << 40, [2]), "data=1"));
            s.case(with(s.integers(-9, 1 << 40, [3]), "data=1"));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Axis, with(e.integers(0, 9, [2]), "data=0"), "'data=0' is not an axis of a mesh");
        e.case(Generator, with(e.integers(0, 9, [4]), "data=1"), "generator is i64[4], expected i64[2]");
        e.case(Generator, with(e.integers(0, 9, [2]).cast(DType::I32), "data=1"), "generator is i32[2]");
    }
}

/// What [`mod@draws_of_rank`] makes of the numbers of a generator, for the rank at `place` of so many.
pub fn of_part(generator: &[i64], place: usize, ranks: usize) -> [i64; 3] {
    let number = |at: usize| generator.get(at).copied().unwrap_or_default();
    let (seed, offset) = (number(0), number(1));
    let outer = generator.get(2).map_or(0, |mark| mark.wrapping_sub(offset));
    [seed, offset, offset.wrapping_add(outer.wrapping_mul(ranks as i64).wrapping_add(place as i64))]
}
