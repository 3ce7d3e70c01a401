//! Matrix products, compared with products in f64 on the host.

use fulgurite_cuda::cublaslt::{Compute, Epilogue, MatmulOperands, MatmulPlan, Operand, Problem};
use fulgurite_cuda::{CudaError, DeviceMemory};
use fulgurite_kernels::DType;

use crate::fixture::{device, random};
use matrices::{KINDS, POISON, WORKSPACE, check, decode, encode, error, library, problem, tolerance};

mod algorithms;
mod matrices;

#[test]
fn products_agree_with_products_in_f64() {
    let Some(device) = device() else { return };
    let library = library(&device);
    for kind in KINDS {
        let mut worst = 0.0f64;
        for (m, n, k) in [(1, 1, 1), (1, 65, 129), (33, 1, 64), (33, 65, 127), (64, 128, 256), (200, 72, 513)] {
            for transposes in 0..4 {
                let mut problem = problem(kind, m, n, k);
                if transposes & 1 == 1 {
                    problem.a = Operand::contiguous_transposed(kind.0, m, k);
                }
                if transposes & 2 == 2 {
                    problem.b = Operand::contiguous_transposed(kind.0, k, n);
                }
                let found =
                    check(&device, &library, &problem, 1.0).unwrap_or_else(|| panic!("{problem}: no algorithm"));
                worst = worst.max(found);
            }
        }
        println!("{kind:?}: largest error {worst:.1e}");
    }
}

#[test]
fn batches_strides_offsets_and_accumulation() {
    let Some(device) = device() else { return };
    let library = library(&device);
    for kind in KINDS {
        let (m, n, k) = (24, 40, 56);
        let mut problem = problem(kind, m, n, k);
        problem.accumulate = true;
        check(&device, &library, &problem, 0.5).unwrap();
        // Rows further apart than they are long, in all three.
        (problem.a.leading, problem.b.leading, problem.d.leading) = (k + 8, n + 16, n + 8);
        problem.batch = 3;
        problem.a.batch_stride = m * problem.a.leading + 8;
        problem.d.batch_stride = m * problem.d.leading;
        // All share one b.
        problem.b.batch_stride = 0;
        check(&device, &library, &problem, -2.0).unwrap();
        // Heads beside each other: a matrix of the batch is some columns of a wider one.
        problem.accumulate = false;
        (problem.a.leading, problem.a.batch_stride) = (3 * k, k);
        (problem.d.leading, problem.d.batch_stride) = (3 * n, n);
        check(&device, &library, &problem, 1.0).unwrap_or_else(|| panic!("{problem}: no algorithm"));
        // Odd strides, and addresses that are only aligned to an element.
        let mut odd = Problem { d: Operand::contiguous(kind.1, 23, 41), ..Problem::contiguous(kind.0, 23, 41, 57) };
        odd.compute = kind.2;
        for operand in [&mut odd.a, &mut odd.b, &mut odd.d] {
            operand.alignment = operand.dtype.size();
        }
        check(&device, &library, &odd, 1.0).unwrap_or_else(|| panic!("{odd}: no algorithm"));
    }
}

#[test]
fn epilogues_do_what_they_say() {
    let Some(device) = device() else { return };
    let library = library(&device);
    use Epilogue::*;
    for kind in KINDS {
        for epilogue in [Bias, Gelu, GeluBias, GeluAux, GeluAuxBias, DGelu, DGeluBiasGrad, BiasGradA, BiasGradB] {
            let mut problem = problem(kind, 40, 72, 96);
            problem.epilogue = epilogue;
            let found = check(&device, &library, &problem, 1.0);
            println!("{kind:?} {epilogue:?}: {}", found.map_or("none".into(), |error| format!("{error:.1e}")));
            // What training in TF32 and bf16 rests on.
            let needed = matches!(kind.2, Compute::F32 | Compute::Tf32) && kind.0 == kind.1 && kind.0 != DType::F16;
            let needed = needed && matches!(epilogue, Bias | GeluBias | GeluAuxBias | DGelu);
            assert!(found.is_some() || !needed, "{problem}");
            if epilogue == BiasGradB && found.is_some() {
                // As the gradient of a linear layer's weight has it.
                problem.a = Operand::contiguous_transposed(kind.0, 40, 96);
                check(&device, &library, &problem, 1.0);
            }
        }
        let mut odd = problem(kind, 7, 13, 9);
        odd.epilogue = Bias;
        check(&device, &library, &odd, 1.0);
    }
}

/// The products of a linear layer as training has them: each operand as it comes, and nothing is transposed in memory.
#[test]
fn epilogues_of_a_linear_layer() {
    let Some(device) = device() else { return };
    let library = library(&device);
    let (rows, inputs, outputs) = (64, 48, 96);
    for kind in KINDS.into_iter().filter(|(operand, result, _)| operand == result) {
        let forward = Problem {
            b: Operand::contiguous_transposed(kind.0, inputs, outputs),
            ..problem(kind, rows, outputs, inputs)
        };
        // The gradient of a layer behind GELU: what it was applied to has as many columns as the weight.
        let slope = Problem { epilogue: Epilogue::DGelu, ..problem(kind, rows, inputs, outputs) };
        let weight = Problem {
            a: Operand::contiguous_transposed(kind.0, outputs, rows),
            epilogue: Epilogue::BiasGradA,
            ..problem(kind, outputs, inputs, rows)
        };
        let activated = |epilogue| Problem { epilogue, ..forward.clone() };
        let summed = Problem { epilogue: Epilogue::Bias, accumulate: true, ..forward.clone() };
        let all = [activated(Epilogue::GeluBias), activated(Epilogue::GeluAuxBias), slope, weight, summed];
        for problem in all {
            let found = check(&device, &library, &problem, 1.0);
            // What there is no algorithm for is done by several kernels.
            println!("{problem}: {}", found.map_or("none".into(), |error| format!("{error:.1e}")));
        }
    }
}

#[test]
fn f32_is_ieee_and_tf32_is_not() {
    let Some(device) = device() else { return };
    let library = library(&device);
    let f32 = problem((DType::F32, DType::F32, Compute::F32), 256, 256, 512);
    let tf32 = Problem { compute: Compute::Tf32, ..f32.clone() };
    let exact = check(&device, &library, &f32, 1.0).unwrap();
    let rounded = check(&device, &library, &tf32, 1.0).unwrap();
    println!("f32 {exact:.1e}, tf32 {rounded:.1e}");
    assert!(exact < 2e-6 && rounded > 2e-5);
}

#[test]
fn operands_that_a_problem_needs_are_asked_for() {
    let Some(device) = device() else { return };
    let library = library(&device);
    let mut problem = problem((DType::BF16, DType::BF16, Compute::F32), 16, 16, 16);
    problem.epilogue = Epilogue::Bias;
    let plan = MatmulPlan::new(&library, &problem, 0).unwrap();
    assert_eq!(plan.workspace_bytes(), 0);
    let memory = device.upload(&[0; 4096]);
    let at = |offset| memory.address().offset(offset);
    let refuse = |operands: MatmulOperands, part: &str| {
        // SAFETY: it is not meant to run; each operand would be in the memory.
        let error = unsafe { plan.run(&device.stream, &operands, 1.0) }.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let good = MatmulOperands { a: at(0), b: at(512), d: at(1024), bias: at(2048), ..Default::default() };
    refuse(MatmulOperands { bias: Default::default(), ..good }, "bias has no address");
    refuse(MatmulOperands { b: at(514), ..good }, "b is at");
    refuse(MatmulOperands { bias: at(2056), ..good }, "bias is at");
    // SAFETY: each operand is in the memory.
    unsafe { plan.run(&device.stream, &good, 1.0) }.unwrap();

    let empty = Problem { k: 0, ..problem.clone() };
    assert!(matches!(MatmulPlan::new(&library, &empty, 0), Err(CudaError::Problem(_))));
}

/// A vector and a matrix of the epilogue that are aligned as badly as the library takes them.
#[test]
fn epilogues_of_operands_that_are_hardly_aligned() {
    let Some(device) = device() else { return };
    let library = library(&device);
    for (dtype, epilogue) in [DType::BF16, DType::F16, DType::F32]
        .into_iter()
        .flat_map(|dtype| [Epilogue::Bias, Epilogue::GeluAuxBias, Epilogue::DGelu].map(|epilogue| (dtype, epilogue)))
    {
        let kind = (dtype, dtype, Compute::F32);
        let aligned = Problem { epilogue, ..problem(kind, 96, 128, 64) };
        // Of 16 bits the library takes none that is aligned to less than 16 bytes: that is told before anything runs.
        let least = if dtype == DType::F32 { 4 } else { 16 };
        if least > dtype.size() {
            let less = Problem { bias_alignment: dtype.size(), aux_alignment: dtype.size(), ..aligned.clone() };
            let refused = MatmulPlan::new(&library, &less, WORKSPACE);
            assert!(matches!(refused, Err(CudaError::Problem(_))), "{less}: {refused:?}");
        }
        let hardly = Problem { bias_alignment: least, aux_alignment: least, ..aligned.clone() };
        let plans = (MatmulPlan::new(&library, &aligned, WORKSPACE), MatmulPlan::new(&library, &hardly, WORKSPACE));
        let (Ok(first), Ok(plan)) = plans else {
            // Training rests on those of the other two types.
            assert!(dtype == DType::F16, "{hardly}: {plans:?}");
            println!("{hardly}: no algorithm");
            continue;
        };
        let size = dtype.size();
        let random_of = |count: usize, seed| {
            let mut next = random(seed);
            encode(dtype, &(0..count).map(|_| next()).collect::<Vec<f64>>())
        };
        let (a, b) = (device.upload(&random_of(96 * 64, 1)), device.upload(&random_of(64 * 128, 2)));
        let (bias, aux) = (random_of(128, 3), random_of(96 * 128, 4));
        let shifted = |bytes: &[u8], by: usize| device.upload(&[&vec![0; by][..], bytes, &[0; 64]].concat());
        let workspace = DeviceMemory::new(&device.context, WORKSPACE).unwrap();
        let run = |plan: &MatmulPlan, by: usize| {
            let (bias, aux) = (shifted(&bias, by), shifted(&aux, by));
            let d = device.upload(&vec![POISON; 96 * 128 * size]);
            let operands = MatmulOperands {
                a: a.address(),
                b: b.address(),
                d: d.address(),
                bias: bias.address().offset(by),
                aux: aux.address().offset(by),
                workspace: workspace.address(),
                ..Default::default()
            };
            // SAFETY: each operand has the extent of the problem, and nothing else runs.
            unsafe { plan.run(&device.stream, &operands, 1.0) }.unwrap();
            let written = device.download(&aux)[by..by + 96 * 128 * size].to_vec();
            (decode(dtype, &device.download(&d)), decode(dtype, &written))
        };
        let (expected, found) = (run(&first, 0), run(&plan, least));
        let close = tolerance(&hardly);
        assert!(error(&found.0, &expected.0) < close, "{hardly}");
        assert!(error(&found.1, &expected.1) < close, "{hardly}: aux");
    }
}
