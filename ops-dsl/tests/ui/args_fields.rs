//! A field that the struct of arguments lacks.
use fulgurite_ops_macros::operator;

#[operator]
pub mod scale {
    fn scale(input: Tensor<Floating>, #[default(1.0)] factor: f64) -> Tensor;

    fn requires(Args { inptu, .. }: Args<&TensorMeta>) -> Result<()> {
        let _ = inptu;
        Ok(())
    }

    fn decomposition(Args { input }: Args<Tensor>) -> Tensor {
        input * 1.0
    }

    fn flops(args: Args<&TensorMeta>) -> u64 {
        args.inputs.len() as u64
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])).factor(2.0));
    }
}

fn main() {}
