//! An operator whose kernel has a parameter that is tuned.

use fulgurite::device::{DeviceTensor, Plan};
use fulgurite::prelude::*;

use crate::{in_blocks, sim, takes};

/// `input³`, elementwise.
#[operator]
pub mod cubed {
    fn cubed(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * input * input
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x * x * x)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(-2.0, 2.0));
        s.case(with(s.uniform(-2.0, 2.0, [3, 517])));
    }
}

#[implementation(of = cubed, by = sim)]
mod cubed_by_sim {
    fn checker(input: &TensorMeta) -> Claim {
        super::takes(input)
    }

    // Elements that a kernel takes.
    #[tune(BLOCK in [16, 256, 1024])]
    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor, BLOCK: usize) -> Result<()> {
        super::in_blocks(plan, "cubed", BLOCK, [input], out, |[x]| x * x * x);
        Ok(())
    }
}
