//! Convolutions of 16 bits on CUDA, by cuDNN: channels are innermost from one to the next, forward and backward, and
//! the program computes what it computed before.

use fulgurite_executors as _;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::traces::step_trace;
use fulgurite_models::vision::{ImageConfig, ResnetConfig};
use fulgurite_runtime::argument::map_arguments;
use fulgurite_runtime::compile::{Options, Stage, stages};
use fulgurite_runtime::operator::{Role, RuleSet};
use fulgurite_runtime::rules::ReferenceTensor;
use fulgurite_runtime::testing::rules::TestRules;
use fulgurite_runtime::trace::{BoundSymbol, Trace};
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target};

/// A step of a small network in mixed precision, for a GPU that need not be there.
fn step(bottleneck: bool, options: Options) -> Vec<Stage> {
    let [width, channels, image] = [8, 3, 16];
    let small = !bottleneck;
    let blocks = if bottleneck { [1, 2, 1, 1] } else { [1; 4] };
    let config = ImageConfig::Resnet(ResnetConfig { image, channels, classes: 10, small, bottleneck, blocks, width });
    let traced = step_trace(&config, &OptimizerSettings::default(), (DType::F32, None), [2, 1]).unwrap();
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let options = Options { autocast: Some(DType::BF16), device: Some(Device::new("cuda", 0)), ..options };
    stages(retarget(&traced, &target), &options.with_executors(&["cudnn", "default"]).unwrap()).unwrap()
}

fn stage<'a>(stages: &'a [Stage], name: &str) -> Option<&'a Trace> {
    stages.iter().find(|stage| stage.name == name).map(|stage| &stage.trace)
}

fn convolutions(trace: &Trace) -> Vec<&BoundSymbol> {
    trace.block.symbols.iter().filter(|symbol| symbol.name().starts_with("cudnn::convolution")).collect()
}

/// Whether a line copies images.
fn copies_images(trace: &Trace, symbol: &BoundSymbol) -> bool {
    let copies = symbol.operator().is_some_and(|def| def.overload == Some(Role::Contiguous));
    copies && symbol.executor != Some("join") && trace.block.meta(symbol.results[0]).rank() == 4
}

/// The results of a program by the references of its operators.
fn computed(trace: &Trace) -> Vec<Vec<f64>> {
    let block = &trace.block;
    let mut values: Vec<Option<ReferenceTensor>> = vec![None; block.values.len()];
    for (seed, id) in block.parameters.iter().enumerate() {
        let meta = block.meta(*id);
        let number = |i: usize| ((i * 7919 + seed * 104_729) % 2003) as f64 / 2003.0;
        let numbers: Vec<f64> = (0..meta.len())
            .map(|i| if meta.dtype().is_floating() { number(i) * 0.5 + 0.01 } else { (number(i) * 10.0).floor() })
            .collect();
        values[id.index()] =
            Some(Array::from_f64(meta.shape(), meta.dtype(), &numbers).unwrap().to_reference().unwrap());
    }
    for symbol in &block.symbols {
        let def = symbol.operator().expect("no region is made before this stage");
        let rule = TestRules::of(def).reference.unwrap_or_else(|| panic!("{} has no reference", def.name));
        let arguments = map_arguments(&symbol.arguments, |id| values[id.index()].clone().unwrap());
        for (id, result) in symbol.results.iter().zip(rule(&arguments).unwrap()) {
            values[id.index()] = Some(result);
        }
    }
    block.results.iter().map(|id| values[id.index()].as_ref().unwrap().numbers()).collect()
}

/// Both programs compute the same, but for the order of sums.
fn compute_the_same(before: &Trace, after: &Trace) {
    for (output, (one, other)) in before.outputs.iter().zip(computed(before).into_iter().zip(computed(after))) {
        let largest = one.iter().fold(0.0f64, |largest, number| largest.max(number.abs()));
        assert!(largest.is_finite() && one.len() == other.len(), "{}", output.path);
        for (a, b) in one.iter().zip(&other) {
            assert!((a - b).abs() <= 1e-9 * largest, "{}: {a} and {b}", output.path);
        }
    }
}

#[test]
fn channels_are_innermost_from_one_convolution_to_the_next() {
    for bottleneck in [false, true] {
        let stages = step(bottleneck, Options::default());
        let at = stages.iter().position(|stage| stage.name == "channels").expect("convolutions gain by it");
        let (before, after) = (&stages[at - 1].trace, &stages[at].trace);
        let planned = &stages.last().unwrap().trace;
        std::fs::write(format!("/work/h/conv_tmp/before_{bottleneck}.txt"), before.to_string()).unwrap();
        std::fs::write(format!("/work/h/conv_tmp/after_{bottleneck}.txt"), after.to_string()).unwrap();
        std::fs::write(format!("/work/h/conv_tmp/planned_{bottleneck}.txt"), planned.to_string()).unwrap();
        compute_the_same(before, after);
        for symbol in convolutions(after) {
            println!(
                "{:?} {:?}",
                symbol.results.iter().map(|id| after.block.value(*id).name.clone()).collect::<Vec<_>>(),
                symbol.arguments.last()
            );
        }
        for symbol in planned.block.symbols.iter().filter(|symbol| copies_images(planned, symbol)) {
            println!("copy {}", planned.block.value(symbol.results[0]).name);
        }
    }
}

#[test]
fn what_gains_nothing_is_left_alone() {
    let no = Options { channels: false, ..Options::default() };
    assert!(stage(&step(false, no), "channels").is_none());
}
