//! What typical kernels reach of the bandwidth. Nothing is asserted.

use super::cases::{self, Case, Tolerance};
use super::fixture::{Device, device};
use fulgurite_cuda::generate::Holder;
use fulgurite_cuda::{DeviceMemory, Event};
use fulgurite_kernels::DType;

const BYTES: usize = 256 << 20;
const REPETITIONS: usize = 20;

impl Device {
    /// The median of the milliseconds that `enqueue` takes.
    fn milliseconds(&self, mut enqueue: impl FnMut()) -> f32 {
        let mut times: Vec<f32> = (0..REPETITIONS + 3)
            .map(|_| {
                let (start, end) = (Event::timed(&self.context).unwrap(), Event::timed(&self.context).unwrap());
                start.record(&self.stream).unwrap();
                enqueue();
                end.record(&self.stream).unwrap();
                end.synchronize().unwrap();
                end.milliseconds_since(&start).unwrap()
            })
            .skip(3)
            .collect();
        times.sort_by(f32::total_cmp);
        times[times.len() / 2]
    }
}

fn typical(dtype: DType) -> Vec<Case> {
    let elements = BYTES / dtype.size();
    let of = |name: &str, program, width: usize| {
        Case::contiguous(format!("{name}_{dtype}"), program, &[elements / width, width], Tolerance::Exact)
    };
    let turned = Case::contiguous(
        format!("transposed_{dtype}"),
        cases::copy(dtype),
        &[elements >> 13, 1 << 13],
        Tolerance::Exact,
    );
    let columns = (elements >> 13) as isize;
    vec![
        of("copy", cases::copy(dtype), 1024),
        of("copy_of_odd_rows", cases::copy(dtype), 1001).input(0, &[1002, 1], 0),
        of("add", cases::add(dtype), 1024),
        of("affine", cases::affine(dtype), 1024).column_input(1).column_input(2),
        of("gelu_affine", cases::gelu_affine(dtype), 1024).column_input(1).column_input(2),
        of("row_sum", cases::row_sum(dtype), 4096).row_output(0),
        of("layer_norm_768", cases::layer_norm(dtype, 768, false), 768).column_input(1).column_input(2),
        of("layer_norm_4096", cases::layer_norm(dtype, 4096, false), 4096).column_input(1).column_input(2),
        of("softmax_1024", cases::softmax(dtype, false), 1024),
        of("softmax_8192", cases::softmax(dtype, false), 8192),
        of("softmax_50257", cases::softmax(dtype, false), 50_257),
        of("softmax_50304", cases::softmax(dtype, false), 50_304),
        of("softmax_131072", cases::softmax(dtype, false), 131_072),
        turned.input(0, &[1, columns], 0),
    ]
}

#[test]
fn speed() {
    let Some(device) = device() else { return };
    let properties = device.context.device().clone();
    let memory: Vec<DeviceMemory> = (0..3)
        .map(|_| {
            let memory = DeviceMemory::new(&device.context, BYTES + (64 << 20)).unwrap();
            // SAFETY: the memory is as large, and the stream is waited for before it is freed.
            unsafe { device.stream.fill_u32(memory.address(), 0x3F80_3F80, memory.len() / 4) }.unwrap();
            memory
        })
        .collect();
    let [from, also, to] = [0, 1, 2].map(|n: usize| memory[n].address());
    // SAFETY: both memories are as large, and nothing else uses them.
    let time = device.milliseconds(|| unsafe { device.stream.copy_on_device(to, from, BYTES) }.unwrap());
    let rate = |bytes: usize, milliseconds: f32| bytes as f64 / f64::from(milliseconds) / 1e6;
    let copy = rate(2 * BYTES, time);
    println!("{}: {} MiB inputs, median of {REPETITIONS}", properties.name, BYTES >> 20);
    println!("{:<24} {:>8.3} ms {:>6.0} GB/s", "memory copy", time, copy);
    for case in typical(DType::F32).iter().chain(&typical(DType::BF16)) {
        let kernel =
            case.generate_for(properties.shared_bytes_per_block, properties.compute_capability.0 >= 9).unwrap();
        let function = device.generated(&kernel).unwrap();
        let used: Vec<usize> = case
            .inputs
            .iter()
            .zip(&case.program.input_dtypes)
            .map(|(input, dtype)| input.elements * dtype.size())
            .collect();
        let inputs: Vec<_> = [from, also, also][..used.len()].to_vec();
        let arguments = kernel.arguments(&inputs, &[to]);
        // SAFETY: every operand is at most as large as the memory that it is in.
        let time =
            device.milliseconds(|| unsafe { function.launch(&device.stream, &kernel.shape, &arguments) }.unwrap());
        let written = case.outputs[0].elements * case.program.outputs[0].1.size();
        let bytes = used.iter().sum::<usize>() + written;
        let resources = function.resources();
        println!(
            "{:<24} {:>8.3} ms {:>6.0} GB/s {:>5.1} %   {} x {} threads, {} registers, {} shared",
            case.name,
            time,
            rate(bytes, time),
            100.0 * rate(bytes, time) / copy,
            kernel.shape.grid[0],
            kernel.shape.block[0],
            resources.registers,
            resources.shared_bytes + kernel.shape.shared_bytes,
        );
    }
}

/// Few long rows, in stages: a sum of 10^8 elements, one of products, and a softmax of one row.
#[test]
fn speed_of_few_long_rows() {
    let Some(device) = device() else { return };
    const ELEMENTS: usize = 100_000_000;
    let memory: Vec<DeviceMemory> = (0..3)
        .map(|_| {
            let memory = DeviceMemory::new(&device.context, ELEMENTS * 4 + 4096).unwrap();
            // SAFETY: the memory is as large, and the stream is waited for before it is freed.
            unsafe { device.stream.fill_u32(memory.address(), 0x3F80_3F80, memory.len() / 4) }.unwrap();
            memory
        })
        .collect();
    // SAFETY: both memories are as large, and nothing else uses them.
    let copy = device.milliseconds(|| {
        // SAFETY: as above.
        unsafe { device.stream.copy_on_device(memory[2].address(), memory[0].address(), ELEMENTS * 4) }.unwrap();
    });
    let rate = |bytes: usize, milliseconds: f32| bytes as f64 / f64::from(milliseconds) / 1e6;
    let copy = rate(8 * ELEMENTS, copy);
    println!("memory copy of 10^8 f32: {copy:.0} GB/s");
    for (case, bytes) in cases::few_long_rows(ELEMENTS) {
        let stages = case.stages(None).unwrap();
        let temporaries: Vec<DeviceMemory> =
            stages.temporaries.iter().map(|(dtype, count)| device.upload(&vec![0; dtype.size() * count])).collect();
        let (most, clusters) = device.limits();
        let launches: Vec<_> = stages
            .list
            .iter()
            .map(|stage| {
                let part = case.stage(stage);
                let kernel = part.generate_for(most, clusters).unwrap();
                let address = |holder: Holder, first: usize, dtype: DType| {
                    let start = match holder {
                        Holder::Input(index) => memory[index].address(),
                        Holder::Output(_) => memory[2].address(),
                        Holder::Temporary(index) => temporaries[index].address(),
                    };
                    start.offset(first * dtype.size())
                };
                let from: Vec<_> = (stage.inputs.iter().zip(&stage.program.input_dtypes))
                    .map(|(operand, dtype)| address(operand.holder, operand.first, *dtype))
                    .collect();
                let to: Vec<_> = (stage.outputs.iter().zip(&stage.program.outputs))
                    .map(|(operand, (_, dtype))| address(operand.holder, operand.first, *dtype))
                    .collect();
                (device.generated(&kernel).unwrap(), kernel.shape, kernel.arguments(&from, &to))
            })
            .collect();
        let time = device.milliseconds(|| {
            for (function, shape, arguments) in &launches {
                // SAFETY: every operand is at most as large as the memory that it is in.
                unsafe { function.launch(&device.stream, shape, arguments) }.unwrap();
            }
        });
        let rate = rate(bytes * ELEMENTS, time);
        println!("{:<16} {time:>8.3} ms {rate:>6.0} GB/s {:>5.1} % of the copy", case.name, 100.0 * rate / copy);
    }
}
