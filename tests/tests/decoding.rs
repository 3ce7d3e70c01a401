//! Decoding with a cache: the plan writes it in place, models without the switches of `llama_parity` follow their own
//! forward pass, and what does not fit is an error.

mod device;

use fulgurite_models::config::GptConfig;
use fulgurite_models::decode::by_decode;
use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::dropout::Dropout;
use fulgurite_models::model::Model;
use fulgurite_models::traces::decode_trace;
use fulgurite_models::train::initial_parameters;
use fulgurite_models::{Decoding, Parameters};
use fulgurite_ops::prelude::index_select;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::executor::VIEW;
use fulgurite_runtime::trace::print::{PrintOptions, print};
use fulgurite_runtime::trace::{BoundSymbol, Callee, Storage, Trace};
use fulgurite_runtime::transforms::donate::donations;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, jit};

/// A small decoder of two blocks with shared heads.
fn small(fields: &[&str]) -> DecoderConfig {
    let mut config = DecoderConfig::named("nano", 61).unwrap();
    fields.iter().for_each(|field| config.set(field).unwrap());
    config.validate().unwrap();
    config
}

/// The planned trace of a step.
fn planned(config: &dyn Model, length: usize, max_seq_length: usize, target: Target, dtype: DType) -> Trace {
    let trace = decode_trace(config, (2, length), max_seq_length, dtype).unwrap();
    stages(retarget(&trace, &target), &Options::default()).unwrap().pop().unwrap().trace
}

#[test]
fn the_plan_writes_the_cache_in_place() {
    let config = small(&["block_size=4096"]);
    let cuda: Target = "cuda:sm_90a".parse().unwrap();
    for (target, dtype) in [(Target::cpu(), DType::F32), (cuda.clone(), DType::F32), (cuda, DType::BF16)] {
        for length in [1, 16] {
            let trace = planned(&config, length, 4096, target.clone(), dtype);
            let donations = donations(&trace);
            assert_eq!(donations.len(), 4, "keys and values of two blocks");
            for donation in &donations {
                assert_eq!(donation.outcome.as_ref().map(String::as_str), Ok(donation.input.as_str()), "{target}");
            }
            // Each array of the cache is written by one line, which writes over the donated input.
            for (id, input) in trace.block.parameters.iter().zip(&trace.inputs).filter(|(_, input)| input.donated) {
                assert!(input.donated);
                let over = |result: &_| trace.block.value(*result).storage == Some(Storage::Shared(*id));
                let writers: Vec<_> =
                    trace.block.symbols.iter().filter(|symbol| symbol.results.iter().any(over)).collect();
                assert_eq!(writers.len(), 1);
                assert_eq!(writers[0].name(), "prims::scatter", "{target}");
            }
            // No copy of any of them but of one layer's values at a time, with zeros for what is not filled: all that
            // is computed in between takes less than two.
            let bytes = trace.block.meta(trace.block.parameters[trace.inputs.iter().position(|i| i.donated).unwrap()]);
            if length == 1 {
                assert!(trace.arena.unwrap() < 2 * bytes.bytes() as u64, "{target}: {:?}", trace.arena);
            }
        }
    }
}

/// A token of each sequence, by the executor for that: norms, rotations, residuals and what is written to the cache are
/// part of five kernels of a block, and the cache is donated to the third.
#[test]
fn a_block_is_five_kernels() {
    let fields = ["n_embd=512", "n_head=8", "n_query_groups=2", "intermediate_size=1024", "padded_vocab_size=512"];
    let config = small(&fields);
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let trace = retarget(&decode_trace(&config, (2, 1), 64, DType::BF16).unwrap(), &target);
    let options = by_decode(Options { device: Some(Device::new("cuda", 0)), ..Options::default() });
    let trace = stages(trace, &options).unwrap().pop().unwrap().trace;
    let names = |executor: &str| -> Vec<String> {
        let own = |symbol: &&BoundSymbol| symbol.executor == Some(executor);
        trace.block.symbols.iter().filter(own).map(|symbol| symbol.name().to_string()).collect()
    };
    let block = ["norm_product", "extend_and_attend", "residual_product", "norm_swiglu_product", "residual_product"];
    let found = names("decode");
    let expected: Vec<&str> = block.into_iter().chain(block).chain(["product"]).collect();
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(|(name, expected)| name.ends_with(expected)),
        "{found:?}"
    );
    for donation in donations(&trace) {
        assert_eq!(donation.outcome.as_ref().map(String::as_str), Ok(donation.input.as_str()));
    }
    // What is computed once for all blocks: angles of the positions, rows of the embedding.
    let lines = trace.block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete);
    let others = lines.filter(|symbol| !matches!(symbol.executor, Some("decode" | VIEW))).count();
    assert!(others <= 8, "{others} lines besides: {}", print(&trace, PrintOptions::default()));
    let cache = trace.block.meta(trace.block.parameters[trace.inputs.iter().position(|i| i.donated).unwrap()]);
    assert!(trace.arena.unwrap() < cache.bytes() as u64, "{:?}", trace.arena);
}

#[test]
fn the_trace_of_a_step_is_as_stored() {
    let trace = planned(&small(&["n_layer=1"]), 1, 32, Target::cpu(), DType::F32);
    insta::assert_snapshot!("llama_decode_planned", print(&trace, PrintOptions::default()));
}

/// Logits of all positions without a cache, row by row.
fn whole(config: &dyn Model, params: &Parameters<Array>, tokens: &[i64]) -> Vec<Vec<f64>> {
    let logits = jit(|(params, tokens): (Parameters<Tensor>, Tensor)| {
        config.head(&params, config.hidden(&params, tokens, &Dropout::none()))
    });
    let logits: Array = logits.call((params.clone(), Array::new([1, tokens.len()], tokens).unwrap())).unwrap();
    logits.to_f64().unwrap().chunks(config.vocabulary()).map(<[f64]>::to_vec).collect()
}

/// The largest distance of a row of logits, as a part of the largest logit.
fn distance(found: &Array, row: usize, expected: &[f64]) -> f64 {
    let found = found.to_host().unwrap().to_f64().unwrap();
    let largest = expected.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let own = &found[row * expected.len()..][..expected.len()];
    own.iter().zip(expected).fold(0.0, |most: f64, (a, b)| most.max((a - b).abs())) / largest
}

/// Decodes three sequences of different lengths in one batch, and compares each step with the whole sequence alone.
fn follows(config: &dyn Model, dtype: DType, device: Device, tolerance: f64) {
    let params = initial_parameters(config, 5).unwrap();
    let params = params.map(&mut |array| Array::from_f64(array.shape(), dtype, &array.to_f64().unwrap()).unwrap());
    let sequences: Vec<Vec<i64>> =
        (0..3).map(|row| (0..20 + row).map(|i| (7 * i * i + 3 * row + i) % 61).collect()).collect();
    let expected: Vec<_> = sequences.iter().map(|tokens| whole(config, &params, tokens)).collect();
    let params = params.map(&mut |array| array.to_device(device).unwrap());
    let options = Options { device: (!device.is_cpu()).then_some(device), ..Options::default() };
    let mut decoding = Decoding::<Vec<Array>, _>::new(config, params, options, |logits, _| logits);
    decoding.set_kv_cache(3, 24).unwrap();
    let mut lengths = [9, 3, 16];
    let prompts: Vec<&[i64]> = sequences.iter().zip(lengths).map(|(tokens, length)| &tokens[..length]).collect();
    let mut logits = decoding.extend(&prompts, vec![]).unwrap();
    for step in 0..4 {
        for (row, length) in lengths.into_iter().enumerate() {
            let off = distance(&logits, row, &expected[row][length - 1]);
            assert!(off <= tolerance, "sequence {row} of {length} tokens in {dtype} is off by {off:.1e}");
        }
        if step < 3 {
            let next: Vec<&[i64]> =
                sequences.iter().zip(lengths).map(|(tokens, length)| &tokens[length..length + 1]).collect();
            logits = decoding.extend(&next, vec![]).unwrap();
            lengths = lengths.map(|length| length + 1);
        }
    }
    assert_eq!(decoding.compiles(), 2);
}

const GPT: GptConfig = GptConfig { vocabulary: 61, context: 32, layers: 2, heads: 2, channels: 16, ..GptConfig::GPT2 };

#[test]
fn sequences_of_a_batch_are_those_that_each_is_alone() {
    follows(&small(&["sliding_window_size=5"]), DType::F32, Device::CPU, 1e-5);
    follows(&GPT, DType::F32, Device::CPU, 1e-5);
    // Logits are rounded to 8 bits, and what leads to them as well: weights of attention, which are added up in
    // another order, may be rounded to the neighbour. Three roundings of 2^-9 of the largest.
    follows(&small(&[]), DType::BF16, Device::CPU, 3.0 / 512.0);
    follows(&GPT, DType::BF16, Device::CPU, 3.0 / 512.0);
}

#[test]
fn sequences_of_a_batch_are_those_that_each_is_alone_on_cuda() {
    let Some(cuda) = device::cuda() else { return };
    // Weights that are large enough for the kernels of few rows.
    let wide = small(&["n_embd=512", "n_head=8", "n_query_groups=2", "intermediate_size=512", "padded_vocab_size=512"]);
    for config in [&small(&["sliding_window_size=5"]) as &dyn Model, &small(&[]), &wide, &GPT] {
        follows(config, DType::F32, cuda, 1e-4);
        // As on the host, beside the host's own roundings.
        follows(config, DType::BF16, cuda, 6.0 / 512.0);
    }
}

#[test]
fn what_does_not_fit_is_an_error_and_changes_nothing() {
    let config = small(&[]);
    let params = initial_parameters(&config, 5).unwrap();
    let mut decoding = Decoding::<Vec<Array>, _>::new(&config, params, Options::default(), |logits, _| logits);
    let message = |result: fulgurite_runtime::Result<Array>| result.unwrap_err().to_string();
    assert!(message(decoding.extend(&[&[1]], vec![])).contains("before `set_kv_cache`"));
    for (batch, length, expected) in [(1, 65, "max_seq_length"), (1, 0, "max_seq_length"), (0, 8, "batch")] {
        let error = decoding.set_kv_cache(batch, length).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("expected 1 to"), "{error}");
    }
    decoding.set_kv_cache(2, 8).unwrap();
    let first = decoding.extend(&[&[1, 2, 3], &[4]], vec![]).unwrap();
    for (tokens, expected) in [
        (&[&[1][..]][..], "are of 1 sequences, the cache is for 2"),
        (&[&[1, 2, 3, 4, 5, 6][..], &[]], "make sequence 0 9 long (3 and 6 more), the cache has room for 8"),
        (&[&[61], &[]], "hold 61 in sequence 0, the model's vocabulary is 61"),
        (&[&[-1], &[]], "hold -1"),
    ] {
        let message = message(decoding.extend(tokens, vec![]));
        assert!(message.contains(expected), "{message}");
    }
    // The sequences stay as they were, and so do the logits after their last tokens.
    let again = decoding.extend(&[&[], &[]], vec![]).unwrap();
    let off = distance(&again, 1, &first.to_f64().unwrap()[61..]);
    assert!(off <= 1e-5, "{off}");
    decoding.set_kv_cache(1, 8).unwrap();
    assert!(message(decoding.extend(&[&[]], vec![])).contains("are none in sequence 0, which is empty"));
    // A full cache has no room for one more.
    decoding.extend(&[&[1, 2, 3, 4, 5, 6, 7, 8]], vec![]).unwrap();
    assert_eq!(decoding.room(0), 0);
    assert!(message(decoding.extend(&[&[1]], vec![])).contains("make sequence 0 9 long (8 and 1 more)"));
}

/// The cache is donated to the program: if that fails, there is none, and the next call says so.
#[test]
fn a_failed_program_takes_the_cache_along() {
    let config = small(&[]);
    let params = initial_parameters(&config, 5).unwrap();
    let choose = |logits, places: Vec<Tensor>| index_select(logits, 1, places[0]);
    let mut decoding = Decoding::<Vec<Array>, _>::new(&config, params, Options::default(), choose);
    let place = |place: i64| vec![Array::new([1], &[place]).unwrap()];
    decoding.set_kv_cache(1, 8).unwrap();
    let first = decoding.extend(&[&[1, 2, 3]], place(7)).unwrap().to_f64().unwrap();
    let error = decoding.extend(&[&[4]], place(61)).unwrap_err().to_string();
    assert!(error.contains("61"), "{error}");
    assert!(decoding.sequences()[0].is_empty());
    let error = decoding.extend(&[&[4]], place(7)).unwrap_err().to_string();
    assert!(error.contains("the cache was lost"), "{error}");
    decoding.set_kv_cache(1, 8).unwrap();
    assert_eq!(decoding.extend(&[&[1, 2, 3]], place(7)).unwrap().to_f64().unwrap(), first);
}
