//! A region prepared for generation: typed values, collapsed dimensions, and what is known of each operand's memory.

use std::collections::BTreeMap;

use fulgurite_kernels::DType;
use fulgurite_kernels::Reduction;
use fulgurite_kernels::fused::layout::Layout;
use fulgurite_kernels::fused::values::{Kind, Lowered, Space, Values};
use fulgurite_kernels::fused::{FusedNode, FusedProgram};
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::tile::Class;

use super::dialect::{Dialect, MakeDialect};
use super::kernel::GeneratedParameter;
use super::problem::{GenerateError, Problem};
use super::text::identifier;

/// Elements that 32-bit indices reach, with room for the last block's surplus threads.
const INDEX_LIMIT: u64 = (1 << 31) - (1 << 22);

/// An input or output.
#[derive(Debug, Clone)]
pub(super) struct Operand {
    /// `in0`, `out1`, ...
    pub(super) name: String,
    pub(super) dtype: DType,
    /// Bytes that its address is known to be a multiple of.
    pub(super) alignment: usize,
    /// Strides of the outer dimensions, in elements.
    pub(super) outer: Vec<isize>,
    /// The stride along a row.
    pub(super) inner: isize,
    /// Whether the elements of each row are 0, 1, 2, ...: none is read.
    pub(super) counted: bool,
}

impl Operand {
    /// Elements between the furthest two of `extents` rows of `width` elements.
    fn reach(&self, extents: &[usize], width: usize) -> u64 {
        let along = |extent: usize, stride: isize| (extent as u64 - 1).saturating_mul(stride.unsigned_abs() as u64);
        let outer = extents.iter().zip(&self.outer).map(|(&extent, &stride)| along(extent, stride));
        outer.fold(along(width, self.inner), u64::saturating_add)
    }

    /// Whether `vector` neighbours of a row are read and written at once, where vectors are.
    pub(super) fn is_packed(&self, vector: usize) -> bool {
        self.inner == 1 && self.alignment.is_multiple_of(vector * self.dtype.size())
    }

    /// Whether it is the same for all rows.
    pub(super) fn is_same_for_all_rows(&self) -> bool {
        self.outer.iter().all(|&stride| stride == 0)
    }
}

#[derive(Debug)]
pub(super) struct Region {
    /// The kernel's name.
    pub(super) name: String,
    /// The nodes, a line each, as comments.
    pub(super) listing: Vec<String>,
    pub(super) values: Values,
    /// What each value is called.
    pub(super) names: Vec<String>,
    /// Whether an output depends on a value.
    pub(super) used: Vec<bool>,
    /// Extents of the outer dimensions.
    pub(super) extents: Vec<usize>,
    /// Elements of a row.
    pub(super) width: usize,
    pub(super) inputs: Vec<Operand>,
    pub(super) outputs: Vec<Operand>,
    /// For each output, whether it has one value a row,
    pub(super) per_row: Vec<bool>,
    /// and whether it is summed over all rows.
    pub(super) summed: Vec<bool>,
    /// Whether rows stay apart: for reductions, and outputs of one value a row.
    pub(super) by_row: bool,
    /// The language of the kernel.
    pub(super) dialect: MakeDialect,
}

impl Region {
    pub(super) fn new(problem: &Problem<'_>, dialect: MakeDialect) -> Result<Region, GenerateError> {
        check(problem)?;
        let program = problem.program;
        let by_row = program.nodes.iter().any(|node| matches!(node, FusedNode::Reduce(..)))
            || problem.outputs.iter().any(|output| output.summed || output.layout.shape.last() != problem.shape.last());
        let input_strides: Vec<&[isize]> = problem.inputs.iter().map(|input| input.strides).collect();
        let output_layouts: Vec<_> = problem.outputs.iter().map(|output| output.layout).collect();
        let layout = Layout::new(problem.shape, &input_strides, &output_layouts, by_row);
        let spaces: Vec<Space> = (0..problem.inputs.len()).map(|input| layout.space(input)).collect();
        let values = Values::new(program, &spaces);
        for (index, &value) in values.outputs.iter().enumerate() {
            if layout.per_row[index] && values.list[value as usize].space == Space::Full {
                return Err(GenerateError::Malformed(format!(
                    "output {index} has one value a row, and its node one an element"
                )));
            }
        }

        let operand = |index: usize, name: String, dtype: DType, alignment: usize| Operand {
            name,
            dtype,
            alignment: alignment.max(dtype.size()),
            outer: layout.operands[index].outer.to_vec(),
            inner: layout.operands[index].inner,
            counted: false,
        };
        let inputs: Vec<Operand> = (problem.inputs.iter().zip(&program.input_dtypes).enumerate())
            .map(|(index, (input, &dtype))| {
                let operand = operand(index, format!("in{index}"), dtype, input.alignment);
                let counted = input.counted && operand.inner == 1 && operand.is_same_for_all_rows();
                Operand { counted: counted && dtype == DType::I32, ..operand }
            })
            .collect();
        let outputs: Vec<Operand> = (problem.outputs.iter().zip(&program.outputs).enumerate())
            .map(|(index, (output, &(_, dtype)))| {
                operand(inputs.len() + index, format!("out{index}"), dtype, output.alignment)
            })
            .collect();

        let mut used = vec![false; values.list.len()];
        values.outputs.iter().for_each(|&output| used[output as usize] = true);
        for value in (0..used.len()).rev() {
            if used[value] {
                values.list[value].operands().for_each(|operand| used[operand] = true);
            }
        }
        Ok(Region {
            name: identifier(problem.name),
            listing: listing(program, &values),
            names: names(&values, &*dialect()),
            values,
            used,
            extents: layout.outer.to_vec(),
            width: layout.width,
            inputs,
            outputs,
            per_row: layout.per_row,
            summed: problem.outputs.iter().map(|output| output.summed).collect(),
            by_row,
            dialect,
        })
    }

    /// Outputs that are summed over all rows.
    pub(super) fn sums(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.summed.len()).filter(|&output| self.summed[output])
    }

    pub(super) fn rows(&self) -> usize {
        self.extents.iter().product()
    }

    pub(super) fn class(&self, value: usize) -> Class {
        self.values.list[value].class
    }

    pub(super) fn space(&self, value: usize) -> Space {
        self.values.list[value].space
    }

    /// Whether a value follows from numbers of the program alone, so that the compiler could compute it.
    pub(super) fn is_known(&self, value: u32) -> bool {
        let mut known: Vec<bool> = Vec::with_capacity(value as usize + 1);
        for each in &self.values.list[..=value as usize] {
            known.push(!matches!(each.kind, Kind::Input(_)) && each.operands().all(|operand| known[operand]));
        }
        known[value as usize]
    }

    /// Whether a value of each element comes from numbers of 16 bits alone, as far as it comes from elements, and from
    /// a reduction: what does not has the same bits in a kernel of its own.
    pub(super) fn is_coarse(&self, value: u32) -> bool {
        if self.values.list[value as usize].level == 0 {
            return false;
        }
        let mut seen = vec![false; value as usize + 1];
        seen[value as usize] = true;
        let mut found = false;
        for at in (0..seen.len()).rev().filter(|&at| self.space(at) == Space::Full) {
            if !seen[at] {
                continue;
            }
            if let Some(input) = self.input_of(at) {
                let dtype = self.inputs[input].dtype;
                let coarse = matches!(dtype, DType::BF16 | DType::F16);
                if !coarse && dtype.is_floating() {
                    return false;
                }
                found |= coarse;
            }
            self.values.list[at].operands().for_each(|operand| seen[operand] = true);
        }
        found
    }

    /// The input that a value is, if it is one.
    pub(super) fn input_of(&self, value: usize) -> Option<usize> {
        match self.values.list[value].kind {
            Kind::Input(input) => Some(input),
            _ => None,
        }
    }

    /// Inputs that outputs depend on.
    pub(super) fn used_inputs(&self) -> Vec<usize> {
        let inputs = (0..self.used.len()).filter(|&value| self.used[value]).filter_map(|value| self.input_of(value));
        let mut inputs: Vec<usize> = inputs.collect();
        inputs.sort_unstable();
        inputs
    }

    /// Inputs that outputs depend on and that vary as `space` says.
    pub(super) fn used_inputs_in(&self, space: Space) -> Vec<usize> {
        let varies = |input: &usize| {
            let is = |value: &usize| self.used[*value] && self.input_of(*value) == Some(*input);
            (0..self.used.len()).find(is).is_some_and(|value| self.space(value) == space)
        };
        self.used_inputs().into_iter().filter(varies).collect()
    }

    /// Whether indices need 64 bits.
    pub(super) fn is_wide(&self) -> bool {
        let elements = self.rows() as u64 * self.width as u64;
        let operands = self.inputs.iter().chain(&self.outputs);
        operands.map(|operand| operand.reach(&self.extents, self.width)).fold(elements, u64::max) >= INDEX_LIMIT
    }

    /// Whether columns alone need 64 bits.
    pub(super) fn has_wide_rows(&self) -> bool {
        let operands = self.inputs.iter().chain(&self.outputs);
        operands.map(|operand| operand.reach(&[], self.width)).fold(self.width as u64, u64::max) >= INDEX_LIMIT
    }

    /// Elements that a thread handles together: as many of the widest type as sixteen bytes hold, fewer where operands
    /// are not contiguous and aligned so or rows (`whole_rows`) are not cut evenly. With `any_address` the alignment of
    /// addresses does not count: an operand that is not aligned is read and written by element. Reductions ask for
    /// that, since the order of their sums depends on the number.
    pub(super) fn vector_width(&self, whole_rows: bool, any_address: bool) -> usize {
        let inputs = self.used_inputs_in(Space::Full).into_iter().map(|input| &self.inputs[input]);
        let stored = (0..self.outputs.len()).filter(|&output| !self.per_row[output] && !self.summed[output]);
        let outputs = stored.map(|output| &self.outputs[output]);
        let contiguous: Vec<&Operand> =
            inputs.chain(outputs).filter(|operand| operand.inner == 1 && !operand.counted).collect();
        let Some(widest) = contiguous.iter().map(|operand| operand.dtype.size()).max() else { return 1 };
        let fits = |vector: usize| {
            (!whole_rows || self.width.is_multiple_of(vector))
                && contiguous.iter().all(|operand| {
                    (any_address || operand.is_packed(vector))
                        && operand.outer.iter().all(|stride| stride.unsigned_abs().is_multiple_of(vector))
                })
        };
        let mut vector = 16 / widest;
        while !fits(vector) {
            vector /= 2;
        }
        vector
    }

    /// The alignment that a kernel assumes of each operand if it handles `vector` elements together.
    pub(super) fn alignments(&self, vector: usize) -> [Vec<usize>; 2] {
        [&self.inputs, &self.outputs].map(|operands| {
            let of = |operand: &Operand| operand.dtype.size() * if operand.is_packed(vector) { vector } else { 1 };
            operands.iter().map(of).collect()
        })
    }

    /// The kernel's pointers: how they are declared, and what is bound to them.
    pub(super) fn pointers(&self) -> (Vec<String>, Vec<GeneratedParameter>) {
        let inputs = self.used_inputs();
        let words = (self.dialect)();
        let input = |&input: &usize| words.pointer(self.inputs[input].dtype, &self.inputs[input].name, true);
        let output = |operand: &Operand| words.pointer(operand.dtype, &operand.name, false);
        let declared = inputs.iter().map(input).chain(self.outputs.iter().map(output)).collect();
        let bound = inputs.iter().map(|&input| GeneratedParameter::Input(input));
        (declared, bound.chain((0..self.outputs.len()).map(GeneratedParameter::Output)).collect())
    }

    /// Whether the source calls a function that the compiler gives local memory to: sine and cosine of huge arguments
    /// reduce them with an array that is indexed at run time.
    pub(super) fn needs_local_memory(&self) -> bool {
        (self.values.list.iter().zip(&self.used))
            .any(|(value, &used)| used && matches!(value.kind, Kind::Unary(ScalarOp::Sin | ScalarOp::Cos, _)))
    }
}

/// What makes a problem none.
fn check(problem: &Problem<'_>) -> Result<(), GenerateError> {
    let malformed = |text: String| Err(GenerateError::Malformed(text));
    let (program, shape) = (problem.program, problem.shape);
    if problem.inputs.len() != program.input_dtypes.len() || problem.outputs.len() != program.outputs.len() {
        return malformed(format!(
            "{} inputs and {} outputs for a program of {} and {}",
            problem.inputs.len(),
            problem.outputs.len(),
            program.input_dtypes.len(),
            program.outputs.len()
        ));
    }
    let summed = problem.outputs.iter().zip(&program.outputs).filter(|(output, _)| output.summed);
    for (output, (_, dtype)) in summed {
        let strides = output.layout.strides;
        let along = strides.split_last().is_some_and(|(inner, outer)| *inner == 1 && outer.iter().all(|s| *s == 0));
        if !along || *dtype != DType::F32 {
            return malformed(format!("a sum over rows of {dtype} is stored with strides {strides:?}"));
        }
    }
    if program.outputs.is_empty() {
        return malformed("a program without outputs".into());
    }
    if shape.contains(&0) {
        return Err(GenerateError::Empty { shape: shape.to_vec() });
    }
    for (index, input) in problem.inputs.iter().enumerate() {
        if input.strides.len() != shape.len() {
            return malformed(format!("input {index} has strides {:?} in an iteration over {shape:?}", input.strides));
        }
    }
    for (index, output) in problem.outputs.iter().enumerate() {
        let (extents, strides) = (output.layout.shape, output.layout.strides);
        let same = extents.len() == shape.len()
            && strides.len() == shape.len()
            && extents
                .iter()
                .zip(shape)
                .enumerate()
                .all(|(axis, (&extent, &expected))| extent == expected || (axis + 1 == shape.len() && extent == 1));
        if !same {
            return malformed(format!("output {index} has shape {extents:?} in an iteration over {shape:?}"));
        }
    }
    for (index, node) in program.nodes.iter().enumerate() {
        let known = |&operand: &u32| (operand as usize) < index;
        let fine = match node {
            FusedNode::Input(input) => (*input as usize) < program.input_dtypes.len(),
            FusedNode::Constant(_) => true,
            FusedNode::Apply(op, operands) => operands[..op.arity()].iter().all(known),
            FusedNode::Convert(_, operand) | FusedNode::Reduce(_, operand) => known(operand),
        };
        if !fine {
            return malformed(format!("node {index} reads what does not come before it: {node:?}"));
        }
    }
    match program.outputs.iter().find(|(node, _)| *node as usize >= program.nodes.len()) {
        Some((node, _)) => malformed(format!("there is no node {node} to be an output")),
        None => Ok(()),
    }
}

/// `n3` for what node 3 has become, `t5` for a value between nodes.
fn names(values: &Values, words: &dyn Dialect) -> Vec<String> {
    let mut by_value: BTreeMap<u32, usize> = BTreeMap::new();
    for (node, lowered) in values.nodes.iter().enumerate() {
        if let Lowered::Value(value) = lowered {
            by_value.entry(*value).or_insert(node);
        }
    }
    let mut names: Vec<String> = Vec::with_capacity(values.list.len());
    for (index, value) in values.list.iter().enumerate() {
        let name = match (value.kind, by_value.get(&(index as u32))) {
            (Kind::Constant(number), _) => words.literal(value.class, number),
            (_, Some(node)) => format!("n{node}"),
            // The same value once more for each element, or row.
            (Kind::Cast(operand), None) if values.list[operand as usize].class == value.class => {
                names[operand as usize].clone()
            }
            (_, None) => format!("t{index}"),
        };
        names.push(name);
    }
    names
}

/// The program, a line for each node that is not a number or a second name of an earlier one.
fn listing(program: &FusedProgram, values: &Values) -> Vec<String> {
    // The first node of each value; the others are second names of it.
    let first = |value: u32| {
        values.nodes.iter().position(|node| matches!(node, Lowered::Value(other) if *other == value)).unwrap_or(0)
    };
    let known = |node: u32| match (program.nodes[node as usize], values.nodes[node as usize]) {
        (FusedNode::Constant(number), _) | (_, Lowered::Number(number)) => format!("{number}"),
        (_, Lowered::Value(value)) => format!("n{}", first(value)),
    };
    let mut lines = Vec::new();
    for (index, node) in program.nodes.iter().enumerate() {
        match values.nodes[index] {
            Lowered::Value(value) if first(value) == index => {}
            _ => continue,
        }
        let text = match *node {
            FusedNode::Input(input) => format!("input {input}, {}", program.input_dtypes[input as usize]),
            FusedNode::Constant(number) => number.to_string(),
            FusedNode::Apply(op, operands) => {
                let operands: Vec<String> = operands[..op.arity()].iter().map(|&operand| known(operand)).collect();
                format!("{}({})", format!("{op:?}").to_lowercase(), operands.join(", "))
            }
            FusedNode::Convert(dtype, operand) => format!("{} as {dtype}", known(operand)),
            FusedNode::Reduce(reduction, operand) => {
                let name = match reduction {
                    Reduction::Sum => "sum",
                    Reduction::Max => "maximum",
                    Reduction::Min => "minimum",
                    Reduction::Product => "product",
                };
                format!("{name} of each row of {}", known(operand))
            }
        };
        lines.push(format!("n{index} = {text}"));
    }
    for (index, &(node, dtype)) in program.outputs.iter().enumerate() {
        lines.push(format!("output {index}, {dtype} = {}", known(node)));
    }
    lines
}
