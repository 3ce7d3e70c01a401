//! The norm of all gradients, and their scaling.

use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::rules::{Address, DeviceTensor, LaunchShape, Parameter, Plan, Result};
use fulgurite_runtime::{DType, TensorMeta, binds, source_files};

use super::optim;
use super::tables::{MOST_TENSORS, numbers, table};
use fulgurite_executor_cuda::support::{THREADS, are_aligned, has_kernels_for, pack_anywhere, type_of};
use fulgurite_ops::prims::checks;

/// Launches of tensors that are not empty: whether packs of all of them are aligned, and the tensors' positions.
/// Addresses decide about neither which tensors a launch has nor the packs, since the order of sums depends on both.
fn launches(tensors: &[Vec<&DeviceTensor>], pack: usize) -> Vec<(bool, Vec<usize>)> {
    let with_elements: Vec<usize> = (0..tensors.len()).filter(|i| !tensors[*i][0].is_empty()).collect();
    let launch = |own: &[usize]| {
        let aligned = own.iter().all(|i| are_aligned(pack, &tensors[*i]));
        (aligned, own.to_vec())
    };
    with_elements.chunks(MOST_TENSORS).map(launch).collect()
}

/// Plans the norm of `grads`, some of which are of 16 bits and count as of type `dtype`.
pub(super) fn plan_norm(plan: &mut Plan, grads: &[DeviceTensor], dtype: DType, out: &DeviceTensor) -> Result<()> {
    plan_squares(plan, grads, (dtype, "norm_of_sums"), out)
}

/// Plans the sum of all squares, of which a kernel of one block makes the result.
fn plan_squares(
    plan: &mut Plan,
    grads: &[DeviceTensor],
    (dtype, made_by): (DType, &str),
    out: &DeviceTensor,
) -> Result<()> {
    let pack = pack_of(dtype);
    let groups = launches(&grads.iter().map(|grad| vec![grad]).collect::<Vec<_>>(), pack);
    let tables: Vec<(Parameter, u32)> = groups.iter().map(|(_, own)| table_of(grads, own)).collect();
    let blocks: usize = tables.iter().map(|(_, blocks)| *blocks as usize).sum();
    let partial = plan.workspace((blocks.max(1) * size_of::<f32>()) as u64);
    // Of no elements the norm is written all the same.
    kernels(plan, dtype, true, 1);
    let mut done = 0;
    for ((aligned, own), (table, blocks)) in groups.iter().zip(tables) {
        let narrow: Vec<DType> = own.iter().map(|i| grads[*i].dtype()).filter(|own| *own != dtype).collect();
        kernels(plan, dtype, *aligned, own.len());
        let to = partial.offset((done * size_of::<f32>()) as u64);
        let shape = LaunchShape::linear(blocks, THREADS);
        let from = addresses(grads, own);
        match narrow.first() {
            None => plan.launch("sum_of_squares", shape, binds![from, table, to])?,
            Some(narrow) => {
                plan.define("NARROW", type_of(*narrow));
                let flags = numbers(own.iter().map(|i| [u8::from(grads[*i].dtype() != dtype)]));
                plan.launch("sum_of_widened_squares", shape, binds![from, flags, table, to])?;
            }
        }
        done += blocks as usize;
    }
    plan.launch(made_by, LaunchShape::linear(1, 1024), binds![partial, out, blocks])
}

/// How many elements a thread handles together.
fn pack_of(dtype: DType) -> usize {
    pack_anywhere(0, dtype.size())
}

/// Takes the following kernels from the source of this file.
fn kernels(plan: &mut Plan, dtype: DType, aligned: bool, tensors: usize) {
    plan.source(source_files!["chunks.cuh", "norm.cu"]);
    plan.define("ELEMENT", type_of(dtype));
    plan.define("PACK", pack_of(dtype));
    plan.define("ALIGNED", u8::from(aligned));
    plan.define("THREADS", THREADS);
    plan.define("TENSORS", tensors);
}

/// The table of those of `tensors` that are named, and the blocks of their launch.
fn table_of(tensors: &[DeviceTensor], own: &[usize]) -> (Parameter, u32) {
    table(&own.iter().map(|i| tensors[*i].len()).collect::<Vec<_>>())
}

fn addresses(tensors: &[DeviceTensor], own: &[usize]) -> Vec<Address> {
    own.iter().map(|i| tensors[*i].address).collect()
}

/// Whether the kernels are written for these tensors.
fn kernels_fit(grads: &[TensorMeta]) -> std::result::Result<DType, String> {
    match grads {
        [] => Err("grads is empty, expected at least one tensor".into()),
        [first, ..] if !has_kernels_for(first.dtype()) => {
            Err(format!("grads are {}, takes f32, bf16, f16", first.dtype()))
        }
        [first, ..] if grads.iter().any(|grad| grad.dtype() != first.dtype()) => {
            Err(format!("grads are of several dtypes, expected all {}", first.dtype()))
        }
        [first, ..] => Ok(first.dtype()),
    }
}

/// The root of the sum of the squares of all elements of all tensors, f32[].
#[operator(executor = optim, no_grad = "gradients of gradients are not clipped")]
pub mod grad_norm {
    fn grad_norm(grads: Vec<Tensor<Floating>>) -> Tensor;

    fn meta(grads: &[TensorMeta]) -> Result<TensorMeta> {
        super::kernels_fit(grads).map_err(|reason| Failure::new(Code::Gradients.name(), reason))?;
        Ok(TensorMeta::new([], DType::F32, grads[0].device()))
    }

    fn reference(grads: Vec<&ArrayD<f64>>) -> ArrayD<f64> {
        let squares = grads.iter().map(|grad| grad.iter().map(|g| g * g).sum::<f64>());
        ArrayD::from_elem(IxDyn(&[]), squares.sum::<f64>().sqrt())
    }

    fn plan(plan: &mut Plan, grads: &[DeviceTensor], out: &DeviceTensor) -> Result<()> {
        super::plan_norm(plan, grads, grads[0].dtype(), out)
    }

    fn samples(s: &mut Samples) {
        if !has_kernels_for(s.dtype()) {
            return;
        }
        s.case(with([s.normal([4, 8]), s.normal([7])]));
        s.case(with([s.normal([])]));
        s.case(with([s.normal([0, 3]), s.normal([65, 3])]));
        s.case(with([s.normal([0])]));
        // A tensor of several blocks, and more tensors than a launch has.
        s.case(with([s.normal([3]), s.normal([3, 8193]), s.normal([129])]));
        s.case(with((1..300).map(|n| s.normal([n % 5])).collect::<Vec<_>>()));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Gradients, with([]), "grads is empty");
        e.case(Gradients, with([e.of(DType::F64, [2])]), "grads are f64");
        e.case(Gradients, with([e.of(DType::F32, [2]), e.of(DType::BF16, [2])]), "of several dtypes");
    }
}

/// Every tensor times `min(max_norm / (norm + 1e-6), 1)`.
#[operator(executor = optim, in_place, no_grad = "gradients of gradients are not clipped")]
pub mod scale_all {
    fn scale_all(grads: Vec<Tensor<Floating>>, norm: Tensor<Floating>, max_norm: f64) -> Vec<Tensor>;

    fn meta(grads: &[TensorMeta], norm: &TensorMeta) -> Result<Vec<TensorMeta>> {
        super::kernels_fit(grads).map_err(|reason| Failure::new(Code::Gradients.name(), reason))?;
        let number = TensorMeta::new([], DType::F32, norm.device());
        checks::is_like(("norm", norm), &number, Code::Norm)?;
        Ok(grads.to_vec())
    }

    fn reference(grads: Vec<&ArrayD<f64>>, norm: &ArrayD<f64>, max_norm: f64) -> Vec<ArrayD<f64>> {
        let factor = (max_norm / (norm.sum() + 1e-6)).min(1.0);
        grads.into_iter().map(|grad| grad * factor).collect()
    }

    fn plan(
        plan: &mut Plan,
        grads: &[DeviceTensor],
        norm: &DeviceTensor,
        max_norm: f64,
        out: &[DeviceTensor],
    ) -> Result<()> {
        let beside: Vec<Vec<&DeviceTensor>> = grads.iter().zip(out).map(|(grad, out)| vec![grad, out]).collect();
        for (aligned, own) in super::launches(&beside, super::pack_of(grads[0].dtype())) {
            super::kernels(plan, grads[0].dtype(), aligned, own.len());
            let (table, blocks) = super::table_of(grads, &own);
            let (from, to) = (super::addresses(grads, &own), super::addresses(out, &own));
            let parameters = binds![from, to, table, norm, max_norm as f32];
            plan.launch("scale", LaunchShape::linear(blocks, THREADS), parameters)?;
        }
        Ok(())
    }

    fn samples(s: &mut Samples) {
        if !has_kernels_for(s.dtype()) {
            return;
        }
        let norm = |value: f64| s.values([], [value]).cast(DType::F32);
        let cases = [
            with([s.normal([4, 8]), s.normal([7])], norm(5.0), 1.0),
            with([s.normal([])], norm(0.25), 0.5),
            with([s.normal([0, 3]), s.normal([65, 3])], norm(3.0), 2.0),
            with([s.normal([3]), s.normal([3, 8193]), s.normal([129])], norm(160.0), 1.0),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let norm = || e.of(DType::F32, []);
        e.case(Gradients, with([], norm(), 1.0), "grads is empty");
        e.case(Norm, with([e.of(DType::F32, [2])], e.of(DType::F32, [2]), 1.0), "expected f32[]");
    }
}

#[implementation(of = fulgurite_ops::optim::clip_grad_norm, by = optim)]
mod clip_grad_norm_by_optim {
    fn checker(grads: &[TensorMeta]) -> Claim {
        super::kernels_fit(grads).map(drop)
    }

    fn execution(grads: Vec<Tensor>, max_norm: f64) -> Vec<Tensor> {
        let norm = grad_norm(&grads);
        if max_norm == f64::INFINITY {
            return grads.into_iter().chain([norm]).collect();
        }
        scale_all(&grads, norm, max_norm).into_iter().chain([norm]).collect()
    }
}

#[implementation(of = fulgurite_ops::optim::sum_of_squares, by = optim)]
mod sum_of_squares_by_optim {
    fn checker(tensors: &[TensorMeta]) -> Claim {
        super::kernels_fit(tensors).map(drop)
    }

    fn plan(plan: &mut Plan, tensors: &[DeviceTensor], out: &DeviceTensor) -> Result<()> {
        super::plan_squares(plan, tensors, (tensors[0].dtype(), "sum_of_sums"), out)
    }
}

#[implementation(of = fulgurite_ops::optim::clip_grads_with_norm, by = optim)]
mod clip_grads_with_norm_by_optim {
    fn checker(grads: &[TensorMeta]) -> Claim {
        super::kernels_fit(grads).map(drop)
    }

    fn execution(grads: Vec<Tensor>, norm: Tensor, max_norm: f64) -> Vec<Tensor> {
        scale_all(&grads, norm, max_norm)
    }
}
