//! Kernels that begin while the one before them still runs read early only what nothing of the program writes.

use fulgurite_executors as _;
use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::linear;
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::trace::Trace;
use fulgurite_runtime::transforms::retarget::retarget;
use fulgurite_runtime::{DType, Device, Target, Tensor, TensorMeta};

/// `SETTLED` of each product of the program: whether its weight may be read early.
fn settled(mut traced: Trace, donated: &[usize]) -> Vec<bool> {
    donated.iter().for_each(|input| traced.inputs[*input].donated = true);
    let target: Target = "cuda:sm_90a".parse().unwrap();
    let options = Options::default().with_executors(&["decode", "fusion", "cuda"]).unwrap();
    let (program, _) = compile(retarget(&traced, &target), &options).unwrap();
    let products = program.sources().into_iter().filter(|source| source.text.contains("#define SETTLED"));
    products.map(|source| source.text.contains("#define SETTLED 1\n")).collect()
}

fn of(arguments: Vec<TensorMeta>, f: impl Fn(Vec<Tensor>) -> Vec<Tensor>) -> Trace {
    let names = Names { arguments: vec!["x".into()], results: vec!["y".into()] };
    trace("f", Target::cpu(), &names, arguments, f).unwrap().0
}

fn bf16(shape: &[usize]) -> TensorMeta {
    TensorMeta::new(shape, DType::BF16, Device::CPU)
}

#[test]
fn weights_are_read_early_where_nothing_writes_them() {
    let large = || vec![bf16(&[1, 1024]), bf16(&[1024, 1024])];
    assert_eq!(settled(of(large(), |x| vec![linear(x[0], x[1])]), &[]), [true]);
    // A weight that is so small that others of its size are copied to the program's own memory.
    let small = vec![bf16(&[1, 512]), bf16(&[512, 512])];
    assert_eq!(settled(of(small, |x| vec![linear(x[0], x[1])]), &[]), [true]);
    // A weight that the program computes, and one that it updates.
    let computed = of(large(), |x| vec![linear(x[0], x[1] * 2.0)]);
    assert_eq!(settled(computed, &[]), [false]);
    let updated = of(large(), |x| vec![linear(x[0], x[1]), x[1] + 1.0]);
    assert_eq!(settled(updated, &[1]), [false]);
    // A converted weight is computed as well.
    let mixed = vec![bf16(&[1, 1024]), TensorMeta::new([1024, 1024], DType::F32, Device::CPU)];
    assert_eq!(settled(of(mixed, |x| vec![linear(x[0], cast(x[1], DType::BF16))]), &[]), [false]);
}
