//! Tensors in layouts with gaps, and the comparison that all kernels go through.

use fulgurite_kernels::access::{for_each_offset, write_f64, write_i64};
use fulgurite_kernels::buffer::{Buffer, POISON};
use fulgurite_kernels::view::contiguous_strides;
use fulgurite_kernels::{DType, TensorMut, TensorRef};

use super::shared;

/// Around the lengths of vectors, of tiles (1024), of the tiles of programs without rows (2048 and 4096), and of the
/// longest row that is one tile (8192).
pub fn widths() -> Vec<usize> {
    if cfg!(miri) {
        // A vector and what is left of one.
        return vec![17];
    }
    let vectors = [0, 1, 2, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65].into_iter();
    let tiles = [1, 2, 3, 4, 8].into_iter().map(|tile| tile * 1024).flat_map(|width| [width - 1, width, width + 1]);
    vectors.chain(tiles).chain([12_289]).collect()
}

/// A few of them, for kernels that do much work for each element.
pub fn some_widths() -> Vec<usize> {
    if cfg!(miri) { vec![17] } else { vec![1, 7, 64, 65, 1023, 1025, 2049, 4097, 8193] }
}

/// The element types that a test goes through; the first and the last under Miri.
pub fn types<const N: usize>(all: [DType; N]) -> impl Iterator<Item = DType> {
    let seen = move |at: usize| !cfg!(miri) || at == 0 || at == N - 1;
    all.into_iter().enumerate().filter(move |(at, _)| seen(*at)).map(|(_, dtype)| dtype)
}

/// The layout of a tensor in memory.
#[derive(Debug, Clone, Copy)]
pub enum Layout {
    /// Row-major, elements of the last dimension this far apart, and a gap after each row. A negative step goes
    /// backwards.
    Step(isize),
    /// The dimensions in the reverse order, the first one this far apart.
    Reversed(isize),
    /// Row-major, with the first dimension going backwards and elements two apart.
    Backwards,
}

/// The layouts that every kernel is run in; two of them under Miri, where a kernel takes hundreds of times as long.
pub fn layouts() -> &'static [Layout] {
    const ALL: [Layout; 6] =
        [Layout::Step(1), Layout::Step(2), Layout::Step(3), Layout::Step(-1), Layout::Reversed(2), Layout::Backwards];
    if cfg!(miri) { &ALL[2..4] } else { &ALL }
}

impl Layout {
    /// Strides for `shape`, the position of the first element, and how many elements the memory has.
    fn of(self, shape: &[usize]) -> (Vec<isize>, isize, usize) {
        let mut strides = vec![0isize; shape.len()];
        let axes: Vec<usize> = match self {
            Layout::Reversed(_) => (0..shape.len()).collect(),
            _ => (0..shape.len()).rev().collect(),
        };
        let mut step: isize = match self {
            Layout::Step(step) | Layout::Reversed(step) => step.abs(),
            Layout::Backwards => 2,
        };
        for (position, axis) in axes.into_iter().enumerate() {
            strides[axis] = step;
            step *= shape[axis].max(1) as isize;
            if position == 0 {
                step += 3;
            }
        }
        match self {
            Layout::Step(step) if step < 0 => strides.iter_mut().rev().take(1).for_each(|stride| *stride = -*stride),
            Layout::Backwards => strides.iter_mut().take(1).for_each(|stride| *stride = -*stride),
            _ => {}
        }
        let back: isize =
            shape.iter().zip(&strides).map(|(extent, stride)| (extent.max(&1) - 1) as isize * (*stride).min(0)).sum();
        // A few elements before the lowest and after the highest.
        (strides, 5 - back, step as usize + 11)
    }
}

/// A tensor with memory of its own, which is poison (NaN in floating-point types) but for its elements.
pub struct Owned {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<isize>,
    first: isize,
    buffer: Buffer,
}

impl Owned {
    pub fn poisoned(dtype: DType, shape: &[usize], layout: Layout) -> Owned {
        let (strides, first, elements) = layout.of(shape);
        let mut buffer = Buffer::zeroed(elements * dtype.size()).unwrap();
        buffer.as_bytes_mut().fill(POISON);
        Owned { dtype, shape: shape.to_vec(), strides, first, buffer }
    }

    pub fn contiguous(dtype: DType, shape: &[usize]) -> Owned {
        let mut tensor = Owned::poisoned(dtype, shape, Layout::Step(1));
        tensor.strides = contiguous_strides(shape);
        tensor
    }

    fn address(&self) -> *mut u8 {
        self.buffer.as_ptr().wrapping_offset(self.first * self.dtype.size() as isize)
    }

    pub fn view(&self) -> TensorRef<'_> {
        // SAFETY: the layout stays within the buffer, which nobody writes while it is borrowed.
        unsafe { TensorRef::new(self.dtype, &self.shape, &self.strides, self.address()) }
    }

    pub fn view_mut(&mut self) -> TensorMut<'_> {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { TensorMut::new(self.dtype, &self.shape, &self.strides, self.address()) }
    }

    /// The bytes of the elements, row-major, and whether everything else is still poison.
    pub fn split(&self) -> (Vec<u8>, bool) {
        match self.dtype.size() {
            1 => self.split_as::<1>(),
            2 => self.split_as::<2>(),
            4 => self.split_as::<4>(),
            _ => self.split_as::<8>(),
        }
    }

    fn split_as<const SIZE: usize>(&self) -> (Vec<u8>, bool) {
        let mut rest = self.buffer.as_bytes().to_vec();
        let (places, _) = rest.as_chunks_mut::<SIZE>();
        let mut elements = Vec::with_capacity(self.shape.iter().product());
        for_each_offset(&self.shape, &self.strides, |offset| {
            elements.push(std::mem::replace(&mut places[(self.first + offset) as usize], [POISON; SIZE]));
        });
        (elements.into_flattened(), rest.iter().all(|byte| *byte == POISON))
    }
}

/// What an operand holds: its element type, its shape, and its elements, row-major.
#[derive(Debug, Clone)]
pub struct Operand {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Operand {
    /// Small whole numbers, so that sums are exact in every type; 0 and 1 for booleans.
    pub fn numbers(dtype: DType, shape: &[usize], seed: usize) -> Operand {
        let count: usize = shape.iter().product();
        let most = if dtype == DType::Bool { 2 } else { 7 };
        let values = (0..count).map(|i| ((i * 31 + i / 7 + seed * 5) % most) as f64).collect();
        Operand { dtype, shape: shape.to_vec(), values }
    }

    pub fn of(dtype: DType, shape: &[usize], values: Vec<f64>) -> Operand {
        Operand { dtype, shape: shape.to_vec(), values }
    }

    pub fn placed(&self, layout: Option<Layout>) -> Owned {
        let mut tensor = match layout {
            Some(layout) => Owned::poisoned(self.dtype, &self.shape, layout),
            None => Owned::contiguous(self.dtype, &self.shape),
        };
        write_f64(&mut tensor.view_mut(), &self.values);
        tensor
    }
}

/// One call of a kernel.
pub struct Call<'a> {
    pub name: &'a str,
    pub inputs: Vec<Operand>,
    /// Element types and shapes.
    pub outputs: Vec<(DType, Vec<usize>)>,
    /// What the results must be, converted to their element types (exact numbers); empty where something else says so.
    pub expected: Vec<Vec<f64>>,
    pub run: &'a dyn Fn(&[TensorRef<'_>], Vec<TensorMut<'_>>),
}

impl Call<'_> {
    fn results(&self, inputs: Option<Layout>, outputs: Option<Layout>) -> Vec<Owned> {
        let operands: Vec<Owned> = self.inputs.iter().map(|operand| operand.placed(inputs)).collect();
        let mut results: Vec<Owned> = self
            .outputs
            .iter()
            .map(|(dtype, shape)| match outputs {
                Some(layout) => Owned::poisoned(*dtype, shape, layout),
                None => Owned::contiguous(*dtype, shape),
            })
            .collect();
        let before: Vec<Vec<u8>> = operands.iter().map(|operand| operand.buffer.as_bytes().to_vec()).collect();
        let views: Vec<TensorRef<'_>> = operands.iter().map(Owned::view).collect();
        (self.run)(&views, results.iter_mut().map(Owned::view_mut).collect());
        for (index, (operand, before)) in operands.iter().zip(&before).enumerate() {
            assert!(operand.buffer.as_bytes() == before, "{}: operand {index} was written to", self.name);
        }
        results
    }

    /// Runs the kernel contiguously, in every layout of operands and results, and with results over operands, and
    /// compares.
    pub fn check(&self) {
        let plain: Vec<Vec<u8>> = self.results(None, None).iter().map(|result| result.split().0).collect();
        for (index, expected) in self.expected.iter().enumerate() {
            let (dtype, shape) = &self.outputs[index];
            let mut exact = Owned::contiguous(*dtype, shape);
            if dtype.is_integer() {
                write_i64(&mut exact.view_mut(), &expected.iter().map(|value| *value as i64).collect::<Vec<_>>());
            } else {
                write_f64(&mut exact.view_mut(), expected);
            }
            self.same(&exact.split().0, &plain[index], *dtype, "contiguous", index);
        }
        shared::check(self, &plain);
        for &layout in layouts() {
            for inputs in [None, Some(layout)] {
                for (index, result) in self.results(inputs, Some(layout)).iter().enumerate() {
                    let (elements, kept) = result.split();
                    let how = format!("results in {layout:?}, operands in {inputs:?}");
                    self.same(&plain[index], &elements, result.dtype, &how, index);
                    let (name, outputs) = (self.name, &self.outputs);
                    assert!(kept, "{name} {outputs:?}: result {index} was written between its elements, {how}");
                }
            }
            // Results without gaps, of operands with them.
            for (index, result) in self.results(Some(layout), None).iter().enumerate() {
                self.same(&plain[index], &result.split().0, result.dtype, &format!("operands in {layout:?}"), index);
            }
        }
    }

    pub fn same(&self, expected: &[u8], got: &[u8], dtype: DType, how: &str, index: usize) {
        let size = dtype.size();
        let wrong = expected.chunks(size).zip(got.chunks(size)).position(|(expected, got)| expected != got);
        if let Some(at) = wrong {
            panic!(
                "{} of {:?} to {:?}: element {at} of result {index} is {:?}, expected {:?}, {how}",
                self.name,
                self.inputs.iter().map(|input| (input.dtype, &input.shape)).collect::<Vec<_>>(),
                self.outputs,
                &got[at * size..][..size],
                &expected[at * size..][..size],
            );
        }
    }
}
