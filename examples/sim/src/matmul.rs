//! Products of matrices: a call of the device's library, and a kernel where the library has no sums as long.

use fulgurite::device::DeviceTensor;
use fulgurite::prelude::*;
use fulgurite::rules::Plan;

use crate::kernels::launch;
use crate::library::Product;
use crate::{sim, takes};

/// Writes down a product.
fn product(plan: &mut Plan, input: &DeviceTensor, other: &DeviceTensor, out: &DeviceTensor) -> Result<(), Failure> {
    let rank = out.shape().len();
    let [m, n] = [out.shape()[rank - 2], out.shape()[rank - 1]];
    let batch = out.shape()[..rank - 2].iter().product();
    let of = Product { batch, m, n, k: input.shape()[rank - 1], dtype: input.dtype(), out: out.dtype() };
    let instead = plan.aside(|plan| {
        let operands = [input.into(), other.into()];
        launch(plan, "matmul", &operands, out, move |operands| of.compute(&operands[0], &operands[1]));
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

    /// Rows of whole fours, as hardware asks for them: here, so that the suites of all operators that multiply run with
    /// larger operands too.
    fn padded(input: &Strided, other: &Strided) -> Option<Vec<Vec<usize>>> {
        let up = |extent: usize| extent.next_multiple_of(4);
        let wider = |tensor: &Strided, rows: bool| {
            let mut shape = tensor.meta.shape().to_vec();
            let rank = shape.len();
            shape[rank - 1] = up(shape[rank - 1]);
            if rows {
                shape[rank - 2] = up(shape[rank - 2]);
            }
            shape
        };
        let shapes = vec![wider(input, false), wider(other, true)];
        (shapes[0] != input.meta.shape() || shapes[1] != other.meta.shape()).then_some(shapes)
    }
}
