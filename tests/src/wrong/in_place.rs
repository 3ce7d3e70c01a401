//! Kernel symbols that say that a result may be written over their operand: one that permutes, one that takes slices of what is
//! not its alone, and a right one beside them.

use fulgurite_ops_macros::operator;

use crate::kernels::careless;

/// The elements from the last to the first, which are not read before they are written over.
#[operator(name = "wrong::reversed_in_place", executor = careless, in_place, no_grad = "of no interest here")]
pub mod reversed_in_place {
    fn reversed_in_place(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let missing = || Failure::new("Layout", "expected contiguous f32");
        let (input, out) =
            (input.elements::<f32>().ok_or_else(missing)?, out.elements_mut::<f32>().ok_or_else(missing)?);
        for i in 0..out.len() {
            out.set(i, input.get(out.len() - 1 - i));
        }
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let mut reversed: Vec<f64> = input.iter().copied().collect();
        reversed.reverse();
        ArrayD::from_shape_vec(input.raw_dim(), reversed).unwrap_or_else(|_| input.clone())
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::F32 {
            s.case(with(s.normal([4])));
        }
    }
}

/// The elements from the last to the first, by slices of memory that is not the kernel's alone.
#[operator(name = "wrong::slices_in_place", executor = careless, in_place, no_grad = "of no interest here")]
pub mod slices_in_place {
    fn slices_in_place(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let missing = || Failure::new("Layout", "expected contiguous f32");
        let (input, out) =
            (input.as_slice::<f32>().ok_or_else(missing)?, out.as_mut_slice::<f32>().ok_or_else(missing)?);
        for (out, input) in out.iter_mut().zip(input.iter().rev()) {
            *out = *input;
        }
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let mut reversed: Vec<f64> = input.iter().copied().collect();
        reversed.reverse();
        ArrayD::from_shape_vec(input.raw_dim(), reversed).unwrap_or_else(|_| input.clone())
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::F32 {
            s.case(with(s.normal([4])));
        }
    }
}

/// `-input`, as it should be done in place: nothing is wrong with it.
#[operator(name = "wrong::negated_in_place", executor = careless, in_place, no_grad = "of no interest here")]
pub mod negated_in_place {
    fn negated_in_place(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let missing = || Failure::new("Layout", "expected contiguous f32");
        let (input, out) =
            (input.elements::<f32>().ok_or_else(missing)?, out.elements_mut::<f32>().ok_or_else(missing)?);
        for i in 0..out.len() {
            out.set(i, -input.get(i));
        }
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        -input
    }

    fn samples(s: &mut Samples) {
        if s.dtype() == DType::F32 {
            s.case(with(s.normal([4])));
        }
    }
}
