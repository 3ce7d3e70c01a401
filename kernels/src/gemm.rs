//! Products of two matrices of f32 or f64 by the kernels of `gemm-f32` and `gemm-f64`.
//!
//! The crate `gemm` chooses among kernels for five element types at run time. Those for complex numbers and f16 are
//! never asked for here and take their time to build, so the two that are used are called directly.

use smallvec::SmallVec;

use crate::dtype::{DType, Element};

pub use gemm_common::Parallelism;

/// The most elements of a result that the kernels may add by a way of their own, which they choose by its distances.
const SMALL: usize = 256;

/// `target = alpha · target + beta · left · right`, where the target is only read if `read` is set. `left` is m × k,
/// `right` k × n; each matrix is followed by the distances, in elements, of its columns and of its rows. The order in
/// which terms are added does not depend on gaps between the elements of the target.
///
/// # Safety
/// All elements of these matrices can be read, those of the target can be written, and the target shares no memory with
/// the others.
#[allow(clippy::too_many_arguments)]
pub unsafe fn gemm<T: Element>(
    m: usize,
    n: usize,
    k: usize,
    target: *mut T,
    target_columns: isize,
    target_rows: isize,
    read: bool,
    left: *const T,
    left_columns: isize,
    left_rows: isize,
    right: *const T,
    right_columns: isize,
    right_rows: isize,
    alpha: T,
    beta: T,
    parallelism: Parallelism,
) {
    // The kernels have ways of their own for vectors and small results, and take them where the target has no gaps:
    // with gaps the same terms would be added in another order.
    let special = m.min(n) <= 1 || m * n <= SMALL;
    if special && (target_columns, target_rows) != (1, n as isize) {
        let place = |row: usize, column: usize| {
            target.wrapping_offset(row as isize * target_rows + column as isize * target_columns)
        };
        let places = || (0..m).flat_map(|row| (0..n).map(move |column| place(row, column)));
        // SAFETY: the elements of the target can be read if `read` says so.
        let old = |place: *mut T| if read { unsafe { place.read() } } else { T::from_f64(0.0) };
        let mut dense: SmallVec<[T; SMALL]> = places().map(old).collect();
        let result = dense.as_mut_ptr();
        // SAFETY: the operands are the caller's, and the result has as many elements as the target.
        unsafe {
            gemm(
                m,
                n,
                k,
                result,
                1,
                n as isize,
                read,
                left,
                left_columns,
                left_rows,
                right,
                right_columns,
                right_rows,
                alpha,
                beta,
                parallelism,
            );
        }
        // SAFETY: the elements of the target can be written.
        places().zip(dense).for_each(|(place, value)| unsafe { place.write(value) });
        return;
    }
    // The kernels write columns: where rows are dense the transposed product is computed, of the transposed operands.
    let of_rows = target_columns.unsigned_abs() < target_rows.unsigned_abs();
    let ((m, n), mut target, mut left, mut right) = match of_rows {
        false => (
            (m, n),
            (target, target_columns, target_rows),
            (left, left_columns, left_rows),
            (right, right_columns, right_rows),
        ),
        true => (
            (n, m),
            (target, target_rows, target_columns),
            (right, right_rows, right_columns),
            (left, left_rows, left_columns),
        ),
    };
    // They take no negative distances in the target, nor between the columns of the left matrix: such a dimension is
    // taken from its other end, in both matrices that have it.
    if target.2 < 0 && m > 0 {
        target = (target.0.wrapping_offset((m - 1) as isize * target.2), target.1, -target.2);
        left = (left.0.wrapping_offset((m - 1) as isize * left.2), left.1, -left.2);
    }
    if target.1 < 0 && n > 0 {
        target = (target.0.wrapping_offset((n - 1) as isize * target.1), -target.1, target.2);
        right = (right.0.wrapping_offset((n - 1) as isize * right.1), -right.1, right.2);
    }
    if left.1 < 0 && k > 0 {
        left = (left.0.wrapping_offset((k - 1) as isize * left.1), -left.1, left.2);
        right = (right.0.wrapping_offset((k - 1) as isize * right.2), right.1, -right.2);
    }
    macro_rules! by {
        ($kernels:path, $type:ty) => {{
            use $kernels as kernels;
            let number = |value: T| value.to_f64() as $type;
            // SAFETY: the matrices are the caller's, whose elements have this type.
            unsafe {
                kernels::get_gemm_fn()(
                    m,
                    n,
                    k,
                    target.0.cast::<$type>(),
                    target.1,
                    target.2,
                    read,
                    left.0.cast::<$type>(),
                    left.1,
                    left.2,
                    right.0.cast::<$type>(),
                    right.1,
                    right.2,
                    number(alpha),
                    number(beta),
                    false,
                    false,
                    false,
                    parallelism,
                )
            }
        }};
    }
    match T::DTYPE {
        DType::F32 => by!(gemm_f32::gemm::f32, f32),
        DType::F64 => by!(gemm_f64::gemm::f64, f64),
        other => unreachable!("products are computed in f32 or f64, not in {other}"),
    }
}
