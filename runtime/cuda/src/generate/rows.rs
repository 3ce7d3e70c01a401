//! Programs that reduce rows, or have outputs of one value a row.
//!
//! Short rows belong to a few lanes of a warp, longer ones to a block, and a row's elements stay in the registers of
//! the threads that loaded them, so that each is read from memory once however many reductions there are. A row that
//! registers of a block do not hold is kept in shared memory as it was read: that of a block of which a multiprocessor
//! has two, or of a cluster of such blocks where there are clusters. One that does not fit there either is read again
//! by each pass, mostly from the second-level cache. Which threads handle which columns is the same in all passes: what
//! a thread stores, no other thread reads.

use crate::LaunchShape;
use fulgurite_kernels::fused::values::Space;

use super::emitter::{Emitter, row_start, sum};
use super::kernel::{GeneratedKernel, GeneratedParameter, grid};
use super::problem::{GenerateError, Problem};
use super::region::{Operand, Region};
use super::row_plan::{Plan, has_several_rows};
use super::row_writer::Writer;

/// Most elements that a thread handles together where columns are summed.
const VECTOR_OF_SUMS: usize = 4;

pub(super) fn generate(region: &Region, problem: &Problem<'_>) -> Result<GeneratedKernel, GenerateError> {
    let summed = region.sums().next().is_some();
    let widest = region.vector_width(true, true);
    // Each element of a thread that is summed takes a register.
    let few = if summed { widest.min(VECTOR_OF_SUMS) } else { widest };
    // Where a thread has one vector of a row, a longer one has more bytes in flight.
    let whole = if summed && has_several_rows(region, widest) { widest } else { few };
    let planned = |vector: usize| Plan::new(region, vector, problem).map(|plan| (plan, vector));
    // Shorter ones where a thread cannot hold as much.
    let shorter = std::iter::successors(Some(whole), |vector| (*vector > 1).then_some(vector / 2));
    let Some((plan, vector)) = shorter.into_iter().find_map(planned) else {
        return Err(GenerateError::Sums { width: region.width });
    };
    let rows = region.rows();
    let wide_rows = rows > i32::MAX as usize;
    let mut writer = Writer {
        emitter: Emitter::new(region, vector, plan.unroll, region.has_wide_rows()),
        plan: &plan,
        row_type: if wide_rows { "unsigned long long" } else { "unsigned" },
        partly: !summed && (2..32).contains(&plan.lanes),
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
    let resident = (plan.resident > 1).then_some(plan.resident);
    let head = writer.emitter.functions.head(&region.name, &declared, plan.threads, resident);
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
            self.emitter.text.line(self.emitter.functions.await_fetched());
        }
        if summed && !self.plan.cached.is_empty() {
            self.emitter.text.line(self.emitter.functions.await_fetched());
        }
        self.load_early(|operand| !operand.is_same_for_all_rows());
        if summed {
            let next = format!("row + {}", self.blocks_of_rows());
            self.ask_for_row(&format!("if ({next} < rows)"), &next);
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
        let words = &self.emitter.functions;
        let (thread, block, arrive) = (words.thread(), words.block(), words.cluster_arrive());
        let (kind, text) = (self.row_type, &mut self.emitter.text);
        let blocks = self.plan.blocks;
        if blocks > 1 {
            text.line("// No block writes to another's memory before that one has begun.");
            text.line(arrive);
            text.line(format!("const int lane = (int)({block} % {blocks}u * {}u + {thread});", self.plan.threads));
            let mark = text.mark();
            text.line(format!("const {kind} row = {block} / {blocks}u;"));
            return Some(mark);
        }
        if lanes > 1 {
            let place = if per_block > 1 { format!("{thread} % {lanes}u") } else { thread.to_owned() };
            text.line(format!("const int lane = (int){};", if per_block > 1 { format!("({place})") } else { place }));
        }
        let number = match (per_block, lanes) {
            (1, _) => {
                let mark = text.mark();
                text.line(format!("const {kind} row = {block};"));
                return Some(mark);
            }
            (_, 1) => format!("({kind}){block} * {per_block}u + {thread}"),
            _ => format!("({kind}){block} * {per_block}u + {thread} / {lanes}u"),
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
            let (kind, name) = (self.emitter.functions.stored_type(operand.dtype), &operand.name);
            self.emitter.text.line(format!("{constant}{kind}* const {name}_row = {name} + {start};"));
        }
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
            let words = &self.emitter.functions;
            self.emitter.text.line(match (self.plan.lanes, self.plan.blocks) {
                (..=32, _) => words.warp_barrier().to_owned(),
                (_, 1) => words.barrier().to_owned(),
                _ => format!("{} {}", words.cluster_arrive(), words.cluster_wait()),
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
