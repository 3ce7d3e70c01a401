//! Programs whose parameters are divided among ranks: they compute what one rank does, and say where ranks meet.

use std::collections::BTreeMap;

use fulgurite_ops::prelude::{
    checkpoint, cross_entropy, embedding, layer_norm, linear, mean, reshape, scaled_dot_product_attention, split_heads,
    sum, tanh, to, topk, value_and_grad,
};
use fulgurite_ops::prims;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::transforms::tensor_parallel::{Divided, Division};
use fulgurite_runtime::{Array, DType, Tensor, jit, ranks};

/// Arguments by name, and how they are divided, if they are.
type Arguments = Vec<(&'static str, Vec<usize>, Option<Divided>)>;

/// A function of them.
type Function = fn(&BTreeMap<String, Tensor>) -> Vec<Tensor>;

fn divided(dim: usize, sections: &[usize]) -> Option<Divided> {
    Some(Divided { dim, sections: sections.to_vec() })
}

/// Values of an argument.
fn values(name: &str, shape: &[usize]) -> Vec<f64> {
    let seed = name.bytes().map(f64::from).sum::<f64>();
    (0..shape.iter().product::<usize>()).map(|i| ((i as f64 + 1.0) * 0.7 + seed).sin()).collect()
}

/// A rank's part of values of a shape.
fn part(values: &[f64], shape: &[usize], by: &Divided, place: usize, count: usize) -> Vec<f64> {
    let outer: usize = shape[..by.dim].iter().product();
    let inner: usize = shape[by.dim + 1..].iter().product();
    let mut own = Vec::new();
    for row in 0..outer {
        let mut start = 0;
        for section in &by.sections {
            let length = section / count;
            for i in start + place * length..start + (place + 1) * length {
                let first = (row * shape[by.dim] + i) * inner;
                own.extend(&values[first..first + inner]);
            }
            start += section;
        }
    }
    own
}

fn division(arguments: &Arguments, sequence: Option<usize>) -> Division {
    let mut division = Division::new("tensor");
    for (at, (_, shape, by)) in arguments.iter().enumerate() {
        if let Some(by) = by {
            division = division.with_part(&format!("in.{at}"), shape.clone(), by.clone());
        }
    }
    division.sequence = sequence;
    division
}

/// What each of so many ranks gets of `f`, in f64.
fn on_ranks(count: usize, arguments: &Arguments, f: Function, sequence: Option<usize>) -> Vec<Vec<Vec<f64>>> {
    let mesh: Mesh = if count == 1 { Mesh::ONE } else { format!("tensor={count}").parse().unwrap() };
    let names: Vec<&str> = arguments.iter().map(|(name, ..)| *name).collect();
    let run = |rank: usize| {
        let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() };
        let options = match count {
            1 => options,
            _ => options.with_tensor_parallel(division(arguments, sequence)),
        };
        let names = names.clone();
        let program =
            jit(move |(list,): (Vec<Tensor>,)| f(&names.iter().map(|name| (*name).to_owned()).zip(list).collect()));
        let list = arguments.iter().map(|(name, shape, by)| {
            let all = values(name, shape);
            if name.starts_with("ids") {
                let ids: Vec<i64> = all.iter().map(|value| ((value + 1.0) * 3.99) as i64).collect();
                return Array::new(&shape[..], &ids).unwrap();
            }
            match by {
                Some(by) if count > 1 => {
                    let own = part(&all, shape, by, rank, count);
                    Array::new(by.part(shape, count), &own).unwrap()
                }
                _ => Array::new(&shape[..], &all).unwrap(),
            }
        });
        let program = program.arguments(["in"]).results(["out"]).options(options);
        let out = program.call((list.collect::<Vec<_>>(),)).unwrap();
        out.iter().map(|array| array.to_f64().unwrap()).collect::<Vec<_>>()
    };
    if count == 1 { vec![run(0)] } else { ranks::simulate(&mesh, run).unwrap() }
}

/// Each rank gets what one rank does.
fn same_as_one(arguments: &Arguments, f: Function) {
    let alone = on_ranks(1, arguments, f, None).remove(0);
    for count in [2, 4] {
        for sequence in [None, Some(1)] {
            for (rank, found) in on_ranks(count, arguments, f, sequence).into_iter().enumerate() {
                for (at, (found, alone)) in found.iter().zip(&alone).enumerate() {
                    let whole = found.len() == alone.len();
                    let close = found.iter().zip(alone).all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0));
                    assert!(
                        whole && close,
                        "result {at} of rank {rank} of {count}, {sequence:?}: {found:?}, alone {alone:?}"
                    );
                }
            }
        }
    }
}

/// Two layers, of which the first has parts of the outputs, and the second parts of the inputs.
fn layers(at: &BTreeMap<String, Tensor>) -> Vec<Tensor> {
    let hidden = tanh(linear::with(at["x"], at["w1"]).bias(at["b1"]).call());
    vec![linear::with(hidden, at["w2"]).bias(at["b2"]).call()]
}

fn of_layers() -> Arguments {
    vec![
        ("x", vec![2, 4, 6], None),
        ("w1", vec![8, 6], divided(0, &[8])),
        ("b1", vec![8], divided(0, &[8])),
        ("w2", vec![6, 8], divided(1, &[8])),
        ("b2", vec![6], None),
    ]
}

#[test]
fn columns_and_rows_of_layers() {
    same_as_one(&of_layers(), layers);
}

#[test]
fn gradients_of_columns_and_rows() {
    same_as_one(&of_layers(), |at| {
        let names: Vec<String> = at.keys().cloned().collect();
        let (loss, gradients) = value_and_grad(at.values().copied().collect::<Vec<_>>(), |list| {
            let at = names.iter().cloned().zip(list.iter().copied()).collect();
            let out = layers(&at)[0];
            mean(out * out) + mean(list[3] * list[3])
        });
        [vec![loss], gradients].concat()
    });
}

/// Attention whose heads are divided: queries, keys and values come from one layer.
#[test]
fn heads_of_packed_layers() {
    let arguments: Arguments = vec![
        ("x", vec![2, 4, 8], None),
        ("qkv", vec![24, 8], divided(0, &[8, 8, 8])),
        ("bias", vec![24], divided(0, &[8, 8, 8])),
        ("out", vec![8, 8], divided(1, &[8])),
        ("scale", vec![8], None),
    ];
    same_as_one(&arguments, |at| {
        let (loss, gradients) = value_and_grad(vec![at["x"], at["scale"], at["qkv"], at["bias"], at["out"]], |list| {
            let x = layer_norm::with(list[0], [8]).weight(list[1]).call();
            let y = checkpoint("attn", || {
                let qkv = linear::with(x, list[2]).bias(list[3]).call();
                let (q, k, v) = split_heads(qkv, 4);
                let y = scaled_dot_product_attention::with(q, k, v).is_causal(true).call();
                linear(fulgurite_ops::nn::merge_heads(y), list[4])
            });
            let z = list[0] + y;
            mean(layer_norm::with(z, [8]).weight(list[1]).call() * z)
        });
        [vec![loss], gradients].concat()
    });
}

/// Rows of an embedding, and the classes of the loss.
#[test]
fn vocabularies() {
    let arguments: Arguments = vec![
        ("ids", vec![2, 4], None),
        ("ids_next", vec![2, 4], None),
        ("wte", vec![8, 6], divided(0, &[8])),
        ("gain", vec![6], None),
    ];
    same_as_one(&arguments, |at| {
        let (loss, gradients) = value_and_grad(vec![at["gain"], at["wte"]], |list| {
            let x = layer_norm::with(embedding(at["ids"], list[1]), [6]).weight(list[0]).call();
            let logits = reshape(linear(x, list[1]), [8, 8]);
            cross_entropy(logits, reshape(at["ids_next"], [8]))
        });
        [vec![loss], gradients].concat()
    });
}

/// Lines that no rule divides get whole operands, and results that are whole are.
#[test]
fn what_no_rule_divides_is_gathered() {
    same_as_one(&of_layers(), |at| {
        let hidden = linear(at["x"], at["w1"]);
        let (best, _) = topk(hidden, 3);
        let odd = prims::slice(hidden, [0, 0, 1], [2, 4, 6], [1, 1, 1]);
        let turned = prims::permute(prims::cat([hidden, hidden], 2), [2, 0, 1]);
        vec![best, odd, turned, sum(to(prims::ge(hidden, tanh(hidden)), DType::F64)), at["w1"] + 0.0]
    });
}
