//! Products of the rows of each group: its rows are gathered, so that no matrix meets those of another.

use std::ptr::copy_nonoverlapping;

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::Failure;
use fulgurite_runtime::kernels::access::read_i64;
use fulgurite_runtime::kernels::indexing::index_select;
use fulgurite_runtime::kernels::matmul::matmul;
use fulgurite_runtime::kernels::scratch;
use fulgurite_runtime::kernels::{DType, TensorMut, TensorRef};

use super::cpu;
use fulgurite_ops::nn::experts_by_group;

/// The rows of each of `count` groups, and those of none.
fn rows_of(groups: TensorRef<'_>, count: usize) -> (Vec<Vec<i64>>, Vec<i64>) {
    let groups = read_i64(&groups);
    let group_of = |group: i64| usize::try_from(group).ok().filter(|group| *group < count).unwrap_or(count);
    // The last is of those in no group.
    let mut sizes = scratch::filled(0_usize, count + 1);
    groups.iter().for_each(|group| sizes[group_of(*group)] += 1);
    let mut of_groups = scratch::collected(sizes.into_iter().map(scratch::room));
    (0..).zip(groups).for_each(|(row, group)| of_groups[group_of(group)].push(row));
    let of_none = of_groups.pop().unwrap_or_default();
    (of_groups, of_none)
}

/// A contiguous matrix in memory of its own.
struct Matrix {
    dtype: DType,
    shape: [usize; 2],
    strides: [isize; 2],
    words: Vec<u64>,
}

impl Matrix {
    fn zeros(dtype: DType, shape: [usize; 2]) -> Matrix {
        let bytes = shape[0] * shape[1] * dtype.size();
        Matrix {
            dtype,
            shape,
            strides: [shape[1] as isize, 1],
            words: scratch::zeroed(bytes.div_ceil(size_of::<u64>())),
        }
    }

    /// Some rows of a matrix, one after another.
    fn gathered(matrix: TensorRef<'_>, rows: &[i64]) -> Result<Matrix, Failure> {
        let mut own = Matrix::zeros(matrix.dtype(), [rows.len(), matrix.shape()[1]]);
        let (count, step) = ([rows.len()], [1]);
        index_select(matrix, 0, TensorRef::from_slice(rows, &count, &step), own.view_mut())
            .map_err(|error| Failure::new("IndexOutOfRange", format!("{error:?}")))?;
        Ok(own)
    }

    /// Fails unless the words hold every element.
    fn check(&self) {
        let bytes = self.shape[0] * self.shape[1] * self.dtype.size();
        assert!(bytes <= size_of_val(&self.words[..]), "{:?} of {} are more than the memory", self.shape, self.dtype);
    }

    fn view(&self) -> TensorRef<'_> {
        self.check();
        // SAFETY: the words hold every element, and are aligned for the largest of them.
        unsafe { TensorRef::new(self.dtype, &self.shape, &self.strides, self.words.as_ptr().cast()) }
    }

    fn view_mut(&mut self) -> TensorMut<'_> {
        self.check();
        // SAFETY: as above, and borrowed alone.
        unsafe { TensorMut::new(self.dtype, &self.shape, &self.strides, self.words.as_mut_ptr().cast()) }
    }

    /// Writes each row where it belongs in a contiguous matrix of this width and type.
    fn scatter(&self, rows: &[i64], target: &mut TensorMut<'_>) {
        assert!(target.is_contiguous() && target.dtype() == self.dtype && target.shape()[1] == self.shape[1]);
        self.check();
        let bytes = self.shape[1] * self.dtype.size();
        for (from, to) in rows.iter().enumerate() {
            let to = *to as usize;
            assert!(to < target.shape()[0] && from < self.shape[0]);
            // SAFETY: a row of this matrix, and one of the target, whose memory is another's.
            unsafe {
                let from = self.words.as_ptr().cast::<u8>().add(from * bytes);
                copy_nonoverlapping(from, target.as_mut_ptr().add(to * bytes), bytes);
            }
        }
    }
}

/// A contiguous matrix with its dimensions exchanged: the strides of the view.
fn across(shape: &[usize]) -> ([usize; 2], [isize; 2]) {
    ([shape[1], shape[0]], [1, shape[1] as isize])
}

#[implementation(of = fulgurite_ops::nn::grouped_linear, by = cpu)]
mod grouped_linear_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(Args { input, weights, groups, turned }: Args<TensorRef>, out: &mut TensorMut) -> Result<()> {
        let (of_groups, of_none) = super::rows_of(groups, weights.len());
        let outputs = out.shape()[1];
        for (weight, rows) in weights.iter().zip(&of_groups).filter(|(_, rows)| !rows.is_empty()) {
            let mut products = super::Matrix::zeros(out.dtype(), [rows.len(), outputs]);
            let own = super::Matrix::gathered(input, rows)?;
            let (shape, strides) = super::across(weight.shape());
            // SAFETY: the same elements of a contiguous matrix, column by column.
            let columns = unsafe { TensorRef::new(weight.dtype(), &shape, &strides, weight.as_ptr()) };
            super::matmul(own.view(), if turned { *weight } else { columns }, products.view_mut(), false);
            products.scatter(rows, out);
        }
        super::Matrix::zeros(out.dtype(), [of_none.len(), outputs]).scatter(&of_none, out);
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::nn::grouped_outer, by = cpu)]
mod grouped_outer_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(left: TensorRef, right: TensorRef, groups: TensorRef, count: usize, out: &mut [TensorMut]) -> Result<()> {
        let (of_groups, _) = super::rows_of(groups, count);
        for (rows, out) in of_groups.iter().zip(out) {
            let (left, right) = (super::Matrix::gathered(left, rows)?, super::Matrix::gathered(right, rows)?);
            let (shape, strides) = super::across(&left.shape);
            // SAFETY: the same elements of a contiguous matrix, column by column.
            let columns = unsafe { TensorRef::new(left.dtype, &shape, &strides, left.view().as_ptr()) };
            super::matmul(columns, right.view(), out.reborrow(), false);
        }
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::nn::experts_mlp, by = cpu)]
mod experts_mlp_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn execution(Args { input, gates, ups, downs, experts, shares }: Args<Tensor>) -> Tensor {
        experts_by_group(input, gates, ups, downs, experts, shares).0
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let Args { input, gates, ups, downs, experts, shares } = args;
        let (out, back) = experts_by_group(input, gates, ups, downs, experts, shares);
        (out, move |d_out: Tensor| {
            let fulgurite_ops::nn::ExpertGradients { input, gates, ups, downs, shares } = back(d_out);
            Grads { input, gates, ups, downs, shares }
        })
    }
}
