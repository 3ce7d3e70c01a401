use fulgurite_ops_macros::operator;

use crate::core::promotion::{cast, in_floating};
use crate::prims;
use crate::prims::checks;

/// `x` where it is positive, `slope · x` elsewhere: in training each slope is drawn between `lower` and `upper`,
/// outside of it all are their mean. The random numbers are a function of `generator`, as those of
/// [`mod@super::dropout`]. Xu et al., "Empirical Evaluation of Rectified Activations in Convolutional Network", 2015.
#[operator(torch = "nn.functional.rrelu", effects(random))]
pub mod rrelu {
    fn rrelu(
        input: Tensor<Floating>,
        #[default(0.125)] lower: f64,
        #[default(1.0 / 3.0)] upper: f64,
        #[default(false)] training: bool,
        #[default(None)] generator: Option<Tensor<Integer>>,
    ) -> Tensor;

    fn meta(Args { input, lower, upper, training, generator }: Args<&TensorMeta>) -> Result<TensorMeta> {
        require!(
            lower.is_finite() && upper.is_finite() && lower <= upper,
            Bounds,
            "lower is {lower} and upper {upper}, expected finite numbers in ascending order"
        );
        require!(
            !training || generator.is_some(),
            NeedsGenerator,
            "training draws random numbers: give a generator, i64[2] of seed and offset"
        );
        if let Some(generator) = generator {
            checks::generator(generator, Code::Generator)?;
        }
        Ok(input.clone())
    }

    fn decomposition(Args { input, lower, upper, training, generator }: Args<Tensor>) -> Tensor {
        in_floating(input, |x| match generator {
            Some(generator) if training => {
                let drawn = cast(prims::uniform(x.shape(), 0.0, 1.0, DType::F32, generator), x.dtype());
                let slope = prims::add(prims::mul(drawn, upper - lower), lower);
                prims::select(prims::le(x, 0.0), prims::mul(x, slope), x)
            }
            _ => prims::select(prims::le(x, 0.0), prims::mul(x, (lower + upper) / 2.0), x),
        })
    }

    fn reference(args: Args<&ReferenceTensor>) -> Result<ArrayD<f64>> {
        let Args { input, lower, upper, training, generator } = args;
        let of = |x: f64, slope: f64| if x <= 0.0 { x * slope } else { x };
        let Some(generator) = generator.filter(|_| training) else {
            return Ok(elementwise(input, |x| of(x, (lower + upper) / 2.0)));
        };
        let drawn = crate::nn::draws(input.shape(), DType::F32, generator)?;
        Ok(ndarray::Zip::from(input).and(&drawn).map_collect(|x, u| of(*x, lower + (upper - lower) * u)))
    }

    fn samples(s: &mut Samples) {
        s.composed_unary(Domain::ALL);
        s.case(with(s.normal([5])).lower(0.25).upper(0.5));
        for shape in [&[][..], &[0, 3], &[4, 8]] {
            s.case(with(s.normal(shape)).training(true).generator(s.integers(0, 1 << 20, [2])));
        }
        let drawn = with(s.normal([4, 8])).lower(-1.0).upper(2.0).training(true);
        s.case(drawn.generator(s.integers(0, 1 << 20, [3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Bounds, with(e.normal([2])).lower(0.5).upper(0.25), "lower is 0.5 and upper 0.25");
        e.case(NeedsGenerator, with(e.normal([2])).training(true), "give a generator");
        let narrow = e.integers(0, 9, [2]).cast(DType::I32);
        e.case(Generator, with(e.normal([2])).training(true).generator(narrow), "generator is i32[2]");
    }
}
