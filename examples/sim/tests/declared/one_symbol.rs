//! One kernel symbol and one implementation for the host and for the simulated device, which run it in one process.

use std::sync::atomic::{AtomicUsize, Ordering};

use fulgurite::compile::Options;
use fulgurite::kernels::{TensorMut, TensorRef};
use fulgurite::prelude::*;
use fulgurite::testing::directives::Template;
use fulgurite::testing::{Filter, Settings, generated_tests};
use fulgurite::tracer::value_and_grad;
use fulgurite_example_sim::kernels::unary;

/// Kernels for the host.
#[executor(device = "cpu", priority = 5)]
pub mod on_host {}

/// Kernels for the simulated device.
#[executor(device = "sim", priority = 5)]
pub mod on_sim {}

/// Runs of the host's kernel, and of the device's.
static RUNS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// `input · |input|`.
#[operator]
pub mod signed_square {
    fn signed_square(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * fulgurite::ops::prims::abs(input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x * x.abs())
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(-2.0, 2.0));
    }
}

#[operator(
    executor = [on_host, on_sim],
    dtypes(f32),
    no_grad = "signed_square, which is run by it, has the gradient"
)]
pub mod signed_square_kernel {
    fn signed_square_kernel(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        super::on_the_host(input, out)
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::unary(plan, "signed_square", super::on_the_device, input, out);
        Ok(())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| x * x.abs())
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(-2.0, 2.0));
    }
}

fn on_the_host(input: TensorRef<'_>, out: &mut TensorMut<'_>) -> Result<(), Failure> {
    RUNS[0].fetch_add(1, Ordering::Relaxed);
    let (input, out) = (input.contiguous::<f32>("input")?, out.contiguous_mut::<f32>("out")?);
    input.iter().zip(out).for_each(|(x, out)| *out = x * x.abs());
    Ok(())
}

/// The device's kernel for one element; each element counts as a run.
fn on_the_device(x: f64) -> f64 {
    RUNS[1].fetch_add(1, Ordering::Relaxed);
    x * x.abs()
}

#[implementation(of = signed_square, by = [on_host, on_sim])]
mod signed_square_by_both {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "the kernels are written for f32, input is {input}");
        Ok(())
    }

    fn execution(input: Tensor) -> Tensor {
        signed_square_kernel(input)
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (signed_square_kernel(input), move |d_out| Grads { input: d_out * fulgurite::ops::prims::abs(input) * 2.0 })
    }
}

/// The sum, and the gradient by the input.
fn step(input: Tensor) -> (Tensor, Tensor) {
    value_and_grad(input, |input| signed_square(*input).sum())
}

#[test]
fn one_symbol_runs_on_the_host_and_on_the_device() {
    let input = Array::new([2, 3], &[-1.5_f32, -0.5, 0.0, 0.25, 1.0, 2.0]).unwrap();
    let runs = || [0, 1].map(|kernel| RUNS[kernel].load(Ordering::Relaxed));
    for (device, by, own) in [(Device::CPU, "on_host", 0), (Device::new("sim", 0), "on_sim", 1)] {
        let on_device = jit(step).options(Options { device: Some(device), ..Options::default() });
        let claimed = on_device.compile(&input).unwrap().stage("claim").unwrap().to_string();
        // The name is that of the first executor on every device.
        let line = claimed.lines().find(|line| line.contains(" = on_host::signed_square_kernel(")).unwrap_or(&claimed);
        assert!(line.ends_with(&format!(" by {by}")), "{claimed}");
        let before = runs();
        let (sum, gradient) = on_device.call(input.clone()).unwrap();
        assert!(gradient.device() == device && (sum.item().unwrap() - 2.5625).abs() < 1e-6, "{sum:?}");
        assert_eq!(gradient.to_f64().unwrap(), [3.0, 1.0, 0.0, 0.5, 2.0, 4.0]);
        let after = runs();
        assert!(after[own] > before[own], "{by} ran nothing: {before:?}, then {after:?}");
    }
}

/// The generated tests of the symbol and of its implementation run with each executor.
#[test]
fn its_generated_tests_run_on_both() {
    let operators = [signed_square::OPERATOR.name, signed_square_kernel::OPERATOR.name].map(str::to_owned).to_vec();
    for executor in ["on_host", "on_sim"] {
        let templates = vec![Template::Consistency, Template::Bounds, Template::Gradient];
        let executors = vec![executor.to_owned()];
        let filter = Filter { operators: operators.clone(), templates, executors, ..Filter::default() };
        let tests = generated_tests(&filter, &Settings::default());
        for operator in &operators {
            let runs = tests.iter().filter(|test| test.operator == *operator && test.name.contains(executor));
            assert!(runs.into_iter().any(|test| test.template == Template::Consistency), "{operator} by {executor}");
        }
        for test in tests {
            assert!((test.run)().is_ok(), "{}", test.name);
        }
    }
}
