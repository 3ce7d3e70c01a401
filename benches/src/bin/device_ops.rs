//! Operators that are bound by memory, on a CUDA device: the time of forward and backward, and what part of the copy
//! bandwidth measured in the same run it is. `device_ops [--filter softmax,layer_norm] [--runs 9]`
//!
//! Bytes are what has to move: operands and results once each way. Times are the sum of a program's kernels, each
//! between events, median of the runs; backward is forward with its vjp, less forward.

use fulgurite_benches::argument;
use fulgurite_benches::median_of;
use fulgurite_kernels::launch::CopyRange;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::compile::{Options, compile};
use fulgurite_runtime::device::{DeviceMemory, DeviceState};
use fulgurite_runtime::jit::{Names, trace};
use fulgurite_runtime::program::Program;
use fulgurite_runtime::transforms::vjp;
use fulgurite_runtime::{Array, DType, Device, Result, Target, Tensor, TensorMeta};

type Function = Box<dyn Fn(Vec<Tensor>) -> Vec<Tensor>>;

struct Case {
    name: &'static str,
    /// The executor that is put before the default ones for a second measurement.
    first: &'static str,
    /// Shapes and element types of the inputs.
    inputs: Vec<(Vec<usize>, DType)>,
    /// Which of them are differentiated; none for an optimizer.
    wrt: Vec<usize>,
    /// Bytes that forward has to move, and backward.
    bytes: [usize; 2],
    function: Function,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        let size = dtype.size();
        // As many bytes in every type: the second-level cache, which keeps a part of what the kernel before wrote, has
        // as much of each.
        let times = DType::F32.size() / size;
        for [rows, columns] in [[65_536 * times, 768], [16_384 * times, 4096]] {
            let all = rows * columns * size;
            let (matrix, row) = ((vec![rows, columns], dtype), (vec![columns], dtype));
            cases.push(Case {
                name: "layer_norm",
                first: "llmc",
                inputs: vec![matrix.clone(), row.clone(), row],
                wrt: vec![0, 1, 2],
                bytes: [2 * all, 3 * all],
                function: Box::new(move |x| vec![layer_norm::with(x[0], [columns]).weight(x[1]).bias(x[2]).call()]),
            });
            cases.extend(rms_norms(rows, columns, dtype));
            cases.push(Case {
                name: "gelu (tanh)",
                first: "llmc",
                inputs: vec![matrix],
                wrt: vec![0],
                bytes: [2 * all, 3 * all],
                function: Box::new(|x| vec![gelu::with(x[0]).approximate(Approximate::Tanh).call()]),
            });
        }
        for [rows, columns] in [[65_536, 1024], [16_384, 8192], [4096, 50_304], [4096, 50_257]] {
            let all = rows * columns * size;
            cases.push(Case {
                name: "softmax",
                first: "llmc",
                inputs: vec![(vec![rows, columns], dtype)],
                wrt: vec![0],
                bytes: [2 * all, 3 * all],
                function: Box::new(|x| vec![softmax(x[0], -1)]),
            });
        }
        for [rows, columns] in [[8192, 50_304], [8192, 50_257]] {
            let all = rows * columns * size;
            cases.push(Case {
                name: "cross_entropy",
                first: "llmc",
                inputs: vec![(vec![rows, columns], dtype), (vec![rows], DType::I64)],
                wrt: vec![0],
                bytes: [all, 2 * all],
                function: Box::new(|x| vec![cross_entropy(x[0], x[1])]),
            });
        }
    }
    // As peers measure them.
    cases.extend(rms_norms(16_384, 4096, DType::BF16));
    cases.extend(others_of_liger());
    let [batch, length, width] = [4, 4096, 128];
    let heads = |count: usize| (vec![batch, count, length, width], DType::BF16);
    let table = (vec![length, width], DType::F32);
    let all = batch * (32 + 8) * length * width * DType::BF16.size();
    cases.push(Case {
        name: "rope",
        first: "liger",
        inputs: vec![heads(32), heads(8), table.clone(), table],
        wrt: vec![0, 1],
        bytes: [2 * all, 2 * all],
        function: Box::new(|x| {
            let (query, key) = rope(x[0], x[1], x[2], x[3]);
            vec![query, key]
        }),
    });
    let [rows, width, classes] = [8192, 4096, 128_256];
    let all = (rows + classes) * width * DType::BF16.size();
    cases.push(Case {
        name: "linear + cross_entropy",
        first: "liger",
        inputs: vec![(vec![rows, width], DType::BF16), (vec![classes, width], DType::BF16), (vec![rows], DType::I64)],
        wrt: vec![0, 1],
        bytes: [all, all],
        function: Box::new(|x| vec![fused_linear_cross_entropy(x[0], x[1], x[2])]),
    });
    let parameters = 124_475_904 / 768;
    cases.push(Case {
        name: "adamw",
        first: "llmc",
        inputs: [&[parameters, 768][..]; 4].into_iter().chain([&[][..]; 2]).map(|s| (s.to_vec(), DType::F32)).collect(),
        wrt: Vec::new(),
        bytes: [7 * parameters * 768 * 4, 0],
        function: Box::new(|x| {
            let (p, m, v) = adamw::with(x[0], x[1], x[2], x[3], x[4], x[5]).call();
            vec![p, m, v]
        }),
    });
    cases
}

/// Liger's normalizations and divergences beside those of a Llama, in bf16.
fn others_of_liger() -> Vec<Case> {
    let (dtype, size) = (DType::BF16, DType::BF16.size());
    let case = |name, shapes: &[&[usize]], wrt: &[usize], passes: [usize; 2], function: Function| Case {
        name,
        first: "liger",
        inputs: shapes.iter().map(|shape| (shape.to_vec(), dtype)).collect(),
        wrt: wrt.to_vec(),
        bytes: passes.map(|passes| passes * shapes[0].iter().product::<usize>() * size),
        function,
    };
    let (image, classes): ([usize; 4], [usize; 2]) = ([32, 512, 32, 32], [4096, 32_000]);
    let (rows, both): ([usize; 2], _) = ([16_384, 4096], [&classes[..], &classes[..]]);
    let normed: Function = Box::new(|x| vec![group_norm::with(x[0], 32).weight(x[1]).bias(x[2]).call()]);
    let kl: Function = Box::new(|x| {
        let reduced = kl_div::with(x[0], x[1]).reduction(DivergenceReduction::BatchMean).log_target(true);
        vec![reduced.call()]
    });
    vec![
        case("group_norm", &[&image, &[512], &[512]], &[0, 1, 2], [2, 3], normed),
        case("poly_norm", &[&rows, &[3], &[1]], &[0, 1, 2], [2, 3], Box::new(|x| vec![poly_norm(x[0], x[1], x[2])])),
        case("dyt", &[&rows, &[1], &[4096]], &[0, 1, 2], [2, 3], Box::new(|x| vec![dyt(x[0], x[1], x[2])])),
        case("sparsemax", &[&rows], &[0], [2, 3], Box::new(|x| vec![sparsemax(x[0])])),
        case("kl_div", &both, &[0], [2, 2], kl),
        case("jsd", &both, &[0], [2, 3], Box::new(|x| vec![jsd(x[0], x[1])])),
    ]
}

/// Normalization by the root mean square, alone and with a residual.
fn rms_norms(rows: usize, columns: usize, dtype: DType) -> [Case; 2] {
    let all = rows * columns * dtype.size();
    let (matrix, row) = ((vec![rows, columns], dtype), (vec![columns], dtype));
    let alone = Case {
        name: "rms_norm",
        first: "liger",
        inputs: vec![matrix.clone(), row.clone()],
        wrt: vec![0, 1],
        bytes: [2 * all, 3 * all],
        function: Box::new(move |x| vec![rms_norm::with(x[0], [columns]).weight(x[1]).eps(1e-5).call()]),
    };
    let with_residual = Case {
        name: "fused_add_rms_norm",
        first: "liger",
        inputs: vec![matrix.clone(), matrix, row],
        wrt: vec![0, 1, 2],
        bytes: [4 * all, 4 * all],
        function: Box::new(move |x| {
            let (out, sum) = fused_add_rms_norm::with(x[0], x[1], [columns]).weight(x[2]).eps(1e-5).call();
            vec![out, sum]
        }),
    };
    [alone, with_residual]
}

/// The median time of the kernels of a run, in milliseconds.
fn time(program: &Program, inputs: &[Array], runs: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..runs + 2 {
        times.push(program.profile(inputs.to_vec())?.1.total().as_secs_f64() * 1e3);
    }
    Ok(median_of(times.split_off(2)))
}

fn main() -> Result<()> {
    let device = Device::new("cuda", 0);
    let state = DeviceState::of(device)?;
    let runs = argument("--runs").and_then(|text| text.parse().ok()).unwrap_or(9);
    let filter = argument("--filter").unwrap_or_default();
    let bytes = 512 << 20;
    let block = || -> Result<Box<dyn DeviceMemory>> { Ok(state.context().allocate(bytes)?) };
    let (from, to) = (block()?, block()?);
    let range = CopyRange { from: from.address(), to: to.address(), bytes };
    let mut copies = Vec::new();
    for _ in 0..runs + 2 {
        let (start, end) = (state.context().event(true)?, state.context().event(true)?);
        state.stream().record(&*start)?;
        // SAFETY: both blocks are this function's, and as large.
        unsafe { state.stream().copy(range) }?;
        state.stream().record(&*end)?;
        end.synchronize()?;
        copies.push(end.milliseconds_since(&*start)?);
    }
    drop((from, to));
    let copy = 2.0 * bytes as f64 / median_of(copies.split_off(2)) / 1e6;
    println!("{}; copy {copy:.0} GB/s", state.context().properties().model);
    println!(
        "| operator | input | executors | forward us | of copy | backward us | of copy |\n|---|---|---|---|---|---|---|"
    );
    let wanted = |case: &&Case| filter.split(',').any(|part| case.name.contains(part));
    for case in cases().iter().filter(wanted) {
        let default = ["optim", "cublaslt", "fusion", "cuda"];
        for executors in [default.to_vec(), [&[case.first][..], &default].concat()] {
            let options = Options { verify: false, ..Options::default() }.with_executors(&executors)?;
            let metas: Vec<TensorMeta> =
                case.inputs.iter().map(|(shape, dtype)| TensorMeta::new(shape, *dtype, device)).collect();
            let target = Target::of(device)?;
            let (mut forward, _) = trace(case.name, target, &Names::default(), metas.clone(), |x| (case.function)(x))?;
            let list = options.executor_list("cuda");
            let array = |meta: &TensorMeta, i: usize| -> Result<Array> {
                let values = |i: usize| ((i * 2_654_435_761) % 1000) as f64 / 1000.0;
                let count = meta.len();
                match meta.dtype() {
                    DType::I64 => {
                        Array::new(meta.shape(), &(0..count).map(|i| (i * 7919 % 50_257) as i64).collect::<Vec<_>>())
                    }
                    dtype => {
                        // A few thousand values over and over: it is the time that counts.
                        let one: Vec<f64> = (0..count.min(4099)).map(|j| values(i + j) + 0.5).collect();
                        let bytes = Array::from_f64([one.len()], dtype, &one)?.to_bytes()?;
                        let all: Vec<u8> = bytes.iter().copied().cycle().take(count * dtype.size()).collect();
                        Array::from_bytes(meta.shape(), dtype, &all)
                    }
                }?
                .to_device(device)
            };
            let mut inputs =
                metas.iter().enumerate().map(|(i, meta)| array(meta, i)).collect::<Result<Vec<Array>>>()?;
            let donated = case.wrt.is_empty();
            if donated {
                for i in [0, 2, 3] {
                    forward.inputs[i].donated = true;
                }
            }
            let joint = match donated {
                true => None,
                false => Some(vjp(&forward, &case.wrt, &list)?),
            };
            let (program, _) = compile(forward, &options)?;
            let part = |bytes: usize, milliseconds: f64| bytes as f64 / milliseconds / 1e6 / copy * 100.0;
            let first = if donated {
                // Given away as they are: nobody else may hold them.
                let copies =
                    inputs.iter().map(|array| array.to_host()?.to_device(device)).collect::<Result<Vec<_>>>()?;
                time_donated(&program, copies, runs)?
            } else {
                time(&program, &inputs, runs)?
            };
            drop(program);
            let shape = format!("{:?} {}", case.inputs[0].0, case.inputs[0].1);
            let name = if executors.len() > default.len() { &format!("{} first", case.first) } else { "default" };
            let mut row = format!(
                "| {} | {shape} | {name} | {:.1} | {:.0} % |",
                case.name,
                first * 1e3,
                part(case.bytes[0], first)
            );
            match joint {
                None => row += " - | - |",
                Some(joint) => {
                    let cotangents = joint.block.parameters[inputs.len()..].iter();
                    let metas: Vec<TensorMeta> = cotangents.map(|id| joint.block.meta(*id).clone()).collect();
                    for (i, meta) in metas.iter().enumerate() {
                        inputs.push(array(meta, i)?);
                    }
                    let (program, _) = compile(joint, &options)?;
                    let both = time(&program, &inputs, runs)?;
                    let backward = (both - first).max(f64::MIN_POSITIVE);
                    row += &format!(" {:.1} | {:.0} % |", backward * 1e3, part(case.bytes[1], backward));
                }
            }
            println!("{row}");
        }
    }
    Ok(())
}

/// As [`time`], for a program that updates its inputs 0, 2 and 3 where they are.
fn time_donated(program: &Program, mut arguments: Vec<Array>, runs: usize) -> Result<f64> {
    let mut times = Vec::new();
    for run in 0..runs + 2 {
        let (gradient, numbers) = (arguments[1].clone(), arguments[4..].to_vec());
        let (outputs, profile) = program.profile(arguments)?;
        arguments = outputs;
        arguments.insert(1, gradient);
        arguments.extend(numbers);
        if run >= 2 {
            times.push(profile.total().as_secs_f64() * 1e3);
        }
    }
    Ok(median_of(times))
}
