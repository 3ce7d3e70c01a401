use fulgurite_ops_macros::operator;

use crate::core::promotion::constant_like;
use crate::prims;
use crate::prims::checks;

/// Each element is zero with probability `p` and otherwise divided by `1 - p`, in training; outside of it `input` as it
/// is. The random numbers are a function of `generator`, `i64[2]` of seed and offset, or `i64[3]` of seed, offset and
/// offset + n, where `input` is part n of a larger tensor. Draws of one program from one generator differ; give each
/// run an offset of its own. Integers and booleans cannot be scaled: they pass where nothing is drawn. Srivastava et
/// al., 2014.
#[operator(torch = "nn.functional.dropout", effects(random))]
pub mod dropout {
    fn dropout(
        input: Tensor,
        #[default(0.5)] p: f64,
        #[default(true)] training: bool,
        #[default(None)] generator: Option<Tensor<Integer>>,
    ) -> Tensor;

    fn meta(input: &TensorMeta, p: f64, training: bool, generator: Option<&TensorMeta>) -> Result<TensorMeta> {
        require!((0.0..=1.0).contains(&p), Probability, "p is {p}, expected a probability from 0 to 1");
        let draws = training && p > 0.0 && p < 1.0;
        require!(
            !draws || input.dtype().is_floating(),
            DrawsFloating,
            "training with p = {p} scales what it keeps: input is {}, expected a floating-point dtype",
            input.dtype()
        );
        require!(
            !draws || generator.is_some(),
            NeedsGenerator,
            "training with p = {p} draws random numbers: give a generator, i64[2] of seed and offset"
        );
        if let Some(generator) = generator {
            checks::generator(generator, Code::Generator)?;
        }
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, p: f64, training: bool, generator: Option<Tensor>) -> Tensor {
        match generator {
            Some(generator) if training && p > 0.0 && p < 1.0 => {
                let drawn = prims::uniform(input.shape(), 0.0, 1.0, DType::F32, generator);
                let kept = prims::ge(drawn, p);
                let scaled = prims::mul(input, 1.0 / (1.0 - p));
                prims::select(kept, scaled, 0.0)
            }
            _ if training && p == 1.0 && !input.dtype().is_floating() => constant_like(input, 0i64),
            _ if training && p == 1.0 => prims::mul(input, 0.0),
            _ => input,
        }
    }

    fn reference(Args { input, p, training, generator }: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let input = input.floats();
        if !training || p == 0.0 {
            return Ok(input.clone());
        }
        let Some(generator) = generator.filter(|_| p < 1.0) else { return Ok(input.mapv(|x| x * 0.0)) };
        let drawn = crate::nn::draws(input.shape(), DType::F32, generator)?;
        let threshold = f64::from(p as f32);
        let keep = |x: &f64, u: &f64| if *u >= threshold { x / (1.0 - p) } else { 0.0 };
        Ok(ndarray::Zip::from(input).and(&drawn).map_collect(keep))
    }

    fn samples(s: &mut Samples) {
        if !s.dtype().is_floating() {
            s.case(with(s.normal([4, 8])).training(false));
            s.case(with(s.normal([4, 8])).p(0.0));
            s.case(with(s.normal([4, 8])).p(1.0));
            return;
        }
        for shape in [&[][..], &[7], &[4, 8], &[0, 3], &[67, 65]] {
            s.case(with(s.normal(shape)).p(0.3).generator(s.integers(0, 1 << 20, [2])));
        }
        for shape in [&[][..], &[7], &[67, 65]] {
            s.case(with(s.normal(shape)).p(0.3).generator(s.integers(0, 1 << 20, [3])));
        }
        s.case(with(s.normal([4, 8])).training(false));
        s.case(with(s.normal([4, 8])).p(0.0));
        s.case(with(s.normal([4, 8])).p(1.0));
        s.case(with(s.normal([4, 8])).p(0.2).generator(s.integers(0, 1 << 20, [2])));
        s.case(with(s.normal([4, 8])).p(1.0).generator(s.integers(0, 1 << 20, [2])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Probability, with(e.normal([2])).p(1.5), "p is 1.5, expected a probability from 0 to 1");
        e.case(DrawsFloating, with(e.of(DType::I64, [2])), "input is i64, expected a floating-point dtype");
        e.case(NeedsGenerator, with(e.normal([2])), "give a generator");
        e.case(NeedsGenerator, with(e.normal([2])).p(0.2), "give a generator");
        e.case(NeedsGenerator, with(e.normal([2])).p(0.999), "give a generator");
        let narrow = e.integers(0, 9, [2]).cast(DType::I32);
        e.case(Generator, with(e.normal([2])).generator(narrow), "generator is i32[2]");
        e.case(Generator, with(e.normal([2])).generator(e.integers(0, 9, [4])), "generator is i64[4], expected i64[2]");
    }
}
