//! `doctor`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite::choices::{Blamed, Kept, Machine, Records};
use fulgurite::device::{DeviceKind, device_kinds};
use fulgurite::executor::{ExecutorDef, OptionDef, executors, implementations, rewrites};
use fulgurite::kernels::cuda::{self, LibraryState, Probe, probe};
use fulgurite::operator::OperatorKind;
use fulgurite::registry::operators;
use fulgurite::trace::print::VERSION as TRACE_VERSION;
use fulgurite_rates::Rates;
use serde::Serialize;

use super::log;
use super::outcome::Outcome;
use super::output::{say, say_json};
use super::system::{self, Memory};

/// Arguments of `doctor`.
#[derive(Args)]
#[command(after_help = "Examples:\n  fulgurite doctor\n  fulgurite doctor --json")]
pub struct Arguments {
    /// As JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    trace_text_version: u32,
    build: &'static str,
    platform: String,
    processor: Option<String>,
    cpu_features: Vec<&'static str>,
    threads: usize,
    memory: Option<Memory>,
    devices: Vec<Device>,
    libraries: Vec<Library>,
    executors: Vec<Executor>,
    operators: Operators,
    caches: Vec<Cache>,
    choices: Vec<Choices>,
    rates: Vec<KeptRates>,
    ended: Vec<Ended>,
    log: Option<String>,
}

/// A library that is looked for at run time, and what was found.
#[derive(Serialize)]
pub(super) struct Library {
    name: &'static str,
    found: bool,
    path: Option<PathBuf>,
    version: Option<String>,
    reason: Option<String>,
}

#[derive(Serialize)]
struct Device {
    kind: &'static str,
    count: usize,
    models: Vec<String>,
    usable: bool,
    reason: Option<String>,
}

#[derive(Serialize)]
struct Executor {
    name: &'static str,
    device: &'static str,
    priority: Option<u32>,
    version: &'static str,
    docs: &'static str,
    options: Vec<ExecutorOption>,
}

#[derive(Serialize)]
struct ExecutorOption {
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    default: String,
    docs: &'static str,
}

#[derive(Serialize)]
struct Operators {
    prims: usize,
    composites: usize,
    symbols: usize,
    implementations: usize,
    rewrites: usize,
    mirroring_torch: usize,
}

#[derive(Serialize)]
struct Cache {
    name: &'static str,
    path: Option<String>,
    reason: &'static str,
}

/// The records of measured choices of one device.
#[derive(Serialize)]
struct Choices {
    device: String,
    target: String,
    libraries: String,
    records: usize,
    /// Whether programs of this build follow them on a device of this machine.
    followed: bool,
}

/// What a device does at most in a second, as it was measured.
#[derive(Serialize)]
struct KeptRates {
    device: String,
    /// None where this version has measured nothing yet with this driver and these libraries.
    kept: Option<Rates>,
}

/// A candidate that ended the process that compiled or ran it.
#[derive(Serialize)]
struct Ended {
    call: String,
    candidate: String,
    reason: String,
    /// Whether the next process that measures the call skips it.
    skipped: bool,
}

/// Says what there is.
pub fn run(arguments: &Arguments) -> Outcome {
    let report = report();
    if arguments.json {
        say_json(&report)?;
    } else {
        in_words(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn report() -> Report {
    let mut list: Vec<&'static ExecutorDef> = executors();
    list.sort_by_key(|executor| (executor.device, executor.priority.is_none(), executor.priority, executor.name));
    Report {
        version: env!("CARGO_PKG_VERSION"),
        trace_text_version: TRACE_VERSION,
        build: fulgurite::BUILD,
        platform: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        processor: fulgurite_kernels::machine::processor(),
        cpu_features: system::cpu_features(),
        threads: std::thread::available_parallelism().map_or(1, |threads| threads.get()),
        memory: system::memory(),
        devices: devices(&list),
        libraries: libraries(),
        executors: list
            .iter()
            .map(|executor| Executor {
                name: executor.name,
                device: executor.device,
                priority: executor.priority,
                version: executor.version,
                docs: executor.docs.trim(),
                options: executor.options.iter().map(|option| of_executor(*option)).collect(),
            })
            .collect(),
        operators: count_operators(),
        caches: vec![kernel_cache(), choices_cache()],
        choices: choices(),
        rates: rates(),
        ended: ended(),
        log: std::env::var(log::VARIABLE).ok(),
    }
}

fn of_executor(option: &dyn OptionDef) -> ExecutorOption {
    ExecutorOption {
        name: option.path(),
        type_name: option.type_name(),
        default: option.default().to_string(),
        docs: option.docs(),
    }
}

fn devices(executors: &[&'static ExecutorDef]) -> Vec<Device> {
    let runs_on = |kind: &str| executors.iter().any(|executor| executor.device == kind);
    let host = Device {
        kind: "cpu",
        count: 1,
        models: Vec::new(),
        usable: runs_on("cpu"),
        reason: (!runs_on("cpu")).then(|| "no executor for the host is linked".into()),
    };
    let of = |kind: &'static dyn DeviceKind| {
        let count = kind.count();
        let models: Vec<String> = (0..count.as_ref().map_or(0, |count| *count))
            .filter_map(|ordinal| Some(kind.properties(ordinal).ok()?.model))
            .collect();
        let reason = match count {
            _ if !runs_on(kind.name()) => Some(format!("this build has no executor for '{}'", kind.name())),
            Err(error) => Some(error.to_string()),
            Ok(0) => Some("there is no device".into()),
            Ok(_) => kind.complete().err().map(|error| error.to_string()),
        };
        Device { kind: kind.name(), count: models.len(), usable: reason.is_none(), models, reason }
    };
    std::iter::once(host).chain(device_kinds().into_iter().map(of)).collect()
}

/// The libraries of CUDA and what was found of them.
pub(super) fn libraries() -> Vec<Library> {
    let Probe { driver, nvrtc, cublaslt, nccl, cudnn, .. } = probe();
    let library = |library: &cuda::Library| match &library.state {
        LibraryState::Found { path, version } => {
            let version = version.map(|version| version.to_string());
            Library { name: library.name, found: true, path: path.clone(), version, reason: None }
        }
        LibraryState::Missing { reason, advice } => {
            let reason = Some(format!("{reason}; {advice}"));
            Library { name: library.name, found: false, path: None, version: None, reason }
        }
    };
    [driver, nvrtc, cublaslt, nccl, cudnn].map(library).into()
}

fn kernel_cache() -> Cache {
    let path = cuda::KernelCache::global().folder().map(|folder| folder.display().to_string());
    let reason = match path {
        Some(_) => "compiled CUDA kernels; it may be deleted at any time",
        None => "no folder for caches is known on this system; compiled CUDA kernels are kept in memory only",
    };
    Cache { name: "kernels", path, reason }
}

fn choices_cache() -> Cache {
    let path = Records::cache().map(|folder| folder.display().to_string());
    let reason = match path {
        Some(_) => "the fastest implementations, as they were measured; it may be deleted at any time",
        None => "no folder for caches is known on this system; measured choices are forgotten",
    };
    Cache { name: "choices", path, reason }
}

/// The records below the cache, counted by what they belong to.
fn choices() -> Vec<Choices> {
    let here: Vec<Machine> = devices_here().filter_map(|device| Machine::of(device).ok()).collect();
    let mut counted: Vec<Choices> = Vec::new();
    for Kept { entry, .. } in Records::cache().map_or_else(Vec::new, |folder| Records::kept(&folder)) {
        let Ok(entry) = entry else { continue };
        let machine = Machine { device: entry.device, libraries: entry.libraries };
        let followed = here.contains(&machine) && entry.version == env!("CARGO_PKG_VERSION");
        let Machine { device, libraries } = machine;
        let same = |known: &&mut Choices| {
            (&known.device, &known.target, &known.libraries, known.followed)
                == (&device, &entry.target, &libraries, followed)
        };
        match counted.iter_mut().find(same) {
            Some(known) => known.records += 1,
            None => counted.push(Choices { device, target: entry.target, libraries, records: 1, followed }),
        }
    }
    counted
}

/// The devices of this machine, the host first.
fn devices_here() -> impl Iterator<Item = fulgurite::Device> {
    let devices = device_kinds().into_iter().flat_map(|kind| {
        let all = 0..kind.count().unwrap_or(0);
        all.map(|ordinal| fulgurite::Device::new(kind.name(), ordinal))
    });
    std::iter::once(fulgurite::Device::CPU).chain(devices)
}

/// The kept rates of the devices of this machine.
fn rates() -> Vec<KeptRates> {
    let of = |device: fulgurite::Device| {
        let kept = Rates::recorded(device).ok()?;
        Some(KeptRates { device: device.to_string(), kept })
    };
    devices_here().filter_map(of).collect()
}

/// The candidates that ended a process.
fn ended() -> Vec<Ended> {
    let all = Records::cache().map_or_else(Vec::new, |folder| Records::ended(&folder));
    let ended = |Blamed { call, candidate, reason, skipped }| Ended { call, candidate, reason, skipped };
    all.into_iter().map(ended).collect()
}

fn count_operators() -> Operators {
    let count = |of: fn(&OperatorKind) -> bool| operators().into_iter().filter(|def| of(&def.kind)).count();
    Operators {
        prims: count(|kind| *kind == OperatorKind::Prim),
        composites: count(|kind| *kind == OperatorKind::Composite),
        symbols: count(|kind| matches!(kind, OperatorKind::Symbol(_))),
        implementations: implementations().len(),
        rewrites: rewrites().len(),
        mirroring_torch: operators().into_iter().filter(|def| def.torch.is_some()).count(),
    }
}

fn in_words(report: &Report) -> Result<(), super::outcome::Failed> {
    let gibibytes = |bytes: u64| bytes as f64 / f64::from(1u32 << 30);
    say!("fulgurite {} ({}, trace text version {})", report.version, report.build, report.trace_text_version)?;
    let processor = report.processor.as_deref().unwrap_or("unknown processor");
    say!("machine      {}, {processor}, {} threads", report.platform, report.threads)?;
    say!(
        "vectors      {}",
        if report.cpu_features.is_empty() { "none".into() } else { report.cpu_features.join(" ") }
    )?;
    match &report.memory {
        Some(memory) => {
            say!("memory       {:.1} GiB, {:.1} GiB available", gibibytes(memory.total), gibibytes(memory.available))?
        }
        None => say!("memory       unknown: the system has no /proc/meminfo")?,
    }
    for device in &report.devices {
        let models = if device.models.is_empty() { String::new() } else { format!(" ({})", device.models.join(", ")) };
        let state = device.reason.as_ref().map_or("usable".to_owned(), |reason| format!("not usable: {reason}"));
        say!("device       {}: {}{models}, {state}", device.kind, device.count)?;
    }
    for library in &report.libraries {
        let version = library.version.as_ref().map(|version| format!("{version}, ")).unwrap_or_default();
        let place = library.path.as_ref().map_or("found".into(), |path| path.display().to_string());
        match &library.reason {
            None => say!("library      {}: {version}{place}", library.name)?,
            Some(reason) => say!("library      {}: {reason}", library.name)?,
        }
    }
    for executor in &report.executors {
        let place = executor.priority.map_or("by name only".to_owned(), |priority| format!("priority {priority}"));
        let Executor { name, device, version, docs, options, .. } = executor;
        say!("executor     {name} on {device}, version {version}, {place}: {docs}")?;
        for ExecutorOption { name, type_name, default, docs } in options {
            say!("option       {name}: {type_name} = {default}: {docs}")?;
        }
    }
    let of = &report.operators;
    say!(
        "operators    {} prims, {} composites, {} kernel symbols; {} mirror PyTorch",
        of.prims,
        of.composites,
        of.symbols,
        of.mirroring_torch
    )?;
    say!("             {} implementations, {} rewrites", of.implementations, of.rewrites)?;
    for cache in &report.caches {
        say!("cache        {}: {}", cache.name, cache.path.as_deref().unwrap_or(cache.reason))?;
    }
    for of in &report.choices {
        let Choices { device, target, libraries, records, followed } = of;
        let here = if *followed { "" } else { "; not of this machine's device, libraries or version" };
        say!("choices      {records} of {device} ({target}; {libraries}){here}")?;
    }
    for KeptRates { device, kept } in &report.rates {
        let Some(Rates { version, copy, products, .. }) = kept else {
            say!("rates        {device}: not measured; `fulgurite profile gelu --device {device} --measure` does")?;
            continue;
        };
        let product = |(name, rate): (&String, &f64)| format!("{name} {:.3} TFLOP/s", rate / 1e12);
        let products = products.iter().map(product).collect::<Vec<_>>().join(", ");
        say!("rates        {device}: copy {:.1} GB/s, products {products}; measured by version {version}", copy / 1e9)?;
    }
    for Ended { call, candidate, reason, skipped } in &report.ended {
        let next = if *skipped { "skips it" } else { "tries it again" };
        say!("choices      {candidate} of {call}: {reason}; the next process that measures {next}")?;
    }
    match &report.log {
        Some(wanted) => say!("log          {}={wanted}", log::VARIABLE),
        None => say!("log          off; {}=info shows what is compiled", log::VARIABLE),
    }
}
