//! Collectives among the ranks of the host, which are threads of one process. Sums are made in the order of ranks.

use bytemuck::Pod;
use fulgurite_ops::collectives::Reduce;
use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::access::{read_f64, read_i64, write_f64, write_i64};
use fulgurite_runtime::kernels::scratch;
use fulgurite_runtime::mesh::Axis;
use fulgurite_runtime::ranks;
use fulgurite_runtime::rules::{Failure, Result, TensorMut, TensorRef};

use super::cpu;

/// What a collective makes of each of the ranks' tensors. Messages have it as it is written here.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// One tensor on all ranks.
    AllReduce { op: Reduce },
    /// The part of this rank, along a dimension, of all tensors as one.
    ReduceScatter { dim: usize, op: Reduce },
    /// All tensors, one after another along a dimension.
    AllGather { dim: usize },
    /// The parts for this rank along one dimension, one after another along the other.
    AllToAll { split: usize, concat: usize },
    /// The tensor of the rank at one place.
    Broadcast { root: usize },
    /// The tensor of the rank as many places before.
    SendRecv { shift: usize },
}

/// What the elements of all element types are read as, exactly.
trait Number: Pod {
    fn read(tensor: &TensorRef<'_>) -> Vec<Self>;
    fn write(tensor: &mut TensorMut<'_>, values: &[Self]);
    /// Two numbers as one; `single` computes in f32.
    fn combine(op: Reduce, single: bool) -> fn(Self, Self) -> Self;
    /// The number divided by so many ranks.
    fn divided(self, ranks: usize, single: bool) -> Self;
}

impl Number for f64 {
    fn read(tensor: &TensorRef<'_>) -> Vec<f64> {
        read_f64(tensor)
    }

    fn write(tensor: &mut TensorMut<'_>, values: &[f64]) {
        write_f64(tensor, values);
    }

    fn combine(op: Reduce, single: bool) -> fn(f64, f64) -> f64 {
        match op {
            Reduce::Sum | Reduce::Mean if single => |a, b| f64::from(a as f32 + b as f32),
            Reduce::Sum | Reduce::Mean => |a, b| a + b,
            Reduce::Max => |a, b| if a.is_nan() || a > b { a } else { b },
            Reduce::Min => |a, b| if a.is_nan() || a < b { a } else { b },
            Reduce::Product if single => |a, b| f64::from(a as f32 * b as f32),
            Reduce::Product => |a, b| a * b,
        }
    }

    fn divided(self, ranks: usize, single: bool) -> f64 {
        if single { f64::from(self as f32 / ranks as f32) } else { self / ranks as f64 }
    }
}

impl Number for i64 {
    fn read(tensor: &TensorRef<'_>) -> Vec<i64> {
        read_i64(tensor)
    }

    fn write(tensor: &mut TensorMut<'_>, values: &[i64]) {
        write_i64(tensor, values);
    }

    fn combine(op: Reduce, _: bool) -> fn(i64, i64) -> i64 {
        match op {
            Reduce::Sum | Reduce::Mean => i64::wrapping_add,
            Reduce::Max => i64::max,
            Reduce::Min => i64::min,
            Reduce::Product => i64::wrapping_mul,
        }
    }

    fn divided(self, _: usize, _: bool) -> i64 {
        unreachable!("meta refuses means of integers")
    }
}

/// A collective of `inputs`, of one dtype, along an axis.
fn run(work: Work, inputs: &[TensorRef<'_>], axis: &str, out: &mut [TensorMut<'_>]) -> Result<()> {
    let axis: Axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
    // Everything that must be the same on all ranks.
    let metas = inputs.iter().map(|input| format!("{}{:?}", input.dtype(), input.shape()));
    let called = format!("{work:?} along {axis} of {}", metas.collect::<Vec<_>>().join(", "));
    if inputs.iter().all(|input| input.dtype().is_floating()) {
        run_in::<f64>(&called, work, inputs, &axis, out)
    } else {
        run_in::<i64>(&called, work, inputs, &axis, out)
    }
}

fn run_in<N: Number>(
    called: &str,
    work: Work,
    inputs: &[TensorRef<'_>],
    axis: &Axis,
    out: &mut [TensorMut<'_>],
) -> Result<()> {
    // Read before anything is written: a result may have its operand's memory.
    let mut own: Vec<N> = scratch::room(inputs.iter().map(TensorRef::len).sum());
    inputs.iter().for_each(|input| own.extend(N::read(input)));
    let given = ranks::exchange(axis, called, bytemuck::cast_slice(&own))?;
    let place = ranks::place(axis)?;
    let mut start = 0;
    for (input, out) in inputs.iter().zip(out) {
        let bytes = start..start + input.len() * size_of::<N>();
        start = bytes.end;
        let all: Vec<Vec<N>> = given.iter().map(|given| numbers(&given[bytes.clone()])).collect();
        N::write(out, &made(work, all, input, place));
    }
    Ok(())
}

/// What a collective makes of the tensors of all ranks, for the rank at `place`.
fn made<N: Number>(work: Work, all: Vec<Vec<N>>, input: &TensorRef<'_>, place: usize) -> Vec<N> {
    let (shape, ranks, single) = (input.shape(), all.len(), input.dtype() != fulgurite_runtime::DType::F64);
    let part = |values: &[N], dim: usize| part(values, shape, dim, place, ranks);
    match work {
        Work::AllReduce { op } => reduced(all, op, single),
        Work::ReduceScatter { dim, op } => reduced(all.iter().map(|values| part(values, dim)).collect(), op, single),
        Work::AllGather { dim } => joined(&all, shape, dim),
        Work::AllToAll { split, concat } => {
            let parts: Vec<Vec<N>> = all.iter().map(|values| part(values, split)).collect();
            let mut shape = shape.to_vec();
            shape[split] /= ranks;
            joined(&parts, &shape, concat)
        }
        Work::Broadcast { root } => all.into_iter().nth(root).unwrap_or_else(|| unreachable!("meta checks the root")),
        Work::SendRecv { shift } => all.into_iter().nth((place + ranks - shift) % ranks).unwrap_or_default(),
    }
}

fn numbers<N: Number>(bytes: &[u8]) -> Vec<N> {
    let mut numbers: Vec<N> = scratch::zeroed(bytes.len() / size_of::<N>());
    bytemuck::cast_slice_mut(&mut numbers).copy_from_slice(bytes);
    numbers
}

/// The values of the ranks, elementwise, in the order of ranks.
fn reduced<N: Number>(all: Vec<Vec<N>>, op: Reduce, single: bool) -> Vec<N> {
    let (ranks, combine) = (all.len(), N::combine(op, single));
    let mut all = all.into_iter();
    let mut total = all.next().unwrap_or_default();
    for next in all {
        total.iter_mut().zip(next).for_each(|(total, next)| *total = combine(*total, next));
    }
    if op == Reduce::Mean {
        total.iter_mut().for_each(|total| *total = total.divided(ranks, single));
    }
    total
}

/// The part at `place` of a dimension that is divided among ranks.
fn part<N: Number>(values: &[N], shape: &[usize], dim: usize, place: usize, ranks: usize) -> Vec<N> {
    // Rows of the dimension and those inside it; no chunks of nothing.
    let row: usize = shape[dim..].iter().product::<usize>().max(1);
    let each = row / ranks;
    values.chunks(row).flat_map(|row| &row[place * each..(place + 1) * each]).copied().collect()
}

/// Tensors of one shape, one after another along a dimension.
fn joined<N: Number>(all: &[Vec<N>], shape: &[usize], dim: usize) -> Vec<N> {
    let row: usize = shape[dim..].iter().product();
    let rows: usize = shape[..dim].iter().product();
    (0..rows).flat_map(|i| all.iter().flat_map(move |values| &values[i * row..(i + 1) * row])).copied().collect()
}

#[implementation(of = fulgurite_ops::collectives::all_reduce, by = cpu, strided, in_place)]
mod all_reduce_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(inputs: &[TensorRef], axis: &str, op: Reduce, out: &mut [TensorMut]) -> Result<()> {
        run(Work::AllReduce { op }, inputs, axis, out)
    }
}

#[implementation(of = fulgurite_ops::collectives::reduce_scatter, by = cpu, strided)]
mod reduce_scatter_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(inputs: &[TensorRef], axis: &str, dim: usize, op: Reduce, out: &mut [TensorMut]) -> Result<()> {
        run(Work::ReduceScatter { dim, op }, inputs, axis, out)
    }
}

#[implementation(of = fulgurite_ops::collectives::all_gather, by = cpu, strided)]
mod all_gather_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(inputs: &[TensorRef], axis: &str, dim: usize, out: &mut [TensorMut]) -> Result<()> {
        run(Work::AllGather { dim }, inputs, axis, out)
    }
}

#[implementation(of = fulgurite_ops::collectives::all_to_all, by = cpu, strided)]
mod all_to_all_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, axis: &str, split: usize, concat: usize, out: &mut TensorMut) -> Result<()> {
        run(Work::AllToAll { split, concat }, &[input], axis, std::slice::from_mut(out))
    }
}

#[implementation(of = fulgurite_ops::collectives::broadcast, by = cpu, strided)]
mod broadcast_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, axis: &str, root: usize, out: &mut TensorMut) -> Result<()> {
        run(Work::Broadcast { root }, &[input], axis, std::slice::from_mut(out))
    }
}

#[implementation(of = fulgurite_ops::collectives::send_recv, by = cpu, strided, in_place)]
mod send_recv_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, axis: &str, shift: usize, out: &mut TensorMut) -> Result<()> {
        run(Work::SendRecv { shift }, &[input], axis, std::slice::from_mut(out))
    }
}

#[implementation(of = fulgurite_ops::collectives::draws_of_rank, by = cpu, strided)]
mod draws_of_rank_by_cpu {
    use fulgurite_ops::collectives::of_part;

    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(generator: TensorRef, axis: &str, out: &mut TensorMut) -> Result<()> {
        let axis: Axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
        write_i64(out, &of_part(&read_i64(&generator), ranks::place(&axis)?, axis.extent()));
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::collectives::place, by = cpu, strided)]
mod place_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(axis: &str, out: &mut TensorMut) -> Result<()> {
        let axis: Axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
        write_i64(out, &[ranks::place(&axis)? as i64]);
        Ok(())
    }
}
