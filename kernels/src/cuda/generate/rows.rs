//! Programs that reduce rows, or have outputs of one value a row.
//!
//! Short rows belong to a few lanes of a warp, longer ones to a block, and a row's elements stay in the registers of
//! the threads that loaded them, so that each is read from memory once however many reductions there are. A row that
//! registers of a block do not hold is kept in shared memory as it was read: that of a block of which a multiprocessor
//! has two, or of a cluster of such blocks where there are clusters. One that does not fit there either is read again
//! by each pass, mostly from the second-level cache. Which threads handle which columns is the same in all passes: what
//! a thread stores, no other thread reads.

use crate::cuda::LaunchShape;
use crate::fused::values::{Kind, Space};

use super::emitter::{Emitter, row_start, sum, times};
use super::functions::start_of;
use super::kernel::{GeneratedKernel, GeneratedParameter, grid};
use super::problem::{GenerateError, Problem};
use super::region::{Operand, Region};
use super::row_plan::Plan;
use super::steady::{Steady, steady};
use super::text::{class_type, literal, stored_type};
use crate::tile::Class;
use crate::tile::reduction::Reduction;

/// What rows that are kept in shared memory start at a multiple of, in bytes.
const CACHE_ALIGNMENT: usize = 16;

/// Most elements that a thread handles together where columns are summed.
const VECTOR_OF_SUMS: usize = 4;

pub(super) fn generate(region: &Region, problem: &Problem<'_>) -> Result<GeneratedKernel, GenerateError> {
    let summed = region.sums().next().is_some();
    let vector = region.vector_width(true, true);
    // Each element of a thread that is summed takes a register.
    let vector = if summed { vector.min(VECTOR_OF_SUMS) } else { vector };
    let Some(plan) = Plan::new(region, vector, problem) else {
        return Err(GenerateError::Sums { width: region.width });
    };
    let rows = region.rows();
    let wide_rows = rows > i32::MAX as usize;
    let mut writer = Writer {
        emitter: Emitter::new(region, vector, plan.unroll, region.has_wide_rows()),
        plan: &plan,
        row_type: if wide_rows { "unsigned long long" } else { "unsigned" },
        partly: (2..32).contains(&plan.lanes),
        begun: false,
    };
    if plan.blocks > 1 {
        writer.emitter.functions.clusters();
    }
    writer.write();
    let (mut declared, mut parameters) = region.pointers();
    if plan.rows_per_block() > 1 || summed {
        declared.push(format!("const {} rows", writer.row_type));
        let wide = GeneratedParameter::I64(rows as i64);
        parameters.push(if wide_rows { wide } else { GeneratedParameter::U32(rows as u32) });
    }
    let resident = if plan.resident > 1 { format!(", {}", plan.resident) } else { String::new() };
    let head = format!(
        "extern \"C\" __global__ void __launch_bounds__({}{resident}) {}({})",
        plan.threads,
        region.name,
        declared.join(", ")
    );
    let parts = if summed { plan.staying_blocks(rows) } else { 0 };
    let blocks = grid(match parts {
        0 => rows.div_ceil(plan.rows_per_block()).saturating_mul(plan.blocks),
        parts => parts,
    })?;
    let shape = LaunchShape::linear(blocks, plan.threads as u32).shared(plan.shared_bytes as u32);
    let [input_alignments, output_alignments] = region.alignments(vector);
    Ok(GeneratedKernel {
        name: region.name.clone(),
        source: writer.emitter.finish(&plan.describe(region.width, vector), &head),
        shape: if plan.blocks > 1 { shape.cluster([plan.blocks as u32, 1, 1]) } else { shape },
        parameters,
        parts,
        input_alignments,
        output_alignments,
        local_memory: region.needs_local_memory(),
    })
}

struct Writer<'a> {
    emitter: Emitter<'a>,
    plan: &'a Plan,
    row_type: &'static str,
    /// Whether lanes of one warp may have no row.
    partly: bool,
    /// Whether the blocks of a cluster have waited for one another to begin.
    begun: bool,
}

impl Writer<'_> {
    fn write(&mut self) {
        let region = self.emitter.region;
        let summed = region.sums().next().is_some();
        let row = if summed { self.begin_sums() } else { self.write_row_number() };
        self.write_row_starts();
        let fetches = !summed && {
            self.declare_cache();
            self.fetch()
        };
        if !summed {
            self.emitter.define_uniform();
        }
        for input in region.used_inputs_in(Space::Row) {
            let place = sum([row_start(&region.inputs[input])]);
            let element = if summed { format!("next{input}") } else { format!("in{input}[{place}]") };
            self.emitter.define_input(input, &element);
        }
        if fetches {
            self.emitter.text.line("await_fetched();");
        }
        if summed && !self.plan.cached.is_empty() {
            self.emitter.text.line("await_fetched();");
        }
        self.load_early(|operand| !operand.is_same_for_all_rows());
        if summed {
            self.ask_for_row("if (row + gridDim.x < rows)", "row + gridDim.x");
        }
        let count = self.plan.passes.list.len();
        for pass in 0..count {
            self.define_row_values(|level| level == pass);
            self.write_pass(pass);
        }
        self.define_row_values(|level| level >= count);
        self.store_row_values();
        if summed {
            self.end_sums();
        }
        if let Some(row) = row {
            self.emitter.text.sweep(row, "row");
        }
    }

    fn define_row_values(&mut self, level: impl Fn(usize) -> bool) {
        let region = self.emitter.region;
        self.emitter.define_all(|value| region.space(value) == Space::Row && level(region.values.list[value].level));
    }

    /// `lane` within the row, and `row`. Gives the place of the latter's definition if it may be needless.
    fn write_row_number(&mut self) -> Option<usize> {
        let (lanes, per_block) = (self.plan.lanes, self.plan.rows_per_block());
        let (kind, text) = (self.row_type, &mut self.emitter.text);
        let blocks = self.plan.blocks;
        if blocks > 1 {
            text.line("// No block writes to another's memory before that one has begun.");
            text.line("cluster_arrive();");
            text.line(format!(
                "const int lane = (int)(blockIdx.x % {blocks}u * {}u + threadIdx.x);",
                self.plan.threads
            ));
            let mark = text.mark();
            text.line(format!("const {kind} row = blockIdx.x / {blocks}u;"));
            return Some(mark);
        }
        if lanes > 1 {
            let place = if per_block > 1 { format!("threadIdx.x % {lanes}u") } else { "threadIdx.x".into() };
            text.line(format!("const int lane = (int){};", if per_block > 1 { format!("({place})") } else { place }));
        }
        let number = match (per_block, lanes) {
            (1, _) => {
                let mark = text.mark();
                text.line(format!("const {kind} row = blockIdx.x;"));
                return Some(mark);
            }
            (_, 1) => format!("({kind})blockIdx.x * {per_block}u + threadIdx.x"),
            _ => format!("({kind})blockIdx.x * {per_block}u + threadIdx.x / {lanes}u"),
        };
        if self.partly {
            text.line(format!("const {kind} number = {number};"));
            text.line("// Lanes beyond the last row take part in shuffles, and store nothing.");
            text.line("const bool active = number < rows;");
            let mark = text.mark();
            text.line(format!("const {kind} row = active ? number : rows - 1;"));
            return Some(mark);
        } else {
            text.line(format!("const {kind} row = {number};"));
            text.line("if (row >= rows) return;");
        }
        None
    }

    /// Pointers to the row, for operands that have elements of their own in each.
    fn write_row_starts(&mut self) {
        let region = self.emitter.region;
        // Where blocks go from row to row, what is copied ahead is not read here.
        let summed = region.sums().next().is_some();
        let values = region.used_inputs_in(Space::Row);
        let cached = &self.plan.cached;
        let ahead = |input: &usize| summed && (values.contains(input) || cached.iter().any(|each| each.0 == *input));
        let mut inputs = region.used_inputs();
        inputs.retain(|input| !ahead(input));
        let operands: Vec<&Operand> =
            inputs.iter().map(|&input| &region.inputs[input]).chain(&region.outputs).collect();
        let axes: Vec<usize> = (0..region.extents.len()).collect();
        for line in self.emitter.coordinates("row", "long long", &axes, &operands) {
            self.emitter.text.line(line);
        }
        let mut full_inputs = region.used_inputs_in(Space::Full);
        full_inputs.retain(|input| !ahead(input));
        let full_outputs =
            (0..region.outputs.len()).filter(|&output| !region.per_row[output] && !region.summed[output]);
        let full = full_inputs.iter().map(|&input| ("const ", &region.inputs[input]));
        for (constant, operand) in full.chain(full_outputs.map(|output| ("", &region.outputs[output]))) {
            let Some(start) = row_start(operand) else { continue };
            let (kind, name) = (stored_type(operand.dtype), &operand.name);
            self.emitter.text.line(format!("{constant}{kind}* const {name}_row = {name} + {start};"));
        }
    }

    fn declare_cache(&mut self) {
        if self.plan.cached.is_empty() {
            return;
        }
        self.emitter.text.line(format!("extern __shared__ __align__({CACHE_ALIGNMENT}) unsigned char shared[];"));
        for &(input, offset) in &self.plan.cached {
            let kind = stored_type(self.emitter.region.inputs[input].dtype);
            self.emitter.text.line(format!("{kind}* const row{input} = reinterpret_cast<{kind}*>(shared + {offset});"));
        }
    }

    /// Starts copies of what is kept in shared memory, all of a row at once. Gives whether there are any.
    fn fetch(&mut self) -> bool {
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
    fn is_fetched(&self, input: usize) -> bool {
        let (operand, vector) = (&self.emitter.region.inputs[input], self.emitter.vector);
        self.is_cached(input) && operand.is_packed(vector) && vector * operand.dtype.size() >= 4
    }

    /// Where in the block's part of a row the thread's vector is, in a loop with so many of them at a time.
    fn cache_place(&self, unroll: usize) -> String {
        let (blocks, threads, vector) = (self.plan.blocks, self.plan.threads, self.emitter.vector as isize);
        if blocks == 1 {
            return "column".to_owned();
        }
        let thread = "(int)threadIdx.x";
        let number = if unroll > 1 { format!("(k * {threads} + {thread})") } else { thread.to_owned() };
        format!("start / {blocks} + {}", times(&number, vector))
    }

    fn is_cached(&self, input: usize) -> bool {
        self.plan.cached.iter().any(|&(cached, _)| cached == input)
    }

    /// An operand by the name of the pointer to its row.
    fn row_of(&self, operand: &Operand) -> Operand {
        let name = if row_start(operand).is_some() { format!("{}_row", operand.name) } else { operand.name.clone() };
        Operand { name, ..operand.clone() }
    }

    /// The place of the column within a row of an operand.
    fn place(&self, operand: &Operand) -> String {
        sum([(operand.inner != 0).then(|| times("column", operand.inner))])
    }

    /// `[k][j]`, as far as there are several.
    fn element(&self) -> String {
        format!("{}{}", self.emitter.which(), if self.emitter.vector > 1 { "[j]" } else { "" })
    }

    fn write_pass(&mut self, number: usize) {
        let region = self.emitter.region;
        let passes = &self.plan.passes;
        let pass = &passes.list[number];
        self.emitter.text.line("");
        let last = number + 1 == passes.list.len();
        let outputs: Vec<usize> = if last {
            (0..region.outputs.len()).filter(|&output| !region.per_row[output]).collect()
        } else {
            Vec::new()
        };
        let purposes = pass.reductions.iter().map(|&value| region.names[value].clone());
        let purposes: Vec<String> = purposes.chain(outputs.iter().map(|output| format!("output {output}"))).collect();
        self.emitter.text.line(format!("// Pass {} of {}: {}.", number + 1, passes.list.len(), purposes.join(", ")));

        // What stays: totals, and what later passes read.
        for &value in &pass.reductions {
            let (reduction, class) = self.reduction(value);
            let start = literal(class, start_of(reduction, class));
            self.emitter.text.line(format!("{} {} = {start};", class_type(class), region.names[value]));
        }
        let reused = |value: &&usize| !self.plan.walks && passes.is_reused_after(number, **value);
        for &value in pass.computed.iter().filter(reused) {
            match region.input_of(value) {
                Some(input) if self.plan.early.contains(&input) => {}
                Some(input) => self.emitter.declare_held(&format!("x{input}"), &region.inputs[input]),
                None => self.declare_kept(value),
            }
        }
        let column = self.open_columns();
        let (loaded, mut fresh): (Vec<usize>, Vec<usize>) = (pass.computed.iter().chain(&pass.reused))
            .filter_map(|&value| Some((value, region.input_of(value)?)))
            .filter(|(value, _)| self.plan.walks || pass.computed.contains(value))
            .filter(|(_, input)| !self.plan.early.contains(input))
            .map(|(value, input)| (input, value))
            .unzip();
        fresh.retain(|value| self.plan.walks || !passes.is_reused_after(number, *value));
        for &value in &fresh {
            if let Some(input) = region.input_of(value) {
                self.emitter.declare_held(&format!("x{input}"), &region.inputs[input]);
            }
        }
        if !loaded.is_empty() {
            let column = self.open_vectors();
            for &input in &loaded {
                self.load(number, input);
            }
            self.close_vectors(column);
        }
        self.compute(number, &outputs);
        self.close_columns(column);
        self.combine(&pass.reductions);
    }

    fn reduction(&self, value: usize) -> (Reduction, Class) {
        match self.emitter.region.values.list[value].kind {
            Kind::Reduce(reduction, _) => (reduction, self.emitter.region.class(value)),
            kind => unreachable!("{kind:?} is no reduction"),
        }
    }

    fn declare_kept(&mut self, value: usize) {
        let kind = class_type(self.emitter.region.class(value));
        let [vectors, elements] = [self.emitter.unroll, self.emitter.vector]
            .map(|count| if count > 1 { format!("[{count}]") } else { String::new() });
        let name = &self.emitter.region.names[value];
        self.emitter.text.line(format!("{kind} kept_{name}{vectors}{elements};"));
    }

    /// Opens the loop along the row, or a block. Gives the place of the definition of `column`, if it is here.
    fn open_columns(&mut self) -> Option<usize> {
        if self.plan.walks {
            let step = self.plan.lanes * self.emitter.vector * self.emitter.unroll;
            let (index, width) = (self.emitter.index, self.emitter.region.width);
            if !self.plan.cached.is_empty() {
                // The compiler would take the registers of one block for several steps at once.
                self.emitter.text.line("#pragma unroll 1");
            }
            self.emitter.text.open(format!("for ({index} start = 0; start < {width}; start += {step})"));
        } else {
            self.emitter.text.open("");
        }
        (self.emitter.unroll == 1).then(|| self.write_column())
    }

    fn close_columns(&mut self, column: Option<usize>) {
        if let Some(column) = column {
            self.emitter.text.sweep(column, "column");
        }
        self.emitter.text.close();
    }

    /// Where the thread's vector, or its k-th one, lies in the row.
    fn write_column(&mut self) -> usize {
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

    /// Whether a thread's vectors always lie in the row.
    fn is_covered(&self) -> bool {
        let (width, step) = (self.emitter.region.width, self.plan.lanes * self.emitter.vector * self.emitter.unroll);
        if self.plan.walks { width.is_multiple_of(step) } else { width == step }
    }

    /// Opens the loop over a thread's vectors, as far as they lie in the row. Gives the place of the definition of
    /// `column`, if it is here.
    fn open_vectors(&mut self) -> Option<usize> {
        self.emitter.open_vectors();
        let column = (self.emitter.unroll > 1).then(|| self.write_column());
        if !self.is_covered() {
            self.emitter.text.open(format!("if (column < {})", self.emitter.region.width));
        }
        column
    }

    fn close_vectors(&mut self, column: Option<usize>) {
        if !self.is_covered() {
            self.emitter.text.close();
        }
        if let Some(column) = column {
            self.emitter.text.sweep(column, "column");
        }
        self.emitter.close_vectors();
    }

    /// Loads an input from memory, or from where an earlier pass put it.
    fn load(&mut self, number: usize, input: usize) {
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

    /// Arithmetic, totals and stores of a thread's vectors.
    fn compute(&mut self, number: usize, outputs: &[usize]) {
        let region = self.emitter.region;
        let passes = &self.plan.passes;
        let pass = &passes.list[number];
        // A step's part of a long sum is formed by itself, which keeps the rounding errors of many steps small.
        let parts: Vec<usize> = pass.reductions.iter().copied().filter(|&value| self.has_parts(value)).collect();
        for &value in &parts {
            let kind = class_type(region.class(value));
            self.emitter.text.line(format!(
                "{kind} part_{} = {};",
                region.names[value],
                literal(region.class(value), 0.0)
            ));
        }
        let column = self.open_vectors();
        let stored: Vec<usize> = outputs.iter().copied().filter(|&output| !region.summed[output]).collect();
        for &output in &stored {
            let kind = self.emitter.held_type(&region.outputs[output]);
            self.emitter.text.line(format!("{kind} y{output};"));
        }
        let steady = steady(region, &pass.computed, self.emitter.vector);
        if !steady.is_empty() {
            let mut conditions: Vec<&str> = steady.iter().map(|each| each.condition.as_str()).collect();
            conditions.dedup();
            self.emitter.text.open(format!("if ({})", conditions.join(" && ")));
            self.elements(number, outputs, &parts, &steady);
            self.emitter.text.close();
            self.emitter.text.open("else");
        }
        self.elements(number, outputs, &parts, &[]);
        if !steady.is_empty() {
            self.emitter.text.close();
        }
        if !stored.is_empty() {
            if self.partly {
                self.emitter.text.open("if (active)");
            }
            for &output in &stored {
                let operand = &region.outputs[output];
                let (row, place) = (self.row_of(operand), self.place(operand));
                self.emitter.store(&format!("y{output}"), &row, &place, None);
            }
            if self.partly {
                self.emitter.text.close();
            }
        }
        self.close_vectors(column);
        for &value in &parts {
            let name = &region.names[value];
            self.emitter.text.line(format!("{name} = {name} + part_{name};"));
        }
    }

    /// Arithmetic of a vector's elements, in which those of `steady` have their usual results.
    fn elements(&mut self, number: usize, outputs: &[usize], parts: &[usize], steady: &[Steady]) {
        let region = self.emitter.region;
        let passes = &self.plan.passes;
        let pass = &passes.list[number];
        let keeps = |value: usize| {
            !self.plan.walks && region.input_of(value).is_none() && passes.is_reused_after(number, value)
        };
        // What is left to compute where comparisons are not.
        let mut wanted = vec![steady.is_empty(); region.used.len()];
        let reduced = pass.reductions.iter().flat_map(|&value| region.values.list[value].operands());
        let stored = outputs.iter().map(|&output| region.values.outputs[output] as usize);
        let kept = pass.computed.iter().copied().filter(|&value| keeps(value));
        reduced.chain(stored).chain(kept).for_each(|value| wanted[value] = true);
        for value in (0..wanted.len()).rev() {
            if wanted[value] && !pass.reused.contains(&value) && !steady.iter().any(|each| each.value == value) {
                region.values.list[value].operands().for_each(|operand| wanted[operand] = true);
            }
        }
        self.emitter.open_elements();
        for &value in pass.computed.iter().chain(&pass.reused).filter(|&&value| wanted[value]) {
            if let Some(input) = region.input_of(value) {
                let element = self.emitter.held(&format!("x{input}"));
                self.emitter.define_input(input, &element);
            }
        }
        for &value in pass.reused.iter().filter(|&&value| wanted[value] && region.input_of(value).is_none()) {
            let (kind, name, element) = (class_type(region.class(value)), &region.names[value], self.element());
            self.emitter.text.line(format!("const {kind} {name} = kept_{name}{element};"));
        }
        for &value in pass.computed.iter().filter(|&&value| wanted[value]) {
            match steady.iter().find(|each| each.value == value) {
                Some(each) => self.emitter.text.line(format!("const bool {} = {};", region.names[value], each.usual)),
                None => self.emitter.define(value),
            }
            if keeps(value) {
                let (name, element) = (&region.names[value], self.element());
                self.emitter.text.line(format!("kept_{name}{element} = {name};"));
            }
        }
        for &value in &pass.reductions {
            let (reduction, class) = self.reduction(value);
            let Some(operand) = region.values.list[value].operands().next() else { continue };
            let name = &region.names[value];
            let total = if parts.contains(&value) { format!("part_{name}") } else { name.clone() };
            let combined = self.emitter.functions.combine(reduction, class, &total, &region.names[operand]);
            self.emitter.text.line(format!("{total} = {combined};"));
        }
        let at = if self.emitter.vector > 1 { ".at[j]" } else { "" };
        for &output in outputs {
            let result = self.emitter.result(output);
            let line = match region.summed[output] {
                true => format!("sum{output}{element} = sum{output}{element} + {result};", element = self.element()),
                false => format!("y{output}{at} = {result};"),
            };
            self.emitter.text.line(line);
        }
        self.emitter.close_elements();
    }

    fn has_parts(&self, value: usize) -> bool {
        let (reduction, class) = self.reduction(value);
        self.plan.walks && reduction == Reduction::Sum && class.is_floating()
    }

    /// Totals of all threads of the row from those of each.
    fn combine(&mut self, values: &[usize]) {
        let (lanes, warps) = (self.plan.lanes, self.plan.threads / 32);
        if lanes <= 32 {
            for &value in values.iter().filter(|_| lanes > 1) {
                let name = &self.emitter.region.names[value];
                let total = self.emitter.functions.of_lanes(self.reduction(value).0, lanes, name);
                self.emitter.text.line(format!("{name} = {total};"));
            }
            return;
        }
        // A block that stays may write the next row's parts while one of its warps reads those of this row.
        let stays = self.emitter.region.sums().next().is_some();
        let parts = |name: &str| if stays { format!("parts_{name}[turn]") } else { format!("parts_{name}") };
        for &value in values {
            let ((_, class), name) = (self.reduction(value), &self.emitter.region.names[value]);
            let turns = if stays { "[2]" } else { "" };
            self.emitter.text.line(format!("__shared__ {} parts_{name}{turns}[{warps}];", class_type(class)));
        }
        match values {
            [value] => {
                let (reduction, name) = (self.reduction(*value).0, &self.emitter.region.names[*value]);
                let total = self.emitter.functions.of_block(reduction, warps, name, &parts(name));
                self.emitter.text.line(format!("{name} = {total};"));
            }
            [] => {}
            _ => {
                for &value in values {
                    let (reduction, name) = (self.reduction(value).0, &self.emitter.region.names[value]);
                    let call = self.emitter.functions.of_warp(reduction, name, &parts(name));
                    self.emitter.text.line(format!("{call};"));
                }
                self.emitter.text.line("__syncthreads();");
                for &value in values {
                    let (reduction, name) = (self.reduction(value).0, &self.emitter.region.names[value]);
                    let total = self.emitter.functions.of_warps(reduction, warps, &parts(name));
                    self.emitter.text.line(format!("{name} = {total};"));
                }
            }
        }
        for &value in values.iter().filter(|_| self.plan.blocks > 1) {
            let ((reduction, class), blocks) = (self.reduction(value), self.plan.blocks);
            let (name, kind) = (&self.emitter.region.names[value], class_type(class));
            let total = self.emitter.functions.of_cluster(reduction, blocks, name, &format!("blocks_{name}"));
            if !self.begun {
                self.begun = true;
                self.emitter.text.line("cluster_wait();");
            }
            self.emitter.text.line(format!("__shared__ {kind} blocks_{name}[{blocks}];"));
            self.emitter.text.line(format!("{name} = {total};"));
        }
    }

    /// What a block that stays has before its first row; opens the loop over its rows.
    fn begin_sums(&mut self) -> Option<usize> {
        let region = self.emitter.region;
        self.emitter.text.line("const int lane = (int)threadIdx.x;");
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
            let element = stored_type(region.inputs[input].dtype);
            self.emitter.text.line(format!("{element} next{input};"));
        }
        self.ask_for_row("", "blockIdx.x");
        // Only reductions ask for it.
        let turns = self.plan.passes.list.iter().any(|pass| !pass.reductions.is_empty());
        if turns {
            self.emitter.text.line("int turn = 0;");
        }
        let next = if turns { ", turn ^= 1" } else { "" };
        self.emitter.text.open(format!("for ({kind} row = blockIdx.x; row < rows; row += gridDim.x{next})"));
        None
    }

    /// Closes the loop over the block's rows, and stores its parts of the sums.
    fn end_sums(&mut self) {
        let region = self.emitter.region;
        self.emitter.text.close();
        self.emitter.text.line("");
        self.emitter.text.line("// The block's parts of the sums over all rows.");
        self.emitter.text.open("");
        let whole = (self.emitter.unroll == 1).then(|| self.write_column());
        let column = self.open_vectors();
        for output in region.sums() {
            let part = format!("(long long)blockIdx.x * {} + column", region.width);
            self.emitter.open_elements();
            let at = if self.emitter.vector > 1 { " + j" } else { "" };
            let element = self.element();
            self.emitter.text.line(format!("out{output}[{part}{at}] = sum{output}{element};"));
            self.emitter.close_elements();
        }
        self.close_vectors(column);
        self.close_columns(whole);
    }

    /// Reads the values of the row with this number, if there is one, and starts copies of its elements.
    fn ask_for_row(&mut self, condition: &str, number: &str) {
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
    fn load_early(&mut self, wanted: impl Fn(&Operand) -> bool) {
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

    fn store_row_values(&mut self) {
        let region = self.emitter.region;
        let outputs: Vec<usize> = (0..region.outputs.len()).filter(|&output| region.per_row[output]).collect();
        if outputs.is_empty() {
            return;
        }
        self.emitter.text.line("");
        // A value of the only row is the same everywhere, and an output may be written over it all the same.
        let may_lie_over = |space: Space| !region.used_inputs_in(space).is_empty();
        let is_read = may_lie_over(Space::Row) || (region.rows() == 1 && may_lie_over(Space::Uniform));
        if self.plan.lanes > 1 && is_read {
            self.emitter.text.line("// All lanes have read the row's values before one of them is written over.");
            self.emitter.text.line(match (self.plan.lanes, self.plan.blocks) {
                (..=32, _) => "__syncwarp();",
                (_, 1) => "__syncthreads();",
                _ => "cluster_arrive(); cluster_wait();",
            });
        }
        let condition = match (self.plan.lanes > 1, self.partly) {
            (true, true) => "if (lane == 0 && active)",
            (true, false) => "if (lane == 0)",
            (false, true) => "if (active)",
            (false, false) => "",
        };
        self.emitter.text.open(condition);
        for output in outputs {
            let operand = &region.outputs[output];
            let (place, result) = (sum([row_start(operand)]), self.emitter.result(output));
            self.emitter.text.line(format!("{}[{place}] = {result};", operand.name));
        }
        self.emitter.text.close();
    }
}
