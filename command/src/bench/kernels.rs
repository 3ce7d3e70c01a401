//! Rows that are programs of one operator, timed: whole runs with cold caches, on a device as they are replayed.
//! Backward is forward with its gradients, less forward.

use fulgurite::choices::Clock;
use fulgurite::compile::{Choose, Options, compile, with_gradients, with_records};
use fulgurite::jit::{Names, trace};
use fulgurite::program::Program;
use fulgurite::{Array, DType, Device, Result, Target, TensorMeta};
use fulgurite_rates::Rates;
use fulgurite_rates::bandwidth;

use super::super::measured_inputs::filled;
use super::cases::{Case, case};
use super::figures::Figure;
use super::work::Work;

/// Runs before those that count: the first ones compile kernels, choose algorithms, record a graph, and replay it.
const WARM_UP: usize = 3;
const RUNS: usize = 11;

/// The figures of a row that is a program; `None` for one that is not.
pub fn measure(
    work: &Work,
    device: Device,
    executors: Option<&str>,
    rates: Option<&Rates>,
) -> Option<Result<Vec<Figure>>> {
    let case = case(work)?;
    let device_of = (!device.is_cpu()).then_some(device);
    let options = Options { verify: false, device: device_of, choose: Choose::Auto, ..Options::default() };
    let options = match executors {
        Some(names) => options.with_executors(&names.split(',').collect::<Vec<_>>()),
        None => Ok(options),
    };
    Some(options.and_then(|options| measured(work, &case, device, &options, rates)))
}

fn measured(work: &Work, case: &Case, device: Device, options: &Options, rates: Option<&Rates>) -> Result<Vec<Figure>> {
    let metas: Vec<TensorMeta> =
        case.inputs.iter().map(|(shape, dtype)| TensorMeta::new(shape, *dtype, device)).collect();
    let (mut forward, _) = trace("measured", Target::of(device)?, &Names::default(), metas, |x| (case.function)(&x))?;
    for i in &case.updated {
        forward.inputs[*i].donated = true;
    }
    // Both programs by the same records: backward is what one takes more than the other.
    let options = &*with_records(options, &forward.target);
    let joint = (!case.wrt.is_empty()).then(|| with_gradients(forward.clone(), &case.wrt, options)).transpose()?;
    let arrays = case.arrays()?.into_iter();
    let mut inputs: Vec<Array> =
        arrays.map(|array| if device.is_cpu() { Ok(array) } else { array.to_device(device) }).collect::<Result<_>>()?;
    // The load of the host's memory changes: it is measured at the time.
    let copy = if device.is_cpu() { Some(bandwidth::of_host()) } else { rates.map(|rates| rates.copy) };
    let product = rates.and_then(|rates| rates.products.get(dtype_name(work)).copied());
    // What bounds a part of the program: its arithmetic where the row has some, its bytes otherwise.
    let with_share = |figure: Figure, part: usize| {
        let seconds = figure.median * 1e-6;
        match case.flops {
            Some(flops) => figure.with_share(product.map(|rate| flops[part] / seconds / rate), "products"),
            None => figure.with_share(copy.map(|rate| case.bytes[part] / seconds / rate), "copy"),
        }
    };
    let times = {
        let (program, _) = compile(forward, options)?;
        time(&program, &mut inputs, &case.updated, device)?
    };
    let forward = Figure::of("forward", "us", times);
    let mut figures = vec![with_share(forward.clone(), 0)];
    if let Some(joint) = joint {
        for (i, id) in joint.block.parameters[inputs.len()..].iter().enumerate() {
            let meta = joint.block.meta(*id);
            let array = filled(meta.shape(), meta.dtype(), [-1.0, 1.0], 2, 100 + i as u64)?;
            inputs.push(if device.is_cpu() { array } else { array.to_device(device)? });
        }
        let (program, _) = compile(joint, options)?;
        let both = time(&program, &mut inputs, &[], device)?;
        let backward = both.into_iter().map(|time| (time - forward.median).max(0.0)).collect();
        figures.push(with_share(Figure::of("backward", "us", backward), 1));
    }
    Ok(figures)
}

/// What operands of the row's products are rounded to.
fn dtype_name(work: &Work) -> &'static str {
    match work {
        Work::Attention { dtype, .. } | Work::Product { dtype, .. } | Work::Convolution { dtype, .. } => dtype,
        _ => DType::F32.name(),
    }
}

/// Times of runs of a program in microseconds. What it updates in place it is given again.
fn time(program: &Program, inputs: &mut Vec<Array>, updated: &[usize], device: Device) -> Result<Vec<f64>> {
    // Compiling measures by a clock of its own.
    let (mut clock, mut times) = (Clock::new(device)?, Vec::new());
    for run in 0..WARM_UP + RUNS {
        // Given away as they are: nobody else may hold what is updated.
        let arguments = if updated.is_empty() { inputs.clone() } else { std::mem::take(inputs) };
        let keep = |(i, array): (usize, &Array)| (!updated.contains(&i)).then(|| array.clone());
        let kept: Vec<Option<Array>> = arguments.iter().enumerate().map(keep).collect();
        let (outputs, microseconds) = clock.time(program, arguments)?;
        if !updated.is_empty() {
            let mut outputs = outputs.into_iter();
            inputs.extend(kept.into_iter().filter_map(|array| array.or_else(|| outputs.next())));
        }
        if run >= WARM_UP {
            times.push(microseconds);
        }
    }
    Ok(times)
}
