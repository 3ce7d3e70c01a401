//! Collectives between ranks, measured: `fulgurite launch --gpus N -- collectives [--device cuda] [--most BYTES]`.
//!
//! Rank 0 prints a line of JSON for each size of a tensor of f32, from 1 KiB to `--most` (1 GiB): microseconds of a
//! collective, the median of several rounds, and the bytes that a rank sends in a second. A round is a program of many
//! collectives, each of which takes the result of the one before, called several times without waiting for it: on a
//! device these are replays of one graph. `all_gather` and `reduce_scatter` take turns, so that their line is of both.
//!
//! `FULGURITE_PEERS=0` has NCCL move everything. On the host nothing but the program itself is tried.

use std::time::{Duration, Instant};

use fulgurite_benches::{argument, median_of, wrong};
use fulgurite_executors as _;
use fulgurite_ops::collectives::{Reduce, all_gather_one, all_reduce_one, reduce_scatter_one};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::mesh::Mesh;
use fulgurite_runtime::{Array, DType, Device, Result, Tensor, jit, ranks};

/// How long ranks wait for each other to begin.
const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS: usize = 7;
/// The least size and by how much each is larger than the one before.
const LEAST: usize = 1 << 10;
const TIMES: usize = 4;

/// What is measured, of `bytes` bytes: a tensor of all ranks.
#[derive(Clone, Copy)]
enum Measured {
    AllReduce,
    GatherAndScatter,
}

/// How often a program has the collectives, and how often it is called in a round: less of what takes long.
fn repeats(bytes: usize) -> (usize, usize) {
    match bytes {
        0..=0xf_ffff => (16, 16),
        0x10_0000..=0x3ff_ffff => (8, 8),
        _ => (4, 2),
    }
}

/// Seconds of one of the collectives, in each round.
fn measure(what: Measured, bytes: usize, options: &Options) -> Result<Vec<f64>> {
    let mesh = &options.mesh;
    let (axis, count) = (format!("data={}", mesh.ranks()), mesh.ranks());
    let (chained, calls) = repeats(bytes);
    let step = jit(move |x: Tensor| {
        (0..chained).fold(x, |x, _| match what {
            Measured::AllReduce => all_reduce_one(x, &axis, Reduce::Mean),
            Measured::GatherAndScatter => reduce_scatter_one(all_gather_one(x, &axis, 0), &axis, 0, Reduce::Mean),
        })
    })
    .arguments(["x"])
    .donate("x")
    .options(options.clone());
    let elements = bytes / size_of::<f32>() / if matches!(what, Measured::AllReduce) { 1 } else { count };
    let device = options.device.unwrap_or(Device::CPU);
    let state = options.device.map(DeviceState::of).transpose()?;
    let finish = || state.as_ref().map_or(Ok(()), |state| state.synchronize());
    let mut x = Array::zeros_on(device, [elements], DType::F32)?;
    let mut seconds = Vec::new();
    for round in 0..=ROUNDS {
        finish()?;
        // All begin together.
        ranks::same("round", &round.to_string()).map_err(|error| wrong("ranks", error))?;
        let start = Instant::now();
        for _ in 0..calls {
            x = step.call(x)?;
        }
        finish()?;
        // The first one compiles.
        if round > 0 {
            seconds.push(start.elapsed().as_secs_f64() / (chained * calls) as f64);
        }
    }
    Ok(seconds)
}

fn main() -> Result<()> {
    fulgurite_benches::log_to_stderr();
    let most = argument("--most").map_or(Ok(1 << 30), |text| text.parse::<usize>());
    let most = most.map_err(|error| wrong("--most", error))?;
    let member = ranks::environment::environment().map_err(|reason| wrong("ranks", reason))?;
    let member =
        member.ok_or_else(|| wrong("ranks", "there is one: start this by `fulgurite launch` on two and more"))?;
    let device = match argument("--device").as_deref() {
        None | Some("cuda") => Some(Device::new("cuda", member.local_rank as u32)),
        Some("cpu") => None,
        Some(other) => return Err(wrong("--device", format!("is '{other}', expected cuda or cpu"))),
    };
    let mesh: Mesh =
        format!("data={}", member.mesh.ranks()).parse().map_err(|reason: String| wrong("ranks", reason))?;
    let _joined = ranks::join(&member, PATIENCE).map_err(|error| wrong("ranks", error))?;
    let count = mesh.ranks();
    let options = Options { mesh, device, ..Options::default() };
    for (name, what) in
        [("all_reduce", Measured::AllReduce), ("all_gather, reduce_scatter", Measured::GatherAndScatter)]
    {
        for bytes in std::iter::successors(Some(LEAST), |bytes| bytes.checked_mul(TIMES)).take_while(|b| *b <= most) {
            let seconds = measure(what, bytes, &options)?;
            let us = median_of(seconds.iter().map(|seconds| seconds * 1e6).collect());
            // As many for both: each rank sends the parts of the others, and its own part to them.
            let sent = 2.0 * (count - 1) as f64 / count as f64 * bytes as f64;
            if ranks::rank() == 0 {
                let line = serde_json::json!({
                    "collective": name, "bytes": bytes, "us": us, "gb_s": sent / us / 1e3,
                    "ranks": count, "build": fulgurite_runtime::BUILD,
                });
                println!("{line}");
            }
        }
    }
    Ok(())
}
