//! The programs of operators and models, by name, with the options that say which of them.

use clap::parser::ValueSource;
use clap::{Args, Command, FromArgMatches};
use fulgurite::compile::{Options, Stage, gradients_stage};
use fulgurite::executor::ExecutorOptions;
use fulgurite::operator::{OperatorDef, RuleSet};
use fulgurite::precision::Precision;
use fulgurite::trace::Trace;
use fulgurite::transforms::autocast;
use fulgurite::transforms::autodiff::rules::GradientRules;
use fulgurite::transforms::retarget::retarget;
use fulgurite::{DType, Target};

use super::functions::{self, Function};
#[cfg(feature = "models")]
use super::model_programs as models;
#[cfg(not(feature = "models"))]
use super::no_models as models;
use super::outcome::Failed;
pub use super::part::Part;
use super::{options, subject, target, written_call};
use crate::cases::{Call, of_case, resolve_operator, trace_call};

/// What a name stands for.
pub enum Named {
    /// An operator.
    Operator(&'static OperatorDef),
    /// A part of a model.
    Model(models::Family, Part),
    /// A function of the crate whose command this is.
    Function(&'static Function),
}

/// The function of the command's crate, the operator, by its name or PyTorch's, or the part of a model that is called
/// `name`.
pub fn named(name: &str) -> Result<Named, Failed> {
    if let Some(function) = functions::find(name) {
        return Ok(Named::Function(function));
    }
    if let Some((_, family, part)) = models::PARTS.iter().find(|(known, ..)| *known == name) {
        return Ok(Named::Model(*family, *part));
    }
    let models = models::PARTS.map(|(name, ..)| name).join(", ");
    let own = functions::all().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let others: Vec<String> = [("models", models), ("functions", own)]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| format!("{kind}: {names}"))
        .collect();
    let hint = if others.is_empty() { String::new() } else { format!(" ({})", others.join("; ")) };
    let def = resolve_operator(name).map_err(|error| Failed(format!("{}{hint}", error.message)))?;
    Ok(Named::Operator(def))
}

/// Which program of an operator or a model, and how it is compiled.
#[derive(Args, Clone, Debug)]
pub struct Program {
    /// What it is compiled for; no such device is needed.
    #[arg(long, default_value = "cpu", value_parser = target::parse)]
    target: Target,
    /// The element type of the sample; the first that the operator takes of f32, i64, bool, ... otherwise. That of a
    /// model's parameters, and of its optimizer's moments or its cache; f32 otherwise.
    #[arg(long)]
    dtype: Option<DType>,
    /// Which of the operator's samples.
    #[arg(long, default_value_t = 0)]
    sample: usize,
    /// An argument of the operator, in place of those of a sample; any number of times, and the others have their
    /// defaults. Tensors are given by their types: `input=f32[4096,768]`, `normalized_shape=[768]`,
    /// `approximate=tanh`, `tensors=[f32[2],f32[3]]`.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with_all = ["sample", "dtype"])]
    argument: Vec<String>,
    /// The joint trace of an operator and its gradient; of a model's loss the forward and the backward program and what
    /// is saved between them.
    #[arg(long)]
    pub backward: bool,
    /// Mixed precision: products in this type, bf16 or f16. Adds the stage `autocast`.
    #[arg(long, value_name = "DTYPE")]
    autocast: Option<DType>,
    #[command(flatten)]
    model: models::Options,
    #[command(flatten)]
    compile: options::Compile,
}

impl Program {
    /// The options, as they are written, of which `given` says that they were.
    pub fn written(given: &dyn Fn(&str) -> bool) -> Vec<String> {
        let all = Program::augment_args(Command::new("program"));
        let options = all.get_arguments().filter(|option| given(option.get_id().as_str()));
        options.filter_map(|option| option.get_long().map(|name| format!("--{name}"))).collect()
    }

    /// These options with others in their place: `words` are options as they are written, such as `--no-fuse
    /// --executors cuda`. Returned with the names of those options.
    ///
    /// # Errors
    /// If a word is no option of a program, or its value is none of the option.
    pub fn with(&self, words: &[&str]) -> Result<(Program, Vec<String>), Failed> {
        let command = Program::augment_args(Command::new("program")).no_binary_name(true).disable_help_flag(true);
        let matches = command.try_get_matches_from(words).map_err(|error| Failed(first_line(&error.to_string())))?;
        let of = Program::from_arg_matches(&matches).map_err(|error| Failed(first_line(&error.to_string())))?;
        let given = |option: &str| matches.value_source(option) == Some(ValueSource::CommandLine);
        let mut program = self.clone();
        macro_rules! take {
            ($($field:ident),*) => {
                $(if given(stringify!($field)) {
                    program.$field = of.$field;
                })*
            };
        }
        take!(target, dtype, sample, argument, backward, autocast);
        program.model.take(of.model, &given);
        program.compile.take(of.compile, &given);
        Ok((program, Program::written(&given)))
    }

    /// What the program of `name` is in words: a model's size, the target, the executors in their order.
    pub fn in_words(&self, name: &str, options: &Options) -> String {
        let executors = options.executor_list(self.target.kind());
        let executors: Vec<&str> = executors.iter().map(|executor| executor.name).collect();
        let mut words = Vec::new();
        if let Ok(Named::Model(..)) = named(name) {
            words.extend(self.model.in_words());
        }
        words.push(format!("target {}", self.target));
        words.push(format!("executors {}", executors.join(", ")));
        words.join(" \u{b7} ")
    }

    /// What it is compiled for.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The same for another target.
    pub fn on(&self, target: Target) -> Program {
        Program { target, ..self.clone() }
    }

    /// The values of executors' options alone.
    pub fn executor_options(&self) -> Result<ExecutorOptions, Failed> {
        self.compile.executor_options()
    }

    /// How it is compiled.
    pub fn options(&self) -> Result<Options, Failed> {
        let mut options = self.compile.options(&self.target)?;
        options.autocast = self.autocast;
        Ok(options)
    }

    /// How it is compiled to be run.
    pub fn options_to_run(&self) -> Result<Options, Failed> {
        let mut options = self.compile.options_to_run(&self.target)?;
        options.autocast = self.autocast;
        Ok(options)
    }

    /// What operands of its products are rounded to, as data sheets of devices call it.
    pub fn products(&self, options: &Options) -> &'static str {
        let list = options.executor_list(self.target.kind());
        let has = |precision: Precision| list.iter().any(|executor| executor.precision == precision);
        match self.autocast.or(self.dtype).or_else(|| written_call::dtype(&self.argument)) {
            // No rate is measured of these, and none of the others is theirs.
            Some(DType::F64) => "f64",
            Some(DType::BF16 | DType::F16) if has(Precision::Fp8) => "fp8",
            Some(DType::BF16) => "bf16",
            Some(DType::F16) => "f16",
            _ if has(Precision::Tf32) => "tf32",
            _ => "f32",
        }
    }

    /// The trace that compilation of `name` starts from, and which part of a model it is.
    pub fn trace(&self, name: &str, options: &Options) -> Result<(Trace, Option<Part>), Failed> {
        self.begun(name, options).map(|(stage, part)| (stage.trace, part))
    }

    /// As [`Program::trace`], with the sources of the gradient rules of an operator's joint trace.
    pub fn begun(&self, name: &str, options: &Options) -> Result<(Stage, Option<Part>), Failed> {
        let (family, part) = match named(name)? {
            Named::Function(function) => return Ok((self.function_stage(function)?, None)),
            Named::Model(..) if !self.argument.is_empty() => {
                return Err(Failed(format!("--argument is one of an operator, and {name} is a part of a model")));
            }
            Named::Operator(_) if self.model.sets_fields() => {
                return Err(Failed("--set replaces fields of a llama".into()));
            }
            Named::Operator(def) => return Ok((operator_stage(def, self, options)?, None)),
            Named::Model(family, part) => (family, part),
        };
        let trace = self.model.trace(family, part, self.dtype, self.autocast)?;
        let trace = if self.target == Target::cpu() { trace } else { retarget(&trace, &self.target) };
        match part {
            Part::Step if self.backward => {
                let message = "a training step holds its backward pass;";
                Err(Failed(format!("{message} `{name}-loss --backward` shows that of the loss")))
            }
            Part::Decode if self.backward => Err(Failed(format!("{name} has no backward pass"))),
            _ => Ok((first_stage(trace), Some(part))),
        }
    }
}

impl Program {
    /// The trace of a function of the command's crate. It says itself what it computes: options of operators and models
    /// change nothing of it.
    fn function_stage(&self, (name, trace): &Function) -> Result<Stage, Failed> {
        let none = Command::new("program").no_binary_name(true);
        let usual = Program::from_arg_matches(&Program::augment_args(none).get_matches_from([""; 0]));
        let usual = usual.map_err(|error| Failed(error.to_string()))?;
        for (given, option) in [
            (!self.argument.is_empty(), "--argument"),
            (self.sample != usual.sample, "--sample"),
            (self.model.sets_fields(), "--set"),
            (format!("{:?}", self.model) != format!("{:?}", usual.model), "an option of models"),
            (self.backward, "--backward"),
            (self.dtype.is_some(), "--dtype"),
        ] {
            if given {
                let crate_name = super::output::program();
                return Err(Failed(format!(
                    "{option}: is of operators and models, and {name} is a function of {crate_name}, traced as it is"
                )));
            }
        }
        let trace = trace().map_err(of_case)?;
        Ok(first_stage(if self.target == Target::cpu() { trace } else { retarget(&trace, &self.target) }))
    }
}

/// The first line of a message of the command line's parser, without the word that it begins with.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// A trace that nothing was asked about yet.
fn first_stage(trace: Trace) -> Stage {
    let name = trace.history.last().cloned().unwrap_or_else(|| "acquire".into());
    Stage { name, trace, gradients: Vec::new(), choices: Vec::new() }
}

fn operator_stage(def: &'static OperatorDef, arguments: &Program, options: &Options) -> Result<Stage, Failed> {
    let mut trace = match arguments.argument.is_empty() {
        true => sample_trace(def, arguments)?,
        false => {
            let given = written_call::arguments(def, &arguments.argument, &arguments.target)?;
            trace_call(&Call { operator: def, arguments: given }, arguments.target.clone()).map_err(of_case)?
        }
    };
    if !arguments.backward {
        return Ok(first_stage(trace));
    }
    let wrt = subject::differentiable(def, &trace);
    if wrt.is_empty() {
        let reason = GradientRules::of(def).no_grad.unwrap_or("no floating-point tensor goes in or none comes out");
        return Err(Failed(format!("{} has no gradient here: {reason}", def.name)));
    }
    // Gradients are of what is computed, so conversions come first.
    if let Some(low) = arguments.autocast {
        trace = autocast::autocast(&trace, low).map_err(of_case)?;
    }
    Ok(gradients_stage(trace, &wrt, options).map_err(of_case)?)
}

fn sample_trace(def: &'static OperatorDef, arguments: &Program) -> Result<Trace, Failed> {
    let usual = [DType::F32].into_iter().chain(DType::ALL.into_iter().rev());
    let dtypes: Vec<DType> = arguments.dtype.map_or_else(|| usual.collect(), |dtype| vec![dtype]);
    let of = |dtype| subject::accepted(def, dtype, &Target::cpu());
    let Some((dtype, samples)) = dtypes.iter().map(|dtype| (*dtype, of(*dtype))).find(|(_, s)| !s.is_empty()) else {
        return Err(Failed(match arguments.dtype {
            Some(dtype) => format!("{} has no sample in {dtype}", def.name),
            None => format!("{} has no sample", def.name),
        }));
    };
    let Some((_, sample, _)) = samples.iter().find(|(number, ..)| *number == arguments.sample) else {
        let last = samples.last().map_or(0, |(number, ..)| *number);
        return Err(Failed(format!("{} has no sample {} in {dtype}, the last is {last}", def.name, arguments.sample)));
    };
    Ok(subject::trace_sample(def, &sample.arguments, &arguments.target).map_err(of_case)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Program {
        let matches = Program::augment_args(Command::new("program")).no_binary_name(true).get_matches_from(words);
        Program::from_arg_matches(&matches).unwrap()
    }

    /// Every option, with a value that is not its default; `with` takes each.
    #[test]
    fn options_of_other_words_replace_those_that_are_there() {
        let values = [
            ("target", "cuda:sm_90a"),
            ("dtype", "bf16"),
            ("sample", "1"),
            ("argument", "input=f32[2]"),
            ("backward", ""),
            ("autocast", "bf16"),
            #[cfg(feature = "models")]
            ("size", "mini"),
            #[cfg(feature = "models")]
            ("layers", "3"),
            #[cfg(feature = "models")]
            ("set", "n_head=2"),
            #[cfg(feature = "models")]
            ("tokenizer", "gpt2"),
            #[cfg(feature = "models")]
            ("batch", "2"),
            #[cfg(feature = "models")]
            ("context", "16"),
            #[cfg(feature = "models")]
            ("activation-checkpointing", "blocks"),
            #[cfg(feature = "models")]
            ("logits", "chunked"),
            #[cfg(feature = "models")]
            ("weights", "int8"),
            ("executors", "cuda"),
            ("option", "sim.block=16"),
            ("choices", "choices.jsonl"),
            ("choose", "never"),
            ("choose-for", "3"),
            ("fuel", "3"),
            ("no-batching", ""),
            ("no-pad", ""),
            ("no-channels", ""),
            ("no-fuse", ""),
            ("no-recompute", ""),
            ("recompute-from", "8"),
            ("no-graph", ""),
        ];
        let command = Program::augment_args(Command::new("program"));
        let known: Vec<&str> = command.get_arguments().filter_map(|option| option.get_long()).collect();
        assert_eq!(known, values.map(|(name, _)| name));
        let usual = format!("{:?}", parsed(&[]));
        for (name, value) in values {
            let word = if value.is_empty() { format!("--{name}") } else { format!("--{name}={value}") };
            let (changed, written) = parsed(&[]).with(&[&word]).unwrap();
            assert_eq!(written, [format!("--{name}")]);
            assert_eq!(format!("{changed:?}"), format!("{:?}", parsed(&[&word])), "{word}");
            assert_ne!(format!("{changed:?}"), usual, "{word}");
        }
        let (both, _) = parsed(&["--sample", "1", "--no-fuse"]).with(&["--sample", "2"]).unwrap();
        assert!(both.sample == 2 && !both.options().unwrap().fuse);
    }
}
