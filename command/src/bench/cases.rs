//! Rows that are programs of one operator: their inputs, what is differentiated, and what they move and compute at
//! least.

use fulgurite::prelude::*;
use fulgurite::{Array, DType, Result, Tensor};

use super::super::measured_inputs::filled;
use super::work::{Form, Mask, Work};

/// What a program computes from its inputs.
pub type Function = Box<dyn Fn(&[Tensor]) -> Vec<Tensor>>;

/// A program of one operator.
pub struct Case {
    /// Shapes and element types of the inputs.
    pub inputs: Vec<(Vec<usize>, DType)>,
    /// Integers of the inputs are below this.
    pub below: usize,
    /// Which of the inputs are differentiated; none where there is no backward pass.
    pub wrt: Vec<usize>,
    /// Which of the inputs are updated in place, and with what result.
    pub updated: Vec<usize>,
    /// Bytes that forward moves at least, and backward: operands and results once each.
    pub bytes: [f64; 2],
    /// Floating-point operations of forward and backward, where arithmetic bounds them.
    pub flops: Option<[f64; 2]>,
    /// The program.
    pub function: Function,
}

impl Case {
    /// The inputs, on the host.
    ///
    /// # Errors
    /// If there is not as much memory.
    pub fn arrays(&self) -> Result<Vec<Array>> {
        let one = |(i, (shape, dtype)): (usize, &(Vec<usize>, DType))| {
            // Step counts and rates of optimizers are above 0, and so are second moments.
            let range = if self.updated.is_empty() { [-1.0, 1.0] } else { [1e-3, 1.0] };
            filled(shape, *dtype, range, self.below, i as u64)
        };
        self.inputs.iter().enumerate().map(one).collect()
    }
}

fn dtype(name: &str) -> DType {
    name.parse().unwrap_or(DType::F32)
}

/// The program of a row; `None` for one that is a process of its own.
pub fn case(work: &Work) -> Option<Case> {
    match *work {
        Work::Step { .. } | Work::RanksStep { .. } | Work::FirstStep { .. } => None,
        Work::Operator { operator, shape, dtype: name } => operator_case(operator, shape, dtype(name)),
        Work::Attention { batch, heads, groups, length, width, mask, dtype: name } => {
            Some(attention([batch, heads, groups, length, width], mask, dtype(name)))
        }
        Work::Product { m, n, k, form, dtype: name } => Some(product([m, n, k], form, dtype(name))),
        Work::Convolution { images, outputs, kernel, stride, groups, dtype: name } => {
            Some(convolution(images, [outputs, kernel, stride, groups], dtype(name)))
        }
        Work::Affine { elements, dtype: name } => Some(affine(elements, dtype(name))),
    }
}

fn operator_case(operator: &str, [rows, columns]: [usize; 2], dtype: DType) -> Option<Case> {
    let all = (rows * columns * dtype.size()) as f64;
    let (matrix, row) = ((vec![rows, columns], dtype), (vec![columns], dtype));
    // Forward reads and writes the matrix; backward reads it and its cotangent, and writes the gradient.
    let usual = |inputs: Vec<(Vec<usize>, DType)>, function: Function| {
        let wrt = (0..inputs.len()).filter(|i| inputs[*i].1.is_floating()).collect();
        let (below, updated, bytes) = (columns, Vec::new(), [2.0 * all, 3.0 * all]);
        Case { inputs, below, wrt, updated, bytes, flops: None, function }
    };
    let case = match operator {
        "layer_norm" => usual(
            vec![matrix, row.clone(), row],
            Box::new(move |x| vec![layer_norm::with(x[0], [columns]).weight(x[1]).bias(x[2]).call()]),
        ),
        "rms_norm" => usual(
            vec![matrix, row],
            Box::new(move |x| vec![rms_norm::with(x[0], [columns]).weight(x[1]).eps(1e-5).call()]),
        ),
        "softmax" => usual(vec![matrix], Box::new(|x| vec![softmax(x[0], -1)])),
        "gelu" => usual(vec![matrix], Box::new(|x| vec![gelu::with(x[0]).approximate(Approximate::Tanh).call()])),
        "cross_entropy" => Case {
            // Forward reads the logits; backward reads them and writes their gradient.
            bytes: [all, 2.0 * all],
            ..usual(vec![matrix, (vec![rows], DType::I64)], Box::new(|x| vec![cross_entropy(x[0], x[1])]))
        },
        "adamw" => {
            let scalar = || (Vec::new(), DType::F32);
            let inputs = vec![matrix.clone(), matrix.clone(), matrix.clone(), matrix, scalar(), scalar()];
            Case {
                wrt: Vec::new(),
                // Weights and both moments are read and written, the gradient is read.
                bytes: [7.0 * all, 0.0],
                updated: vec![0, 2, 3],
                ..usual(
                    inputs,
                    Box::new(|x| {
                        let (weights, mean, square) = adamw::with(x[0], x[1], x[2], x[3], x[4], x[5]).call();
                        vec![weights, mean, square]
                    }),
                )
            }
        }
        _ => return other_case(operator, [rows, columns], dtype),
    };
    Some(case)
}

/// Operators of Llamas, and losses and normalizations that Liger-Kernel has.
fn other_case(operator: &str, [rows, columns]: [usize; 2], dtype: DType) -> Option<Case> {
    let all = (rows * columns * dtype.size()) as f64;
    let (matrix, row) = ((vec![rows, columns], dtype), (vec![columns], dtype));
    let of = |inputs: Vec<(Vec<usize>, DType)>, wrt: &[usize], passes: [f64; 2], function: Function| {
        let bytes = passes.map(|passes| passes * all);
        Case { inputs, below: columns, wrt: wrt.to_vec(), updated: Vec::new(), bytes, flops: None, function }
    };
    let case = match operator {
        "fused_add_rms_norm" => of(
            vec![matrix.clone(), matrix, row],
            &[0, 1, 2],
            [4.0, 4.0],
            Box::new(move |x| {
                let (out, sum) = fused_add_rms_norm::with(x[0], x[1], [columns]).weight(x[2]).eps(1e-5).call();
                vec![out, sum]
            }),
        ),
        // Rows are tokens of four sequences, columns their heads, a fifth of them of keys.
        "rope" => {
            let (batch, width, heads) = (4, 128, columns / 128);
            let of_heads = |heads: usize| (vec![batch, heads, rows / batch, width], dtype);
            let table = (vec![rows / batch, width], DType::F32);
            let inputs = vec![of_heads(heads - heads / 5), of_heads(heads / 5), table.clone(), table];
            of(
                inputs,
                &[0, 1],
                [2.0, 2.0],
                Box::new(|x| {
                    let (query, key) = rope(x[0], x[1], x[2], x[3]);
                    vec![query, key]
                }),
            )
        }
        "group_norm" => {
            let image = (vec![rows / 1024, columns, 32, 32], dtype);
            let function: Function = Box::new(|x| vec![group_norm::with(x[0], 32).weight(x[1]).bias(x[2]).call()]);
            of(vec![image, row.clone(), row], &[0, 1, 2], [2.0, 3.0], function)
        }
        "poly_norm" => {
            let inputs = vec![matrix, (vec![3], dtype), (vec![1], dtype)];
            of(inputs, &[0, 1, 2], [2.0, 3.0], Box::new(|x| vec![poly_norm(x[0], x[1], x[2])]))
        }
        "dyt" => {
            let inputs = vec![matrix, (vec![1], dtype), row];
            of(inputs, &[0, 1, 2], [2.0, 3.0], Box::new(|x| vec![dyt(x[0], x[1], x[2])]))
        }
        "sparsemax" => of(vec![matrix], &[0], [2.0, 3.0], Box::new(|x| vec![sparsemax(x[0])])),
        "kl_div" => of(
            vec![matrix.clone(), matrix],
            &[0],
            [2.0, 2.0],
            Box::new(|x| {
                vec![kl_div::with(x[0], x[1]).reduction(DivergenceReduction::BatchMean).log_target(true).call()]
            }),
        ),
        "jsd" => of(vec![matrix.clone(), matrix], &[0], [2.0, 3.0], Box::new(|x| vec![jsd(x[0], x[1])])),
        _ => return None,
    };
    Some(case)
}

/// Pairs of a query and a key that count.
fn pairs(length: usize, mask: Mask) -> f64 {
    let length = length as f64;
    match mask {
        Mask::Full | Mask::Boolean => length * length,
        Mask::Causal => length * length / 2.0,
        Mask::Window(window) => length * window as f64 - window as f64 * window as f64 / 2.0,
    }
}

fn attention([batch, heads, groups, length, width]: [usize; 5], mask: Mask, dtype: DType) -> Case {
    let of = |heads: usize| (vec![batch, heads, length, width], dtype);
    let mut inputs = vec![of(heads), of(groups), of(groups)];
    if mask == Mask::Boolean {
        inputs.push((vec![length, length], DType::Bool));
    }
    let one = |heads: usize| (batch * heads * length * width * dtype.size()) as f64;
    // Queries, keys, values and the result; backward reads these and the cotangent, and writes three gradients.
    let (own, shared) = (one(heads), one(groups));
    // Two products forward, five backward.
    let product = 2.0 * (batch * heads * width) as f64 * pairs(length, mask);
    let shares = heads != groups;
    let function: Function = Box::new(move |x| {
        let attention = scaled_dot_product_attention::with(x[0], x[1], x[2]).enable_gqa(shares);
        let out = match mask {
            Mask::Full => attention.call(),
            Mask::Causal => attention.is_causal(true).call(),
            Mask::Boolean => attention.attn_mask(x[3]).call(),
            Mask::Window(window) => {
                windowed_attention::with(x[0], x[1], x[2]).is_causal(true).window(Some(window as i64)).call()
            }
        };
        vec![out]
    });
    Case {
        inputs,
        below: 2,
        wrt: vec![0, 1, 2],
        updated: Vec::new(),
        bytes: [2.0 * own + 2.0 * shared, 4.0 * own + 4.0 * shared],
        flops: Some([2.0 * product, 5.0 * product]),
        function,
    }
}

fn product([m, n, k]: [usize; 3], form: Form, dtype: DType) -> Case {
    let [a, b] = match form {
        Form::Linear => [[m, k], [n, k]],
        Form::Input => [[m, k], [k, n]],
        Form::Weight => [[k, m], [k, n]],
    };
    let function: Function = Box::new(move |x| {
        vec![match form {
            Form::Linear => linear(x[0], x[1]),
            Form::Input => matmul(x[0], x[1]),
            Form::Weight => matmul(transpose(x[0], 0, 1), x[1]),
        }]
    });
    Case {
        inputs: [a, b].map(|shape| (shape.to_vec(), dtype)).into(),
        below: 2,
        wrt: Vec::new(),
        updated: Vec::new(),
        bytes: [((m * k + k * n + m * n) * dtype.size()) as f64, 0.0],
        flops: Some([2.0 * m as f64 * n as f64 * k as f64, 0.0]),
        function,
    }
}

/// A convolution with as many rows and columns as the input has, over its stride, and its gradients: two more, of as
/// many operations.
fn convolution(images: [usize; 4], of: [usize; 4], dtype: DType) -> Case {
    let [outputs, kernel, stride, groups] = of;
    let [batch, channels, rows, columns] = images;
    let weight = [outputs, channels / groups, kernel, kernel];
    let padding = kernel / 2;
    let along = |extent: usize| (extent + 2 * padding - kernel) / stride + 1;
    let results = batch * outputs * along(rows) * along(columns);
    let flops = 2.0 * results as f64 * weight[1..].iter().product::<usize>() as f64;
    let size = dtype.size() as f64;
    let [image, weights] = [&images, &weight].map(|extents| extents.iter().product::<usize>() as f64 * size);
    let all = image + weights + results as f64 * size;
    Case {
        inputs: vec![(images.to_vec(), dtype), (weight.to_vec(), dtype)],
        below: 1,
        wrt: vec![0, 1],
        updated: Vec::new(),
        bytes: [all, 2.0 * all],
        flops: Some([flops, 2.0 * flops]),
        function: Box::new(move |x| {
            let call = conv2d::with(x[0], x[1]).stride([stride]).padding([padding].into()).groups(groups);
            vec![call.call()]
        }),
    }
}

fn affine(elements: usize, dtype: DType) -> Case {
    Case {
        inputs: vec![(vec![elements], dtype), (Vec::new(), dtype), (Vec::new(), dtype)],
        below: 2,
        wrt: Vec::new(),
        updated: Vec::new(),
        bytes: [(2 * elements * dtype.size()) as f64, 0.0],
        flops: None,
        function: Box::new(|x| vec![gelu(x[0] * x[1] + x[2])]),
    }
}
