//! The CPU training step that PyTorch is compared with (`peers/gpt2_torch_cpu.py`): GPT-2 L4 H4 C128 T64 B8 V50257,
//! f32: `cargo run --release -p fulgurite-benches --bin cpu_step [threads] [steps]`, with
//! `--plot FILE.svg --against FILE` beside peers, whose lines of JSON are in that file

use fulgurite_benches::plot::Drawing;
use fulgurite_benches::{peak_resident_mib, processor, wrong};
use fulgurite_models::batches::Batch;
use fulgurite_models::checkpoint::OptimizerSettings;
use fulgurite_models::config::GptConfig;
use fulgurite_models::step::{BatchTensors, StepScalars, TrainState, train_step};
use fulgurite_models::train::{batch_arrays, initial_parameters, step_scalars, zeros};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::program::SymbolTime;
use fulgurite_runtime::{Array, Tensor, jit};

fn main() -> fulgurite_runtime::Result<()> {
    let drawing = Drawing::asked(&[("step, ms", &["ms"]), ("memory, MiB", &["peak_mib"])])?;
    let profiled = std::env::args().skip(1).any(|argument| argument == "profile");
    if profiled && drawing.is_some() {
        return Err(wrong("--plot", "is given with 'profile', which measures no steps to draw"));
    }
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let threads = arguments.next().unwrap_or(2);
    let steps = arguments.next().unwrap_or(20);
    // The pool is made once; a second call cannot happen here.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    let config = GptConfig { vocabulary: 50_257, context: 64, layers: 4, heads: 4, channels: 128, dropout: 0.0 };
    let (rows, context) = (8, 64);
    // The peer decays everything and does not clip.
    let optimizer = OptimizerSettings { clip: None, beta2: 0.999, weight_decay: 0.01, ..OptimizerSettings::default() };
    let step = jit(|(state, batch, scalars): (TrainState<Tensor>, BatchTensors<Tensor>, StepScalars<Tensor>)| {
        train_step(&config, &optimizer, state, batch, scalars)
    })
    .named("train_step")
    .arguments(["state", "batch", "scalars"])
    .results(["state", "loss", "grad_norm"])
    .donate("state")
    .options(Options { verify: false, ..Options::default() });
    let params = initial_parameters(&config, 42)?;
    let zeros = || zeros(&config, fulgurite_runtime::DType::F32, fulgurite_runtime::Device::CPU);
    let (exp_avg, exp_avg_sq) = (zeros()?, zeros()?);
    let mut state = TrainState { params, exp_avg, exp_avg_sq };
    let token = |i: usize| (i * 7919 % 50_257) as i64;
    let batch = Batch {
        inputs: (0..rows * context).map(token).collect(),
        targets: (1..=rows * context).map(token).collect(),
        rows,
        context,
    };
    let mut times = Vec::new();
    let mut loss = 0.0;
    for number in 1..=steps as u64 + 3 {
        let (batch, scalars) = (batch_arrays(&batch)?, step_scalars(1e-3, number, 42)?);
        let start = std::time::Instant::now();
        let (next, value, _norm) = step.call((state, batch, scalars))?;
        let elapsed = start.elapsed();
        state = next;
        loss = value.item()?;
        if number > 3 {
            times.push(elapsed.as_secs_f64() * 1e3);
        }
    }
    if profiled {
        let compiled = step.compile(&(state.clone(), batch_arrays(&batch)?, step_scalars(1e-3, 1, 42)?))?;
        let mut inputs: Vec<Array> = Vec::new();
        fulgurite_runtime::tree::Tree::visit(
            &(state, batch_arrays(&batch)?, step_scalars(1e-3, 1, 42)?),
            "",
            &mut |_, array| {
                inputs.push(array.to_contiguous().unwrap_or_else(|_| array.clone()));
            },
        );
        let (_, mut spent) = compiled.program().run_timed(inputs)?;
        spent.sort_by_key(|symbol| std::cmp::Reverse(symbol.time));
        let block = &compiled.program().trace().block;
        for SymbolTime { symbol, time, .. } in spent.iter().take(40) {
            let line = fulgurite_runtime::trace::print_symbol(block, &block.symbols[*symbol]);
            eprintln!("{:9.3} ms  {}", time.as_secs_f64() * 1e3, line.chars().take(220).collect::<String>());
        }
        return Ok(());
    }
    times.sort_by(f64::total_cmp);
    let line = serde_json::json!({
            "who": "fulgurite", "threads": threads, "ms": (times[times.len() / 2] * 100.0).round() / 100.0,
            "loss": loss, "peak_mib": peak_resident_mib().map(f64::round), "compiles": step.compiles(), "processor": processor(),
    });
    println!("{line}");
    let own = [(format!("fulgurite, {threads} threads"), line)];
    let heading = "GPT-2 L4 H4 C128 T64 B8 V50257, f32, on the host";
    drawing.map_or(Ok(()), |drawing| drawing.draw(heading, &own))
}
