//! A rule that takes all arguments as one struct takes that of its own kind, nothing beside it, and reads every field
//! where none may fall back to its default.
use fulgurite_ops_macros::operator;

#[operator]
pub mod scale {
    fn scale(input: Tensor<Floating>, #[default(1.0)] factor: f64, #[default(0.0)] offset: f64) -> Tensor;

    fn requires(args: &Args<&TensorMeta>) -> Result<()> {
        Ok(())
    }

    fn meta(Args { input, .. }: Args<Tensor>) -> Result<TensorMeta> {
        Ok(input.meta())
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        args.input * args.factor
    }

    fn grad(Args { input, factor, .. }: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (scale(input), move |d_out| Grads { input: d_out * factor })
    }

    fn reference(args: Args<&ReferenceTensor>, factor: f64) -> ArrayD<f64> {
        args.input * factor
    }

    fn flops(args: &TensorMeta) -> u64 {
        0
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])).factor(2.0));
    }
}

#[operator(prim, no_grad = "a test")]
pub mod shift {
    fn shift(input: Tensor<Floating>, args: f64) -> Tensor;

    fn scalar(all: Args<Expr>) -> Expr {
        all.input
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4]), 1.0));
    }
}

fn main() {}
