//! GPT-2 in mixed precision: the stage that makes it so, what follows from it, and the step for GPUs.

use fulgurite_models::config::GptConfig;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::{loss_trace, train_step_stages, train_step_trace};
use fulgurite_runtime::compile::{Options, Stage, compile};
use fulgurite_runtime::kernels::cuda::{Compilation, nvrtc};
use fulgurite_runtime::trace::{BoundSymbol, Trace, parse};
use fulgurite_runtime::transforms::autocast::autocast;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType};

const CONFIG: GptConfig =
    GptConfig { vocabulary: 61, context: 8, layers: 2, heads: 2, channels: 16, ..GptConfig::GPT2 };

/// With this variable set to 1 a machine without NVRTC fails.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

fn in_bf16() -> Options {
    Options { autocast: Some(DType::BF16), verify: true, ..Options::default() }
}

fn step() -> Trace {
    train_step_trace(&CONFIG, &OptimizerSettings::default(), 2, 8).unwrap()
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> &'a Trace {
    &stages.iter().find(|stage| stage.name == name).unwrap_or_else(|| panic!("there is no stage {name}")).trace
}

fn results(trace: Trace) -> Vec<Vec<u8>> {
    let mut random = fulgurite_runtime::testing::samples::Random::new(7);
    let inputs: Vec<Array> = trace
        .block
        .parameters
        .iter()
        .map(|id| {
            let meta = trace.block.meta(*id);
            let mut value = || match meta.dtype() {
                DType::I64 => (random.next() % 50) as f64,
                _ => 0.1 * random.unit() + 0.01,
            };
            let values: Vec<f64> = (0..meta.len()).map(|_| value()).collect();
            Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
        })
        .collect();
    let (program, _) = compile(trace, &Options { verify: true, ..Options::default() }).unwrap();
    program.run(inputs).unwrap().iter().map(|array| array.to_bytes().unwrap()).collect()
}

#[test]
fn snapshot_of_two_layers() {
    let mixed = autocast(&loss_trace(&CONFIG, DType::F32, [2, 8]).unwrap(), DType::BF16).unwrap();
    insta::assert_snapshot!("gpt2_loss_autocast", mixed.to_string());
}

#[test]
fn every_stage_from_autocast_on_parses_verifies_and_runs_to_the_same_bits() {
    let stages = train_step_stages(&CONFIG, &OptimizerSettings::default(), 2, 8, &in_bf16()).unwrap();
    let names: Vec<&str> = stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(names[..4], ["acquire", "rewrite", "autocast", "autodiff"]);
    let expected = results(stage(&stages, "autocast").clone());
    assert_ne!(expected, results(stages[0].trace.clone()), "f32 gives other bits");
    for stage in &stages[2..] {
        let parsed = parse(&stage.trace.to_string()).unwrap_or_else(|error| panic!("{}: {error}", stage.name));
        assert_eq!(parsed, stage.trace, "stage {} parses back to itself", stage.name);
        parsed.verify().unwrap_or_else(|error| panic!("{}: {error}", stage.name));
        assert_eq!(results(parsed), expected, "stage {} computes the same bits", stage.name);
    }
    let again = autocast(stage(&stages, "autocast"), DType::BF16).unwrap();
    assert_eq!(again.block, stage(&stages, "autocast").block, "once more changes nothing");
}

#[test]
fn a_step_keeps_f32_weights_and_converts_each_once() {
    let stages = train_step_stages(&CONFIG, &OptimizerSettings::default(), 2, 8, &in_bf16()).unwrap();
    let trace = stage(&stages, "cse");
    let block = &trace.block;
    let converted = |name: &str| {
        let reads = |line: &&fulgurite_runtime::trace::BoundSymbol| {
            line.name() == "prims::convert_element_type"
                && line.operands().all(|id| &*block.value(id).name == name)
                && block.meta(line.results[0]).dtype() == DType::BF16
        };
        block.symbols.iter().filter(reads).count()
    };
    for parameter in CONFIG.parameters() {
        // Normalizations and positions are not products.
        let product = ["attn", "mlp", "wte"].iter().any(|part| parameter.name.contains(part));
        let name = format!("state.params.{}", parameter.name);
        assert_eq!(converted(&name), usize::from(product), "{name} in\n{trace}");
    }
    for (input, id) in trace.inputs.iter().zip(&block.parameters).filter(|(input, _)| input.donated) {
        assert_eq!(block.meta(*id).dtype(), DType::F32, "{input:?}");
    }
    assert!(trace.outputs.iter().zip(&block.results).all(|(_, id)| block.meta(*id).dtype() == DType::F32));
    let low = |line: &&fulgurite_runtime::trace::BoundSymbol| {
        ["linear", "prims::matmul"].contains(&line.name())
            && line.operands().all(|id| block.meta(id).dtype() == DType::BF16)
    };
    let products = |line: &&fulgurite_runtime::trace::BoundSymbol| ["linear", "prims::matmul"].contains(&line.name());
    assert_eq!(block.symbols.iter().filter(products).count(), block.symbols.iter().filter(low).count(), "{trace}");
}

/// The step for a GPU by these executors; none is needed to compile it.
fn for_cuda(target: &str, executors: Option<&[&str]>) -> (fulgurite_runtime::program::Program, Vec<Stage>) {
    let trace = retarget(&step(), &target.parse().unwrap());
    let mut options = in_bf16();
    if let Some(names) = executors {
        options = options.with_executors(names).unwrap();
    }
    compile(trace, &options).unwrap()
}

const LLMC: [&str; 5] = ["llmc", "optim", "cublaslt", "fusion", "cuda"];

#[test]
fn products_are_taken_by_cublaslt_in_bf16() {
    for executors in [None, Some(&LLMC[..])] {
        let (_, stages) = for_cuda("cuda:sm_90a", executors);
        let claimed = &stage(&stages, "claim").block;
        let mut products = 0;
        // Each operator of the library's own stands for one product and what follows it.
        let is_product = |name: &str| ["linear", "prims::matmul"].contains(&name) || name.starts_with("cublaslt::");
        for line in claimed.symbols.iter().filter(|line| is_product(line.name())) {
            assert_eq!(line.executor, Some("cublaslt"), "{}", fulgurite_runtime::trace::print_symbol(claimed, line));
            let operand = line.operands().next().expect("a product has operands");
            assert_eq!(claimed.meta(operand).dtype(), DType::BF16);
            products += 1;
        }
        // Of each layer four projections and two products of attention, and the logits; twice as many backward. By
        // default attention is one kernel, and one backward.
        let flash = |name: &str| claimed.symbols.iter().filter(|line| line.name() == name).count();
        let of_attention = if executors.is_none() { 0 } else { 2 };
        assert_eq!(products, 3 * ((4 + of_attention) * CONFIG.layers + 1));
        let kernels = if executors.is_none() { CONFIG.layers } else { 0 };
        assert_eq!([flash("flash::attention"), flash("flash::attention_backward")], [kernels; 2]);
    }
}

#[test]
fn the_kernels_of_llmc_take_what_is_bf16_and_what_is_f32() {
    let (_, stages) = for_cuda("cuda:sm_90a", Some(&LLMC));
    let claimed = &stage(&stages, "claim").block;
    let dtypes = |name: &str| -> Vec<DType> {
        let lines = claimed.symbols.iter().filter(|line| line.name() == name);
        lines.map(|line| claimed.meta(line.operands().next().unwrap()).dtype()).collect()
    };
    let layers = CONFIG.layers;
    for (name, count, dtype) in [
        ("llmc::permute", layers, DType::BF16),
        ("llmc::unpermute", layers, DType::BF16),
        ("llmc::gelu", layers, DType::BF16),
        ("llmc::gelu_backward", layers, DType::BF16),
        ("llmc::softmax", layers, DType::F32),
        ("llmc::layernorm", 2 * layers + 1, DType::F32),
        ("llmc::layernorm_backward", 2 * layers + 1, DType::F32),
        ("llmc::crossentropy", 1, DType::F32),
    ] {
        assert_eq!(dtypes(name), vec![dtype; count], "{name}");
    }
}

/// Gradients of products are bf16; nothing but the optimizer's kernel reads them as they are.
#[test]
fn gradients_of_16_bits_are_widened_by_the_update() {
    let settings = OptimizerSettings { clip: None, ..OptimizerSettings::default() };
    let step = train_step_trace(&CONFIG, &settings, 2, 8).unwrap();
    let (_, stages) = compile(retarget(&step, &"cuda:sm_90a".parse().unwrap()), &in_bf16()).unwrap();
    let fused = &stage(&stages, "fuse").block;
    let is_update = |line: &&BoundSymbol| line.executor == Some("optim");
    let updates: Vec<_> = fused.symbols.iter().filter(is_update).collect();
    assert_eq!(updates.len(), 1);
    let body = updates[0].body.as_ref().unwrap();
    let widened = body.symbols.iter().filter(|line| line.name() == "prims::convert_element_type").count();
    // Of each layer the weights and biases of four projections.
    assert_eq!(widened, 8 * CONFIG.layers, "{}", stage(&stages, "fuse"));
    let read: Vec<_> = updates[0].operands().collect();
    let alone = fused
        .symbols
        .iter()
        .filter(|line| line.name() == "prims::convert_element_type" && line.results.iter().all(|id| read.contains(id)));
    assert_eq!(alone.count(), 0, "{}", stage(&stages, "fuse"));
}

/// From 1024 rows on the sums of biases' gradients are computed by the regions that give the gradients, and so is the
/// slope of GELU. Only what attention gives is read once more.
#[test]
fn sums_of_many_rows_are_not_computed_by_products() {
    let config = GptConfig { context: 512, channels: 256, heads: 4, ..CONFIG };
    let step = train_step_trace(&config, &OptimizerSettings::default(), 2, 512).unwrap();
    let (_, stages) = compile(retarget(&step, &"cuda:sm_90a".parse().unwrap()), &in_bf16()).unwrap();
    let fused = &stage(&stages, "fuse").block;
    let named = |wanted: &str| fused.symbols.iter().filter(|line| line.name() == wanted).count();
    for product in ["cublaslt::weight_gradients", "cublaslt::matmul_gelu_backward"] {
        assert_eq!(named(product), 0, "{}", stage(&stages, "fuse"));
    }
    let apart = fused.symbols.iter().filter(|line| {
        line.name() == "prims::sum" && line.operands().next().is_some_and(|id| fused.meta(id).dtype() == DType::BF16)
    });
    assert_eq!(apart.count(), config.layers, "{}", stage(&stages, "fuse"));
    // With fewer rows the products do, where sums are not batched.
    let step = train_step_trace(&config, &OptimizerSettings::default(), 1, 512).unwrap();
    let options = Options { batch: false, ..in_bf16() };
    let (_, stages) = compile(retarget(&step, &"cuda:sm_90a".parse().unwrap()), &options).unwrap();
    let fused = &stage(&stages, "fuse").block;
    let by_product = fused.symbols.iter().filter(|line| line.name() == "cublaslt::weight_gradients").count();
    assert_eq!(by_product, 4 * config.layers, "{}", stage(&stages, "fuse"));
}

/// The loss reads logits of bf16: wide ones, the largest tensor there would be, are not written.
#[test]
fn logits_are_not_written_again_in_f32() {
    let (_, stages) = for_cuda("cuda:sm_90a", None);
    let fused = &stage(&stages, "fuse").block;
    let wide = |line: &&BoundSymbol| {
        let results = line.results.iter().map(|id| fused.meta(*id));
        line.executor != Some("view")
            && results.clone().any(|meta| meta.dtype() == DType::F32 && meta.shape() == [2 * 8, CONFIG.vocabulary])
    };
    let written: Vec<_> = fused
        .symbols
        .iter()
        .filter(wide)
        .filter(|line| line.name() != "prims::broadcast_in_dim")
        .map(|line| fulgurite_runtime::trace::print_symbol(fused, line))
        .collect();
    assert!(written.is_empty(), "{written:?}");
}

/// What is widened for a gather alone is not widened as a whole.
#[test]
fn only_what_a_gather_takes_is_widened() {
    use fulgurite_runtime::jit::{Names, trace};
    use fulgurite_runtime::{Device, Target, TensorMeta};
    let device = Device::new("cuda", 0);
    let metas = [
        TensorMeta::new([4, 100], DType::BF16, device),
        TensorMeta::new([4, 1], DType::I64, device),
        TensorMeta::new([4, 200], DType::I64, device),
    ];
    let widths = |f: &dyn Fn(
        fulgurite_runtime::Tensor,
        fulgurite_runtime::Tensor,
        fulgurite_runtime::Tensor,
    ) -> fulgurite_runtime::Tensor|
     -> Vec<usize> {
        let target: Target = "cuda:sm_90a".parse().unwrap();
        let (traced, _) = trace("few", target, &Names::default(), metas.to_vec(), |x| f(x[0], x[1], x[2])).unwrap();
        let (_, stages) = compile(traced, &Options { verify: true, ..Options::default() }).unwrap();
        let fused = &stage(&stages, "fuse").block;
        let converts = fused.symbols.iter().filter(|line| line.name() == "prims::convert_element_type");
        converts.map(|line| fused.meta(line.results[0]).shape()[1]).collect()
    };
    let wide = |x| fulgurite_ops::prims::convert_element_type(x, DType::F32);
    assert_eq!(widths(&|x, few, _| fulgurite_ops::prelude::gather(wide(x), 1, few)), [1]);
    // More is taken than there is: it is widened before.
    assert_eq!(widths(&|x, _, many| fulgurite_ops::prelude::gather(wide(x), 1, many)), [100]);
}

#[test]
fn sources_that_mix_bf16_and_f32_compile() {
    if let Err(error) = nvrtc::version() {
        assert!(std::env::var(REQUIRE_NVRTC).map_or(true, |value| value != "1"), "{error}");
        println!("skipped: {error}");
        return;
    }
    for architecture in ["sm_80", "sm_90a"] {
        for executors in [None, Some(&LLMC[..])] {
            let (program, _) = for_cuda(&format!("cuda:{architecture}"), executors);
            let sources = program.sources();
            let mixed = sources.iter().filter(|source| source.text.contains("bf16") && source.text.contains("float"));
            assert!(mixed.count() > 4, "{} sources", sources.len());
            for source in sources {
                let (name, text, options) = (&*source.name, &*source.text, &source.options[..]);
                let cubin = nvrtc::compile(&Compilation { name, source: text, architecture, options })
                    .unwrap_or_else(|error| panic!("{name} for {architecture}: {error}\n{text}"));
                let spilling: Vec<_> = cubin.kernels().iter().filter(|kernel| kernel.uses_local_memory()).collect();
                assert!(spilling.is_empty(), "{name} for {architecture} uses local memory: {spilling:?}\n{text}");
            }
        }
    }
}
