//! What the interpreter is given: places, steps and passes.

use super::values::Space;
use crate::dtype::DType;
use crate::scalar::ScalarOp;
use crate::tile::Class;
use crate::tile::gelu::{Gelu, GeluBackward};
use crate::tile::reduction::Reduction;

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Storage {
    /// The n-th tile of the scratch.
    Slot(usize),
    /// Bytes from the start of the scratch.
    Scratch(usize),
    /// Bytes from the start of the scratch to a whole row.
    Kept(usize),
    /// In the memory of an input.
    Input(usize),
    /// In the memory of an output, or its staging tile.
    Output(usize),
}

/// A value's space, class and storage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) class: Class,
    pub(crate) storage: Storage,
}

/// What a step does.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    Load(usize),
    Unary(ScalarOp, Class),
    Binary(ScalarOp, Class),
    /// As [`Operation::Binary`] in f32, and rounded at once.
    Rounded(ScalarOp, DType),
    /// `(a op b) other c` in f32, where the other operation of sum and product follows, and `b` is one number.
    Chain(ScalarOp),
    Gelu(Gelu),
    GeluBackward(GeluBackward),
    Select(Class),
    Cast(Class, Class),
    Round(DType),
    /// Reduces a tile's rows, as part of the n-th running total where a row has several tiles.
    Reduce(Reduction, Class, usize),
    Store(usize),
}

/// One step of a pass; operands and result are indices of places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) operation: Operation,
    pub(crate) space: Space,
    pub(crate) operands: [u16; 3],
    pub(crate) out: u16,
}

impl Step {
    /// Whether it takes several times as long as to read what it reads from memory.
    pub(super) fn is_long(&self) -> bool {
        matches!(self.operation, Operation::Gelu(_) | Operation::GeluBackward(_))
    }
}

/// A pass over the columns: steps once a row, then steps for each tile of the row.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    pub(crate) prologue: Vec<Step>,
    pub(crate) body: Vec<Step>,
    /// The inputs with a value per element that the body reads.
    pub(crate) inputs: Vec<usize>,
}

impl Stage {
    /// Whether the machine fetches what the body reads by itself: one step alone reads without a pause, and where each
    /// step would have a whole input fetched, all these lines at once cost more than they save.
    pub(super) fn foreseen(&self) -> bool {
        self.body.len() <= self.inputs.len().max(1)
    }
}

/// What is known of an output.
#[derive(Debug)]
pub(crate) struct OutputPlan {
    pub(crate) dtype: DType,
    pub(crate) per_row: bool,
    /// Computed in place, without a store, unless staged.
    pub(crate) direct: bool,
    /// Written past the caches.
    pub(crate) streaming: bool,
    /// Where in the scratch its staging tile starts.
    pub(crate) staging: usize,
}

/// The prepared program.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) input_dtypes: Vec<DType>,
    pub(crate) outputs: Vec<OutputPlan>,
    pub(crate) places: Vec<Place>,
    /// Places that hold constants, and their bits.
    pub(crate) constants: Vec<(u16, u64)>,
    /// Steps carried out once.
    pub(crate) setup: Vec<Step>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) rows_per_tile: usize,
    pub(crate) columns_per_tile: usize,
    /// Whether a unit of work is whole rows.
    pub(crate) whole_rows: bool,
    /// Whether the inputs are larger than the caches.
    pub(crate) from_memory: bool,
    pub(crate) totals: usize,
    pub(crate) tile_bytes: usize,
    pub(crate) scratch_bytes: usize,
}
