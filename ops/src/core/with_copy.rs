use fulgurite_ops_macros::{operator, rewrite};

use super::promotion::constant_like;
use crate::prims;

/// `input`, of which `copy` has the values rounded to another element type: where the result is converted to that type,
/// the copy is read and nothing is converted. An update of `input` must update `copy` with it. Gradients are those of
/// `input`; none flows to the copy.
///
/// Nothing checks that the values are the same. A program whose rewrites are off converts, and never reads the copy.
#[operator(waive(copy = "the result is input; what reads the copy is the rewrite read_copy"))]
pub mod with_copy {
    fn with_copy(input: Tensor<Floating>, copy: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta, copy: &TensorMeta) -> Result<TensorMeta> {
        require!(
            copy.shape() == input.shape(),
            CopyShape,
            "copy has shape {:?}, input {:?}",
            copy.shape(),
            input.shape()
        );
        require!(
            copy.dtype() != input.dtype(),
            CopyDType,
            "copy is {} as input is, expected another element type",
            copy.dtype()
        );
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, _copy: Tensor) -> Tensor {
        input
    }

    fn grad(input: Tensor, copy: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (with_copy(input, copy), move |d_out: Tensor| Grads { input: d_out, copy: constant_like(copy, 0.0) })
    }

    fn reference(input: &ArrayD<f64>, _copy: &ArrayD<f64>) -> ArrayD<f64> {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        let other = if s.dtype() == DType::BF16 { DType::F16 } else { DType::BF16 };
        for shape in [&[][..], &[7], &[4, 8], &[0, 3], &[65, 67]] {
            s.case(with(s.normal(shape), s.normal(shape).cast(other)));
        }
    }

    fn errors(e: &mut ErrorSamples) {
        let other = if e.dtype() == DType::BF16 { DType::F16 } else { DType::BF16 };
        e.case(CopyShape, with(e.normal([3, 2]), e.of(other, [2, 3])), "copy has shape [2, 3], input [3, 2]");
        e.case(CopyDType, with(e.normal([3]), e.normal([3])), "as input is, expected another element type");
    }
}

/// Reads a copy where a tensor is converted to the copy's element type.
#[rewrite(default, late, keep_inner)]
pub mod read_copy {
    fn pattern(input: Tensor, copy: Tensor) -> Tensor {
        prims::convert_element_type(with_copy(input, copy), copy.dtype())
    }

    fn replacement(_input: Tensor, copy: Tensor) -> Tensor {
        copy
    }

    fn samples(s: &mut Samples) {
        // Numbers that all types of 16 bits have.
        let values: Vec<f64> = (0..35).map(|i| f64::from(i * 3 - 50) / 8.0).collect();
        for dtype in [DType::BF16, DType::F16] {
            for shape in [&[5, 7][..], &[35]] {
                let tensor = s.values(shape, &values);
                s.case(with(tensor.clone(), tensor.cast(dtype))).forward_only("it comes after gradients are taken");
            }
        }
    }
}
