//! The kernels of `decode`, `flash`, `liger`, `llmc`, `optim` and `unsloth` without a device: every sample of what they
//! run is planned, and what the plans launch is compiled. NVRTC is enough; without it this is said aloud.

use fulgurite_runtime::kernel::KernelRules;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::tracer::decompose;
use fulgurite_runtime::tracer::rules::TracingRules;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_executors as _;
use fulgurite_runtime::argument::{Arg, map_arguments};
use fulgurite_runtime::device::{Address, Command, DeviceTensor, Parameter, Place, Plan, Source};
use fulgurite_runtime::executor::find_implementation;
use fulgurite_runtime::kernels::cuda::{Compilation, KernelCache, nvrtc};
use fulgurite_runtime::kernels::view::contiguous_strides;
use fulgurite_runtime::operator::{OperatorDef, OperatorKind};
use fulgurite_runtime::registry::operators;
use fulgurite_runtime::testing::in_part;
use fulgurite_runtime::testing::samples::Samples;
use fulgurite_runtime::{DType, Device, TensorMeta};

const EXECUTORS: [&str; 6] = ["decode", "flash", "liger", "llmc", "optim", "unsloth"];

/// With this variable set to 1 a machine without NVRTC fails.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

/// A launch that was planned: the kernel, the sizes of its arguments, and for what call.
struct Launch {
    kernel: String,
    sizes: Vec<usize>,
    call: String,
}

/// The work of a call by kernels of `executor`; `None` if it has none for it. `aligned` says whether tensors start at
/// multiples of more than their elements' size.
fn planned(
    def: &'static OperatorDef,
    executor: &str,
    metas: &[Arg<TensorMeta>],
    architecture: &str,
    aligned: bool,
) -> Option<Plan> {
    let rule = match def.kind {
        OperatorKind::Symbol(owners) => KernelRules::of(def).plan.filter(|_| owners.contains(&executor))?,
        _ => {
            let own = find_implementation(def.name, executor)?;
            own.kernel.plan.filter(|_| (own.checker)(metas).is_ok())?
        }
    };
    let tensor = |meta: &TensorMeta, place: Place| DeviceTensor {
        meta: meta.clone(),
        strides: contiguous_strides(meta.shape()),
        address: Address { place, offset: 0 },
        alignment: if aligned { 64 } else { meta.dtype().size() },
    };
    let mut operands = 0..;
    let arguments = map_arguments(metas, |meta| tensor(meta, Place::Operand(operands.next().unwrap_or(0))));
    let results: Vec<TensorMeta> = match TracingRules::of(def).meta {
        Some(meta) => meta(metas).unwrap_or_else(|failure| panic!("{}: {failure}", def.name)),
        // Those of what it decomposes to.
        None => {
            let block = decompose(def, metas).unwrap_or_else(|error| panic!("{}: {error}", def.name));
            block.results.iter().map(|id| block.meta(*id).clone()).collect()
        }
    };
    let results: Vec<DeviceTensor> = results.iter().zip(0..).map(|(meta, n)| tensor(meta, Place::Result(n))).collect();
    let mut plan = Plan::of(&format!("cuda:{architecture}").parse().expect("a target")).expect("a kind");
    rule(&mut plan, &arguments, &results).unwrap_or_else(|failure| panic!("{}: {failure}", def.name));
    Some(plan)
}

/// Every source that the executors' kernels come from, and what is launched from it.
fn launches(architecture: &str, aligned: bool) -> BTreeMap<String, (Arc<Source>, Vec<Launch>)> {
    let mut found: BTreeMap<String, (Arc<Source>, Vec<Launch>)> = BTreeMap::new();
    let device = Device::new("cuda", 0);
    for (executor, def) in EXECUTORS.iter().flat_map(|executor| operators().into_iter().map(move |def| (executor, def)))
    {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            for (i, sample) in Samples::of_operator(def, dtype).into_iter().enumerate() {
                let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(device));
                let Some(plan) = planned(def, executor, &metas, architecture, aligned) else { continue };
                for command in plan.into_commands() {
                    let Command::Launch { source, kernel, parameters, shape } = command else { continue };
                    let call = format!("{} in {dtype}, sample {i}, by {executor}", def.name);
                    assert!(shape.grid.iter().chain(&shape.block).all(|extent| *extent > 0), "{call}: {shape:?}");
                    let sizes = parameters.iter().map(Parameter::bytes).collect();
                    let key = format!("{} {:?} {}", source.name, source.options, source.text);
                    found.entry(key).or_insert((source, Vec::new())).1.push(Launch { kernel, sizes, call });
                }
            }
        }
    }
    assert!(found.len() > 50, "{} sources", found.len());
    found
}

/// What is wrong with a source and its launches: it does not compile, uses local memory, or takes other arguments than
/// it is given.
fn problems_of(source: &Source, launches: &[Launch], architecture: &str) -> Vec<String> {
    let (name, text, options) = (&*source.name, &*source.text, &source.options[..]);
    let cubin = match KernelCache::global().compile(&Compilation { name, source: text, architecture, options }) {
        Ok(cubin) => cubin,
        Err(error) => return vec![format!("{}, {options:?}: {error}", launches[0].call)],
    };
    let spilling = cubin.kernels().iter().filter(|kernel| kernel.uses_local_memory());
    let spilling = spilling.map(|kernel| format!("{}, {options:?} uses local memory: {kernel:?}", launches[0].call));
    let differing = launches.iter().filter_map(|Launch { kernel, sizes: given, call }| {
        let own = cubin.kernels().iter().find(|own| own.name == *kernel);
        let sizes = own.map(|own| own.parameters.iter().map(|own| own.bytes).collect::<Vec<_>>());
        (sizes.as_ref() != Some(given)).then(|| format!("{call}: {kernel} takes {sizes:?} bytes, is given {given:?}"))
    });
    spilling.chain(differing).collect()
}

/// A part of the sources: of each kernel file and executor the first and the last, and those that [`in_part`] takes.
fn part(sources: Vec<(Arc<Source>, Vec<Launch>)>) -> Vec<(Arc<Source>, Vec<Launch>)> {
    let mut files: BTreeMap<String, Vec<(Arc<Source>, Vec<Launch>)>> = BTreeMap::new();
    for (source, launches) in sources {
        let by = launches[0].call.rsplit(' ').next().unwrap_or_default().to_owned();
        files.entry(format!("{} {by}", source.name)).or_default().push((source, launches));
    }
    let of_file = |sources: Vec<(Arc<Source>, Vec<Launch>)>| {
        let last = sources.len() - 1;
        let taken =
            move |(i, (source, _)): &(usize, (Arc<Source>, Vec<Launch>))| *i == 0 || *i == last || in_part(source);
        sources.into_iter().enumerate().filter(taken).map(|(_, source)| source)
    };
    files.into_values().flat_map(of_file).collect()
}

/// The problems of the sources, which several threads compile: one source takes seconds.
fn problems(architecture: &str, aligned: bool) -> Vec<String> {
    let all: Vec<(Arc<Source>, Vec<Launch>)> = launches(architecture, aligned).into_values().collect();
    let found = all.len();
    let sources = part(all);
    println!("{architecture}: {} of {found} sources", sources.len());
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let compile = || {
        while let Some((source, launches)) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = problems_of(source, launches, architecture);
            wrong.lock().expect("no thread panicked").extend(found);
        }
    };
    // One test at a time: each of the compilations takes memory.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(16) {
            scope.spawn(compile);
        }
    });
    let mut wrong = wrong.into_inner().expect("no thread panicked");
    wrong.sort();
    wrong
}

fn check(architecture: &str, aligned: bool) {
    if let Err(error) = nvrtc::version() {
        assert!(std::env::var(REQUIRE_NVRTC).map_or(true, |value| value != "1"), "{error}");
        println!("skipped: {error}");
        launches(architecture, aligned);
        return;
    }
    let wrong = problems(architecture, aligned);
    assert!(
        wrong.is_empty(),
        "{} problems, the first of them\n{}",
        wrong.len(),
        wrong[..wrong.len().min(6)].join("\n")
    );
}

#[test]
fn every_source_compiles_for_ampere() {
    check("sm_80", true);
}

#[test]
fn every_source_compiles_for_hopper() {
    check("sm_90a", true);
}

#[test]
fn every_source_compiles_for_tensors_that_start_anywhere() {
    check("sm_90a", false);
}

/// A cache that starts anywhere is read and written in a copy, which the results are taken from.
#[test]
fn an_unaligned_cache_is_not_read_by_rows() {
    let def = &fulgurite_ops::nn::extend_and_attend::OPERATOR;
    let mut plans = 0;
    for sample in Samples::of_operator(def, DType::BF16) {
        let metas = map_arguments(&sample.arguments, |tensor| tensor.meta(Device::new("cuda", 0)));
        let Some(plan) = planned(def, "decode", &metas, "sm_90a", false) else { continue };
        plans += 1;
        let commands = plan.into_commands();
        let at = commands.iter().position(|c| matches!(c, Command::Launch { kernel, .. } if kernel == "attend"));
        let at = at.expect("it attends");
        let Command::Launch { parameters, .. } = &commands[at] else { unreachable!() };
        let raw = parameters.iter().filter_map(|parameter| match parameter {
            Parameter::Address(Address { place: place @ (Place::Operand(_) | Place::Result(_)), .. }) => Some(*place),
            _ => None,
        });
        // The third result is what attention gives, and is written by element.
        assert_eq!(raw.collect::<Vec<_>>(), [Place::Result(2)]);
        let copied = commands[at + 1..].iter().filter_map(|command| match command {
            Command::Copy { to, .. } => Some(to.place),
            _ => None,
        });
        assert_eq!(copied.collect::<Vec<_>>(), [Place::Result(0), Place::Result(1)]);
    }
    assert!(plans > 2, "{plans} plans");
}
