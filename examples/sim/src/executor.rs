//! The executor, and what it runs by itself.

use fulgurite::prelude::*;
use fulgurite::rules::{Claim, DeviceTensor, Plan};

use crate::kernels::{launch, unary};
use crate::library::Product;

/// Runs on the simulated accelerator.
#[executor(device = "sim", priority = 10)]
pub mod sim {}

/// Kernels are written for floating-point numbers.
fn takes(input: &TensorMeta) -> Claim {
    fulgurite::refuse_unless!(input.dtype().is_floating(), "has kernels of floating-point numbers, input is {input}");
    Ok(())
}

/// Declares elementwise kernels: the operator, the implementation's name, the function.
macro_rules! unary_kernels {
    ($($of:ident, $name:ident, $f:expr;)*) => {$(
        #[implementation(of = fulgurite::ops::prims::$of, by = sim)]
        mod $name {
            fn checker(input: &TensorMeta) -> Claim {
                super::takes(input)
            }

            fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
                super::unary(plan, stringify!($of), $f, input, out);
                Ok(())
            }
        }
    )*};
}

unary_kernels! {
    abs, abs_by_sim, f64::abs;
    cos, cos_by_sim, f64::cos;
    exp, exp_by_sim, f64::exp;
    floor, floor_by_sim, f64::floor;
    log, log_by_sim, f64::ln;
    neg, neg_by_sim, |x| -x;
    reciprocal, reciprocal_by_sim, f64::recip;
    rsqrt, rsqrt_by_sim, |x| 1.0 / x.sqrt();
    sin, sin_by_sim, f64::sin;
    sqrt, sqrt_by_sim, f64::sqrt;
    tanh, tanh_by_sim, f64::tanh;
}

/// Writes down a product: the library's, and a kernel where the library has no sums as long.
fn product(plan: &mut Plan, input: &DeviceTensor, other: &DeviceTensor, out: &DeviceTensor) -> Result<(), Failure> {
    let rank = out.shape().len();
    let [m, n] = [out.shape()[rank - 2], out.shape()[rank - 1]];
    let batch = out.shape()[..rank - 2].iter().product();
    let of = Product { batch, m, n, k: input.shape()[rank - 1], dtype: input.dtype(), out: out.dtype() };
    let instead = plan.aside(|plan| {
        launch(plan, "matmul", &[input, other], out, move |operands| of.compute(&operands[0], &operands[1]));
        Ok(())
    })?;
    plan.push(of.command([input.address, other.address, out.address], instead));
    Ok(())
}

#[implementation(of = fulgurite::ops::prims::matmul, by = sim)]
mod matmul_by_sim {
    fn checker(input: &TensorMeta, other: &TensorMeta) -> Claim {
        super::takes(input)?;
        let batch = |meta: &TensorMeta| meta.shape()[..meta.rank().saturating_sub(2)].to_vec();
        refuse_unless!(batch(input) == batch(other), "multiplies batches of one shape, not {input} and {other}");
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, other: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::product(plan, input, other, out)
    }
}
