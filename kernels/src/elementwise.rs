//! Scalar programs over tensors, and strided copies.

use crate::dtype::DType;
use crate::extents;
use crate::fused::values::{Lowered, Space, Values};
use crate::fused::{DivisionByZero, FusedNode, FusedProgram};
use crate::scalar::{ScalarNode, ScalarProgram};
use crate::transpose::transpose;
use crate::view::{TensorMut, TensorRef};

/// Computes `program` for every element: its n-th result is stored, converted, to `outputs[n]`.
///
/// All inputs and outputs have one shape; inputs may be broadcast by zero strides. The arithmetic is that of
/// [`FusedProgram`], errors included. An output may be exactly the same view as an input. Panics if a shape differs, or
/// if an output and an input share memory otherwise.
pub fn elementwise(
    program: &ScalarProgram,
    inputs: &[TensorRef<'_>],
    numbers: &[f64],
    outputs: &mut [TensorMut<'_>],
) -> Result<(), DivisionByZero> {
    let Some(first) = outputs.first() else { return Ok(()) };
    let shape = first.shape();
    let input_dtypes: Vec<DType> = inputs.iter().map(TensorRef::dtype).collect();
    let output_dtypes: Vec<DType> = outputs.iter().map(TensorMut::dtype).collect();
    FusedProgram::of(program, numbers, input_dtypes, output_dtypes).run(shape, inputs, outputs)
}

/// The type in which each node of `program` is computed (`bool`, `i64`, `f32` or `f64`), or `None` for numbers and for
/// arithmetic among numbers, which take the type of what they are combined with.
pub fn compute_dtypes(program: &ScalarProgram, inputs: &[DType], outputs: &[DType]) -> Vec<Option<DType>> {
    let count = program.nodes.iter().filter(|node| matches!(node, ScalarNode::Number(_))).count();
    let spaces = vec![Space::Full; inputs.len()];
    // A number without a fraction stands for all: a type must not depend on a run-time value.
    let fused = FusedProgram::of(program, &vec![1.0; count], inputs.to_vec(), outputs.to_vec());
    let values = Values::new(&fused, &spaces);
    let dtype = |lowered: &Lowered| match lowered {
        Lowered::Number(_) => None,
        Lowered::Value(value) => Some(values.list[*value as usize].class.dtype()),
    };
    values.nodes.iter().map(dtype).collect()
}

/// Copies `source` to `target`, which have one shape, converting elements as PyTorch does: floating-point numbers
/// truncate towards zero to integers, integers wrap, and whatever is not zero is true. Panics if their shapes differ,
/// or if they share memory otherwise than as one and the same view.
pub fn convert(source: TensorRef<'_>, mut target: TensorMut<'_>) {
    extents::shape("convert", "target", target.shape(), source.shape());
    extents::apart_or_same("convert", "source", &source, std::slice::from_ref(&target));
    if transpose(&source, &mut target) {
        return;
    }
    let program = FusedProgram {
        input_dtypes: vec![source.dtype()],
        nodes: vec![FusedNode::Input(0)],
        outputs: vec![(0, target.dtype())],
    };
    program
        .run(source.shape(), &[source], std::slice::from_mut(&mut target))
        .unwrap_or_else(|error| unreachable!("a conversion divides nothing: {error}"));
}

/// Copies `source` to `target`, which have one shape and one element type, whatever their strides. Panics if either
/// differs, or if they share memory as [`convert`] does not take it.
pub fn copy(source: TensorRef<'_>, target: TensorMut<'_>) {
    extents::dtype("copy", "target", target.dtype(), source.dtype());
    convert(source, target);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Buffer;
    use crate::dtype::Element;
    use crate::scalar::{Expr, ScalarOp};
    use crate::view::contiguous_strides;

    fn unary<A: Element, B: Element>(input: &[A], zero: B, rule: fn(Expr) -> Expr) -> Vec<B> {
        computed(input, zero, rule, false)
    }

    fn computed<A: Element, B: Element>(input: &[A], zero: B, rule: fn(Expr) -> Expr, divides_by_zero: bool) -> Vec<B> {
        let program = ScalarProgram::record(1, 0, |x, _| vec![rule(x[0])]);
        let mut out = vec![zero; input.len()];
        let shape = [input.len()];
        let done = elementwise(
            &program,
            &[TensorRef::from_slice(input, &shape, &[1])],
            &[],
            &mut [TensorMut::from_slice(&mut out, &shape, &[1])],
        );
        assert_eq!(done.is_err(), divides_by_zero);
        out
    }

    #[test]
    fn every_pair_of_types_converts_through_any_strides() {
        for from in DType::REAL {
            for to in DType::REAL {
                let shape = [3, 5];
                let values: Vec<f64> = (0..15).map(|i| f64::from(i % 2)).collect();
                let mut source = Buffer::zeroed(15 * from.size()).unwrap();
                let mut target = Buffer::zeroed(15 * to.size()).unwrap();
                let mut back = vec![f64::NAN; 15];
                let (rows, columns) = (contiguous_strides(&shape), [1, 3]);
                // SAFETY: fifteen elements fit each buffer, however they are ordered.
                unsafe {
                    let source_address = source.as_bytes_mut().as_mut_ptr();
                    let target_address = target.as_bytes_mut().as_mut_ptr();
                    convert(
                        TensorRef::from_slice(&values, &shape, &rows),
                        TensorMut::new(from, &shape, &columns, source_address),
                    );
                    convert(
                        TensorRef::new(from, &shape, &columns, source_address),
                        TensorMut::new(to, &shape, &rows, target_address),
                    );
                    convert(
                        TensorRef::new(to, &shape, &rows, target_address),
                        TensorMut::from_slice(&mut back, &shape, &rows),
                    );
                }
                assert_eq!(back, values, "{from} to {to}");
            }
        }
    }

    #[test]
    fn integers_wrap_and_truncate() {
        assert_eq!(unary(&[300.0f32, -1.0, 3.7, -3.7], 0u8, |x| x), [44, 255, 3, 253]);
        assert_eq!(unary(&[i32::MAX], 0i32, |x| x + 1.0), [i32::MIN]);
        assert_eq!(unary(&[-7i64, 7], 0i64, |x| x / 2.0), [-3, 3]);
        assert_eq!(unary(&[1i64, 0], 0i64, |x| x.gt(0.5).select(10.0, 20.0)), [10, 20]);
        assert_eq!(computed(&[5i32], 0i32, |x| x.remainder(Expr::constant(0.0)), true), [0]);
        assert_eq!(computed(&[5i32, 7, 0], 0i32, |x| 35.0 / x, true), [7, 5, 0]);
        assert_eq!(unary(&[5.0f32], 0f32, |x| x / 0.0), [f32::INFINITY]);
    }

    #[test]
    fn nan_and_infinity() {
        let nan = f32::NAN;
        let out = unary(&[nan, 1.0, -1.0], 0f32, |x| x.maximum(0.0));
        assert!(out[0].is_nan() && out[1..] == [1.0, 0.0]);
        let out = unary(&[nan, 1.0], 0f32, |x| Expr::constant(2.0).minimum(x));
        assert!(out[0].is_nan() && out[1] == 1.0);
        assert_eq!(unary(&[nan, -0.0, -3.0], 1f32, Expr::sign), [0.0, 0.0, -1.0]);
        assert_eq!(unary(&[nan, f32::INFINITY, 3.0], 0u8, |x| x.is_finite()), [0, 0, 1]);
        assert_eq!(unary(&[2f32, 0.0], 0u8, |x| !x), [0, 1]);
    }

    #[test]
    fn a_long_program_over_many_elements() {
        let x: Vec<f32> = (0..200_003).map(|i| i as f32 * 1e-4 - 10.0).collect();
        let out = unary(&x, 0f32, |x| 0.5 * x * (1.0 + (x * std::f64::consts::FRAC_1_SQRT_2).erf()));
        for (&x, &got) in x.iter().zip(&out) {
            let x = f64::from(x);
            let exact = 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
            assert!((f64::from(got) - exact).abs() < 2e-6, "{got} for {exact}");
        }
    }

    #[test]
    fn types_of_nodes() {
        let program = ScalarProgram::record(2, 1, |x, n| vec![x[0].lt(n[0]).select(x[1] * n[0], x[0])]);
        let dtypes = compute_dtypes(&program, &[DType::I32, DType::BF16], &[DType::BF16]);
        assert_eq!(
            dtypes,
            [Some(DType::I64), Some(DType::F32), None, Some(DType::Bool), Some(DType::F32), Some(DType::F32)]
        );
        assert!(matches!(program.nodes[3], ScalarNode::Apply(ScalarOp::Lt, _)));
    }
}
