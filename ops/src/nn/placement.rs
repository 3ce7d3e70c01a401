//! How the windows of convolutions and pools are placed.

use fulgurite_runtime::argument::Scalar;
use fulgurite_runtime::rules::{ArrayD, Failure, Precondition, ReferenceTensor};
use fulgurite_runtime::{DType, Device, Tensor, TensorMeta};

use crate::prims;

/// The windows along one dimension: window `o` has the elements `o * step + k * dilation - low` of the tensor, `k`
/// below `size`. Those before the first element and behind the last are padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Elements of the tensor.
    pub extent: usize,
    /// Elements of padding before them.
    pub low: usize,
    /// Elements of a window.
    pub size: usize,
    /// Elements from one window to the next.
    pub step: usize,
    /// Elements from one element of a window to the next.
    pub dilation: usize,
    /// The number of windows.
    pub count: usize,
}

impl Placement {
    /// Elements that one window reaches over.
    pub fn span(&self) -> usize {
        self.size.saturating_sub(1).saturating_mul(self.dilation).saturating_add(1)
    }

    /// Elements that all windows reach over.
    pub fn reach(&self) -> usize {
        if self.count == 0 { 0 } else { (self.count - 1).saturating_mul(self.step).saturating_add(self.span()) }
    }

    /// Elements of padding behind the tensor that windows reach.
    pub fn high(&self) -> usize {
        self.reach().saturating_sub(self.low.saturating_add(self.extent))
    }
}

/// As many whole windows as the tensor has room for with `low` and `high` elements of padding; with `ceil` one more
/// that starts inside of the tensor or of the padding before it, if elements are left. None if the tensor has room for
/// no window.
pub(crate) fn whole_windows(mut placed: Placement, high: usize, ceil: bool) -> Placement {
    let padded = placed.extent.saturating_add(placed.low).saturating_add(high);
    let span = placed.span();
    let step = placed.step.max(1);
    placed.count = match padded.checked_sub(span) {
        Some(rest) if ceil => rest.div_ceil(step).saturating_add(1),
        Some(rest) => rest / step + 1,
        // The one window is longer than what there is, by less than a step.
        None if ceil && span - padded < step => 1,
        None => 0,
    };
    let inside = placed.extent.saturating_add(placed.low);
    if ceil && placed.count > 0 && (placed.count - 1).saturating_mul(step) >= inside {
        placed.count -= 1;
    }
    placed
}

/// A number for each of `rank` dimensions: one number is that of all. `None` if there are others.
pub(crate) fn for_each<T: Clone>(numbers: &[T], rank: usize) -> Option<Vec<T>> {
    match numbers {
        [one] => Some(vec![one.clone(); rank]),
        all if all.len() == rank => Some(all.to_vec()),
        _ => None,
    }
}

/// For metas: fails with the caller's code unless a list has one number, or one for each of `rank` dimensions.
pub(crate) fn fits_dimensions<T: Clone + std::fmt::Debug>(
    (name, numbers): (&str, &[T]),
    rank: usize,
    code: Precondition,
) -> Result<(), Failure> {
    match for_each(numbers, rank) {
        Some(_) => Ok(()),
        None if rank == 1 => Err(code.unmet(format_args!("{name} is {numbers:?}, expected one number"))),
        None => Err(code.unmet(format_args!("{name} is {numbers:?}, expected one number or {rank}"))),
    }
}

/// For metas: as [`fits_dimensions`], of positive numbers.
pub(crate) fn positive_for_each(
    (name, numbers): (&str, &[usize]),
    rank: usize,
    [length, positive]: [Precondition; 2],
) -> Result<(), Failure> {
    fits_dimensions((name, numbers), rank, length)?;
    if numbers.contains(&0) {
        return Err(positive.unmet(format_args!("{name} is {numbers:?}, expected positive numbers")));
    }
    Ok(())
}

/// For metas: whether memory holds a tensor of this shape, of any element type.
pub(crate) fn addressable(shape: &[usize]) -> bool {
    TensorMeta::new(shape, DType::I64, Device::CPU).addressable().is_ok()
}

/// For metas: whether memory holds windows and the padded tensor that has them; `leading` are the extents of its other
/// dimensions.
pub(crate) fn addressable_windows(leading: &[usize], placed: &[Placement]) -> bool {
    let column = |of: fn(&Placement) -> usize| placed.iter().map(of).collect::<Vec<_>>();
    let padded = column(|p| p.low.saturating_add(p.extent).max(p.reach()));
    addressable(&[leading, &padded].concat())
        && addressable(&[leading, &column(|p| p.count), &column(|p| p.size)].concat())
}

/// The windows of the last dimensions of `input`, [..., O1, ..., Ok, K1, ..., Kk], with `fill` for padding.
#[track_caller]
pub(crate) fn windows_of(input: Tensor, placed: &[Placement], fill: Scalar) -> Tensor {
    let leading = input.rank().saturating_sub(placed.len());
    let column = |of: fn(&Placement) -> usize| placed.iter().map(of).collect::<Vec<_>>();
    let padding = |of: fn(&Placement) -> usize| [vec![0; leading], column(of)].concat();
    let (low, high) = (padding(|p| p.low), padding(Placement::high));
    let padded = if low.iter().chain(&high).all(|n| *n == 0) { input } else { prims::pad(input, low, high, fill) };
    prims::windows(padded, column(|p| p.count), column(|p| p.size), column(|p| p.step), column(|p| p.dilation))
}

/// Dimension `dim` as the last; the others in their order.
#[track_caller]
pub(crate) fn moved_last(input: Tensor, dim: usize) -> Tensor {
    let rank = input.rank();
    if dim + 1 == rank {
        return input;
    }
    let order: Vec<usize> = (0..rank).filter(|other| *other != dim).chain([dim]).collect();
    prims::permute(input, order)
}

/// The last dimension as dimension `dim`; the others in their order.
#[track_caller]
pub(crate) fn moved_from_last(input: Tensor, dim: usize) -> Tensor {
    let last = input.rank().saturating_sub(1);
    if dim == last {
        return input;
    }
    let order: Vec<usize> = (0..dim).chain([last]).chain(dim..last).collect();
    prims::permute(input, order)
}

/// The integers `start`, `start + step`, ... along dimension `dim` of a tensor of `shape`.
#[track_caller]
pub(crate) fn positions_along(like: Tensor, shape: &[usize], dim: usize, start: i64, step: i64) -> Tensor {
    let line = prims::iota(shape[dim], start, step, DType::I64, like.device());
    prims::broadcast_in_dim(line, shape, [dim])
}

/// The last `rank` of three numbers: for samples that have as many as dimensions.
pub(crate) fn last<T: Copy>(rank: usize, all: [T; 3]) -> Vec<T> {
    all[all.len().saturating_sub(rank)..].to_vec()
}

/// For references: the elements in f64.
pub(crate) fn as_floats(tensor: &ReferenceTensor) -> ArrayD<f64> {
    match tensor.dtype().is_floating() {
        true => tensor.floats().clone(),
        false => tensor.integers().mapv(|x| x as f64),
    }
}
