//! What the backward pass computes again: the bits are those of values that were kept, and the memory is less.

use fulgurite_executors as _;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::trace::print::{PrintOptions, print};
use fulgurite_runtime::{Array, DType, Error, Tensor, jit};

type Inputs<T> = (T, T, T, T, T);

/// Normalized, projected, activated and projected back, three times.
fn loss((x, scale, shift, up, down): &Inputs<Tensor>) -> Tensor {
    let mut x = *x;
    for layer in 0..3 {
        x = scope(&format!("h.{layer}"), || {
            let normal = layer_norm::with(x, [x.size(-1)]).weight(*scale).bias(*shift).call();
            let hidden = gelu::with(linear(normal, *up)).approximate(Approximate::Tanh).call();
            x + linear(hidden, *down)
        });
    }
    (x * x).sum()
}

fn step(inputs: Inputs<Tensor>) -> (Tensor, Inputs<Tensor>) {
    value_and_grad(inputs, loss)
}

fn inputs() -> Result<Inputs<Array>, Error> {
    let numbers = |shape: [usize; 2], step: f32| {
        let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| ((i as f32) * step).sin() * 0.3).collect();
        Array::new(shape, &values)
    };
    let row = |value: f32| Array::new([16], &[value; 16]);
    Ok((numbers([40, 16], 0.7)?, row(0.9)?, row(0.1)?, numbers([64, 16], 1.3)?, numbers([16, 64], 2.1)?))
}

fn with(recompute: Option<u64>) -> Options {
    Options { recompute, verify: true, ..Options::default() }
}

/// What is asked of a compiled step.
struct Compiled {
    transient: u64,
    recomputed: Option<fulgurite_runtime::trace::Trace>,
}

fn compiled(recompute: Option<u64>, names: &[&str]) -> Result<Compiled, Error> {
    let compiled = jit(step).options(with(recompute).with_executors(names)?).compile(&inputs()?)?;
    Ok(Compiled { transient: compiled.program().memory().transient, recomputed: compiled.stage("recompute").cloned() })
}

#[test]
fn the_bits_are_those_of_values_that_were_kept() -> Result<(), Error> {
    for executors in [&["cpu", "reference"][..], &["reference"]] {
        let run = |recompute| -> Result<Vec<Vec<u8>>, Error> {
            let options = with(recompute).with_executors(executors)?;
            let (loss, gradients) = jit(step).options(options).call(inputs()?)?;
            let (x, scale, shift, up, down) = gradients;
            [loss, x, scale, shift, up, down].iter().map(Array::to_bytes).collect()
        };
        assert_eq!(run(None)?, run(Some(1))?, "{executors:?}");
        assert_eq!(run(None)?, run(Some(2000))?, "{executors:?}");
    }
    Ok(())
}

/// The pass of a line is a fact of its own: a scope of the author's that is called as gradients are changes no stage.
#[test]
fn what_a_scope_is_called_changes_nothing() -> Result<(), Error> {
    let texts = |name: &'static str| -> Result<Vec<String>, Error> {
        let step =
            move |inputs: Inputs<Tensor>| value_and_grad(inputs, move |x: &Inputs<Tensor>| scope(name, || loss(x)));
        let compiled = jit(step).named("step").options(with(Some(2000))).compile(&inputs()?)?;
        Ok(compiled.stages().iter().map(|stage| print(&stage.trace, PrintOptions::FULL)).collect())
    };
    let (plain, grad) = (texts("zzzz")?, texts("grad")?);
    assert!(plain.iter().any(|text| text.contains("grad.again.zzzz.h.1")), "something is computed again");
    for (plain, grad) in plain.iter().zip(&grad) {
        assert_eq!(plain.replace("zzzz", "grad"), *grad);
    }
    assert_eq!(plain.len(), grad.len());
    Ok(())
}

#[test]
fn normalizations_and_activations_are_computed_again_and_products_are_not() -> Result<(), Error> {
    let compiled = compiled(Some(2000), &["reference"])?;
    let again = compiled.recomputed.expect("something is worth it");
    let names: Vec<&str> = again
        .block
        .symbols
        .iter()
        .flat_map(|symbol| &symbol.results)
        .map(|id| &*again.block.value(*id).name)
        .filter(|name| name.starts_with("grad.again."))
        .collect();
    assert!(names.iter().any(|name| name.ends_with("h.1.layer_norm")), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with("h.1.gelu")), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("linear")), "{names:?}");
    // Forward values that were computed again are read by the forward pass alone.
    let kept = &again.block;
    for symbol in &kept.symbols {
        let backward = symbol.results.first().is_some_and(|id| kept.value(*id).name.starts_with("grad."));
        for id in symbol.operands().filter(|_| backward) {
            let name = &kept.value(id).name;
            assert!(!name.ends_with(".gelu") || name.starts_with("grad."), "{name} is kept");
        }
    }
    Ok(())
}

#[test]
fn memory_is_less_and_nothing_changes_where_nothing_is_large() -> Result<(), Error> {
    let executors = ["cpu", "reference"];
    let transient = |recompute| -> Result<u64, Error> { Ok(compiled(recompute, &executors)?.transient) };
    let (kept, again) = (transient(None)?, transient(Some(2000))?);
    assert!(again < kept, "{again} and {kept} bytes");
    let small = compiled(Some(1 << 30), &executors)?;
    assert!(small.recomputed.is_none());
    assert_eq!(small.transient, kept);
    Ok(())
}

/// `sum(amax(x + b, dim))` and `sum(amax(x * b, dim))`: the gradient of a maximum looks for the elements that equal it,
/// so that a value that is computed again must have every bit of the first time.
#[test]
fn a_maximum_is_found_again_among_values_of_16_bits() -> Result<(), Error> {
    let array = |shape: &[usize], dtype, step: f64| {
        let count = shape.iter().product::<usize>();
        let values: Vec<f64> = (0..count).map(|i| (i as f64 * step).sin() * 3.0 + 0.01 * (i % 97) as f64).collect();
        Array::from_f64(shape, dtype, &values)
    };
    let of_sum = |(x, b): (Tensor, Tensor)| {
        value_and_grad((x, b), |(x, b): &(Tensor, Tensor)| amax::with(*x + *b).dim([1]).call().sum())
    };
    let of_product = |(x, b): (Tensor, Tensor)| {
        value_and_grad((x, b), |(x, b): &(Tensor, Tensor)| amax::with(*x * *b).dim([-1]).call().sum())
    };
    type Loss = fn((Tensor, Tensor)) -> (Tensor, (Tensor, Tensor));
    for (loss, shape) in [(of_sum as Loss, &[8, 512, 1024][..]), (of_product as Loss, &[2048, 2048])] {
        for dtype in [DType::BF16, DType::F16] {
            let inputs = (array(shape, dtype, 0.7)?, array(shape, dtype, 1.3)?);
            let run = |options: Options| -> Result<[Array; 3], Error> {
                let (loss, (x, b)) = jit(loss).options(options).call(inputs.clone())?;
                Ok([loss, x, b])
            };
            let kept = run(with(None))?;
            let again = run(Options::default())?;
            let unfused = run(Options { fuse: false, ..with(None) })?;
            for (i, array) in again.iter().enumerate() {
                let not_numbers = array.to_f64()?.iter().filter(|value| value.is_nan()).count();
                assert_eq!(not_numbers, 0, "NaN in result {i} of {shape:?} in {dtype}");
                assert_eq!(array.to_bytes()?, kept[i].to_bytes()?, "result {i} of {shape:?} in {dtype}, kept");
                assert_eq!(array.to_bytes()?, unfused[i].to_bytes()?, "result {i} of {shape:?} in {dtype}, unfused");
            }
        }
    }
    Ok(())
}
