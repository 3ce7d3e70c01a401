//! The largest number of each row of a mask: what kernels subtract from sums of scores and numbers.

use fulgurite_runtime::device::Address;
use fulgurite_runtime::rules::{DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{binds, source_files};

use super::problem::Problem;
use fulgurite_executor_cuda::support::type_of;

/// Threads of a block, of which each warp has a row.
const THREADS: usize = 256;
const OF_A_WARP: usize = 32;

/// A number for each row [B, H, L], where every extent may be 1.
#[derive(Clone, Copy)]
pub(super) struct Bases {
    at: Address,
    /// Elements from a batch to the next, a head and a query; 0 where all have the same.
    strides: [i64; 3],
}

/// Which keys a query sees, beside a mask.
#[derive(Clone, Copy)]
pub(super) struct Sees<'a> {
    pub is_causal: bool,
    /// Contiguous: [B].
    pub lengths: Option<&'a DeviceTensor>,
    pub window: Option<i32>,
}

impl Bases {
    /// Plans the search in a mask [B, H, L, S], where every extent may be 1. Rows that are the same are searched once.
    pub fn plan(plan: &mut Plan, mask: &DeviceTensor, problem: &Problem, sees: Sees) -> Result<Bases> {
        let Problem { batch, heads, queries, keys, .. } = *problem;
        let same = |dim: usize| mask.shape()[dim] == 1 || mask.strides[dim] == 0;
        let by_query = sees.is_causal || sees.window.is_some();
        let batches = if same(0) && sees.lengths.is_none() { 1 } else { batch };
        let heads = if same(1) { 1 } else { heads };
        let queries = if same(2) && !by_query { 1 } else { queries };
        let count = batches * heads * queries;
        let at = plan.workspace((count * size_of::<f32>()) as u64);
        plan.source(source_files!["mask_bases.cu"]);
        plan.define("ELEMENT", type_of(mask.dtype()));
        plan.define("CAUSAL", u8::from(sees.is_causal));
        let stride = |dim: usize| if same(dim) { 0 } else { mask.strides[dim] as i64 };
        let mut parameters = binds![mask, [0, 1, 2, 3].map(stride)];
        if let Some(lengths) = sees.lengths {
            plan.define("LENGTHS", type_of(lengths.dtype()));
            parameters.push(lengths.into());
        }
        parameters.extend(binds![sees.window.unwrap_or(i32::MAX), at]);
        parameters.extend([heads, queries, keys].map(|extent| Parameter::from(extent as i32)));
        parameters.push((count as i64).into());
        let blocks = count.div_ceil(THREADS / OF_A_WARP);
        plan.launch("mask_bases", LaunchShape::linear(blocks as u32, THREADS as u32), parameters)?;
        let apart = |extent: usize, stride: usize| if extent == 1 { 0 } else { stride as i64 };
        Ok(Bases { at, strides: [apart(batches, heads * queries), apart(heads, queries), apart(queries, 1)] })
    }

    /// The address and the strides, as kernels take them.
    pub fn parameters(&self) -> [Parameter; 2] {
        [Parameter::from(self.at), Parameter::from(self.strides)]
    }
}
