//! One pass without reductions: each thread computes a few elements of every output.
//!
//! The grid is exact, not a loop over a fixed one: the hardware hands out blocks as others end, which balances the load
//! by itself, and the loads of a block that starts overlap with the stores of those that end. A thread first issues all
//! of its loads and then computes and stores, so that an output may be an input, and enough bytes are under way.

use crate::LaunchShape;
use fulgurite_kernels::fused::values::Space;

use super::emitter::{Emitter, row_start, sum, times};
use super::kernel::{GeneratedKernel, GeneratedParameter, grid};
use super::problem::GenerateError;
use super::region::{Operand, Region};

pub(super) const THREADS: usize = 256;
/// With fewer blocks than this a thread handles one vector, so that all multiprocessors have work.
pub(super) const MANY_BLOCKS: usize = 1024;

pub(super) fn generate(region: &Region) -> Result<GeneratedKernel, GenerateError> {
    // Where all dimensions are one, the last vector may be cut off; in rows it must not be.
    let flat = region.extents.is_empty();
    let vector = region.vector_width(!flat, false);
    let elements = region.rows() * region.width;
    let widest = region.inputs.iter().chain(&region.outputs).map(|operand| operand.dtype.size()).max().unwrap_or(4);
    let unroll = match elements / (vector * THREADS) {
        blocks if blocks < MANY_BLOCKS => 1,
        _ if vector * widest >= 16 => 2,
        _ => 4,
    };
    let wide = region.is_wide();
    let mut emitter = Emitter::new(region, vector, unroll, wide);
    let pieces = if flat { elements } else { elements / vector };
    if flat {
        write_flat(&mut emitter)
    } else {
        write_rows(&mut emitter)
    }

    let count = if wide { "unsigned long long" } else { "unsigned" };
    let (counter, counter_type) = if flat { ("count", emitter.index) } else { ("vectors", count) };
    let (mut declared, mut parameters) = region.pointers();
    declared.push(format!("const {counter_type} {counter}"));
    parameters.push(if wide { GeneratedParameter::I64(pieces as i64) } else { GeneratedParameter::U32(pieces as u32) });
    let head = emitter.functions.head(&region.name, &declared, THREADS, None);
    let description = format!(
        "elementwise{}; {vector} element{} at once, {unroll} time{} a thread.",
        if flat { String::new() } else { format!(" over {}", extents(region)) },
        if vector == 1 { "" } else { "s" },
        if unroll == 1 { "" } else { "s" },
    );
    let [input_alignments, output_alignments] = region.alignments(vector);
    let blocks = elements.div_ceil(vector * unroll * THREADS);
    Ok(GeneratedKernel {
        name: region.name.clone(),
        source: emitter.finish(&description, &head),
        shape: LaunchShape::linear(grid(blocks)?, THREADS as u32),
        parameters,
        input_alignments,
        output_alignments,
        parts: 0,
        local_memory: region.needs_local_memory(),
    })
}

/// The extents that the source depends on: all but the outermost.
fn extents(region: &Region) -> String {
    let inner = region.extents[1..].iter().chain([&region.width]).map(usize::to_string);
    format!("[.., {}]", inner.collect::<Vec<_>>().join(", "))
}

/// The number of a thread's k-th piece of work, among those of all threads.
fn piece(emitter: &Emitter<'_>) -> String {
    let block = match emitter.index {
        "int" => emitter.block.to_owned(),
        _ => format!("(unsigned long long){}", emitter.block),
    };
    let thread = emitter.functions.thread();
    match emitter.unroll {
        1 => format!("{block} * {THREADS}u + {thread}"),
        unroll => format!("({block} * {unroll}u + k) * {THREADS}u + {thread}"),
    }
}

fn full_outputs(region: &Region) -> impl Iterator<Item = &Operand> {
    region.outputs.iter()
}

/// All dimensions are one: an index is a place in every operand.
pub(super) fn write_flat(emitter: &mut Emitter<'_>) {
    emitter.define_uniform();
    let (index, vector) = (emitter.index, emitter.vector);
    let position = match vector {
        1 => format!("const {index} i = ({index})({});", piece(emitter)),
        _ => format!("const {index} i = ({index})({}) * {vector};", piece(emitter)),
    };
    let left = (vector > 1).then_some("count - i");
    write_threads(emitter, &[position], "i < count", |operand| sum([place_in_row(operand, "i")]), left);
}

/// Rows: the number of a vector is taken apart into coordinates, by divisions by constants.
fn write_rows(emitter: &mut Emitter<'_>) {
    emitter.define_uniform();
    let region = emitter.region;
    let (index, vector) = (emitter.index, emitter.vector);
    let number = if index == "int" { "unsigned" } else { "unsigned long long" };
    let used: Vec<&Operand> =
        region.used_inputs().into_iter().map(|input| &region.inputs[input]).chain(full_outputs(region)).collect();
    let axes: Vec<usize> = (0..region.extents.len()).collect();
    let per_row = region.width / vector;
    let mut lines = vec![format!("const {number} number = {};", piece(emitter))];
    if used.iter().any(|operand| operand.inner != 0) {
        lines.push(format!(
            "const {index} column = ({index})(number % {per_row}u){};",
            match vector {
                1 => String::new(),
                _ => format!(" * {vector}"),
            }
        ));
    }
    if used.iter().any(|operand| !operand.is_same_for_all_rows()) {
        lines.push(format!("const {number} row = number / {per_row}u;"));
    }
    lines.extend(emitter.coordinates("row", index, &axes, &used));
    let place = |operand: &Operand| sum([row_start(operand), place_in_row(operand, "column")]);
    write_threads(emitter, &lines, "number < vectors", place, None);
}

/// The part of a place that depends on the column.
fn place_in_row(operand: &Operand, column: &str) -> Option<String> {
    (operand.inner != 0).then(|| times(column, operand.inner))
}

/// Writes the body of a thread: all loads, then arithmetic and stores. `position` are lines that place the k-th piece.
fn write_threads(
    emitter: &mut Emitter<'_>,
    position: &[String],
    within: &str,
    place: impl Fn(&Operand) -> String,
    left: Option<&str>,
) {
    let region = emitter.region;
    let (full, row) = (region.used_inputs_in(Space::Full), region.used_inputs_in(Space::Row));
    let several = emitter.unroll > 1;
    let open = |emitter: &mut Emitter<'_>| {
        emitter.open_vectors();
        position.iter().for_each(|line| emitter.text.line(line));
        emitter.text.open(format!("if ({within})"));
    };
    let close = |emitter: &mut Emitter<'_>| {
        emitter.text.close();
        emitter.close_vectors();
    };
    // One value for all elements of a vector is held as one element.
    let declare = |emitter: &mut Emitter<'_>| {
        for &input in &full {
            emitter.declare_held(&format!("x{input}"), &region.inputs[input]);
        }
        let vector = std::mem::replace(&mut emitter.vector, 1);
        for &input in &row {
            emitter.declare_held(&format!("x{input}"), &region.inputs[input]);
        }
        emitter.vector = vector;
    };
    let load = |emitter: &mut Emitter<'_>| {
        for &input in &full {
            let operand = &region.inputs[input];
            emitter.load(&format!("x{input}"), operand, &place(operand), left);
        }
        for &input in &row {
            let operand = &region.inputs[input];
            let vector = std::mem::replace(&mut emitter.vector, 1);
            emitter.load(&format!("x{input}"), operand, &place(operand), None);
            emitter.vector = vector;
        }
    };
    if several && !(full.is_empty() && row.is_empty()) {
        declare(emitter);
        open(emitter);
        load(emitter);
        close(emitter);
        open(emitter);
    } else {
        open(emitter);
        emitter.defines_loaded = true;
        load(emitter);
    }
    for &input in &row {
        let element = format!("x{input}{}", emitter.which());
        emitter.define_input(input, &element);
    }
    emitter.define_all(|value| region.space(value) == Space::Row);
    for (index, output) in full_outputs(region).enumerate() {
        let kind = emitter.held_type(output);
        emitter.text.line(format!("{kind} y{index};"));
    }
    emitter.open_elements();
    for &input in &full {
        let element = emitter.held(&format!("x{input}"));
        emitter.define_input(input, &element);
    }
    emitter.define_all(|value| region.space(value) == Space::Full);
    let at = if emitter.vector > 1 { ".at[j]" } else { "" };
    for index in 0..region.outputs.len() {
        let result = emitter.result(index);
        emitter.text.line(format!("y{index}{at} = {result};"));
    }
    emitter.close_elements();
    for (index, output) in full_outputs(region).enumerate() {
        emitter.store(&format!("y{index}"), output, &place(output), left);
    }
    close(emitter);
}
