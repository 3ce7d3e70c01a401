//! Cross entropy of rows of logits, a block of a row at a time: each pass reads the logits from memory once.
//!
//! How rows are cut depends on their length alone, and parts of a row are put together in order, so results have the
//! same bits for any number of threads.

use super::{PerRow, Writer, in_f64, matrix, write_softmax};
use crate::dtype::DType;
use crate::elementwise::convert;
use crate::extents;
use crate::indexing::IndexOutOfRange;
use crate::parallel::{Shared, for_ranges};
use crate::scalar::ScalarOp::{Add, Exp, Log, Mul, Sub};
use crate::scratch;
use crate::tile::Class;
use crate::tile::load::load;
use crate::tile::store::{store, store_one};
use crate::tile::stream::{self, LINE, fetch};
use crate::vector::exponential::exp;
use crate::vector::multiversion;
use crate::view::{TensorMut, TensorRef};

/// Logits of a row that are worked on at a time; they fit the first-level cache.
const BLOCK: usize = 2048;
/// Sums and maxima of a block have so many parts, whatever the width of vectors is.
const LANES: usize = 32;
/// Logits between two requests for memory of the next block.
const STRIDE: usize = 512;

/// The class of each row (`None` where it is to be ignored), and the row's logit of that class.
fn classes(
    logits: &TensorRef<'_>,
    targets: TensorRef<'_>,
    ignore_index: i64,
) -> Result<Vec<Option<(usize, f64)>>, IndexOutOfRange> {
    let (rows, count) = matrix("cross_entropy", "logits", logits.shape());
    extents::shape("cross_entropy", "targets", targets.shape(), &[rows]);
    let mut indices = scratch::zeroed::<i64>(targets.len());
    convert(targets, TensorMut::from_slice(&mut indices, targets.shape(), &[1]));
    let class = |(position, &index): (usize, &i64)| {
        if index == ignore_index {
            return Ok(None);
        }
        if index < 0 || index as u64 >= count as u64 {
            return Err(IndexOutOfRange { index, position, size: count });
        }
        let offset = position as isize * logits.strides()[0] + index as isize * logits.strides()[1];
        // SAFETY: an element of the logits.
        Ok(Some((index as usize, unsafe { number(logits.dtype(), element(logits.as_ptr(), logits.dtype(), offset)) })))
    };
    let mut classes = scratch::room(indices.len());
    for each in indices.iter().enumerate() {
        classes.push(class(each)?);
    }
    Ok(classes)
}

/// The address of the element `offset` elements behind the first.
fn element(first: *const u8, dtype: DType, offset: isize) -> *const u8 {
    first.wrapping_offset(offset * dtype.size() as isize)
}

/// A floating-point number in memory.
///
/// # Safety
/// There is one at the address.
unsafe fn number(dtype: DType, address: *const u8) -> f64 {
    let (mut wide, mut narrow) = (0f64, 0f32);
    // SAFETY: the caller's element, and a number of the class of its type.
    unsafe {
        match Class::of(dtype) {
            Class::F64 => load(dtype, address, 1, (&raw mut wide).cast(), 1),
            _ => load(dtype, address, 1, (&raw mut narrow).cast(), 1),
        }
    }
    if Class::of(dtype) == Class::F64 { wide } else { f64::from(narrow) }
}

/// Blocks of the rows of a matrix whose elements are computed with in f32.
#[derive(Clone, Copy)]
struct Blocks {
    first: Shared,
    dtype: DType,
    strides: [isize; 2],
    width: usize,
    /// Blocks of a row.
    count: usize,
}

impl Blocks {
    fn of(first: *mut u8, dtype: DType, shape: &[usize], strides: &[isize]) -> Blocks {
        let width = shape[1];
        let strides = [strides[0], strides[1]];
        Blocks { first: Shared::new(first), dtype, strides, width, count: width.div_ceil(BLOCK) }
    }

    /// Whether neighbours in a block are neighbours in memory, as f32.
    fn is_plain(&self) -> bool {
        self.dtype == DType::F32 && self.strides[1] == 1
    }

    /// Row and elements of the n-th block.
    fn place(&self, n: usize) -> (usize, std::ops::Range<usize>) {
        let start = n % self.count * BLOCK;
        (n / self.count, start..self.width.min(start + BLOCK))
    }

    /// Where the n-th block begins.
    fn address(&self, n: usize) -> *mut u8 {
        let (row, elements) = self.place(n);
        let offset = row as isize * self.strides[0] + elements.start as isize * self.strides[1];
        element(self.first.get(), self.dtype, offset).cast_mut()
    }

    /// The n-th block: in its own memory, or in `scratch`.
    ///
    /// # Safety
    /// The elements can be read, and are not written while the result is in use.
    unsafe fn read<'a>(&self, n: usize, scratch: &'a mut [f32; BLOCK]) -> &'a [f32] {
        let length = self.place(n).1.len();
        // SAFETY: the caller's elements; the scratch has room for a block.
        unsafe {
            if self.is_plain() {
                return std::slice::from_raw_parts(self.address(n).cast(), length);
            }
            load(self.dtype, self.address(n), self.strides[1], scratch.as_mut_ptr().cast(), length);
        }
        &scratch[..length]
    }
}

/// What is known of a block.
#[derive(Clone, Copy, Default)]
struct Part {
    /// The largest logit,
    most: f32,
    /// the sum of the exponentials of all of them less that,
    sum: f32,
    /// and, if it is asked for, the sum of the logits.
    total: f32,
}

multiversion! {
    /// Looks at a block, while the memory at `ahead` is fetched.
    fn part_of[FMA](logits: &[f32], ahead: *const u8) -> Part {
        let mut most = [f32::NEG_INFINITY; LANES];
        let mut runs = logits.chunks_exact(LANES);
        for run in &mut runs {
            for lane in 0..LANES {
                // This way round a NaN is left out; it comes back as an exponential.
                most[lane] = if run[lane] > most[lane] { run[lane] } else { most[lane] };
            }
        }
        for (most, logit) in most.iter_mut().zip(runs.remainder()) {
            *most = if *logit > *most { *logit } else { *most };
        }
        let most = most.iter().fold(f32::NEG_INFINITY, |most, one| if *one > most { *one } else { most });
        let base = if most == f32::NEG_INFINITY { 0.0 } else { most };
        let mut sums = [0.0f32; LANES];
        for (number, piece) in logits.chunks(STRIDE).enumerate() {
            let lines = STRIDE * size_of::<f32>() / LINE;
            for line in 0..lines {
                fetch(ahead.wrapping_add((number * lines + line) * LINE));
            }
            let mut runs = piece.chunks_exact(LANES);
            for run in &mut runs {
                for lane in 0..LANES {
                    sums[lane] += exp::<FMA>(run[lane] - base);
                }
            }
            for (sum, logit) in sums.iter_mut().zip(runs.remainder()) {
                *sum += exp::<FMA>(*logit - base);
            }
        }
        Part { most, sum: sums.iter().sum(), total: 0.0 }
    }
}

multiversion! {
    /// The sum of a block.
    fn total_of[FMA](logits: &[f32]) -> f32 {
        let _ = FMA;
        let mut sums = [0.0f32; LANES];
        let mut runs = logits.chunks_exact(LANES);
        for run in &mut runs {
            for lane in 0..LANES {
                sums[lane] += run[lane];
            }
        }
        sums.iter_mut().zip(runs.remainder()).for_each(|(sum, logit)| *sum += logit);
        sums.iter().sum()
    }
}

multiversion! {
    /// `(exp(logit - total) - every_class) · scale` of a block, while the memory at `ahead` is fetched.
    fn gradient_of[FMA](logits: &[f32], ahead: *const u8, total: f32, every_class: f32, scale: f32, out: &mut [f32]) {
        let out = &mut out[..logits.len()];
        for (number, (out, logits)) in out.chunks_mut(STRIDE).zip(logits.chunks(STRIDE)).enumerate() {
            let lines = STRIDE * size_of::<f32>() / LINE;
            for line in 0..lines {
                fetch(ahead.wrapping_add((number * lines + line) * LINE));
            }
            for (out, logit) in out.iter_mut().zip(logits) {
                *out = (exp::<FMA>(*logit - total) - every_class) * scale;
            }
        }
    }
}

/// The logarithm of the sum of exponentials of each row, and the mean of its logits if it is asked for.
fn statistics(logits: &TensorRef<'_>, with_means: bool) -> (Vec<f64>, Vec<f64>) {
    let (rows, width) = (logits.shape()[0], logits.shape()[1]);
    let blocks = Blocks::of(logits.as_ptr().cast_mut(), logits.dtype(), logits.shape(), logits.strides());
    let mut parts = scratch::filled(Part::default(), rows * blocks.count);
    let shared = Shared::new(parts.as_mut_ptr().cast());
    for_ranges(parts.len(), rows * width, |range| {
        let mut scratch = [0.0f32; BLOCK];
        for n in range {
            // SAFETY: elements of the logits, which nobody writes.
            let block = unsafe { blocks.read(n, &mut scratch) };
            let ahead = if blocks.is_plain() { blocks.address(n + 1) } else { blocks.address(n) };
            let mut part = part_of(block, ahead.cast_const());
            if with_means {
                part.total = total_of(block);
            }
            // SAFETY: the part of this block.
            unsafe { shared.get().cast::<Part>().add(n).write(part) };
        }
    });
    let (mut sums, mut means) = (scratch::room(rows), scratch::room(if with_means { rows } else { 0 }));
    for parts in parts.chunks_exact(blocks.count) {
        let most = parts.iter().fold(f32::NEG_INFINITY, |most, part| if part.most > most { part.most } else { most });
        let most = f64::from(most);
        let sum: f64 = parts.iter().map(|part| f64::from(part.sum) * (f64::from(part.most) - most).exp()).sum();
        sums.push(most + sum.ln());
        if with_means {
            means.push(parts.iter().map(|part| f64::from(part.total)).sum::<f64>() / width as f64);
        }
    }
    (sums, means)
}

/// As [`statistics`], by a fused program in the precision of the logits.
fn wide_statistics(logits: TensorRef<'_>, with_means: bool) -> (Vec<f64>, Vec<f64>) {
    let (rows, width) = (logits.shape()[0], logits.shape()[1]);
    let mut writer = Writer::default();
    let (_, _, sum) = write_softmax(&mut writer);
    let (max, log) = (1, writer.unary(Log, sum));
    let total = writer.binary(Add, max, log);
    let (mut totals, mut means) = (scratch::zeroed::<f64>(rows), scratch::zeroed::<f64>(rows));
    let column = [rows, 1];
    let mut outputs = vec![TensorMut::from_slice(&mut totals, &column, &[1, 1])];
    let mut results = vec![total];
    if with_means {
        results.push(writer.mean(0, width));
        outputs.push(TensorMut::from_slice(&mut means, &column, &[1, 1]));
    }
    writer.run(logits.shape(), &[logits], &results, &mut outputs);
    (totals, means)
}

/// Whether rows are computed in f32, block by block.
fn in_blocks(logits: &TensorRef<'_>) -> bool {
    Class::of(logits.dtype()) == Class::F32 && logits.shape()[1] > 0
}

/// Cross-entropy of each row: `log Σ exp(logits) - logits[target]`, in one pass over the logits.
///
/// `logits` is `[n, c]`, `targets` `[n]` of integers, `losses` and `log_sum_exp` are `[n]`. With label smoothing `s`
/// the loss is `(1 - s)` times the above plus `s` times the mean over all classes. A row whose target is `ignore_index`
/// has the loss 0. A target outside `0..c` is an error, and nothing is written. Results may share memory with operands,
/// all of which are read before the first is written. Panics if a shape is another.
pub fn cross_entropy_forward(
    logits: TensorRef<'_>,
    targets: TensorRef<'_>,
    ignore_index: i64,
    label_smoothing: f64,
    losses: TensorMut<'_>,
    log_sum_exp: TensorMut<'_>,
) -> Result<(), IndexOutOfRange> {
    let classes = classes(&logits, targets, ignore_index)?;
    let rows = logits.shape()[0];
    extents::shape("cross_entropy_forward", "losses", losses.shape(), &[rows]);
    extents::shape("cross_entropy_forward", "log_sum_exp", log_sum_exp.shape(), &[rows]);
    let with_means = label_smoothing != 0.0;
    let (totals, means) =
        if in_blocks(&logits) { statistics(&logits, with_means) } else { wide_statistics(logits, with_means) };
    let loss = |row: usize| match classes[row] {
        None => 0.0,
        Some((_, logit)) if label_smoothing == 0.0 => totals[row] - logit,
        Some((_, logit)) => {
            (1.0 - label_smoothing) * (totals[row] - logit) + label_smoothing * (totals[row] - means[row])
        }
    };
    let values: Vec<f64> = scratch::collected((0..rows).map(loss));
    let shape = [rows];
    convert(TensorRef::from_slice(&values, &shape, &[1]), losses);
    convert(TensorRef::from_slice(&totals, &shape, &[1]), log_sum_exp);
    Ok(())
}

/// Gradient of [`cross_entropy_forward`] by the logits: `(softmax - smoothed one-hot) · row_scale`, in one pass.
///
/// `log_sum_exp` is what the forward function stored, `row_scale` `[n]` the gradient of each row's loss. Ignored rows
/// get zeros. `d_logits` may be exactly the view of `logits`. A target outside `0..c` is an error, and nothing is
/// written. Panics if a shape is another, or if `d_logits` shares memory with an operand otherwise.
#[allow(clippy::too_many_arguments)]
pub fn cross_entropy_backward(
    logits: TensorRef<'_>,
    targets: TensorRef<'_>,
    log_sum_exp: TensorRef<'_>,
    row_scale: TensorRef<'_>,
    ignore_index: i64,
    label_smoothing: f64,
    mut d_logits: TensorMut<'_>,
) -> Result<(), IndexOutOfRange> {
    let classes = classes(&logits, targets, ignore_index)?;
    let (shape, width) = (logits.shape(), logits.shape()[1]);
    extents::shape("cross_entropy_backward", "d_logits", d_logits.shape(), shape);
    for (name, operand) in [("logits", &logits), ("log_sum_exp", &log_sum_exp), ("row_scale", &row_scale)] {
        extents::apart_or_same("cross_entropy_backward", name, operand, std::slice::from_ref(&d_logits));
    }
    for (name, operand) in [("log_sum_exp", &log_sum_exp), ("row_scale", &row_scale)] {
        extents::shape("cross_entropy_backward", name, operand.shape(), &shape[..1]);
    }
    let every_class = label_smoothing / width as f64;
    let (totals, scales) = (in_f64(log_sum_exp), in_f64(row_scale));
    if in_blocks(&logits) && Class::of(d_logits.dtype()) == Class::F32 {
        gradients(&logits, &totals, &scales, every_class, &mut d_logits);
    } else {
        let mut writer = Writer::default();
        let [x, total, scale] = [0, 1, 2].map(|input| writer.input(input));
        let shifted = writer.binary(Sub, x, total);
        let mut result = writer.unary(Exp, shifted);
        if label_smoothing != 0.0 {
            let share = writer.constant(every_class);
            result = writer.binary(Sub, result, share);
        }
        let result = writer.binary(Mul, result, scale);
        let (total_view, scale_view) = (PerRow::new(&log_sum_exp), PerRow::new(&row_scale));
        let inputs = [logits, total_view.spread(log_sum_exp, shape), scale_view.spread(row_scale, shape)];
        writer.run(shape, &inputs, &[result], &mut [d_logits.reborrow()]);
    }

    // The one class of each row that is different, and rows that have none.
    let (dtype, strides) = (d_logits.dtype(), d_logits.strides());
    let base = d_logits.as_mut_ptr();
    for (row, class) in classes.into_iter().enumerate() {
        let start = row as isize * strides[0];
        match class {
            Some((class, logit)) => {
                let probability = (logit - totals[row]).exp();
                let value = (probability - every_class - (1.0 - label_smoothing)) * scales[row];
                let offset = (start + class as isize * strides[1]) * dtype.size() as isize;
                // SAFETY: an element of `d_logits`.
                unsafe { store_one(Class::F64, (&raw const value).cast(), dtype, base.offset(offset)) };
            }
            None => {
                // SAFETY: a row of `d_logits`.
                let target = unsafe {
                    let address = base.offset(start * dtype.size() as isize);
                    d_logits.part(&shape[1..], &strides[1..], address)
                };
                crate::philox::fill(target, 0.0);
            }
        }
    }
    Ok(())
}

/// `(exp(logits - total) - every_class) · scale`, with a total and a scale for each row.
fn gradients(logits: &TensorRef<'_>, totals: &[f64], scales: &[f64], every_class: f64, d_logits: &mut TensorMut<'_>) {
    let (rows, width) = (logits.shape()[0], logits.shape()[1]);
    let source = Blocks::of(logits.as_ptr().cast_mut(), logits.dtype(), logits.shape(), logits.strides());
    let target = d_logits.as_mut_ptr();
    let target = Blocks::of(target, d_logits.dtype(), d_logits.shape(), d_logits.strides());
    // Where the logits were, their lines are in the caches.
    let large = rows * width * size_of::<f32>() >= stream::streaming_threshold();
    let streams = target.is_plain() && large && target.first.get() != source.first.get();
    for_ranges(rows * source.count, rows * width, |range| {
        let (mut scratch, mut results) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
        for n in range {
            let row = source.place(n).0;
            // SAFETY: elements of the logits; those of this block are written after they were read.
            let block = unsafe { source.read(n, &mut scratch) };
            let ahead = if source.is_plain() { source.address(n + 1) } else { source.address(n) };
            let (total, scale) = (totals[row] as f32, scales[row] as f32);
            gradient_of(block, ahead.cast_const(), total, every_class as f32, scale, &mut results);
            let length = block.len();
            let from = results.as_ptr().cast::<u8>();
            // SAFETY: the elements of this block, which no other task has.
            unsafe {
                if streams {
                    stream::copy(from, target.address(n), size_of_val(block));
                } else {
                    store(target.dtype, from, target.address(n), target.strides[1], length);
                }
            }
        }
        if streams {
            stream::fence();
        }
    });
}
