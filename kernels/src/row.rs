//! Operations on rows of a wide class or channel dimension: softmax, cross-entropy, layer normalization.
//!
//! Statistics are computed in f32 (f64 for f64 rows), and summed as in [`crate::reduce`].

mod cross_entropy;

pub use cross_entropy::{cross_entropy_backward, cross_entropy_forward};

use crate::dtype::DType;
use crate::elementwise::convert;
use crate::extents;
use crate::fused::{FusedNode, FusedProgram};
use crate::parallel::{Shared, for_ranges};
use crate::reduce::Reduction;
use crate::scalar::ScalarOp::{self, Add, Div, Exp, Log, Mul, Rsqrt, Sub};
use crate::scratch;
use crate::tile::Class;
use crate::tile::load::load;
use crate::vector::multiversion;
use crate::view::{TensorMut, TensorRef, contiguous_strides};

/// A fused program being written down.
#[derive(Default)]
struct Writer {
    nodes: Vec<FusedNode>,
}

impl Writer {
    fn node(&mut self, node: FusedNode) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }
    fn input(&mut self, index: u32) -> u32 {
        self.node(FusedNode::Input(index))
    }
    fn constant(&mut self, value: f64) -> u32 {
        self.node(FusedNode::Constant(value))
    }
    fn unary(&mut self, op: ScalarOp, a: u32) -> u32 {
        self.node(FusedNode::Apply(op, [a, 0, 0]))
    }
    fn binary(&mut self, op: ScalarOp, a: u32, b: u32) -> u32 {
        self.node(FusedNode::Apply(op, [a, b, 0]))
    }
    fn reduce(&mut self, reduction: Reduction, a: u32) -> u32 {
        self.node(FusedNode::Reduce(reduction, a))
    }
    fn mean(&mut self, a: u32, width: usize) -> u32 {
        let (sum, width) = (self.reduce(Reduction::Sum, a), self.constant(width as f64));
        self.binary(Div, sum, width)
    }
    fn run(self, shape: &[usize], inputs: &[TensorRef<'_>], results: &[u32], outputs: &mut [TensorMut<'_>]) {
        let program = FusedProgram {
            input_dtypes: inputs.iter().map(TensorRef::dtype).collect(),
            nodes: self.nodes,
            outputs: results.iter().copied().zip(outputs.iter().map(TensorMut::dtype)).collect(),
        };
        // Rows are of floating-point numbers: nothing here divides integers.
        let _ = program.run(shape, inputs, outputs);
    }
}

/// Rows and columns of a matrix.
fn matrix(function: &str, operand: &str, shape: &[usize]) -> (usize, usize) {
    extents::rank(function, operand, shape, 2);
    (shape[0], shape[1])
}

/// A one-dimensional tensor of a value per row, seen in the shape of the rows.
struct PerRow {
    strides: [isize; 2],
    column: [usize; 2],
}

impl PerRow {
    fn new(tensor: &TensorRef<'_>) -> PerRow {
        extents::rank("row", "a value per row", tensor.shape(), 1);
        PerRow { strides: [tensor.strides()[0], 0], column: [tensor.shape()[0], 1] }
    }
    fn spread<'a>(&'a self, tensor: TensorRef<'a>, shape: &'a [usize]) -> TensorRef<'a> {
        extents::shape("row", "a value per row", tensor.shape(), &shape[..1]);
        // SAFETY: there is an element for each row, and the stride of zero reaches nothing new.
        unsafe { tensor.part(shape, &self.strides, tensor.as_ptr()) }
    }
    fn result<'a>(&'a self, tensor: &'a mut TensorMut<'_>) -> TensorMut<'a> {
        extents::shape("row", "a value per row", tensor.shape(), &self.column[..1]);
        let first = tensor.as_mut_ptr();
        // SAFETY: the same elements in a shape with another extent of one.
        unsafe { tensor.part(&self.column, &self.strides, first) }
    }
}

/// A one-dimensional tensor of a value per column, seen in the shape of the rows.
fn per_column<'a>(tensor: TensorRef<'a>, shape: &'a [usize], strides: &'a mut [isize; 2]) -> TensorRef<'a> {
    extents::shape("row", "a value per column", tensor.shape(), &shape[1..]);
    *strides = [0, tensor.strides()[0]];
    // SAFETY: there is an element for each column, and the stride of zero reaches nothing new.
    unsafe { tensor.part(shape, strides, tensor.as_ptr()) }
}

/// The elements of a tensor, row-major, in f64.
fn in_f64(tensor: TensorRef<'_>) -> Vec<f64> {
    let mut values = scratch::zeroed(tensor.len());
    let strides = contiguous_strides(tensor.shape());
    convert(tensor, TensorMut::from_slice(&mut values, tensor.shape(), &strides));
    values
}

fn write_softmax(writer: &mut Writer) -> (u32, u32, u32) {
    let x = writer.input(0);
    let max = writer.reduce(Reduction::Max, x);
    let shifted = writer.binary(Sub, x, max);
    let exponential = writer.unary(Exp, shifted);
    let sum = writer.reduce(Reduction::Sum, exponential);
    (shifted, exponential, sum)
}

/// Softmax over the last dimension: `exp(x - max) / Σ exp(x - max)`. Both tensors have one shape of rank one or more;
/// `target` may be exactly the view of `source`. Panics if the shapes differ, or if the two share memory otherwise.
pub fn softmax(source: TensorRef<'_>, target: TensorMut<'_>) {
    extents::shape("softmax", "target", target.shape(), source.shape());
    let mut writer = Writer::default();
    let (_, exponential, sum) = write_softmax(&mut writer);
    let result = writer.binary(Div, exponential, sum);
    writer.run(source.shape(), &[source], &[result], &mut [target]);
}

/// Logarithm of the softmax over the last dimension: `x - max - log Σ exp(x - max)`. As [`softmax`] otherwise.
pub fn log_softmax(source: TensorRef<'_>, target: TensorMut<'_>) {
    extents::shape("log_softmax", "target", target.shape(), source.shape());
    let mut writer = Writer::default();
    let (shifted, _, sum) = write_softmax(&mut writer);
    let log = writer.unary(Log, sum);
    let result = writer.binary(Sub, shifted, log);
    writer.run(source.shape(), &[source], &[result], &mut [target]);
}

/// Layer normalization of each row: `(input - mean) / sqrt(variance + epsilon) · weight + bias`, in one pass over
/// memory.
///
/// `input` and `output` are `[n, c]`, `weight` and `bias` `[c]`, `mean` and `reciprocal_deviation` (1/sqrt(variance +
/// epsilon), for the backward function) `[n]`. `output` may be exactly the view of `input`. Panics if a shape is
/// another, or if a result shares memory with an operand otherwise.
pub fn layer_norm_forward(
    input: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    bias: Option<TensorRef<'_>>,
    epsilon: f64,
    output: TensorMut<'_>,
    mut mean: TensorMut<'_>,
    mut reciprocal_deviation: TensorMut<'_>,
) {
    let (rows, width) = matrix("layer_norm_forward", "input", input.shape());
    let shape = input.shape();
    extents::shape("layer_norm_forward", "output", output.shape(), shape);
    extents::shape("layer_norm_forward", "mean", mean.shape(), &[rows]);
    extents::shape("layer_norm_forward", "reciprocal_deviation", reciprocal_deviation.shape(), &[rows]);
    let mut writer = Writer::default();
    let x = writer.input(0);
    let average = writer.mean(x, width);
    let centred = writer.binary(Sub, x, average);
    let square = writer.binary(Mul, centred, centred);
    let variance = writer.mean(square, width);
    let epsilon = writer.constant(epsilon);
    let variance = writer.binary(Add, variance, epsilon);
    let reciprocal = writer.unary(Rsqrt, variance);
    let mut result = writer.binary(Mul, centred, reciprocal);
    let mut inputs = vec![input];
    let (mut weight_strides, mut bias_strides) = ([0; 2], [0; 2]);
    if let Some(weight) = weight {
        inputs.push(per_column(weight, shape, &mut weight_strides));
        let weight = writer.input(inputs.len() as u32 - 1);
        result = writer.binary(Mul, result, weight);
    }
    if let Some(bias) = bias {
        inputs.push(per_column(bias, shape, &mut bias_strides));
        let bias = writer.input(inputs.len() as u32 - 1);
        result = writer.binary(Add, result, bias);
    }
    let views = [PerRow::new(&mean.as_ref()), PerRow::new(&reciprocal_deviation.as_ref())];
    let mut outputs = [output, views[0].result(&mut mean), views[1].result(&mut reciprocal_deviation)];
    writer.run(shape, &inputs, &[result, average, reciprocal], &mut outputs);
}

/// Gradients of [`layer_norm_forward`]. `d_output`, `input` and `d_input` are `[n, c]`, `d_weight` and `d_bias` `[c]`;
/// outputs that are not wanted are `None`. `d_input` may be exactly the view of `d_output` or of `input`. Panics if a
/// shape is another, or if a result shares memory with an operand otherwise.
#[allow(clippy::too_many_arguments)]
pub fn layer_norm_backward(
    d_output: TensorRef<'_>,
    input: TensorRef<'_>,
    weight: Option<TensorRef<'_>>,
    mean: TensorRef<'_>,
    reciprocal_deviation: TensorRef<'_>,
    d_input: Option<TensorMut<'_>>,
    d_weight: Option<TensorMut<'_>>,
    d_bias: Option<TensorMut<'_>>,
) {
    let (rows, _) = matrix("layer_norm_backward", "input", input.shape());
    extents::shape("layer_norm_backward", "d_output", d_output.shape(), input.shape());
    extents::shape("layer_norm_backward", "mean", mean.shape(), &[rows]);
    extents::shape("layer_norm_backward", "reciprocal_deviation", reciprocal_deviation.shape(), &[rows]);
    for (name, gradient) in [("d_weight", &d_weight), ("d_bias", &d_bias)] {
        gradient.iter().for_each(|of| extents::shape("layer_norm_backward", name, of.shape(), &input.shape()[1..]));
    }
    if let Some(d_input) = &d_input {
        extents::shape("layer_norm_backward", "d_input", d_input.shape(), input.shape());
    }
    let operands = [
        ("d_output", Some(&d_output)),
        ("input", Some(&input)),
        ("weight", weight.as_ref()),
        ("mean", Some(&mean)),
        ("reciprocal_deviation", Some(&reciprocal_deviation)),
    ];
    for (name, operand) in operands.into_iter().filter_map(|(name, operand)| operand.map(|operand| (name, operand))) {
        // Gradients of weight and bias are written before the operands are read for that of the input.
        let of_columns = d_weight.iter().chain(&d_bias);
        of_columns.for_each(|written| extents::apart("layer_norm_backward", name, operand, written));
        extents::apart_or_same("layer_norm_backward", name, operand, d_input.as_slice());
    }
    if d_weight.is_some() || d_bias.is_some() {
        let wide = [d_output, input, mean, reciprocal_deviation].iter().any(|tensor| tensor.dtype() == DType::F64);
        if wide {
            column_gradients_f64(d_output, input, mean, reciprocal_deviation, d_weight, d_bias);
        } else {
            column_gradients_f32(d_output, input, mean, reciprocal_deviation, d_weight, d_bias);
        }
    }
    let Some(d_input) = d_input else { return };
    let (shape, width) = (input.shape(), input.shape()[1]);
    let views = [PerRow::new(&mean), PerRow::new(&reciprocal_deviation)];
    let mut inputs = vec![d_output, input, views[0].spread(mean, shape), views[1].spread(reciprocal_deviation, shape)];
    let mut writer = Writer::default();
    let [mut gradient, x, average, reciprocal] = [0, 1, 2, 3].map(|input| writer.input(input));
    let mut weight_strides = [0; 2];
    if let Some(weight) = weight {
        inputs.push(per_column(weight, shape, &mut weight_strides));
        let weight = writer.input(4);
        gradient = writer.binary(Mul, gradient, weight);
    }
    let centred = writer.binary(Sub, x, average);
    let normalized = writer.binary(Mul, centred, reciprocal);
    let product = writer.binary(Mul, gradient, normalized);
    let (mean_gradient, mean_product) = (writer.mean(gradient, width), writer.mean(product, width));
    let along = writer.binary(Mul, normalized, mean_product);
    let rest = writer.binary(Sub, gradient, mean_gradient);
    let rest = writer.binary(Sub, rest, along);
    let result = writer.binary(Mul, rest, reciprocal);
    writer.run(shape, &inputs, &[result], &mut [d_input]);
}

/// Rows whose contributions are added in f32 before they are added in f64.
const ROW_GROUP: usize = 64;

macro_rules! column_gradients {
    ($name:ident, $row:ident, $type:ty, $class:expr) => {
        multiversion! {
            fn $row[FMA](d: &[$type], x: &[$type], mean: $type, reciprocal: $type, weight: &mut [$type], bias: &mut [$type]) {
                let width = d.len();
                let (x, weight, bias) = (&x[..width], &mut weight[..width], &mut bias[..width]);
                for i in 0..width {
                    weight[i] += d[i] * ((x[i] - mean) * reciprocal);
                    bias[i] += d[i];
                }
            }
        }

        fn $name(
            d_output: TensorRef<'_>, input: TensorRef<'_>, mean: TensorRef<'_>, reciprocal_deviation: TensorRef<'_>,
            d_weight: Option<TensorMut<'_>>, d_bias: Option<TensorMut<'_>>,
        ) {
            let (rows, width) = (input.shape()[0], input.shape()[1]);
            let (mean, reciprocal) = (in_f64(mean), in_f64(reciprocal_deviation));
            let groups = rows.div_ceil(ROW_GROUP);
            let mut partial = scratch::zeroed::<$type>(groups * 2 * width);
            let address = Shared::new(partial.as_mut_ptr().cast());
            for_ranges(groups, rows * width, |range| {
                let mut tiles = [scratch::zeroed::<u64>(width), scratch::zeroed::<u64>(width)];
                for group in range {
                    // SAFETY: every group has its own part of the partial sums.
                    let sums = unsafe {
                        let start = address.get().cast::<$type>().add(group * 2 * width);
                        std::slice::from_raw_parts_mut(start, 2 * width)
                    };
                    let (weight, bias) = sums.split_at_mut(width);
                    for row in group * ROW_GROUP..rows.min((group + 1) * ROW_GROUP) {
                        for (tensor, tile) in [d_output, input].iter().zip(&mut tiles) {
                            let offset = row as isize * tensor.strides()[0] * tensor.dtype().size() as isize;
                            // SAFETY: a row of the tensor; a tile has eight bytes for each element.
                            unsafe { read_row(tensor, offset, $class, tile, width) };
                        }
                        // SAFETY: the tiles hold `width` elements of the class.
                        let [d, x] = [0, 1].map(|tile| unsafe {
                            std::slice::from_raw_parts(tiles[tile].as_ptr().cast::<$type>(), width)
                        });
                        $row(d, x, mean[row] as $type, reciprocal[row] as $type, weight, bias);
                    }
                }
            });
            for (index, target) in [d_weight, d_bias].into_iter().enumerate() {
                let Some(target) = target else { continue };
                let mut totals = scratch::zeroed::<f64>(width);
                for sums in partial.chunks(2 * width.max(1)) {
                    let sums = &sums[index * width..][..width];
                    totals.iter_mut().zip(sums).for_each(|(total, &sum)| *total += f64::from(sum));
                }
                convert(TensorRef::from_slice(&totals, &[width], &[1]), target);
            }
        }
    };
}
column_gradients!(column_gradients_f32, add_row_f32, f32, Class::F32);
column_gradients!(column_gradients_f64, add_row_f64, f64, Class::F64);

/// Reads a row of `width` elements at a byte offset into a tile of `class`.
///
/// # Safety
/// The row is part of the tensor.
unsafe fn read_row(tensor: &TensorRef<'_>, offset: isize, class: Class, tile: &mut [u64], width: usize) {
    // SAFETY: promised by the caller; a tile has room for `width` elements of any class.
    unsafe {
        let address = tensor.as_ptr().offset(offset);
        if Class::of(tensor.dtype()) == class {
            return load(tensor.dtype(), address, tensor.strides()[1], tile.as_mut_ptr().cast(), width);
        }
        let row = tensor.part(&tensor.shape()[1..], &tensor.strides()[1..], address);
        let shape = [width];
        convert(row, TensorMut::new(class.dtype(), &shape, &[1], tile.as_mut_ptr().cast()));
    }
}

#[cfg(test)]
mod tests;
