//! Decoders whose layers have weights of 8 and 4 bits: close to the model that they are made of, equal to the model of
//! the numbers that the integers stand for, and run by as many kernels.

use fulgurite_models::Parameters;
use fulgurite_models::config::GptConfig;
use fulgurite_models::decode::by_decode;
use fulgurite_models::decoder::DecoderConfig;
use fulgurite_models::dropout::Dropout;
use fulgurite_models::model::Model;
use fulgurite_models::quantized::{Integers, Quantization};
use fulgurite_models::traces::quantized_decode_trace;
use fulgurite_models::train::initial_parameters;
use fulgurite_models::{Decoding, Weights};
use fulgurite_ops::nn::dequantize_weight;
use fulgurite_runtime::compile::{Options, stages};
use fulgurite_runtime::executor::VIEW;
use fulgurite_runtime::trace::print::{PrintOptions, print};
use fulgurite_runtime::trace::{BoundSymbol, Callee};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::tree::Tree;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, jit};

/// A small decoder of two blocks with shared heads.
fn small(fields: &[&str]) -> DecoderConfig {
    let mut config = DecoderConfig::named("nano", 61).unwrap();
    let own = ["n_embd=128", "n_head=4", "n_query_groups=2", "intermediate_size=256"];
    own.iter().chain(fields).for_each(|field| config.set(field).unwrap());
    config.validate().unwrap();
    config
}

fn quantization(blocks: &str, head: Option<&str>) -> Quantization {
    Quantization { blocks: blocks.parse().unwrap(), head: head.map(|head| head.parse().unwrap()) }
}

/// Parameters drawn at random, whose layers do something: deviations of 0.02 would leave logits to the embeddings.
fn drawn(config: &DecoderConfig, dtype: DType) -> Parameters<Array> {
    let params = initial_parameters(config, 5).unwrap();
    params.map(&mut |array| {
        let scaled: Vec<f64> =
            array.to_f64().unwrap().iter().map(|x| if array.shape().len() > 1 { x * 2.0 } else { *x }).collect();
        Array::from_f64(array.shape(), dtype, &scaled).unwrap()
    })
}

fn quantized(
    config: &DecoderConfig,
    params: &Parameters<Array>,
    quantization: Quantization,
    dtype: DType,
) -> Parameters<Array> {
    quantization.build(config, dtype, &mut |own, _| Ok(params.get(&own.name).unwrap().clone())).unwrap()
}

/// Logits of all positions.
fn logits(config: &dyn Model, params: &Parameters<Array>, tokens: &[i64]) -> Vec<f64> {
    let logits = jit(|(params, tokens): (Parameters<Tensor>, Tensor)| {
        config.head(&params, config.hidden(&params, tokens, &Dropout::none()))
    });
    let logits: Array = logits.call((params.clone(), Array::new([1, tokens.len()], tokens).unwrap())).unwrap();
    logits.to_f64().unwrap()
}

/// The root of the mean square of the differences, as a part of that of the numbers.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    let squares = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    squares(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / squares(&mut expected.iter().copied())
}

fn tokens() -> Vec<i64> {
    (0..40).map(|i| (7 * i * i + 3 * i) % 61).collect()
}

#[test]
fn logits_are_close_to_those_of_the_model() {
    let config = small(&[]);
    for dtype in [DType::F32, DType::BF16] {
        let params = drawn(&config, dtype);
        let expected = logits(&config, &params, &tokens());
        let exact = logits(&config, &drawn(&config, DType::F32), &tokens());
        let mut found = Vec::new();
        for (blocks, head) in [
            ("int8", None),
            ("int8:128", Some("int8")),
            ("int4:32", None),
            ("int4", None),
            ("int4:128", None),
            ("int4", Some("int4")),
        ] {
            let params = quantized(&config, &params, quantization(blocks, head), dtype);
            found.push(error(&logits(&config, &params, &tokens()), &expected));
        }
        println!("{dtype}: {found:.4?}; {:.4} from f32", error(&expected, &exact));
        if dtype == DType::F32 {
            for blocks in ["int8", "int8:32", "int8:128", "int4:32", "int4", "int4:128"] {
                let numbers = widened(&config, &quantized(&config, &params, quantization(blocks, None), dtype));
                let of_weight =
                    |params: &Parameters<Array>| params.get("h.1.mlp.proj.weight").unwrap().to_f64().unwrap();
                println!("{blocks}: weights {:.4}", error(&of_weight(&numbers), &of_weight(&params)));
            }
        }
        // Measured in f32: 0.011, 0.014, 0.162, 0.185, 0.216, 0.219.
        let most = [0.02, 0.02, 0.2, 0.22, 0.26, 0.27];
        assert!(found.iter().zip(most).all(|(found, most)| *found < most), "{dtype}: {found:?}");
        // Smaller groups, and more bits, are closer.
        assert!(found[0] < found[2] && found[2] < found[3] && found[3] < found[4], "{dtype}: {found:?}");
    }
}

/// Quantized parameters as numbers again.
fn widened(config: &DecoderConfig, params: &Parameters<Array>) -> Parameters<Array> {
    Parameters::build(&config.parameters(), &mut |own| {
        let weight = params.get(&own.name).unwrap().clone();
        let scales = params.get(&own.name.replace(".weight", ".scales")).cloned();
        let Some(scales) = scales.filter(|_| own.name.ends_with(".weight")) else { return Ok(weight) };
        let bits = if weight.dtype() == DType::I8 { 8 } else { 4 };
        let group_size = own.shape[1] / scales.shape()[1];
        let numbers =
            jit(move |(weight, scales): (Tensor, Tensor)| dequantize_weight(weight, scales, group_size, bits));
        numbers.call((weight, scales))
    })
    .unwrap()
}

#[test]
fn layers_multiply_by_the_numbers_that_integers_stand_for() {
    for fields in
        [&["tie_embeddings=false"][..], &["attn_bias=true", "mlp_class_name=GemmaMLP", "tie_embeddings=false"]]
    {
        let config = small(fields);
        let params = drawn(&config, DType::F32);
        for (blocks, head) in [("int8", None), ("int4:32", Some("int8")), ("int4", None)] {
            let params = quantized(&config, &params, quantization(blocks, head), DType::F32);
            let expected = logits(&config, &widened(&config, &params), &tokens());
            let found = error(&logits(&config, &params, &tokens()), &expected);
            assert!(found < 1e-6, "{blocks}: {found}");
            // Token by token.
            let mut decoding = Decoding::new(&config, params, Options::default(), |logits, _: Tensor| logits);
            decoding.set_kv_cache(1, 64).unwrap();
            let (mut found, tokens) = (Vec::new(), tokens());
            for (start, end) in [(0, 17)].into_iter().chain((17..40).map(|place| (place, place + 1))) {
                let row: Array = decoding.extend(&[&tokens[start..end]], Array::scalar(0.0_f32)).unwrap();
                found.push((end - 1, row.to_f64().unwrap()));
            }
            for (place, row) in found {
                let own = error(&row, &expected[place * 61..][..61]);
                assert!(own < 1e-5, "{blocks}, token {place}: {own}");
            }
        }
    }
}

/// A model that has one matrix for both keeps it as it is to embed tokens.
#[test]
fn tied_embeddings_stay_beside_a_quantized_head() {
    let config = small(&["tie_embeddings=true"]);
    let params = drawn(&config, DType::F32);
    let both = quantized(&config, &params, quantization("int8", Some("int8")), DType::F32);
    assert_eq!(both.get("wte.weight").unwrap().dtype(), DType::F32);
    assert_eq!(both.get("lm_head.weight").unwrap().dtype(), DType::I8);
    let found = error(&logits(&config, &both, &tokens()), &logits(&config, &params, &tokens()));
    assert!(found > 0.0 && found < 0.02, "{found}");
}

#[test]
fn models_that_have_no_such_layers_are_refused() {
    let refused = |model: &dyn Model, blocks: &str| {
        quantization(blocks, None).metas(model, DType::F32).map(drop).unwrap_err().to_string()
    };
    let message = refused(&small(&[]), "int4:256");
    assert!(message.contains("'h.0.attn.qkv.weight' has 128 inputs, expected a multiple of 256"), "{message}");
    let mixture = small(&["mlp_class_name=LLaMAMoE", "n_expert=4", "n_expert_per_token=2"]);
    let message = refused(&mixture, "int4");
    assert!(message.contains("'h.0.mlp.experts.0.fc_1.weight' is read by no quantized layer"), "{message}");
    let message = refused(&GptConfig::GPT2, "int8");
    assert!(message.contains("which only decoders such as Llama read"), "{message}");
}

/// Of the integers alone: a seventh to a half of the bytes.
#[test]
fn bytes_are_those_of_integers_and_scales() {
    let config = small(&["n_embd=512", "n_head=8", "intermediate_size=1024"]);
    let bytes = |quantization: Option<Quantization>| -> usize {
        let of_blocks = |(name, _): &(String, &fulgurite_runtime::TensorMeta)| name.starts_with("h.");
        let metas = match quantization {
            Some(quantization) => quantization.metas(&config, DType::BF16).unwrap(),
            None => Parameters::build(&config.parameters(), &mut |own| {
                Ok::<_, std::convert::Infallible>(fulgurite_runtime::TensorMeta::new(
                    &own.shape,
                    DType::BF16,
                    Device::CPU,
                ))
            })
            .unwrap(),
        };
        metas.leaves().into_iter().filter(of_blocks).map(|(_, meta)| meta.bytes()).sum()
    };
    let whole = bytes(None) as f64;
    for (blocks, share) in [("int8:64", 8.25 / 16.0), ("int4:32", 4.5 / 16.0), ("int4:128", 4.125 / 16.0)] {
        let found = bytes(Some(quantization(blocks, None))) as f64 / whole;
        assert!((found - share).abs() < 0.002, "{blocks}: {found}");
    }
}

/// A token of each sequence, by the executor for that: as many kernels as without integers.
#[test]
fn a_block_is_five_kernels() {
    let fields = ["n_embd=512", "n_head=8", "n_query_groups=2", "intermediate_size=1024", "padded_vocab_size=512"];
    let config = small(&fields);
    let target: Target = "cuda:sm_90a".parse().unwrap();
    for (blocks, head) in [("int4", Some("int8")), ("int8:128", Some("int4"))] {
        let trace = quantized_decode_trace(&config, quantization(blocks, head), (2, 1), 64, DType::BF16).unwrap();
        let options = by_decode(Options { device: Some(Device::new("cuda", 0)), ..Options::default() });
        let trace = stages(retarget(&trace, &target), &options).unwrap().pop().unwrap().trace;
        let own = |symbol: &&BoundSymbol| symbol.executor == Some("decode");
        let found: Vec<_> = trace.block.symbols.iter().filter(own).map(|symbol| symbol.name().to_string()).collect();
        let block = [
            "norm_quantized_product",
            "extend_and_attend",
            "residual_quantized_product",
            "norm_swiglu_quantized_product",
            "residual_quantized_product",
        ];
        let expected: Vec<&str> = block.into_iter().chain(block).chain(["quantized_product"]).collect();
        assert!(
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(name, expected)| name.ends_with(expected)),
            "{found:?}"
        );
        let lines = trace.block.symbols.iter().filter(|symbol| symbol.callee != Callee::Delete);
        let others = lines.filter(|symbol| !matches!(symbol.executor, Some("decode" | VIEW))).count();
        assert!(others <= 8, "{others} lines besides: {}", print(&trace, PrintOptions::default()));
    }
}

#[test]
fn traces_of_a_step_are_as_stored() {
    let config = small(&["n_layer=1"]);
    let quantization = quantization("int4:32", Some("int8"));
    let trace = quantized_decode_trace(&config, quantization, (2, 1), 32, DType::BF16).unwrap();
    insta::assert_snapshot!("llama_decode_int4", print(&trace, PrintOptions::default()));
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let options = by_decode(Options { device: Some(Device::new("cuda", 0)), ..Options::default() });
    let planned = stages(retarget(&trace, &target), &options).unwrap().pop().unwrap().trace;
    insta::assert_snapshot!("llama_decode_int4_cuda_planned", print(&planned, PrintOptions::default()));
}

/// Prompts are multiplied by numbers, which are those of a layer at a time: more blocks take no more memory.
#[test]
fn prompts_have_the_numbers_of_one_layer_at_a_time() {
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let options = by_decode(Options { device: Some(Device::new("cuda", 0)), ..Options::default() });
    let planned = |layers: &str| {
        let config = small(&["n_embd=512", "n_head=8", "intermediate_size=1024", layers]);
        let prompt = quantized_decode_trace(&config, quantization("int4:32", None), (1, 32), 32, DType::BF16).unwrap();
        stages(retarget(&prompt, &target), &options).unwrap().pop().unwrap().trace
    };
    let (few, many) = (planned("n_layer=2"), planned("n_layer=8"));
    let by = |executor: &str| many.block.symbols.iter().filter(|symbol| symbol.executor == Some(executor)).count();
    assert!(by("cublaslt") >= 32, "{}", print(&many, PrintOptions::default()));
    let [few, many] = [&few, &many].map(|trace| trace.arena.unwrap());
    assert!(many < few + (1 << 20), "{few} bytes of two blocks, {many} of eight");
}

/// While weights are read one alone is there as it was: `Weights` and arrays give the same.
#[test]
fn weights_of_files_are_quantized_as_they_are_read() {
    let config = small(&[]);
    let params = drawn(&config, DType::F32);
    let weights = Weights::of(&config, &params).unwrap();
    let chosen = Quantization { blocks: Integers { bits: 4, group_size: 32 }, head: None };
    let of_file = weights.quantized(chosen, DType::F32, Device::CPU).unwrap();
    let expected = quantized(&config, &params, chosen, DType::F32);
    for ((name, found), (_, expected)) in of_file.leaves().into_iter().zip(expected.leaves()) {
        assert_eq!(found.to_bytes().unwrap(), expected.to_bytes().unwrap(), "{name}");
    }
}
