//! Sums over all rows are part of the region that computes what is summed, whose matrix is not written. Without a
//! device: what is fused, and that the kernels compile.

use fulgurite_executors as _;
use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::kernels::cuda::{Compilation, nvrtc};
use fulgurite_runtime::trace::{Block, Callee, Trace};
use fulgurite_runtime::tracer::value_and_grad;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{Array, DType, Device, Target, Tensor, TensorMeta};

use crate::device;

/// With this variable set to 1 a machine without NVRTC fails.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

type Function = fn(Vec<Tensor>) -> Vec<Tensor>;

/// The gradients of layer normalization for the cotangent `x[3]`.
fn norm_gradients(x: Vec<Tensor>) -> Vec<Tensor> {
    let width = x[0].shape()[x[0].rank() - 1];
    let cotangent = x[3];
    let (_, (d_input, d_weight, d_bias)) = value_and_grad((x[0], x[1], x[2]), |(input, weight, bias)| {
        let out = layer_norm::with(*input, [width]).weight(*weight).bias(*bias).call();
        (cast(out, DType::F32) * cast(cotangent, DType::F32)).sum()
    });
    vec![d_input, d_weight, d_bias]
}

/// The result once more, rounded, and the gradients for a cotangent `x[3]` with another gradient `x[4]` added: what a
/// block of a transformer computes backward.
fn norm_again(x: Vec<Tensor>) -> Vec<Tensor> {
    let width = x[0].shape()[x[0].rank() - 1];
    let again = layer_norm::with(x[0], [width]).weight(x[1]).bias(x[2]).call();
    let gradients = norm_gradients(x.clone());
    let through = gradients[0] + x[4];
    vec![cast(again, DType::BF16), through, cast(through, DType::BF16), gradients[1], gradients[2]]
}

/// What is stored, its sum, and the sum of an operand.
fn doubled(x: Vec<Tensor>) -> Vec<Tensor> {
    let twice = x[0] * 2.0 + 1.0;
    let over: Vec<i64> = (0..x[0].rank() as i64 - 1).collect();
    vec![twice, sum::with(twice).dim(over.clone()).call(), sum::with(x[0]).dim(over).call()]
}

/// The gradients of batch normalization of channels behind each other, an activation behind it: statistics of columns,
/// and what is made of them and of the elements once more.
fn batch_norm_gradients(x: Vec<Tensor>) -> Vec<Tensor> {
    let cotangent = x[3];
    let (_, (d_input, d_weight, d_bias)) = value_and_grad((x[0], x[1], x[2]), |(input, weight, bias)| {
        let out = batch_norm::with(*input).weight(*weight).bias(*bias).training(true).call().0;
        (cast(relu(out), DType::F32) * cotangent).sum()
    });
    vec![d_input, d_weight, d_bias]
}

/// Statistics twice: of what is normalized by the first, and has an addend that the result is read beside.
fn normalized_twice(x: Vec<Tensor>) -> Vec<Tensor> {
    let once = batch_norm::with(x[0]).weight(x[1]).training(true).call().0;
    let with_addend = relu(once + x[4]);
    vec![batch_norm::with(with_addend).weight(x[2]).training(true).call().0, with_addend]
}

/// A sum in 16 bits of more tensors than it is worth reading twice, normalized in f32: the regions exchange the sum.
fn centred_sum(x: Vec<Tensor>) -> Vec<Tensor> {
    let wide = cast(x[0] + x[3] + x[4], DType::F32);
    let total = sum::with(wide).dim([0]).call();
    vec![cast((wide - total) * 0.5, DType::BF16)]
}

fn inputs_of_norm(shape: &[usize], dtype: DType) -> Vec<TensorMeta> {
    let width = &shape[shape.len() - 1..];
    let of = |shape: &[usize], dtype: DType| TensorMeta::new(shape, dtype, Device::CPU);
    vec![of(shape, dtype), of(width, dtype), of(width, dtype), of(shape, DType::F32)]
}

/// Programs with sums that are worth being fused.
fn programs() -> Vec<(&'static str, Vec<TensorMeta>, Function)> {
    let norm = |shape: &[usize], dtype: DType| inputs_of_norm(shape, dtype);
    let again = |shape: &[usize]| {
        let mut metas = inputs_of_norm(shape, DType::F32);
        metas[3] = TensorMeta::new(shape, DType::BF16, Device::CPU);
        metas.push(TensorMeta::new(shape, DType::F32, Device::CPU));
        metas
    };
    let one = |shape: &[usize], dtype: DType| vec![TensorMeta::new(shape, dtype, Device::CPU)];
    vec![
        ("norm in f32", norm(&[3, 1024, 768], DType::F32), norm_gradients),
        ("norm in bf16", norm(&[2048, 768], DType::BF16), norm_gradients),
        ("norm computed again", again(&[16, 1024, 768]), norm_again),
        ("norm of odd rows", norm(&[1030, 771], DType::F16), norm_gradients),
        ("norm of long rows", norm(&[1024, 4096], DType::BF16), norm_gradients),
        ("elementwise", one(&[2, 600, 256], DType::BF16), doubled),
        ("short rows", one(&[3, 999, 64], DType::BF16), doubled),
        ("short rows of odd elements", one(&[1100, 76], DType::F32), doubled),
        ("rows of half a block", one(&[4000, 1024], DType::F16), doubled),
        ("a square", one(&[1024, 1024], DType::F32), doubled),
        ("the longest rows", one(&[1024, 8192], DType::F32), doubled),
    ]
}

/// Programs whose elements are read once more behind sums of their columns; with the numbers of sums alone and of sums
/// in regions.
fn programs_of_several_passes() -> Vec<(&'static str, Vec<TensorMeta>, Function, [usize; 2])> {
    let of = |shape: [usize; 2], dtype: DType| {
        let mut metas = inputs_of_norm(&shape, dtype);
        metas[1..3].iter_mut().for_each(|meta| *meta = meta.with_dtype(DType::F32));
        metas.push(metas[0].clone());
        metas
    };
    let of_one_type = |shape: [usize; 2]| vec![TensorMeta::new(shape, DType::BF16, Device::CPU); 5];
    vec![
        ("batch_norm in bf16", of([4100, 64], DType::BF16), batch_norm_gradients, [0, 4]),
        ("batch_norm in f16", of([1030, 512], DType::F16), batch_norm_gradients, [0, 4]),
        ("batch_norm of odd rows", of([2048, 321], DType::BF16), batch_norm_gradients, [0, 4]),
        ("batch_norm in f32", of([1500, 128], DType::F32), batch_norm_gradients, [1, 3]),
        ("a sum of several", of_one_type([2050, 128]), centred_sum, [0, 1]),
        ("batch_norm twice", of([3000, 256], DType::BF16), normalized_twice, [0, 4]),
    ]
}

/// A value of each row is stored beside sums of what it scales: threads of a row wait for one another.
fn scaled_rows(x: Vec<Tensor>) -> Vec<Tensor> {
    let [kept, scale] = [relu(x[0]), exp(x[1])];
    let scaled = kept * scale;
    vec![scale, sum::with(scaled).dim([0]).call(), sum::with(kept).dim([0]).call()]
}

/// As [`scaled_rows`], the sums first.
fn rows_behind_sums(x: Vec<Tensor>) -> Vec<Tensor> {
    let twice = x[0] * 2.0;
    let total = sum::with(twice).dim([0]).call();
    let scale = exp(x[1]);
    vec![total, scale, twice * scale, sum::with(x[0]).dim([0]).call()]
}

/// What is read behind a sum of something else is computed where it is read: the sum is left alone.
fn left_alone(x: Vec<Tensor>) -> Vec<Tensor> {
    let (y, total) = (exp(x[0]), sum::with(x[0]).dim([0]).call());
    vec![(y - total) * 2.0]
}

/// Programs whose kernels are as many as may be.
fn other_programs() -> Vec<(&'static str, Vec<TensorMeta>, Function)> {
    let of = |shape: [usize; 2], dtype: DType| {
        vec![TensorMeta::new(shape, dtype, Device::CPU), TensorMeta::new([shape[0], 1], dtype, Device::CPU)]
    };
    vec![
        ("rows scaled", of([2050, 256], DType::F32), scaled_rows),
        ("short rows scaled", of([2050, 64], DType::BF16), scaled_rows),
        ("rows behind sums", of([2051, 64], DType::F32), rows_behind_sums),
        ("longer rows behind sums", of([2051, 512], DType::F16), rows_behind_sums),
        ("a sum left alone", of([2048, 256], DType::F32), left_alone),
    ]
}

/// A sum of its own, of which a thread may have several columns.
fn alone(x: Vec<Tensor>) -> Vec<Tensor> {
    vec![sum::with(x[0]).dim([0]).call()]
}

/// The same of the first columns: rows have gaps, and their number of elements is no multiple of a thread's.
fn with_gaps(x: Vec<Tensor>) -> Vec<Tensor> {
    let [rows, groups, columns] = [0, 1, 2].map(|dim| x[0].shape()[dim]);
    let part = fulgurite_ops::prims::slice(x[0], [0, 0, 0], [rows, groups, columns - 2], [1, 1, 1]);
    vec![sum::with(part).dim([0]).call()]
}

/// Sums that are kernels of their own.
fn sums_alone() -> Vec<(&'static str, Vec<TensorMeta>, Function)> {
    let one = |shape: &[usize], dtype: DType| vec![TensorMeta::new(shape, dtype, Device::CPU)];
    vec![
        ("bf16", one(&[1100, 136], DType::BF16), alone),
        ("bf16 in groups", one(&[1100, 4, 34], DType::BF16), alone),
        ("bf16 with gaps", one(&[1100, 4, 36], DType::BF16), with_gaps),
        ("f16, an odd number", one(&[2050, 131], DType::F16), alone),
        ("f32", one(&[5000, 66], DType::F32), alone),
        ("i32", one(&[1100, 192], DType::I32), alone),
    ]
}

fn program(metas: Vec<TensorMeta>, f: Function) -> Trace {
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    retarget(&trace("f", Target::cpu(), &names, metas, f).unwrap().0, &"cuda:sm_90a".parse().unwrap())
}

fn options() -> Options {
    Options { verify: true, ..Options::default() }.with_executors(&["fusion", "cuda"]).unwrap()
}

/// Sums that are kernels of their own, and those in regions whose results have no rows.
fn sums(block: &Block) -> [usize; 2] {
    let is_sum = |symbol: &&fulgurite_runtime::trace::BoundSymbol| symbol.name() == "prims::sum";
    let columns = |body: &Block| {
        let lines = body.symbols.iter().filter(is_sum);
        lines.filter(|line| body.meta(line.results[0]).rank() == 1 && body.results.contains(&line.results[0])).count()
    };
    let regions = block.symbols.iter().filter(|symbol| matches!(symbol.callee, Callee::Region { .. }));
    let inside = regions.filter_map(|symbol| symbol.body.as_deref()).map(columns).sum();
    [block.symbols.iter().filter(is_sum).count(), inside]
}

#[test]
fn sums_of_columns_are_in_the_region_of_what_they_sum() {
    for (name, metas, f) in programs() {
        let (_, stages) = compile(program(metas, f), &options()).unwrap();
        let planned = &stages.last().unwrap().trace;
        assert_eq!(sums(&planned.block), [0, 2], "{name}:\n{planned}");
    }
}

/// What has more bits than what it is made of is made once more where it is read, and nobody writes it.
#[test]
fn what_is_read_behind_sums_is_computed_again_of_fewer_bytes() {
    for (name, metas, f, expected) in programs_of_several_passes() {
        let input = metas[0].clone();
        let (_, stages) = compile(program(metas, f), &options()).unwrap();
        let planned = &stages.last().unwrap().trace;
        assert_eq!(sums(&planned.block), expected, "{name}:\n{planned}");
        let regions = planned.block.symbols.iter().filter(|symbol| matches!(symbol.callee, Callee::Region { .. }));
        for id in regions.flat_map(|region| &region.results) {
            let meta = planned.block.meta(*id);
            assert!(meta.shape() != input.shape() || meta.dtype() == input.dtype(), "{name}: {meta} in\n{planned}");
        }
    }
}

/// Few rows, short ones, and ones that no thread keeps sums of.
#[test]
fn other_sums_have_kernels_of_their_own() {
    for shape in [[1023, 768], [1024, 255], [1024, 8193]] {
        let (_, stages) = compile(program(inputs_of_norm(&shape, DType::F32), norm_gradients), &options()).unwrap();
        let planned = &stages.last().unwrap().trace;
        let [apart, inside] = sums(&planned.block);
        assert!(apart == 2 && inside == 0, "{shape:?}:\n{planned}");
    }
}

/// Readers of a sum of columns are not in its region.
#[test]
fn what_reads_a_sum_comes_behind_the_region() {
    let normed: Function = |x| {
        let twice = x[0] * 2.0;
        let total = sum::with(twice).dim([0]).call();
        vec![twice, total * 0.5, twice - total]
    };
    let metas = vec![TensorMeta::new([1024, 1024], DType::F32, Device::CPU)];
    let (_, stages) = compile(program(metas, normed), &options()).unwrap();
    let planned = &stages.last().unwrap().trace;
    assert_eq!(sums(&planned.block), [0, 1], "{planned}");
}

#[test]
fn kernels_of_sums_compile() {
    let has_nvrtc = nvrtc::version();
    if let Err(error) = &has_nvrtc {
        assert!(std::env::var(REQUIRE_NVRTC).map_or(true, |value| value != "1"), "{error}");
        println!("compiled by nobody: {error}");
    }
    let several = programs_of_several_passes().into_iter().map(|(name, metas, f, _)| (name, metas, f));
    for (name, metas, f) in programs().into_iter().chain(several).chain(other_programs()).chain(sums_alone()) {
        let (compiled, _) = compile(program(metas, f), &options()).unwrap();
        for source in compiled.sources().into_iter().filter(|_| has_nvrtc.is_ok()) {
            for architecture in ["sm_80", "sm_90a"] {
                let compilation =
                    Compilation { name: &source.name, source: &source.text, architecture, options: &source.options };
                let cubin = nvrtc::compile(&compilation).unwrap_or_else(|error| panic!("{error}\n{}", source.text));
                assert!(cubin.warnings(&compilation).is_empty(), "{:?}", cubin.warnings(&compilation));
                let spills = cubin.kernels().iter().any(|kernel| kernel.uses_local_memory());
                assert!(!spills, "{name}\n{}", source.text);
            }
        }
    }
}

/// Fused and unfused add in other orders: the sums are near each other, and the same in every run.
#[test]
fn sums_in_regions_are_those_of_their_lines() {
    let Some(device) = device::cuda() else { return };
    let several = programs_of_several_passes().into_iter().map(|(name, metas, f, _)| (name, metas, f));
    for (name, metas, f) in programs().into_iter().chain(several).chain(other_programs()) {
        let numbers = || -> Vec<Array> {
            let array = |(seed, meta): (usize, &TensorMeta)| {
                let values: Vec<f64> = (0..meta.len()).map(|i| ((i * 7 + seed) as f64 * 0.37).sin()).collect();
                Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
            };
            metas.iter().enumerate().map(array).collect()
        };
        let run = |fuse: bool| {
            let of = fulgurite_runtime::jit(f).options(Options { fuse, device: Some(device), ..options() });
            of.call(numbers()).unwrap().iter().map(|array| array.to_host().unwrap()).collect::<Vec<_>>()
        };
        let (fused, again, plain) = (run(true), run(true), run(false));
        for (number, ((fused, again), plain)) in fused.iter().zip(&again).zip(&plain).enumerate() {
            assert_eq!(fused.to_bytes().unwrap(), again.to_bytes().unwrap(), "{name}: result {number} of two runs");
            let (found, expected) = (fused.to_f64().unwrap(), plain.to_f64().unwrap());
            // A rounding of the type, and those of additions of a thousand numbers of magnitude one.
            let within = |(x, y): (&f64, &f64)| (x - y).abs() <= 2.0 * plain.dtype().epsilon() * y.abs() + 2e-2;
            let wrong = found.iter().zip(&expected).position(|pair| !within(pair));
            assert!(wrong.is_none(), "{name}: result {number} at {wrong:?}");
        }
    }
}

/// Numbers that f32 adds without rounding: the sum says which were added, whatever the order.
fn whole_numbers(meta: &TensorMeta) -> Array {
    let values: Vec<f64> = (0..meta.len()).map(|i| ((i * 7919) % 127) as f64 - 63.0).collect();
    Array::from_f64(meta.shape(), meta.dtype(), &values).unwrap()
}

#[test]
fn sums_alone_have_every_row_and_column_once() {
    let Some(device) = device::cuda() else { return };
    for (name, metas, f) in sums_alone() {
        let on = |options: Options| {
            let input = vec![whole_numbers(&metas[0])];
            fulgurite_runtime::jit(f).options(options).call(input).unwrap()[0].to_host().unwrap().to_f64().unwrap()
        };
        let found = on(Options { device: Some(device), ..options() });
        assert_eq!(found, on(Options::default()), "{name}");
    }
}

/// The bits of a sum do not depend on gaps between rows.
#[test]
fn sums_alone_have_the_bits_of_other_strides() {
    let Some(device) = device::cuda() else { return };
    let value = |row: usize, column: usize| ((row * 131 + column) as f64 * 0.37).sin();
    let of = |columns: usize, f: Function| {
        let values: Vec<f64> = (0..1100)
            .flat_map(|row| (0..4 * columns).map(move |at| value(row, at / columns * 34 + at % columns % 34)))
            .collect();
        let input = vec![Array::from_f64([1100, 4, columns], DType::BF16, &values).unwrap()];
        let sums = fulgurite_runtime::jit(f).options(Options { device: Some(device), ..options() });
        sums.call(input).unwrap()[0].to_host().unwrap().to_bytes().unwrap()
    };
    assert_eq!(of(34, alone), of(36, with_gaps));
}
