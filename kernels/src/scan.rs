//! Scans: along one dimension, each element becomes what an associative rule makes of all elements up to it.
//!
//! A long line is cut into pieces whose extents follow from the shapes alone. The total of each piece is computed by
//! itself and joined to what is before, on one thread as on many, so that the bits do not depend on the number of
//! threads.

use std::ops::Range;

use crate::dtype::DType;
use crate::extents;
use crate::parallel::{Shared, THREADING_THRESHOLD, for_ranges};
use crate::scratch;
use crate::tile::convert::cast;
use crate::tile::load::load;
use crate::tile::store::store;
use crate::tile::{Class, Operand};
use crate::view::{TensorMut, TensorRef};
use crate::walk::{Walk, lines};

/// Elements of a tile.
const TILE: usize = 1024;
/// Elements of a piece of a line, or of neighbouring lines.
const PIECE: usize = 1 << 15;
/// The most lines that are side by side in memory and scanned together, and the least that are worth it.
const MOST_COLUMNS: usize = 256;
const LEAST_COLUMNS: usize = 8;
/// Lines of as many elements are scanned together wherever they are.
const SHORT: usize = 32;

/// How the elements up to one are put together. Elements are the bits of f64 or i64.
trait Rule {
    /// What is known of some neighbouring elements.
    type State: Copy + Send + Sync;
    /// The state before the first element.
    const EMPTY: Self::State;
    /// Whether no order of the same combinations rounds differently.
    const IS_EXACT: bool;
    /// Of one element, of which `second` has another number where the rule takes two.
    fn element(first: u64, second: u64, place: usize) -> Self::State;
    /// Of neighbouring elements, `before` and then `after`.
    fn then(before: Self::State, after: Self::State) -> Self::State;
    /// The result, as bits of the class of the elements.
    fn value(state: Self::State) -> u64;
    /// The position of the element that the result is, for rules that choose one.
    fn place(_state: Self::State) -> i64 {
        0
    }
}

macro_rules! folds {
    ($(
        $(#[$about:meta])*
        $name:ident: $number:ty, $exact:literal, $empty:expr, |$a:ident, $b:ident| $then:expr;
    )*) => {$(
        $(#[$about])*
        struct $name;
        impl Rule for $name {
            type State = $number;
            const EMPTY: $number = $empty;
            const IS_EXACT: bool = $exact;
            fn element(first: u64, _second: u64, _place: usize) -> $number {
                <$number>::from_ne_bytes(first.to_ne_bytes())
            }
            fn then($a: $number, $b: $number) -> $number {
                $then
            }
            fn value(state: $number) -> u64 {
                u64::from_ne_bytes(state.to_ne_bytes())
            }
        }
    )*};
}
folds! {
    /// Sums.
    Sums: f64, false, 0.0, |a, b| a + b;
    /// Sums that wrap.
    WholeSums: i64, true, 0, |a, b| a.wrapping_add(b);
    /// Products.
    Products: f64, false, 1.0, |a, b| a * b;
    /// Products that wrap.
    WholeProducts: i64, true, 1, |a, b| a.wrapping_mul(b);
}

macro_rules! choices {
    ($($(#[$about:meta])* $name:ident: $number:ty, |$a:ident, $b:ident| $later:expr;)*) => {$(
        $(#[$about])*
        struct $name;
        impl Rule for $name {
            type State = ($number, i64);
            const EMPTY: Self::State = (0 as $number, -1);
            const IS_EXACT: bool = true;
            fn element(first: u64, _second: u64, place: usize) -> Self::State {
                (<$number>::from_ne_bytes(first.to_ne_bytes()), place as i64)
            }
            fn then(before: Self::State, after: Self::State) -> Self::State {
                let ($a, $b) = (before.0, after.0);
                if after.1 >= 0 && (before.1 < 0 || $later) { after } else { before }
            }
            fn value(state: Self::State) -> u64 {
                u64::from_ne_bytes(state.0.to_ne_bytes())
            }
            fn place(state: Self::State) -> i64 {
                state.1
            }
        }
    )*};
}
choices! {
    /// The last of the largest; NaN is larger than every number.
    Largest: f64, |a, b| b.is_nan() || b >= a;
    /// The last of the largest integers.
    WholeLargest: i64, |a, b| b >= a;
    /// The last of the smallest; NaN is smaller than every number.
    Smallest: f64, |a, b| b.is_nan() || b <= a;
    /// The last of the smallest integers.
    WholeSmallest: i64, |a, b| b <= a;
}

/// Logarithms of sums of exponentials: the largest exponent m, and the sum of `e^(x - m)`.
struct LogSums;

impl Rule for LogSums {
    type State = (f64, f64);
    const EMPTY: (f64, f64) = (f64::NEG_INFINITY, 0.0);
    const IS_EXACT: bool = false;
    fn element(first: u64, _second: u64, _place: usize) -> (f64, f64) {
        (f64::from_bits(first), 1.0)
    }
    fn then((a, a_sum): (f64, f64), (b, b_sum): (f64, f64)) -> (f64, f64) {
        if a == b {
            // Infinities as well, whose difference is no number.
            (a, a_sum + b_sum)
        } else if a > b {
            (a, a_sum + b_sum * (b - a).exp())
        } else {
            (if a.is_nan() { a } else { b }, a_sum * (a - b).exp() + b_sum)
        }
    }
    fn value((most, sum): (f64, f64)) -> u64 {
        (most + sum.ln()).to_bits()
    }
}

/// `y = a · y_before + b` for elements of two numbers: of several, the product of all a, and the y that follows zero.
struct Linear;

impl Rule for Linear {
    type State = (f64, f64);
    const EMPTY: (f64, f64) = (1.0, 0.0);
    const IS_EXACT: bool = false;
    fn element(first: u64, second: u64, _place: usize) -> (f64, f64) {
        (f64::from_bits(first), f64::from_bits(second))
    }
    fn then((a, y): (f64, f64), (b, z): (f64, f64)) -> (f64, f64) {
        // Nothing of what was before is left after a zero, also if a product before it is too large for a number.
        (if a == 0.0 || b == 0.0 { 0.0 } else { a * b }, b * y + z)
    }
    fn value((_, y): (f64, f64)) -> u64 {
        y.to_bits()
    }
}

/// One of the tensors: its element type, its address, and how far neighbours of a line and lines that are side by side
/// are from each other, in elements.
#[derive(Clone, Copy)]
struct Side {
    dtype: DType,
    start: Shared,
    along: isize,
    across: isize,
}

impl Side {
    fn new(dtype: DType, start: *mut u8, strides: &[isize], dim: usize) -> Side {
        Side { dtype, start: Shared::new(start), along: strides.get(dim).copied().unwrap_or(0), across: 0 }
    }

    fn at(&self, offset: isize) -> *mut u8 {
        self.start.get().wrapping_offset(offset * self.dtype.size() as isize)
    }

    /// `count` elements from `offset` on, `step` apart, as f64 or i64.
    ///
    /// # Safety
    /// They are elements of the tensor, and at most [`TILE`].
    unsafe fn read(&self, wide: Class, offset: isize, step: isize, count: usize, tile: &mut Tile, narrow: &mut Tile) {
        let class = Class::of(self.dtype);
        // SAFETY: promised by the caller; both tiles have room for TILE elements of any class.
        unsafe {
            if class == wide {
                return load(self.dtype, self.at(offset), step, tile.as_mut_ptr().cast(), count);
            }
            load(self.dtype, self.at(offset), step, narrow.as_mut_ptr().cast(), count);
            cast(class, wide, Operand::Tile(narrow.as_ptr().cast()), tile.as_mut_ptr().cast(), 1, count);
        }
    }

    /// Stores `count` elements of f64 or i64 from `offset` on, `step` apart.
    ///
    /// # Safety
    /// They are elements of the tensor that nobody else writes, and at most [`TILE`].
    unsafe fn write(&self, wide: Class, offset: isize, step: isize, count: usize, tile: &Tile, narrow: &mut Tile) {
        let class = Class::of(self.dtype);
        // SAFETY: promised by the caller; both tiles have room for TILE elements of any class.
        unsafe {
            if class == wide {
                return store(self.dtype, tile.as_ptr().cast(), self.at(offset), step, count);
            }
            cast(wide, class, Operand::Tile(tile.as_ptr().cast()), narrow.as_mut_ptr().cast(), 1, count);
            store(self.dtype, narrow.as_ptr().cast(), self.at(offset), step, count);
        }
    }
}

type Tile = [u64; TILE];

/// Room for what a thread works on.
struct Tiles {
    first: Tile,
    second: Tile,
    places: Tile,
    narrow: Tile,
}

impl Tiles {
    fn new() -> Tiles {
        Tiles { first: [0; TILE], second: [0; TILE], places: [0; TILE], narrow: [0; TILE] }
    }
}

/// A scan: one or two operands, the results, and perhaps positions, all of one shape.
struct Scan {
    /// The class that elements are put together in.
    wide: Class,
    /// Operand, second operand, result and positions.
    sides: [Option<Side>; 4],
    /// Elements of a line, and of a piece of it.
    length: usize,
    piece: usize,
    /// Lines that are scanned together, side by side, of how many, and the other dimensions.
    columns: usize,
    side_by_side: usize,
    outer: Walk<4>,
    elements: usize,
}

impl Scan {
    /// Lines of `dim` of tensors of one shape; sides that are absent have strides of zero.
    fn new(wide: Class, shape: &[usize], dim: usize, strides: [&[isize]; 4], mut sides: [Option<Side>; 4]) -> Scan {
        let length = shape.get(dim).copied().unwrap_or(1);
        let mut outer = lines(shape, strides, dim);
        let (mut columns, mut side_by_side) = (1, 1);
        // Neighbours in memory belong to different lines, or lines are so short that each alone is little work.
        let is_short = length <= SHORT;
        if is_short || sides.iter().flatten().any(|side| side.along != 1) {
            let mut inner = outer.clone();
            let (extent, steps) = inner.pop();
            let is_adjacent = sides.iter().zip(steps).any(|(side, step)| side.is_some() && step == 1);
            if extent >= LEAST_COLUMNS && (is_short || is_adjacent) {
                (outer, columns, side_by_side) = (inner, extent.min(MOST_COLUMNS), extent);
                for (side, step) in sides.iter_mut().zip(steps) {
                    side.iter_mut().for_each(|side| side.across = step);
                }
            }
        }
        let elements = outer.len() * side_by_side * length;
        Scan { wide, sides, length, piece: (PIECE / columns).max(1), columns, side_by_side, outer, elements }
    }

    fn bundles_of_a_row(&self) -> usize {
        self.side_by_side.div_ceil(self.columns)
    }

    /// Offsets of a bundle of lines, and how many it has.
    fn bundle(&self, number: usize) -> ([isize; 4], usize) {
        let (row, first) = (number / self.bundles_of_a_row(), number % self.bundles_of_a_row() * self.columns);
        let mut offsets = self.outer.offsets(row);
        for (offset, side) in offsets.iter_mut().zip(&self.sides) {
            *offset += first as isize * side.map_or(0, |side| side.across);
        }
        (offsets, self.columns.min(self.side_by_side - first))
    }

    /// Goes over the elements `range` of some lines. `total` becomes what they are together with what it is. With
    /// `carry`, results are written that follow it, and it becomes the last of them.
    ///
    /// # Safety
    /// The bundle's elements are those of live tensors, and nobody else writes those of the results.
    unsafe fn go<R: Rule>(
        &self,
        (offsets, width): ([isize; 4], usize),
        range: Range<usize>,
        tiles: &mut Tiles,
        mut carry: Option<&mut [R::State]>,
        mut total: Option<&mut [R::State]>,
    ) {
        let [Some(operand), second, result, places] = self.sides else { return };
        let Tiles { first: own, second: other, places: chosen, narrow } = tiles;
        // A tile is along one line, or across several.
        let across = self.columns > 1;
        let step = if across { 1 } else { TILE };
        for start in range.clone().step_by(step) {
            let count = if across { width } else { TILE.min(range.end - start) };
            let place = |side: Side, i: usize| {
                (offsets[i] + start as isize * side.along, if across { side.across } else { side.along })
            };
            let (offset, along) = place(operand, 0);
            // SAFETY: promised by the caller; a tile has room for a bundle.
            unsafe { operand.read(self.wide, offset, along, count, own, narrow) };
            if let Some(second) = second {
                let (offset, along) = place(second, 1);
                // SAFETY: as above.
                unsafe { second.read(self.wide, offset, along, count, other, narrow) };
            }
            let at = |i: usize| if across { start } else { start + i };
            if let Some(total) = total.as_deref_mut() {
                if across {
                    for (i, total) in total[..count].iter_mut().enumerate() {
                        *total = R::then(*total, R::element(own[i], other[i], at(i)));
                    }
                } else {
                    let mut sum = total[0];
                    for i in 0..count {
                        sum = R::then(sum, R::element(own[i], other[i], at(i)));
                    }
                    total[0] = sum;
                }
            }
            let (Some(carry), Some(result)) = (carry.as_deref_mut(), result) else { continue };
            if across {
                for (i, carry) in carry[..count].iter_mut().enumerate() {
                    *carry = R::then(*carry, R::element(own[i], other[i], at(i)));
                    own[i] = R::value(*carry);
                    chosen[i] = R::place(*carry) as u64;
                }
            } else {
                let mut last = carry[0];
                for i in 0..count {
                    last = R::then(last, R::element(own[i], other[i], at(i)));
                    own[i] = R::value(last);
                    chosen[i] = R::place(last) as u64;
                }
                carry[0] = last;
            }
            let (offset, along) = place(result, 2);
            // SAFETY: as above; the elements were read before.
            unsafe { result.write(self.wide, offset, along, count, own, narrow) };
            if let Some(places) = places {
                let (offset, along) = place(places, 3);
                // SAFETY: as above.
                unsafe { places.write(Class::I64, offset, along, count, chosen, narrow) };
            }
        }
    }

    /// The elements of a piece of a line.
    fn range(&self, piece: usize) -> Range<usize> {
        piece * self.piece..self.length.min((piece + 1) * self.piece)
    }

    /// # Safety
    /// The sides are live tensors of one shape, and the results are nobody else's.
    unsafe fn run<R: Rule>(&self) {
        if self.elements == 0 {
            return;
        }
        let (bundles, pieces) = (self.outer.len() * self.bundles_of_a_row(), self.length.div_ceil(self.piece));
        let threads = if self.elements < THREADING_THRESHOLD { 1 } else { rayon::current_num_threads() };
        if pieces == 1 || threads == 1 || bundles >= 4 * threads {
            for_ranges(bundles, self.elements, |range| {
                let mut tiles = Tiles::new();
                let (mut carry, mut total) = ([R::EMPTY; MOST_COLUMNS], [R::EMPTY; MOST_COLUMNS]);
                for number in range {
                    let bundle = self.bundle(number);
                    carry[..bundle.1].fill(R::EMPTY);
                    for piece in 0..pieces {
                        if R::IS_EXACT || pieces == 1 {
                            // SAFETY: promised by the caller; bundles share no elements.
                            unsafe { self.go::<R>(bundle, self.range(piece), &mut tiles, Some(&mut carry), None) };
                            continue;
                        }
                        let before = carry;
                        total[..bundle.1].fill(R::EMPTY);
                        // SAFETY: as above.
                        unsafe {
                            self.go::<R>(bundle, self.range(piece), &mut tiles, Some(&mut carry), Some(&mut total));
                        }
                        for i in 0..bundle.1 {
                            carry[i] = R::then(before[i], total[i]);
                        }
                    }
                }
            });
            return;
        }
        let mut totals = scratch::filled(R::EMPTY, bundles * pieces * self.columns);
        let address = Shared::new(totals.as_mut_ptr().cast());
        // SAFETY: each unit has states of its own, and the vector outlives the threads.
        let states = |unit: usize| unsafe {
            std::slice::from_raw_parts_mut(address.get().cast::<R::State>().add(unit * self.columns), self.columns)
        };
        for_ranges(bundles * pieces, self.elements, |range| {
            let mut tiles = Tiles::new();
            for unit in range {
                let (bundle, range) = (self.bundle(unit / pieces), self.range(unit % pieces));
                // SAFETY: promised by the caller.
                unsafe { self.go::<R>(bundle, range, &mut tiles, None, Some(states(unit))) };
            }
        });
        // Each total becomes that of the pieces before it.
        for line in totals.chunks_exact_mut(pieces * self.columns) {
            for column in 0..self.columns {
                let mut before = R::EMPTY;
                for total in line.iter_mut().skip(column).step_by(self.columns) {
                    (*total, before) = (before, R::then(before, *total));
                }
            }
        }
        for_ranges(bundles * pieces, self.elements, |range| {
            let mut tiles = Tiles::new();
            for unit in range {
                let (bundle, range) = (self.bundle(unit / pieces), self.range(unit % pieces));
                // SAFETY: promised by the caller; units share no elements of the results.
                unsafe { self.go::<R>(bundle, range, &mut tiles, Some(states(unit)), None) };
            }
        });
    }
}

/// Checks the operands of `function` and scans them by the rule that `run` starts.
fn scan(
    function: &str,
    [source, second]: [Option<TensorRef<'_>>; 2],
    dim: usize,
    mut target: TensorMut<'_>,
    mut places: Option<TensorMut<'_>>,
    run: impl FnOnce(&Scan),
) {
    let Some(source) = source else { return };
    let shape = source.shape();
    extents::dimension(function, dim, shape);
    extents::shape(function, "target", target.shape(), shape);
    extents::apart_or_same(function, "source", &source, std::slice::from_ref(&target));
    if let Some(second) = &second {
        extents::shape(function, "second", second.shape(), shape);
        extents::apart_or_same(function, "second", second, std::slice::from_ref(&target));
    }
    if let Some(places) = &places {
        extents::shape(function, "indices", places.shape(), shape);
        extents::dtype(function, "indices", places.dtype(), DType::I64);
        extents::apart(function, "source", &source, places);
    }
    let none: Vec<isize> = shape.iter().map(|_| 0).collect();
    let of = |tensor: TensorRef<'_>| Side::new(tensor.dtype(), tensor.as_ptr().cast_mut(), tensor.strides(), dim);
    let result = Side::new(target.dtype(), target.as_mut_ptr(), target.strides(), dim);
    let chosen = places.as_mut().map(|places| Side::new(DType::I64, places.as_mut_ptr(), places.strides(), dim));
    let strides = [
        source.strides(),
        second.map_or(&none[..], |second| second.strides()),
        target.strides(),
        places.as_ref().map_or(&none[..], TensorMut::strides),
    ];
    let wide = if source.dtype().is_floating() { Class::F64 } else { Class::I64 };
    run(&Scan::new(wide, shape, dim, strides, [Some(of(source)), second.map(of), Some(result), chosen]));
}

/// Calls the rule of floating-point numbers or that of integers.
macro_rules! by_class {
    ($floats:ty, $integers:ty) => {
        |scan: &Scan| match scan.wide {
            // SAFETY: the sides are views that were checked to be of one shape; the results are exclusive borrows.
            Class::F64 => unsafe { scan.run::<$floats>() },
            // SAFETY: as above.
            _ => unsafe { scan.run::<$integers>() },
        }
    };
}

/// Running sums along `dim`, added in f64 (i64 for integers and booleans, wrapping) and converted. Both tensors have
/// one shape; `target` may be exactly the view of `source`. Panics if their shapes differ, or if they share memory
/// otherwise.
pub fn cumsum(source: TensorRef<'_>, dim: usize, target: TensorMut<'_>) {
    scan("cumsum", [Some(source), None], dim, target, None, by_class!(Sums, WholeSums));
}

/// Running products along `dim`; as [`cumsum`].
pub fn cumprod(source: TensorRef<'_>, dim: usize, target: TensorMut<'_>) {
    scan("cumprod", [Some(source), None], dim, target, None, by_class!(Products, WholeProducts));
}

/// The logarithms of the running sums of exponentials along `dim`, in f64, whatever the exponents' size; as
/// [`cumsum`]. Panics as well if `source` holds integers.
pub fn logcumsumexp(source: TensorRef<'_>, dim: usize, target: TensorMut<'_>) {
    assert!(source.dtype().is_floating(), "logcumsumexp: source is {}", source.dtype());
    scan("logcumsumexp", [Some(source), None], dim, target, None, by_class!(LogSums, WholeSums));
}

/// The largest elements up to each along `dim`, and their positions (i64): the last of equal ones; NaN is the largest.
/// All have one shape. Panics if anything else is the case, or if `indices` share memory with `source`, or `values` do
/// otherwise than as exactly its view.
pub fn cummax(source: TensorRef<'_>, dim: usize, values: TensorMut<'_>, indices: TensorMut<'_>) {
    scan("cummax", [Some(source), None], dim, values, Some(indices), by_class!(Largest, WholeLargest));
}

/// The smallest elements up to each along `dim`; NaN is the smallest; as [`cummax`].
pub fn cummin(source: TensorRef<'_>, dim: usize, values: TensorMut<'_>, indices: TensorMut<'_>) {
    scan("cummin", [Some(source), None], dim, values, Some(indices), by_class!(Smallest, WholeSmallest));
}

/// `y[i] = coefficients[i] · y[i - 1] + source[i]` along `dim`, in f64, from zero on. All have one shape, and the
/// operands floating-point types. Panics if anything else is the case, or if an operand shares memory with `target`
/// otherwise than as exactly its view.
pub fn linear_scan(coefficients: TensorRef<'_>, source: TensorRef<'_>, dim: usize, target: TensorMut<'_>) {
    assert!(
        coefficients.dtype().is_floating() && source.dtype().is_floating(),
        "linear_scan: coefficients are {}, source is {}",
        coefficients.dtype(),
        source.dtype()
    );
    scan("linear_scan", [Some(coefficients), Some(source)], dim, target, None, by_class!(Linear, WholeSums));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_sums() {
        let data = [1i32, 2, 3, 4, 5, 6];
        let mut out = [0i64; 6];
        let source = TensorRef::from_slice(&data, &[2, 3], &[3, 1]);
        cumsum(source, 0, TensorMut::from_slice(&mut out, &[2, 3], &[3, 1]));
        assert_eq!(out, [1, 2, 3, 5, 7, 9]);
        let ones = vec![half::bf16::ONE; 3000];
        let mut sums = vec![0f32; 3000];
        cumsum(TensorRef::from_slice(&ones, &[3000], &[1]), 0, TensorMut::from_slice(&mut sums, &[3000], &[1]));
        assert_eq!(sums[2999], 3000.0);
    }

    #[test]
    fn the_last_of_equal_elements_and_of_nans() {
        let data = [1f32, 3.0, 3.0, 2.0, f32::NAN, 5.0, f32::NAN, -0.0];
        let (mut values, mut indices) = ([0f32; 8], [0i64; 8]);
        cummax(
            TensorRef::from_slice(&data, &[8], &[1]),
            0,
            TensorMut::from_slice(&mut values, &[8], &[1]),
            TensorMut::from_slice(&mut indices, &[8], &[1]),
        );
        assert_eq!(indices, [0, 1, 2, 2, 4, 4, 6, 6]);
        assert_eq!(values[..4], [1.0, 3.0, 3.0, 3.0]);
        assert!(values[4..].iter().all(|value| value.is_nan()));
    }

    #[test]
    fn sums_of_exponentials_of_any_size() {
        let data = [f64::NEG_INFINITY, -1000.0, 1000.0, 1000.0, f64::INFINITY, 0.0];
        let mut out = [0f64; 6];
        let source = TensorRef::from_slice(&data, &[6], &[1]);
        logcumsumexp(source, 0, TensorMut::from_slice(&mut out, &[6], &[1]));
        let two = 1000.0 + 2f64.ln();
        assert_eq!(out, [f64::NEG_INFINITY, -1000.0, 1000.0, two, f64::INFINITY, f64::INFINITY]);
    }

    /// Lines of several pieces, one line and several side by side, on one thread and on several.
    #[test]
    fn the_number_of_threads_changes_no_bit() {
        for shape in [[1, 3 * PIECE + 17, 1], [1, PIECE, 9], [2, PIECE / 100, 300]] {
            let [outer, length, inner] = shape;
            let strides = [(length * inner) as isize, inner as isize, 1];
            let data: Vec<f32> = (0..outer * length * inner).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.01).collect();
            let coefficients: Vec<f32> = data.iter().map(|x| 1.0 - x * x).collect();
            let source = TensorRef::from_slice(&data, &shape, &strides);
            let factors = TensorRef::from_slice(&coefficients, &shape, &strides);
            let run = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut outs = [0; 3].map(|_| vec![0f64; data.len()]);
                pool.install(|| {
                    let [sums, logs, linear] = outs.each_mut().map(|out| TensorMut::from_slice(out, &shape, &strides));
                    cumsum(source, 1, sums);
                    logcumsumexp(source, 1, logs);
                    linear_scan(factors, source, 1, linear);
                });
                outs
            };
            let [one, many] = [1, 3].map(run);
            assert!(one == many, "{shape:?}");
            let (mut sum, mut y) = (0f64, 0f64);
            for i in 0..length {
                let at = i * inner;
                sum += f64::from(data[at]);
                y = f64::from(coefficients[at]) * y + f64::from(data[at]);
                assert!((one[0][at] - sum).abs() < 1e-8 && (one[2][at] - y).abs() < 1e-8, "{shape:?} {i}");
            }
        }
    }
}
