//! `train`: the options of a training run on the command line. The run itself is `fulgurite_models::train`.

mod arguments;
mod bench;
mod config;
mod earlier;
mod exit;
pub mod ranks;

use std::io::{IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite::Error;
use fulgurite_kernels::ranks::environment::RUN;
use fulgurite_kernels::ranks::{mesh, rank};
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::train::{OnNonFinite, RunLock, TrainError, TrainOptions, train};

use super::files;
use super::interruption::{self, INTERRUPTED};
use super::loss_chart;
use super::model_options;
use super::outcome::{Failed, Outcome};
use super::output::say;
use super::profile_page;

use arguments::OF_TEXT;
pub use arguments::{Model, for_images};
use ranks::{Place, Watch};

/// Trains a model; `given` is whether an option is on the command line, by its name here.
pub fn run(mut model: Model, given: &dyn Fn(&str) -> bool) -> Outcome {
    let (mut config, mut of_file) = (None, Vec::new());
    if let Model::Llama(of) = &mut model
        && let Some(path) = of.config.clone()
    {
        of_file = config::apply(&path, of, given)?;
        config = Some(path);
    }
    let (family, dropout, run) = model.parts_mut();
    if let Some(kind) = family.images()
        && let Some(option) = OF_TEXT.into_iter().find(|option| given(option))
    {
        let option = option.replace('_', "-");
        return Err(Failed(format!("--{option} means nothing for {kind}, which reads images on one rank")));
    }
    let mut device = run.device;
    let placed = ranks::place(run.devices, &mut device, &|ranks| run.mesh(ranks))?;
    run.device = device;
    let joined = match placed {
        Place::Started(code) => return Ok(code),
        Place::Rank(joined) => joined,
    };
    let ranks = mesh().ranks();
    let name = std::env::var(RUN).ok().filter(|name| !name.is_empty());
    earlier::go_on(family, run, name.as_deref());
    earlier::apply(family, dropout, run, config::data_ranks(&mesh()), &|name| given(name) || of_file.contains(&name));
    let (family, size, set, dropout, of) = model.parts();
    if let Err(message) = of.check_tensor(&mesh()) {
        // All ranks have the same command line: one of them says so.
        return if rank() == 0 { Err(Failed(message)) } else { Ok(ExitCode::FAILURE) };
    }
    let mut compile = of.compile.options_to_run_on(of.device)?;
    compile.device = Some(of.device).filter(|device| !device.is_cpu());
    // Ranks share the host's memory.
    let available = compile.memory_limit.map(|limit| limit / ranks as u64);
    compile.bucket = u64::from(of.bucket_mib) << 20;
    compile.memory_limit = available.into_iter().chain(of.memory_limit).min();
    let options = TrainOptions {
        family,
        size: size.map(str::to_owned),
        set: set.to_vec(),
        tokenizer: of.tokenizer.clone(),
        init: of.init.clone(),
        data: files::matching(&of.data)?,
        validation: files::matching(&of.validation)?,
        steps: of.steps,
        batch: of.batch,
        context: of.context,
        accumulate: of.accumulate,
        lr: of.lr,
        final_lr: of.final_lr,
        warmup: of.warmup.unwrap_or_else(|| (of.steps / 10).min(100)),
        optimizer: OptimizerSettings {
            kind: of.optimizer,
            beta1: of.beta1,
            beta2: of.beta2,
            epsilon: of.epsilon,
            weight_decay: of.weight_decay,
            clip: (of.clip != 0.0).then_some(of.clip),
            momentum: of.momentum,
            nesterov: of.nesterov,
        },
        dropout,
        seed: of.seed,
        activation_checkpointing: of.activations.checkpointing(),
        logits: model_options::logits(&of.logits),
        evaluate_every: of.evaluate_every,
        evaluate_batches: of.evaluate_batches,
        save_every: of.save_every,
        log_every: of.log_every,
        peak_flops: of.peak_tflops.map(|tera| tera * 1e12),
        keep: of.keep,
        nonfinite: if of.nonfinite == "skip" { OnNonFinite::Skip } else { OnNonFinite::Stop },
        allow_nonfinite: of.allow_nonfinite,
        sample_every: of.sample_every,
        sample_tokens: of.sample_tokens,
        prompt: of.prompt.clone(),
        out: earlier::folder(family, of),
        profile: of.profile,
        resume: of.resume,
        overwrite: of.overwrite,
        name,
        strategy: of.strategy,
        state_dict: of.state_dict.as_deref().and_then(|kind| kind.parse().ok()),
        precision: of.precision,
        compile,
        stop: Some(stop_when_interrupted(match of.bench {
            Some(_) => "the steps that were timed",
            None => "a checkpoint",
        })?),
    };
    let watch = Watch::start(joined.as_ref());
    if let Some(steps) = of.bench {
        return bench::run(&options, steps);
    }
    let mut broken = None;
    let trained = train(&options, stderr().is_terminal(), &mut |line| {
        if let Err(failed) = say!("{line}") {
            broken.get_or_insert(failed);
        }
    });
    drop(watch);
    let report = match trained {
        Ok(report) => report,
        // What the file says is wrong there.
        Err(TrainError::Failed(error @ Error::Argument { .. })) => {
            let named = |option: &&str| matches!(&error, Error::Argument { argument, .. } if argument == *option);
            let file = config.filter(|_| of_file.iter().any(named));
            return Err(
                file.map_or_else(|| Failed(error.to_string()), |file| Failed(format!("'{}': {error}", file.display())))
            );
        }
        Err(error) => return exit::of(error),
    };
    if rank() > 0 {
        return Ok(if report.stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS });
    }
    if options.profile && !report.stopped {
        // The run has released its folder.
        let _lock = RunLock::take(&options.out)?;
        say!("time: {}", profile_page::write(&options.out)?.display())?;
    }
    if stdout().is_terminal() {
        loss_chart::show_run(&options.out)?;
    }
    broken.map_or(Ok(if report.stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }), Err)
}

/// Is set by the first interruption, so that the run ends with `what` it has; the second ends it at once.
fn stop_when_interrupted(what: &'static str) -> Result<Arc<AtomicBool>, Failed> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    interruption::listen(move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        if rank() == 0 {
            let _ = writeln!(stderr(), "stopping after this step with {what}; once more stops at once");
        }
    })?;
    Ok(stop)
}
