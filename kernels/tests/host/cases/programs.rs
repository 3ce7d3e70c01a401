//! Programs of typical regions, and how programs are written.

use fulgurite_kernels::fused::{FusedNode, FusedProgram};
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::{DType, Reduction};

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

/// The gradient of layer normalization's input plus another gradient, in f32 and rounded, and what the gradients of
/// weight and bias are sums of. Its inputs are the row, the gradient of the result, the weight, of each row its mean
/// and reciprocal deviation, and the other gradient.
pub fn layer_norm_backward(dtype: DType, width: usize) -> FusedProgram {
    use ScalarOp::*;
    let mut writer = Writer::new(&[DType::F32, dtype, DType::F32, DType::F32, DType::F32, DType::F32]);
    let count = writer.constant(1.0 / width as f64);
    let centred = writer.apply(Sub, &[0, 3]);
    let normal = writer.apply(Mul, &[centred, 4]);
    let scaled = writer.apply(Mul, &[1, 2]);
    let along = writer.apply(Mul, &[scaled, normal]);
    let along = writer.reduce(Reduction::Sum, along);
    let along = writer.apply(Mul, &[along, count]);
    let along = writer.apply(Mul, &[normal, along]);
    let sum = writer.reduce(Reduction::Sum, scaled);
    let mean = writer.apply(Mul, &[sum, count]);
    let slope = writer.apply(Sub, &[scaled, mean]);
    let slope = writer.apply(Sub, &[slope, along]);
    let slope = writer.apply(Mul, &[slope, 4]);
    let slope = writer.apply(Add, &[slope, 5]);
    let weight = writer.apply(Mul, &[1, normal]);
    writer.finish(&[(slope, DType::F32), (slope, dtype), (weight, DType::F32), (1, DType::F32)])
}

/// The gradient of the logits of each row's class, of `classes` classes in rows that may be longer: the largest logit
/// and the logarithm of the sum of exponentials, and the gradient. Its inputs are logits, columns that are counted, and
/// of each row its class and the cotangent.
pub fn cross_entropy(dtype: DType, classes: usize) -> FusedProgram {
    use ScalarOp::*;
    let mut writer = Writer::new(&[dtype, DType::I32, DType::I32, DType::F32]);
    let [count, none, nothing] = [classes as f64, f64::NEG_INFINITY, 0.0].map(|number| writer.constant(number));
    let inside = writer.apply(Lt, &[1, count]);
    let masked = writer.apply(Select, &[inside, 0, none]);
    let max = writer.reduce(Reduction::Max, masked);
    let shifted = writer.apply(Sub, &[0, max]);
    let exp = writer.apply(Exp, &[shifted]);
    let counted = writer.apply(Select, &[inside, exp, nothing]);
    let sum = writer.reduce(Reduction::Sum, counted);
    let log = writer.apply(Log, &[sum]);
    let difference = writer.apply(Sub, &[shifted, log]);
    let part = writer.apply(Exp, &[difference]);
    let hit = writer.apply(Eq, &[1, 2]);
    let hit = writer.convert(DType::F32, hit);
    let slope = writer.apply(Sub, &[part, hit]);
    let slope = writer.apply(Mul, &[slope, 3]);
    let slope = writer.convert(dtype, slope);
    let slope = writer.apply(Select, &[inside, slope, nothing]);
    writer.finish(&[(max, DType::F32), (log, DType::F32), (slope, dtype)])
}
