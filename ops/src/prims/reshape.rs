use fulgurite_ops_macros::operator;

use super::support::rearranged;

/// The same elements, in row-major order, in another shape of as many elements.
#[operator(prim, torch = "reshape", overload = Reshape, elements = reshape)]
pub mod reshape {
    fn reshape(input: Tensor, shape: Vec<usize>) -> Tensor;

    fn meta(input: &TensorMeta, shape: &[usize]) -> Result<TensorMeta> {
        let result = input.with_shape(shape);
        require!(
            result.len() == input.len(),
            ElementCount,
            "shape is {shape:?} ({} elements), input has shape {:?} ({} elements)",
            result.len(),
            input.shape(),
            input.len()
        );
        Ok(result)
    }

    fn view(input: &Strided, shape: &[usize]) -> Option<View> {
        if input.meta.is_empty() {
            return Some(View { strides: vec![0; shape.len()], offset: 0 });
        }
        // Runs of dimensions that follow one another without a gap, innermost first: elements and inner stride.
        let mut runs: Vec<(usize, isize)> = Vec::new();
        let mut end = None;
        for (&extent, &stride) in
            input.meta.shape().iter().zip(&input.strides).rev().filter(|(extent, _)| **extent != 1)
        {
            match runs.last_mut() {
                Some((len, _)) if end == Some(stride) => *len *= extent,
                _ => runs.push((extent, stride)),
            }
            end = Some(stride * extent as isize);
        }
        // Every run must be cut into dimensions of its own.
        let mut strides = vec![0; shape.len()];
        let mut runs = runs.into_iter();
        let (mut left, mut stride) = (1, 1);
        for (dim, &extent) in shape.iter().enumerate().rev().filter(|(_, extent)| **extent != 1) {
            if left == 1 {
                (left, stride) = runs.next()?;
            }
            if left % extent != 0 {
                return None;
            }
            strides[dim] = stride;
            left /= extent;
            stride *= extent as isize;
        }
        Some(View { strides, offset: 0 })
    }

    fn grad(input: Tensor, shape: &[usize]) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (reshape(input, shape), move |d_out: Tensor| Grads { input: reshape(d_out, input.shape()) })
    }

    fn reference(input: &ReferenceTensor, shape: &[usize]) -> ReferenceTensor {
        let from = input.shape().to_vec();
        rearranged(input, shape, Scalar::Int(0), |index| {
            let mut flat = index.iter().zip(shape).fold(0, |flat, (i, extent)| flat * extent + i);
            let mut source = vec![0; from.len()];
            for (at, extent) in source.iter_mut().zip(&from).rev() {
                *at = flat % extent;
                flat /= extent;
            }
            Some(source)
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([]), []));
        s.case(with(s.normal([]), [1, 1]));
        s.case(with(s.normal([1, 1]), []));
        s.case(with(s.normal([4, 6]), [24]));
        s.case(with(s.normal([4, 6]), [2, 2, 3, 2]));
        s.case(with(s.normal([4, 6]), [6, 4]));
        s.case(with(s.normal([3, 1, 5]), [5, 1, 3]));
        s.case(with(s.normal([0, 3]), [7, 0]));
        s.case(with(s.normal([67, 65]), [65, 67, 1]));
        // Extents of two, which are not ones.
        s.case(with(s.normal([2, 3, 4]), [6, 4]));
        s.case(with(s.normal([3, 2, 2]), [3, 4]));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ElementCount, with(e.normal([2, 3]), [4]), "shape is [4] (4 elements)");
    }
}
