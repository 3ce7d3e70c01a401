//! Fused programs against plain loops.

use super::*;
use crate::dtype::DType;
use crate::scalar::ScalarOp;
use crate::tile::reduction::Reduction;
use crate::view::{TensorMut, TensorRef, contiguous_strides};

pub(super) fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 2_654_435_761) % 4093) as f32 / 512.0 - 4.0).collect()
}

pub(super) fn softmax() -> FusedProgram {
    FusedProgram {
        input_dtypes: vec![DType::F32],
        nodes: vec![
            FusedNode::Input(0),
            FusedNode::Reduce(Reduction::Max, 0),
            FusedNode::Apply(ScalarOp::Sub, [0, 1, 0]),
            FusedNode::Apply(ScalarOp::Exp, [2, 0, 0]),
            FusedNode::Reduce(Reduction::Sum, 3),
            FusedNode::Apply(ScalarOp::Div, [3, 4, 0]),
            FusedNode::Apply(ScalarOp::Log, [4, 0, 0]),
            FusedNode::Apply(ScalarOp::Add, [1, 6, 0]),
        ],
        outputs: vec![(5, DType::F32), (7, DType::F64)],
    }
}

#[test]
fn softmax_of_rows_of_every_length() {
    for (rows, width) in [(1, 1), (5, 3), (7, 64), (3, 1000), (2, 1025), (3, 5000), (2, 50257), (2, 200_000), (0, 4)] {
        let x = numbers(rows * width);
        let mut y = vec![f32::NAN; rows * width];
        let mut log_sum = vec![f64::NAN; rows];
        let (shape, reduced) = ([rows, width], [rows, 1]);
        let (strides, reduced_strides) = (contiguous_strides(&shape), contiguous_strides(&reduced));
        softmax()
            .run(
                &shape,
                &[TensorRef::from_slice(&x, &shape, &strides)],
                &mut [
                    TensorMut::from_slice(&mut y, &shape, &strides),
                    TensorMut::from_slice(&mut log_sum, &reduced, &reduced_strides),
                ],
            )
            .unwrap();
        for row in 0..rows {
            let x = &x[row * width..][..width];
            let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = x.iter().map(|&x| f64::from(x - max).exp()).sum();
            for (index, &x) in x.iter().enumerate() {
                let exact = f64::from(x - max).exp() / sum;
                let got = f64::from(y[row * width + index]);
                assert!((got - exact).abs() <= 5e-7 * exact, "{rows}x{width}: {got} for {exact}");
            }
            let exact = f64::from(max) + sum.ln();
            assert!((log_sum[row] - exact).abs() < 1e-6 * exact.abs().max(1.0), "{} for {exact}", log_sum[row]);
        }
    }
}

#[test]
fn in_place_over_long_rows() {
    let width = 30_000;
    let x = numbers(2 * width);
    let shape = [2, width];
    let strides = contiguous_strides(&shape);
    let mut program = softmax();
    program.outputs.truncate(1);
    let mut separate = vec![0f32; 2 * width];
    program
        .run(
            &shape,
            &[TensorRef::from_slice(&x, &shape, &strides)],
            &mut [TensorMut::from_slice(&mut separate, &shape, &strides)],
        )
        .unwrap();
    let mut in_place = x.clone();
    let pointer = in_place.as_mut_ptr().cast::<u8>();
    // SAFETY: one and the same view of a live slice, as an input and as an output of one kernel.
    unsafe {
        let input = TensorRef::overlapped(DType::F32, &shape, &strides, pointer);
        let output = TensorMut::overlapped(DType::F32, &shape, &strides, pointer);
        program.run(&shape, &[input], &mut [output]).unwrap();
    }
    assert_eq!(in_place, separate);
}

/// `(x + bias) * scale`, a shift of each row, and a sum of rows: the three kinds of broadcast at once.
#[test]
fn broadcasts_and_strides() {
    let nodes = vec![
        FusedNode::Input(0),
        FusedNode::Input(1),
        FusedNode::Input(2),
        FusedNode::Input(3),
        FusedNode::Apply(ScalarOp::Add, [0, 1, 0]),
        FusedNode::Apply(ScalarOp::Mul, [4, 2, 0]),
        FusedNode::Apply(ScalarOp::Sub, [5, 3, 0]),
    ];
    let program = FusedProgram { input_dtypes: vec![DType::F32; 4], nodes, outputs: vec![(6, DType::BF16)] };
    for shape in [[2usize, 3, 5], [4, 1, 70], [3, 70, 1], [1, 2, 3000]] {
        let [a, b, c] = shape;
        let (x, bias, scale, shift) = (numbers(a * b * c), numbers(c), numbers(1), numbers(a * b));
        let mut out = vec![half::bf16::NAN; a * b * c];
        // x is read transposed, and the result is written backwards along the first dimension.
        let x_strides = [b as isize, 1, (a * b) as isize];
        let out_strides = [-((b * c) as isize), c as isize, 1];
        let (bias_strides, scale_strides, shift_strides) = ([0, 0, 1], [0, 0, 0], [b as isize, 1, 0]);
        // SAFETY: all strides stay within the vectors.
        unsafe {
            let view = |data: &[f32], strides: &'static [isize; 3]| {
                TensorRef::new(DType::F32, Box::leak(Box::new(shape)), strides, data.as_ptr().cast())
            };
            let leak = |strides: [isize; 3]| -> &'static [isize; 3] { Box::leak(Box::new(strides)) };
            let last = out.as_mut_ptr().add((a - 1) * b * c).cast();
            program
                .run(
                    &shape,
                    &[
                        view(&x, leak(x_strides)),
                        view(&bias, leak(bias_strides)),
                        view(&scale, leak(scale_strides)),
                        view(&shift, leak(shift_strides)),
                    ],
                    &mut [TensorMut::new(DType::BF16, &shape, &out_strides, last)],
                )
                .unwrap();
        }
        for i in 0..a {
            for j in 0..b {
                for k in 0..c {
                    let exact = (x[i * b + j + k * a * b] + bias[k]) * scale[0] - shift[i * b + j];
                    let got = out[((a - 1 - i) * b + j) * c + k];
                    assert_eq!(got, half::bf16::from_f32(exact), "at {i} {j} {k} of {shape:?}");
                }
            }
        }
    }
}

#[test]
fn a_reduction_of_nothing_and_of_a_broadcast() {
    let program = FusedProgram {
        input_dtypes: vec![DType::I32],
        nodes: vec![FusedNode::Input(0), FusedNode::Reduce(Reduction::Sum, 0)],
        outputs: vec![(1, DType::I64)],
    };
    for (width, stride) in [(0, 1), (7, 0)] {
        let (shape, reduced) = ([2, width], [2, 1]);
        let data = [3, 4];
        let mut out = [-1i64; 2];
        // SAFETY: the strides stay within the array.
        let input = unsafe { TensorRef::new(DType::I32, &shape, &[1, 0], data.as_ptr().cast()) };
        let _ = stride;
        program.run(&shape, &[input], &mut [TensorMut::from_slice(&mut out, &reduced, &[1, 1])]).unwrap();
        assert_eq!(out, [3 * width as i64, 4 * width as i64]);
    }
}

/// Runs a program of rows of `width` elements over inputs that are given in f32 and stored to `dtype`; gives the first
/// output.
fn run_in(program: &FusedProgram, dtype: DType, inputs: &[Vec<f32>], width: usize) -> Vec<f32> {
    use half::bf16;
    let shape = [inputs[0].len() / width, width];
    let strides = contiguous_strides(&shape);
    if dtype == DType::F32 {
        let mut out = vec![f32::NAN; inputs[0].len()];
        let inputs: Vec<TensorRef<'_>> =
            inputs.iter().map(|input| TensorRef::from_slice(input, &shape, &strides)).collect();
        program.run(&shape, &inputs, &mut [TensorMut::from_slice(&mut out, &shape, &strides)]).unwrap();
        return out;
    }
    let narrow: Vec<Vec<bf16>> =
        inputs.iter().map(|input| input.iter().map(|x| bf16::from_f32(*x)).collect()).collect();
    let mut out = vec![bf16::NAN; inputs[0].len()];
    let inputs: Vec<TensorRef<'_>> =
        narrow.iter().map(|input| TensorRef::from_slice(input, &shape, &strides)).collect();
    program.run(&shape, &inputs, &mut [TensorMut::from_slice(&mut out, &shape, &strides)]).unwrap();
    out.iter().map(|x| x.to_f32()).collect()
}

#[test]
fn what_is_converted_on_the_way_has_the_bits_of_what_is_stored() {
    use ScalarOp::*;
    // A chain of operations, each node of it converted to bf16, against a program of one operation at a time.
    let steps = [Exp, Neg, Sqrt, Tanh, Abs, Floor];
    for width in [7, 64, 1030] {
        let x = numbers(3 * width);
        let mut nodes = vec![FusedNode::Input(0)];
        let mut apart = x.clone();
        for op in [Mul, Add, Maximum, Sub, Div].iter().chain(&steps) {
            let operands = [nodes.len() as u32 - 1, 0, 0];
            nodes.push(FusedNode::Apply(*op, operands));
            nodes.push(FusedNode::Convert(DType::BF16, nodes.len() as u32 - 1));
            let one = FusedProgram {
                input_dtypes: vec![DType::BF16; 2],
                nodes: vec![FusedNode::Input(0), FusedNode::Input(1), FusedNode::Apply(*op, [0, 1, 0])],
                outputs: vec![(2, DType::BF16)],
            };
            apart = run_in(&one, DType::BF16, &[apart, x.clone()], width);
            let chain = FusedProgram {
                input_dtypes: vec![DType::BF16],
                nodes: nodes.clone(),
                outputs: vec![(nodes.len() as u32 - 1, DType::BF16)],
            };
            let fused = run_in(&chain, DType::BF16, std::slice::from_ref(&x), width);
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&fused), bits(&apart), "up to {op:?} of rows of {width}");
        }
    }
}

#[test]
fn a_power_has_the_same_bits_whether_its_exponent_is_known_or_not() {
    let x: Vec<f32> = (0..4096).map(|i| 0.001 * i as f32 + 0.3).collect();
    for exponent in [2.0, 3.0, -1.0, 0.5, 2.5] {
        let nodes = |second| vec![FusedNode::Input(0), second, FusedNode::Apply(ScalarOp::Pow, [0, 1, 0])];
        let known = FusedProgram {
            input_dtypes: vec![DType::F32],
            nodes: nodes(FusedNode::Constant(exponent)),
            outputs: vec![(2, DType::F32)],
        };
        let read = FusedProgram {
            input_dtypes: vec![DType::F32; 2],
            nodes: nodes(FusedNode::Input(1)),
            outputs: vec![(2, DType::F32)],
        };
        let known = run_in(&known, DType::F32, std::slice::from_ref(&x), 64);
        let read = run_in(&read, DType::F32, &[x.clone(), vec![exponent as f32; x.len()]], 64);
        assert_eq!(known, read, "to the power of {exponent}");
    }
}
