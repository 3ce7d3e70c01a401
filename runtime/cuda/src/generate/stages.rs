//! Few long rows: a program that reduces them as several kernels, each of which has work for the whole device.
//!
//! Each row is cut into pieces. One kernel reduces every piece, a second one the pieces' results, for each level of
//! reductions that wait for others; then one computes what has a value for each element, and one what has a value a
//! row. The last reductions and the values a row are one kernel where there is nothing between them. Pieces depend on
//! the shape alone, and so does the order in which a row is added up.

use std::collections::BTreeMap;

use fulgurite_kernels::DType;
use fulgurite_kernels::Reduction;
use fulgurite_kernels::fused::layout::Layout;
use fulgurite_kernels::fused::values::{Lowered, Space, Values};
use fulgurite_kernels::fused::{FusedNode, FusedProgram};
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::tile::Class;
use fulgurite_kernels::view::contiguous_strides;

use super::problem::Problem;

/// With more rows than this, a block for each fills a device well enough.
const MOST_ROWS: usize = 64;
/// The shortest row that is worth more than one kernel.
const SHORTEST: usize = 1 << 17;
/// Pieces of all rows together: two rounds of four blocks for each multiprocessor of the largest devices.
const PIECES: usize = 1056;
/// Lengths of pieces are multiples of these, so that the blocks' steps end where the pieces do: of long ones, and of
/// short ones.
const UNITS: [usize; 2] = [16_384, 4096];

/// Whose memory an operand of a stage is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// An input of the problem.
    Input(usize),
    /// An output of the problem.
    Output(usize),
    /// Memory that the stages alone use: see [`Stages::temporaries`].
    Temporary(usize),
}

/// An operand of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageOperand {
    /// Whose memory it is in.
    pub holder: Holder,
    /// Elements from the holder's first one to the operand's.
    pub first: usize,
    /// Extents; for an input those of the stage's iteration.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<isize>,
}

impl StageOperand {
    /// Bytes that the operand's address is known to be a multiple of, if its holder's is one of `holder`.
    pub fn alignment(&self, dtype: DType, holder: usize) -> usize {
        match self.first * dtype.size() {
            0 => holder,
            bytes => holder.min(1 << bytes.trailing_zeros()),
        }
    }
}

/// One kernel: a problem without alignments, which follow from where the holders are.
#[derive(Debug, Clone)]
pub struct Stage {
    /// What it is called.
    pub name: String,
    /// The program that the kernel computes.
    pub program: FusedProgram,
    /// The iteration's shape.
    pub shape: Vec<usize>,
    /// In the program's order.
    pub inputs: Vec<StageOperand>,
    /// In the program's order.
    pub outputs: Vec<StageOperand>,
}

/// Kernels that compute a problem, one after another.
#[derive(Debug, Clone)]
pub struct Stages {
    /// The kernels in the order in which they run.
    pub list: Vec<Stage>,
    /// Element type and number of elements of each temporary.
    pub temporaries: Vec<(DType, usize)>,
}

impl Stages {
    /// The kernels for a problem of few long rows; `None` if one kernel is as good.
    pub fn of(problem: &Problem<'_>) -> Option<Stages> {
        let (&width, outer) = problem.shape.split_last()?;
        let rows: usize = outer.iter().product();
        if rows == 0 || rows > MOST_ROWS || width < SHORTEST {
            return None;
        }
        let wanted = (width * rows).div_ceil(PIECES);
        let unit = if wanted >= UNITS[0] { UNITS[0] } else { UNITS[1] };
        Stages::with_pieces(problem, wanted.next_multiple_of(unit))
    }

    /// With pieces of `length` elements. `None` if there is nothing to reduce, or the program is none that can be taken
    /// apart.
    pub fn with_pieces(problem: &Problem<'_>, length: usize) -> Option<Stages> {
        let width = *problem.shape.last()?;
        let program = problem.program;
        let has_reduction = program.nodes.iter().any(|node| matches!(node, FusedNode::Reduce(..)));
        let backwards = problem.inputs.iter().any(|input| input.strides.last().is_some_and(|stride| *stride < 0));
        if !has_reduction || backwards || length == 0 || width <= length || problem.shape.contains(&0) {
            return None;
        }
        Writer::new(problem, length)?.write()
    }
}

/// What a node of the original program is in a stage.
#[derive(Debug, Clone, Copy)]
enum Known {
    /// A temporary.
    Temporary(usize),
    /// The reduction of a temporary.
    Reduced(Reduction, usize),
}

struct Writer<'a> {
    problem: &'a Problem<'a>,
    values: Values,
    /// Whether each output has one value a row.
    per_row: Vec<bool>,
    /// Elements of a piece, whole pieces of a row, and elements behind the last of them.
    length: usize,
    pieces: usize,
    rest: usize,
    stages: Stages,
}

impl<'a> Writer<'a> {
    fn new(problem: &'a Problem<'a>, length: usize) -> Option<Writer<'a>> {
        let strides: Vec<&[isize]> = problem.inputs.iter().map(|input| input.strides).collect();
        let layouts: Vec<_> = problem.outputs.iter().map(|output| output.layout).collect();
        let layout = Layout::new(problem.shape, &strides, &layouts, true);
        let spaces: Vec<Space> = (0..problem.inputs.len()).map(|input| layout.space(input)).collect();
        let values = Values::new(problem.program, &spaces);
        let width = *problem.shape.last()?;
        let writer = Writer {
            problem,
            values,
            per_row: layout.per_row,
            length,
            pieces: width / length,
            rest: width % length,
            stages: Stages { list: Vec::new(), temporaries: Vec::new() },
        };
        // The type of such a node depends on all inputs and outputs of its program.
        let typeless = |node: u32| matches!(writer.values.nodes[node as usize], Lowered::Number(_));
        let undecided = problem.program.nodes.iter().any(|node| match *node {
            FusedNode::Apply(ScalarOp::Select, [_, a, b]) => typeless(a) && typeless(b),
            FusedNode::Apply(op, [a, ..]) => op.arity() == 1 && op.is_predicate() && typeless(a),
            FusedNode::Reduce(_, a) => typeless(a),
            _ => false,
        });
        (!undecided).then_some(writer)
    }

    fn outer(&self) -> &'a [usize] {
        &self.problem.shape[..self.problem.shape.len() - 1]
    }

    fn rows(&self) -> usize {
        self.outer().iter().product()
    }

    /// Results of a row's pieces.
    fn parts(&self) -> usize {
        self.pieces + usize::from(self.rest > 0)
    }

    /// The reductions that outputs depend on, by how many others each waits for.
    fn levels(&self) -> Option<BTreeMap<usize, Vec<u32>>> {
        let nodes = &self.problem.program.nodes;
        let mut used = vec![false; nodes.len()];
        self.problem.program.outputs.iter().for_each(|(node, _)| used[*node as usize] = true);
        // Operands come before their users, so one round from the end marks all of them.
        for at in (0..nodes.len()).rev() {
            if used[at] {
                operands(&nodes[at]).for_each(|operand| used[operand as usize] = true);
            }
        }
        let mut levels: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate() {
            if let (FusedNode::Reduce(..), true) = (node, used[at]) {
                let Lowered::Value(value) = self.values.nodes[at] else { return None };
                levels.entry(self.values.list[value as usize].level).or_default().push(at as u32);
            }
        }
        Some(levels)
    }

    fn dtype_of(&self, node: u32) -> Option<DType> {
        match self.values.nodes[node as usize] {
            Lowered::Value(value) => match self.values.list[value as usize].class {
                Class::F32 => Some(DType::F32),
                Class::F64 => Some(DType::F64),
                Class::I64 => Some(DType::I64),
                Class::Bool => None,
            },
            Lowered::Number(_) => None,
        }
    }

    fn temporary(&mut self, dtype: DType, elements: usize) -> usize {
        self.stages.temporaries.push((dtype, elements));
        self.stages.temporaries.len() - 1
    }

    /// Strides of `count` neighbours for each row.
    fn of_rows(&self, count: usize) -> Vec<isize> {
        let mut shape = self.outer().to_vec();
        shape.push(count);
        contiguous_strides(&shape)
    }

    fn write(mut self) -> Option<Stages> {
        let levels = self.levels()?;
        let last = *levels.keys().last()?;
        let has_full = self.per_row.iter().any(|per_row| !per_row);
        let mut known: BTreeMap<u32, Known> = BTreeMap::new();
        for (level, reductions) in &levels {
            let dtypes: Vec<DType> = reductions.iter().map(|node| self.dtype_of(*node)).collect::<Option<_>>()?;
            let elements = self.rows() * self.parts();
            let parts: Vec<usize> = dtypes.iter().map(|dtype| self.temporary(*dtype, elements)).collect();
            self.reduce_pieces(reductions, &dtypes, &parts, &known);
            let reduction = |node: u32| match self.problem.program.nodes[node as usize] {
                FusedNode::Reduce(reduction, _) => reduction,
                _ => unreachable!("only reductions are listed"),
            };
            let mut combined = known.clone();
            for (node, part) in reductions.iter().zip(&parts) {
                combined.insert(*node, Known::Reduced(reduction(*node), *part));
            }
            if *level == last && !has_full {
                self.per_row_outputs("result", self.parts(), &combined);
                return Some(self.stages);
            }
            let rows = self.rows();
            let totals: Vec<usize> = dtypes.iter().map(|dtype| self.temporary(*dtype, rows)).collect();
            let roots: Vec<(u32, DType)> = reductions.iter().copied().zip(dtypes.iter().copied()).collect();
            let outputs = totals.iter().map(|total| self.temporary_operand(*total, 0, 1, 1)).collect();
            self.push(&format!("total_{level}"), self.parts(), &roots, outputs, &combined);
            for (node, total) in reductions.iter().zip(totals) {
                known.insert(*node, Known::Temporary(total));
            }
        }
        self.full_outputs(&known);
        // Last: an output may be written over a row's value that others read.
        if self.per_row.contains(&true) {
            self.per_row_outputs("rows", 1, &known);
        }
        Some(self.stages)
    }

    /// `count` elements for each row, `apart` from row to row, from the element `first` on.
    fn temporary_operand(&self, temporary: usize, first: usize, count: usize, apart: usize) -> StageOperand {
        let mut shape = self.outer().to_vec();
        let mut strides: Vec<isize> = self.of_rows(apart);
        shape.push(count);
        if let Some(inner) = strides.last_mut() {
            *inner = 1;
        }
        StageOperand { holder: Holder::Temporary(temporary), first, shape, strides }
    }

    /// Reduces every whole piece, and what is left of each row.
    fn reduce_pieces(&mut self, reductions: &[u32], dtypes: &[DType], parts: &[usize], known: &BTreeMap<u32, Known>) {
        let roots: Vec<(u32, DType)> = reductions.iter().copied().zip(dtypes.iter().copied()).collect();
        let (length, pieces, rest, count) = (self.length, self.pieces, self.rest, self.parts());
        let mut shape = self.outer().to_vec();
        shape.extend([pieces, length]);
        let outputs: Vec<StageOperand> = (parts.iter())
            .map(|part| {
                let mut operand = self.temporary_operand(*part, 0, pieces, count);
                operand.shape.push(1);
                operand.strides.push(1);
                operand
            })
            .collect();
        let cut = |strides: &[isize]| {
            let (inner, outer) = strides.split_last().unwrap_or((&0, &[]));
            [outer, &[inner * length as isize, *inner]].concat()
        };
        self.push_cut("pieces", shape, &roots, outputs, known, 0, cut);
        if rest > 0 {
            let mut shape = self.outer().to_vec();
            shape.push(rest);
            let outputs = parts.iter().map(|part| self.temporary_operand(*part, pieces, 1, count)).collect();
            self.push_cut("rest", shape, &roots, outputs, known, pieces * length, <[isize]>::to_vec);
        }
    }

    /// Everything with a value for each element.
    fn full_outputs(&mut self, known: &BTreeMap<u32, Known>) {
        let (roots, outputs) = self.original_outputs(false);
        self.push_cut("elements", self.problem.shape.to_vec(), &roots, outputs, known, 0, <[isize]>::to_vec);
    }

    /// Everything with a value a row, in an iteration of `width` elements a row.
    fn per_row_outputs(&mut self, name: &str, width: usize, known: &BTreeMap<u32, Known>) {
        let (roots, outputs) = self.original_outputs(true);
        self.push(name, width, &roots, outputs, known);
    }

    fn original_outputs(&self, per_row: bool) -> (Vec<(u32, DType)>, Vec<StageOperand>) {
        let outputs = self.problem.outputs.iter().zip(&self.problem.program.outputs).enumerate();
        let wanted = outputs.filter(|(index, _)| self.per_row[*index] == per_row);
        wanted
            .map(|(index, (output, root))| {
                let (shape, strides) = (output.layout.shape.to_vec(), output.layout.strides.to_vec());
                (*root, StageOperand { holder: Holder::Output(index), first: 0, shape, strides })
            })
            .unzip()
    }

    /// A stage that reads rows' values alone, in an iteration of `width` elements a row.
    fn push(
        &mut self,
        name: &str,
        width: usize,
        roots: &[(u32, DType)],
        outputs: Vec<StageOperand>,
        known: &BTreeMap<u32, Known>,
    ) {
        let mut shape = self.outer().to_vec();
        shape.push(width);
        // Inputs with a value for each element are not read.
        let row = |strides: &[isize]| match strides.split_last() {
            Some((0, outer)) => [outer, &[0]].concat(),
            _ => vec![0; strides.len()],
        };
        self.push_cut(name, shape, roots, outputs, known, 0, row);
    }

    /// A stage over `shape`, where an input's strides are what `seen` makes of them, from the element `from` of each
    /// row on.
    #[allow(clippy::too_many_arguments, reason = "a stage is made of so many parts")]
    fn push_cut(
        &mut self,
        name: &str,
        shape: Vec<usize>,
        roots: &[(u32, DType)],
        outputs: Vec<StageOperand>,
        known: &BTreeMap<u32, Known>,
        from: usize,
        seen: impl Fn(&[isize]) -> Vec<isize>,
    ) {
        let mut inputs: Vec<StageOperand> = (self.problem.inputs.iter().enumerate())
            .map(|(index, input)| StageOperand {
                holder: Holder::Input(index),
                first: from * input.strides.last().map_or(0, |stride| stride.unsigned_abs()),
                shape: shape.clone(),
                strides: seen(input.strides),
            })
            .collect();
        let mut dtypes = self.problem.program.input_dtypes.clone();
        let (nodes, temporaries, places) = self.part_of_program(roots, known);
        for temporary in temporaries {
            let (dtype, elements) = self.stages.temporaries[temporary];
            dtypes.push(dtype);
            let count = elements / self.rows();
            let mut strides = self.of_rows(count);
            // A row's total, or its parts: one for each element of the iteration.
            let inner = strides.pop().unwrap_or(1);
            let inner = if count == 1 { 0 } else { inner };
            strides.resize(shape.len() - 1, 0);
            strides.push(inner);
            inputs.push(StageOperand { holder: Holder::Temporary(temporary), first: 0, shape: shape.clone(), strides });
        }
        let outputs_of_program = roots.iter().map(|(node, dtype)| (places[node], *dtype)).collect();
        self.stages.list.push(Stage {
            name: format!("{}_{name}", self.problem.name),
            program: FusedProgram { input_dtypes: dtypes, nodes, outputs: outputs_of_program },
            shape,
            inputs,
            outputs,
        });
    }

    /// The nodes that `roots` depend on as far as they are not known, the temporaries that they read, in the order of
    /// the inputs that follow the problem's own, and the new place of each node.
    fn part_of_program(
        &self,
        roots: &[(u32, DType)],
        known: &BTreeMap<u32, Known>,
    ) -> (Vec<FusedNode>, Vec<usize>, BTreeMap<u32, u32>) {
        let all = &self.problem.program.nodes;
        let mut wanted = vec![false; all.len()];
        roots.iter().for_each(|(node, _)| wanted[*node as usize] = true);
        for at in (0..all.len()).rev() {
            if wanted[at] && !known.contains_key(&(at as u32)) {
                operands(&all[at]).for_each(|operand| wanted[operand as usize] = true);
            }
        }
        let own = self.problem.inputs.len();
        let (mut nodes, mut temporaries) = (Vec::new(), Vec::new());
        let mut places: BTreeMap<u32, u32> = BTreeMap::new();
        for at in (0..all.len()).filter(|at| wanted[*at]) {
            let mut read = |temporary: usize| {
                let index = temporaries.iter().position(|known| *known == temporary).unwrap_or_else(|| {
                    temporaries.push(temporary);
                    temporaries.len() - 1
                });
                FusedNode::Input((own + index) as u32)
            };
            let node = match known.get(&(at as u32)) {
                Some(Known::Temporary(temporary)) => read(*temporary),
                Some(Known::Reduced(reduction, part)) => {
                    nodes.push(read(*part));
                    FusedNode::Reduce(*reduction, nodes.len() as u32 - 1)
                }
                None => mapped(all[at], |operand| places[&operand]),
            };
            nodes.push(node);
            places.insert(at as u32, nodes.len() as u32 - 1);
        }
        (nodes, temporaries, places)
    }
}

fn operands(node: &FusedNode) -> impl Iterator<Item = u32> + use<> {
    let (list, count) = match *node {
        FusedNode::Input(_) | FusedNode::Constant(_) => ([0; 3], 0),
        FusedNode::Convert(_, operand) | FusedNode::Reduce(_, operand) => ([operand, 0, 0], 1),
        FusedNode::Apply(op, operands) => (operands, op.arity()),
    };
    list.into_iter().take(count)
}

fn mapped(node: FusedNode, place: impl Fn(u32) -> u32) -> FusedNode {
    match node {
        FusedNode::Input(_) | FusedNode::Constant(_) => node,
        FusedNode::Convert(dtype, operand) => FusedNode::Convert(dtype, place(operand)),
        FusedNode::Reduce(reduction, operand) => FusedNode::Reduce(reduction, place(operand)),
        FusedNode::Apply(op, operands) => {
            let mut moved = [0; 3];
            for (moved, operand) in moved.iter_mut().zip(operands).take(op.arity()) {
                *moved = place(operand);
            }
            FusedNode::Apply(op, moved)
        }
    }
}
