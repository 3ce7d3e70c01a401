//! Matrices on both sides, and a problem run on the device beside its product in f64 on the host.

use fulgurite_cuda::cublaslt::{Compute, CublasLt, Epilogue, MatmulOperands, MatmulPlan, Operand, Problem};
use fulgurite_cuda::{CudaError, DeviceMemory};
use fulgurite_kernels::DType;
use half::{bf16, f16};

use crate::fixture::{Device, numbers, random};

pub const WORKSPACE: usize = 32 << 20;
/// The byte that memory is filled with before a product writes to it: in every floating-point type a NaN.
pub const POISON: u8 = 0xFF;

pub fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F64 => bytemuck::cast_slice(values).to_vec(),
        DType::F32 => values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect(),
        DType::BF16 => values.iter().flat_map(|&value| bf16::from_f32(value as f32).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&value| f16::from_f32(value as f32).to_le_bytes()).collect(),
        _ => unreachable!("no product of this type"),
    }
}

pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F64 => numbers(bytes),
        DType::F32 => numbers::<f32>(bytes).into_iter().map(f64::from).collect(),
        DType::BF16 => numbers::<bf16>(bytes).into_iter().map(f64::from).collect(),
        DType::F16 => numbers::<f16>(bytes).into_iter().map(f64::from).collect(),
        _ => unreachable!("no product of this type"),
    }
}

/// A strided matrix, or a batch of them, on the host and on the device.
pub struct Matrix {
    layout: Operand,
    rows: usize,
    columns: usize,
    batch: usize,
    values: Vec<f64>,
    pub memory: DeviceMemory,
}

impl Matrix {
    /// With random values, rounded to the type.
    pub fn random(
        device: &Device,
        layout: Operand,
        (batch, rows, columns): (usize, usize, usize),
        seed: u64,
    ) -> Matrix {
        let mut next = random(seed);
        let values: Vec<f64> = (0..Matrix::extent(&layout, (batch, rows, columns))).map(|_| next()).collect();
        let bytes = encode(layout.dtype, &values);
        let (values, memory) = (decode(layout.dtype, &bytes), device.upload(&bytes));
        Matrix { layout, rows, columns, batch, values, memory }
    }

    /// Matrices that are full of poison.
    pub fn poison(device: &Device, layout: Operand, (batch, rows, columns): (usize, usize, usize)) -> Matrix {
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

    /// What the device has now, in order, without the gaps between rows: these must still be poison.
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
pub fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(found, expected)| found - expected));
    let error = difference / norm(&mut expected.iter().copied()).max(f64::MIN_POSITIVE);
    if error.is_nan() { f64::INFINITY } else { error }
}

/// A few times what rounding each element of the result, the operands of TF32, or each step of a sum makes.
pub fn tolerance(problem: &Problem) -> f64 {
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
pub fn check(device: &Device, library: &CublasLt, problem: &Problem, alpha: f64) -> Option<f64> {
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
        ..Default::default()
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

pub fn library(device: &Device) -> CublasLt {
    CublasLt::new(&device.context).unwrap()
}

/// Types of operands and result, and how they are computed.
pub const KINDS: [(DType, DType, Compute); 7] = [
    (DType::F32, DType::F32, Compute::F32),
    (DType::F32, DType::F32, Compute::Tf32),
    (DType::F64, DType::F64, Compute::F64),
    (DType::BF16, DType::BF16, Compute::F32),
    (DType::BF16, DType::F32, Compute::F32),
    (DType::F16, DType::F16, Compute::F32),
    (DType::F16, DType::F32, Compute::F32),
];

pub fn problem((operand, result, compute): (DType, DType, Compute), m: usize, n: usize, k: usize) -> Problem {
    let d = Operand::contiguous(result, m, n);
    Problem { d, compute, ..Problem::contiguous(operand, m, n, k) }
}
