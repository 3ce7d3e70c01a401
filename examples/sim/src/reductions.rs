//! Reductions: a sum in one kernel, and a softmax in two, with what the first one finds in workspace.

use fulgurite::prelude::*;

use crate::kernels::{launch, read, workspace, written};
use crate::{sim, takes};

/// For each element of a contiguous tensor, the number of the sum that it is a term of.
fn sums(shape: &[usize], dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![0; shape.len()];
    let mut step = 1;
    for dim in (0..shape.len()).rev().filter(|dim| !dims.contains(dim)) {
        strides[dim] = step;
        step *= shape[dim];
    }
    let mut found = vec![0];
    for (extent, stride) in shape.iter().zip(strides) {
        found = found.iter().flat_map(|start| (0..*extent).map(move |i| start + i * stride)).collect();
    }
    found
}

#[implementation(of = fulgurite::ops::prims::sum, by = sim)]
mod sum_by_sim {
    fn checker(input: &TensorMeta) -> Claim {
        super::takes(input)
    }

    /// In f64, in the order of memory, rounded once.
    fn plan(plan: &mut Plan, input: &DeviceTensor, dims: &[usize], out: &DeviceTensor) -> Result<()> {
        let (sums, count, dtype) = (super::sums(input.shape(), dims), out.meta.len(), input.dtype());
        super::launch(plan, "sum", &[input.into()], out, move |operands| {
            let mut totals = vec![0.0; count];
            for (value, sum) in super::read(dtype, &operands[0]).into_iter().zip(&sums) {
                totals[*sum] += value;
            }
            super::written(dtype, &totals)
        });
        Ok(())
    }
}

#[implementation(of = fulgurite::ops::nn::softmax, by = sim)]
mod softmax_by_sim {
    fn checker(input: &TensorMeta, dtype: Option<DType>) -> Claim {
        super::takes(input)?;
        refuse_unless!(dtype.is_none_or(|dtype| dtype == input.dtype()), "converts no element types");
        Ok(())
    }

    /// The first kernel leaves the largest element of each row in workspace, and the sum of the row's exponentials.
    fn plan(plan: &mut Plan, input: &DeviceTensor, dim: i64, out: &DeviceTensor) -> Result<()> {
        let rank = input.shape().len();
        let dims: Vec<usize> = if rank == 0 { Vec::new() } else { vec![dim.rem_euclid(rank as i64) as usize] };
        let rows: Vec<usize> = super::sums(input.shape(), &dims);
        let count = rows.iter().max().map_or(0, |last| last + 1);
        let (dtype, room) = (input.dtype(), super::workspace(plan, 2 * count));
        let of = rows.clone();
        super::launch(plan, "softmax_rows", &[input.into()], room, move |operands| {
            let values = super::read(dtype, &operands[0]);
            let (mut largest, mut totals) = (vec![f64::NEG_INFINITY; count], vec![0.0; count]);
            for (value, row) in values.iter().zip(&of) {
                largest[*row] = f64::max(largest[*row], *value);
            }
            for (value, row) in values.iter().zip(&of) {
                totals[*row] += (value - largest[*row]).exp();
            }
            super::written(DType::F64, &[largest, totals].concat())
        });
        super::launch(plan, "softmax", &[input.into(), room], out, move |operands| {
            let found = super::read(DType::F64, &operands[1]);
            let (largest, totals) = found.split_at(count);
            let values = super::read(dtype, &operands[0]).into_iter().zip(&rows);
            let values = values.map(|(value, row)| (value - largest[*row]).exp() / totals[*row]);
            super::written(dtype, &values.collect::<Vec<f64>>())
        });
        Ok(())
    }
}
