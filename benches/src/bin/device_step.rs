//! A training step of GPT-2 on a CUDA device, beside `peers/gpt2_torch.py`:
//! `device_step [--size 124M] [--batch 4] [--context 64] [--dtype f32|tf32|bf16] [--executors llmc,optim,...] [--steps 20] [--profile]`
//!
//! Prints one line of JSON: milliseconds a step (each waited for, and enqueued one after the other), the host's time for
//! one replay, memory predicted and counted, and the losses of the first ten steps.

use std::time::Instant;

use fulgurite::compile::Options;
use fulgurite::device::DeviceState;
use fulgurite::executor::find_executor;
use fulgurite::tree::Tree;
use fulgurite::{Array, DType, Device, Result, Tensor, jit};
use fulgurite_benches::median_of;
use fulgurite_models::batches::Batch;
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::config::GptConfig;
use fulgurite_models::gpt2::Gpt2;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, train_step};
use fulgurite_models::train::{batch_arrays, initial_parameters, step_scalars};

type Arguments<T> = (TrainState<T>, BatchTensors<T>, StepScalars<T>);

fn option(name: &str, otherwise: &str) -> String {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().unwrap_or_else(|| otherwise.to_owned())
}

fn main() -> Result<()> {
    let number = |name: &str, otherwise: &str| option(name, otherwise).parse::<usize>().unwrap_or(1);
    let (rows, context, steps) = (number("--batch", "4"), number("--context", "64"), number("--steps", "20"));
    let (size, dtype) = (option("--size", "124M"), option("--dtype", "f32"));
    let started = Instant::now();
    let device = Device::new("cuda", 0);
    let state = DeviceState::of(device)?;
    // Padded to a multiple of 128, as the peer does.
    let mut config = GptConfig::named(&size, number("--vocabulary", "50304")).unwrap_or_else(|error| panic!("{error}"));
    config.context = config.context.max(context);
    // The peer decays everything and does not clip.
    let optimizer = OptimizerSettings { clip: None, beta2: 0.95, weight_decay: 0.1, ..OptimizerSettings::default() };
    let mut options = Options { verify: false, device: Some(device), ..Options::default() };
    let mut list = match option("--executors", "").as_str() {
        "" => options.executor_list("cuda"),
        names => names.split(',').map(find_executor).collect::<Result<_>>()?,
    };
    if dtype == "tf32" {
        list.insert(0, find_executor("tf32")?);
    }
    options.autocast = (dtype == "bf16").then_some(DType::BF16);
    options.executors = Some(list);
    let step = jit(|(state, batch, scalars): Arguments<Tensor>| train_step(&config, &optimizer, state, batch, scalars))
        .named("train_step")
        .arguments(["state", "batch", "scalars"])
        .results(["state", "loss", "grad_norm"])
        .donate("state")
        .options(options);
    let zeros = || Gpt2::build(&config, &mut |_, shape| Array::zeros(shape, DType::F32));
    let mut training = TrainState { params: initial_parameters(&config, 42)?, exp_avg: zeros()?, exp_avg_sq: zeros()? };
    let token = |i: usize| (i * 7919 % 50_257) as i64;
    let batch = Batch {
        inputs: (0..rows * context).map(token).collect(),
        targets: (1..=rows * context).map(token).collect(),
        rows,
        context,
    };
    let (mut losses, mut times, mut first) = (Vec::new(), Vec::new(), 0.0);
    for number in 1..=10 + steps as u64 {
        let (batch, scalars) = (batch_arrays(&batch)?, step_scalars(1e-4, number, 42)?);
        let start = Instant::now();
        let (next, loss, _) = step.call((training, batch, scalars))?;
        state.synchronize()?;
        let elapsed = start.elapsed();
        training = next;
        if number == 1 {
            first = started.elapsed().as_secs_f64();
        }
        match number <= 10 {
            true => losses.push((loss.item()? * 1e5).round() / 1e5),
            false => times.push(elapsed.as_secs_f64() * 1e3),
        }
    }
    // Enqueued one after the other: the device is never idle, and the host's own time is what a call takes.
    let (start, mut host) = (Instant::now(), Vec::new());
    for number in 0..steps as u64 {
        let arguments = (training, batch_arrays(&batch)?, step_scalars(1e-4, 100 + number, 42)?);
        let called = Instant::now();
        let (next, _, _) = step.call(arguments)?;
        host.push(called.elapsed().as_secs_f64() * 1e6);
        training = next;
    }
    state.synchronize()?;
    let piped = start.elapsed().as_secs_f64() * 1e3 / steps as f64;
    let arguments = (training, batch_arrays(&batch)?, step_scalars(1e-4, 1, 42)?);
    let compiled = step.compile(&arguments)?;
    let (counts, memory) = (compiled.program().counts().unwrap_or_default(), compiled.program().memory());
    println!(
        "{}",
        serde_json::json!({
            "who": "fulgurite", "device": state.context().device().to_string(), "size": size, "dtype": dtype,
            "B": rows, "T": context, "ms": median_of(times), "piped_ms": (piped * 1e3).round() / 1e3,
            "host_us": median_of(host), "first_s": (first * 100.0).round() / 100.0,
            "compiles": step.compiles(), "graphs": counts.graphs, "replays": counts.replays, "commands": counts.commands,
            "predicted_mib": memory.peak() >> 20, "counted_mib": state.context().peak_bytes() >> 20, "losses": losses,
        })
    );
    if std::env::args().any(|argument| argument == "--profile") {
        let mut inputs: Vec<Array> = Vec::new();
        arguments.map(&mut |array: Array| {
            inputs.push(array.clone());
            array.meta().clone()
        });
        let (_, mut spent) = compiled.program().run_timed(inputs)?;
        spent.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let block = &compiled.program().trace().block;
        for (symbol, time) in spent.iter().take(60) {
            let line = fulgurite::trace::print_symbol(block, &block.symbols[*symbol]);
            println!("{:9.1} us  {}", time.as_secs_f64() * 1e6, line.chars().take(150).collect::<String>());
        }
    }
    Ok(())
}
