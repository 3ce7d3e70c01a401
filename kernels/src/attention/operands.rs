//! Tensors of heads as matrices of f32.

use std::marker::PhantomData;

use crate::dtype::DType;
use crate::elementwise::convert;
use crate::parallel::Shared;
use crate::scratch;
use crate::view::{TensorMut, TensorRef, contiguous_strides};

/// A matrix: its first element, and the distances of its rows and of its columns in elements.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub(super) first: *mut f32,
    pub(super) rows: isize,
    pub(super) columns: isize,
}

impl Matrix {
    /// Rows of `width` elements, one after another.
    pub(super) fn of_rows(first: *mut f32, width: usize) -> Matrix {
        Matrix { first, rows: width as isize, columns: 1 }
    }

    /// Without the rows before `row`.
    pub(super) fn below(self, row: usize) -> Matrix {
        Matrix { first: self.first.wrapping_offset(row as isize * self.rows), ..self }
    }

    /// With rows and columns exchanged.
    pub(super) fn turned(self) -> Matrix {
        Matrix { rows: self.columns, columns: self.rows, ..self }
    }
}

/// A tensor of four dimensions in f32: its own memory, or a copy.
pub(super) struct Heads<'a> {
    first: Shared,
    strides: [isize; 4],
    _copy: Vec<f32>,
    memory: PhantomData<&'a u8>,
}

impl<'a> Heads<'a> {
    pub(super) fn of(tensor: TensorRef<'a>) -> Heads<'a> {
        let strides = [0, 1, 2, 3].map(|dim| tensor.strides()[dim]);
        // Which distances are 1 decides how small products are summed: with rows that neither overlap nor have gaps
        // within, the shape alone does.
        let width = tensor.shape()[3];
        let as_by_shape = strides[3] == 1 && (if width == 1 { strides[2] == 1 } else { strides[2] >= width as isize });
        if tensor.dtype() == DType::F32 && as_by_shape {
            let first = Shared::new(tensor.as_ptr().cast_mut());
            return Heads { first, strides, _copy: Vec::new(), memory: PhantomData };
        }
        let mut copy = scratch::zeroed::<f32>(tensor.len());
        let strides = contiguous_strides(tensor.shape());
        convert(tensor, TensorMut::from_slice(&mut copy, tensor.shape(), &strides));
        let first = Shared::new(copy.as_mut_ptr().cast());
        Heads { first, strides: [0, 1, 2, 3].map(|dim| strides[dim]), _copy: copy, memory: PhantomData }
    }

    /// The matrix of the last two dimensions.
    pub(super) fn matrix(&self, batch: usize, head: usize) -> Matrix {
        let [of_batch, of_head, rows, columns] = self.strides;
        let offset = batch as isize * of_batch + head as isize * of_head;
        Matrix { first: self.first.get().cast::<f32>().wrapping_offset(offset), rows, columns }
    }
}

/// A result `[batch, length, heads, width]` as matrices of heads: its own memory, or f32 that is converted at the end.
pub(super) struct Results<'a> {
    target: TensorMut<'a>,
    first: Shared,
    strides: [isize; 4],
    copy: Vec<f32>,
}

impl<'a> Results<'a> {
    pub(super) fn of(mut target: TensorMut<'a>) -> Results<'a> {
        if target.dtype() == DType::F32 {
            let strides = [0, 1, 2, 3].map(|dim| target.strides()[dim]);
            let first = Shared::new(target.as_mut_ptr());
            return Results { target, first, strides, copy: Vec::new() };
        }
        let strides = contiguous_strides(target.shape());
        let mut copy = scratch::zeroed::<f32>(target.len());
        let first = Shared::new(copy.as_mut_ptr().cast());
        Results { target, first, strides: [0, 1, 2, 3].map(|dim| strides[dim]), copy }
    }

    /// The matrix of a head: a row for each position.
    pub(super) fn matrix(&self, batch: usize, head: usize) -> Matrix {
        let [of_batch, rows, of_head, columns] = self.strides;
        let offset = batch as isize * of_batch + head as isize * of_head;
        Matrix { first: self.first.get().cast::<f32>().wrapping_offset(offset), rows, columns }
    }

    /// Writes what was computed beside the target.
    pub(super) fn finish(self) {
        if self.target.dtype() != DType::F32 {
            let shape = self.target.shape();
            let strides = contiguous_strides(shape);
            convert(TensorRef::from_slice(&self.copy, shape, &strides), self.target);
        }
    }
}
