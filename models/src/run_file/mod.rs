//! A run described by a file: YAML with the keys of LitGPT's `pretrain`.
//!
//! Each key sets what an option of `train` sets; `docs/src/llama.md` has the option's name beside it. A
//! key that is `null` sets nothing. A key that LitGPT does not have is an error with the nearest key, and so is a value
//! that nothing here implements.

mod data_set;
pub(crate) mod fields;
mod lengths;
mod strategy;
pub(crate) mod yaml;

pub use data_set::DataSet;
pub use lengths::Lengths;

use std::path::{Path, PathBuf};

use fields::{Fault, Fields, Range};
use yaml::{Node, Value};

use crate::precision::Precision;
use crate::train::{StateDict, Strategy};

/// The settings of a file; `None` and empty lists where it says nothing.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs, reason = "each is the field of `TrainOptions` that has its name")]
pub struct RunFile {
    /// `model_name`.
    pub size: Option<String>,
    /// `model_config` and `train.tie_embeddings`, as assignments.
    pub set: Vec<String>,
    /// `out_dir`.
    pub out: Option<PathBuf>,
    /// `precision`.
    pub precision: Option<Precision>,
    /// `initial_checkpoint_dir`.
    pub init: Option<PathBuf>,
    /// `resume`.
    pub resume: Option<bool>,
    /// `tokenizer_dir`.
    pub tokenizer: Option<String>,
    /// `data`: the files to train on and to validate with.
    pub data: Option<DataSet>,
    /// `train.global_batch_size`: sequences of a step, of all devices.
    pub global_batch: Option<usize>,
    /// `train.micro_batch_size`: sequences of a batch of one device.
    pub micro_batch: Option<usize>,
    /// `train.max_steps`.
    pub steps: Option<u64>,
    /// `train.max_tokens`: tokens of the whole run.
    pub max_tokens: Option<f64>,
    /// `train.max_seq_length`.
    pub context: Option<usize>,
    /// `train.lr_warmup_steps`.
    pub warmup: Option<u64>,
    /// `train.save_interval`.
    pub save_every: Option<u64>,
    /// `train.log_interval`.
    pub log_every: Option<u64>,
    /// `train.max_norm`.
    pub clip: Option<f64>,
    /// `train.min_lr`, the learning rate at the end.
    pub min_lr: Option<f64>,
    /// `eval.interval`.
    pub evaluate_every: Option<u64>,
    /// `eval.max_iters`.
    pub evaluate_batches: Option<usize>,
    /// `eval.max_new_tokens`.
    pub sample_tokens: Option<usize>,
    /// `optimizer.init_args.lr`.
    pub lr: Option<f64>,
    /// `optimizer.init_args.betas`.
    pub betas: Option<[f64; 2]>,
    /// `optimizer.init_args.eps`.
    pub epsilon: Option<f64>,
    /// `optimizer.init_args.weight_decay`.
    pub weight_decay: Option<f64>,
    /// `seed`.
    pub seed: Option<u64>,
    /// `devices`, each with a rank.
    pub devices: Option<u16>,
    /// `strategy`.
    pub strategy: Option<Strategy>,
    /// `strategy.init_args.state_dict_type`.
    pub state_dict: Option<StateDict>,
}

/// A file that describes no run.
#[derive(Debug, thiserror::Error)]
pub enum RunFileError {
    /// It cannot be read.
    #[error("'{}': {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        error: std::io::Error,
    },
    /// What is wrong with a line.
    #[error("'{}', line {line}: {message}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
}

/// Reads a file.
///
/// # Errors
/// A file that is no YAML, has a key that is not known, or a value that cannot be.
pub fn read(path: &Path) -> Result<RunFile, RunFileError> {
    let text = std::fs::read_to_string(path).map_err(|error| RunFileError::Io { path: path.to_owned(), error })?;
    parse(&text).map_err(|(line, message)| RunFileError::Line { path: path.to_owned(), line, message })
}

fn parse(text: &str) -> Result<RunFile, Fault> {
    let mut run = RunFile::default();
    let document = yaml::parse(text)?;
    if document.value == Value::Null {
        return Err((1, "the file has no settings, expected keys such as model_name and train".into()));
    }
    let all = Fields::of(&document, "")?;
    run.size = all.text("model_name")?;
    if let Some(config) = all.map("model_config")? {
        for (name, line, value) in config.entries() {
            if name == "name" {
                // As `litgpt.Config` has it: the name selects the configuration.
                let name = fields::json(value)?;
                if run.size.as_ref().is_some_and(|size| *size != name) {
                    return Err((*line, format!("model_config has the name '{name}', model_name is another")));
                }
                run.size = Some(name);
                continue;
            }
            run.set.push(format!("{name}={}", fields::json(value)?));
        }
    }
    run.out = all.text("out_dir")?.map(PathBuf::from);
    run.precision = all.one_of("precision", str::parse)?;
    run.init = all.text("initial_checkpoint_dir")?.map(PathBuf::from);
    run.resume = all.one_of("resume", |resume| match resume {
        "true" => Ok(true),
        "false" => Ok(false),
        "auto" => {
            Err("expected true or false: true continues the checkpoint of out_dir, and fails if there is none".into())
        }
        _ => Err("expected true or false; the checkpoint is that of out_dir".into()),
    })?;
    run.tokenizer = all.text("tokenizer_dir")?;
    run.data = all.take("data").map(data_set::read).transpose()?;
    if let Some(train) = all.map("train")? {
        self::train(train, &mut run)?;
    }
    if let Some(eval) = all.map("eval")? {
        run.evaluate_every = eval.number("interval", Range::NotNegative)?;
        run.evaluate_batches = eval.number("max_iters", Range::Positive)?;
        run.sample_tokens = eval.number("max_new_tokens", Range::NotNegative)?;
        eval.only("initial_validation", "false", "a run does not validate before its first step")?;
        eval.only("final_validation", "true", "a run validates at its end")?;
        eval.end()?;
    }
    if let Some(optimizer) = all.take("optimizer") {
        self::optimizer(optimizer, &mut run)?;
    }
    run.seed = all.number("seed", Range::NotNegative)?;
    run.devices = all
        .one_of("devices", |devices| match (devices, devices.parse::<u16>()) {
            ("auto", _) => Ok(None),
            (_, Ok(count)) if count > 0 => Ok(Some(count)),
            _ => Err(format!("expected a number from 1 to {}, or auto, which is one device", u16::MAX)),
        })?
        .flatten();
    let strategy = all.take("strategy").map(strategy::read).transpose()?.flatten();
    (run.strategy, run.state_dict) = strategy.map_or((None, None), |(strategy, kind)| (Some(strategy), kind));
    all.only("num_nodes", "1", "a run is on one machine")?;
    all.only("logger_name", "csv", "a run writes metrics.csv")?;
    if let Some(log) = all.map("log")? {
        for name in ["project", "run", "group"] {
            log.only(name, "null", "metrics.csv is in out_dir, and has no other name")?;
        }
        log.end()?;
    }
    all.end()?;
    Ok(run)
}

fn train(train: Fields<'_>, run: &mut RunFile) -> Result<(), Fault> {
    run.global_batch = train.number("global_batch_size", Range::Positive)?;
    run.micro_batch = train.number("micro_batch_size", Range::Positive)?;
    run.context = train.number("max_seq_length", Range::Positive)?;
    run.steps = train.number("max_steps", Range::Positive)?;
    // LitGPT's own files write 3e12.
    run.max_tokens = train.number("max_tokens", Range::Positive)?;
    run.warmup = train.number("lr_warmup_steps", Range::NotNegative)?;
    run.save_every = train.number("save_interval", Range::NotNegative)?;
    run.log_every = train.number("log_interval", Range::Positive)?;
    run.clip = train.number("max_norm", Range::NotNegative)?;
    run.min_lr = train.number("min_lr", Range::NotNegative)?;
    if let Some(tied) =
        train.one_of("tie_embeddings", |tied| tied.parse().map_err(|_| "expected true or false".into()))?
    {
        let tied: bool = tied;
        run.set.push(format!("tie_embeddings={tied}"));
    }
    train.only("lr_warmup_fraction", "null", "the warm-up is a number of steps, lr_warmup_steps")?;
    train.only("epochs", "null", "the length of a run is a number of steps, max_steps")?;
    train.only("max_time", "null", "the length of a run is a number of steps, max_steps")?;
    train.end()
}

/// `AdamW`, or its class with arguments.
fn optimizer(node: &Node, run: &mut RunFile) -> Result<(), Fault> {
    let adamw = |name: &str| match name.rsplit('.').next() {
        Some("AdamW") => Ok(()),
        _ => Err("expected AdamW".to_owned()),
    };
    if let Value::Scalar(name) = &node.value {
        return adamw(name).map_err(|message| (node.line, format!("optimizer is '{name}', {message}")));
    }
    let class = Fields::of(node, "optimizer")?;
    class.one_of("class_path", adamw)?;
    if let Some(arguments) = class.map("init_args")? {
        run.lr = arguments.number("lr", Range::NotNegative)?;
        run.weight_decay = arguments.number("weight_decay", Range::NotNegative)?;
        run.epsilon = arguments.number("eps", Range::Positive)?;
        if let Some(list) = arguments.numbers("betas", Range::BelowOne)? {
            let line = arguments.take("betas").map_or(1, |node| node.line);
            let two = |_| (line, format!("{} are two numbers", arguments.dotted("betas")));
            run.betas = Some(list.try_into().map_err(two)?);
        }
        arguments.end()?;
    }
    class.end()
}

#[cfg(test)]
mod tests;
