//! Sums of windows that overlap: a thread for each element of the result, which adds what windows have of it in the
//! order of the windows' elements. Nothing is added atomically, so every run gives the same bits. Windows themselves
//! are views.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::rules::{DeviceTensor, Plan, Result};
use fulgurite_runtime::{binds, source_files};

use super::cuda;
use super::support::{collapsed, coordinates, dimensions, index_type, offset, one_thread_each, positions, type_of};

#[implementation(of = fulgurite_ops::prims::sum_of_windows, by = cuda, strided)]
mod sum_of_windows_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(
        plan: &mut Plan,
        input: &DeviceTensor,
        steps: &[usize],
        dilations: &[usize],
        out: &DeviceTensor,
    ) -> Result<()> {
        super::sum_of_windows(plan, input, steps, dilations, out)
    }
}

/// Numbers as an initializer of an array; one without meaning where there are none, which C++ has no array of.
fn list(numbers: impl IntoIterator<Item = i64>) -> String {
    let all: Vec<String> = numbers.into_iter().map(|number| format!("{number}LL")).collect();
    format!("{{{}}}", if all.is_empty() { "0".to_owned() } else { all.join(",") })
}

fn sum_of_windows(
    plan: &mut Plan,
    input: &DeviceTensor,
    steps: &[usize],
    dilations: &[usize],
    out: &DeviceTensor,
) -> Result<()> {
    if out.meta.is_empty() {
        return Ok(());
    }
    let rank = steps.len();
    let leading = out.shape().len() - rank;
    let (windows, extents) = (&input.shape()[leading..], &out.shape()[leading..]);
    let strides = &input.strides[leading..];
    // Positions before those that have windows, as one number each: where they start in both tensors.
    let outer = collapsed(dimensions(&out.shape()[..leading], [&input.strides[..leading]]));
    let inner: usize = extents.iter().product();
    let count = positions(&outer) * inner;
    let places: Vec<String> = coordinates(extents, "i").into_iter().map(|at| format!("(i64){at}")).collect();
    // A factor beyond the extent is that of a single window or element.
    let factors = |factors: &[usize]| list((0..rank).map(|i| factors[i].min(extents[i]) as i64));
    plan.source(source_files!["sum_of_windows.cu"]);
    plan.define("ELEMENT", type_of(out.meta.dtype()));
    plan.define("INDEX", index_type(count));
    plan.define("RANK", rank.to_string());
    plan.define("INNER", inner.to_string());
    plan.define("FROM(i)", offset(&outer, 0, "i"));
    plan.define("PLACES(i)", format!("{{{}}}", if rank == 0 { "0".to_owned() } else { places.join(",") }));
    plan.define("COUNTS", list(windows[..rank].iter().map(|count| *count as i64)));
    plan.define("SIZES", list(windows[rank..].iter().map(|size| *size as i64)));
    plan.define("STEPS", factors(steps));
    plan.define("DILATIONS", factors(dilations));
    plan.define("BETWEEN_WINDOWS", list(strides[..rank].iter().map(|stride| *stride as i64)));
    plan.define("BETWEEN_ELEMENTS", list(strides[rank..].iter().map(|stride| *stride as i64)));
    plan.launch("sum_of_windows", one_thread_each(count), binds![input, out, count])
}
