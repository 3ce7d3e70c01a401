//! How calls of the library are planned.

use fulgurite_executor_cuda::elementwise::{contiguous_copy, copy, in_workspace};
use fulgurite_runtime::backends::cuda::{Attention, AttentionAddresses};
use fulgurite_runtime::kernels::cuda::cudnn::{ALIGNMENT, Pass, Problem, Strides};
use fulgurite_runtime::rules::{DeviceTensor, Plan, Result};

fn is_aligned(tensor: &DeviceTensor) -> bool {
    tensor.alignment.is_multiple_of(ALIGNMENT)
}

/// Strides of batch, head and row of a tensor [batch, heads, rows, width], if the library takes it as it is.
fn strides(tensor: &DeviceTensor, [batch, head, row, width]: [usize; 4]) -> Option<Strides> {
    let of = |dim: usize| (tensor.shape()[dim], tensor.strides[dim]);
    let contiguous = matches!(of(width), (1, _) | (_, 1));
    let mut found = [0; 3];
    for (found, dim) in found.iter_mut().zip([batch, head, row]) {
        let (extent, stride) = of(dim);
        // Along one element any stride will do.
        let stride = if extent == 1 { tensor.shape()[width] } else { usize::try_from(stride).ok()? };
        if stride == 0 || !(stride * tensor.dtype().size()).is_multiple_of(ALIGNMENT) {
            return None;
        }
        *found = stride;
    }
    (contiguous && is_aligned(tensor)).then_some(found)
}

/// Dimensions of batch, head, row and width in an operand.
const HEADS_APART: [usize; 4] = [0, 1, 2, 3];

/// The same in a result, where the heads of a position are beside each other.
const HEADS_ADJACENT: [usize; 4] = [0, 2, 1, 3];

/// Operands as the library takes them, and results that are copied from the workspace to their place afterwards.
#[derive(Default)]
struct Operands {
    strides: Vec<Strides>,
    tensors: Vec<DeviceTensor>,
    /// From the workspace, and to where.
    displaced: Vec<(DeviceTensor, DeviceTensor)>,
}

impl Operands {
    /// Adds a tensor, or a copy of it.
    fn read(&mut self, plan: &mut Plan, tensor: &DeviceTensor, dims: [usize; 4]) -> Result<()> {
        let taken = match strides(tensor, dims) {
            Some(_) => tensor.clone(),
            None => contiguous_copy(plan, tensor)?,
        };
        self.add(taken, dims);
        Ok(())
    }

    /// Adds a result, or a place in the workspace for it.
    fn written(&mut self, plan: &mut Plan, tensor: &DeviceTensor) {
        if strides(tensor, HEADS_ADJACENT).is_some() {
            self.add(tensor.clone(), HEADS_ADJACENT);
            return;
        }
        let near = self.displace(plan, tensor);
        self.add(near, HEADS_ADJACENT);
    }

    /// A place in the workspace for a result.
    fn displace(&mut self, plan: &mut Plan, tensor: &DeviceTensor) -> DeviceTensor {
        let near = in_workspace(plan, tensor);
        self.displaced.push((near.clone(), tensor.clone()));
        near
    }

    fn add(&mut self, tensor: DeviceTensor, dims: [usize; 4]) {
        // Whole rows of aligned widths: what is contiguous fits.
        self.strides.push(strides(&tensor, dims).unwrap_or_default());
        self.tensors.push(tensor);
    }

    /// Plans the call, and what follows it.
    fn call(self, plan: &mut Plan, attention: Attention, log_sums: Option<&DeviceTensor>) -> Result<()> {
        let rows = |sums: &DeviceTensor| (sums.meta.len() * size_of::<f32>()) as u64;
        let is_backward = attention.problem.pass == Pass::Backward;
        let row_sums = log_sums.filter(|_| is_backward).map(|sums| plan.workspace(rows(sums)));
        let workspace = plan.workspace(attention.problem.workspace_bytes());
        let heads = self.tensors.iter().map(|tensor| tensor.address).collect();
        let addresses = AttentionAddresses { heads, log_sums: log_sums.map(|sums| sums.address), row_sums, workspace };
        plan.push(attention.command(&addresses));
        self.displaced.iter().try_for_each(|(from, to)| copy(plan, from, to))
    }
}

fn problem(pass: Pass, query: &DeviceTensor, key: &DeviceTensor, is_causal: bool, strides: &[Strides]) -> Problem {
    let [batch, heads, queries, width] = [0, 1, 2, 3].map(|dim| query.shape()[dim]);
    let (shared_heads, keys, dtype) = (key.shape()[1], key.shape()[2], query.dtype());
    Problem { pass, dtype, batch, heads, shared_heads, queries, keys, width, is_causal, strides: strides.to_vec() }
}

/// Plans [`super::attention`], or [`super::attention_alone`] without `log_sums`.
pub(super) fn forward(
    plan: &mut Plan,
    [query, key, value]: [&DeviceTensor; 3],
    is_causal: bool,
    scale: f64,
    out: &DeviceTensor,
    log_sums: Option<&DeviceTensor>,
) -> Result<()> {
    let mut operands = Operands::default();
    for tensor in [query, key, value] {
        operands.read(plan, tensor, HEADS_APART)?;
    }
    operands.written(plan, out);
    let log_sums = log_sums.map(|sums| {
        let fits = sums.is_contiguous() && is_aligned(sums);
        if fits { sums.clone() } else { operands.displace(plan, sums) }
    });
    let pass = if log_sums.is_some() { Pass::Forward } else { Pass::Alone };
    let problem = problem(pass, query, key, is_causal, &operands.strides);
    operands.call(plan, Attention { problem, scale: scale as f32 }, log_sums.as_ref())
}

/// Plans [`super::attention_backward`].
pub(super) fn backward(
    plan: &mut Plan,
    [d_out, query, key, value]: [&DeviceTensor; 4],
    [out, log_sums]: [&DeviceTensor; 2],
    is_causal: bool,
    scale: f64,
    gradients: [&DeviceTensor; 3],
) -> Result<()> {
    let mut operands = Operands::default();
    for tensor in [query, key, value] {
        operands.read(plan, tensor, HEADS_APART)?;
    }
    operands.read(plan, out, HEADS_ADJACENT)?;
    operands.read(plan, d_out, HEADS_APART)?;
    for tensor in gradients {
        operands.written(plan, tensor);
    }
    let fits = log_sums.is_contiguous() && is_aligned(log_sums);
    let log_sums = if fits { log_sums.clone() } else { contiguous_copy(plan, log_sums)? };
    let problem = problem(Pass::Backward, query, key, is_causal, &operands.strides);
    operands.call(plan, Attention { problem, scale: scale as f32 }, Some(&log_sums))
}
