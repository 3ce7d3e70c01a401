//! The hand-written kernels of `cuda`, without a device: every plan of every sample compiles, keeps to registers, and
//! launches kernels that exist with the parameters that they have.

use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::tracer::rules::TracingRules;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use super::common::{accepted, report};
use fulgurite_executors as _;
use fulgurite_runtime::argument::{Arg, Attribute, AttributeType, Scalar, map_arguments};
use fulgurite_runtime::device::Place;
use fulgurite_runtime::device::{Address, Command, DeviceTensor, Parameter, Plan, Source};
use fulgurite_runtime::executor::find_implementation;
use fulgurite_runtime::kernels::cuda::{Compilation, KernelCache, KernelResources, nvrtc};
use fulgurite_runtime::kernels::view::contiguous_strides;
use fulgurite_runtime::operator::OperatorDef;
use fulgurite_runtime::registry::{find_operator, operators};
use fulgurite_runtime::testing::in_part;
use fulgurite_runtime::{DType, Device, TensorMeta};

/// Architectures, and which part of the sources each compiles: every one, or one of so many. Sources ask for no feature
/// of one architecture, so a part tells what there is to tell about the others.
const ARCHITECTURES: [(&str, usize); 2] = [("sm_90a", 1), ("sm_80", 4)];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Layout {
    Contiguous,
    /// With their dimensions in reverse order in memory.
    Reversed,
    /// Aligned for one element.
    Unaligned,
}

/// A plan, and what it was made for.
struct Planned {
    what: String,
    commands: Vec<Command>,
    workspace: u64,
}

fn tensor(meta: &TensorMeta, place: Place, layout: Layout) -> DeviceTensor {
    let mut strides = contiguous_strides(meta.shape());
    if layout == Layout::Reversed {
        let reversed: Vec<usize> = meta.shape().iter().rev().copied().collect();
        strides = contiguous_strides(&reversed);
        strides.reverse();
    }
    let alignment = if layout == Layout::Unaligned { meta.dtype().size() } else { 256 };
    DeviceTensor { meta: meta.clone(), strides, address: Address { place, offset: 0 }, alignment }
}

/// The plan of a call on the first architecture; sources do not depend on it.
fn planned(def: &OperatorDef, arguments: &[Arg<TensorMeta>], layout: Layout) -> Option<Planned> {
    let implementation = find_implementation(def.name, "cuda")?;
    let rule = implementation.kernel.plan?;
    let layout = if implementation.kernel.strided || layout != Layout::Reversed { layout } else { Layout::Contiguous };
    let metas = TracingRules::of(def).meta.expect("a prim has a meta")(arguments).expect("the arguments are right");
    let results: Vec<DeviceTensor> =
        metas.iter().enumerate().map(|(i, meta)| tensor(meta, Place::Result(i as u32), Layout::Contiguous)).collect();
    let mut operand = 0;
    let arguments = map_arguments(arguments, |meta| {
        operand += 1;
        tensor(meta, Place::Operand(operand - 1), layout)
    });
    let mut plan = Plan::of(&format!("cuda:{}", ARCHITECTURES[0].0).parse().expect("a target")).expect("a kind");
    let what = format!("{} {layout:?} {arguments:?}", def.name);
    rule(&mut plan, &arguments, &results).unwrap_or_else(|failure| panic!("{what}: {}", failure.message));
    let workspace = plan.workspace_bytes();
    Some(Planned { what, commands: plan.into_commands(), workspace })
}

fn number(value: i64) -> Arg<TensorMeta> {
    Arg::Attribute(Attribute::Scalar(Scalar::Int(value)))
}

/// Calls that are too large for samples, which take other paths.
fn large(dtype: DType) -> Vec<(&'static str, Vec<Arg<TensorMeta>>)> {
    let of = |dtype: DType, shape: &[usize]| Arg::Tensor(TensorMeta::new(shape, dtype, Device::CPU));
    let truth = Arg::Attribute(Attribute::Scalar(Scalar::Bool(true)));
    if dtype == DType::Bool {
        return Vec::new();
    }
    let mut weights = Vec::new();
    if dtype.is_floating() {
        // More rows than a launch has blocks, and a number of them whose lower half is zero.
        weights.push(("check_weights", vec![of(dtype, &[1 << 32, 2])]));
    }
    let others = vec![
        // The gradient of GPT-2's embedding.
        ("index_add", vec![of(dtype, &[50257, 768]), number(0), of(DType::I64, &[65536]), of(dtype, &[65536, 768])]),
        ("index_add", vec![of(dtype, &[3, 500, 7]), number(1), of(DType::I32, &[300]), of(dtype, &[3, 300, 7])]),
        ("scatter_add", vec![of(dtype, &[100]), number(0), of(DType::I64, &[5000]), of(dtype, &[5000])]),
        ("scatter_add", vec![of(dtype, &[70_000, 70_000]), number(1), of(DType::U8, &[7, 300]), of(dtype, &[7, 300])]),
        ("scatter", vec![of(dtype, &[70_000, 70_000]), number(1), of(DType::U8, &[7, 300]), of(dtype, &[7, 300])]),
        ("index_select", vec![of(dtype, &[50257, 768]), number(0), of(DType::I64, &[65536])]),
        ("argmax", vec![of(dtype, &[4, 1 << 20]), number(1)]),
        ("argmax", vec![of(dtype, &[300, 4096]), number(0)]),
        ("cumsum", vec![of(dtype, &[100, 100_000]), number(0)]),
        ("cumprod", vec![of(dtype, &[3, 10_000_000]), number(1)]),
        ("cummax", vec![of(dtype, &[10_000_000, 3]), number(0)]),
        ("scatter_amax", vec![of(dtype, &[100]), number(0), of(DType::I64, &[5000]), of(dtype, &[5000])]),
        ("searchsorted", vec![of(dtype, &[1 << 20]), of(dtype, &[1 << 16, 1 << 16]), truth.clone()]),
        ("topk", vec![of(dtype, &[8, 5000]), number(4000), number(1), truth.clone()]),
        ("topk", vec![of(dtype, &[1, 1 << 24]), number(100), number(1), truth.clone()]),
        ("topk", vec![of(dtype, &[3, 1 << 24]), number(1000), number(1), truth]),
        ("matmul", vec![of(dtype, &[70_000, 3, 5]), of(dtype, &[70_000, 5, 4]), Arg::Attribute(Attribute::None)]),
        ("gather", vec![of(dtype, &[1 << 16, 1 << 16]), number(1), of(DType::I64, &[1 << 16, 1 << 16])]),
    ];
    weights.into_iter().chain(others).collect()
}

/// Each layout with a type or two of its own: strides and alignment do not depend on the arithmetic.
fn layouts(dtype: DType) -> &'static [Layout] {
    match dtype {
        DType::F32 | DType::U8 => &[Layout::Contiguous, Layout::Reversed],
        DType::BF16 => &[Layout::Contiguous, Layout::Unaligned],
        _ => &[Layout::Contiguous],
    }
}

fn plans() -> Vec<Planned> {
    let mut plans = Vec::new();
    for def in operators() {
        for dtype in DType::REAL {
            for sample in accepted(def, dtype) {
                let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::CPU));
                plans.extend(layouts(dtype).iter().filter_map(|layout| planned(def, &metas, *layout)));
            }
        }
    }
    for (name, arguments) in DType::REAL.into_iter().flat_map(large) {
        let def = find_operator(&format!("prims::{name}")).unwrap_or_else(|error| panic!("{error}"));
        plans.extend(planned(def, &arguments, Layout::Contiguous));
    }
    plans
}

/// Places are within their tensors and the workspace, as far as a plan shows it.
fn is_placed(address: &Address, workspace: u64) -> bool {
    address.place != Place::Workspace || address.offset <= workspace
}

/// Whether a launch fits the kernel that it names.
fn check_launch(command: &Command, kernels: &[KernelResources], workspace: u64) -> Result<(), String> {
    let Command::Launch { kernel, shape, parameters, .. } = command else { return Ok(()) };
    let found = kernels.iter().find(|found| found.name == *kernel).ok_or_else(|| format!("there is no {kernel}"))?;
    if found.uses_local_memory() {
        return Err(format!(
            "{kernel} uses local memory, {} bytes of stack and {} registers",
            found.stack_bytes, found.registers
        ));
    }
    let given: Vec<usize> = parameters.iter().map(Parameter::bytes).collect();
    let wanted: Vec<usize> = found.parameters.iter().map(|parameter| parameter.bytes).collect();
    if given != wanted {
        return Err(format!("{kernel} takes parameters of {wanted:?} bytes, the launch gives {given:?}"));
    }
    for parameter in parameters {
        if let Parameter::Address(address) = parameter
            && !is_placed(address, workspace)
        {
            return Err(format!("{kernel} gets {address:?}, beyond the workspace of {workspace} bytes"));
        }
    }
    let threads: u32 = shape.block.iter().product();
    let [x, y, z] = shape.grid;
    let fits = (1..=1024).contains(&threads)
        && threads * found.registers.next_multiple_of(8) <= 65_536
        && found.shared_bytes + shape.shared_bytes <= 48 << 10
        && (1..=i32::MAX as u32).contains(&x)
        && (1..=65_535).contains(&y)
        && (1..=65_535).contains(&z);
    if fits { Ok(()) } else { Err(format!("{kernel} is launched as {shape:?}, {found:?}")) }
}

/// The kernels of every source, compiled on all processors.
fn compiled(sources: &[Arc<Source>], architecture: &str) -> Result<HashMap<Arc<Source>, Vec<KernelResources>>, String> {
    let next = Mutex::new(sources.iter());
    let (done, failed) = (Mutex::new(HashMap::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(source) = next.lock().expect("no panics").next() else { return };
                    let compilation = Compilation {
                        name: &source.name,
                        source: &source.text,
                        architecture,
                        options: &source.options,
                    };
                    match KernelCache::global().compile(&compilation) {
                        Ok(cubin) => {
                            done.lock().expect("no panics").insert(source.clone(), cubin.kernels().to_vec());
                        }
                        Err(error) => failed.lock().expect("no panics").push(format!("{:?}: {error}", source.options)),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panics");
    if failed.is_empty() { Ok(done.into_inner().expect("no panics")) } else { Err(failed.join("\n")) }
}

#[test]
fn every_plan_compiles_and_fits_its_kernels() {
    if let Err(error) = nvrtc::version() {
        assert!(!std::env::var("FULGURITE_REQUIRE_NVRTC").is_ok_and(|value| value == "1"), "{error}");
        println!("skipped: {error}");
        return;
    }
    let plans = plans();
    let mut seen = HashSet::new();
    let mut sources = Vec::new();
    for command in plans.iter().flat_map(|plan| &plan.commands) {
        if let Command::Launch { source, .. } = command
            && seen.insert(source.clone())
        {
            sources.push(source.clone());
        }
    }
    println!("{} plans, {} sources", plans.len(), sources.len());
    assert!(plans.len() > 1000, "only {} plans", plans.len());
    for (architecture, step) in ARCHITECTURES {
        let chosen: Vec<Arc<Source>> = sources.iter().filter(|source| in_part(source)).step_by(step).cloned().collect();
        let kernels = compiled(&chosen, architecture).unwrap_or_else(|errors| panic!("{errors}"));
        let mut failures = Vec::new();
        for plan in &plans {
            for command in &plan.commands {
                let Command::Launch { source, .. } = command else { continue };
                let Some(kernels) = kernels.get(source) else { continue };
                if let Err(message) = check_launch(command, kernels, plan.workspace) {
                    failures.push(format!("{architecture} {message}: {}", plan.what));
                }
            }
        }
        report(failures, plans.len());
    }
}

/// From 2^31 elements on indices have 64 bits. No memory is needed: the plan is looked at.
#[test]
fn indices_of_two_to_the_31_elements_have_64_bits() {
    let of = |dtype: DType, shape: &[usize]| Arg::Tensor(TensorMeta::new(shape, dtype, Device::CPU));
    let sizes = |list: [usize; 1]| Arg::Attribute(AttributeType::to_attribute(&list.to_vec()));
    let limit = 1usize << 31;
    for (count, wide) in [(limit - 256, false), (limit, true), (3 * limit, true)] {
        let half = count / 2;
        let calls: Vec<(&str, Vec<Arg<TensorMeta>>)> = vec![
            ("index_select", vec![of(DType::U8, &[9]), number(0), of(DType::U8, &[count])]),
            ("gather", vec![of(DType::U8, &[count]), number(0), of(DType::U8, &[count])]),
            ("index_add", vec![of(DType::U8, &[9, 7]), number(0), of(DType::U8, &[1]), of(DType::U8, &[1, 7])]),
            (
                "scatter_add",
                vec![of(DType::U8, &[2, half]), number(0), of(DType::U8, &[2, half]), of(DType::U8, &[2, half])],
            ),
            ("pad", vec![of(DType::U8, &[count - 1]), sizes([1]), sizes([0]), number(0)]),
        ];
        for (name, arguments) in calls {
            let def = find_operator(&format!("prims::{name}")).unwrap_or_else(|error| panic!("{error}"));
            // Aligned for one element, so that there is one index an element.
            let Some(plan) = planned(def, &arguments, Layout::Unaligned) else { panic!("cuda has no {name}") };
            let chosen: Vec<&str> = (plan.commands.iter())
                .filter_map(|command| match command {
                    Command::Launch { source, .. } => {
                        source.text.lines().find_map(|line| line.strip_prefix("#define INDEX "))
                    }
                    _ => None,
                })
                .collect();
            assert!(!chosen.is_empty(), "{name}: no kernel says the type of its indices");
            let expected = if wide && name != "index_add" { "u64" } else { "u32" };
            assert!(chosen.iter().all(|index| *index == expected), "{name} of {count} elements: {chosen:?}");
        }
    }
}
