//! A differential fuzzer: random programs and single calls with gradients, over every registered operator, element type
//! and layout, run in many ways that must agree.
//!
//! A case is made from a seed alone (`generate`), run in several ways (`config`), and what comes out is compared
//! (`judge`): with the references (`oracle`), and bit for bit where flags, layouts, donations, threads or memory
//! must not matter. What differs is made smaller (`minimize`) and handed out as traces and inputs.

mod arrange;
mod case;
mod config;
mod extents;
mod generate;
mod judge;
mod minimize;
mod noise;
mod oracle;
mod slack;
mod terms;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fulgurite_kernels::DType;

use crate::array::Array;
use crate::device::DeviceState;
use crate::directives::Tolerance;
use crate::error::{Error, Result};
use crate::executor::{ExecutorDef, default_executors, find_executor};
use crate::generate::guarded;
use crate::meta::Device;
use crate::problem::{Check, Problem};
use crate::samples::Random;
use crate::trace::Trace;
use case::Case;
use fulgurite_ir::registry::find_operator;
use generate::Parts;
use judge::{Against, Failure, Kind, Verdict, judge};
use minimize::minimize;
use oracle::{Answer, Oracle};

/// Cases that are made on one thread before another takes over: what a thread keeps of the programs it traced is given
/// back.
const PER_THREAD: u64 = 64;

/// What is looked for, and for how long.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Equal seeds make equal cases, as long as the registered operators and their samples are the same.
    pub seed: u64,
    /// The number of the first case.
    pub first: u64,
    /// Number of cases; `None` is limited by the time.
    pub cases: Option<u64>,
    /// When to stop; `None` is limited by the number of cases.
    pub time: Option<Duration>,
    /// After how many findings to stop; `None` is never.
    pub findings: Option<u64>,
    /// The kind of device that programs are run on.
    pub device: String,
    /// Executors that are tried besides those that are asked by default.
    pub executors: Vec<String>,
    /// Operators that programs are made of; all if none are named.
    pub operators: Vec<String>,
    /// Element types that programs and samples are in; all if none are named.
    pub dtypes: Vec<DType>,
    /// How long a failing program is made smaller.
    pub minimize: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 0,
            first: 0,
            cases: None,
            time: Some(Duration::from_secs(60)),
            findings: None,
            device: "cpu".into(),
            executors: Vec::new(),
            operators: Vec::new(),
            dtypes: Vec::new(),
            minimize: Duration::from_secs(60),
        }
    }
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// The number of the next case.
    pub next: u64,
    /// Programs of several calls.
    pub programs: u64,
    /// Programs of one call.
    pub calls: u64,
    /// Of both, how many ran with their gradients.
    pub gradients: u64,
    /// Of both, how many have data that the references refuse, and everybody else too.
    pub refused: u64,
    /// Results of one run compared with another's or with the references.
    pub comparisons: u64,
    /// Elements compared.
    pub elements: u64,
    /// Elements that say nothing: at a discontinuity, or ill-conditioned.
    pub skipped: u64,
    /// Programs that fail.
    pub failing: u64,
    /// Cases that failed while they were made.
    pub unmade: u64,
    /// How long it took, in all.
    pub time: Duration,
}

/// A program that fails, made small.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The number of the case.
    pub case: u64,
    /// What is wrong, in a sentence.
    pub message: String,
    /// The program in a line.
    pub program: String,
    /// The program as the failing way compiles it.
    pub trace: Trace,
    /// The flags of `trace run` for it.
    pub flags: String,
    /// What it is compared with, if that is a run as well: the trace, where it is another one, and the flags.
    pub against: Option<(Option<Trace>, String)>,
    /// Inputs by name.
    pub inputs: Vec<(String, Array)>,
    /// What findings of one cause have in common: the operators, and the way.
    pub cause: String,
}

/// An event of a fuzzing run.
#[derive(Debug)]
pub enum Event<'a> {
    /// A case is about to be run.
    Begins(u64),
    /// The case at hand fails, and is about to be made smaller.
    Fails(u64),
    /// Some time has passed.
    Progress(&'a Totals),
    /// A program fails. Findings of one cause are told once.
    Found(&'a Finding),
}

/// Whether elements of results, by their numbers for each result, are what the references of a program's lines give,
/// each rounding made anew. One that a rounding moves by more than a part of its size must be about as near as
/// roundings move it.
///
/// # Errors
/// Where they differ, or the references say nothing.
pub(crate) fn agrees(trace: &Trace, inputs: &[Array], outputs: &[Array], elements: &[Vec<usize>]) -> Check {
    let tolerances = vec![Tolerance::NONE; outputs.len()];
    match Oracle::ask(trace, inputs, &tolerances, usize::MAX)? {
        Answer::Gives(oracle) => oracle.explain(outputs, elements),
        Answer::Refuses(problem) => Err(problem.within("the references refuse it")),
        Answer::Nothing | Answer::TooLong => Err(Problem("the references say nothing".into())),
    }
}

/// Makes and runs cases until time or number is reached.
///
/// # Errors
/// If an executor or an operator that is named does not exist, or none is left; if the device has a fault after which
/// nothing runs on it, once the program that it was found with is told.
pub fn fuzz(settings: &Settings, listen: &mut (dyn FnMut(Event<'_>) + Send)) -> Result<Totals> {
    let mut executors: Vec<&'static ExecutorDef> = default_executors(&settings.device);
    if !Device::is_host(&settings.device) {
        executors.retain(|executor| executor.device == settings.device);
    }
    for name in &settings.executors {
        let executor = find_executor(name)?;
        executors.retain(|other| other.name != executor.name);
        executors.insert(0, executor);
    }
    for name in &settings.operators {
        find_operator(name)?;
    }
    let parts = Parts::new(&settings.device, &settings.operators, &settings.dtypes);
    if parts.len() == 0 || executors.is_empty() {
        let message = format!("no operator can be run on '{}'", settings.device);
        return Err(Error::Argument { argument: "device".into(), message });
    }
    let mut run = Run { settings, executors, parts, totals: Totals::default(), causes: BTreeMap::new(), lost: None };
    run.totals.next = settings.first;
    let start = Instant::now();
    while !run.is_over(start) {
        // What a thread keeps of the programs that it traced is bounded this way.
        let listen = &mut *listen;
        let run = &mut run;
        std::thread::scope(|scope| {
            let worker = std::thread::Builder::new().stack_size(64 << 20).spawn_scoped(scope, move || {
                for _ in 0..PER_THREAD {
                    if run.is_over(start) {
                        break;
                    }
                    run.one(listen);
                    run.totals.time = start.elapsed();
                    listen(Event::Progress(&run.totals));
                }
            });
            worker.map_err(|error| Error::Argument { argument: "thread".into(), message: error.to_string() }).map(drop)
        })?;
    }
    match run.lost {
        Some(lost) => Err(lost),
        None => Ok(run.totals),
    }
}

struct Run<'a> {
    settings: &'a Settings,
    executors: Vec<&'static ExecutorDef>,
    parts: Parts,
    totals: Totals,
    /// How often each cause was found.
    causes: BTreeMap<String, u64>,
    /// Why nothing runs on the device any more.
    lost: Option<Error>,
}

impl Run<'_> {
    fn is_over(&self, start: Instant) -> bool {
        self.lost.is_some()
            || self.settings.cases.is_some_and(|cases| self.totals.next - self.settings.first >= cases)
            || self.settings.findings.is_some_and(|findings| self.causes.len() as u64 >= findings)
            || self.settings.time.is_some_and(|time| start.elapsed() >= time)
    }

    fn one(&mut self, listen: &mut dyn FnMut(Event<'_>)) {
        let number = self.totals.next;
        self.totals.next += 1;
        listen(Event::Begins(number));
        let seed = self.settings.seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let case = match guarded(|| Ok(self.parts.case(seed))) {
            Ok(Some(case)) => case,
            Ok(None) => return,
            // A meta or a tracer that panics is a finding, even though there is no program to show.
            Err(problem) => {
                self.totals.unmade += 1;
                tracing::error!("case {number} cannot be made: {}", problem.0);
                return;
            }
        };
        match case.calls.len() {
            1 => self.totals.calls += 1,
            _ => self.totals.programs += 1,
        }
        self.totals.gradients += u64::from(case.gradient);
        let mut random = Random::new(seed ^ 0xF0F0);
        let verdict = guarded(|| judge(&case, &self.executors, &mut random)).unwrap_or_else(|problem| Verdict {
            // The program cannot even be differentiated, say.
            failure: Some(Failure {
                kind: Kind::Fails,
                config: config::Config::plain(self.executors[0].name),
                against: Against::References,
                message: problem.0,
            }),
            ..Verdict::default()
        });
        self.totals.refused += u64::from(verdict.refused);
        self.totals.comparisons += verdict.comparisons;
        self.totals.elements += verdict.compared.elements;
        self.totals.skipped += verdict.compared.skipped;
        let Some(failure) = verdict.failure else { return };
        self.totals.failing += 1;
        listen(Event::Fails(number));
        // Each run is waited for, so that it was this program. It is told as it is: nothing smaller could be run in
        // this process.
        self.lost = lost(&self.settings.device);
        let (case, failure) = match &self.lost {
            Some(_) => (case, failure),
            None => minimize(case, failure, self.settings.minimize),
        };
        let finding = describe(number, &case, &failure);
        let count = self.causes.entry(finding.cause.clone()).or_default();
        *count += 1;
        if *count == 1 {
            listen(Event::Found(&finding));
        }
    }
}

/// Whether a device of this kind has had a fault after which nothing runs on it.
fn lost(kind: &str) -> Option<Error> {
    let device = Device::new(kind, 0);
    if device.is_cpu() { None } else { DeviceState::of(device).ok()?.lost() }
}

fn describe(number: u64, case: &Case, failure: &Failure) -> Finding {
    let config = &failure.config;
    let other = match &failure.against {
        Against::References => None,
        Against::Bits(other) | Against::About(other) => Some(other),
    };
    let against = other.map_or_else(|| "the references".to_owned(), ToString::to_string);
    let what = match failure.kind {
        Kind::Different => format!("{config}, against {against}: {}", failure.message),
        Kind::Fails | Kind::Panics => format!("{config}: {}", failure.message),
        Kind::Accepts => format!("{config}: runs, although the references refuse the data: {}", failure.message),
    };
    let prepared = config.prepared(case);
    let (trace, arrays) = prepared.unwrap_or_else(|_| {
        let bare = Case { gradient: false, ..case.clone() };
        (bare.trace().unwrap_or_else(|_| unreachable!("it was traced before")), Vec::new())
    });
    let names = trace.block.parameters.iter().map(|id| trace.block.value(*id).name.to_string());
    let inputs = names.zip(arrays).collect();
    let against = other.map(|other| {
        let own = other.prepared(case).ok().map(|(trace, _)| trace);
        (own.filter(|own| *own != trace), other.flags())
    });
    let mut operators: Vec<&str> = case.calls.iter().map(|call| call.def.name).collect();
    operators.sort_unstable();
    operators.dedup();
    let cause = format!("{} {:?} {:?}", operators.join(" "), failure.kind, config.neutral);
    Finding {
        case: number,
        message: what,
        program: case.to_string(),
        trace,
        flags: config.flags(),
        against,
        inputs,
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::argument::Arg;
    use crate::meta::TensorMeta;
    use crate::operator::{Class, OperatorDef, OperatorKind};
    use crate::reference::ReferenceTensor;
    use crate::rules::TestRules;
    use crate::subject::trace_of;
    use crate::tracer::rules::TracingRules;
    use crate::tracer::{call, trace_block};
    use fulgurite_ir::expansion;
    use fulgurite_ir::registry::OPERATORS;

    /// Of numbers about one it leaves nothing but their roundings, which it makes large.
    #[linkme::distributed_slice(OPERATORS)]
    static STEEP: &OperatorDef = &OperatorDef {
        name: "fuzz::steep",
        kind: OperatorKind::Prim,
        params: &[expansion::tensor::define("input", Class::Any)],
        rules: &[
            &TracingRules {
                meta: Some(&|arguments| Ok(vec![arguments[0].tensors()[0].clone()])),
                ..TracingRules::EMPTY
            },
            &TestRules {
                reference: Some(&|arguments| {
                    let input = arguments[0].tensors()[0].floats();
                    Ok(vec![ReferenceTensor::from(input.mapv(|x| (x - 1.0) * 1e8))])
                }),
                ..TestRules::EMPTY
            },
        ],
        ..expansion::OPERATOR
    };

    #[test]
    fn a_wrong_element_is_refused_though_roundings_move_it() {
        let parameters = [("x".into(), TensorMeta::new([2], DType::F32, Device::CPU))];
        let block = trace_block(&parameters, |x| vec![call(STEEP, vec![Arg::Tensor(x[0])])[0]]);
        let trace = trace_of("steep", block.unwrap());
        let inputs = [Array::new([2], &[1.0_f32, 3.0]).unwrap()];
        let check = |values: [f32; 2], elements: &[usize]| {
            agrees(&trace, &inputs, &[Array::new([2], &values).unwrap()], &[elements.to_vec()])
        };
        // A rounding moves the first by half of 12 to three halves of it, and by 2e8 by as little as that.
        assert_eq!(check([5.0, 2e8], &[0, 1]), Ok(()));
        let problem = check([500.0, 2e8], &[0, 1]).unwrap_err();
        assert!(problem.0.contains("element [0]: expected 0.0, got 500.0, which is farther"), "{}", problem.0);
        let problem = check([5.0, 2.1e8], &[0, 1]).unwrap_err();
        assert!(problem.0.contains("element [1]"), "{}", problem.0);
        assert_eq!(check([500.0, 2e8], &[1]), Ok(()), "it is not asked about");
    }
}
