//! The interpreter: the steps of a prepared program, tile by tile.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use super::ahead::Ahead;
use super::kernel::FusedKernel;
use super::plan::{Operation, Stage, Step, Storage};
use super::values::Space;
use crate::dtype::DType;
use crate::scratch;
use crate::tile::reduction::{Reduction, Total};
use crate::tile::store::store;
use crate::tile::{Class, Operand, arithmetic, chain, convert, gelu, load, reduction, stream};

/// Elements that a long step computes between two fetches of what the next tile reads.
const PART: usize = 512;

/// Columns of a row whose total is formed by itself, and then combined with those before it, in order. So the order of
/// additions follows from the length of a row alone, whether one thread passes over it or several. A multiple of every
/// tile of such rows.
pub(super) const CHUNK: usize = 64 << 10;

/// A cache line of scratch.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line(#[allow(dead_code)] pub(super) [u8; 64]);

thread_local! {
    static SCRATCH: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// Rows and columns that a step works on.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) column: usize,
    pub(super) columns: usize,
}

pub(super) struct Addresses<'a> {
    pub(super) inputs: &'a [*const u8],
    pub(super) outputs: &'a [*mut u8],
    pub(super) staged: &'a [bool],
    /// Whether an integer was divided by zero.
    pub(super) by_zero: &'a AtomicBool,
}

// SAFETY: plain addresses, used within the contract of `run`: tasks write disjoint elements.
unsafe impl Sync for Addresses<'_> {}

/// Calls `body` with this thread's scratch memory of at least the given size in bytes.
pub(super) fn with_scratch(bytes: usize, body: impl FnOnce(*mut u8)) {
    let mut scratch = SCRATCH.take();
    let lines = bytes.div_ceil(64);
    if scratch.len() < lines {
        scratch = scratch::filled(Line([0; 64]), lines);
    }
    body(scratch.as_mut_ptr().cast());
    SCRATCH.set(scratch);
}

/// The total of a row so far: of the chunks before, and of the present one, as far as there are any.
#[derive(Clone, Copy, Default)]
pub(super) struct Running {
    before: Option<Total>,
    pub(super) chunk: Option<Total>,
}

impl Running {
    /// Adds the total of the tile that begins at a column, and says what the total of the row is now.
    fn add(&mut self, reduction: Reduction, part: Total, column: usize) -> Total {
        let both = |before: Option<Total>, now: Total| before.map_or(now, |before| before.combine(reduction, now));
        if column == 0 {
            *self = Running::default();
        } else if column.is_multiple_of(CHUNK) {
            *self = Running { before: self.chunk.map(|chunk| both(self.before, chunk)), chunk: None };
        }
        let chunk = both(self.chunk, part);
        self.chunk = Some(chunk);
        both(self.before, chunk)
    }
}

pub(super) struct Task<'a> {
    kernel: &'a FusedKernel,
    addresses: &'a Addresses<'a>,
    scratch: *mut u8,
    /// Where whole rows are kept between passes: the scratch, or memory that the tasks on a row share.
    kept: *mut u8,
    places: SmallVec<[*mut u8; 24]>,
    pub(super) totals: SmallVec<[Running; 4]>,
    streams: bool,
}

impl<'a> Task<'a> {
    pub(super) fn new(kernel: &'a FusedKernel, addresses: &'a Addresses<'a>, scratch: *mut u8, kept: *mut u8) -> Self {
        let plan = &kernel.plan;
        let places = plan
            .places
            .iter()
            .map(|place| match place.storage {
                // SAFETY: the scratch is as long as the plan says.
                Storage::Scratch(offset) => unsafe { scratch.add(offset) },
                // SAFETY: as is the memory of what is kept.
                Storage::Kept(offset) => unsafe { kept.add(offset) },
                _ => std::ptr::null_mut(),
            })
            .collect();
        let streams = plan.outputs.iter().any(|output| output.streaming);
        let totals = SmallVec::from_elem(Running::default(), plan.totals);
        Task { kernel, addresses, scratch, kept, places, totals, streams }
    }

    /// Writes the constants, and what is computed once.
    pub(super) fn begin(&mut self) {
        let plan = &self.kernel.plan;
        for &(place, bits) in &plan.constants {
            // SAFETY: every uniform place has eight bytes, aligned to eight.
            unsafe { self.places[place as usize].cast::<u64>().write(bits) };
        }
        let whole = Tile { row: 0, rows: 1, column: 0, columns: 1 };
        plan.setup.iter().for_each(|step| self.step(step, whole));
    }

    /// Waits for what was written past the caches.
    pub(super) fn finish(&self) {
        if self.streams {
            stream::fence();
        }
    }

    pub(super) fn run(&mut self, units: Range<usize>, pieces: usize, rows: usize) {
        let kernel = self.kernel;
        let plan = &kernel.plan;
        self.begin();
        for unit in units {
            let (batch, piece) = (unit / pieces, unit % pieces);
            let row = batch * plan.rows_per_tile;
            let mut tile = Tile { row, rows: plan.rows_per_tile.min(rows - row), column: 0, columns: 0 };
            if plan.whole_rows {
                for stage in &plan.stages {
                    self.prologue(stage, tile);
                    tile.column = 0;
                    while !stage.body.is_empty() {
                        self.body(stage, &mut tile);
                        tile.column += tile.columns;
                        if tile.column >= kernel.layout.width {
                            break;
                        }
                    }
                }
            } else {
                tile.column = piece * plan.columns_per_tile;
                self.body(&plan.stages[0], &mut tile);
            }
        }
        self.finish();
    }

    /// The steps of a pass that are carried out once a row.
    pub(super) fn prologue(&mut self, stage: &Stage, tile: Tile) {
        stage.prologue.iter().for_each(|step| self.step(step, tile));
    }

    /// The steps of a pass that are carried out for each tile, for the one that begins at `tile.column`.
    pub(super) fn body(&mut self, stage: &Stage, tile: &mut Tile) {
        let plan = &self.kernel.plan;
        tile.columns = plan.columns_per_tile.min(self.kernel.layout.width - tile.column);
        for (index, place) in plan.places.iter().enumerate() {
            self.places[index] = match place.storage {
                // SAFETY: the memory of what is kept is as long as the plan says.
                Storage::Kept(offset) => unsafe { self.kept.add(offset + tile.column * place.class.size()) },
                Storage::Input(input) => {
                    let size = place.class.size();
                    self.element(self.addresses.inputs[input].cast_mut(), input, size, tile.row, tile.column)
                }
                Storage::Output(output) if self.addresses.staged[output] => {
                    // SAFETY: the scratch is as long as the plan says.
                    unsafe { self.scratch.add(plan.outputs[output].staging) }
                }
                Storage::Output(output) => {
                    let operand = plan.input_dtypes.len() + output;
                    self.element(self.addresses.outputs[output], operand, place.class.size(), tile.row, tile.column)
                }
                Storage::Scratch(_) | Storage::Slot(_) => continue,
            };
        }
        let ahead = self.ahead(stage, *tile);
        let long = stage.body.iter().filter(|step| step.is_long()).count();
        let parts = (tile.rows * tile.columns).div_ceil(PART);
        let mut begun = 0;
        let mut steps = stage.body.iter().enumerate().peekable();
        while let Some((number, step)) = steps.next() {
            if long == 0 {
                ahead.fetch(number, stage.body.len());
            }
            if !step.is_long() {
                self.step(step, *tile);
                continue;
            }
            // Where the result goes to memory: each part is on its way while the next one is computed.
            let target = steps.peek().and_then(|(_, next)| self.streamed_whole(step, next, *tile));
            for part in 0..parts {
                ahead.fetch(begun * parts + part, long * parts);
                self.part(step, tile.rows * tile.columns, part * PART);
                if let Some(target) = target {
                    self.stream_part(step, target, tile.rows * tile.columns, part * PART);
                }
            }
            if target.is_some() {
                steps.next();
            }
            begun += 1;
        }
    }

    /// Carries out a long step on the elements from `begin` on, [`PART`] at most.
    fn part(&self, step: &Step, length: usize, begin: usize) {
        let [a, b, _] = step.operands;
        let count = PART.min(length - begin);
        // SAFETY: as for whole steps; the part is within the tile.
        unsafe {
            let numbers = |place: u16| &self.numbers(place, length)[begin..begin + count];
            let out = self.places[step.out as usize].cast::<f32>().add(begin);
            let out = std::slice::from_raw_parts_mut(out, count);
            match step.operation {
                Operation::Gelu(ref of) => gelu::gelu(of, numbers(a), out),
                Operation::GeluBackward(ref of) => gelu::gelu_backward(of, numbers(a), numbers(b), out),
                _ => unreachable!("a long step"),
            }
        }
    }

    /// Where the store after a long step writes the tile past the caches, if it does, element by element.
    fn streamed_whole(&self, step: &Step, next: &Step, tile: Tile) -> Option<*mut f32> {
        let (layout, plan) = (&self.kernel.layout, &self.kernel.plan);
        let Operation::Store(output) = next.operation else { return None };
        let (of, operand) = (&plan.outputs[output], plan.input_dtypes.len() + output);
        let fits = next.operands[0] == step.out && next.space == Space::Full && of.dtype == DType::F32;
        let base = self.addresses.outputs[output];
        (fits && of.streaming && layout.is_block(operand, tile.rows))
            .then(|| self.element(base, operand, size_of::<f32>(), tile.row, tile.column).cast())
    }

    /// Writes a part of a tile that a long step computed to where the tile belongs.
    fn stream_part(&self, step: &Step, target: *mut f32, length: usize, begin: usize) {
        let count = PART.min(length - begin);
        let source = self.places[step.out as usize].cast_const().cast::<f32>();
        // SAFETY: as for a whole tile, whose memory is contiguous.
        unsafe { stream::copy(source.add(begin).cast(), target.add(begin).cast(), count * size_of::<f32>()) };
    }

    /// What a pass reads of the next tile, if it has to come from memory.
    fn ahead(&self, stage: &Stage, tile: Tile) -> Ahead {
        let (layout, plan) = (&self.kernel.layout, &self.kernel.plan);
        let mut ahead = Ahead::default();
        if !plan.from_memory || stage.foreseen() {
            return ahead;
        }
        for &input in stage.inputs.iter().filter(|&&input| layout.is_block(input, tile.rows)) {
            let size = plan.input_dtypes[input].size();
            let here = self.element(self.addresses.inputs[input].cast_mut(), input, size, tile.row, tile.column);
            let bytes = tile.rows * tile.columns * size;
            ahead.add(here.wrapping_add(bytes).cast_const(), bytes);
        }
        ahead
    }

    /// Address of an element of an operand.
    fn element(&self, base: *mut u8, operand: usize, size: usize, row: usize, column: usize) -> *mut u8 {
        let layout = &self.kernel.layout;
        let offset = layout.row_offset(operand, row) + column as isize * layout.operands[operand].inner;
        base.wrapping_offset(offset * size as isize)
    }

    fn operand(&self, place: u16, step: &Step, tile: Tile) -> Operand {
        let address = self.places[place as usize].cast_const();
        match self.kernel.plan.places[place as usize].space {
            space if space == step.space => Operand::Tile(address),
            Space::Row if tile.rows > 1 => Operand::PerRow(address),
            _ => Operand::Scalar(address),
        }
    }

    #[inline]
    fn step(&mut self, step: &Step, tile: Tile) {
        let (rows, width) = match step.space {
            Space::Full => (tile.rows, tile.columns),
            Space::Row => (1, tile.rows),
            Space::Uniform => (1, 1),
        };
        let [a, b, c] = step.operands;
        let out = self.places.get(step.out as usize).copied().unwrap_or(std::ptr::null_mut());
        // SAFETY: places hold tiles of the sizes and classes that the plan gave them, and no step but a rounding writes
        // what it reads; operands in memory are covered by the contract of `run`.
        unsafe {
            match step.operation {
                Operation::Load(input) => self.load(input, step.space, tile, out),
                Operation::Unary(op, class) => {
                    arithmetic::unary(op, class, self.places[a as usize], out, rows * width);
                }
                Operation::Binary(op, class) => {
                    let (a, b) = (self.operand(a, step, tile), self.operand(b, step, tile));
                    if class == Class::I64 && op.divides() && arithmetic::any_zero(b, rows, width) {
                        self.addresses.by_zero.store(true, Ordering::Relaxed);
                    }
                    arithmetic::binary(op, class, a, b, out, rows, width);
                }
                Operation::Rounded(op, dtype) => {
                    let (a, b) = (self.operand(a, step, tile), self.operand(b, step, tile));
                    arithmetic::rounded(op, dtype, a, b, out, rows, width);
                }
                Operation::Chain(first) => {
                    let [a, b] = [a, b].map(|place| self.places[place as usize].cast_const());
                    chain::chain(first, a, b, self.operand(c, step, tile), out, rows * width);
                }
                Operation::Gelu(_) | Operation::GeluBackward(_) => {
                    for begin in (0..rows * width).step_by(PART) {
                        self.part(step, rows * width, begin);
                    }
                }
                Operation::Select(class) => {
                    let (b, c) = (self.operand(b, step, tile), self.operand(c, step, tile));
                    arithmetic::select(class, self.places[a as usize], b, c, out, rows, width);
                }
                Operation::Cast(from, to) => convert::cast(from, to, self.operand(a, step, tile), out, rows, width),
                Operation::Round(dtype) => convert::round(dtype, self.places[a as usize], out, rows * width),
                Operation::Reduce(reduction, class, total) => {
                    self.reduce(reduction, class, total, self.places[a as usize], out, tile);
                }
                Operation::Store(output) => self.store(output, a, step.space, tile),
            }
        }
    }

    /// A tile of f32 numbers.
    ///
    /// # Safety
    /// The place holds as many, which nobody writes meanwhile.
    unsafe fn numbers(&self, place: u16, length: usize) -> &'a [f32] {
        // SAFETY: promised by the caller.
        unsafe { std::slice::from_raw_parts(self.places[place as usize].cast_const().cast(), length) }
    }

    unsafe fn load(&self, input: usize, space: Space, tile: Tile, out: *mut u8) {
        let (layout, dtype) = (&self.kernel.layout, self.kernel.plan.input_dtypes[input]);
        let (size, class) = (dtype.size(), Class::of(dtype).size());
        let base = self.addresses.inputs[input].cast_mut();
        let operand = &layout.operands[input];
        // SAFETY: the contract of `run`; `out` is a place for the tile.
        unsafe {
            if space == Space::Uniform {
                return load::load(dtype, base, 1, out, 1);
            }
            let first = self.element(base, input, size, tile.row, tile.column);
            let whole = space == Space::Full && layout.is_block(input, tile.rows);
            if whole {
                return load::load(dtype, first, 1, out, tile.rows * tile.columns);
            }
            if layout.outer.len() <= 1 && (space == Space::Row || tile.columns == 1) {
                let stride = operand.outer.first().copied().unwrap_or(0);
                return load::load(dtype, first, stride, out, tile.rows);
            }
            let columns = if space == Space::Row { 1 } else { tile.columns };
            for row in 0..tile.rows {
                let source = self.element(base, input, size, tile.row + row, tile.column);
                load::load(dtype, source, operand.inner, out.add(row * columns * class), columns);
            }
        }
    }

    unsafe fn store(&self, output: usize, place: u16, space: Space, tile: Tile) {
        let (layout, plan) = (&self.kernel.layout, &self.kernel.plan.outputs[output]);
        if plan.direct && !self.addresses.staged[output] {
            return;
        }
        let (size, class) = (plan.dtype.size(), Class::of(plan.dtype).size());
        let operand = self.kernel.plan.input_dtypes.len() + output;
        let base = self.addresses.outputs[output];
        let source = self.places[place as usize];
        // SAFETY: the contract of `run`; the place holds the tile.
        unsafe {
            let first = self.element(base, operand, size, tile.row, tile.column);
            if space == Space::Full && layout.is_block(operand, tile.rows) {
                let length = tile.rows * tile.columns;
                if plan.streaming {
                    let narrowed = self.scratch.add(plan.staging);
                    let source = match class == size {
                        true => source,
                        false => {
                            store(plan.dtype, source, narrowed, 1, length);
                            narrowed
                        }
                    };
                    return stream::copy(source, first, length * size);
                }
                return if source != first {
                    store(plan.dtype, source, first, 1, length)
                };
            }
            let strides = &layout.operands[operand];
            // A value per row is stored once, whichever tile of the row comes last.
            let (column, columns) = if space == Space::Row { (0, 1) } else { (tile.column, tile.columns) };
            if layout.outer.len() <= 1 && columns == 1 {
                let first = self.element(base, operand, size, tile.row, column);
                let stride = strides.outer.first().copied().unwrap_or(0);
                return store(plan.dtype, source, first, stride, tile.rows);
            }
            for row in 0..tile.rows {
                let target = self.element(base, operand, size, tile.row + row, column);
                store(plan.dtype, source.add(row * columns * class), target, strides.inner, columns);
            }
        }
    }

    unsafe fn reduce(
        &mut self,
        reduction: Reduction,
        class: Class,
        total: usize,
        source: *const u8,
        out: *mut u8,
        tile: Tile,
    ) {
        for row in 0..tile.rows {
            // SAFETY: the source is a tile of `class`, and `out` has room for each row.
            unsafe {
                let part =
                    reduction::reduce(reduction, class, source.add(row * tile.columns * class.size()), tile.columns);
                let value = self.totals[total].add(reduction, part, tile.column);
                write_total(value, class, out.add(row * class.size()));
            }
        }
    }

    /// Puts the total of a row where the step of a reduction would have left it.
    pub(super) fn set_total(&mut self, step: &Step, class: Class, value: Total) {
        // SAFETY: the place of a value per row has room for it.
        unsafe { write_total(value, class, self.places[step.out as usize]) };
    }
}

/// # Safety
/// There is room for a value of the class.
unsafe fn write_total(value: Total, class: Class, out: *mut u8) {
    // SAFETY: promised by the caller.
    unsafe {
        match (value, class) {
            (Total::Floating(value), Class::F32) => out.cast::<f32>().write(value as f32),
            (Total::Floating(value), _) => out.cast::<f64>().write(value),
            (Total::Integer(value), _) => out.cast::<i64>().write(value),
        }
    }
}
