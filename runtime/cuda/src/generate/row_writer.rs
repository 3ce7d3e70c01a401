//! What all parts of a kernel of rows are written with: the loop along a row, a thread's vectors, and where they are
//! read from.

use super::emitter::{Emitter, row_start, sum, times};
use super::region::Operand;
use super::row_plan::{Plan, copies};
use fulgurite_kernels::Reduction;
use fulgurite_kernels::fused::values::Kind;
use fulgurite_kernels::tile::Class;

/// What rows that are kept in shared memory start at a multiple of, in bytes.
const CACHE_ALIGNMENT: usize = 16;

/// A kernel of rows being written.
pub(super) struct Writer<'a> {
    pub(super) emitter: Emitter<'a>,
    pub(super) plan: &'a Plan,
    pub(super) row_type: &'static str,
    /// Whether lanes of one warp may have no row.
    pub(super) partly: bool,
    /// Whether the blocks of a cluster have waited for one another to begin.
    pub(super) begun: bool,
}

impl Writer<'_> {
    pub(super) fn declare_cache(&mut self) {
        if self.plan.shared_bytes == 0 {
            return;
        }
        self.emitter.text.line(self.emitter.functions.launched_shared(CACHE_ALIGNMENT));
        for &(input, offset) in &self.plan.cached {
            let kind = self.emitter.functions.stored_type(self.emitter.region.inputs[input].dtype);
            let place = self.emitter.functions.place_in_shared(kind, offset);
            // Each group of threads that has a row for itself keeps it apart.
            let several = self.plan.rows_per_block() > 1;
            let own = if several { format!(" + group * {}u", self.emitter.region.width) } else { String::new() };
            self.emitter.text.line(format!("{kind}* const row{input} = {place}{own};"));
        }
    }

    /// Starts copies of what is kept in shared memory, all of a row at once. Gives whether there are any.
    pub(super) fn fetch(&mut self) -> bool {
        let fetched: Vec<usize> =
            self.plan.cached.iter().map(|&(input, _)| input).filter(|&input| self.is_fetched(input)).collect();
        if fetched.is_empty() {
            return false;
        }
        let (index, width, vector) = (self.emitter.index, self.emitter.region.width, self.emitter.vector);
        let step = self.plan.lanes * vector;
        self.emitter.text.line("// Each thread fetches what it reads.");
        self.emitter.text.open(format!("for ({index} start = 0; start < {width}; start += {step})"));
        self.emitter.text.line(format!("const {index} column = start + {};", times("lane", vector as isize)));
        self.emitter.text.open(if width.is_multiple_of(step) {
            String::new()
        } else {
            format!("if (column < {width})")
        });
        for input in fetched {
            let operand = &self.emitter.region.inputs[input];
            let (row, place) = (self.row_of(operand).name, self.cache_place(1));
            let bytes = vector * operand.dtype.size();
            let call =
                self.emitter.functions.fetch(bytes, &format!("row{input} + {place}"), &format!("{row} + column"));
            self.emitter.text.line(format!("{call};"));
        }
        self.emitter.text.close();
        self.emitter.text.close();
        true
    }

    /// Whether the copy to shared memory goes on while threads work: of 4, 8 or 16 bytes.
    pub(super) fn is_fetched(&self, input: usize) -> bool {
        self.is_cached(input) && copies(self.emitter.region, input, self.emitter.vector)
    }

    /// Where in the block's part of a row the thread's vector is, in a loop with so many of them at a time.
    pub(super) fn cache_place(&self, unroll: usize) -> String {
        let (blocks, threads, vector) = (self.plan.blocks, self.plan.threads, self.emitter.vector as isize);
        if blocks == 1 {
            return "column".to_owned();
        }
        let thread = format!("(int){}", self.emitter.functions.thread());
        let number = if unroll > 1 { format!("(k * {threads} + {thread})") } else { thread };
        format!("start / {blocks} + {}", times(&number, vector))
    }

    pub(super) fn is_cached(&self, input: usize) -> bool {
        self.plan.cached.iter().any(|&(cached, _)| cached == input)
    }

    /// An operand by the name of the pointer to its row.
    pub(super) fn row_of(&self, operand: &Operand) -> Operand {
        let name = if row_start(operand).is_some() { format!("{}_row", operand.name) } else { operand.name.clone() };
        Operand { name, ..operand.clone() }
    }

    /// The place of the column within a row of an operand.
    pub(super) fn place(&self, operand: &Operand) -> String {
        sum([(operand.inner != 0).then(|| times("column", operand.inner))])
    }

    /// `[k][j]`, as far as there are several.
    pub(super) fn element(&self) -> String {
        format!("{}{}", self.emitter.which(), if self.emitter.vector > 1 { "[j]" } else { "" })
    }

    pub(super) fn reduction(&self, value: usize) -> (Reduction, Class) {
        match self.emitter.region.values.list[value].kind {
            Kind::Reduce(reduction, _) => (reduction, self.emitter.region.class(value)),
            kind => unreachable!("{kind:?} is no reduction"),
        }
    }

    pub(super) fn declare_kept(&mut self, value: usize) {
        let kind = self.emitter.functions.class_type(self.emitter.region.class(value));
        let [vectors, elements] = [self.emitter.unroll, self.emitter.vector]
            .map(|count| if count > 1 { format!("[{count}]") } else { String::new() });
        let name = &self.emitter.region.names[value];
        self.emitter.text.line(format!("{kind} kept_{name}{vectors}{elements};"));
    }

    /// Opens the loop along the row, or a block. Gives the place of the definition of `column`, if it is here.
    pub(super) fn open_columns(&mut self) -> Option<usize> {
        if self.plan.walks {
            let step = self.plan.lanes * self.emitter.vector * self.emitter.unroll;
            let (index, width) = (self.emitter.index, self.emitter.region.width);
            if !self.plan.cached.is_empty() {
                // The compiler would take the registers of one block for several steps at once.
                self.emitter.text.line(self.emitter.functions.unroll(false));
            }
            self.emitter.text.open(format!("for ({index} start = 0; start < {width}; start += {step})"));
        } else {
            self.emitter.text.open("");
        }
        (self.emitter.unroll == 1).then(|| self.write_column())
    }

    pub(super) fn close_columns(&mut self, column: Option<usize>) {
        if let Some(column) = column {
            self.emitter.text.sweep(column, "column");
        }
        self.emitter.text.close();
    }

    /// Writes the column of the thread's vector, or of its k-th one.
    pub(super) fn write_column(&mut self) -> usize {
        let (vector, index) = (self.emitter.vector, self.emitter.index);
        let mut number = match (self.emitter.unroll, self.plan.lanes) {
            (1, 1) => "0".to_owned(),
            (1, _) => "lane".to_owned(),
            (_, 1) => "k".to_owned(),
            (_, lanes) => format!("k * {lanes} + lane"),
        };
        if vector > 1 {
            number =
                if number.contains(' ') { format!("({number}) * {vector}") } else { format!("{number} * {vector}") };
        }
        if self.plan.walks {
            number = format!("start + {number}");
        }
        let mark = self.emitter.text.mark();
        self.emitter.text.line(format!("const {index} column = {number};"));
        mark
    }

    /// Whether a thread's vectors are always in the row.
    pub(super) fn is_covered(&self) -> bool {
        let (width, step) = (self.emitter.region.width, self.plan.lanes * self.emitter.vector * self.emitter.unroll);
        if self.plan.walks { width.is_multiple_of(step) } else { width == step }
    }

    /// Opens the loop over a thread's vectors, as far as they are in the row. Gives the place of the definition of
    /// `column`, if it is here.
    pub(super) fn open_vectors(&mut self) -> Option<usize> {
        self.emitter.open_vectors();
        let column = (self.emitter.unroll > 1).then(|| self.write_column());
        if !self.is_covered() {
            self.emitter.text.open(format!("if (column < {})", self.emitter.region.width));
        }
        column
    }

    pub(super) fn close_vectors(&mut self, column: Option<usize>) {
        if !self.is_covered() {
            self.emitter.text.close();
        }
        if let Some(column) = column {
            self.emitter.text.sweep(column, "column");
        }
        self.emitter.close_vectors();
    }

    /// Loads an input from memory, or from where an earlier pass put it.
    pub(super) fn load(&mut self, number: usize, input: usize) {
        let region = self.emitter.region;
        let operand = &region.inputs[input];
        let holder = format!("x{input}");
        let value = (0..region.used.len()).find(|&value| region.input_of(value) == Some(input));
        let Some(value) = value else { return };
        let cache = Operand { name: format!("row{input}"), inner: 1, alignment: CACHE_ALIGNMENT, ..operand.clone() };
        let pass = &self.plan.passes.list[number];
        let at = self.cache_place(self.emitter.unroll);
        if self.is_fetched(input) || (self.is_cached(input) && pass.reused.contains(&value)) {
            return self.emitter.load(&holder, &cache, &at, None);
        }
        let place = self.place(operand);
        let row = self.row_of(operand);
        self.emitter.load(&holder, &row, &place, None);
        if self.is_cached(input) {
            let held = format!("{holder}{}", self.emitter.which());
            self.emitter.store(&held, &cache, &at, None);
        }
    }
}
