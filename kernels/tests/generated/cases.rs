//! Programs and layouts that generated kernels are compiled for and run on: one list for both kinds of tests.

#![allow(dead_code)] // each test binary uses its own part

use fulgurite_kernels::cuda::generate::{
    GenerateError, GeneratedKernel, Holder, InputOperand, OutputOperand, Problem, Stage, StageOperand, Stages,
};
use fulgurite_kernels::fused::{FusedNode, FusedProgram, OutputLayout};
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::view::contiguous_strides;
use fulgurite_kernels::{DType, Reduction};

/// What the elements of an input are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Domain {
    /// -4 to 4 in steps of 1/64, exact in every floating type; small integers.
    Plain,
    /// Plain, positive and not zero.
    Positive,
    /// Plain numbers among infinities, NaN, zeros of both signs, subnormal numbers and extremes.
    Extreme,
}

/// How near an output must be to the host's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// Equal; all NaN are equal, and so are zeros of both signs.
    Exact,
    /// Units in the last place of the output's type.
    Ulps(u64),
    /// Relative to the larger of the number and the given magnitude.
    Near(f64, f64),
}

#[derive(Debug, Clone)]
pub struct Input {
    pub strides: Vec<isize>,
    /// The first element's place in its memory.
    pub first: usize,
    /// Elements of the memory.
    pub elements: usize,
    pub domain: Domain,
}

#[derive(Debug, Clone)]
pub struct Output {
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
    pub first: usize,
    pub elements: usize,
    pub tolerance: Tolerance,
    /// The input that it is written over.
    pub over: Option<usize>,
}

#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub program: FusedProgram,
    pub shape: Vec<usize>,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
}

/// Bytes that the element `first` of a memory that starts on 256 bytes is known to be a multiple of.
fn alignment(first: usize, dtype: DType) -> usize {
    match first * dtype.size() {
        0 => 256,
        bytes => 1 << bytes.trailing_zeros().min(8),
    }
}

impl Case {
    pub fn generate_for(&self, shared_bytes: usize, clusters: bool) -> Result<GeneratedKernel, GenerateError> {
        self.with_problem(shared_bytes, clusters, GeneratedKernel::new)
    }

    /// Pieces of `length` elements, or those that are usual.
    pub fn stages(&self, length: Option<usize>) -> Option<Stages> {
        self.with_problem(0, false, |problem| match length {
            Some(length) => Stages::with_pieces(problem, length),
            None => Stages::of(problem),
        })
    }

    fn with_problem<R>(&self, shared_bytes: usize, clusters: bool, f: impl FnOnce(&Problem<'_>) -> R) -> R {
        let inputs: Vec<InputOperand<'_>> = (self.inputs.iter().zip(&self.program.input_dtypes))
            .map(|(input, &dtype)| InputOperand { strides: &input.strides, alignment: alignment(input.first, dtype) })
            .collect();
        let outputs: Vec<OutputOperand<'_>> = (self.outputs.iter().zip(&self.program.outputs))
            .map(|(output, &(_, dtype))| OutputOperand {
                layout: OutputLayout { shape: &output.shape, strides: &output.strides },
                alignment: alignment(output.first, dtype),
            })
            .collect();
        f(&Problem {
            name: &self.name,
            program: &self.program,
            shape: &self.shape,
            inputs: &inputs,
            outputs: &outputs,
            shared_bytes,
            clusters,
        })
    }

    /// A stage of the case as a case of its own, whose operands are in the holders' memory.
    pub fn stage(&self, stage: &Stage) -> Case {
        let input = |operand: &StageOperand| Input {
            strides: operand.strides.clone(),
            first: operand.first + self.first(operand.holder),
            elements: 0,
            domain: Domain::Plain,
        };
        let output = |operand: &StageOperand| Output {
            shape: operand.shape.clone(),
            strides: operand.strides.clone(),
            first: operand.first + self.first(operand.holder),
            elements: 0,
            tolerance: Tolerance::Exact,
            over: None,
        };
        Case {
            name: stage.name.clone(),
            program: stage.program.clone(),
            shape: stage.shape.clone(),
            inputs: stage.inputs.iter().map(input).collect(),
            outputs: stage.outputs.iter().map(output).collect(),
        }
    }

    /// Where an operand's first element is in its memory, or in that of the input that it is written over.
    fn first(&self, holder: Holder) -> usize {
        match holder {
            Holder::Input(index) => self.inputs[index].first,
            Holder::Output(index) => match self.outputs[index].over {
                Some(input) => self.inputs[input].first,
                None => self.outputs[index].first,
            },
            Holder::Temporary(_) => 0,
        }
    }

    /// All operands contiguous, all inputs of the iteration's shape.
    pub fn contiguous(name: impl Into<String>, program: FusedProgram, shape: &[usize], tolerance: Tolerance) -> Case {
        let elements = shape.iter().product();
        let input = Input { strides: contiguous_strides(shape), first: 0, elements, domain: Domain::Plain };
        let output = Output {
            shape: shape.to_vec(),
            strides: contiguous_strides(shape),
            first: 0,
            elements,
            tolerance,
            over: None,
        };
        Case {
            name: name.into(),
            shape: shape.to_vec(),
            inputs: vec![input; program.input_dtypes.len()],
            outputs: vec![output; program.outputs.len()],
            program,
        }
    }

    pub fn domain(mut self, domain: Domain) -> Case {
        self.inputs.iter_mut().for_each(|input| input.domain = domain);
        self
    }

    /// An input seen with these strides from its element `first` on.
    pub fn input(mut self, index: usize, strides: &[isize], first: usize) -> Case {
        let (low, high) = bounds(&self.shape, strides);
        assert!(first as isize + low >= 0, "strides reach before the memory");
        let domain = self.inputs[index].domain;
        let elements = (first as isize + high + 1) as usize;
        self.inputs[index] = Input { strides: strides.to_vec(), first, elements, domain };
        self
    }

    /// An input that is the same along all but the last dimension.
    pub fn column_input(self, index: usize) -> Case {
        let mut strides = vec![0; self.shape.len()];
        *strides.last_mut().unwrap() = 1;
        self.input(index, &strides, 0)
    }

    /// An input of one value a row.
    pub fn row_input(self, index: usize) -> Case {
        let mut shape = self.shape.clone();
        *shape.last_mut().unwrap() = 1;
        let mut strides = contiguous_strides(&shape);
        *strides.last_mut().unwrap() = 0;
        self.input(index, &strides, 0)
    }

    /// An output of this shape, seen with these strides from its element `first` on.
    pub fn output(mut self, index: usize, shape: &[usize], strides: &[isize], first: usize) -> Case {
        let (low, high) = bounds(shape, strides);
        assert!(first as isize + low >= 0, "strides reach before the memory");
        let elements = (first as isize + high + 1) as usize;
        let output = &mut self.outputs[index];
        (output.shape, output.strides) = (shape.to_vec(), strides.to_vec());
        (output.first, output.elements) = (first, elements);
        self
    }

    /// An output of one value a row.
    pub fn row_output(self, index: usize) -> Case {
        let mut shape = self.shape.clone();
        *shape.last_mut().unwrap() = 1;
        let strides = contiguous_strides(&shape);
        self.output(index, &shape, &strides, 0)
    }

    pub fn tolerance(mut self, index: usize, tolerance: Tolerance) -> Case {
        self.outputs[index].tolerance = tolerance;
        self
    }

    pub fn over(mut self, output: usize, input: usize) -> Case {
        self.outputs[output].over = Some(input);
        self
    }
}

/// The least and the greatest place that a layout reaches from its first element.
fn bounds(shape: &[usize], strides: &[isize]) -> (isize, isize) {
    shape.iter().zip(strides).fold((0, 0), |(low, high), (&extent, &stride)| {
        let far = (extent as isize - 1) * stride;
        (low + far.min(0), high + far.max(0))
    })
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// A program being written.
#[derive(Clone)]
pub struct Writer {
    inputs: Vec<DType>,
    pub nodes: Vec<FusedNode>,
}

impl Writer {
    pub fn new(inputs: &[DType]) -> Writer {
        Writer { inputs: inputs.to_vec(), nodes: (0..inputs.len()).map(|n| FusedNode::Input(n as u32)).collect() }
    }

    pub fn push(&mut self, node: FusedNode) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    pub fn constant(&mut self, value: f64) -> u32 {
        self.push(FusedNode::Constant(value))
    }

    pub fn apply(&mut self, op: ScalarOp, operands: &[u32]) -> u32 {
        let mut all = [0; 3];
        all[..operands.len()].copy_from_slice(operands);
        self.push(FusedNode::Apply(op, all))
    }

    pub fn reduce(&mut self, reduction: Reduction, operand: u32) -> u32 {
        self.push(FusedNode::Reduce(reduction, operand))
    }

    pub fn convert(&mut self, dtype: DType, operand: u32) -> u32 {
        self.push(FusedNode::Convert(dtype, operand))
    }

    pub fn finish(self, outputs: &[(u32, DType)]) -> FusedProgram {
        FusedProgram { input_dtypes: self.inputs, nodes: self.nodes, outputs: outputs.to_vec() }
    }
}

// === Typical regions ===

pub fn copy(dtype: DType) -> FusedProgram {
    Writer::new(&[dtype]).finish(&[(0, dtype)])
}

pub fn relu(dtype: DType) -> FusedProgram {
    let mut writer = Writer::new(&[dtype]);
    let zero = writer.constant(0.0);
    let result = writer.apply(ScalarOp::Maximum, &[0, zero]);
    writer.finish(&[(result, dtype)])
}

pub fn add(dtype: DType) -> FusedProgram {
    let mut writer = Writer::new(&[dtype; 2]);
    let result = writer.apply(ScalarOp::Add, &[0, 1]);
    writer.finish(&[(result, dtype)])
}

pub fn row_sum(dtype: DType) -> FusedProgram {
    let mut writer = Writer::new(&[dtype]);
    let result = writer.reduce(Reduction::Sum, 0);
    writer.finish(&[(result, DType::F32)])
}

/// `x * a + b`
pub fn affine(dtype: DType) -> FusedProgram {
    let mut writer = Writer::new(&[dtype; 3]);
    let product = writer.apply(ScalarOp::Mul, &[0, 1]);
    let result = writer.apply(ScalarOp::Add, &[product, 2]);
    writer.finish(&[(result, dtype)])
}

/// The tanh form of GELU of `x * a + b`.
pub fn gelu_affine(dtype: DType) -> FusedProgram {
    use ScalarOp::*;
    let mut writer = Writer::new(&[dtype; 3]);
    let [half, one, three, cubic, scale] =
        [0.5, 1.0, 3.0, 0.044715, 0.797_884_560_802_865_4].map(|number| writer.constant(number));
    let product = writer.apply(Mul, &[0, 1]);
    let x = writer.apply(Add, &[product, 2]);
    let cube = writer.apply(Pow, &[x, three]);
    let cube = writer.apply(Mul, &[cube, cubic]);
    let inner = writer.apply(Add, &[x, cube]);
    let inner = writer.apply(Mul, &[inner, scale]);
    let tanh = writer.apply(Tanh, &[inner]);
    let factor = writer.apply(Add, &[tanh, one]);
    let result = writer.apply(Mul, &[x, half]);
    let result = writer.apply(Mul, &[result, factor]);
    writer.finish(&[(result, dtype)])
}

/// Softmax of each row, and the logarithm of each row's sum of exponentials.
pub fn softmax(dtype: DType, with_log_sum: bool) -> FusedProgram {
    use ScalarOp::*;
    let mut writer = Writer::new(&[dtype]);
    let max = writer.reduce(Reduction::Max, 0);
    let shifted = writer.apply(Sub, &[0, max]);
    let exp = writer.apply(Exp, &[shifted]);
    let sum = writer.reduce(Reduction::Sum, exp);
    let result = writer.apply(Div, &[exp, sum]);
    let log = writer.apply(Log, &[sum]);
    let log_sum = writer.apply(Add, &[log, max]);
    let outputs = [(result, dtype), (log_sum, DType::F32)];
    writer.finish(&outputs[..1 + usize::from(with_log_sum)])
}

/// Layer normalization with weight and bias, and each row's mean and reciprocal deviation.
pub fn layer_norm(dtype: DType, width: usize, with_statistics: bool) -> FusedProgram {
    use ScalarOp::*;
    let mut writer = Writer::new(&[dtype; 3]);
    let count = writer.constant(width as f64);
    let epsilon = writer.constant(1e-5);
    let sum = writer.reduce(Reduction::Sum, 0);
    let mean = writer.apply(Div, &[sum, count]);
    let centred = writer.apply(Sub, &[0, mean]);
    let square = writer.apply(Mul, &[centred, centred]);
    let sum = writer.reduce(Reduction::Sum, square);
    let variance = writer.apply(Div, &[sum, count]);
    let variance = writer.apply(Add, &[variance, epsilon]);
    let reciprocal = writer.apply(Rsqrt, &[variance]);
    let normal = writer.apply(Mul, &[centred, reciprocal]);
    let scaled = writer.apply(Mul, &[normal, 1]);
    let result = writer.apply(Add, &[scaled, 2]);
    let outputs = [(result, dtype), (mean, DType::F32), (reciprocal, DType::F32)];
    writer.finish(&outputs[..if with_statistics { 3 } else { 1 }])
}

// === Lists ===

const UNARY_EXACT: [ScalarOp; 9] = {
    use ScalarOp::*;
    [Abs, Neg, Floor, Sign, IsFinite, Not, Sqrt, Rsqrt, Reciprocal]
};
const UNARY_SMOOTH: [ScalarOp; 4] = [ScalarOp::Exp, ScalarOp::Log, ScalarOp::Tanh, ScalarOp::Erf];
const BINARY_EXACT: [ScalarOp; 15] = {
    use ScalarOp::*;
    [Add, Sub, Mul, Div, Maximum, Minimum, Remainder, Eq, Ne, Lt, Le, Gt, Ge, And, Or]
};

/// The type that the result of `op` on operands of `dtype` is stored as.
fn result_dtype(op: ScalarOp, dtype: DType) -> DType {
    use ScalarOp::*;
    match op {
        _ if op.is_predicate() => DType::Bool,
        Abs | Neg | Floor | Sign | Add | Sub | Mul | Div | Maximum | Minimum | Remainder | Pow
            if dtype == DType::Bool =>
        {
            DType::I64
        }
        Abs | Neg | Floor | Sign | Add | Sub | Mul | Div | Maximum | Minimum | Remainder | Pow | Select => dtype,
        _ if dtype.is_floating() => dtype,
        _ => DType::F32,
    }
}

/// Both the host's and the device's functions are within 2 units of the true value in f32 (4 for the device's powers),
/// and so within one another's rounding in the narrow types.
fn smooth(dtype: DType) -> Tolerance {
    Tolerance::Ulps(match dtype {
        DType::F16 | DType::BF16 => 1,
        _ => 5,
    })
}

/// Every operation in every element type.
pub fn operations() -> Vec<Case> {
    let shape = [3 * 1024 + 5];
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        let mut add = |name: &str, operations: &[ScalarOp], exact: bool, domain: Domain| {
            let arity = operations[0].arity();
            let mut inputs = vec![dtype; arity];
            if operations == [ScalarOp::Select] {
                inputs[0] = DType::Bool;
            }
            let mut writer = Writer::new(&inputs);
            let operands: Vec<u32> = (0..arity as u32).collect();
            let outputs: Vec<(u32, DType)> =
                operations.iter().map(|&op| (writer.apply(op, &operands), result_dtype(op, dtype))).collect();
            let tolerances: Vec<Tolerance> =
                outputs.iter().map(|&(_, stored)| if exact { Tolerance::Exact } else { smooth(stored) }).collect();
            let mut case =
                Case::contiguous(format!("{name}_{dtype}"), writer.finish(&outputs), &shape, Tolerance::Exact);
            for (index, tolerance) in tolerances.into_iter().enumerate() {
                case = case.tolerance(index, tolerance);
            }
            cases.push(case.domain(domain));
        };
        add("unary", &UNARY_EXACT, true, Domain::Extreme);
        add("smooth", &UNARY_SMOOTH, false, Domain::Extreme);
        add("circular", &[ScalarOp::Sin, ScalarOp::Cos], false, Domain::Plain);
        add("binary", &BINARY_EXACT, true, Domain::Extreme);
        add("power", &[ScalarOp::Pow], !dtype.is_floating(), Domain::Positive);
        add("select", &[ScalarOp::Select], true, Domain::Extreme);
    }
    // Powers that are written as products, and huge arguments of sine and cosine.
    for dtype in [DType::F32, DType::BF16, DType::F64] {
        let mut writer = Writer::new(&[dtype]);
        let outputs = [2.0, 3.0, -1.0].map(|exponent| {
            let exponent = writer.constant(exponent);
            (writer.apply(ScalarOp::Pow, &[0, exponent]), dtype)
        });
        let program = writer.finish(&outputs);
        let case = Case::contiguous(format!("fixed_powers_{dtype}"), program, &shape, Tolerance::Exact);
        cases.push(case.domain(Domain::Extreme));
        let mut writer = Writer::new(&[dtype]);
        let outputs = [ScalarOp::Sin, ScalarOp::Cos].map(|op| (writer.apply(op, &[0]), dtype));
        let case = Case::contiguous(format!("huge_circular_{dtype}"), writer.finish(&outputs), &shape, smooth(dtype));
        cases.push(case.domain(Domain::Extreme));
    }
    cases
}

/// From every element type to every element type, stored and rounded in between.
pub fn conversions() -> Vec<Case> {
    let of = |from: DType| {
        let mut writer = Writer::new(&[from]);
        let mut outputs: Vec<(u32, DType)> = DType::ALL.map(|to| (0, to)).to_vec();
        for to in DType::ALL {
            let converted = writer.convert(to, 0);
            outputs.push((converted, if to.is_floating() { DType::F64 } else { DType::I64 }));
        }
        let program = writer.finish(&outputs);
        Case::contiguous(format!("conversions_{from}"), program, &[2 * 1024 + 3], Tolerance::Exact)
            .domain(Domain::Extreme)
    };
    DType::ALL.into_iter().map(of).collect()
}

/// Elementwise programs over layouts of all kinds.
pub fn layouts() -> Vec<Case> {
    let exact = Tolerance::Exact;
    let mut cases = Vec::new();
    for shape in [&[][..], &[1], &[3], &[4], &[5], &[255], &[1, 1, 1], &[7, 9], &[3, 700_001]] {
        let sizes = shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x");
        cases.push(Case::contiguous(format!("relu_{sizes}"), relu(DType::F32), shape, exact));
        cases.push(Case::contiguous(format!("relu_bf16_{sizes}"), relu(DType::BF16), shape, exact));
    }
    // Addresses that are not multiples of sixteen bytes.
    for first in 1..4 {
        let (shape, strides) = ([40, 128], [128, 1]);
        let case = Case::contiguous(format!("misaligned_{first}"), affine(DType::F32), &shape, exact);
        cases.push(case.input(1, &strides, first).output(0, &shape, &strides, 0));
        let case = Case::contiguous(format!("misaligned_output_{first}"), affine(DType::BF16), &shape, exact);
        cases.push(case.output(0, &shape, &strides, 2 * first));
    }
    for (a, b, c) in [(3, 5, 8), (2, 70, 33), (16, 1, 768), (1, 300, 6), (4, 64, 64)] {
        let shape = [a, b, c];
        let [x, y, z] = shape.map(|extent| extent as isize);
        let name = |what: &str| format!("{what}_{a}x{b}x{c}");
        let of = |what: &str| Case::contiguous(name(what), affine(DType::F32), &shape, exact);
        cases.push(of("bias").column_input(2).input(1, &[0, 0, 0], 0));
        cases.push(of("row_scale").row_input(1).column_input(2));
        cases.push(of("first_dimension").input(1, &[1, 0, 0], 0));
        cases.push(of("transposed").input(0, &[1, x, x * y], 0));
        cases.push(of("swapped").input(0, &[y * z, 1, y], 0).input(2, &[1, x * z, x], 0));
        cases.push(of("reversed").input(0, &[-y * z, z, 1], ((x - 1) * y * z) as usize).input(
            1,
            &[y * z, z, -1],
            (z - 1) as usize,
        ));
        cases.push(of("padded").input(0, &[y * (z + 3), z + 3, 1], 1).output(0, &shape, &[y * (z + 8), z + 8, 1], 8));
        cases.push(of("every_second").input(0, &[2 * y * z, 2 * z, 2], 1).output(0, &shape, &[3 * y * z, 3 * z, 3], 2));
        cases.push(of("transposed_output").output(0, &shape, &[1, x, x * y], 0));
        cases.push(of("in_place").over(0, 0).column_input(1).row_input(2));
        for dtype in [DType::F32, DType::BF16, DType::U8, DType::F64] {
            let case = Case::contiguous(name(&format!("permuted_{dtype}")), copy(dtype), &shape, exact);
            cases.push(case.input(0, &[z, x * z, 1], 0));
            let case = Case::contiguous(name(&format!("transposed_{dtype}")), copy(dtype), &shape, exact);
            cases.push(case.input(0, &[y * z, 1, y], 0));
        }
    }
    // Several outputs of several types, one of them over an input.
    let mut writer = Writer::new(&[DType::F32, DType::I32, DType::Bool]);
    let sum = writer.apply(ScalarOp::Add, &[0, 1]);
    let chosen = writer.apply(ScalarOp::Select, &[2, sum, 0]);
    let less = writer.apply(ScalarOp::Lt, &[chosen, 1]);
    let program = writer.finish(&[(chosen, DType::F32), (less, DType::Bool), (sum, DType::BF16), (1, DType::I64)]);
    for shape in [vec![10_007], vec![6, 128], vec![9, 5]] {
        let case = Case::contiguous("several", program.clone(), &shape, exact);
        cases.push(case.over(0, 0));
    }
    // Outputs of numbers alone.
    let mut writer = Writer::new(&[]);
    let number = writer.constant(2.5);
    let program = writer.finish(&[(number, DType::F16), (number, DType::I32)]);
    cases.push(Case::contiguous("numbers", program, &[1000], exact));
    cases
}

/// Lengths of rows: lanes, warps and blocks with nothing left and with something.
pub const LENGTHS: [usize; 14] = [1, 2, 3, 31, 32, 33, 100, 768, 1024, 1025, 4096, 8192, 50_257, 50_304];

/// Rows reduced, normalized, and combined with values of a row or of a column.
pub fn rows() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in LENGTHS {
        let rows = (60_000 / width).clamp(3, 67);
        let shape = [rows, width];
        for dtype in [DType::F32, DType::BF16] {
            // A probability's error is that of the exponential and of the sum; in bf16 one rounding more.
            let near = Tolerance::Near(if dtype == DType::F32 { 2e-6 } else { 8e-3 }, 1e-30);
            let case = Case::contiguous(format!("softmax_{dtype}_{width}"), softmax(dtype, true), &shape, near);
            cases.push(case.row_output(1).tolerance(1, Tolerance::Near(1e-6, 1.0)));
            // Numbers of magnitude 4, divided by the deviation.
            let near = Tolerance::Near(if dtype == DType::F32 { 4e-6 } else { 8e-3 }, 8.0);
            let program = layer_norm(dtype, width, true);
            let case = Case::contiguous(format!("layer_norm_{dtype}_{width}"), program, &shape, near);
            let case = case.column_input(1).column_input(2).row_output(1).row_output(2);
            // A row of one element has the deviation sqrt(1e-5).
            cases.push(case.tolerance(1, Tolerance::Near(1e-6, 4.0)).tolerance(2, Tolerance::Near(1e-5, 1.0)));
        }
        for dtype in [DType::I32, DType::F64, DType::F16, DType::Bool, DType::F32] {
            let total = if dtype.is_floating() { dtype.accumulator() } else { DType::I64 };
            let mut writer = Writer::new(&[dtype]);
            let outputs = [Reduction::Sum, Reduction::Max, Reduction::Min].map(|reduction| {
                let reduced = writer.reduce(reduction, 0);
                (reduced, total)
            });
            let program = writer.finish(&outputs);
            // Multiples of 1/64 whose sums are exact.
            let case = Case::contiguous(format!("totals_{dtype}_{width}"), program, &shape, Tolerance::Exact);
            cases.push(case.row_output(0).row_output(1).row_output(2));
        }
        let mut writer = Writer::new(&[DType::F32]);
        let outputs = [Reduction::Max, Reduction::Min].map(|reduction| (writer.reduce(reduction, 0), DType::F32));
        let case = Case::contiguous(format!("extreme_{width}"), writer.finish(&outputs), &shape, Tolerance::Exact);
        cases.push(case.row_output(0).row_output(1).domain(Domain::Extreme));
    }
    // Rows that are seen through strides, in place, and next to values of a row.
    for width in [24, 520, 3000, 50_257] {
        let shape = [2, 5, width];
        let w = width as isize;
        let near = Tolerance::Near(2e-6, 1e-30);
        let of =
            |what: &str| Case::contiguous(format!("softmax_{what}_{width}"), softmax(DType::F32, false), &shape, near);
        cases.push(of("in_place").over(0, 0));
        cases.push(of("swapped").input(0, &[w, 2 * w, 1], 0));
        cases.push(of("misaligned").input(0, &[5 * w, w, 1], 1));
        cases.push(of("padded").input(0, &[5 * (w + 4), w + 4, 1], 4).output(0, &shape, &[5 * (w + 8), w + 8, 1], 8));
        cases.push(of("strided").input(0, &[1, 2, 10], 0).output(0, &shape, &[15 * w, 3 * w, 3], 1));
        cases.push(of("backwards").input(0, &[5 * w, w, -1], width - 1));
        cases.push(of("one_row").input(0, &[0, 0, 1], 0));

        // (x - a) * b + sum(x), with `a` a value a row and `b` one number; and a result a row from values a row alone,
        // written over one of them.
        let mut writer = Writer::new(&[DType::F32; 3]);
        let shifted = writer.apply(ScalarOp::Sub, &[0, 1]);
        let scaled = writer.apply(ScalarOp::Mul, &[shifted, 2]);
        let sum = writer.reduce(Reduction::Sum, 0);
        let result = writer.apply(ScalarOp::Add, &[scaled, sum]);
        let row = writer.apply(ScalarOp::Sub, &[1, 2]);
        let program = writer.finish(&[(result, DType::F32), (row, DType::F32), (sum, DType::F64)]);
        let case = Case::contiguous(format!("with_rows_{width}"), program, &shape, Tolerance::Exact);
        cases.push(case.row_input(1).input(2, &[0, 0, 0], 0).row_output(1).row_output(2).over(1, 1));

        // No reduction, but an output of one value a row.
        let mut writer = Writer::new(&[DType::BF16, DType::F32]);
        let row = writer.apply(ScalarOp::Exp, &[1]);
        let full = writer.apply(ScalarOp::Mul, &[0, row]);
        let program = writer.finish(&[(full, DType::BF16), (row, DType::F32)]);
        let case = Case::contiguous(format!("row_result_{width}"), program, &shape, Tolerance::Ulps(1));
        cases.push(case.row_input(1).row_output(1).tolerance(1, smooth(DType::F32)).over(1, 1));
    }
    cases.extend(one_row_over_its_value());
    let case =
        Case::contiguous("few_long_rows", softmax(DType::F32, true), &[2, 1_000_003], Tolerance::Near(4e-6, 1e-30));
    cases.push(case.row_output(1).tolerance(1, Tolerance::Near(1e-6, 1.0)));
    let many =
        Case::contiguous("many_short_rows", softmax(DType::F32, false), &[100_003, 5], Tolerance::Near(2e-6, 1e-30));
    cases.push(many);
    cases
}

/// One row that reads a single number, and a result of the row that is written over this number: in rows of every kind of
/// kernel, with a reduction and without.
pub fn one_row_over_its_value() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [7, 33, 500, 1025, 4096, 50_257, 300_000] {
        for reduces in [false, true] {
            let mut writer = Writer::new(&[DType::F32; 2]);
            let one = writer.constant(1.0);
            let next = writer.apply(ScalarOp::Add, &[1, one]);
            let scaled = writer.apply(ScalarOp::Mul, &[0, next]);
            let next = if reduces {
                let most = writer.reduce(Reduction::Max, scaled);
                let some = writer.apply(ScalarOp::Minimum, &[most, one]);
                writer.apply(ScalarOp::Add, &[some, 1])
            } else {
                next
            };
            let program = writer.finish(&[(scaled, DType::F32), (next, DType::F32)]);
            let name = format!("one_row_{width}{}", if reduces { "_reduced" } else { "" });
            let case = Case::contiguous(name, program, &[1, width], Tolerance::Exact);
            cases.push(case.input(1, &[0, 0], 0).row_output(1).over(1, 1));
        }
    }
    cases
}

/// Programs for rows that are computed in stages: reductions that wait for others, values a row read and written over, elements
/// written over.
pub fn staged(width: usize) -> Vec<Case> {
    let near = |magnitude| Tolerance::Near(2e-6, magnitude);
    let mut cases = Vec::new();
    for rows in [&[][..], &[1], &[3], &[2, 2]] {
        let shape = [rows, &[width]].concat();
        for dtype in [DType::F32, DType::BF16] {
            let name = format!("softmax_{dtype}_{rows:?}_{width}");
            let ulp = if dtype == DType::F32 { 4e-6 } else { 8e-3 };
            let case = Case::contiguous(name, softmax(dtype, true), &shape, Tolerance::Near(ulp, 1e-30));
            cases.push(case.row_output(1).tolerance(1, near(1.0)).over(0, 0));
        }
        for dtype in [DType::F32, DType::I32, DType::F64, DType::F16] {
            let total = if dtype.is_floating() { dtype.accumulator() } else { DType::I64 };
            let mut writer = Writer::new(&[dtype]);
            let outputs = [Reduction::Sum, Reduction::Max, Reduction::Min].map(|kind| (writer.reduce(kind, 0), total));
            let name = format!("totals_{dtype}_{rows:?}_{width}");
            let case = Case::contiguous(name, writer.finish(&outputs), &shape, Tolerance::Exact);
            cases.push(case.row_output(0).row_output(1).row_output(2));
        }
        // y = x * (a + 1) - max(x); b = sum(x * a) + c; a' = a + 1 over a, and min(x) once more.
        let mut writer = Writer::new(&[DType::F32; 3]);
        let one = writer.constant(1.0);
        let next = writer.apply(ScalarOp::Add, &[1, one]);
        let scaled = writer.apply(ScalarOp::Mul, &[0, next]);
        let most = writer.reduce(Reduction::Max, 0);
        let result = writer.apply(ScalarOp::Sub, &[scaled, most]);
        let weighted = writer.apply(ScalarOp::Mul, &[0, 1]);
        let sum = writer.reduce(Reduction::Sum, weighted);
        let sum = writer.apply(ScalarOp::Add, &[sum, 2]);
        let list = [(result, DType::F32), (next, DType::F32), (sum, DType::F64)];
        let strides = vec![0; shape.len()];
        for full in [true, false] {
            let program = writer.clone().finish(if full { &list } else { &list[1..] });
            let case = Case::contiguous(format!("mixed_{full}_{rows:?}_{width}"), program, &shape, near(64.0));
            let case = case.row_input(1).input(2, &strides, 0);
            cases.push(match full {
                true => case.row_output(1).row_output(2).over(1, 1).over(0, 0),
                false => case.row_output(0).row_output(1).over(0, 1),
            });
        }
        if let [count] = *rows {
            let w = width as isize;
            let case = Case::contiguous(format!("strided_{rows:?}_{width}"), row_sum(DType::F32), &shape, near(64.0));
            cases.push(case.row_output(0).input(0, &[1, count as isize + 1], 3));
            let case = Case::contiguous(format!("padded_{rows:?}_{width}"), row_sum(DType::BF16), &shape, near(64.0));
            cases.push(case.row_output(0).input(0, &[w + 3, 1], 1).tolerance(0, Tolerance::Near(8e-3, 64.0)));
        }
    }
    cases
}

/// Random programs over random layouts.
pub fn random(count: usize) -> Vec<Case> {
    let mut random = Random(11);
    (0..count).map(|number| random_case(&mut random, number)).collect()
}

fn random_case(random: &mut Random, number: usize) -> Case {
    const WIDTHS: [usize; 10] = [1, 3, 20, 64, 256, 700, 1500, 4096, 9000, 20_000];
    const TYPES: [DType; 8] =
        [DType::F32, DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F64, DType::I32, DType::Bool];
    let width = WIDTHS[random.below(10)];
    let rows = (40_000 / width).clamp(1, 60);
    let shape = [1 + random.below(3), 1 + random.below(rows), width];
    let [a, b, c] = shape.map(|extent| extent as isize);
    let dtypes = [(); 3].map(|()| TYPES[random.below(8)]);
    let mut writer = Writer::new(&dtypes);
    let mut layouts = Vec::new();
    for _ in 0..3 {
        let (strides, first) = match random.below(9) {
            0 => ([0, 0, 0], 0),
            1 => ([0, 0, 1], 0),
            2 => ([b, 1, 0], 0),
            3 => ([1, a, a * b], 0),
            4 => ([-b * c, c, 1], (a - 1) * b * c),
            5 => ([b * c, c, -1], c - 1),
            6 => ([b * c, c, 1], random.below(4) as isize),
            _ => ([b * c, c, 1], 0),
        };
        layouts.push((strides, first as usize));
    }
    writer.constant(0.75);
    let mut per_row = vec![false; 4];
    let mut numbers = vec![false, false, false, true];
    let reduces = random.below(3) > 0;
    for _ in 0..2 + random.below(12) {
        use ScalarOp::*;
        let count = writer.nodes.len();
        let mut operand = || random.below(count) as u32;
        let [x, y, z] = [operand(), operand(), operand()];
        let node = match random.below(12) {
            0 | 1 if reduces => FusedNode::Reduce([Reduction::Sum, Reduction::Max, Reduction::Min][random.below(3)], x),
            0..3 => FusedNode::Apply([Tanh, Abs, Neg, Sin][random.below(4)], [x, 0, 0]),
            3 => FusedNode::Apply(Sub, [x, y, 0]),
            4 => FusedNode::Apply(Maximum, [x, y, 0]),
            5 => FusedNode::Convert(DType::F64, x),
            6 => FusedNode::Convert(DType::BF16, x),
            7 if !numbers[x as usize] => FusedNode::Apply(Select, [x, y, z]),
            8 => FusedNode::Apply([Lt, Ge, And][random.below(3)], [x, y, 0]),
            _ => FusedNode::Apply(Add, [x, y, 0]),
        };
        let (row, number) = match node {
            FusedNode::Reduce(..) => (true, false),
            FusedNode::Apply(op, operands) => {
                let used = &operands[..op.arity()];
                // A value that is certainly the same along a row may be stored for each element, not the reverse.
                let certainly = |&operand: &u32| {
                    per_row[operand as usize] || matches!(writer.nodes[operand as usize], FusedNode::Constant(_))
                };
                let number = !op.is_predicate() && used.iter().all(|&operand| numbers[operand as usize]);
                (used.iter().all(certainly), number)
            }
            FusedNode::Convert(_, x) => (per_row[x as usize], false),
            _ => (false, false),
        };
        writer.push(node);
        per_row.push(row);
        numbers.push(number);
    }
    let last = writer.nodes.len() as u32 - 1;
    let other = random.below(writer.nodes.len()) as u32;
    let program = writer.finish(&[(last, DType::F64), (other, DType::F32)]);
    // Sums of up to 20000 numbers in f32, and functions of them.
    let mut case = Case::contiguous(format!("random_{number}"), program, &shape, Tolerance::Near(2e-5, 1.0));
    for (index, (strides, first)) in layouts.into_iter().enumerate() {
        case = case.input(index, &strides, first);
    }
    for (index, node) in [last, other].into_iter().enumerate() {
        if per_row[node as usize] {
            case = case.row_output(index);
        }
    }
    case
}
