//! Copies between tensors that are dense along different dimensions, in blocks of whole cache lines.

use crate::parallel::{Shared, for_ranges};
use crate::view::{TensorMut, TensorRef};
use crate::walk::Walk;

/// Rows and columns of a block: both sides of it fit the first-level cache.
const BLOCK: usize = 32;
/// Extents below this are not worth a block.
const SHORTEST: usize = 8;

/// Copies `source` to `target` (of one shape and element type) and says so, if they are dense along two different
/// dimensions; otherwise does nothing.
pub(crate) fn transpose(source: &TensorRef<'_>, target: &mut TensorMut<'_>) -> bool {
    let shape = source.shape();
    let dense = |strides: &[isize]| (0..shape.len()).find(|&axis| strides[axis] == 1 && shape[axis] >= SHORTEST);
    let (Some(along), Some(across)) = (dense(source.strides()), dense(target.strides())) else { return false };
    if along == across || source.dtype() != target.dtype() || source.is_empty() {
        return false;
    }
    match source.dtype().size() {
        1 => blocks::<u8>(source, target, along, across),
        2 => blocks::<u16>(source, target, along, across),
        4 => blocks::<u32>(source, target, along, across),
        _ => blocks::<u64>(source, target, along, across),
    }
    true
}

/// `along` is the dimension in which the source is dense, `across` that of the target.
fn blocks<T: Copy>(source: &TensorRef<'_>, target: &mut TensorMut<'_>, along: usize, across: usize) {
    let shape = source.shape();
    let (source_strides, target_strides) = (source.strides(), target.strides());
    let others = Walk::new(
        (0..shape.len())
            .filter(|&axis| axis != along && axis != across)
            .map(|axis| (shape[axis], [source_strides[axis], target_strides[axis]])),
    );
    let (rows, columns) = (shape[along], shape[across]);
    let (row_blocks, column_blocks) = (rows.div_ceil(BLOCK), columns.div_ceil(BLOCK));
    let (source_step, target_step) = (source_strides[across], target_strides[along]);
    let start = Shared::new(source.as_ptr().cast_mut());
    let address = Shared::new(target.as_mut_ptr());
    for_ranges(others.len() * row_blocks * column_blocks, source.len(), |range| {
        for unit in range {
            let (position, block) = (unit / (row_blocks * column_blocks), unit % (row_blocks * column_blocks));
            let [source_base, target_base] = others.offsets(position);
            let (first_row, first_column) = (block % row_blocks * BLOCK, block / row_blocks * BLOCK);
            for row in first_row..rows.min(first_row + BLOCK) {
                let (row, first) = (row as isize, first_column as isize);
                // SAFETY: elements of both views; blocks share none of the target's.
                unsafe {
                    let from = start.get().cast_const().cast::<T>().offset(source_base + row + first * source_step);
                    let to = address.get().cast::<T>().offset(target_base + row * target_step + first);
                    for column in 0..BLOCK.min(columns - first_column) {
                        to.add(column).write(from.offset(column as isize * source_step).read());
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::elementwise::copy;
    use crate::view::contiguous_strides;
    use crate::{DType, TensorMut, TensorRef};

    #[test]
    fn every_permutation_of_a_batch_of_matrices() {
        let shape = [3, 40, 71];
        let dense = contiguous_strides(&shape);
        let data: Vec<i32> = (0..3 * 40 * 71).collect();
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let permuted = order.map(|axis| shape[axis]);
            let strides = order.map(|axis| dense[axis]);
            let out_strides = contiguous_strides(&permuted);
            let mut out = vec![-1; data.len()];
            // SAFETY: a permutation of a dense view.
            let source = unsafe { TensorRef::new(DType::I32, &permuted, &strides, data.as_ptr().cast()) };
            copy(source, TensorMut::from_slice(&mut out, &permuted, &out_strides));
            for (position, &value) in out.iter().enumerate() {
                let index = [
                    position / (permuted[1] * permuted[2]),
                    position / permuted[2] % permuted[1],
                    position % permuted[2],
                ];
                let offset: isize = index.iter().zip(&strides).map(|(&index, &stride)| index as isize * stride).sum();
                assert_eq!(value as isize, offset);
            }
        }
    }
}
