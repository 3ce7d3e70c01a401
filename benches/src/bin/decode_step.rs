//! Decoding with a cache on a CUDA device, as `llama_decode_torch.py` of the peers runs it in PyTorch:
//!
//! ```text
//! decode_step [--model TinyLlama-1.1B] [--batch 1] [--prompt 512] [--cache 2048] [--tokens 256] [--dtype bf16]
//!     [--weights int8|int4[:GROUP] [--head-weights int8|int4[:GROUP]]] [--executors decode,flash,...] [--layers N]
//!     [--profile FILE] [--plot FILE.svg [--against FILE]]
//! ```
//!
//! Weights are random, drawn on the device. Prints one line of JSON: milliseconds of writing the prompts (median), of a
//! token of each sequence (many enqueued one after the other, each of which reads the token before it; and each waited
//! for), the host's time for one, memory predicted and counted; bytes of the weights that a token reads (all but the
//! embedding, of which it takes a row) in a second, and what a kernel copies in a second in this run. `--profile FILE`
//! times one more prompt and one more token symbol by symbol, and writes FILE_prompt.json and FILE_token.json.

use std::time::Instant;

use fulgurite_benches::argument;
use fulgurite_benches::median_of;
use fulgurite_benches::plot::{Drawing, Field};
use fulgurite_benches::step::options;
use fulgurite_benches::weights::{drawn, drawn_quantized};
use fulgurite_models::decode::{by_decode, continued};
use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::model::Model;
use fulgurite_models::quantized::{Integers, Quantization};
use fulgurite_models::{KvCache, Parameters};
use fulgurite_ops::prelude::{argmax, reshape};
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Error, Result, Tensor, jit};

type Arguments<T> = (Parameters<T>, KvCache<T>, T, T, T);

/// Bytes that a kernel which adds 1 to a GiB of bf16, in its place, reads and writes in a second: the median of
/// several.
fn copy_bandwidth(device: Device, state: &DeviceState) -> Result<f64> {
    let options = Options { device: Some(device), ..Options::default() };
    let add = jit(|x: Tensor| x + 1.0).arguments(["x"]).donate("x").options(options);
    let mut x = Array::zeros_on(device, [1 << 29], DType::BF16)?;
    let mut ms = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        // Several, so that what the host does between them is hidden.
        for _ in 0..16 {
            x = add.call(x)?;
        }
        state.synchronize()?;
        ms.push(start.elapsed().as_secs_f64() * 1e3 / 16.0);
    }
    Ok((1u64 << 31) as f64 / (median_of(ms) * 1e-3))
}

fn main() -> Result<()> {
    fulgurite_benches::require_release()?;
    let started = Instant::now();
    fulgurite_benches::log_to_stderr();
    let fields: [Field; 3] = [
        ("a token, ms", &["decode_ms"]),
        ("the prompt, ms", &["prefill_ms"]),
        ("memory, MiB", &["counted_mib", "peak_mib"]),
    ];
    let drawing = Drawing::asked(&fields)?;
    let wrong = |name: &str, message: String| Error::Argument { argument: name.into(), message };
    let number = |name: &str, otherwise: usize| match argument(name) {
        None => Ok(otherwise),
        Some(text) => text.parse::<usize>().map_err(|error| wrong(name, format!("is '{text}': {error}"))),
    };
    let (batch, prompt, length) = (number("--batch", 1)?, number("--prompt", 512)?, number("--cache", 2048)?);
    let steps = number("--tokens", 256)?;
    let size = argument("--model").unwrap_or_else(|| "TinyLlama-1.1B".into());
    let mut config = DecoderConfig::named(&size, 32_000).map_err(|error| wrong("--model", error.to_string()))?;
    config.n_layer = number("--layers", config.n_layer)?;
    let dtype = argument("--dtype").unwrap_or_else(|| "bf16".into());
    let dtype: DType = dtype.parse().map_err(|_| wrong("--dtype", format!("is '{dtype}', expected bf16 or f32")))?;
    let executors = argument("--executors").unwrap_or_default();
    let names: Vec<&str> = executors.split(',').filter(|name| !name.is_empty()).collect();
    // Parameters have the element type themselves: nothing is cast.
    let cuda = Device::new("cuda", 0);
    let options = match &names[..] {
        [] => by_decode(Options { executors: None, ..options(cuda, &[])? }),
        names => options(cuda, names)?,
    };
    let device = options.device.unwrap_or(cuda);
    let state = DeviceState::of(device)?;
    let integers = |name: &str| match argument(name) {
        None => Ok(None),
        Some(text) => text.parse::<Integers>().map(Some).map_err(|error| wrong(name, error)),
    };
    let (weights, head) = (integers("--weights")?, integers("--head-weights")?);
    let params = match weights {
        Some(blocks) => drawn_quantized(&config, Quantization { blocks, head }, dtype, device)?,
        None => drawn(&config, dtype, device)?,
    };
    let step = jit(|(params, cache, tokens, starts, last): Arguments<Tensor>| {
        let (cache, logits) = continued(&config, &params, cache, [tokens, starts, last]);
        let next = reshape(argmax::with(logits).dim(-1).call(), [batch as i64, 1]);
        (cache, next, starts + tokens.size(1) as i64)
    })
    .named("decode")
    .arguments(["params", "cache", "tokens", "starts", "last"])
    .results(["cache", "next", "starts"])
    .donate("cache")
    .options(options);
    let mut cache = KvCache::new((config.cache_sizes(), config.context()), (batch, length), dtype, device)?;
    let tokens: Vec<i64> = (0..batch * prompt).map(|i| ((i * 7919 + 17) % config.padded_vocab_size) as i64).collect();
    let tokens = Array::new([batch, prompt], &tokens)?.to_device(device)?;
    let zeros = Array::zeros_on(device, [batch], DType::I64)?;
    let last = Array::new([batch], &vec![prompt as i64 - 1; batch])?.to_device(device)?;
    let (mut prefills, mut first_s, mut next) = (Vec::new(), 0.0, None);
    for number in 0..8 {
        let start = Instant::now();
        let (back, token, starts) = step.call((params.clone(), cache, tokens.clone(), zeros.clone(), last.clone()))?;
        state.synchronize()?;
        match number {
            0 => first_s = started.elapsed().as_secs_f64(),
            _ => prefills.push(start.elapsed().as_secs_f64() * 1e3),
        }
        (cache, next) = (back, Some((token, starts)));
    }
    let Some((mut token, mut starts)) = next else { return Ok(()) };
    let (mut waited, mut host, mut piped_ms) = (Vec::new(), Vec::new(), 0.0);
    // A few to warm up, then each waited for, then one after the other.
    for (count, waits) in [(8, false), (32, true), (steps, false)] {
        let start = Instant::now();
        for _ in 0..count {
            let called = Instant::now();
            let (back, next, after) = step.call((params.clone(), cache, token, starts, zeros.clone()))?;
            host.push(called.elapsed().as_secs_f64() * 1e6);
            if waits {
                state.synchronize()?;
                waited.push(called.elapsed().as_secs_f64() * 1e3);
            }
            (cache, token, starts) = (back, next, after);
        }
        state.synchronize()?;
        piped_ms = start.elapsed().as_secs_f64() * 1e3 / count.max(1) as f64;
    }
    let embedding = if config.tie_embeddings && head.is_none() { "" } else { "wte.weight" };
    let weight_bytes: usize =
        params.leaves().into_iter().filter(|(name, _)| name != embedding).map(|(_, array)| array.meta().bytes()).sum();
    let arguments = (params, cache, token.clone(), starts, zeros.clone());
    let compiled = step.compile(&arguments)?;
    let counts = compiled.program().counts().unwrap_or_default();
    let read = weight_bytes as f64 / (piped_ms * 1e-3);
    let copied = copy_bandwidth(device, &state)?;
    let round = |x: f64| (x * 1e3).round() / 1e3;
    let line = serde_json::json!({
            "who": "fulgurite", "size": size, "dtype": dtype.to_string(), "executors": executors,
            "weights": weights.map_or(dtype.to_string(), |weights| weights.to_string()),
            "head_weights": head.map_or(dtype.to_string(), |head| head.to_string()), "weight_mib": weight_bytes >> 20,
            "floor_ms": round(weight_bytes as f64 / copied * 1e3), "B": batch,
            "prompt": prompt, "cache": length, "prefill_ms": median_of(prefills),
            "decode_ms": (piped_ms * 1e4).round() / 1e4, "waited_ms": median_of(waited), "host_us": median_of(host),
            "tokens_s": (batch as f64 * 1e3 / piped_ms).round(), "first_s": (first_s * 100.0).round() / 100.0,
            "compiles": step.compiles(), "graphs": counts.graphs, "replays": counts.replays,
            "weights_tb_s": round(read / 1e12), "copy_tb_s": round(copied / 1e12), "of_copy": round(read / copied),
            "commands": counts.commands, "predicted_mib": compiled.program().memory().peak() >> 20,
            "counted_mib": state.context().memory_held().peak >> 20, "token": token.to_host()?.to_vec::<i64>()?[0],
    });
    println!("{line}");
    let heading = format!("{size}, decoding {batch} after {prompt} tokens, {dtype}");
    drawing.map_or(Ok(()), |drawing| drawing.draw(&heading, &[("fulgurite".into(), line)]))?;
    if let Some(file) = argument("--profile") {
        let (params, cache, ..) = arguments.clone();
        drop(arguments);
        let ((cache, token, starts), prompt) = step.profile((params.clone(), cache, tokens, zeros.clone(), last))?;
        let (_, profile) = step.profile((params, cache, token, starts, zeros))?;
        for (name, mut profile) in [("prompt", prompt), ("token", profile)] {
            println!("{name}: {profile}");
            let file = file.replace(".json", &format!("_{name}.json"));
            fulgurite_kernels::durable::write(std::path::Path::new(&file), profile.to_chrome_trace().as_bytes())
                .map_err(|error| Error::File { path: file.clone(), message: error.to_string() })?;
            profile.spans.sort_by_key(|span| std::cmp::Reverse(span.time));
            for span in profile.spans.iter().take(12) {
                let line: String = span.line.chars().take(120).collect();
                println!("{:9.1} us  {line}", span.time.as_secs_f64() * 1e6);
            }
        }
    }
    Ok(())
}
