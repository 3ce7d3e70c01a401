//! A symbol that a function of the host enqueues on the stream of the program, as kernels of other languages are.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fulgurite::argument::Arg;
use fulgurite::compile::Options;
use fulgurite::device::DeviceTensor;
use fulgurite::device::host_work::{StreamCall, StreamWork};
use fulgurite::jit::Jit;
use fulgurite::kernel::KernelRules;
use fulgurite::registration::{Executor, Operator};
use fulgurite::{Array, Device, Failure, Tensor, jit};
use fulgurite_example_sim as _;

const DEVICE: &str = "sim";

/// Adds 1 to each element, with a copy on the host in between.
fn adds_one(operand: &DeviceTensor, call: &StreamCall<'_>) -> Result<(), Failure> {
    assert_eq!(call.device, Device::new(DEVICE, 0));
    let mut bytes = vec![0; operand.meta.bytes()];
    let failed = |error: fulgurite::device::DeviceError| Failure::new("Device", error.to_string());
    // SAFETY: both are memory of the program for as many bytes, which this step alone uses; the copies are waited for.
    unsafe {
        call.stream.copy_out(&mut bytes, call.operands[0]).map_err(failed)?;
        call.stream.synchronize().map_err(failed)?;
        for element in bytes.as_chunks_mut::<4>().0 {
            *element = (f32::from_le_bytes(*element) + 1.0).to_le_bytes();
        }
        call.stream.copy_in(call.results[0], &bytes).map_err(failed)?;
    }
    call.stream.synchronize().map_err(failed)
}

/// A symbol of the simulated device whose kernel is `enqueue`.
fn registered(
    name: &str,
    enqueue: impl Fn(&DeviceTensor, &StreamCall<'_>) -> Result<(), Failure> + Clone + Send + Sync + 'static,
) -> &'static fulgurite::operator::OperatorDef {
    let executor = format!("{name}_executor");
    Executor::build(&executor, DEVICE).release("0.1").declared_at("a/script.py", 3).register().unwrap();
    let plan = move |plan: &mut fulgurite::device::Plan, arguments: &[Arg<DeviceTensor>], results: &[DeviceTensor]| {
        let operand = arguments[0].tensor().clone();
        let (enqueue, read) = (enqueue.clone(), operand.clone());
        let enqueue = move |call: &StreamCall<'_>| enqueue(&read, call);
        plan.on_stream(StreamWork { operands: vec![operand], results: results.to_vec(), enqueue: Arc::new(enqueue) });
        Ok(())
    };
    let kernel = KernelRules { plan: Some(Box::leak(Box::new(plan))), ..KernelRules::EMPTY };
    let symbol = Operator::build(format!("{executor}::{name}")).signature("(input: tensor) -> tensor");
    let symbol = symbol.meta(|a| Ok(a[0].tensor().clone())).kernels_of([executor], kernel);
    let symbol = symbol.declared_at("a/script.py", 7).register().unwrap();
    assert!(format!("{symbol:?}").contains("registered at a/script.py:7"), "{symbol:?}");
    symbol.record()
}

fn options() -> Options {
    Options { device: Some(Device::new(DEVICE, 0)), ..Options::default() }
}

#[test]
fn a_function_enqueues_between_the_kernels_of_the_program() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let def = registered("counted", |operand, call| {
        RUNS.fetch_add(1, Ordering::Relaxed);
        adds_one(operand, call)
    });
    let f = jit(move |x: Tensor| fulgurite::tracer::call(def, vec![Arg::Tensor(x * 2.0)])[0] * 3.0).options(options());
    // In every run, since no graph has it.
    for i in 0..4 {
        let x = Array::new([2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, i as f32]).unwrap();
        let expected: Vec<f32> = x.to_vec::<f32>().unwrap().iter().map(|x| (x * 2.0 + 1.0) * 3.0).collect();
        assert_eq!(f.call(x).unwrap().to_vec::<f32>().unwrap(), expected);
        assert_eq!(RUNS.load(Ordering::Relaxed), i + 1);
    }
    // In memory between guards, and of a tensor without elements.
    let x = Array::new([3], &[1.0_f32, 2.0, 3.0]).unwrap();
    let out = f.compile(&x).unwrap().program().run_checked(vec![x]).unwrap();
    assert_eq!(out[0].to_f64().unwrap(), [9.0, 15.0, 21.0]);
    assert!(f.call(Array::new([0], &[0.0_f32; 0]).unwrap()).unwrap().to_vec::<f32>().unwrap().is_empty());
}

#[test]
fn an_error_of_the_function_is_that_of_the_operator() {
    let def = registered("failing", |_, _| Err(Failure::new("Python", "the kernel raised ValueError: no")));
    let f = jit(move |x: Tensor| fulgurite::tracer::call(def, vec![Arg::Tensor(x)])[0]).options(options());
    let error = f.call(Array::new([2], &[1.0_f32, 2.0]).unwrap()).unwrap_err();
    assert!(error.code() == "Python" && error.to_string().contains("failing_executor::failing"), "{error}");
    let def = registered("panicking", |_, _| panic!("no rows"));
    let f = jit(move |x: Tensor| fulgurite::tracer::call(def, vec![Arg::Tensor(x)])[0]).options(options());
    let error = f.call(Array::new([2], &[1.0_f32, 2.0]).unwrap()).unwrap_err();
    assert!(error.to_string().contains("no rows"), "{error}");
}

type Traced = Box<dyn Fn(Tensor) -> Tensor + Send + Sync>;
type Calls = Jit<Array, Tensor, Traced>;

/// The program is held while its function runs: a call of it from there would wait for itself.
#[test]
fn a_function_that_calls_its_own_program_is_an_error() {
    static PROGRAM: Mutex<Option<Arc<Calls>>> = Mutex::new(None);
    let def = registered("calling", |operand, call| {
        let program = PROGRAM.lock().unwrap().clone().expect("it is made before it is called");
        let x = Array::new([2], &[1.0_f32, 2.0]).unwrap();
        match program.call(x) {
            Ok(_) => adds_one(operand, call),
            Err(error) => Err(Failure::new("Again", error.to_string())),
        }
    });
    let traced: Traced = Box::new(move |x| fulgurite::tracer::call(def, vec![Arg::Tensor(x)])[0]);
    let program: Arc<Calls> = Arc::new(jit(traced).options(options()));
    *PROGRAM.lock().unwrap() = Some(program.clone());
    let error = program.call(Array::new([2], &[1.0_f32, 2.0]).unwrap()).unwrap_err();
    assert!(error.code() == "Again" && error.to_string().contains("a kernel of its own calls the program"), "{error}");
}
