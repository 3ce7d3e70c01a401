use fulgurite_ops_macros::operator;

use super::{Casting, rms_norm};
use crate::prims;
use crate::prims::checks::is_like;

/// A residual stream with its normalization: `sum = input + residual`, and
/// [`rms_norm`](super::rms_norm()) of it, `out`. What a kernel that writes both in one pass implements;
/// [`merge_add_rms_norm`](super::merge_add_rms_norm) and its likes find where it may be used.
#[operator(autocast = full, waive(casting = "it decides where numbers of 16 bits are rounded, which a test allows"))]
pub mod fused_add_rms_norm {
    #[results(out, sum)]
    fn fused_add_rms_norm(
        input: Tensor<Floating>,
        residual: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(None)] eps: Option<f64>,
        #[default(0.0)] offset: f64,
        #[default(Casting::Gemma)] casting: Casting,
    ) -> (Tensor, Tensor);

    fn requires(input: &TensorMeta, residual: &TensorMeta) -> Result<()> {
        is_like(("residual", residual), input, Code::Residual)
    }

    fn decomposition(args: Args<Tensor>) -> (Tensor, Tensor) {
        let Args { input, residual, normalized_shape, weight, eps, offset, casting } = args;
        let sum = prims::add(input, residual);
        let out = rms_norm::with(sum, normalized_shape).weight(weight).eps(eps).offset(offset).casting(casting).call();
        (out, sum)
    }

    fn reference(
        input: &ReferenceTensor,
        residual: &ArrayD<f64>,
        normalized_shape: &[usize],
        weight: Option<&ArrayD<f64>>,
        eps: Option<f64>,
        offset: f64,
    ) -> (ArrayD<f64>, ArrayD<f64>) {
        let sum = input.floats() + residual;
        let eps = eps.unwrap_or(input.dtype().accumulator().epsilon());
        let columns: usize = normalized_shape.iter().product();
        let gains = weight.map_or(vec![1.0; columns], |weight| weight.iter().map(|weight| weight + offset).collect());
        let mut out = sum.clone();
        // Both are contiguous, row by row.
        for row in out.as_slice_mut().unwrap_or_default().chunks_mut(columns.max(1)) {
            let squares: f64 = row.iter().map(|x| x.powi(2)).sum();
            let root = (squares / columns as f64 + eps).sqrt();
            row.iter_mut().zip(&gains).for_each(|(x, gain)| *x *= gain / root);
        }
        (out, sum)
    }

    fn samples(s: &mut Samples) {
        let two = |shape: &[usize]| (s.normal(shape), s.normal(shape));
        let call = |shape: &[usize], columns: &[usize]| {
            let (input, residual) = two(shape);
            with(input, residual, columns)
        };
        let weight = |columns: &[usize]| s.uniform(-1.0, 1.0, columns);
        let cases = [
            call(&[4, 8], &[8]).weight(weight(&[8])).eps(1e-5),
            call(&[4, 8], &[8]),
            call(&[2, 3, 5], &[3, 5]).weight(weight(&[3, 5])),
            call(&[0, 4], &[4]).weight(weight(&[4])),
            call(&[3, 515], &[515]).weight(weight(&[515])).eps(1e-6),
            call(&[4, 8], &[8]).weight(weight(&[8])).eps(1e-5).offset(1.0),
            call(&[4, 8], &[8]).weight(weight(&[8])).eps(1e-5).casting(Casting::Llama),
        ];
        for case in cases {
            s.case(case);
        }
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Residual, with(e.normal([4, 8]), e.normal([8]), [8]), "residual");
    }
}
