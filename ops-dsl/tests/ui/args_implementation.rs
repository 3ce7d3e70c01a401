//! An implementation that leaves out an argument, or takes one in both forms.
use fulgurite_ops_macros::{executor, implementation, operator};

/// Kernels for the host.
#[executor(device = "cpu")]
pub mod fast {}

#[operator]
pub mod scale {
    fn scale(input: Tensor<Floating>, #[default(1.0)] factor: f64) -> Tensor;

    fn decomposition(Args { input, factor }: Args<Tensor>) -> Tensor {
        input * factor
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])).factor(2.0));
    }
}

#[implementation(of = scale, by = fast)]
mod scale_by_fast {
    fn checker(Args { factor, .. }: Args<&TensorMeta>, input: &TensorMeta) -> Claim {
        refuse_unless!(factor == 1.0 && input.rank() > 0, "scales by {factor}");
        Ok(())
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        args.input * 1.0
    }
}

fn main() {}
