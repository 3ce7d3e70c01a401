//! The same elementwise program on many contiguous tensors, in one launch: a block works on one of them, which it finds
//! in a table that comes with the arguments.

use crate::LaunchShape;
use fulgurite_kernels::fused::{FusedProgram, OutputLayout};

use super::cuda_cpp::CudaCpp;
use super::elementwise::{MANY_BLOCKS, THREADS, write_flat};
use super::emitter::Emitter;
use super::kernel::grid;
use super::problem::{GenerateError, InputOperand, OutputOperand, Problem};
use super::region::Region;

/// The most tensors of a launch. With the most operands for each of them the arguments stay below the 32764 bytes that
/// a launch has room for from compute capability 7.0 on.
pub const MOST_TENSORS: usize = 224;
/// The most inputs and outputs of a program.
const MOST_OPERANDS: usize = 16;

/// A kernel for many tensors as text, and how to launch it. Its parameters are `pointers`, then `table`.
#[derive(Debug, Clone, PartialEq)]
pub struct ManyKernel {
    /// The kernel's name in the source.
    pub name: String,
    /// CUDA C++, to be compiled with [`OPTIONS`](super::OPTIONS).
    pub source: String,
    /// The launch for the lengths it was generated for.
    pub shape: LaunchShape,
    /// Which operands the first parameter has pointers of: of each of these inputs, and then of each output, those of
    /// all tensors in their order.
    pub inputs: Vec<usize>,
    /// The second parameter: lengths and first blocks of all tensors.
    pub table: Vec<u8>,
    /// Whether threads may use local memory.
    pub local_memory: bool,
}

impl ManyKernel {
    /// The kernel that does `program` on tensors of these lengths, none of them zero. The first elements of all
    /// operands are on multiples of `alignment` bytes, or of one element where that is more.
    ///
    /// # Errors
    /// [`GenerateError`]: no tensors or more than [`MOST_TENSORS`], more blocks than a grid can have, or a program that
    /// is no elementwise one.
    pub fn new(
        name: &str,
        program: &FusedProgram,
        lengths: &[usize],
        alignment: usize,
    ) -> Result<ManyKernel, GenerateError> {
        let tensors = lengths.len();
        if tensors == 0 || lengths.contains(&0) {
            return Err(GenerateError::Empty { shape: lengths.to_vec() });
        }
        if tensors > MOST_TENSORS {
            return Err(GenerateError::Malformed(format!("{tensors} tensors, at most {MOST_TENSORS}")));
        }
        if program.input_dtypes.len() + program.outputs.len() > MOST_OPERANDS {
            return Err(GenerateError::Malformed(format!("more than {MOST_OPERANDS} operands for many tensors")));
        }
        // One element would be seen as one for all.
        let shape = [lengths.iter().copied().max().unwrap_or(0).max(2)];
        let input = InputOperand { strides: &[1], alignment, counted: false };
        let layout = OutputLayout { shape: &shape, strides: &[1] };
        let output = OutputOperand { layout, alignment, summed: false };
        let inputs = vec![input; program.input_dtypes.len()];
        let outputs = vec![output; program.outputs.len()];
        let problem = Problem {
            name,
            program,
            shape: &shape,
            inputs: &inputs,
            outputs: &outputs,
            shared_bytes: 0,
            clusters: false,
        };
        let region = Region::new(&problem, CudaCpp::make)?;
        if region.by_row {
            return Err(GenerateError::Malformed("a reduction in a program for many tensors".into()));
        }
        let vector = region.vector_width(false, false);
        let blocks_of = |unroll: usize| lengths.iter().map(move |length| length.div_ceil(vector * unroll * THREADS));
        let unroll = if blocks_of(1).sum::<usize>() < MANY_BLOCKS { 1 } else { 4 };
        let wide = region.is_wide();

        let mut firsts: Vec<u32> = Vec::with_capacity(tensors);
        let mut blocks = 0usize;
        for own in blocks_of(unroll) {
            firsts.push(grid(blocks)?);
            blocks += own;
        }
        let mut table: Vec<u8> = lengths
            .iter()
            .flat_map(|length| {
                if wide { (*length as u64).to_le_bytes().to_vec() } else { (*length as u32).to_le_bytes().to_vec() }
            })
            .chain(firsts.iter().flat_map(|first| first.to_le_bytes()))
            .collect();
        // A structure is a multiple of its alignment.
        table.resize(table.len().next_multiple_of(if wide { 8 } else { 4 }), 0);

        let mut emitter = Emitter::new(&region, vector, unroll, wide);
        emitter.block = "block";
        let used = region.used_inputs();
        let mut members = Vec::new();
        emitter.text.line("int tensor = 0;");
        emitter.text.open(format!("for (int high = {}; tensor < high;)", tensors - 1));
        emitter.text.line("const int middle = (tensor + high + 1) / 2;");
        let block = emitter.functions.block();
        emitter.text.line(format!("if (table.first[middle] <= {block}) tensor = middle;"));
        emitter.text.line("else high = middle - 1;");
        emitter.text.close();
        emitter.text.line(format!("const unsigned block = {block} - table.first[tensor];"));
        emitter.text.line(format!("const {} count = table.count[tensor];", emitter.index));
        let inputs = used.iter().map(|&input| (&region.inputs[input], "const "));
        for (operand, constant) in inputs.chain(region.outputs.iter().map(|output| (output, ""))) {
            let (kind, name) = (emitter.functions.stored_type(operand.dtype), &operand.name);
            members.push(format!("    {constant}{kind}* {name}[{tensors}];\n"));
            emitter.text.line(format!("{constant}{kind}* const {name} = pointers.{name}[tensor];"));
        }
        let head = emitter.functions.head_of_many(&region.name, &members, tensors, emitter.index, THREADS);
        write_flat(&mut emitter);
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let description = format!(
            "elementwise on {tensors} tensors; {vector} element{} at once, {unroll} time{} a thread.",
            plural(vector),
            plural(unroll)
        );
        Ok(ManyKernel {
            name: region.name.clone(),
            source: emitter.finish(&description, &head),
            shape: LaunchShape::linear(grid(blocks)?, THREADS as u32),
            inputs: used,
            table,
            local_memory: region.needs_local_memory(),
        })
    }
}
