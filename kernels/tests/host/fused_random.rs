//! Random programs over random layouts, run fused on the host, against an evaluation node by node; on one thread and on
//! three they have the same bits.

use fulgurite_kernels::fused::FusedNode;
use fulgurite_kernels::scalar::ScalarOp;
use fulgurite_kernels::{DType, Reduction};

use crate::cases::{self, Case};
use crate::operands::{Memories, number};

/// Every node's values, per element, row-major.
fn evaluate(case: &Case, memories: &Memories) -> Vec<Vec<f64>> {
    let [a, b, c] = case.shape[..] else { panic!("three dimensions") };
    let count = a * b * c;
    let mut values: Vec<Vec<f64>> = Vec::new();
    for node in &case.program.nodes {
        let result = match *node {
            FusedNode::Constant(value) => vec![value; count],
            FusedNode::Input(index) => {
                let input = &case.inputs[index as usize];
                let data = elements(case.program.input_dtypes[index as usize], &memories.inputs[index as usize]);
                let at = |p: usize| {
                    let index = [p / (b * c), p / c % b, p % c];
                    let offset: isize =
                        index.iter().zip(&input.strides).map(|(&index, &stride)| index as isize * stride).sum();
                    data[(input.first as isize + offset) as usize]
                };
                (0..count).map(at).collect()
            }
            FusedNode::Convert(_, x) => values[x as usize].clone(),
            FusedNode::Reduce(reduction, x) => {
                values[x as usize].chunks(c).flat_map(|row| vec![reduced(reduction, row); c]).collect()
            }
            FusedNode::Apply(op, [x, y, z]) => {
                let (x, y, z) = (&values[x as usize], &values[y as usize], &values[z as usize]);
                (0..count).map(|i| applied(op, [x[i], y[i], z[i]])).collect()
            }
        };
        values.push(result);
    }
    values
}

fn reduced(reduction: Reduction, row: &[f64]) -> f64 {
    match reduction {
        Reduction::Sum => row.iter().sum(),
        Reduction::Product => row.iter().product(),
        Reduction::Max => row.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Reduction::Min => row.iter().copied().fold(f64::INFINITY, f64::min),
    }
}

fn applied(op: ScalarOp, [x, y, z]: [f64; 3]) -> f64 {
    match op {
        ScalarOp::Tanh => x.tanh(),
        ScalarOp::Sin => x.sin(),
        ScalarOp::Sub => x - y,
        ScalarOp::Maximum => x.max(y),
        ScalarOp::Add => x + y,
        ScalarOp::Select => {
            if x != 0.0 {
                y
            } else {
                z
            }
        }
        _ => panic!("{op:?} is in none of these programs"),
    }
}

fn elements(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes.chunks(dtype.size()).map(|bytes| number(dtype, bytes).0).collect()
}

#[test]
fn random_programs_over_random_layouts() {
    let pool = |threads: usize| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let [one, three] = [1, 3].map(pool);
    for case in cases::random_f64(300) {
        let before = Memories::new(&case);
        let values = evaluate(&case, &before);
        let found = one.install(|| before.clone().run(&case));
        for ((&(node, dtype), output), bytes) in case.program.outputs.iter().zip(&case.outputs).zip(&found.outputs) {
            let (result, exact) = (elements(dtype, bytes), &values[node as usize]);
            let step = case.shape[2] / output.shape[2];
            assert_eq!(result.len() * step, exact.len());
            let tolerance = if dtype == DType::F64 { 1e-9 } else { 1e-6 };
            for (position, &got) in result.iter().enumerate() {
                let exact = exact[position * step];
                assert!(
                    (got - exact).abs() <= tolerance * exact.abs().max(1e3),
                    "{}, {:?} of {:?}: {got} for {exact} at {position}",
                    case.name,
                    case.program,
                    case.shape,
                );
            }
        }
        assert!(three.install(|| before.run(&case)) == found, "{} on three threads", case.name);
    }
}
