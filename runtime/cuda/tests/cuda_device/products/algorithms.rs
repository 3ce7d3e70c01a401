//! Which algorithm computes a product: each of them is right, gives the same bits again, and is recorded.

use fulgurite_cuda::cublaslt::{Compute, CublasLt, Epilogue, MatmulOperands, MatmulPlan, Operand, Problem, Tuner};
use fulgurite_cuda::{CudaError, DeviceMemory};
use fulgurite_kernels::DType;

use super::matrices::{KINDS, Matrix, POISON, WORKSPACE, library, problem};
use crate::fixture::device;

#[test]
fn the_same_bits_come_again() {
    let Some(device) = device() else { return };
    let library = library(&device);
    for kind in KINDS {
        // Long sums of a small result are what is split.
        let problem = problem(kind, 64, 64, 16_384);
        let a = Matrix::random(&device, problem.a, (1, 64, 16_384), 1);
        let b = Matrix::random(&device, problem.b, (1, 16_384, 64), 2);
        for algorithm in MatmulPlan::candidates(&library, &problem, WORKSPACE, 8).unwrap() {
            let plan = MatmulPlan::with_algorithm(&library, &problem, &algorithm).unwrap();
            let workspace = DeviceMemory::new(&device.context, plan.workspace_bytes().max(1)).unwrap();
            let mut first = None;
            for _ in 0..5 {
                let d = Matrix::poison(&device, problem.d, (1, 64, 64));
                let operands = MatmulOperands {
                    a: a.memory.address(),
                    b: b.memory.address(),
                    d: d.memory.address(),
                    workspace: workspace.address(),
                    ..Default::default()
                };
                // SAFETY: every operand has the extent of the problem, and nothing else runs.
                unsafe { plan.run(&device.stream, &operands, 1.0) }.unwrap();
                let bytes = device.download(&d.memory);
                assert_eq!(*first.get_or_insert_with(|| bytes.clone()), bytes, "{problem}, {algorithm:?}");
            }
        }
        let chosen = MatmulPlan::new(&library, &problem, WORKSPACE).unwrap();
        println!("{problem}: k split by {}, {} bytes", chosen.algorithm().split_k, chosen.workspace_bytes());
    }
}

/// A sum in the place of what is added has the bits of one in memory of its own, by each algorithm, but for elements
/// of 16 bits.
#[test]
fn the_result_may_have_the_place_of_what_is_added() {
    let Some(device) = device() else { return };
    let library = library(&device);
    let mut differing = Vec::new();
    for (dtype, compute) in [(DType::F32, Compute::F32), (DType::F32, Compute::Tf32), (DType::F64, Compute::F64)] {
        for [m, n, k] in [[4, 16, 8], [6, 7, 5], [33, 72, 64], [1, 24, 6], [1, 24, 8], [200, 136, 1000]] {
            for epilogue in [Epilogue::None, Epilogue::Bias] {
                let mut problem = problem((dtype, dtype, compute), m, n, k);
                problem.b = Operand::contiguous_transposed(dtype, k, n);
                problem.accumulate = true;
                problem.epilogue = epilogue;
                let random = |rows: usize, columns: usize, seed: u64| {
                    Matrix::random(&device, Operand::contiguous(dtype, rows, columns), (1, rows, columns), seed)
                };
                let [a, b, c, bias] =
                    [(m, k, 1), (n, k, 2), (m, n, 3), (1, n, 4)].map(|(r, c, seed)| random(r, c, seed));
                let bytes = device.download(&c.memory);
                let d = device.upload(&vec![POISON; bytes.len()]);
                let candidates = MatmulPlan::candidates(&library, &problem, WORKSPACE, 8);
                for (rank, algorithm) in candidates.into_iter().flatten().enumerate() {
                    let Ok(plan) = MatmulPlan::with_algorithm(&library, &problem, &algorithm) else { continue };
                    let workspace = DeviceMemory::new(&device.context, plan.workspace_bytes().max(1)).unwrap();
                    let run = |c: &DeviceMemory, d: &DeviceMemory| {
                        let operands = MatmulOperands {
                            a: a.memory.address(),
                            b: b.memory.address(),
                            c: c.address(),
                            d: d.address(),
                            bias: bias.memory.address(),
                            workspace: workspace.address(),
                            ..MatmulOperands::default()
                        };
                        // SAFETY: all is allocated, and used on this stream alone.
                        unsafe { plan.run(&device.stream, &operands, 1.0) }.unwrap();
                        device.download(d)
                    };
                    let in_place = device.upload(&bytes);
                    if run(&c.memory, &d) != run(&in_place, &in_place) {
                        differing.push(format!("{problem}: number {rank}, {algorithm:?}"));
                    }
                }
            }
        }
    }
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}

#[test]
fn algorithms_are_recorded_and_checked_before_use() {
    let Some(device) = device() else { return };
    let library = library(&device);
    let bf16 = problem((DType::BF16, DType::BF16, Compute::F32), 512, 768, 256);
    let found = MatmulPlan::candidates(&library, &bf16, WORKSPACE, 16).unwrap();
    assert!(!found.is_empty());
    println!("{} candidates, the first: {:?}", found.len(), found[0]);
    let chosen = MatmulPlan::new(&library, &bf16, WORKSPACE).unwrap();
    assert_eq!(chosen.algorithm(), &found[0]);
    for algorithm in &found {
        assert!(algorithm.workspace_bytes <= WORKSPACE);
        let plan = MatmulPlan::with_algorithm(&library, &bf16, algorithm).unwrap();
        assert_eq!(plan.algorithm().encoding, algorithm.encoding);
    }
    let f64 = problem((DType::F64, DType::F64, Compute::F64), 512, 768, 256);
    let error = MatmulPlan::with_algorithm(&library, &f64, &found[0]).unwrap_err();
    assert!(matches!(error, CudaError::Problem(_)), "{error}");
    println!("{error}");
}

#[test]
fn a_product_is_captured_in_a_graph() {
    let Some(device) = device() else { return };
    let library = library(&device);
    let mut problem = problem((DType::F32, DType::F32, Compute::F32), 32, 32, 32);
    problem.accumulate = true;
    let plan = MatmulPlan::new(&library, &problem, WORKSPACE).unwrap();
    let identity: Vec<f32> = (0..1024).map(|i| if i / 32 == i % 32 { 1.0 } else { 0.0 }).collect();
    let (a, d) = (device.upload_of(&identity), device.upload(&[0; 4096]));
    let workspace = DeviceMemory::new(&device.context, plan.workspace_bytes().max(1)).unwrap();
    let (a, d_address) = (a.address(), d.address());
    let operands =
        MatmulOperands { a, b: a, c: d_address, d: d_address, workspace: workspace.address(), ..Default::default() };
    // SAFETY: every operand has the extent of the problem, and is alive until the last replay is done.
    let record = || unsafe { plan.run(&device.stream, &operands, 1.0) };
    let graph = device.stream.capture(Default::default(), record).unwrap().instantiate().unwrap();
    for _ in 0..3 {
        // SAFETY: as above.
        unsafe { graph.launch(&device.stream) }.unwrap();
    }
    let expected: Vec<f32> = identity.iter().map(|value| 3.0 * value).collect();
    assert_eq!(device.download_of::<f32>(&d), expected);
}

#[test]
fn a_measured_choice_is_recorded_and_used_by_the_next_process() {
    let Some(device) = device() else { return };
    let folder = tempfile::tempdir().unwrap();
    let scratch = DeviceMemory::new(&device.context, 256 << 20).unwrap();
    let mut problem = Problem::contiguous(DType::F32, 256, 3072, 768);
    problem.compute = Compute::Tf32;
    let choose = || {
        // A new library has no choices, like that of another process.
        let library = CublasLt::new(&device.context).unwrap();
        // SAFETY: the memory is this test's.
        let tuner = unsafe { Tuner::new(&library, &device.stream, scratch.address(), scratch.len()) };
        tuner.keep_in(folder.path()).pin(&problem, WORKSPACE).unwrap();
        MatmulPlan::new(&library, &problem, WORKSPACE).unwrap().algorithm().encoding
    };
    let files = || -> Vec<_> {
        let all = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        // Writers hold a lock in turn.
        all.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).collect()
    };
    let first = choose();
    assert_eq!(files().len(), 1);
    let record = std::fs::read(&files()[0]).unwrap();
    assert_eq!(choose(), first, "the record is used");
    assert_eq!(std::fs::read(&files()[0]).unwrap(), record);
    std::fs::write(&files()[0], &record[..record.len() / 2]).unwrap();
    choose();
    assert!(std::fs::read(&files()[0]).unwrap().starts_with(b"fulgurite product 2"));
    assert!(std::fs::read(&files()[0]).unwrap().len() > record.len() / 2, "a damaged record is written anew");
    // Nothing is measured for a product of a few thousand numbers.
    let small = Problem::contiguous(DType::F32, 8, 8, 8);
    let library = CublasLt::new(&device.context).unwrap();
    // SAFETY: the memory is this test's.
    let tuner = unsafe { Tuner::new(&library, &device.stream, scratch.address(), scratch.len()) };
    tuner.keep_in(folder.path()).pin(&small, WORKSPACE).unwrap();
    assert_eq!(files().len(), 1);
    // Without room in the memory that it was given, it measures in memory of its own.
    let larger = Problem::contiguous(DType::F32, 512, 3072, 768);
    // SAFETY: as above; a part of the memory.
    let tuner = unsafe { Tuner::new(&library, &device.stream, scratch.address(), 4096) };
    tuner.keep_in(folder.path()).pin(&larger, WORKSPACE).unwrap();
    assert_eq!(files().len(), 2);
}
