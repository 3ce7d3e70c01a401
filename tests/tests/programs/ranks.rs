//! Programs that several ranks run: what `ddp` makes of gradients inside of others, and what does not fit together.

use fulgurite_ops::collectives::{Reduce, all_gather_one, all_reduce, all_reduce_one, broadcast};
use fulgurite_ops::prelude::{
    adamw, checkpoint, clip_grad_norm, full, gt, index_select, linear, log, mean, sum, sum_of_squares, tanh,
    value_and_grad,
};
use fulgurite_ops::prims;
use fulgurite_ops_macros::operator;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::transforms::fsdp::Sharding;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta, jit, ranks};

mod draws;

/// The whole batch, of which each rank takes its part.
const BATCH: [f64; 4] = [1.0, -2.0, 0.5, 3.0];

fn on(mesh: &str) -> Options {
    Options { mesh: mesh.parse().unwrap(), ..Options::default() }
}

/// The gradient that `f` gives on each of so many ranks, with its part of the batch.
fn on_ranks(count: usize, f: fn(Tensor, Tensor) -> Tensor) -> Vec<f64> {
    let mesh: Mesh = format!("data={count}").parse().unwrap();
    let part = BATCH.len() / count;
    let run = |rank: usize| {
        let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() }.with_ddp("data");
        let step = jit(move |(w, x): (Tensor, Tensor)| f(w, x)).options(options);
        let x = Array::new([part], &BATCH[rank * part..(rank + 1) * part]).unwrap();
        step.call((Array::new([], &[0.7f64]).unwrap(), x)).unwrap().item().unwrap()
    };
    ranks::simulate(&mesh, run).unwrap()
}

/// Gradients in a checkpoint, and in the loss of another gradient, are those of the whole batch too.
#[test]
fn ddp_averages_gradients_inside_of_others() {
    fn loss(w: Tensor, x: Tensor) -> Tensor {
        mean(tanh(w * x) * (w + x))
    }
    fn in_checkpoint(w: Tensor, x: Tensor) -> Tensor {
        checkpoint("part", || value_and_grad(w, |w| loss(*w, x)).1)
    }
    // One step on the batch, and how the loss after it depends on where it began.
    fn through_a_step(w: Tensor, x: Tensor) -> Tensor {
        value_and_grad(w, |w| {
            let gradient = value_and_grad(*w, |w| loss(*w, x)).1;
            loss(*w - gradient * 0.1, x)
        })
        .1
    }
    for f in [in_checkpoint as fn(Tensor, Tensor) -> Tensor, through_a_step] {
        let alone = on_ranks(1, f)[0];
        for count in [2, 4] {
            for (rank, found) in on_ranks(count, f).into_iter().enumerate() {
                assert!((found - alone).abs() <= 1e-12, "rank {rank} of {count} has {found}, one rank {alone}");
            }
        }
    }
}

/// Calls that differ in an attribute alone are not the same.
#[test]
fn other_attributes_on_another_rank_are_an_error() {
    let calls: [[fn(Tensor) -> Tensor; 2]; 3] = [
        [|x| all_reduce_one(x, "data=2", Reduce::Sum), |x| all_reduce_one(x, "data=2", Reduce::Max)],
        [|x| all_gather_one(x, "data=2", 0), |x| all_gather_one(x, "data=2", 1)],
        [|x| broadcast(x, "data=2", 0), |x| broadcast(x, "data=2", 1)],
    ];
    for executors in [["default"], ["reference"]] {
        for pair in calls {
            let outcomes = ranks::simulate(&"data=2".parse().unwrap(), |rank| {
                let options = on("data=2").with_executors(&executors).unwrap();
                jit(pair[rank]).options(options).call(Array::new([2, 2], &[1.0f32; 4]).unwrap()).map(drop)
            });
            for outcome in outcomes.unwrap() {
                let message = outcome.unwrap_err().to_string();
                assert!(message.contains("all ranks must run the same program"), "{executors:?}: {message}");
            }
        }
    }
}

/// Results of a list may have the memory of their own operands, and of no others: not where a tensor is twice in it.
#[test]
fn a_list_is_reduced_in_place() {
    let outcomes = ranks::simulate(&"data=2".parse().unwrap(), |rank| {
        let f = jit(|(x, y): (Tensor, Tensor)| {
            let (x, y) = (x + 1.0, y * 2.0);
            let sums = all_reduce([x, y], "data=2", Reduce::Sum);
            let twice = all_reduce([sums[1], sums[1], sums[0] * sums[0]], "data=2", Reduce::Max);
            (twice[0] - twice[1] * 2.0, twice[2])
        });
        let options = Options { verify: true, ..on("data=2") };
        let inputs = (Array::new([2], &[rank as f32, 1.0]).unwrap(), Array::new([3], &[rank as f32; 3]).unwrap());
        let f = f.options(options);
        let compiled = f.compile(&inputs).unwrap();
        let (a, b): (Array, Array) = f.call(inputs).unwrap();
        (compiled.program().trace().to_string(), a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap())
    });
    for (text, a, b) in outcomes.unwrap() {
        assert_eq!((a, b), (vec![-2.0; 3], vec![9.0, 16.0]), "{text}");
        // The first two sums have the memory of their operands, the maxima of a tensor that is there twice do not.
        assert!(text.contains("add at 0, mul at 64, all_reduce.2 at 128, all_reduce.3 at 192\n"), "{text}");
    }
}

/// A rank whose run failed does not meet what the others gave for that run with what it gives for the next one.
#[test]
fn a_rank_that_goes_on_after_a_failed_run_is_an_error() {
    let outcomes = ranks::simulate(&"data=2".parse().unwrap(), |rank| {
        let f = jit(|(x, at): (Tensor, Tensor)| all_reduce_one(index_select(x, 0, at), "data=2", Reduce::Sum));
        let f = f.options(on("data=2"));
        let run = |step: i64| {
            // In the first step the second rank has an index that is not there.
            let at = if (rank, step) == (1, 0) { 9 } else { step };
            let x = Array::new([2], &[1.0f32, 2.0]).unwrap();
            f.call((x, Array::new([1], &[at]).unwrap())).map(|sum: Array| sum.to_vec::<f32>().unwrap())
        };
        [run(0), run(1)]
    });
    let [first, second] = <[_; 2]>::try_from(outcomes.unwrap()).unwrap();
    assert!(second[0].as_ref().unwrap_err().to_string().contains("index holds 9"), "{second:?}");
    assert!(second[1].as_ref().unwrap_err().to_string().contains("after a program of it failed"), "{second:?}");
    // And its own run has failed by that.
    assert!(first[0].as_ref().unwrap_err().to_string().contains("rank 1 has ended or failed"), "{first:?}");
    assert!(first[1].as_ref().unwrap_err().to_string().contains("rank 0 calls"), "{first:?}");
}

/// The others wait for it.
#[test]
fn a_collective_that_nothing_reads_is_kept() {
    let f = jit(|x: Tensor| {
        let _ = checkpoint("part", || all_reduce_one(x, "data=1", Reduce::Sum));
        x + 1.0
    });
    let compiled = f.compile(&Array::scalar(1.0)).unwrap();
    let text = compiled.program().trace().to_string();
    assert!(text.contains("all_reduce"), "{text}");
}

#[test]
fn what_ddp_cannot_do_is_an_error() {
    let f = |x: Tensor| value_and_grad(x, |x| sum(*x * *x)).1;
    let failure = |options: Options| jit(f).options(options).call(Array::scalar(1.0)).unwrap_err().to_string();
    let message = failure(on("data=2").with_ddp("shard"));
    assert!(message.contains("is 'shard', the mesh of the program is 'data=2'"), "{message}");
    let message = failure(Options::default().with_ddp("data"));
    assert!(message.contains("the mesh of the program is one rank"), "{message}");
    // Compiled for two ranks, and run by one.
    let message = failure(on("data=2").with_ddp("data"));
    assert!(message.contains("the axis data=2, and runs on one rank"), "{message}");
    let without = jit(|x: Tensor| x + 1.0).options(on("data=2").with_ddp("data")).call(Array::scalar(1.0));
    let message = without.unwrap_err().to_string();
    assert!(message.contains("no `value_and_grad`"), "{message}");
    // A collective by hand, along an axis that is not there: at the author's line.
    let by_hand = jit(|x: Tensor| all_reduce_one(x, "tensor=2", Reduce::Sum));
    let message = by_hand.options(on("data=2")).call(Array::scalar(1.0)).unwrap_err().to_string();
    assert!(message.contains("axis is 'tensor=2', the program is for the mesh 'data=2'"), "{message}");
    assert!(message.contains("ranks.rs"), "{message}");
}

/// A matrix of 3 x 5 and a vector of 4, with the moments of AdamW.
type State<T> = (Vec<T>, Vec<T>, Vec<T>);

const SHAPES: [&[usize]; 2] = [&[3, 5], &[4]];
const ARGUMENTS: [&str; 3] = ["state.0", "state.1", "state.2"];

/// A step of AdamW on the mean of the batch, with clipped gradients.
fn optimizer_step((params, means, squares): State<Tensor>, x: Tensor, scalars: &[Tensor]) -> (State<Tensor>, Tensor) {
    let (loss, gradients) = value_and_grad(params.clone(), |params| {
        let hidden = tanh(linear(x, params[0]));
        mean(hidden * hidden) + sum(params[1] * params[1]) * mean(x)
    });
    let clipped = clip_grad_norm(gradients, 0.05);
    let update = |i: usize| adamw::with(params[i], clipped[i], means[i], squares[i], scalars[0], scalars[1]).call();
    let next = [update(0), update(1)];
    let all = |pick: fn(&(Tensor, Tensor, Tensor)) -> Tensor| next.iter().map(pick).collect::<Vec<_>>();
    ((all(|next| next.0), all(|next| next.1), all(|next| next.2)), loss + clipped[2])
}

fn sharding() -> Sharding {
    let mut sharding = Sharding::new("data");
    for argument in ARGUMENTS {
        for (i, shape) in SHAPES.iter().enumerate() {
            sharding = sharding.with_part(&format!("{argument}.{i}"), shape.to_vec());
        }
    }
    sharding
}

/// Three steps on so many ranks: the losses, and the parameters that the ranks' parts are together.
fn trained(count: usize, gather_again: Option<u64>) -> (Vec<f64>, [Vec<f64>; 2]) {
    let mesh: Mesh = format!("data={count}").parse().unwrap();
    let part = 8 / count;
    let batch: Vec<f64> = (0..40).map(|i| f64::from(i * 7 % 11) / 5.0 - 1.0).collect();
    let run = |rank: usize| {
        let mut sharding = sharding();
        sharding.gather_again = gather_again;
        let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() }.with_fsdp(sharding);
        let step = jit(|(state, x, scalars): (State<Tensor>, Tensor, Vec<Tensor>)| optimizer_step(state, x, &scalars));
        let step =
            step.arguments(["state", "x", "scalars"]).results(["state", "loss"]).donate("state").options(options);
        let shard = |begin: &dyn Fn(usize) -> f64, shape: &[usize]| {
            let whole: Vec<f64> = (0..shape.iter().product()).map(begin).collect();
            Array::new(shape, &whole).unwrap().part(rank, &mesh.axes()[0]).unwrap()
        };
        let tree = |begin: &dyn Fn(usize) -> f64| SHAPES.map(|shape| shard(begin, shape)).to_vec();
        let mut state = (tree(&|i| (i as f64 * 0.37).sin()), tree(&|_| 0.0), tree(&|_| 0.0));
        let x = Array::new([part, 5], &batch[rank * part * 5..(rank + 1) * part * 5]).unwrap();
        let mut losses = Vec::new();
        for number in 1..=3 {
            let scalars = vec![Array::scalar(0.1f32), Array::scalar(number as f32)];
            let (next, loss) = step.call((state, x.clone(), scalars)).unwrap();
            losses.push(loss.item().unwrap());
            state = next;
        }
        let parts: Vec<Vec<f64>> = state.0.iter().map(|part| part.to_vec::<f64>().unwrap()).collect();
        (losses, parts)
    };
    let ranks = ranks::simulate(&mesh, run).unwrap();
    assert!(ranks.iter().all(|(losses, _)| *losses == ranks[0].0), "the losses are those of all ranks");
    let whole = |i: usize| {
        let all = ranks.iter().flat_map(|(_, parts)| parts[i].clone());
        all.take(SHAPES[i].iter().product()).collect()
    };
    (ranks[0].0.clone(), [whole(0), whole(1)])
}

/// Parameters and moments in parts, of which some end with padding, train as one rank does.
#[test]
fn fsdp_trains_as_one_rank_does() {
    let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12 * a.abs().max(1.0));
    let (losses, params) = trained(1, None);
    assert!(losses[2] < losses[0], "{losses:?}");
    for count in [2, 4] {
        for gather_again in [None, Some(1)] {
            let found = trained(count, gather_again);
            assert!(close(&found.0, &losses), "{count} ranks: {:?}, one: {losses:?}", found.0);
            for i in [0, 1] {
                assert!(close(&found.1[i], &params[i]), "{count} ranks: {:?}, one: {:?}", found.1[i], params[i]);
            }
        }
    }
}

/// The input divided by its number of elements: the decomposition depends on the shape.
#[operator(name = "ranks::shared_out")]
pub mod shared_out {
    fn shared_out(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input / input.shape().iter().product::<usize>() as f64
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])));
    }
}

/// The parameters, in parts; the part of the batch; a number.
type OnParts = fn(Tensor, Tensor, Tensor) -> (Tensor, Tensor);

/// What a program gives on so many ranks: its result in parts, as the whole, and the other one, on each rank.
fn of_parts(count: usize, shape: &[usize], f: OnParts) -> (Vec<f64>, Vec<Vec<f64>>) {
    let mesh: Mesh = format!("data={count}").parse().unwrap();
    let elements: usize = shape.iter().product();
    let outcomes = ranks::simulate(&mesh, |rank| {
        let sharding = Sharding::new("data").with_part("w", shape);
        let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() }.with_fsdp(sharding);
        let f = jit(move |(w, x, s): (Tensor, Tensor, Tensor)| f(w, x, s));
        let f = f.arguments(["w", "x", "s"]).results(["w", "out"]).options(options);
        let w: Vec<f64> = (1..=elements).map(|i| i as f64).collect();
        let w = Array::new(shape, &w).unwrap().part(rank, &mesh.axes()[0]).unwrap();
        let each = BATCH.len() / count;
        let x = Array::new([each], &BATCH[rank * each..(rank + 1) * each]).unwrap();
        let (w, out): (Array, Array) = f.call((w, x, Array::new([], &[0.5f64]).unwrap())).unwrap();
        (w.to_f64().unwrap(), out.to_f64().unwrap())
    });
    let (parts, outs): (Vec<Vec<f64>>, Vec<Vec<f64>>) = outcomes.unwrap().into_iter().unzip();
    (parts.concat().into_iter().take(elements).collect(), outs)
}

/// What is computed on parts is what one rank computes of the whole.
#[test]
fn parts_give_the_numbers_of_whole_tensors() {
    let programs: [(&str, OnParts); 8] = [
        ("a sum beside parts", |w, _, s| (w * sum(w * w), s)),
        ("a sum given to a gradient", |w, _, _| {
            let square = sum(w * w);
            let (loss, gradient) = value_and_grad(w, |w| sum(*w * *w) * square);
            (gradient, loss)
        }),
        ("a sum in a gradient", |w, _, _| {
            let (loss, gradient) = value_and_grad(w, |w| sum(*w * sum(*w * *w)));
            (gradient, loss)
        }),
        // The logarithm of padding is infinite.
        ("a number's gradient", |w, _, s| {
            let (_, gradients) = value_and_grad((w, s), |(w, s)| sum(log(*w) * *s));
            (gradients.0, gradients.1)
        }),
        ("a number of the batch in a gradient", |w, x, _| {
            let (loss, gradient) = value_and_grad(w, |w| sum(*w * *w * mean(x)));
            (gradient, loss)
        }),
        ("a decomposition with extents", |w, _, s| (shared_out(w), s)),
        ("truth values", |w, _, s| (w * s, prims::select(gt(w, 2.0), full(w.shape(), 1.0), full(w.shape(), -1.0)))),
        ("a parameter twice", |w, x, s| {
            let (loss, gradients) = value_and_grad((w, w, s), |(a, b, s)| sum(*a * *b) * mean(x) + sum(*a) * *s);
            (w - gradients.0 * s - gradients.1 * gradients.2, loss)
        }),
    ];
    let close = |a: &[f64], b: &[f64]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-12 * b.abs().max(1.0))
    };
    for shape in [&[4][..], &[5], &[2, 3], &[]] {
        for (name, f) in programs {
            let (w, out) = of_parts(1, shape, f);
            for count in [2, 4] {
                let (found, outs) = of_parts(count, shape, f);
                assert!(close(&found, &w), "{name}, {shape:?} on {count} ranks: {found:?}, one: {w:?}");
                for found in outs {
                    assert!(close(&found, &out[0]), "{name}, {shape:?} on {count} ranks: {found:?}, one: {out:?}");
                }
            }
        }
    }
}

/// The collectives of three layers' step for two GPUs, by the line of the last stage that they are in, with the number
/// of tensors; and how many lines there are.
fn collectives_on_gpus(options: Options) -> (Vec<(usize, &'static str, usize)>, usize) {
    let meta = |shape: &[usize]| TensorMeta::new(shape, DType::F32, Device::CPU);
    let names = Names { arguments: vec!["w".into(), "x".into()], results: vec!["w".into(), "loss".into()] };
    let weights: Vec<TensorMeta> = (0..3).map(|_| meta(&[256, 256])).collect();
    let step = |(w, x): (Vec<Tensor>, Tensor)| {
        let (loss, gradients) = value_and_grad(w.clone(), |w| {
            let hidden = w.iter().fold(x, |hidden, w| tanh(linear(hidden, *w)));
            mean(hidden * hidden)
        });
        (w.into_iter().zip(gradients).map(|(w, gradient)| w - gradient * 0.1).collect::<Vec<_>>(), loss)
    };
    let (traced, _) = trace("step", Target::cpu(), &names, (weights, meta(&[512, 256])), step).unwrap();
    let traced = retarget(&traced, &"cuda:sm_90a x data=2".parse().unwrap());
    let options = Options { mesh: "data=2".parse().unwrap(), device: Some(Device::new("cuda", 0)), ..options };
    let stages = stages(traced, &Options { verify: true, ..options }).unwrap();
    let block = &stages.last().unwrap().trace.block;
    let lines = block.symbols.iter().enumerate();
    let found = lines.filter_map(|(at, symbol)| {
        let def = symbol.operator().filter(|def| def.effects.collective)?;
        Some((at, def.name, symbol.results.len()))
    });
    (found.collect(), block.symbols.len())
}

/// A tensor that is gathered in 32 bits, for one of its readers, is not kept for the sake of its copy in 16 bits, which
/// takes half of the room.
#[test]
fn what_is_gathered_once_is_not_kept_for_a_smaller_copy() {
    let meta = |shape: &[usize], dtype| TensorMeta::new(shape, dtype, Device::CPU);
    let names = Names { arguments: vec!["w".into(), "rows".into()], results: vec!["w".into(), "loss".into()] };
    let step = |(w, rows): (Tensor, Tensor)| {
        let (loss, gradient) = value_and_grad(w, |w| mean(linear(index_select(*w, 0, rows), *w)));
        (w - gradient * 0.1, loss)
    };
    let arguments = (meta(&[4096, 1024], DType::F32), meta(&[8], DType::I64));
    let target = Target::cpu().on_mesh("data=2".parse().unwrap());
    let (traced, _) = trace("step", target, &names, arguments, step).unwrap();
    let sharding = Sharding::new("data").with_part("w", [4096, 1024]);
    let options = Options { autocast: Some(DType::BF16), ..on("data=2").with_fsdp(sharding) };
    let last = stages(traced, &options).unwrap().pop().unwrap().trace.to_string();
    assert!(last.contains("all_gather") && !last.contains("grad.again"), "{last}");
}

/// What reduces is in buckets, and under way before the last gradient is computed; what gathers comes one ahead.
#[test]
fn collectives_are_put_together_and_hidden() {
    let of = |found: &[(usize, &'static str, usize)]| -> Vec<(&'static str, usize)> {
        found.iter().map(|(_, name, tensors)| (*name, *tensors)).collect()
    };
    let options = |bucket| Options { bucket, ..Options::default() };
    let (alone, lines) = collectives_on_gpus(options(0).with_ddp("data"));
    assert_eq!(of(&alone), [("prims::all_reduce", 1); 4]);
    // The loss, then a layer after the other.
    assert!(alone.windows(2).all(|pair| pair[1].0 > pair[0].0 + 1) && alone[3].0 + 1 < lines, "{alone:?} of {lines}");
    let (pairs, _) = collectives_on_gpus(options(2 * 256 * 256 * 4).with_ddp("data"));
    assert_eq!(of(&pairs), [("prims::all_reduce", 2), ("prims::all_reduce", 2)]);
    let (one, _) = collectives_on_gpus(options(1 << 30).with_ddp("data"));
    assert_eq!(of(&one), [("prims::all_reduce", 4)]);
    let sharding = || (0..3).fold(Sharding::new("data"), |all, i| all.with_part(&format!("w.{i}"), [256, 256]));
    let (sharded, _) = collectives_on_gpus(options(0).with_fsdp(sharding()));
    let [gather, scatter, reduce] = ["prims::all_gather", "prims::reduce_scatter", "prims::all_reduce"];
    let names: Vec<&str> = sharded.iter().map(|(_, name, _)| *name).collect();
    assert_eq!(names, [gather, gather, gather, reduce, scatter, scatter, scatter]);
    // The third one does not begin before the second one is read.
    assert!(sharded[1].0 > sharded[0].0 && sharded[2].0 > sharded[1].0 + 1, "{sharded:?}");
    let mut again = sharding();
    again.gather_again = Some(1);
    let (again, _) = collectives_on_gpus(options(0).with_fsdp(again));
    assert_eq!(again.iter().filter(|(_, name, _)| *name == gather).count(), 5, "the first weight has no later reader");
}

/// Lines of several tensors that are elementwise, or sums of all elements, stay as they are, on parts: an executor
/// claims them as on one rank. Parts that end with padding are gathered for a sum.
#[test]
fn lines_of_lists_are_kept_on_parts() {
    for (shapes, kept) in [([&[4usize, 6][..], &[8]], true), ([&[3, 5], &[8]], false)] {
        let mesh: Mesh = "data=2".parse().unwrap();
        let value = |i: usize| (i as f64 * 0.37).sin();
        let all: Vec<f64> = shapes.iter().flat_map(|shape| (0..shape.iter().product()).map(value)).collect();
        let norm = 3.0 * all.iter().map(|x| x * x).sum::<f64>().sqrt();
        let found = ranks::simulate(&mesh, |rank| {
            let mut sharding = Sharding::new("data");
            for (i, shape) in shapes.iter().enumerate() {
                sharding = sharding.with_part(&format!("w.{i}"), shape.to_vec());
            }
            let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() }.with_fsdp(sharding);
            let step = jit(|(w,): (Vec<Tensor>,)| {
                let mut clipped = clip_grad_norm(w.into_iter().map(|w| w * 3.0).collect::<Vec<_>>(), 0.5);
                let norm = clipped.pop().unwrap();
                (clipped, norm)
            });
            let step = step.arguments(["w"]).results(["w", "norm"]).options(options);
            let parts = shapes.iter().map(|shape| {
                let whole: Vec<f64> = (0..shape.iter().product()).map(value).collect();
                Array::new(*shape, &whole).unwrap().part(rank, &mesh.axes()[0]).unwrap()
            });
            let parts: Vec<Array> = parts.collect();
            let text = step.compile(&(parts.clone(),)).unwrap().stage("fsdp").unwrap().to_string();
            assert_eq!(text.contains("sum_of_squares([") && !text.contains("whole("), kept, "{text}");
            assert!(text.contains("clip_grads_with_norm(["), "{text}");
            let (clipped, norm): (Vec<Array>, Array) = step.call((parts,)).unwrap();
            (clipped.iter().map(|part| part.to_f64().unwrap()).collect::<Vec<_>>(), norm.item().unwrap())
        });
        let found = found.unwrap();
        for (at, shape) in shapes.iter().enumerate() {
            let whole: Vec<f64> = found.iter().flat_map(|(parts, _)| parts[at].clone()).collect();
            for (i, own) in whole.iter().take(shape.iter().product()).enumerate() {
                assert!((own - value(i) * 3.0 * 0.5 / norm).abs() < 1e-6, "{own} at {i} of {shape:?}");
            }
        }
        assert!(found.iter().all(|(_, own)| (own - norm).abs() < 1e-6), "{found:?}, {norm}");
    }
}

/// A function's line that stays on parts is opened later, where `fsdp` has named a sum after it; and the second
/// function has the names that were made for the first one.
#[test]
fn names_differ_where_lines_are_opened() {
    for count in [1, 2] {
        let mesh: Mesh = format!("data={count}").parse().unwrap();
        let parts = ranks::simulate(&mesh, |rank| {
            let sharding = Sharding::new("data").with_part("w", [4]).with_part("v", [4]);
            let options = Options { mesh: mesh.clone(), verify: true, ..Options::default() }.with_fsdp(sharding);
            let step = jit(|(w, v): (Tensor, Tensor)| {
                let gradient = |w| value_and_grad(w, |w| sum(*w * v) + sum_of_squares([*w, v]));
                let (_, first) = gradient(w);
                let (loss, second) = gradient(w - first * 0.1);
                (second, loss)
            });
            let step = step.arguments(["w", "v"]).results(["w", "loss"]).options(options);
            let part = || Array::new([4], &[1.0f64, 2.0, 3.0, 4.0]).unwrap().part(rank, &mesh.axes()[0]).unwrap();
            let (gradient, _): (Array, Array) = step.call((part(), part())).unwrap();
            gradient.to_f64().unwrap()
        });
        // The gradient is v + 2 w, and w is 0.7 v by then.
        let found = parts.unwrap().concat();
        let expected = [2.4, 4.8, 7.2, 9.6];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{count}: {found:?}");
    }
}

/// Of two buckets, one may hold what the other reads: what reduces moves back, what gathers moves forward.
#[test]
fn a_bucket_does_not_move_before_another_that_it_reads() {
    let outcomes = ranks::simulate(&"data=2".parse().unwrap(), |rank| {
        let f = jit(|x: Tensor| {
            let sum = all_reduce_one(x, "data=2", Reduce::Sum);
            let gathered = all_gather_one(x * 2.0, "data=2", 0);
            let other = all_reduce_one(x * 3.0, "data=2", Reduce::Sum);
            (gathered + all_gather_one(sum, "data=2", 0), other)
        });
        let f = f.options(Options { verify: true, ..on("data=2") });
        let (both, other): (Array, Array) = f.call(Array::new([1], &[1.0 + rank as f32]).unwrap()).unwrap();
        (both.to_vec::<f32>().unwrap(), other.to_vec::<f32>().unwrap())
    });
    assert_eq!(outcomes.unwrap(), vec![(vec![5.0, 7.0], vec![9.0]); 2]);
}

/// A part that is multiplied by a number of each rank's own batch is a part of no tensor.
#[test]
fn numbers_beside_parts_are_the_same_on_all_ranks() {
    let scaled = |sharding: Sharding| {
        ranks::simulate(&"data=2".parse().unwrap(), |rank| {
            let f = jit(|(w, x): (Tensor, Tensor)| w * sum(x)).arguments(["w", "x"]).results(["w"]);
            let f = f.options(on("data=2").with_fsdp(sharding.clone()));
            let w = Array::new([2], &[1.0 + rank as f32, 3.0]).unwrap();
            f.call((w, Array::new([2], &[0.5f32, 1.5]).unwrap())).map(|w: Array| w.to_vec::<f32>().unwrap())
        })
        .unwrap()
    };
    let sharding = Sharding::new("data").with_part("w", [4]);
    for outcome in scaled(sharding.clone()) {
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains("the result 'w'") && message.contains("Sharding::with_same"), "{message}");
    }
    let same: Vec<Vec<f32>> = scaled(sharding.with_same("x")).into_iter().map(Result::unwrap).collect();
    assert_eq!(same, [[2.0, 6.0], [4.0, 6.0]]);
}

#[test]
fn what_fsdp_cannot_do_is_an_error() {
    let sharding = || Sharding::new("data").with_part("w", [4]);
    let part = || Array::new([2], &[1.0f32, 2.0]).unwrap();
    let absent = part().part(2, &"data=2".parse().unwrap()).unwrap_err().to_string();
    assert!(absent.contains("argument 'place': is 2, expected a place along data=2, below 2"), "{absent}");
    let failure = |f: fn(Tensor) -> Tensor, options: Options, w: Array| {
        jit(f).arguments(["w"]).results(["w"]).options(options).call(w).unwrap_err().to_string()
    };
    let same: fn(Tensor) -> Tensor = |w| w * 2.0;
    let message = failure(same, on("data=2").with_fsdp(sharding()), Array::zeros([3], DType::F32).unwrap());
    assert!(message.contains("argument 'w': has shape [3], expected [2], the part of shape [4]"), "{message}");
    let message = failure(same, on("shard=2").with_fsdp(sharding()), part());
    assert!(message.contains("is 'data', the mesh of the program is 'shard=2'"), "{message}");
    let message = failure(same, on("data=2").with_fsdp(sharding().with_part("v", [4])), part());
    assert!(message.contains("argument 'v': is to be a part of a tensor, but no argument has that path"), "{message}");
    let turned: fn(Tensor) -> Tensor = |w| index_select(w, 0, full([4], 0i64));
    let message = failure(turned, on("data=2").with_fsdp(sharding()), part());
    assert!(message.contains("the result 'w'") && message.contains("not made elementwise of parts"), "{message}");
    let message = failure(same, on("data=2").with_fsdp(sharding().with_same("v")), part());
    assert!(message.contains("argument 'v': is to be the same on all ranks, but no argument has"), "{message}");
    let loss: fn(Tensor) -> Tensor = |w| value_and_grad(w, |w| sum(*w * *w)).1;
    let message = failure(loss, on("data=2").with_fsdp(sharding()).with_ddp("data"), part());
    assert!(message.contains("the axis of ddp") && message.contains("along which `fsdp`"), "{message}");
    let message = failure(loss, on("data=2").with_fsdp(sharding()).with_fsdp(sharding()), part());
    assert!(message.contains("fsdp") && message.contains("give it once"), "{message}");
    let outside = jit(same).arguments(["w"]).options(on("data=2").with_fsdp(sharding())).vjp();
    let message = outside.call(part()).map(drop).unwrap_err().to_string();
    assert!(message.contains("fsdp") && message.contains("use `value_and_grad` in it"), "{message}");
    let nested: fn(Tensor) -> Tensor = |w| value_and_grad(w, |w| sum(value_and_grad(*w, |w| sum(*w * *w)).1)).1;
    let message = failure(nested, on("data=2").with_fsdp(sharding()), part());
    assert!(message.contains("a gradient inside of another one"), "{message}");
}
