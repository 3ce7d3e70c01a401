use fulgurite_ops_macros::operator;

use super::checks;
/// Random numbers, uniform in `[low, high)`. They are a function of `generator` (its seed and its offset, i64) and of
/// the element's row-major position alone: the counter of Philox4x32-10 is the number of a block of four words and the
/// offset, its key the seed. Each word gives one number from its upper 24 bits; in f64 two words give one, from 53
/// bits. A number that would round up to `high` is the one below it. Salmon et al., 2011.
///
/// With a generator i64[3] of seed, offset and offset + n the result is part n of a larger tensor: that of so many
/// elements further on.
#[operator(prim, effects(random), no_grad = "random numbers do not depend on anything differentiable")]
pub mod uniform {
    fn uniform(size: Vec<usize>, low: f64, high: f64, dtype: DType, generator: Tensor<Integer>) -> Tensor;

    fn meta(size: &[usize], low: f64, high: f64, dtype: DType, generator: &TensorMeta) -> Result<TensorMeta> {
        require!(dtype.is_floating(), FloatingDType, "dtype is {dtype}, expected a floating-point dtype");
        require!(low <= high, Bounds, "low is {low}, high is {high}, expected low <= high");
        require!(
            -dtype.largest() <= low && high <= dtype.largest(),
            Range,
            "low is {low}, high is {high}, expected numbers that {dtype} holds"
        );
        checks::generator(generator, Code::Generator)?;
        Ok(TensorMeta::new(size, dtype, generator.device()))
    }

    fn reference(size: &[usize], low: f64, high: f64, dtype: DType, generator: &ArrayD<i64>) -> ReferenceTensor {
        let (seed, offset) = (generator[[0]] as u64, generator[[1]] as u64);
        let len: usize = size.iter().product();
        let part = generator.get([2]).map_or(0, |mark| (*mark as u64).wrapping_sub(offset));
        let unit = |i: usize| {
            let i = part.wrapping_mul(len as u64).wrapping_add(i as u64);
            if dtype == DType::F64 {
                let words = philox(seed, offset, i / 2);
                let pair = if i.is_multiple_of(2) { &words[..2] } else { &words[2..] };
                (((u64::from(pair[0]) << 32) | u64::from(pair[1])) >> 11) as f64 / (1u64 << 53) as f64
            } else {
                f64::from(philox(seed, offset, i / 4)[(i % 4) as usize] >> 8) / f64::from(1u32 << 24)
            }
        };
        // Each bound by its weight: their difference may be beyond the largest number.
        let values = (0..len).map(|i| low * (1.0 - unit(i)) + high * unit(i)).collect();
        let values = ArrayD::from_shape_vec(IxDyn(size), values);
        ReferenceTensor::from_floats(dtype, values.unwrap_or_else(|_| unreachable!("as many values as elements")))
    }

    /// For references: Philox4x32-10, by the paper.
    fn philox(key: u64, offset: u64, block: u64) -> [u32; 4] {
        let (mut k0, mut k1) = (key as u32, (key >> 32) as u32);
        let mut c = [block as u32, (block >> 32) as u32, offset as u32, (offset >> 32) as u32];
        for _ in 0..10 {
            let p0 = u64::from(c[0]) * 0xD251_1F53;
            let p1 = u64::from(c[2]) * 0xCD9E_8D57;
            c = [(p1 >> 32) as u32 ^ c[1] ^ k0, p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k1, p0 as u32];
            k0 = k0.wrapping_add(0x9E37_79B9);
            k1 = k1.wrapping_add(0xBB67_AE85);
        }
        c
    }

    fn samples(s: &mut Samples) {
        if !s.dtype().is_floating() {
            return;
        }
        for size in [&[][..], &[1], &[7], &[4, 8], &[3, 0, 5], &[67, 65]] {
            s.case(with(size, 0.0, 1.0, s.dtype(), s.integers(0, 1 << 40, [2])));
        }
        // Parts of larger tensors: they begin at each place of a block of words, and far beyond 32 bits.
        for (count, part) in [(7, 0.0), (7, 1.0), (7, 2.0), (5, 3.0), (1, 5.0), (6, 4_294_967_299.0), (2001, 3.0)] {
            let generator = SampleTensor::literal(&[3], DType::I64, [11.0, 7.0, 7.0 + part].into());
            s.case(with([count], 0.0, 1.0, s.dtype(), generator));
        }
        s.case(with([3, 0], 0.0, 1.0, s.dtype(), s.integers(0, 9, [3])));
        s.case(with([67, 65], -1.0, 1.0, s.dtype(), s.integers(0, 1 << 40, [3])));
        s.case(with([9], -3.0, 5.0, s.dtype(), s.integers(0, 9, [2])));
        s.case(with([9], 2.0, 2.0, s.dtype(), s.integers(0, 9, [2])));
        s.case(with([9], 0.0, 1.0, s.dtype(), s.integers(-9, 0, [2])));
        let far = 0.9 * s.dtype().largest();
        s.case(with([9], -far, far, s.dtype(), s.integers(0, 9, [2])));
        let largest = s.dtype().largest();
        s.case(with([9], -largest, 0.0, s.dtype(), s.integers(0, 9, [2])));
        s.case(with([9], 0.0, largest, s.dtype(), s.integers(0, 9, [2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(FloatingDType, with([2], 0.0, 1.0, DType::I32, e.integers(0, 9, [2])), "dtype is i32");
        e.case(Bounds, with([2], 1.0, 0.0, DType::F32, e.integers(0, 9, [2])), "low is 1, high is 0");
        e.case(Range, with([2], -1e39, 1.0, DType::F32, e.integers(0, 9, [2])), "expected numbers that f32 holds");
        e.case(Range, with([2], 0.0, f64::INFINITY, DType::F64, e.integers(0, 9, [2])), "numbers that f64 holds");
        e.case(Generator, with([2], 0.0, 1.0, DType::F32, e.integers(0, 9, [4])), "generator is i64[4]");
        let narrow = e.integers(0, 9, [2]).cast(DType::I32);
        e.case(Generator, with([2], 0.0, 1.0, DType::F32, narrow), "generator is i32[2]");
    }
}
