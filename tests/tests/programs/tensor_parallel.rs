//! Programs whose parameters are divided among ranks: they compute what one rank does, and say where ranks meet.

use std::collections::BTreeMap;

use fulgurite_ops::prelude::{
    RoundingMode, amin, checkpoint, clamp, cross_entropy, delayed_linear, detach, div, embedding, fmod, index_select,
    layer_norm, linear, mean, reshape, scaled_dot_product_attention, softmax, split_heads, sum, tanh, to, topk,
    value_and_grad, value_and_grad_aux,
};
use fulgurite_ops::prims;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::transforms::fsdp::Sharding;
use fulgurite_runtime::transforms::tensor_parallel::{Divided, Division};
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta, jit, ranks};

/// Arguments by name, and how they are divided, if they are.
type Arguments = Vec<(&'static str, Vec<usize>, Option<Divided>)>;

/// A function of them.
type Function<'a> = &'a (dyn Fn(&BTreeMap<String, Tensor>) -> Vec<Tensor> + Sync);

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
    for (at, (_, _, by)) in arguments.iter().enumerate() {
        if let Some(by) = by {
            division = division.with_part(&format!("in.{at}"), by.clone());
        }
    }
    division.sequence = sequence;
    division
}

/// What each of so many ranks gets of `f`, in f64.
fn on_ranks(count: usize, arguments: &Arguments, f: Function<'_>, sequence: Option<usize>) -> Vec<Vec<Vec<f64>>> {
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
fn same_as_one(arguments: &Arguments, f: Function<'_>) {
    let alone = on_ranks(1, arguments, f, None).remove(0);
    for count in [2, 4] {
        for sequence in [None, Some(1)] {
            for (rank, found) in on_ranks(count, arguments, f, sequence).into_iter().enumerate() {
                for (at, (found, alone)) in found.iter().zip(&alone).enumerate() {
                    let whole = found.len() == alone.len();
                    let close = found.iter().zip(alone).all(|(a, b)| (a - b).abs() <= 1e-11 * b.abs().max(1.0));
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
    same_as_one(&of_layers(), &layers);
}

#[test]
fn gradients_of_columns_and_rows() {
    same_as_one(&of_layers(), &|at| {
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
    same_as_one(&arguments, &|at| {
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
    same_as_one(&arguments, &|at| {
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
    same_as_one(&of_layers(), &|at| {
        let hidden = linear(at["x"], at["w1"]);
        let (best, _) = topk(hidden, 3);
        let odd = prims::slice(hidden, [0, 0, 1], [2, 4, 6], [1, 1, 1]);
        let turned = prims::permute(prims::cat([hidden, hidden], 2), [2, 0, 1]);
        vec![best, odd, turned, sum(to(prims::ge(hidden, tanh(hidden)), DType::F64)), at["w1"] + 0.0]
    });
}

/// Equal largest elements share the gradient, on however many ranks they are.
#[test]
fn ties_are_counted_on_all_ranks() {
    let arguments: Arguments = vec![("p", vec![8, 2], divided(0, &[8])), ("q", vec![2, 8], divided(1, &[8]))];
    same_as_one(&arguments, &|at| {
        let (loss, gradients) = value_and_grad(vec![at["p"], at["q"]], |list| {
            // Three of eight: two of them on the first rank of four, one on the second.
            let high = to(prims::lt(prims::iota(8, 0i64, 1i64, DType::I64, "cpu"), 3), DType::F64);
            let [p, q] = [list[0], list[1]].map(|x| x - detach(x));
            let p = prims::amax(p + prims::broadcast_in_dim(high, [8, 2], [0]), [0]);
            let q = amin::with(q - prims::broadcast_in_dim(high, [2, 8], [1])).dim([-1]).keepdim(true).call();
            sum(p * p) + sum(q * p)
        });
        [vec![loss], gradients].concat()
    });
}

/// Gradients of an operator's own are those of parts too, where these are beside whole tensors.
#[test]
fn kinks_have_the_gradients_of_their_operators() {
    let arguments: Arguments = vec![("p", vec![8], divided(0, &[8])), ("q", vec![8], None)];
    same_as_one(&arguments, &|at| {
        let (loss, gradients) = value_and_grad(vec![at["p"], at["q"]], |list| {
            let (p, q) = (list[0], list[1]);
            // Equal to its bounds, without a quotient, and whole multiples.
            let [flat, zero] = [p - detach(p), q - detach(q)];
            let bounded = clamp::with(flat).min(zero).max(zero + 1.0).call();
            let floor = div::with(flat, zero).rounding_mode(RoundingMode::Floor).call();
            sum(bounded * q) + sum(isfinite_or_zero(floor)) + sum(fmod(flat + 6.0, zero + 3.0) * q)
        });
        [vec![loss], gradients].concat()
    });
}

/// Zero in place of what is infinite or NaN.
fn isfinite_or_zero(x: Tensor) -> Tensor {
    prims::select(prims::isfinite(x), x, 0.0)
}

/// Parts along one axis beside shards along another one, of which each has its part of the batch.
#[test]
fn shards_beside_parts_train_as_one_rank() {
    let loss = |x: Tensor, up: Tensor, down: Tensor| mean(tanh(linear(tanh(linear(x, up)), down)));
    let [rows, up, down] = [("x", [4, 6]), ("up", [8, 6]), ("down", [5, 8])].map(|(name, shape)| values(name, &shape));
    let array = |shape: &[usize], all: &[f64]| Array::new(shape, all).unwrap();
    let alone = jit(move |(x, up, down): (Tensor, Tensor, Tensor)| {
        let (loss, (up, down)) = value_and_grad((up, down), |(up, down)| loss(x, *up, *down));
        (loss, up, down)
    });
    let given = (array(&[4, 6], &rows), array(&[8, 6], &up), array(&[5, 8], &down));
    let alone: (Array, Array, Array) = alone.call(given).unwrap();
    let mesh: Mesh = "data=2 tensor=2".parse().unwrap();
    let found = ranks::simulate(&mesh, |rank| {
        let (data, tensor) = (rank / 2, rank % 2);
        let by = Divided::whole_extent(0, 8);
        let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() };
        let options = options.with_fsdp(Sharding::new("data").with_part("down", [5, 8]));
        let options = options.with_tensor_parallel(Division::new("tensor").with_part("up", by.clone()));
        let step = jit(move |(x, up, down): (Tensor, Tensor, Tensor)| {
            let (loss, (up, down)) = value_and_grad((up, down), |(up, down)| loss(x, *up, *down));
            (loss, up, down)
        });
        let step = step.arguments(["x", "up", "down"]).results(["loss", "d_up", "d_down"]).options(options);
        let up = array(&[4, 6], &part(&up, &[8, 6], &by, tensor, 2));
        let down = array(&[5, 8], &down).part(data, &mesh.axes()[0]).unwrap();
        let out: (Array, Array, Array) = step.call((array(&[2, 6], &rows[data * 12..][..12]), up, down)).unwrap();
        [out.0, out.1, out.2].map(|array| array.to_f64().unwrap())
    });
    let alone = [alone.0, alone.1, alone.2].map(|array| array.to_f64().unwrap());
    for found in found.unwrap() {
        for (found, alone) in found.iter().zip(&alone) {
            let close = found.iter().zip(alone).all(|(a, b)| (a - b).abs() <= 1e-12);
            assert!(found.len() == alone.len() && close, "{found:?}, alone {alone:?}");
        }
    }
}

/// What is measured in place of a gradient cannot be added up over the ranks.
#[test]
fn gradients_that_are_no_derivatives_are_refused() {
    let options = Options { mesh: "tensor=2".parse().unwrap(), ..Options::default() };
    let division = Division::new("tensor").with_part("w", Divided::whole_extent(0, 4));
    let step = jit(|(x, w, largest): (Tensor, Tensor, Tensor)| {
        value_and_grad((w, largest), |(w, largest)| sum(delayed_linear(x, *w, *largest))).1
    });
    let step = step.arguments(["x", "w", "largest"]).options(options.with_tensor_parallel(division));
    let zeros = |shape: &[usize]| Array::zeros(shape, DType::F32).unwrap();
    let message = step.call((zeros(&[3, 6]), zeros(&[2, 6]), zeros(&[3]))).err().unwrap().to_string();
    assert!(message.contains("takes no gradient of 'delayed_linear' that is no derivative"), "{message}");
}

/// The row of padding has no gradient, on whichever rank it is.
#[test]
fn rows_of_padding_get_no_gradient() {
    let arguments: Arguments = vec![("ids", vec![2, 9], None), ("w", vec![8, 6], divided(0, &[8]))];
    for padding in [1, -2] {
        same_as_one(&arguments, &|at| {
            let (loss, gradient) = value_and_grad(at["w"], |w| {
                let rows = embedding::with(at["ids"], *w).padding_idx(padding).call();
                mean(rows * rows)
            });
            vec![loss, gradient]
        });
    }
}

/// Indices of eight bits name rows of parts that begin where eight bits end.
#[test]
fn narrow_indices_name_rows_of_wide_parts() {
    let arguments: Arguments =
        vec![("ids", vec![8], None), ("w", vec![400, 2], divided(0, &[400])), ("v", vec![2, 400], divided(1, &[400]))];
    same_as_one(&arguments, &|at| {
        let ids = to(at["ids"] * 31, DType::U8);
        let index = prims::broadcast_in_dim(ids, [2, 8], [1]);
        vec![index_select(at["w"], 0, ids), embedding(ids, at["w"]), prims::gather(at["v"], 1, index)]
    });
}

/// Numbers that are the same in each run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % count
    }
}

/// A program of random lines over tensors of three dimensions: each draws an operator and what it reads.
fn random_lines(draws: &mut Draws, mut pool: Vec<Tensor>, ids: Tensor) -> Vec<Tensor> {
    for _ in 0..12 {
        let a = pool[draws.below(pool.len())];
        let shape = a.shape().to_vec();
        let alike: Vec<Tensor> = pool.iter().copied().filter(|other| *other.shape() == *shape).collect();
        let b = alike[draws.below(alike.len())];
        let dim = draws.below(3);
        let kept: Vec<usize> = (0..3).filter(|other| *other != dim).collect();
        let spread = |rows: Tensor| prims::broadcast_in_dim(rows, &shape[..], &kept[..]);
        let made = match draws.below(12) {
            0 => a + b,
            1 => tanh(a * b),
            2 => tanh(a - b * 0.5),
            3 => prims::permute(a, [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0]][draws.below(4)]),
            4 => prims::reshape(a, [shape[0] * shape[1] / 4, 4, shape[2]]),
            5 => prims::reshape(a, [4, shape[0] * shape[1] * shape[2] / 16, 4]),
            6 => a * spread(prims::sum(a, [dim])) * 0.1,
            7 => a - spread(prims::amax(a, [dim])),
            8 => softmax(a, dim as i64),
            9 => {
                let joined = prims::cat([a, b], dim);
                let (mut starts, mut ends) = (vec![0; 3], shape.clone());
                let first = [0, shape[dim], shape[dim] / 2][draws.below(3)];
                (starts[dim], ends[dim]) = (first, first + shape[dim]);
                prims::slice(joined, starts, ends, [1, 1, 1])
            }
            10 => tanh(prims::matmul(a, prims::permute(b, [0, 2, 1])) * 0.2),
            _ => index_select(a, dim as i64, prims::slice(ids, [0], [4], [1])),
        };
        pool.push(made);
    }
    pool.split_off(pool.len() - 4)
}

/// Values, gradients of whole arguments and gradients of parts, of whatever lines there are.
#[test]
fn random_programs_compute_what_one_rank_does() {
    for seed in 0..40 {
        let arguments: Arguments = vec![
            ("ids", vec![8], None),
            ("p", vec![4, 8, 8], divided([0, 1, 2][seed % 3], &[[4, 8, 8][seed % 3]])),
            ("q", vec![4, 8, 8], if seed % 2 == 0 { divided(2, &[4, 4]) } else { divided(1, &[8]) }),
            ("r", vec![4, 8, 8], None),
        ];
        same_as_one(&arguments, &|at| {
            let list = ["p", "q", "r"].map(|name| at[name]).to_vec();
            // All of them, so that each is a number of the range of the ids.
            let ids = prims::minimum(at["ids"], prims::full([8], 3i64, DType::I64, "cpu"));
            let ((loss, results), gradients) = value_and_grad_aux(list, |list| {
                let results = random_lines(&mut Draws(seed as u64), list.clone(), ids);
                let terms = results.iter().map(|result| mean(tanh(*result)));
                (terms.reduce(|sum, term| sum + term).unwrap(), results)
            });
            [vec![loss], results, gradients].concat()
        });
    }
}

/// The stage of a small step: where a person sees what ranks compute, and where they meet.
#[test]
fn the_stage_of_two_layers_and_their_gradients() {
    let mesh: Mesh = "tensor=2".parse().unwrap();
    let target = Target::cpu().on_mesh(mesh.clone());
    let metas: Vec<TensorMeta> =
        of_layers().iter().map(|(_, shape, _)| TensorMeta::new(shape.clone(), DType::F32, Device::CPU)).collect();
    let names = Names { arguments: vec!["in".into()], results: vec!["loss".into(), "in".into()] };
    let acquired = trace("step", target, &names, (metas,), |(list,)| {
        let (loss, gradients) = value_and_grad(list, |list: &Vec<Tensor>| {
            let names = of_layers().into_iter().map(|(name, ..)| name.to_owned());
            let out = layers(&names.zip(list.iter().copied()).collect())[0];
            mean(out * out)
        });
        (loss, gradients)
    });
    let (acquired, _) = acquired.unwrap();
    let options = Options { mesh, ..Options::default() }.with_tensor_parallel(division(&of_layers(), None));
    let stages = stages(acquired, &options).unwrap();
    let stage = |name: &str| stages.iter().find(|stage| stage.name == name).unwrap().trace.to_string();
    insta::assert_snapshot!(format!("{}\n{}", stage("tensor_parallel"), stage("cse")));
}

#[test]
fn what_cannot_be_divided_is_refused() {
    let failure = |options: Options, shape: &[usize]| {
        let program = jit(|x: Tensor| x * 2.0).arguments(["x"]).options(options);
        program.call(Array::zeros(shape, DType::F32).unwrap()).unwrap_err().to_string()
    };
    let on = |mesh: &str| Options { mesh: mesh.parse().unwrap(), ..Options::default() };
    let by = |path: &str, dim: usize, sections: &[usize]| {
        Division::new("tensor").with_part(path, Divided { dim, sections: sections.to_vec() })
    };
    let message = failure(on("tensor=2").with_tensor_parallel(by("x", 0, &[4, 3])), &[3]);
    assert!(message.contains("'x'") && message.contains("sections of [4, 3] among 2 ranks"), "{message}");
    let message = failure(on("tensor=2").with_tensor_parallel(by("x", 0, &[8])), &[3]);
    assert!(message.contains("has shape [3], expected 4 in dimension 0, the part of 8"), "{message}");
    let message = failure(on("tensor=2").with_tensor_parallel(by("x", 1, &[8])), &[4]);
    assert!(message.contains("has shape [4], expected 4 in dimension 1"), "{message}");
    let message = failure(on("tensor=2").with_tensor_parallel(by("y", 0, &[8])), &[4]);
    assert!(message.contains("'y'") && message.contains("no argument has that path"), "{message}");
    let message = failure(on("data=2").with_tensor_parallel(by("x", 0, &[8])), &[4]);
    assert!(message.contains("the axis of tensor_parallel") && message.contains("is 'tensor'"), "{message}");
    let twice = on("tensor=2").with_tensor_parallel(by("x", 0, &[8])).with_tensor_parallel(by("x", 0, &[8]));
    assert!(failure(twice, &[4]).contains("has divided this program before"));
    let averaged = on("tensor=2").with_ddp("tensor").with_tensor_parallel(by("x", 0, &[8]));
    let program = jit(|x: Tensor| value_and_grad(x, |x| sum(*x * *x)).1).arguments(["x"]).options(averaged);
    let message = program.call(Array::zeros([4], DType::F32).unwrap()).unwrap_err().to_string();
    assert!(message.contains("the axis of tensor_parallel") && message.contains("'prims::all_reduce'"), "{message}");
    let outside = jit(|x: Tensor| sum(x)).arguments(["x"]);
    let outside = outside.options(on("tensor=2").with_tensor_parallel(by("x", 0, &[8]))).vjp();
    let message = outside.call(Array::zeros([4], DType::F32).unwrap()).err().unwrap().to_string();
    assert!(message.contains("use `value_and_grad` in it"), "{message}");
}
