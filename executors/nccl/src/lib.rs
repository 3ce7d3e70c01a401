//! `nccl`: collectives among NVIDIA GPUs, each of which is a rank of the mesh.
//!
//! Between GPUs of one host that reach each other's memory tensors go by their copy engines, and kernels combine them
//! in the order of ranks: results have the bits that ranks on the host have. Otherwise NVIDIA's library NCCL moves
//! them, and adds f32, f64 and integers in the order of its rings, which is the same in every run on the same GPUs.
//! Which of the two it is, ranks find out when they load a program (`runtime/cuda/src/collectives`).

use fulgurite_executor_cuda::elementwise::{contiguous_copy, copy};
use fulgurite_ops::collectives::Reduce;
use fulgurite_ops_macros::{executor, implementation};
use fulgurite_runtime::TensorMeta;
use fulgurite_runtime::backends::cuda::Collective;
use fulgurite_runtime::kernels::cuda::collectives::{Reduction, Transfer};
use fulgurite_runtime::kernels::view::contiguous_strides;
use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::rules::{Claim, DeviceTensor, Failure, Plan, Result};

/// Collectives by NCCL, in the precision of their operands.
#[executor(device = "cuda", priority = 10)]
pub mod nccl {}

/// The plan of a collective along an axis.
struct Group<'a> {
    plan: &'a mut Plan,
    axis: Axis,
}

impl Group<'_> {
    fn new<'a>(plan: &'a mut Plan, axis: &str) -> Result<Group<'a>> {
        let axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
        Ok(Group { plan, axis })
    }

    fn ranks(&self) -> usize {
        self.axis.extent()
    }

    /// Writes down a transfer between the contiguous tensors of each pair; NCCL carries out all of them as one. One
    /// rank alone has what it gives; several write down that of nothing too, which is compared with what the others
    /// have.
    fn transfer(&mut self, transfer: Transfer, pairs: &[(DeviceTensor, DeviceTensor)]) -> Result<()> {
        if self.ranks() == 1 {
            return pairs.iter().try_for_each(|(from, to)| {
                let meta = from.meta.with_shape(to.shape());
                let from = DeviceTensor { strides: contiguous_strides(to.shape()), meta, ..from.clone() };
                copy(self.plan, &from, to)
            });
        }
        let Some(dtypes) = pairs.first().map(|(from, to)| [from.meta.dtype(), to.meta.dtype()]) else { return Ok(()) };
        let counts = pairs.iter().map(|(from, _)| from.meta.len()).collect();
        let collective = Collective { axis: self.axis.clone(), transfer, dtypes, counts };
        let workspace = Some(collective.workspace()).filter(|bytes| *bytes > 0).map(|bytes| self.plan.workspace(bytes));
        let pairs = pairs.iter().map(|(from, to)| [from.address, to.address]);
        self.plan.push(collective.command(pairs, workspace));
        Ok(())
    }

    /// Room in the workspace for a tensor like `each` of every rank, one after another.
    fn stacked(&mut self, each: &TensorMeta) -> DeviceTensor {
        let shape: Vec<usize> = [self.ranks()].into_iter().chain(each.shape().iter().copied()).collect();
        let meta = each.with_shape(shape);
        let address = self.plan.workspace(meta.bytes() as u64);
        DeviceTensor { strides: contiguous_strides(meta.shape()), meta, address, alignment: 256 }
    }

    /// A tensor as the parts of the ranks along dimension `dim`, one after another.
    fn parts(&self, tensor: &DeviceTensor, dim: usize) -> DeviceTensor {
        let (mut shape, mut strides) = (tensor.shape().to_vec(), tensor.strides.clone());
        shape[dim] /= self.ranks();
        strides.insert(0, tensor.strides[dim] * shape[dim] as isize);
        shape.insert(0, self.ranks());
        DeviceTensor { meta: tensor.meta.with_shape(shape), strides, ..tensor.clone() }
    }

    /// As [`Group::parts`], in memory of its own where they are not adjacent.
    fn adjacent_parts(&mut self, tensor: &DeviceTensor, dim: usize) -> Result<DeviceTensor> {
        let parts = self.parts(tensor, dim);
        if parts.is_contiguous() { Ok(parts) } else { contiguous_copy(self.plan, &parts) }
    }

    /// A transfer whose results are the parts of `out` along dimension `dim`.
    fn transfer_to_parts(
        &mut self,
        transfer: Transfer,
        from: &[DeviceTensor],
        (out, dim): (&[DeviceTensor], usize),
    ) -> Result<()> {
        let mut pairs = Vec::with_capacity(from.len());
        let mut moved = Vec::new();
        for (from, out) in from.iter().zip(out) {
            let parts = self.parts(out, dim);
            if parts.is_contiguous() {
                pairs.push((from.clone(), parts));
            } else {
                let stacked = self.stacked(&parts.meta.with_shape(&parts.shape()[1..]));
                pairs.push((from.clone(), stacked.clone()));
                moved.push((stacked, parts));
            }
        }
        self.transfer(transfer, &pairs)?;
        moved.iter().try_for_each(|(stacked, parts)| copy(self.plan, stacked, parts))
    }

    /// A transfer from each tensor to the one at its place.
    fn between(&mut self, transfer: Transfer, from: &[DeviceTensor], to: &[DeviceTensor]) -> Result<()> {
        let pairs: Vec<_> = from.iter().cloned().zip(to.iter().cloned()).collect();
        self.transfer(transfer, &pairs)
    }
}

fn reduction(op: Reduce) -> Reduction {
    match op {
        Reduce::Sum => Reduction::Sum,
        Reduce::Mean => Reduction::Mean,
        Reduce::Max => Reduction::Max,
        Reduce::Min => Reduction::Min,
        Reduce::Product => Reduction::Product,
    }
}

#[implementation(of = fulgurite_ops::collectives::all_reduce, by = nccl, in_place)]
mod all_reduce_by_nccl {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, inputs: &[DeviceTensor], axis: &str, op: Reduce, out: &[DeviceTensor]) -> Result<()> {
        Group::new(plan, axis)?.between(Transfer::AllReduce(reduction(op)), inputs, out)
    }
}

#[implementation(of = fulgurite_ops::collectives::reduce_scatter, by = nccl)]
mod reduce_scatter_by_nccl {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        inputs: &[DeviceTensor],
        axis: &str,
        dim: usize,
        op: Reduce,
        out: &[DeviceTensor],
    ) -> Result<()> {
        let mut group = Group::new(plan, axis)?;
        let parts: Vec<_> = inputs.iter().map(|input| group.adjacent_parts(input, dim)).collect::<Result<_>>()?;
        group.between(Transfer::ReduceScatter(reduction(op)), &parts, out)
    }
}

#[implementation(of = fulgurite_ops::collectives::all_gather, by = nccl)]
mod all_gather_by_nccl {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, inputs: &[DeviceTensor], axis: &str, dim: usize, out: &[DeviceTensor]) -> Result<()> {
        Group::new(plan, axis)?.transfer_to_parts(Transfer::AllGather, inputs, (out, dim))
    }
}

#[implementation(of = fulgurite_ops::collectives::all_to_all, by = nccl)]
mod all_to_all_by_nccl {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        axis: &str,
        split: usize,
        concat: usize,
        out: &DeviceTensor,
    ) -> Result<()> {
        let mut group = Group::new(plan, axis)?;
        let parts = group.adjacent_parts(input, split)?;
        group.transfer_to_parts(Transfer::AllToAll, &[parts], (std::slice::from_ref(out), concat))
    }
}

#[implementation(of = fulgurite_ops::collectives::broadcast, by = nccl)]
mod broadcast_by_nccl {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, axis: &str, root: usize, out: &DeviceTensor) -> Result<()> {
        Group::new(plan, axis)?.transfer(Transfer::Broadcast(root), &[(input.clone(), out.clone())])
    }
}

#[implementation(of = fulgurite_ops::collectives::send_recv, by = nccl)]
mod send_recv_by_nccl {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, axis: &str, shift: usize, out: &DeviceTensor) -> Result<()> {
        Group::new(plan, axis)?.transfer(Transfer::SendRecv(shift), &[(input.clone(), out.clone())])
    }
}
