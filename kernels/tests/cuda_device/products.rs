//! Matrix products, compared with products in f64 on the host.

use crate::fixture::{Device, device, numbers, random};
use fulgurite_kernels::DType;
use fulgurite_kernels::cuda::cublaslt::{
    Compute, CublasLt, Epilogue, MatmulOperands, MatmulPlan, Operand, Problem, Tuner,
};
use fulgurite_kernels::cuda::{CudaError, DeviceMemory};
use half::{bf16, f16};

const WORKSPACE: usize = 32 << 20;
/// The byte that memory is filled with before a product writes to it: in every floating-point type a NaN.
const POISON: u8 = 0xFF;

fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F64 => bytemuck::cast_slice(values).to_vec(),
        DType::F32 => values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|&value| bf16::from_f64(value).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&value| f16::from_f64(value).to_le_bytes()).collect(),
        _ => unreachable!("no product of this type"),
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F64 => numbers(bytes),
        DType::F32 => numbers::<f32>(bytes).into_iter().map(f64::from).collect(),
        DType::BF16 => numbers::<bf16>(bytes).into_iter().map(f64::from).collect(),
        DType::F16 => numbers::<f16>(bytes).into_iter().map(f64::from).collect(),
        _ => unreachable!("no product of this type"),
    }
}

/// A strided matrix, or a batch of them, on the host and on the device.
struct Matrix {
    layout: Operand,
    rows: usize,
    columns: usize,
    batch: usize,
    values: Vec<f64>,
    memory: DeviceMemory,
}

impl Matrix {
    /// With random values, rounded to the type.
    fn random(device: &Device, layout: Operand, (batch, rows, columns): (usize, usize, usize), seed: u64) -> Matrix {
        let mut next = random(seed);
        let values: Vec<f64> = (0..Matrix::extent(&layout, (batch, rows, columns))).map(|_| next()).collect();
        let bytes = encode(layout.dtype, &values);
        let (values, memory) = (decode(layout.dtype, &bytes), device.upload(&bytes));
        Matrix { layout, rows, columns, batch, values, memory }
    }

    /// Of poison.
    fn poison(device: &Device, layout: Operand, (batch, rows, columns): (usize, usize, usize)) -> Matrix {
        let extent = Matrix::extent(&layout, (batch, rows, columns));
        let memory = device.upload(&vec![POISON; extent * layout.dtype.size()]);
        Matrix { layout, rows, columns, batch, values: vec![f64::NAN; extent], memory }
    }

    fn extent(layout: &Operand, (batch, rows, columns): (usize, usize, usize)) -> usize {
        let (rows, columns) = if layout.transposed { (columns, rows) } else { (rows, columns) };
        (batch - 1) * layout.batch_stride + (rows - 1) * layout.leading + columns
    }

    fn index(&self, matrix: usize, row: usize, column: usize) -> usize {
        let (row, column) = if self.layout.transposed { (column, row) } else { (row, column) };
        matrix * self.layout.batch_stride + row * self.layout.leading + column
    }

    fn at(&self, matrix: usize, row: usize, column: usize) -> f64 {
        self.values[self.index(matrix, row, column)]
    }

    /// What the device has now, in order, without what lies between rows: that must still be poison.
    fn download(&self, device: &Device) -> Vec<f64> {
        let bytes = device.download(&self.memory);
        let size = self.layout.dtype.size();
        let values = decode(self.layout.dtype, &bytes);
        let mut written = vec![false; values.len()];
        let mut found = Vec::new();
        for matrix in 0..self.batch {
            for row in 0..self.rows {
                for column in 0..self.columns {
                    let index = self.index(matrix, row, column);
                    written[index] = true;
                    found.push(values[index]);
                }
            }
        }
        for (index, _) in written.iter().enumerate().filter(|(_, written)| !**written) {
            assert!(
                bytes[index * size..][..size].iter().all(|&byte| byte == POISON),
                "written between rows at {index}"
            );
        }
        found
    }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + inner(x).tanh())
}

fn gelu_derivative(x: f64) -> f64 {
    let tanh = inner(x).tanh();
    0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 0.134145 * x * x)
}

fn inner(x: f64) -> f64 {
    (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

/// `‖found - expected‖ / ‖expected‖`; infinite for NaN.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    let error = difference / norm(&mut expected.iter().copied()).max(f64::MIN_POSITIVE);
    if error.is_nan() { f64::INFINITY } else { error }
}

/// A few times what rounding each element of the result, the operands of TF32, or each step of a sum makes.
fn tolerance(problem: &Problem) -> f64 {
    use Epilogue::{Bias, BiasGradA, BiasGradB, None};
    let rounding: f64 = match (problem.compute, problem.a.dtype, problem.d.dtype) {
        (_, _, DType::BF16) => 5e-3,
        (_, _, DType::F16) => 6e-4,
        (Compute::Tf32, _, _) => 1e-3,
        (Compute::F64, _, _) => 1e-14,
        (Compute::F32, DType::F32, _) => 2e-6,
        // Matrix units cut sums off instead of rounding them.
        (Compute::F32, _, _) => 1e-5,
    };
    // The library's tanh is an approximation.
    if matches!(problem.epilogue, None | Bias | BiasGradA | BiasGradB) { rounding } else { rounding.max(1e-3) }
}

/// Runs a problem and compares all that it writes; the largest error. `None` if the library has no algorithm for it.
fn check(device: &Device, library: &CublasLt, problem: &Problem, alpha: f64) -> Option<f64> {
    let plan = match MatmulPlan::new(library, problem, WORKSPACE) {
        Ok(plan) => plan,
        Err(CudaError::Problem(error)) => {
            println!("{error}");
            return None;
        }
        Err(error) => panic!("{problem}: {error}"),
    };
    let Problem { m, n, k, batch, epilogue, .. } = *problem;
    let reads_aux = matches!(epilogue, Epilogue::DGelu | Epilogue::DGeluBiasGrad);
    let reads_bias = matches!(epilogue, Epilogue::Bias | Epilogue::GeluBias | Epilogue::GeluAuxBias);
    let matrix = |layout, rows, columns, seed| Matrix::random(device, layout, (batch, rows, columns), seed);
    let a = matrix(problem.a, m, k, 1);
    let b = matrix(problem.b, k, n, 2);
    let c = matrix(problem.d, m, n, 3);
    let d = Matrix::poison(device, problem.d, (batch, m, n));
    let of_d = |is_read, shape, layout, seed| {
        if is_read { Matrix::random(device, layout, shape, seed) } else { Matrix::poison(device, layout, shape) }
    };
    let aux = of_d(reads_aux, (batch, m, n), problem.d, 4);
    let bias_shape = (1, 1, problem.bias_len().max(1));
    let bias = of_d(reads_bias, bias_shape, Operand::contiguous(problem.d.dtype, 1, bias_shape.2), 5);
    let workspace = DeviceMemory::new(&device.context, plan.workspace_bytes().max(1)).unwrap();
    let operands = MatmulOperands {
        a: a.memory.address(),
        b: b.memory.address(),
        c: c.memory.address(),
        d: d.memory.address(),
        bias: bias.memory.address(),
        aux: aux.memory.address(),
        workspace: workspace.address(),
    };
    // SAFETY: every operand has the extent of the problem, and nothing else runs.
    unsafe { plan.run(&device.stream, &operands, alpha) }.unwrap_or_else(|error| panic!("{problem}: {error}"));

    let mut expected = Vec::new();
    let mut expected_aux = Vec::new();
    let mut column_sums = vec![0.0; n];
    for matrix in 0..batch {
        for row in 0..m {
            for (column, sum) in column_sums.iter_mut().enumerate() {
                let product: f64 = (0..k).map(|i| a.at(matrix, row, i) * b.at(matrix, i, column)).sum();
                let added = if problem.accumulate { c.at(matrix, row, column) } else { 0.0 };
                let with_bias = if reads_bias { bias.at(0, 0, column) } else { 0.0 };
                let before = alpha * product + added + with_bias;
                expected_aux.push(before);
                let value = match epilogue {
                    Epilogue::Gelu | Epilogue::GeluBias | Epilogue::GeluAux | Epilogue::GeluAuxBias => gelu(before),
                    Epilogue::DGelu | Epilogue::DGeluBiasGrad => before * gelu_derivative(aux.at(matrix, row, column)),
                    _ => before,
                };
                *sum += value;
                expected.push(value);
            }
        }
    }
    let expected_bias: Vec<f64> = match epilogue {
        Epilogue::BiasGradA => (0..m).map(|row| (0..k).map(|i| a.at(0, row, i)).sum()).collect(),
        Epilogue::BiasGradB => (0..n).map(|column| (0..k).map(|i| b.at(0, i, column)).sum()).collect(),
        _ => column_sums,
    };
    let mut worst = error(&d.download(device), &expected);
    if epilogue.has_aux() && !reads_aux {
        worst = worst.max(error(&aux.download(device), &expected_aux));
    }
    if epilogue.has_bias() && !reads_bias {
        worst = worst.max(error(&bias.download(device), &expected_bias));
    }
    assert!(worst <= tolerance(problem), "{problem}, alpha {alpha}: error {worst:.1e}, {:?}", plan.algorithm());
    Some(worst)
}

fn library(device: &Device) -> CublasLt {
    CublasLt::new(&device.context).unwrap()
}

/// Types of operands and result, and how they are computed.
const KINDS: [(DType, DType, Compute); 7] = [
    (DType::F32, DType::F32, Compute::F32),
    (DType::F32, DType::F32, Compute::Tf32),
    (DType::F64, DType::F64, Compute::F64),
    (DType::BF16, DType::BF16, Compute::F32),
    (DType::BF16, DType::F32, Compute::F32),
    (DType::F16, DType::F16, Compute::F32),
    (DType::F16, DType::F32, Compute::F32),
];

fn problem((operand, result, compute): (DType, DType, Compute), m: usize, n: usize, k: usize) -> Problem {
    let d = Operand::contiguous(result, m, n);
    Problem { d, compute, ..Problem::contiguous(operand, m, n, k) }
}

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

/// The products of a linear layer as training has them: each operand lies as it comes, and nothing is transposed in memory.
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
        // SAFETY: it is not meant to run; each operand would lie in the memory.
        let error = unsafe { plan.run(&device.stream, &operands, 1.0) }.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let good = MatmulOperands { a: at(0), b: at(512), d: at(1024), bias: at(2048), ..Default::default() };
    refuse(MatmulOperands { bias: Default::default(), ..good }, "bias has no address");
    refuse(MatmulOperands { b: at(514), ..good }, "b is at");
    refuse(MatmulOperands { bias: at(2056), ..good }, "bias is at");
    // SAFETY: each operand lies in the memory.
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
        // A library of its own knows of no choice, like that of another process.
        let library = CublasLt::new(&device.context).unwrap();
        // SAFETY: the memory is this test's.
        let tuner = unsafe { Tuner::new(&library, &device.stream, scratch.address(), scratch.len()) };
        tuner.keep_in(folder.path()).pin(&problem, WORKSPACE).unwrap();
        MatmulPlan::new(&library, &problem, WORKSPACE).unwrap().algorithm().encoding
    };
    let files = || -> Vec<_> {
        let all = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        // Those who write hold a lock in turn.
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
}
