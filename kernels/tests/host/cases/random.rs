//! Random programs over random layouts.

use fulgurite_kernels::fused::FusedNode;
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::{DType, Reduction};

use super::programs::Writer;
use super::{Case, Tolerance};

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// What random programs are made of.
#[derive(Clone, Copy)]
struct Kinds {
    inputs: &'static [DType],
    /// A node of some of three operands. Whether there may be reductions is given, and which operands are numbers.
    node: fn(&mut Random, bool, [u32; 3], &[bool]) -> FusedNode,
}

/// Random programs over random layouts.
pub fn random(count: usize) -> Vec<Case> {
    const TYPES: [DType; 8] =
        [DType::F32, DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F64, DType::I32, DType::Bool];
    cases(11, count, Kinds { inputs: &TYPES, node: any_node })
}

/// Such programs in f64 alone and without jumps, so that values are known to nearly all their digits.
pub fn random_f64(count: usize) -> Vec<Case> {
    cases(7, count, Kinds { inputs: &[DType::F64], node: continuous_node })
}

fn cases(seed: u64, count: usize, kinds: Kinds) -> Vec<Case> {
    let mut random = Random(seed);
    (0..count).map(|number| random_case(&mut random, number, kinds)).collect()
}

fn any_node(random: &mut Random, reduces: bool, [x, y, z]: [u32; 3], numbers: &[bool]) -> FusedNode {
    use ScalarOp::*;
    match random.below(12) {
        0 | 1 if reduces => reduction(random, x),
        0..3 => FusedNode::Apply([Tanh, Abs, Neg, Sin][random.below(4)], [x, 0, 0]),
        3 => FusedNode::Apply(Sub, [x, y, 0]),
        4 => FusedNode::Apply(Maximum, [x, y, 0]),
        5 => FusedNode::Convert(DType::F64, x),
        6 => FusedNode::Convert(DType::BF16, x),
        7 if !numbers[x as usize] => FusedNode::Apply(Select, [x, y, z]),
        8 => FusedNode::Apply([Lt, Ge, And][random.below(3)], [x, y, 0]),
        _ => FusedNode::Apply(Add, [x, y, 0]),
    }
}

/// `Select` asks whether an operand is zero, which the order of a sum may decide; that is seldom enough.
fn continuous_node(random: &mut Random, reduces: bool, [x, y, z]: [u32; 3], numbers: &[bool]) -> FusedNode {
    use ScalarOp::*;
    match random.below(9) {
        0 if reduces => reduction(random, x),
        1 => FusedNode::Apply(Tanh, [x, 0, 0]),
        2 => FusedNode::Apply(Sub, [x, y, 0]),
        3 => FusedNode::Apply(Maximum, [x, y, 0]),
        4 => FusedNode::Convert(DType::F64, x),
        5 if !numbers[x as usize] => FusedNode::Apply(Select, [x, y, z]),
        6 => FusedNode::Apply(Sin, [x, 0, 0]),
        _ => FusedNode::Apply(Add, [x, y, 0]),
    }
}

fn reduction(random: &mut Random, operand: u32) -> FusedNode {
    FusedNode::Reduce([Reduction::Sum, Reduction::Max, Reduction::Min][random.below(3)], operand)
}

fn random_case(random: &mut Random, number: usize, kinds: Kinds) -> Case {
    const WIDTHS: [usize; 10] = [1, 3, 20, 64, 256, 700, 1500, 4096, 9000, 20_000];
    let width = WIDTHS[random.below(10)];
    let rows = (40_000 / width).clamp(1, 60);
    let shape = [1 + random.below(3), 1 + random.below(rows), width];
    let [a, b, c] = shape.map(|extent| extent as isize);
    let dtypes = [(); 3].map(|()| kinds.inputs[random.below(kinds.inputs.len())]);
    let mut writer = Writer::new(&dtypes);
    let mut layouts = Vec::new();
    for _ in 0..3 {
        let (strides, first) = match random.below(9) {
            0 => ([0, 0, 0], 0),
            1 => ([0, 0, 1], 0),
            2 => ([b, 1, 0], 0),
            3 => ([1, a, a * b], 0),
            4 => ([-b * c, c, 1], (a - 1) * b * c),
            5 => ([b * c, c, -1], c - 1),
            6 => ([b * c, c, 1], random.below(4) as isize),
            _ => ([b * c, c, 1], 0),
        };
        layouts.push((strides, first as usize));
    }
    writer.constant(0.75);
    let mut per_row = vec![false; 4];
    let mut numbers = vec![false, false, false, true];
    let reduces = random.below(3) > 0;
    for _ in 0..2 + random.below(12) {
        let count = writer.nodes.len();
        let mut operand = || random.below(count) as u32;
        let operands = [operand(), operand(), operand()];
        let node = (kinds.node)(random, reduces, operands, &numbers);
        let (row, number) = match node {
            FusedNode::Reduce(..) => (true, false),
            FusedNode::Apply(op, operands) => {
                let used = &operands[..op.arity()];
                // A value that is certainly the same along a row may be stored for each element, not the reverse.
                let certainly = |&operand: &u32| {
                    per_row[operand as usize] || matches!(writer.nodes[operand as usize], FusedNode::Constant(_))
                };
                let number = !op.is_predicate() && used.iter().all(|&operand| numbers[operand as usize]);
                (used.iter().all(certainly), number)
            }
            FusedNode::Convert(_, x) => (per_row[x as usize], false),
            _ => (false, false),
        };
        writer.push(node);
        per_row.push(row);
        numbers.push(number);
    }
    let last = writer.nodes.len() as u32 - 1;
    let other = random.below(writer.nodes.len()) as u32;
    let program = writer.finish(&[(last, DType::F64), (other, DType::F32)]);
    // Sums of up to 20000 numbers in f32, and functions of them.
    let mut case = Case::contiguous(format!("random_{number}"), program, &shape, Tolerance::Near(2e-5, 1.0));
    for (index, (strides, first)) in layouts.into_iter().enumerate() {
        case = case.input(index, &strides, first);
    }
    for (index, node) in [last, other].into_iter().enumerate() {
        if per_row[node as usize] {
            case = case.row_output(index);
        }
    }
    case
}
