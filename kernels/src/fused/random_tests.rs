//! Random programs over random layouts against an evaluation node by node, on one thread and on three.

use super::*;
use crate::Buffer;
use crate::scalar::ScalarOp;
use crate::view::contiguous_strides;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

struct Case {
    program: FusedProgram,
    shape: [usize; 3],
    /// Memory, strides and the first element of each input.
    inputs: Vec<(Vec<f64>, [isize; 3], usize)>,
    /// For each node, whether it has one value a row.
    per_row: Vec<bool>,
}

fn case(random: &mut Random) -> Case {
    const WIDTHS: [usize; 8] = [1, 3, 20, 64, 700, 1500, 9000, 20_000];
    let width = WIDTHS[random.below(8)];
    let rows = (40_000 / width).clamp(1, 60);
    let shape = [1 + random.below(3), 1 + random.below(rows), width];
    let [a, b, c] = shape.map(|extent| extent as isize);
    let mut nodes = Vec::new();
    let mut inputs = Vec::new();
    for input in 0..3 {
        let (strides, first) = match random.below(8) {
            0 => ([0, 0, 0], 0),
            1 => ([0, 0, 1], 0),
            2 => ([b, 1, 0], 0),
            3 => ([1, a, a * b], 0),
            4 => ([-b * c, c, 1], (a - 1) * b * c),
            5 => ([b * c, c, -1], c - 1),
            _ => ([b * c, c, 1], 0),
        };
        let data = (0..a * b * c).map(|_| random.below(4096) as f64 / 1024.0 - 2.0).collect();
        inputs.push((data, strides, first as usize));
        nodes.push(FusedNode::Input(input));
    }
    nodes.push(FusedNode::Constant(0.75));
    let mut per_row = vec![false; nodes.len()];
    let mut numbers = vec![false, false, false, true];
    for _ in 0..2 + random.below(10) {
        use ScalarOp::*;
        let count = nodes.len();
        let mut operand = || random.below(count) as u32;
        let [x, y, z] = [operand(), operand(), operand()];
        let node = match random.below(9) {
            0 => FusedNode::Reduce([Reduction::Sum, Reduction::Max, Reduction::Min][random.below(3)], x),
            1 => FusedNode::Apply(Tanh, [x, 0, 0]),
            2 => FusedNode::Apply(Sub, [x, y, 0]),
            3 => FusedNode::Apply(Maximum, [x, y, 0]),
            4 => FusedNode::Convert(DType::F64, x),
            5 if !numbers[x as usize] => FusedNode::Apply(Select, [x, y, z]),
            6 => FusedNode::Apply(Sin, [x, 0, 0]),
            _ => FusedNode::Apply(Add, [x, y, 0]),
        };
        let (row, number) = match node {
            FusedNode::Reduce(..) => (true, false),
            FusedNode::Apply(op, operands) => {
                let used = &operands[..op.arity()];
                // A value that is certainly the same along a row may be stored for each element, not the reverse.
                let certainly = |&operand: &u32| {
                    per_row[operand as usize] || matches!(nodes[operand as usize], FusedNode::Constant(_))
                };
                (used.iter().all(certainly), used.iter().all(|&operand| numbers[operand as usize]))
            }
            FusedNode::Convert(_, x) => (per_row[x as usize], false),
            _ => (false, false),
        };
        nodes.push(node);
        per_row.push(row);
        numbers.push(number);
    }
    let last = nodes.len() as u32 - 1;
    let other = random.below(nodes.len()) as u32;
    let program = FusedProgram {
        input_dtypes: vec![DType::F64; 3],
        nodes,
        outputs: vec![(last, DType::F64), (other, DType::F32)],
    };
    Case { program, shape, inputs, per_row }
}

/// Every node's values, per element, row-major.
fn evaluate(case: &Case) -> Vec<Vec<f64>> {
    let [a, b, c] = case.shape;
    let mut values: Vec<Vec<f64>> = Vec::new();
    for node in &case.program.nodes {
        let result = match *node {
            FusedNode::Constant(value) => vec![value; a * b * c],
            FusedNode::Input(input) => {
                let (data, strides, first) = &case.inputs[input as usize];
                let at = |p: usize| {
                    let index = [p / (b * c), p / c % b, p % c];
                    let offset: isize =
                        index.iter().zip(strides).map(|(&index, &stride)| index as isize * stride).sum();
                    data[(*first as isize + offset) as usize]
                };
                (0..a * b * c).map(at).collect()
            }
            FusedNode::Convert(_, x) => values[x as usize].clone(),
            FusedNode::Reduce(reduction, x) => values[x as usize]
                .chunks(c)
                .flat_map(|row| {
                    let total = match reduction {
                        Reduction::Sum => row.iter().sum(),
                        Reduction::Max => row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                        Reduction::Min => row.iter().copied().fold(f64::INFINITY, f64::min),
                    };
                    vec![total; c]
                })
                .collect(),
            FusedNode::Apply(op, [x, y, z]) => {
                let (x, y, z) = (&values[x as usize], &values[y as usize], &values[z as usize]);
                let at = |i: usize| match op {
                    ScalarOp::Tanh => x[i].tanh(),
                    ScalarOp::Sin => x[i].sin(),
                    ScalarOp::Sub => x[i] - y[i],
                    ScalarOp::Maximum => x[i].max(y[i]),
                    ScalarOp::Add => x[i] + y[i],
                    _ => {
                        if x[i] != 0.0 {
                            y[i]
                        } else {
                            z[i]
                        }
                    }
                };
                (0..a * b * c).map(at).collect()
            }
        };
        values.push(result);
    }
    values
}

fn run(case: &Case, threads: usize) -> [Vec<f64>; 2] {
    let row_shape = [case.shape[0], case.shape[1], 1];
    let shapes =
        case.program.outputs.iter().map(|&(node, _)| if case.per_row[node as usize] { row_shape } else { case.shape });
    let shapes: Vec<[usize; 3]> = shapes.collect();
    let strides: Vec<Vec<isize>> = shapes.iter().map(|shape| contiguous_strides(shape)).collect();
    let count = |index: usize| shapes[index].iter().product::<usize>();
    let mut first = Buffer::fenced(count(0) * 8).unwrap();
    let mut second = Buffer::fenced(count(1) * 4).unwrap();
    // SAFETY: all layouts stay within their vectors and buffers, which nobody else uses.
    unsafe {
        let inputs: Vec<TensorRef<'_>> = case
            .inputs
            .iter()
            .map(|(data, strides, first)| {
                TensorRef::new(DType::F64, &case.shape, strides, data.as_ptr().add(*first).cast())
            })
            .collect();
        let mut outputs = [
            TensorMut::new(DType::F64, &shapes[0], &strides[0], first.as_bytes_mut().as_mut_ptr()),
            TensorMut::new(DType::F32, &shapes[1], &strides[1], second.as_bytes_mut().as_mut_ptr()),
        ];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        // Divisions of integers by zero are defined as well.
        let _ = pool.install(|| case.program.run(&case.shape, &inputs, &mut outputs));
    }
    assert!(first.guards_intact() && second.guards_intact());
    let second: Vec<f32> = bytemuck::cast_slice(second.as_bytes()).to_vec();
    [bytemuck::cast_slice(first.as_bytes()).to_vec(), second.into_iter().map(f64::from).collect()]
}

#[test]
fn random_programs_over_random_layouts() {
    let mut random = Random(7);
    for number in 0..300 {
        let case = case(&mut random);
        let values = evaluate(&case);
        let results = run(&case, 1);
        for (&(node, dtype), result) in case.program.outputs.iter().zip(&results) {
            let exact = &values[node as usize];
            let step = if case.per_row[node as usize] { case.shape[2] } else { 1 };
            assert_eq!(result.len() * step, exact.len());
            let tolerance = if dtype == DType::F64 { 1e-9 } else { 1e-6 };
            for (position, &got) in result.iter().enumerate() {
                let exact = exact[position * step];
                assert!(
                    (got - exact).abs() <= tolerance * exact.abs().max(1e3),
                    "case {number}, {:?} of {:?}: {got} for {exact} at {position}",
                    case.program,
                    case.shape,
                );
            }
        }
        let again = run(&case, 3);
        let bits =
            |results: &[Vec<f64>; 2]| results.iter().flatten().map(|value| value.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&results), bits(&again), "case {number} on three threads");
    }
}
