//! A kind of device that another crate brings: its memory, its streams, and what falls back.

use fulgurite::compile::Options;
use fulgurite::device::{DeviceState, find_kind};
use fulgurite::kernels::launch::{CopyRange, DeviceAddress};
use fulgurite::operator::OperatorKind;
use fulgurite::ops::nn::{dropout, geglu};
use fulgurite::ops::prelude::*;
use fulgurite::registry::operators;
use fulgurite::testing::directives::Template;
use fulgurite::testing::{Filter, Settings, generated_tests};
use fulgurite::tracer::{checkpoint, decomposed, value_and_grad};
use fulgurite::{Array, Device, Tensor, jit};
use fulgurite_example_sim::heap::CAPACITY;
use fulgurite_example_sim::stream::SimStream;

fn sim(ordinal: u32) -> Device {
    Device::new("sim", ordinal)
}

fn numbers(shape: [usize; 2]) -> Array {
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| (i * 7919 % 101) as f32 / 50.0 - 1.0).collect();
    Array::new(shape, &values).unwrap()
}

/// An attention-like function: some of it is run by the device, some by its library, some by the host.
fn function((x, weight): (Tensor, Tensor)) -> Tensor {
    softmax(gelu(matmul(x, weight)), -1)
}

#[test]
fn the_kind_is_found_by_its_name() {
    assert_eq!(find_kind("sim").unwrap().count().unwrap(), 2);
    assert_eq!(Device::named("sim:1").unwrap(), sim(1));
    let unknown = Device::named("simm").unwrap_err();
    assert!(unknown.contains("did you mean 'sim'"), "{unknown}");
    let absent = DeviceState::of(sim(2)).unwrap_err();
    assert!(absent.to_string().contains("sim:2") && absent.code() == "NoDevice", "{absent}");
    // It must be asked for.
    assert_ne!(Device::auto().kind(), "sim");
}

#[test]
fn programs_run_on_every_device_and_fall_back_visibly() {
    let (x, weight) = (numbers([5, 12]), numbers([12, 7]));
    let expected = jit(function).call((x.clone(), weight.clone())).unwrap().to_f64().unwrap();
    for ordinal in 0..2 {
        let options = Options { device: Some(sim(ordinal)), ..Options::default() };
        let function = jit(function).options(options);
        for _ in 0..3 {
            let out = function.call((x.clone(), weight.clone())).unwrap();
            assert_eq!(out.device(), sim(ordinal));
            for (found, expected) in out.to_f64().unwrap().iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-6, "{found}, expected {expected}");
            }
        }
        let compiled = function.compile(&(x.clone(), weight.clone())).unwrap();
        let claimed = compiled.stage("claim").unwrap().to_string();
        assert!(claimed.contains(" by sim") && claimed.contains(" by host"), "{claimed}");
    }
}

/// Kernel symbols belong to the executors of other devices, and composites of collectives are tested with executors
/// that run collectives.
#[test]
fn every_operator_is_tested_on_the_device() {
    let tests = generated_tests(&Filter::device("sim"), &Settings::default());
    let tested = |name: &str, template: Template| {
        tests.iter().any(|test| test.operator == name && test.template == template && test.executor == Some("sim"))
    };
    let called = operators().into_iter().filter(|def| match def.kind {
        OperatorKind::Symbol(_) => false,
        OperatorKind::Composite => !def.effects.collective,
        OperatorKind::Prim => true,
    });
    let missing: Vec<&str> = called.map(|def| def.name).filter(|name| !tested(name, Template::Consistency)).collect();
    assert!(missing.is_empty(), "without a test on the device: {}", missing.join(", "));
    // What data is refused, by an operator that the host runs; random programs; nothing of other executors.
    assert!(tested("prims::gather", Template::Errors) && tested("programs", Template::Programs));
    assert!(tests.iter().all(|test| test.executor == Some("sim")));
}

#[test]
fn what_the_library_lacks_is_done_instead() {
    let (x, weight) = (numbers([3, 300]), numbers([300, 2]));
    let product = |(x, weight): (Tensor, Tensor)| matmul(x, weight);
    let expected = jit(product).call((x.clone(), weight.clone())).unwrap().to_f64().unwrap();
    let options = Options { device: Some(sim(0)), ..Options::default() };
    let out = jit(product).options(options).call((x, weight)).unwrap().to_f64().unwrap();
    assert!(out.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4), "{out:?}, expected {expected:?}");
}

#[test]
fn the_host_cannot_look_into_the_device() {
    let array = numbers([2, 3]).to_device(sim(0)).unwrap();
    assert!(array.view().unwrap_err().to_string().contains("is on sim:0"));
    assert_eq!(array.to_host().unwrap().to_f64().unwrap(), numbers([2, 3]).to_f64().unwrap());
    let elsewhere = array.to_device(sim(1)).unwrap();
    assert_eq!(elsewhere.to_f64().unwrap(), array.to_f64().unwrap());
}

#[test]
fn too_little_memory_is_an_error_with_the_device_and_the_bytes() {
    let elements = CAPACITY / 4 + 1;
    let error = Array::zeros_on(sim(0), [elements], fulgurite::DType::F32).unwrap_err();
    assert_eq!(error.code(), "OutOfMemory");
    let text = error.to_string();
    let told = format!("sim:0: out of memory: asked for {} bytes, ", elements * 4);
    let free = text.strip_prefix(&told).and_then(|rest| rest.split_once(&format!(" of {CAPACITY} are free")));
    let free: usize = free.unwrap_or_else(|| panic!("{text}")).0.parse().unwrap();
    assert!(free <= CAPACITY, "{text}");
    // What is free can be had, and the next allocation cannot.
    let half = Array::zeros_on(sim(0), [CAPACITY / 8], fulgurite::DType::F32).unwrap();
    let rest = Array::zeros_on(sim(0), [CAPACITY / 8 + 1], fulgurite::DType::F32).unwrap_err().to_string();
    assert!(rest.starts_with("sim:0: out of memory"), "{rest}");
    drop(half);
}

#[test]
fn a_program_that_is_too_large_says_which_values_are() {
    let outer = |(column, row): (Tensor, Tensor)| tanh(matmul(column, row)) + 1.0;
    let (column, row) = (numbers([9000, 1]), numbers([1, 9000]));
    let function = jit(outer).options(Options { device: Some(sim(0)), ..Options::default() });
    let error = function.call((column, row)).unwrap_err();
    assert_eq!(error.code(), "OutOfMemory");
    let text = error.to_string();
    for expected in ["sim:0: out of memory", "the plan's peak is", "matmul (324000000 bytes)"] {
        assert!(text.contains(expected), "{text}");
    }
}

/// Two streams are ordered by events alone: without the event a copy reads what was there before.
#[test]
fn a_missing_event_is_seen() {
    let state = DeviceState::of(sim(0)).unwrap();
    let context = state.context();
    let seen = |ordered: bool| {
        let (first, second) = (context.stream().unwrap(), context.stream().unwrap());
        let (from, to) = (context.allocate(4).unwrap(), context.allocate(4).unwrap());
        let event = context.event(false).unwrap();
        let mut out = [0; 4];
        // SAFETY: the blocks have as many bytes, and are kept until both streams are done; what the streams leave
        // without order is what the test is about, and the device's memory has a lock.
        unsafe {
            first.fill(from.address(), 1, 4).unwrap();
            first.synchronize().unwrap();
            // Enough work for the other stream to pass.
            for _ in 0..200 {
                first.fill(to.address(), 0, 4).unwrap();
            }
            first.fill(from.address(), 2, 4).unwrap();
            first.record(&*event).unwrap();
            if ordered {
                second.wait(&*event).unwrap();
            }
            second.copy(CopyRange { from: from.address(), to: to.address(), bytes: 4 }).unwrap();
            second.copy_out(&mut out, to.address()).unwrap();
        }
        second.synchronize().unwrap();
        first.synchronize().unwrap();
        out
    };
    assert_eq!(seen(true), [2; 4]);
    assert!((0..20).any(|_| seen(false) != [2; 4]), "work of two streams ran as if it were ordered");
}

/// A device that used what is not allocated is lost, and nothing runs on it afterwards: `body` runs in a process of its
/// own, as the test called `name`.
fn alone(name: &str, body: impl FnOnce()) {
    const VARIABLE: &str = "FULGURITE_SIM_FAULTS";
    if std::env::var_os(VARIABLE).is_some() {
        return body();
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args([name, "--exact"]).env(VARIABLE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{name}: {said}");
}

#[test]
fn a_wrong_access_is_an_error_of_the_next_call_that_waits() {
    alone("device::a_wrong_access_is_an_error_of_the_next_call_that_waits", || {
        let state = DeviceState::of(sim(1)).unwrap();
        let options = Options { device: Some(sim(1)), ..Options::default() };
        let function = jit(function).named("innocent").options(options);
        // SAFETY: nothing is there, which the device's memory finds.
        unsafe { state.stream().fill(DeviceAddress(1 << 60), 0, 4) }.unwrap();
        let error = state.synchronize().unwrap_err();
        assert!(error.to_string().contains("no block of this device"), "{error}");
        assert!(state.lost().is_some());
        let called = function.call((numbers([2, 2]), numbers([2, 2])));
        assert!(called.and_then(|out| out.to_f64()).is_err());
    });
}

#[test]
fn an_address_of_the_host_is_none_of_the_device() {
    alone("device::an_address_of_the_host_is_none_of_the_device", || {
        let state = DeviceState::of(sim(1)).unwrap();
        let there = state.context().allocate(16).unwrap();
        let here = [1_u8; 16];
        let range = CopyRange { from: DeviceAddress(here.as_ptr() as u64), to: there.address(), bytes: 16 };
        // SAFETY: the device has no memory at an address of the host, which it finds.
        unsafe { state.stream().copy(range) }.unwrap();
        let error = state.synchronize().unwrap_err();
        assert!(error.to_string().contains(&format!("{:#x}", here.as_ptr() as u64)), "{error}");
    });
}

#[test]
fn a_kernel_that_panics_is_an_error_of_the_next_call_that_waits() {
    alone("device::a_kernel_that_panics_is_an_error_of_the_next_call_that_waits", || {
        let state = DeviceState::of(sim(1)).unwrap();
        let stream = SimStream::of(state.stream()).unwrap();
        stream.enqueue(Box::new(|_| panic!("no such element"))).unwrap();
        let error = state.synchronize().unwrap_err().to_string();
        assert!(error.contains("a kernel of the simulated device panicked: no such element"), "{error}");
        assert!(state.lost().is_some());
    });
}

/// The sum of a gated linear unit and its gradient, by the device's own kernels or by the definition.
fn gated_step((gate, up): (Tensor, Tensor)) -> (Tensor, Tensor) {
    value_and_grad(gate, |gate| checkpoint("gated", || geglu(*gate, up)).sum())
}

#[test]
fn the_default_implementation_is_asked_for() {
    let on_device = || Options { device: Some(sim(0)), ..Options::default() };
    let arguments = (numbers([3, 5]), numbers([3, 5]));
    let own = jit(gated_step).options(on_device());
    let default = jit(|arguments: (Tensor, Tensor)| decomposed(|| gated_step(arguments))).options(on_device());
    let claimed = |stage: Option<&fulgurite::trace::Trace>| stage.unwrap().to_string();
    let (own_text, default_text) = (own.compile(&arguments).unwrap(), default.compile(&arguments).unwrap());
    let (own_text, default_text) = (claimed(own_text.stage("claim")), claimed(default_text.stage("claim")));
    assert!(own_text.contains("sim::geglu_forward(") && own_text.contains("sim::geglu_backward("), "{own_text}");
    assert!(!default_text.contains("sim::geglu") && default_text.contains("= erf("), "{default_text}");
    let (loss, gradient) = own.call(arguments.clone()).unwrap();
    let (expected_loss, expected) = default.call(arguments.clone()).unwrap();
    assert!((loss.item().unwrap() - expected_loss.item().unwrap()).abs() < 1e-5);
    for (found, expected) in gradient.to_f64().unwrap().iter().zip(expected.to_f64().unwrap()) {
        assert!((found - expected).abs() < 1e-5, "{found}, expected {expected}");
    }
    // A function that is compiled within the scope is a program of its own.
    let other = jit(gated_step).options(on_device());
    let compiled = decomposed(|| other.compile(&arguments)).unwrap();
    assert_eq!(claimed(compiled.stage("claim")), own_text);
}

#[test]
fn an_option_of_the_executor_changes_the_kernels() {
    let on_device = || Options { device: Some(sim(0)), ..Options::default() };
    let arguments = (numbers([3, 100]), numbers([3, 100]));
    let claimed = |options: Options| {
        let f = jit(gated_step).options(options);
        let compiled = f.compile(&arguments).unwrap();
        (compiled.stage("claim").unwrap().to_string(), compiled.explain(), f.call(arguments.clone()).unwrap())
    };
    let (default, explained, (loss, _)) = claimed(on_device());
    assert!(default.matches("block=256").count() == 2, "{default}");
    assert!(explained.contains("executor sim: version 1.1 of the package fulgurite-example-sim"), "{explained}");
    let (small, _, (loss_of_small, _)) = claimed(on_device().with_option(&fulgurite_example_sim::sim::BLOCK, 7));
    assert_eq!(small, default.replace("block=256", "block=7"));
    assert_eq!(loss.item().unwrap(), loss_of_small.item().unwrap());
    // What a checker reads of an option, it may refuse; the text names values as they are printed.
    let (refused, explained, _) = claimed(on_device().with_option_named("sim.block", "0").unwrap());
    assert!(!refused.contains("sim::geglu") && explained.contains("sim.block is 0"), "{explained}");
    // An option holds in one compilation.
    assert_eq!(claimed(on_device()).0, default);
    let wrong = |path: &str, value: &str| on_device().with_option_named(path, value).unwrap_err().to_string();
    let known = wrong("sim.blocks", "8");
    assert!(known.contains("sim has no option 'blocks', did you mean 'block'? (it has: block)"), "{known}");
    let type_name = wrong("sim.block", "many");
    assert!(type_name.contains("is 'many', expected a value of type size, as its default 256"), "{type_name}");
    assert!(wrong("simm.block", "8").contains("simm"));
    assert!(wrong("block", "8").contains("expected an executor and its option"));
}

#[test]
fn the_default_implementation_draws_the_same_numbers() {
    let arguments = (numbers([4, 9]), Array::new([2], &[7_i64, 0]).unwrap());
    let drop = |(x, generator): (Tensor, Tensor)| {
        let dropped = |x: Tensor| dropout::with(x).p(0.4).generator(generator).call();
        dropped(dropped(x))
    };
    let whole = jit(drop).call(arguments.clone()).unwrap().to_f64().unwrap();
    let opened = jit(move |arguments: (Tensor, Tensor)| decomposed(|| drop(arguments))).call(arguments).unwrap();
    assert_eq!(opened.to_f64().unwrap(), whole);
    assert!(whole.contains(&0.0) && whole.iter().any(|number| *number != 0.0));
}
