//! Programs and layouts that fused kernels run, and that printed kernels are compiled for and run on: one list for
//! all. A [`Case`] is a program with the layouts of its operands; `elementwise`, `rows` and `random` are lists of
//! them, of `programs`.

#![allow(dead_code, unused_imports)] // each test binary uses its own part

use fulgurite_kernels::DType;
use fulgurite_kernels::fused::{FusedProgram, OutputLayout};
use fulgurite_kernels::view::contiguous_strides;

mod elementwise;
mod programs;
mod random;
mod rows;

pub use elementwise::{conversions, layouts, operations};
pub use programs::*;
pub use random::{Random, random, random_f64};
pub use rows::{column_sums, few_long_rows, one_row_over_its_value, rows, staged};

/// What the elements of an input are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Domain {
    /// -4 to 4 in steps of 1/64, exact in every floating type; small integers.
    Plain,
    /// Plain, positive and not zero.
    Positive,
    /// Plain numbers among infinities, NaN, zeros of both signs, subnormal numbers and extremes.
    Extreme,
}

/// How near an output must be to the host's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// Equal; all NaN are equal, and so are zeros of both signs.
    Exact,
    /// Units in the last place of the output's type.
    Ulps(u64),
    /// Relative to the larger of the number and the given magnitude.
    Near(f64, f64),
}

#[derive(Debug, Clone)]
pub struct Input {
    pub strides: Vec<isize>,
    /// The first element's place in its memory.
    pub first: usize,
    /// Elements of the memory.
    pub elements: usize,
    pub domain: Domain,
    /// Whether the elements are 0, 1, 2, ...
    pub counted: bool,
}

#[derive(Debug, Clone)]
pub struct Output {
    pub shape: Vec<usize>,
    pub strides: Vec<isize>,
    pub first: usize,
    pub elements: usize,
    pub tolerance: Tolerance,
    /// The input that it is written over.
    pub over: Option<usize>,
    /// Whether the sum over all rows is written, in parts.
    pub summed: bool,
}

#[derive(Debug, Clone)]
pub struct Case {
    pub name: String,
    pub program: FusedProgram,
    pub shape: Vec<usize>,
    pub inputs: Vec<Input>,
    pub outputs: Vec<Output>,
}

/// Blocks of 128 threads that all multiprocessors of the largest devices have at a time.
pub const MOST_PARTS: usize = 8 * 132;

impl Case {
    /// All operands contiguous, all inputs of the iteration's shape.
    pub fn contiguous(name: impl Into<String>, program: FusedProgram, shape: &[usize], tolerance: Tolerance) -> Case {
        let elements = shape.iter().product();
        let (strides, domain) = (contiguous_strides(shape), Domain::Plain);
        let input = Input { strides, first: 0, elements, domain, counted: false };
        let output = Output {
            shape: shape.to_vec(),
            strides: contiguous_strides(shape),
            first: 0,
            elements,
            tolerance,
            over: None,
            summed: false,
        };
        Case {
            name: name.into(),
            shape: shape.to_vec(),
            inputs: vec![input; program.input_dtypes.len()],
            outputs: vec![output; program.outputs.len()],
            program,
        }
    }

    pub fn domain(mut self, domain: Domain) -> Case {
        self.inputs.iter_mut().for_each(|input| input.domain = domain);
        self
    }

    /// An input seen with these strides from its element `first` on.
    pub fn input(mut self, index: usize, strides: &[isize], first: usize) -> Case {
        let (low, high) = bounds(&self.shape, strides);
        assert!(first as isize + low >= 0, "strides reach before the memory");
        let Input { domain, counted, .. } = self.inputs[index];
        let elements = (first as isize + high + 1) as usize;
        self.inputs[index] = Input { strides: strides.to_vec(), first, elements, domain, counted };
        self
    }

    /// An input that is the same along all but the last dimension.
    pub fn column_input(self, index: usize) -> Case {
        let mut strides = vec![0; self.shape.len()];
        *strides.last_mut().unwrap() = 1;
        self.input(index, &strides, 0)
    }

    /// An input that is 0, 1, 2, ... along each row.
    pub fn counted_input(mut self, index: usize) -> Case {
        self.inputs[index].counted = true;
        self.column_input(index)
    }

    /// An input of one value a row.
    pub fn row_input(self, index: usize) -> Case {
        let mut shape = self.shape.clone();
        *shape.last_mut().unwrap() = 1;
        let mut strides = contiguous_strides(&shape);
        *strides.last_mut().unwrap() = 0;
        self.input(index, &strides, 0)
    }

    /// An output of this shape, seen with these strides from its element `first` on.
    pub fn output(mut self, index: usize, shape: &[usize], strides: &[isize], first: usize) -> Case {
        let (low, high) = bounds(shape, strides);
        assert!(first as isize + low >= 0, "strides reach before the memory");
        let elements = (first as isize + high + 1) as usize;
        let output = &mut self.outputs[index];
        (output.shape, output.strides) = (shape.to_vec(), strides.to_vec());
        (output.first, output.elements) = (first, elements);
        self
    }

    /// An output of one value a row.
    pub fn row_output(self, index: usize) -> Case {
        let mut shape = self.shape.clone();
        *shape.last_mut().unwrap() = 1;
        let strides = contiguous_strides(&shape);
        self.output(index, &shape, &strides, 0)
    }

    /// An output that is summed over all rows, in at most [`MOST_PARTS`] parts.
    pub fn summed(mut self, index: usize) -> Case {
        let width = self.shape[self.shape.len() - 1];
        let mut strides = vec![0; self.shape.len()];
        *strides.last_mut().unwrap() = 1;
        let output = &mut self.outputs[index];
        (output.strides, output.elements, output.summed) = (strides, MOST_PARTS * width, true);
        self
    }

    /// The same with all rows of what is summed.
    pub fn whole(&self) -> Case {
        let mut case = self.clone();
        for output in case.outputs.iter_mut().filter(|output| output.summed) {
            (output.strides, output.elements) = (contiguous_strides(&self.shape), self.shape.iter().product());
            output.summed = false;
        }
        case
    }

    pub fn tolerance(mut self, index: usize, tolerance: Tolerance) -> Case {
        self.outputs[index].tolerance = tolerance;
        self
    }

    pub fn over(mut self, output: usize, input: usize) -> Case {
        self.outputs[output].over = Some(input);
        self
    }
}

/// The least and the greatest place that a layout reaches from its first element.
fn bounds(shape: &[usize], strides: &[isize]) -> (isize, isize) {
    shape.iter().zip(strides).fold((0, 0), |(low, high), (&extent, &stride)| {
        let far = (extent as isize - 1) * stride;
        (low + far.min(0), high + far.max(0))
    })
}
