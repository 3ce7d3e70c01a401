//! Kernels of the device, and which operators they run. `ops new NAME --implementation npu --of OPERATOR` writes more.

use fulgurite::prelude::*;

use crate::executor::npu;

/// A kernel, as plans hold it. TODO: what the driver needs to launch one.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The name that messages use.
    pub name: &'static str,
    /// The function of an element.
    pub function: fn(f32) -> f32,
    /// How many elements there are.
    pub count: usize,
}

/// Plans are compared: a name has one function.
impl PartialEq for Kernel {
    fn eq(&self, other: &Kernel) -> bool {
        (self.name, self.count) == (other.name, other.count)
    }
}

impl Kernel {
    /// Runs it on the operands: the input, and the result.
    ///
    /// # Safety
    /// Both have `count` elements of f32.
    pub(crate) unsafe fn run(&self, operands: &[*mut u8]) {
        let [input, out] = operands else { return };
        for i in 0..self.count {
            // SAFETY: the caller's.
            unsafe { out.cast::<f32>().add(i).write((self.function)(input.cast::<f32>().add(i).read())) }
        }
    }
}

#[implementation(of = fulgurite::ops::prims::neg, by = npu)]
mod neg_by_npu {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "the kernel is written for f32, input is {input}");
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let kernel = super::Kernel { name: "neg", function: |x| -x, count: out.meta.len() };
        plan.library(kernel, [Some(input.address), Some(out.address)]);
        Ok(())
    }
}
