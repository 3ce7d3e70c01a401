//! Elementwise programs with inputs whose neighbours in memory are not neighbours in the output: permuted copies, above
//! all.
//!
//! Read in the output's order such an input costs a whole memory transaction for each element. Here a block handles a
//! square of the two dimensions: it reads the input along the input's fastest dimension into shared memory, and goes on
//! along the output's. Rows of the square have one element more than they hold, so that its columns are in different
//! banks.

use crate::LaunchShape;
use fulgurite_kernels::fused::values::Space;

use super::emitter::{Emitter, row_start, sum, times};
use super::kernel::{GeneratedKernel, grid};
use super::problem::GenerateError;
use super::region::{Operand, Region};

const THREADS: usize = 256;
/// Shorter dimensions leave too much of a square empty.
const SHORTEST: usize = 16;

/// The inputs that are read through shared memory, and the dimension that they are contiguous along.
#[derive(Debug)]
pub(super) struct Squares {
    axis: usize,
    inputs: Vec<usize>,
    /// Elements of a side.
    side: usize,
}

impl Squares {
    /// `None` where the output's order is as good for all inputs.
    pub(super) fn of(region: &Region) -> Option<Squares> {
        if region.by_row || region.width < SHORTEST {
            return None;
        }
        let fastest = |input: usize| {
            let operand = &region.inputs[input];
            if operand.inner.unsigned_abs() <= 1 {
                return None;
            }
            let long = |axis: &usize| operand.outer[*axis] == 1 && region.extents[*axis] >= SHORTEST;
            (0..region.extents.len()).find(long)
        };
        let inputs = region.used_inputs_in(Space::Full);
        let axis = inputs.iter().find_map(|&input| fastest(input))?;
        let inputs: Vec<usize> = inputs.into_iter().filter(|&input| fastest(input) == Some(axis)).collect();
        // A warp reads 32 elements beside each other: twice for narrow ones, so that a memory transaction is filled.
        let narrow = inputs.iter().all(|&input| region.inputs[input].dtype.size() <= 2);
        let side = if narrow && region.width > 32 && region.extents[axis] > 32 { 64 } else { 32 };
        Some(Squares { axis, inputs, side })
    }
}

pub(super) fn generate(region: &Region, squares: &Squares) -> Result<GeneratedKernel, GenerateError> {
    let side = squares.side;
    let mut emitter = Emitter::new(region, 1, side * side / THREADS, region.is_wide());
    write(&mut emitter, squares);
    let (declared, parameters) = region.pointers();
    let head = emitter.functions.head(&region.name, &declared, THREADS, None);
    let others: usize = (region.rows() / region.extents[squares.axis]).max(1);
    let blocks = region.width.div_ceil(side) * region.extents[squares.axis].div_ceil(side) * others;
    let turned: Vec<String> = squares.inputs.iter().map(|input| format!("input {input}")).collect();
    let extents: Vec<String> = region.extents.iter().chain([&region.width]).map(usize::to_string).collect();
    let description = format!(
        "elementwise over [{}]; {} through squares of {side} x {side} elements.",
        extents.join(", "),
        turned.join(" and "),
    );
    let [input_alignments, output_alignments] = region.alignments(1);
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

fn write(emitter: &mut Emitter<'_>, squares: &Squares) {
    let region = emitter.region;
    let Squares { axis, inputs, side } = squares;
    let (axis, side, index) = (*axis, *side, emitter.index);
    let extent = region.extents[axis];
    let place = |operand: &Operand| {
        let column = (operand.inner != 0).then(|| times("column", operand.inner));
        sum([row_start(operand), column])
    };

    // The block's square.
    let used: Vec<&Operand> =
        region.used_inputs().into_iter().map(|input| &region.inputs[input]).chain(&region.outputs).collect();
    let [across, down] = [region.width, extent].map(|length| length.div_ceil(side));
    let (thread, block) = (emitter.functions.thread(), emitter.functions.block());
    let text = &mut emitter.text;
    text.line(format!("const int lane = (int)({thread} % 32u), warp = (int)({thread} / 32u);"));
    text.line(format!("const {index} first_column = ({index})({block} % {across}u) * {side};"));
    text.line(format!("const {index} first_c{axis} = ({index})({block} / {across}u % {down}u) * {side};"));
    let others: Vec<usize> = (0..region.extents.len()).filter(|&other| other != axis).collect();
    if others.iter().any(|&other| used.iter().any(|operand| operand.outer[other] != 0)) {
        text.line(format!("const unsigned rest = {block} / {}u;", across * down));
        for line in emitter.coordinates("rest", index, &others, &used) {
            emitter.text.line(line);
        }
    }
    emitter.define_uniform();

    // The squares, read along the inputs' rows.
    let (step, within) = match side {
        32 => ("k * 8", String::new()),
        _ => ("k / 2 * 8", " + k % 2 * 32".to_owned()),
    };
    let open = |emitter: &mut Emitter<'_>, column: &str, coordinate: &str| {
        emitter.open_vectors();
        emitter.text.line(format!("const {index} column = first_column + {column};"));
        emitter.text.line(format!("const {index} c{axis} = first_c{axis} + {coordinate};"));
        emitter.text.open(format!("if (column < {} && c{axis} < {extent})", region.width));
    };
    let close = |emitter: &mut Emitter<'_>| {
        emitter.text.close();
        emitter.close_vectors();
    };
    let (slow, fast) = (format!("warp + {step}"), format!("lane{within}"));
    for &input in inputs {
        let kind = emitter.functions.stored_type(region.inputs[input].dtype);
        emitter.text.line(emitter.functions.shared(&format!("{kind} square{input}[{side}][{}]", side + 1)));
        emitter.declare_held(&format!("x{input}"), &region.inputs[input]);
    }
    open(emitter, &slow, &fast);
    for &input in inputs {
        let operand = &region.inputs[input];
        emitter.load(&format!("x{input}"), operand, &place(operand), None);
    }
    close(emitter);
    // Stored in a loop of its own, so that all loads are under way before the first is waited for. Elements beyond the
    // edge are stored too, and not read.
    emitter.open_vectors();
    for input in inputs {
        emitter.text.line(format!("square{input}[{slow}][{fast}] = x{input}[k];"));
    }
    emitter.close_vectors();

    // All other operands, and the squares again, along the output's rows.
    let direct: Vec<usize> = [Space::Full, Space::Row]
        .into_iter()
        .flat_map(|space| region.used_inputs_in(space))
        .filter(|input| !inputs.contains(input))
        .collect();
    if !direct.is_empty() {
        for &input in &direct {
            emitter.declare_held(&format!("x{input}"), &region.inputs[input]);
        }
        open(emitter, &fast, &slow);
        for &input in &direct {
            let operand = &region.inputs[input];
            emitter.load(&format!("x{input}"), operand, &place(operand), None);
        }
        close(emitter);
    }
    emitter.text.line(emitter.functions.barrier());
    open(emitter, &fast, &slow);
    for &input in inputs {
        emitter.define_input(input, &format!("square{input}[{fast}][{slow}]"));
    }
    for &input in &direct {
        emitter.define_input(input, &format!("x{input}[k]"));
    }
    emitter.define_all(|value| region.space(value) != Space::Uniform);
    for (index, output) in region.outputs.iter().enumerate() {
        let result = emitter.result(index);
        emitter.text.line(format!("{}[{}] = {result};", output.name, place(output)));
    }
    close(emitter);
}
