//! Checkpoints: the backward pass computes them again, with the bits of the first time and in less memory.

use std::hash::{DefaultHasher, Hash, Hasher};

use fulgurite_executors as _;
use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::train_step_trace;
use fulgurite_models::{ActivationCheckpointing, GptConfig, Model};
use fulgurite_ops::prelude::*;
use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::compile::{Options, compile, stages};
use fulgurite_runtime::testing::samples::Random;
use fulgurite_runtime::trace::print::{PrintOptions, print};
use fulgurite_runtime::trace::{Block, Callee, Pass, Trace, parse};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Error, Target, Tensor, jit};

const ROWS: usize = 2;

/// A model and the length of its sequences.
type Sized = (Box<dyn Model>, usize);

fn gpt2(layers: usize) -> Sized {
    let (context, heads) = (8, 2);
    (
        Box::new(GptConfig { vocabulary: 61, context, layers, heads, channels: 16, dropout: 0.1, ..GptConfig::GPT2 }),
        context,
    )
}

fn llama(set: &[&str]) -> Sized {
    let mut config = DecoderConfig::named("nano", 61).unwrap();
    let small = ["block_size=8", "n_embd=16", "n_head=2", "n_query_groups=1", "intermediate_size=24"];
    small.iter().chain(set).for_each(|field| config.set(field).unwrap());
    config.validate().unwrap();
    (Box::new(config), 8)
}

/// The acquired trace of a training step.
fn step((model, context): &Sized, checkpointing: ActivationCheckpointing) -> Trace {
    let optimizer = OptimizerSettings::default();
    checkpointing.within(|| train_step_trace(&**model, &optimizer, ROWS, *context)).unwrap()
}

fn results(trace: Trace, options: &Options) -> Vec<Vec<u8>> {
    let mut random = Random::new(7);
    let block = &trace.block;
    let inputs = block.parameters.iter().map(|id| {
        let meta = block.meta(*id);
        let value = |random: &mut Random| match meta.dtype() {
            DType::I64 => (random.next() % 50) as f64,
            _ => 0.3 * random.unit() + 0.01,
        };
        let values: Vec<f64> = (0..meta.len()).map(|_| value(&mut random)).collect();
        Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
    });
    let inputs = inputs.collect();
    let (program, _) = compile(trace, options).unwrap();
    program.run(inputs).unwrap().iter().map(|array| array.to_bytes().unwrap()).collect()
}

fn verified(executors: &[&str]) -> Options {
    Options { verify: true, ..Options::default() }.with_executors(executors).unwrap()
}

#[test]
fn a_step_has_the_bits_of_one_that_keeps_everything() {
    let mixture = ["mlp_class_name=LLaMAMoE", "n_expert=3", "n_expert_per_token=2", "n_layer=2"];
    let gemma = ["attention_logit_softcapping=5", "sliding_window_size=3", "scale_embeddings=true", "n_layer=3"];
    for (model, name) in [(gpt2(3), "gpt2"), (llama(&mixture), "mixture"), (llama(&gemma), "gemma")] {
        for executors in [&["cpu", "reference"][..], &["reference"]] {
            for autocast in [None, Some(DType::BF16)] {
                let options = Options { autocast, ..verified(executors) };
                let [kept, again] = [ActivationCheckpointing::None, ActivationCheckpointing::Blocks]
                    .map(|checkpointing| results(step(&model, checkpointing), &options));
                assert_eq!(kept, again, "{name} by {executors:?} with autocast {autocast:?}");
            }
        }
    }
}

/// Whatever a stage is called: what is computed between the first line of a block and its result is not read later.
#[test]
fn the_backward_pass_reads_of_a_block_what_it_computed_again() {
    for model in [gpt2(3), llama(&["n_layer=3"])] {
        let stages = stages(step(&model, ActivationCheckpointing::Blocks), &verified(&["cpu", "reference"])).unwrap();
        let of = |name: &str| &stages.iter().find(|stage| stage.name == name).unwrap().trace;
        let lines = of("acquire").to_string();
        assert!(lines.contains("h.1: f32[2, 8, 16] = checkpoint(["), "{lines}");
        for name in ["autodiff", "cse"] {
            let block = &of(name).block;
            let again = block.symbols.iter().filter(|symbol| symbol.pass == Pass::Recomputed);
            let again: Vec<&str> = again.flat_map(|symbol| &symbol.results).map(|id| &*block.value(*id).name).collect();
            for layer in 0..3 {
                assert!(again.iter().any(|name| name.starts_with(&format!("grad.again.h.{layer}.attn"))), "{again:?}");
            }
            assert!(!again.iter().any(|name| name.contains("ln_f") || name.contains("lm_head")), "{again:?}");
            // What is small may be kept.
            let least = block.symbols.iter().filter(|symbol| symbol.pass == Pass::Recomputed);
            let least = least.flat_map(|symbol| &symbol.results).map(|id| block.meta(*id).bytes()).max().unwrap() / 16;
            let mut inner = vec![false; block.values.len()];
            for symbol in block.symbols.iter().filter(|symbol| symbol.pass == Pass::Forward) {
                for id in &symbol.results {
                    let name = &block.value(*id).name;
                    inner[id.index()] = name.starts_with("h.") && name.split('.').count() > 2;
                }
            }
            for symbol in block.symbols.iter().filter(|symbol| symbol.pass != Pass::Forward) {
                let kept = symbol.operands().find(|id| inner[id.index()] && block.meta(*id).bytes() > least);
                assert!(kept.is_none(), "'{}' is kept after {name}", block.value(kept.unwrap()).name);
            }
        }
        for stage in &stages {
            for form in [PrintOptions::COMPACT, PrintOptions::FULL] {
                assert_eq!(parse(&print(&stage.trace, form)).unwrap(), stage.trace, "{}", stage.name);
            }
        }
    }
}

#[test]
fn memory_is_less_by_more_for_each_layer() {
    let arena = |layers: usize, checkpointing| {
        let model = llama(&[&format!("n_layer={layers}"), "block_size=64", "n_embd=32"]);
        let trace = step(&(model.0, 64), checkpointing);
        let (program, _) = compile(trace, &verified(&["cpu", "reference"])).unwrap();
        program.memory().transient
    };
    let saved = |layers| {
        let [kept, again] = [ActivationCheckpointing::None, ActivationCheckpointing::Blocks].map(|c| arena(layers, c));
        assert!(again < kept, "{again} and {kept} bytes for {layers} layers");
        (kept - again, again)
    };
    let [(two, _), (four, few), (eight, many)] = [saved(2), saved(4), saved(8)];
    assert!(four > two + two / 2 && eight > four + four / 2, "{two}, {four} and {eight} bytes saved");
    // A layer more costs its input, and the gradients of its weights, which wait for the norm of all.
    let (model, _) = llama(&["n_layer=1", "block_size=64", "n_embd=32"]);
    let weights = model.parameters().into_iter().filter(|own| own.name.starts_with("h.")).map(|own| own.elements() * 4);
    let (weights, input) = (weights.sum::<usize>() as u64, (ROWS * 64 * 32 * 4) as u64);
    let layer = (many - few) / 4;
    assert!(layer <= weights + 2 * input, "{layer} bytes a layer, {weights} of weights and {input} of input");
}

fn array(shape: &[usize], step: f64) -> Array {
    let values: Vec<f64> = (0..shape.iter().product()).map(|i| (i as f64 * step).sin()).collect();
    Array::from_f64(shape, DType::F32, &values).unwrap()
}

fn bytes(arrays: &[Array]) -> Vec<Vec<u8>> {
    arrays.iter().map(|array| array.to_bytes().unwrap()).collect()
}

/// Checkpoints in each other, with a result that is an operand, one that comes twice, and one that does not depend on
/// what is differentiated.
#[test]
fn any_tree_of_results_comes_out_of_any_checkpoint() -> Result<(), Error> {
    let scoped = |name: &str, f: &dyn Fn() -> Vec<Tensor>| scope(name, f);
    let again = |name: &str, f: &dyn Fn() -> Vec<Tensor>| checkpoint(name, f);
    type Within<'a> = &'a dyn Fn(&str, &dyn Fn() -> Vec<Tensor>) -> Vec<Tensor>;
    let loss = |within: Within<'_>, w: Tensor, x: Tensor| {
        let outer = within("outer", &|| {
            let inner = within("inner", &|| vec![tanh(w * x), x, exp(x)]);
            let [product, same, free] = inner[..] else { panic!("three") };
            let product = product * free * same;
            vec![product, product, w]
        });
        let unused = within("outer", &|| vec![w * 2.0]);
        (outer[0] + outer[1] * outer[2]).sum() + (unused[0] * 0.0).sum()
    };
    let run = |within: Within<'_>| -> Result<_, Error> {
        let f = jit(|(w, x): (Tensor, Tensor)| value_and_grad(w, |w| loss(within, *w, x)));
        let compiled = f.compile(&(array(&[3, 4], 0.7), array(&[3, 4], 1.1)))?;
        let (loss, gradient): (Array, Array) = f.call((array(&[3, 4], 0.7), array(&[3, 4], 1.1)))?;
        Ok((bytes(&[loss, gradient]), compiled.stages()[0].trace.to_string()))
    };
    let (expected, _) = run(&scoped)?;
    let (found, text) = run(&again)?;
    assert_eq!(found, expected);
    assert!(text.contains("checkpoint(") && text.matches("checkpoint(").count() == 3, "{text}");
    Ok(())
}

/// A sum of three terms has other bits in another order: those of an operand that is read inside twice and outside once
/// come in the order that they have without the checkpoint.
#[test]
fn the_terms_of_a_gradient_come_in_their_order() -> Result<(), Error> {
    let step = |checkpointed: bool| {
        let f = jit(move |(w, x): (Tensor, Tensor)| {
            value_and_grad(w, |w| {
                let inner = || sin(*w * x) * *w;
                let y = if checkpointed { checkpoint("block", inner) } else { scope("block", inner) };
                (y * exp(*w) * 0.3).sum()
            })
        });
        f.call((array(&[500], 0.3), array(&[500], 0.9)))
            .map(|(loss, gradient): (Array, Array)| bytes(&[loss, gradient]))
    };
    assert_eq!(step(true)?, step(false)?);
    Ok(())
}

/// For each result of a block, a number that says how it is computed: two results with the same one are the same
/// symbols of the same executors, on operands that are the same, in the same order.
fn expressions(block: &Block) -> Vec<u64> {
    let mut known: Vec<u64> = vec![0; block.values.len()];
    for (i, id) in block.parameters.iter().enumerate() {
        known[id.index()] = i as u64 + 1;
    }
    for symbol in &block.symbols {
        let mut hasher = DefaultHasher::new();
        symbol.name().hash(&mut hasher);
        format!("{:?}", map_arguments(&symbol.arguments, |id| known[id.index()])).hash(&mut hasher);
        symbol.executor.hash(&mut hasher);
        for (i, id) in symbol.results.iter().enumerate() {
            known[id.index()] = hasher.finish().wrapping_add(i as u64);
        }
    }
    block.results.iter().map(|id| known[id.index()]).collect()
}

/// What a device computes of a program is the same with a checkpoint and without, symbol by symbol and term by term,
/// where nothing makes one call of several: no rewrite, no region, no batch. (A batch of a library's products has other
/// bits than its parts, and there is none in a program with checkpoints.)
#[test]
fn a_device_computes_the_same_symbols_with_a_checkpoint() {
    let mixture = ["mlp_class_name=LLaMAMoE", "n_expert=3", "n_expert_per_token=2", "n_layer=2"];
    let target: Target = "cuda:sm_90a".parse().unwrap();
    for (model, name) in [(gpt2(3), "gpt2"), (llama(&mixture), "mixture")] {
        let made = |checkpointing, batch: bool| {
            let options = Options { fuse: false, batch, rewrites: Some(Vec::new()), ..Options::default() };
            stages(retarget(&step(&model, checkpointing), &target), &options).unwrap()
        };
        let claimed = |checkpointing| {
            let stages = made(checkpointing, false);
            expressions(&stages.iter().find(|stage| stage.name == "claim").unwrap().trace.block)
        };
        let (kept, again) = (claimed(ActivationCheckpointing::None), claimed(ActivationCheckpointing::Blocks));
        assert_eq!(kept, again, "{name}");
        // Without that option they differ: batches are made of the one program alone.
        let batched = |checkpointing| made(checkpointing, true).iter().any(|stage| stage.name == "batch");
        assert!(batched(ActivationCheckpointing::None) && !batched(ActivationCheckpointing::Blocks), "{name}");
    }
}

#[test]
fn two_programs_save_the_operands_of_a_checkpoint() -> Result<(), Error> {
    let f = jit(|(w, x): (Tensor, Tensor)| checkpoint("block", || tanh(tanh(w * x) * x)))
        .arguments(["w", "x"])
        .results(["y"])
        .vjp();
    let arguments = || (array(&[5], 0.3), array(&[5], 0.9));
    let saved: Vec<String> = f.compile(&arguments())?.saved().iter().map(|saved| saved.name.to_string()).collect();
    assert_eq!(saved, ["w", "x"]);
    let (_, pullback) = f.call(arguments())?;
    let gradients = pullback.call([("y", array(&[5], 1.7))])?;
    let plain = jit(|(w, x): (Tensor, Tensor)| tanh(tanh(w * x) * x)).arguments(["w", "x"]).results(["y"]).vjp();
    let (_, pullback) = plain.call(arguments())?;
    let expected = pullback.call([("y", array(&[5], 1.7))])?;
    for name in ["w", "x"] {
        assert_eq!(gradients.of(name)?.to_bytes()?, expected.of(name)?.to_bytes()?);
    }
    Ok(())
}

#[test]
fn without_a_derivative_it_is_a_scope() -> Result<(), Error> {
    let f = jit(|x: Tensor| checkpoint("block", || exp(x) * 2.0));
    let compiled = f.compile(&array(&[4], 0.5))?;
    let text = compiled.stages().last().unwrap().trace.to_string();
    assert!(compiled.stages()[0].trace.to_string().contains("block: f32[4] = checkpoint(["));
    assert!(!text.contains("checkpoint("), "{text}");
    let checkpoints = |trace: &Trace| trace.block.symbols.iter().any(|symbol| symbol.callee == Callee::Checkpoint);
    assert!(checkpoints(&compiled.stages()[0].trace) && !checkpoints(compiled.stage("autodiff").unwrap()));
    let plain: Array = jit(|x: Tensor| exp(x) * 2.0).call(array(&[4], 0.5))?;
    let found: Array = f.call(array(&[4], 0.5))?;
    assert_eq!(found.to_bytes()?, plain.to_bytes()?);
    Ok(())
}

#[test]
fn a_checkpoint_that_fails_names_its_line() {
    let f = jit(|x: Tensor| checkpoint("block", || (x + reshape(x, [5])).sum()));
    let error = f.compile(&array(&[4], 0.5)).map(drop).unwrap_err().to_string();
    assert!(error.contains("reshape") && error.contains("checkpoint.rs"), "{error}");
}

/// The derivative of a derivative: the inner one is expanded first, and differentiated as all lines are.
#[test]
fn higher_derivatives_are_those_without_checkpoints() -> Result<(), Error> {
    let step = |checkpointed: bool| {
        let f = jit(move |(w, x): (Tensor, Tensor)| {
            value_and_grad(w, |w| {
                let (value, slope) = value_and_grad(x, |x| {
                    let inner = || tanh(*w * *x);
                    (if checkpointed { checkpoint("block", inner) } else { inner() }).sum()
                });
                value + (slope * slope).sum()
            })
        });
        f.call((array(&[6], 0.3), array(&[6], 0.9))).map(|(loss, gradient): (Array, Array)| bytes(&[loss, gradient]))
    };
    assert_eq!(step(true)?, step(false)?);
    Ok(())
}
