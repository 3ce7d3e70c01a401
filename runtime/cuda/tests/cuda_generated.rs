//! Generated kernels on a device, against the host's fused kernels. Without a device these tests say that they are
//! skipped.
//!
//! The binary needs nothing but the driver and NVRTC, so it can be built where Rust is and run where the device is:
//! `cargo test -p fulgurite-cuda --test cuda_generated --no-run` prints its path. `-- --nocapture speed` prints what
//! typical kernels reach of the bandwidth.

#[path = "../../../kernels/tests/host/cases/mod.rs"]
mod cases;
mod common;
#[path = "cuda_device/fixture.rs"]
#[allow(dead_code)]
mod fixture;
#[path = "../../../kernels/tests/host/operands.rs"]
mod operands;
#[path = "generated/problems.rs"]
#[allow(dead_code)]
mod problems;
#[path = "generated/speed.rs"]
mod speed;

use cases::Case;
use fixture::{Device, device};
use fulgurite_cuda::generate::{GeneratedKernel, Holder, OPTIONS, StageOperand, Stages};
use fulgurite_cuda::{Compilation, DeviceMemory, Function, KernelCache, Module};
use fulgurite_kernels::DType;
use operands::{Memories, differences};

/// Bytes of which a kernel must touch none, before and behind each memory; a multiple of what addresses are aligned to.
const GUARD: usize = 512;
const GUARD_BYTE: u8 = 0xA7;

impl Device {
    fn generated(&self, kernel: &GeneratedKernel) -> Result<Function, String> {
        let (architecture, options) = (self.context.device().architecture(), OPTIONS.map(String::from));
        let compilation =
            Compilation { name: &kernel.name, source: &kernel.source, architecture: &architecture, options: &options };
        let cubin = KernelCache::global().compile(&compilation).map_err(|error| error.to_string())?;
        let module = Module::load(&self.context, &cubin).map_err(|error| error.to_string())?;
        module.function(&kernel.name).map_err(|error| error.to_string())
    }

    fn guarded(&self, bytes: &[u8]) -> DeviceMemory {
        let mut all = vec![GUARD_BYTE; bytes.len() + 2 * GUARD];
        all[GUARD..GUARD + bytes.len()].copy_from_slice(bytes);
        self.upload(&all)
    }

    /// What the memories hold after one launch, or why there is none.
    fn launch(&self, case: &Case, kernel: &GeneratedKernel, before: &Memories) -> Result<Memories, String> {
        let function = self.generated(kernel)?;
        let inputs: Vec<DeviceMemory> = before.inputs.iter().map(|bytes| self.guarded(bytes)).collect();
        let outputs: Vec<DeviceMemory> = before.outputs.iter().map(|bytes| self.guarded(bytes)).collect();
        let input_addresses: Vec<_> = (0..inputs.len())
            .map(|n| inputs[n].address().offset(GUARD + case.inputs[n].first * case.program.input_dtypes[n].size()))
            .collect();
        let output_addresses: Vec<_> = (0..outputs.len())
            .map(|n| match case.outputs[n].over {
                Some(input) => input_addresses[input],
                None => outputs[n].address().offset(GUARD + case.outputs[n].first * case.program.outputs[n].1.size()),
            })
            .collect();
        let arguments = kernel.arguments(&input_addresses, &output_addresses);
        // SAFETY: the kernel was generated for these operands, which are in memory of the sizes that it reaches.
        unsafe { function.launch(&self.stream, &kernel.shape, &arguments) }.map_err(|error| error.to_string())?;
        self.stream.synchronize().map_err(|error| error.to_string())?;
        let read = |memories: &[DeviceMemory]| -> Result<Vec<Vec<u8>>, String> {
            memories.iter().map(|memory| self.inside(memory)).collect()
        };
        Ok(Memories { inputs: read(&inputs)?, outputs: read(&outputs)? })
    }

    fn check(&self, case: &Case, kernel: &GeneratedKernel) -> Result<(), String> {
        let before = Memories::new(case);
        let expected = before.clone().run(case);
        let found = self.launch(case, kernel, &before)?;
        if self.launch(case, kernel, &before)? != found {
            return Err("two runs differ".into());
        }
        differences(case, &found, &expected)
    }

    /// What the memories hold after the stages of a case, one after the other without waiting.
    fn launch_stages(&self, case: &Case, stages: &Stages, before: &Memories) -> Result<Memories, String> {
        let inputs: Vec<DeviceMemory> = before.inputs.iter().map(|bytes| self.guarded(bytes)).collect();
        let outputs: Vec<DeviceMemory> = before.outputs.iter().map(|bytes| self.guarded(bytes)).collect();
        let temporaries: Vec<DeviceMemory> =
            stages.temporaries.iter().map(|(dtype, count)| self.guarded(&vec![0x5C; dtype.size() * count])).collect();
        let (most, clusters) = self.limits();
        for stage in &stages.list {
            let part = case.stage(stage);
            let kernel = part.generate_for(most, clusters).map_err(|error| error.to_string())?;
            let address = |holder: Holder, first: usize, dtype: DType| {
                let memory = match holder {
                    Holder::Input(index) => &inputs[index],
                    Holder::Output(index) => match case.outputs[index].over {
                        Some(input) => &inputs[input],
                        None => &outputs[index],
                    },
                    Holder::Temporary(index) => &temporaries[index],
                };
                memory.address().offset(GUARD + first * dtype.size())
            };
            let addresses = |operands: &[StageOperand], firsts: Vec<usize>, dtypes: Vec<DType>| -> Vec<_> {
                let all = operands.iter().zip(firsts).zip(dtypes);
                all.map(|((operand, first), dtype)| address(operand.holder, first, dtype)).collect()
            };
            let from = addresses(
                &stage.inputs,
                part.inputs.iter().map(|input| input.first).collect(),
                stage.program.input_dtypes.clone(),
            );
            let to = addresses(
                &stage.outputs,
                part.outputs.iter().map(|output| output.first).collect(),
                stage.program.outputs.iter().map(|(_, dtype)| *dtype).collect(),
            );
            let function = self.generated(&kernel)?;
            let arguments = kernel.arguments(&from, &to);
            // SAFETY: the kernel was generated for these operands, which are in memory of the sizes that it reaches.
            unsafe { function.launch(&self.stream, &kernel.shape, &arguments) }.map_err(|error| error.to_string())?;
        }
        self.stream.synchronize().map_err(|error| error.to_string())?;
        temporaries.iter().map(|memory| self.inside(memory)).collect::<Result<Vec<_>, _>>()?;
        let read = |memories: &[DeviceMemory]| -> Result<Vec<Vec<u8>>, String> {
            memories.iter().map(|memory| self.inside(memory)).collect()
        };
        Ok(Memories { inputs: read(&inputs)?, outputs: read(&outputs)? })
    }

    /// What a memory holds, if nothing was written around it.
    fn inside(&self, memory: &DeviceMemory) -> Result<Vec<u8>, String> {
        let all = self.download(memory);
        let (start, rest) = all.split_at(GUARD);
        let (bytes, end) = rest.split_at(rest.len() - GUARD);
        let intact = start.iter().chain(end).all(|&byte| byte == GUARD_BYTE);
        if intact { Ok(bytes.to_vec()) } else { Err("bytes outside of an operand were written".to_owned()) }
    }

    /// Shared memory of a block, and whether there are clusters.
    fn limits(&self) -> (usize, bool) {
        let device = self.context.device();
        (device.shared_bytes_per_block, device.compute_capability.0 >= 9)
    }
}

/// Runs every case, for a small and a large shared memory where that makes two kernels, and says which ones fail.
fn run(list: &[Case]) {
    let Some(device) = device() else { return };
    let mut failures = Vec::new();
    let most = device.context.device().shared_bytes_per_block;
    let mut kernels = 0;
    for case in list {
        let mut last: Option<GeneratedKernel> = None;
        let clusters = device.context.device().compute_capability.0 >= 9;
        for (shared_bytes, clusters) in [(most, clusters), (most, false), (48 << 10, false)] {
            let kernel = match case.generate_for(shared_bytes, clusters) {
                Ok(kernel) => kernel,
                Err(error) => {
                    failures.push(format!("{}: {error}", case.name));
                    continue;
                }
            };
            if last.as_ref() == Some(&kernel) {
                continue;
            }
            kernels += 1;
            if let Err(failure) = device.check(case, &kernel) {
                let first = kernel.source.lines().next().unwrap_or_default();
                failures.push(format!("{} over {:?}: {failure}\n    {first}", case.name, case.shape));
            }
            last = Some(kernel);
        }
    }
    println!("{kernels} kernels");
    if !failures.is_empty() {
        let shown: Vec<&str> = failures.iter().take(25).map(String::as_str).collect();
        panic!("{} of {kernels} kernels fail:\n{}", failures.len(), shown.join("\n"));
    }
}

#[test]
fn operations_equal_the_hosts() {
    run(&cases::operations());
}

#[test]
fn conversions_equal_the_hosts() {
    run(&cases::conversions());
}

#[test]
fn layouts_of_all_kinds() {
    run(&cases::layouts());
}

#[test]
fn rows_of_every_length() {
    run(&cases::rows());
}

#[test]
fn random_programs_over_random_layouts() {
    run(&cases::random(300));
}

/// The parts that blocks leave add up to the sums of the host's rows, the same in each run.
#[test]
fn sums_of_columns() {
    let Some(device) = device() else { return };
    let (most, clusters) = device.limits();
    for case in cases::column_sums() {
        let kernel = case.generate_for(most, clusters).unwrap();
        let (before, whole) = (Memories::new(&case), case.whole());
        let found = device.launch(&case, &kernel, &before).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        assert!(device.launch(&case, &kernel, &before).unwrap() == found, "{}: two runs differ", case.name);
        let mut expected = Memories::new(&whole).run(&whole);
        let mut sums = found.clone();
        for (index, output) in case.outputs.iter().enumerate().filter(|(_, output)| output.summed) {
            let width = case.shape[case.shape.len() - 1];
            let (parts, rest) = found.outputs[index].split_at(4 * kernel.parts * width);
            assert!(rest.iter().all(|byte| *byte == 0x5C), "{}: parts behind the last one", case.name);
            assert_eq!(output.elements, cases::MOST_PARTS * width);
            (sums.outputs[index], expected.outputs[index]) =
                (added(parts, width), added(&expected.outputs[index], width));
        }
        differences(&whole, &sums, &expected).unwrap_or_else(|error| panic!("{}: {error}", case.name));
    }
}

/// The sums of the columns of an f32 matrix.
fn added(matrix: &[u8], width: usize) -> Vec<u8> {
    let mut sums = vec![0f64; width];
    for (at, bytes) in matrix.chunks(4).enumerate() {
        sums[at % width] += f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    }
    sums.iter().flat_map(|sum| (*sum as f32).to_le_bytes()).collect()
}

#[test]
fn few_long_rows_in_stages() {
    let Some(device) = device() else { return };
    let lists = [(cases::staged(1000), Some(64)), (cases::staged(40_003), Some(4096)), (cases::staged(1 << 20), None)];
    for (list, length) in lists {
        for case in &list {
            let stages = case.stages(length).unwrap();
            let before = Memories::new(case);
            let expected = before.clone().run(case);
            let found = device.launch_stages(case, &stages, &before).unwrap();
            differences(case, &found, &expected).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            let again = device.launch_stages(case, &stages, &before).unwrap();
            assert!(again == found, "{}: two runs differ", case.name);
        }
    }
}

/// The race of a value that is read by all threads and written over by one shows only now and then.
#[test]
fn one_row_over_its_value_under_load() {
    let Some(device) = device() else { return };
    let (most, clusters) = device.limits();
    for case in cases::one_row_over_its_value() {
        let kernel = case.generate_for(most, clusters).unwrap();
        for _ in 0..50 {
            device.check(&case, &kernel).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        }
    }
}
