//! Kernel symbols that say that a result may be written over their operand, and leave the work to building blocks that
//! read elements after they have written others.

use fulgurite_ops_macros::operator;

use crate::kernels::careless;

/// The elements from the last to the first, copied from a view that goes backwards.
#[operator(name = "wrong::copied_backwards_in_place", executor = careless, in_place, no_grad = "of no interest here")]
pub mod copied_backwards_in_place {
    use fulgurite::rules::fulgurite_kernels::elementwise::copy;
    use fulgurite::rules::fulgurite_kernels::windows::LayoutInside;

    fn copied_backwards_in_place(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let last = input.len() as isize - 1;
        let backwards = LayoutInside::new((input.shape(), input.strides()), input.shape(), &[-1], last)
            .ok_or_else(|| Failure::new("Layout", "expected a contiguous vector"))?;
        if let Some(source) = backwards.of(&input) {
            copy(source, out.reborrow());
        }
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let mut reversed: Vec<f64> = input.iter().copied().collect();
        reversed.reverse();
        ArrayD::from_shape_vec(input.raw_dim(), reversed).unwrap_or_else(|_| input.clone())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

/// The sum of each column in every row, each row of it reduced over the operand.
#[operator(name = "wrong::reduced_in_place", executor = careless, in_place, no_grad = "of no interest here")]
pub mod reduced_in_place {
    use fulgurite::rules::fulgurite_kernels::reduce::{Reduction, reduce};
    use fulgurite::rules::fulgurite_kernels::windows::window;

    fn reduced_in_place(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let (rows, columns) = (input.shape()[0], input.shape()[1]);
        let shape = [1, columns];
        for row in 0..rows {
            let part = window(out, &[row, 0], &shape);
            part.into_iter().for_each(|part| reduce(Reduction::Sum, input, &[0], part));
        }
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let sums = input.sum_axis(ndarray::Axis(0));
        sums.broadcast(input.raw_dim()).map_or_else(|| input.clone(), |all| all.to_owned())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4])));
    }
}

/// The product of a square matrix with itself.
#[operator(name = "wrong::squared_in_place", executor = careless, in_place, no_grad = "of no interest here")]
pub mod squared_in_place {
    use fulgurite::rules::fulgurite_kernels::matmul::matmul;

    fn squared_in_place(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        matmul(input, input, out.reborrow(), false);
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let n = input.shape()[0];
        ArrayD::from_shape_fn(input.raw_dim(), |at| (0..n).map(|k| input[[at[0], k]] * input[[k, at[1]]]).sum())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 4])));
    }
}

/// The softmax of each row, by a building block that may have its result where its operand is: nothing is wrong with
/// it.
#[operator(name = "wrong::softmax_in_place", executor = careless, in_place, no_grad = "of no interest here")]
pub mod softmax_in_place {
    use fulgurite::rules::fulgurite_kernels::row::softmax;

    fn softmax_in_place(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        softmax(input, out.reborrow());
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        let mut out = input.clone();
        for mut row in out.rows_mut() {
            let sum: f64 = row.iter().map(|x| x.exp()).sum();
            row.mapv_inplace(|x| x.exp() / sum);
        }
        out
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 40])));
    }
}
