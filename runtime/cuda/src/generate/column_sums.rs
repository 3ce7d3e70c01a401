//! Sums of columns: blocks are persistent and loop over rows, and keep the sums of their rows in registers. The
//! elements of the next row are copied to shared memory meanwhile, by the threads that read them. Of short rows a block
//! has several at a time, each for a group of its threads, whose sums are added in order at the end.

use super::emitter::{row_start, sum};
use super::region::Operand;
use super::row_writer::Writer;
use fulgurite_kernels::fused::values::Space;

impl Writer<'_> {
    /// What a block that stays has before its first row; opens the loop over its rows.
    pub(super) fn begin_sums(&mut self) -> Option<usize> {
        let region = self.emitter.region;
        let words = (region.dialect)();
        let (lanes, thread) = (self.plan.lanes, words.thread());
        if self.plan.rows_per_block() > 1 {
            self.emitter.text.line(format!("const int lane = (int)({thread} % {lanes}u);"));
            self.emitter.text.line(format!("const unsigned group = {thread} / {lanes}u;"));
        } else {
            self.emitter.text.line(format!("const int lane = (int){thread};"));
        }
        self.emitter.define_uniform();
        self.load_early(Operand::is_same_for_all_rows);
        let [vectors, elements] = [self.emitter.unroll, self.emitter.vector]
            .map(|count| if count > 1 { format!("[{count}]") } else { String::new() });
        for output in region.sums() {
            let zero = if vectors.is_empty() && elements.is_empty() { "0.0f" } else { "{}" };
            self.emitter.text.line(format!("float sum{output}{vectors}{elements} = {zero};"));
        }
        let kind = self.row_type;
        self.declare_cache();
        for input in region.used_inputs_in(Space::Row) {
            let element = words.stored_type(region.inputs[input].dtype);
            self.emitter.text.line(format!("{element} next{input};"));
        }
        let first = self.first_row();
        let condition = if self.plan.rows_per_block() > 1 { format!("if ({first} < rows)") } else { String::new() };
        self.ask_for_row(&condition, &first);
        // Only reductions ask for it.
        let turns = self.plan.passes.list.iter().any(|pass| !pass.reductions.is_empty());
        if turns {
            self.emitter.text.line("int turn = 0;");
        }
        let next = if turns { ", turn ^= 1" } else { "" };
        let step = self.blocks_of_rows();
        self.emitter.text.open(format!("for ({kind} row = {first}; row < rows; row += {step}{next})"));
        None
    }

    /// The first row of a block, or of a group of its threads.
    fn first_row(&self) -> String {
        let block = self.emitter.functions.block();
        match self.plan.rows_per_block() {
            1 => block.to_owned(),
            several => format!("{block} * {several}u + group"),
        }
    }

    /// How many rows all blocks have at a time.
    pub(super) fn blocks_of_rows(&self) -> String {
        let blocks = self.emitter.functions.blocks();
        match self.plan.rows_per_block() {
            1 => blocks.to_owned(),
            several => format!("{blocks} * {several}u"),
        }
    }

    /// Closes the loop over the block's rows, and stores its parts of the sums.
    pub(super) fn end_sums(&mut self) {
        let region = self.emitter.region;
        self.emitter.text.close();
        self.emitter.text.line("");
        self.emitter.text.line("// The block's parts of the sums over all rows.");
        if self.plan.rows_per_block() > 1 {
            return self.end_sums_of_groups();
        }
        self.emitter.text.open("");
        let whole = (self.emitter.unroll == 1).then(|| self.write_column());
        let column = self.open_vectors();
        for output in region.sums() {
            let part = format!("(long long){} * {} + column", self.emitter.functions.block(), region.width);
            self.emitter.open_elements();
            let at = if self.emitter.vector > 1 { " + j" } else { "" };
            let element = self.element();
            self.emitter.text.line(format!("out{output}[{part}{at}] = sum{output}{element};"));
            self.emitter.close_elements();
        }
        self.close_vectors(column);
        self.close_columns(whole);
    }

    /// Adds the sums of the block's groups in order, and stores them.
    fn end_sums_of_groups(&mut self) {
        let region = self.emitter.region;
        let (groups, width, threads) = (self.plan.rows_per_block(), region.width, self.plan.threads);
        let words = (region.dialect)();
        let (thread, block, barrier) = (words.thread(), words.block(), words.barrier());
        let place = words.place_in_shared("float", 0);
        self.emitter.text.line(format!("float* const parts_of_groups = {place};"));
        for output in region.sums() {
            // Nobody reads a row any more, nor the sums before.
            self.emitter.text.line(barrier);
            self.emitter.text.open("");
            let column = self.write_column();
            self.emitter.open_elements();
            let at = if self.emitter.vector > 1 { " + j" } else { "" };
            let element = self.element();
            self.emitter.text.line(format!("parts_of_groups[group * {width}u + column{at}] = sum{output}{element};"));
            self.emitter.close_elements();
            self.close_columns(Some(column));
            self.emitter.text.line(barrier);
            let columns = format!("for (unsigned column = {thread}; column < {width}u; column += {threads}u)");
            self.emitter.text.open(columns);
            self.emitter.text.line("float total = parts_of_groups[column];");
            self.emitter.text.line(words.unroll(true));
            let added = format!("total = total + parts_of_groups[other * {width} + column];");
            self.emitter.text.line(format!("for (int other = 1; other < {groups}; ++other) {added}"));
            self.emitter.text.line(format!("out{output}[(long long){block} * {width} + column] = total;"));
            self.emitter.text.close();
        }
    }

    /// Reads the values of the row with this number, if there is one, and starts copies of its elements.
    pub(super) fn ask_for_row(&mut self, condition: &str, number: &str) {
        let region = self.emitter.region;
        let values = region.used_inputs_in(Space::Row);
        let elements: Vec<usize> = self.plan.cached.iter().map(|&(input, _)| input).collect();
        if values.is_empty() && elements.is_empty() {
            return;
        }
        let kind = self.row_type;
        self.emitter.text.line("// The next row is on its way while this one is worked on.");
        self.emitter.text.open(condition);
        self.emitter.text.line(format!("const {kind} following = {number};"));
        let operands: Vec<&Operand> = values.iter().chain(&elements).map(|&input| &region.inputs[input]).collect();
        let axes: Vec<usize> = (0..region.extents.len()).collect();
        for line in self.emitter.coordinates("following", "long long", &axes, &operands) {
            self.emitter.text.line(line);
        }
        for input in values {
            let place = sum([row_start(&region.inputs[input])]);
            self.emitter.text.line(format!("next{input} = in{input}[{place}];"));
        }
        if !elements.is_empty() {
            let whole = (self.emitter.unroll == 1).then(|| self.write_column());
            let column = self.open_vectors();
            for input in elements {
                let operand = &region.inputs[input];
                let from = sum([Some(operand.name.clone()), row_start(operand), Some("column".to_owned())]);
                let bytes = self.emitter.vector * operand.dtype.size();
                let call = self.emitter.functions.fetch(bytes, &format!("row{input} + column"), &from);
                self.emitter.text.line(format!("{call};"));
            }
            self.close_vectors(column);
            if let Some(whole) = whole {
                self.emitter.text.sweep(whole, "column");
            }
        }
        self.emitter.text.close();
    }

    /// Declares and loads the inputs among those to be loaded early that are as `wanted` says.
    pub(super) fn load_early(&mut self, wanted: impl Fn(&Operand) -> bool) {
        let region = self.emitter.region;
        let early: Vec<usize> =
            self.plan.early.iter().copied().filter(|&input| wanted(&region.inputs[input])).collect();
        if early.is_empty() {
            return;
        }
        for &input in &early {
            self.emitter.declare_held(&format!("x{input}"), &region.inputs[input]);
        }
        self.emitter.text.open("");
        let whole = (self.emitter.unroll == 1).then(|| self.write_column());
        let column = self.open_vectors();
        for &input in &early {
            self.load(0, input);
        }
        self.close_vectors(column);
        self.close_columns(whole);
    }
}
