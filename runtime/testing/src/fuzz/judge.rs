//! Runs one program in several ways and compares what comes out.

use super::case::{Case, largest};
use super::config::Config;
use super::oracle::{Answer, Compared, Oracle, about_same, same_values};
use super::slack::tolerances;
use crate::array::Array;
use crate::exact::is_elementwise;
use crate::executor::ExecutorDef;
use crate::executor_list::{List, REFERENCE};
use crate::meta::Device;
use crate::problem::{Check, Problem};
use crate::samples::Random;
use crate::subject::coarsest;

/// Values of so many elements are too large for the references.
const LARGE: usize = 1 << 17;
/// References take too long for programs, opened and with their gradients, whose values have more elements in all.
/// (They run about ten times, at some tens of nanoseconds for each element.)
const LONG: usize = 1 << 24;
/// What references say of data that operators document as refused on the host alone, and without a defined value on a
/// device.
const UNDEFINED_ON_DEVICES: &str = "an integer is divided by zero";
/// How many random ways a program is run, besides the plain and the usual one.
const WAYS: usize = 3;

/// What results are compared with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Against {
    /// What the references say.
    References,
    /// Another way to run the program, bit for bit.
    Bits(Config),
    /// Another way to run it, roughly: a large program.
    About(Config),
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Results differ.
    Different,
    /// It does not compile or run, or it panics.
    Fails,
    /// The references panic, or it panics on data that they refuse: neither says what is wrong with the data.
    Panics,
    /// It runs on data that the references refuse.
    Accepts,
}

/// A way of running a program that gives something else than it should.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub kind: Kind,
    pub config: Config,
    pub against: Against,
    pub message: String,
}

/// What judging a program came to.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub comparisons: u64,
    pub compared: Compared,
    /// The references refuse its data, and so does everybody else.
    pub refused: bool,
    pub failure: Option<Failure>,
}

/// The executors that a program is run by: those of the device that are asked by default, and others that are named.
pub(super) fn executors_for(case: &Case, all: &[&'static ExecutorDef]) -> Vec<&'static ExecutorDef> {
    let fits = |executor: &&&'static ExecutorDef| {
        let list = List::of(executor);
        case.owners().all(|owners| list.executors.iter().any(|own| owners.contains(&own.name)))
    };
    all.iter().filter(fits).copied().collect()
}

impl Verdict {
    fn note(&mut self, compared: Check<Compared>, config: &Config, against: &Against) {
        self.comparisons += 1;
        match compared {
            Ok(compared) => {
                self.compared.elements += compared.elements;
                self.compared.skipped += compared.skipped;
            }
            Err(Problem(message)) => {
                let (config, against) = (config.clone(), against.clone());
                self.failure.get_or_insert(Failure { kind: Kind::Different, config, against, message });
            }
        }
    }

    fn failed(&mut self, kind: Kind, config: &Config, Problem(message): Problem) {
        let (config, against) = (config.clone(), Against::References);
        self.failure.get_or_insert(Failure { kind, config, against, message });
    }
}

/// What the references say to a program, in the forward pass and in its gradient as the plain executors have it. It is
/// run by those named, and those that are asked after them. Programs of more than `most` elements are too long.
fn ask(case: &Case, arranged: bool, executors: &[&str], most: usize) -> Check<Answer> {
    let config = Config { arranged, ..Config::plain(REFERENCE) };
    let (trace, arrays) = config.prepared(case)?;
    let lists = executors.iter().map(|name| List::named(name)).collect::<crate::Result<Vec<List>>>()?;
    let names: Vec<&str> = lists.iter().flat_map(|list| &list.executors).map(|executor| executor.name).collect();
    Oracle::ask(&trace, &arrays, &tolerances(&trace, &names, case.gradient), most)
}

/// Runs a program in several ways, until one goes wrong.
pub(super) fn judge(case: &Case, executors: &[&'static ExecutorDef], random: &mut Random) -> Check<Verdict> {
    let mut verdict = Verdict::default();
    let executors = executors_for(case, executors);
    let Some(first) = executors.iter().find(|executor| executor.name != REFERENCE).or(executors.first()) else {
        return Ok(verdict);
    };
    let names: Vec<&str> = executors.iter().map(|executor| executor.name).collect();
    let ask = |arranged: bool, most: usize| ask(case, arranged, &names, most);
    let trace = case.trace()?;
    let (plain, usual) = (Config::plain(first.name), Config::usual(first.name));
    let answer = if largest(&trace.block) > LARGE { Answer::TooLong } else { ask(false, LONG)? };
    let large = matches!(answer, Answer::TooLong);
    if let Answer::Refuses(problem) = &answer {
        if problem.is_panic() {
            verdict.failed(Kind::Panics, &Config::plain(REFERENCE), problem.clone());
            return Ok(verdict);
        }
        verdict.refused = true;
        let undefined = !Device::is_host(first.device) && problem.0.contains(UNDEFINED_ON_DEVICES);
        match usual.run(case) {
            Ok(_) if !undefined => verdict.failed(Kind::Accepts, &usual, problem.clone()),
            Err(panic) if panic.is_panic() => verdict.failed(Kind::Panics, &usual, panic),
            _ => {}
        }
        return Ok(verdict);
    }
    // Expanded inputs have other values.
    let same_inputs = case.inputs.iter().all(|input| input.arrangement != super::arrange::Arrangement::Expanded);
    let arranged = if same_inputs || large { None } else { Some(ask(true, LONG)?) };
    let baseline = match plain.run(case) {
        Ok(baseline) => baseline,
        Err(problem) => {
            // Large programs are shown to the references only now.
            match large.then(|| ask(false, usize::MAX)).transpose()? {
                Some(Answer::Refuses(refusal)) if !refusal.is_panic() && !problem.is_panic() => verdict.refused = true,
                _ => verdict.failed(Kind::Fails, &plain, problem),
            }
            return Ok(verdict);
        }
    };
    let oracle_of = |config: &Config| match (&arranged, config.arranged) {
        (Some(arranged), true) => arranged,
        _ => &answer,
    };
    let elementwise = is_elementwise(&Config::plain(REFERENCE).prepared(case)?.0);
    let coarsest = coarsest(&trace.block);
    if let Answer::Gives(oracle) = &answer {
        verdict.note(oracle.compare(&baseline), &plain, &Against::References);
    }
    let mut ways = vec![usual];
    ways.extend((0..WAYS).map(|_| Config::drawn(random, &executors)));
    // Layouts are seen at least once, if there are any.
    if case.inputs.iter().any(|input| input.arrangement != super::arrange::Arrangement::Dense) {
        ways[1].arranged = true;
        ways[1].executor = first.name;
    }
    if large {
        ways.retain(|config| config.executor != REFERENCE);
        ways.truncate(3);
    }
    for config in ways {
        if verdict.failure.is_some() {
            break;
        }
        let outputs = match config.run(case) {
            Ok(outputs) => outputs,
            Err(problem) => {
                verdict.failed(Kind::Fails, &config, problem);
                break;
            }
        };
        if let Answer::Gives(oracle) = oracle_of(&config) {
            verdict.note(oracle.compare(&outputs), &config, &Against::References);
        }
        let same = same_inputs || !config.arranged;
        if same && elementwise && config.executor == plain.executor {
            verdict.note(same_values(&outputs, &baseline), &config, &Against::Bits(plain.clone()));
        } else if same && large {
            verdict.note(about_same(&outputs, &baseline, coarsest), &config, &Against::About(plain.clone()));
        }
        if verdict.failure.is_some() {
            break;
        }
        let varied = config.varied(random);
        match varied.run(case) {
            Ok(again) => verdict.note(same_values(&again, &outputs), &varied, &Against::Bits(config)),
            Err(problem) => verdict.failed(Kind::Fails, &varied, problem),
        }
    }
    Ok(verdict)
}

/// Whether a program still fails like this, and how.
pub(super) fn fails(case: &Case, failure: &Failure) -> Option<Failure> {
    let config = &failure.config;
    let ask = || ask(case, config.arranged, &[config.executor], usize::MAX);
    let same = |kind: Kind, Problem(message): Problem| {
        let message = Failure { kind, message, ..failure.clone() };
        (kind == failure.kind).then_some(message)
    };
    case.trace().ok()?.verify().ok()?;
    if failure.kind == Kind::Panics {
        let Answer::Refuses(refusal) = ask().ok()? else { return None };
        let own = if config.executor == REFERENCE { refusal } else { config.run(case).err()? };
        return if own.is_panic() { same(Kind::Panics, own) } else { None };
    }
    let outputs = match (config.run(case), failure.kind) {
        (Err(problem), Kind::Fails) => {
            // A program that everybody refuses is not the one that was found.
            let fits = matches!(ask().ok()?, Answer::Gives(_) | Answer::Nothing);
            return if fits { same(Kind::Fails, problem) } else { None };
        }
        (Ok(_), Kind::Accepts) => {
            let Answer::Refuses(problem) = ask().ok()? else { return None };
            return same(Kind::Accepts, problem);
        }
        (Ok(outputs), Kind::Different) => outputs,
        _ => return None,
    };
    compare(case, &outputs, failure).err().and_then(|problem| same(Kind::Different, problem))
}

fn compare(case: &Case, outputs: &[Array], failure: &Failure) -> Check<Compared> {
    match &failure.against {
        Against::References => match ask(case, failure.config.arranged, &[failure.config.executor], usize::MAX) {
            Ok(Answer::Gives(oracle)) => oracle.compare(outputs),
            _ => Ok(Compared::default()),
        },
        Against::Bits(other) => match other.run(case) {
            Ok(expected) => same_values(outputs, &expected),
            Err(_) => Ok(Compared::default()),
        },
        Against::About(other) => match other.run(case) {
            Ok(expected) => about_same(outputs, &expected, coarsest(&case.trace()?.block)),
            Err(_) => Ok(Compared::default()),
        },
    }
}
