//! Several ranks on GPUs, of which one hangs, and in what order they drop programs. With one GPU the tests are skipped.

use std::time::{Duration, Instant};

use fulgurite_ops::collectives::{Reduce, all_reduce, all_reduce_one};
use fulgurite_ops_macros::{implementation, operator};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::device::find_kind;
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::{Array, DType, Device, Tensor, jit, ranks};

use super::{alone_with, buggy};
use crate::device;

/// The input, after as many seconds as its first element says.
#[operator(name = "buggy::late", no_grad = "of no interest here")]
pub mod late {
    fn late(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * 1.0
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5])));
    }
}

#[implementation(of = late, by = buggy)]
mod late_by_buggy {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32 && !input.is_empty(), "elements of f32 only");
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.source(source_files!["late.cu"]);
        plan.define("COUNT", input.meta.len());
        plan.launch("late", LaunchShape::linear(1, 32), binds![input, out])
    }
}

fn two_devices() -> bool {
    let count = device::cuda().map_or(0, |cuda| find_kind(cuda.kind()).unwrap().count().unwrap());
    if count < 2 {
        eprintln!("skipped: {count} of 2 CUDA devices");
    }
    count >= 2
}

fn options(mesh: &Mesh, rank: usize) -> Options {
    let device = Some(Device::new("cuda", rank as u32));
    Options { mesh: mesh.clone(), device, ..Options::default() }
}

/// A rank whose GPU does not come to its collective ends the others in time, and they say where they wait.
#[test]
fn a_rank_that_hangs_ends_the_others() {
    if !two_devices() {
        return;
    }
    let name = "device_runs::several::a_rank_that_hangs_ends_the_others";
    alone_with(name, &[("FULGURITE_RANKS_SECONDS", "2")], || {
        for graph in [true, false] {
            let mesh: Mesh = "data=2".parse().unwrap();
            let outcomes = ranks::simulate(&mesh, |rank| {
                let executors = &["buggy", "nccl", "fusion", "cuda"];
                let options = Options { graph, ..options(&mesh, rank) }.with_executors(executors).unwrap();
                let f = jit(|x: Tensor| all_reduce_one(late(x), "data=2", Reduce::Sum)).named("step").options(options);
                let run = |seconds: f32| f.call(Array::new([2], &[seconds, 1.0]).unwrap())?.to_vec::<f32>();
                // Connections are made, and a graph is recorded.
                for _ in 0..3 {
                    assert_eq!(run(0.0).unwrap(), [0.0, 2.0]);
                }
                let began = Instant::now();
                let late = run(if rank == 1 { 6.0 } else { 0.0 });
                let took = began.elapsed();
                (late.unwrap_err().to_string(), took, run(0.0).unwrap_err().to_string())
            });
            let outcomes = outcomes.unwrap();
            let (waits, took, again) = &outcomes[0];
            for part in ["rank 0 waits in", "AllReduce(Sum) along data=2", "have not come for 2 s"] {
                assert!(waits.contains(part), "graph {graph}: {outcomes:?}");
            }
            assert!(*took < Duration::from_secs(5), "graph {graph}: {outcomes:?}");
            assert!(again.contains("rank 0"), "graph {graph}: {outcomes:?}");
        }
    });
}

/// A communicator lasts as long as its rank.
#[test]
fn ranks_drop_programs_in_any_order() {
    if !two_devices() {
        return;
    }
    let mesh: Mesh = "data=2".parse().unwrap();
    let outcomes = ranks::simulate(&mesh, |rank| {
        let sum = |x: &Array, named: &str| {
            let f = jit(|x: Tensor| all_reduce([x, x + 1.0], "data=2", Reduce::Sum)[1]);
            let f = f.named(named).options(options(&mesh, rank));
            let found: Vec<f32> = (0..3).map(|_| f.call(x.clone()).unwrap().to_vec::<f32>().unwrap()[0]).collect();
            (f, found)
        };
        let x = Array::new([1], &[rank as f32]).unwrap();
        for _ in 0..3 {
            let (first, found) = sum(&x, "first");
            assert_eq!(found, [3.0; 3]);
            // One rank has no program left when it loads the next one, the other has.
            let kept = (rank == 0).then_some(first);
            let (second, found) = sum(&x, "second");
            assert_eq!(found, [3.0; 3]);
            drop(second);
            drop(kept);
        }
    });
    assert_eq!(outcomes.unwrap().len(), 2);
}
