//! Kernel symbols that say that a result may be written over their operand: ones that permute, take slices of what is
//! not theirs alone, or leave the work to building blocks that read elements after they have written others; and right
//! ones beside them.

use fulgurite_ops_macros::operator;
use fulgurite_runtime::Failure;
use fulgurite_runtime::kernels::{elementwise, matmul, reduce, row, windows};
use fulgurite_runtime::rules::{ArrayD, TensorMut, TensorRef};

use crate::kernels::careless;

type Done = Result<(), Failure>;

/// Declares symbols of one operand: kernel, reference, the shape of the sample, and the element type of the kernel if
/// it has one of its own.
macro_rules! in_place {
    ($(
        $(#[doc = $doc:tt])*
        $name:ident = $text:literal, $kernel:ident, $reference:ident, $shape:expr $(, $dtype:ident)?;
    )*) => {$(
        $(#[doc = $doc])*
        #[operator(name = $text, executor = careless, in_place, no_grad = "of no interest here")]
        pub mod $name {
            fn $name(input: Tensor<Floating>) -> Tensor;

            fn meta(input: &TensorMeta) -> Result<TensorMeta> {
                Ok(input.clone())
            }

            fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
                super::$kernel(input, out)
            }

            fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
                super::$reference(input)
            }

            fn samples(s: &mut Samples) {
                let own: &[DType] = &[$(DType::$dtype)?];
                if own.is_empty() || own.contains(&s.dtype()) {
                    s.case(with(s.normal($shape)));
                }
            }
        }
    )*};
}

in_place! {
    /// The elements from the last to the first, which are not read before they are written over.
    reversed_in_place = "wrong::reversed_in_place", reverse_elements, reversed, [4], F32;

    /// The elements from the last to the first, by slices of memory that is not the kernel's alone.
    slices_in_place = "wrong::slices_in_place", reverse_slices, reversed, [4], F32;

    /// `-input`, as it should be done in place: nothing is wrong with it.
    negated_in_place = "wrong::negated_in_place", negate, negated, [4], F32;

    /// The elements from the last to the first, copied from a view that goes backwards.
    copied_backwards_in_place = "wrong::copied_backwards_in_place", copy_backwards, reversed, [4];

    /// The sum of each column in every row, each row of it reduced over the operand.
    reduced_in_place = "wrong::reduced_in_place", sum_columns, column_sums, [3, 4];

    /// The product of a square matrix with itself.
    squared_in_place = "wrong::squared_in_place", multiply_by_itself, squared, [4, 4];

    /// The softmax of each row, by a building block that may have its result where its operand is: nothing is wrong
    /// with it.
    softmax_in_place = "wrong::softmax_in_place", softmax_rows, softmax, [3, 40];
}

fn not_contiguous() -> Failure {
    Failure::new("Layout", "expected contiguous f32")
}

fn reverse_elements(input: TensorRef<'_>, out: &mut TensorMut<'_>) -> Done {
    let input = input.elements::<f32>().ok_or_else(not_contiguous)?;
    let out = out.elements_mut::<f32>().ok_or_else(not_contiguous)?;
    for i in 0..out.len() {
        out.set(i, input.get(out.len() - 1 - i));
    }
    Ok(())
}

fn reverse_slices(input: TensorRef<'_>, out: &mut TensorMut<'_>) -> Done {
    let input = input.as_slice::<f32>().ok_or_else(not_contiguous)?;
    let out = out.as_mut_slice::<f32>().ok_or_else(not_contiguous)?;
    for (out, input) in out.iter_mut().zip(input.iter().rev()) {
        *out = *input;
    }
    Ok(())
}

fn negate(input: TensorRef<'_>, out: &mut TensorMut<'_>) -> Done {
    let input = input.elements::<f32>().ok_or_else(not_contiguous)?;
    let out = out.elements_mut::<f32>().ok_or_else(not_contiguous)?;
    for i in 0..out.len() {
        out.set(i, -input.get(i));
    }
    Ok(())
}

fn copy_backwards(input: TensorRef<'_>, out: &mut TensorMut<'_>) -> Done {
    let last = input.len() as isize - 1;
    let backwards = windows::LayoutInside::new((input.shape(), input.strides()), input.shape(), &[-1], last)
        .ok_or_else(|| Failure::new("Layout", "expected a contiguous vector"))?;
    if let Some(source) = backwards.of(&input) {
        elementwise::copy(source, out.reborrow());
    }
    Ok(())
}

fn sum_columns(input: TensorRef<'_>, out: &mut TensorMut<'_>) -> Done {
    let (rows, columns) = (input.shape()[0], input.shape()[1]);
    let shape = [1, columns];
    for row in 0..rows {
        let part = windows::window(out, &[row, 0], &shape);
        part.into_iter().for_each(|part| reduce::reduce(reduce::Reduction::Sum, input, &[0], part));
    }
    Ok(())
}

fn multiply_by_itself(input: TensorRef<'_>, out: &mut TensorMut<'_>) -> Done {
    matmul::matmul(input, input, out.reborrow(), false);
    Ok(())
}

fn softmax_rows(input: TensorRef<'_>, out: &mut TensorMut<'_>) -> Done {
    row::softmax(input, out.reborrow());
    Ok(())
}

fn reversed(input: &ArrayD<f64>) -> ArrayD<f64> {
    let mut reversed = input.clone();
    reversed.invert_axis(ndarray::Axis(0));
    reversed
}

fn negated(input: &ArrayD<f64>) -> ArrayD<f64> {
    -input
}

fn column_sums(input: &ArrayD<f64>) -> ArrayD<f64> {
    let sums = input.sum_axis(ndarray::Axis(0));
    sums.broadcast(input.raw_dim()).map_or_else(|| input.clone(), |all| all.to_owned())
}

fn squared(input: &ArrayD<f64>) -> ArrayD<f64> {
    let n = input.shape()[0];
    ArrayD::from_shape_fn(input.raw_dim(), |at| (0..n).map(|k| input[[at[0], k]] * input[[k, at[1]]]).sum())
}

fn softmax(input: &ArrayD<f64>) -> ArrayD<f64> {
    let mut out = input.clone();
    for mut row in out.rows_mut() {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        row.mapv_inplace(|x| x.exp() / sum);
    }
    out
}
