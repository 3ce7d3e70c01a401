//! Arguments of `train`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use fulgurite::Device;
use fulgurite::transforms::bucket;
use fulgurite_kernels::mesh::Mesh;
use fulgurite_models::Family;
use fulgurite_models::optimizer::Optimizer;
use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::precision::Precision;
use fulgurite_models::tensor_parallel::TENSOR;
use fulgurite_models::train::Strategy;
use fulgurite_models::vision::ImageKind;

use super::super::{model_options, options};

/// What the help of every family says first.
macro_rules! rules {
    () => {
        "\
The folder gets checkpoint.safetensors, the traces of the compiled step after every stage, metrics.csv and metrics.svg
(loss, learning rate, gradient norm, tokens/s, MFU, time and memory of each step), events.jsonl (validation losses,
samples, notes), and report.html, which shows all of it: open it in a browser while the run goes on. A folder that holds
a checkpoint is left alone unless --resume or --overwrite is given. The checkpoint before the newest is kept as
checkpoint-STEP.safetensors (--keep); --resume takes the newest good one. A run whose loss, gradients or weights are not
finite stops with exit code 3 and names step and parameter; what it saved stays as it is. Ctrl-C or SIGTERM ends the run
after the step at hand, with a checkpoint and exit code 130; a second one ends it at once.

Examples:
"
    };
}

/// A family of models.
#[derive(Subcommand)]
pub enum Model {
    /// Trains a GPT-2; the defaults are random weights and tinyshakespeare.
    Gpt2(Box<Gpt2>),
    /// Trains a Llama or one of its relatives; the defaults are random weights and tinyshakespeare.
    Llama(Box<Llama>),
    /// Trains a residual network to tell classes of images; the defaults are random weights and images that it draws.
    Resnet(Box<Resnet>),
    /// Trains a vision transformer to tell classes of images; the defaults are random weights and images that it draws.
    Vit(Box<Vit>),
    /// Trains a U-Net to tell classes of pixels; the defaults are random weights and images that it draws.
    Unet(Box<Unet>),
}

/// Arguments of `train gpt2`.
#[derive(Args)]
#[command(after_help = concat!(rules!(), "\
  fulgurite train gpt2 --size nano --steps 300 --out runs/nano
  fulgurite train gpt2 --size micro --tokenizer gpt2 --data text.txt --batch 8 --accumulate 4 --out runs/micro
  fulgurite train gpt2 --init gpt2_124M.bin --data 'shards/*_train.bin' --validation shards/tiny_shakespeare_val.bin
  fulgurite train gpt2 --size nano --steps 600 --out runs/nano --resume
  fulgurite train gpt2 --precision bf16-mixed --device cuda --size 124M --tokenizer gpt2
  fulgurite train gpt2 --precision bf16-mixed --device cuda --devices 4 --size 124M --tokenizer gpt2
  fulgurite train gpt2 --precision bf16-mixed --device cuda --size 124M --tokenizer gpt2 --batch 16 --bench 50"))]
pub struct Gpt2 {
    /// nano, micro, mini, small, 124M, 355M, 774M or 1558M; micro otherwise.
    #[arg(long, conflicts_with = "init")]
    pub(super) size: Option<String>,
    /// Probability of dropping a value.
    #[arg(long, default_value_t = 0.0)]
    pub(super) dropout: f64,
    #[command(flatten)]
    pub(super) run: Run,
}

/// Arguments of `train llama`.
#[derive(Args)]
#[command(after_help = concat!(rules!(), "\
  fulgurite train llama --size nano --steps 300 --out runs/llama
  fulgurite train llama --size nano --set n_layer=1 --set mlp_class_name=GemmaMLP
  fulgurite train llama --size TinyLlama-1.1B --set n_layer=2 --context 128 --device cuda --precision bf16-true
  fulgurite train llama --config tinyllama.yaml --steps 100 --warmup 10"))]
pub struct Llama {
    /// nano, micro, mini, or a published model: Llama-2-7b, Llama-3.2-1B, TinyLlama-1.1B, Mistral-7B, Mixtral-8x7B,
    /// Qwen2.5-0.5B, Qwen3-0.6B, Gemma-2b, Gemma-2-2b, pythia-70m, ... (a name that is not known lists all); nano
    /// otherwise.
    #[arg(long, conflicts_with = "init")]
    pub(super) size: Option<String>,
    /// Replaces a field of the configuration, whose names are LitGPT's: `n_layer=1`. May be given several times.
    #[arg(long, value_name = "FIELD=VALUE", conflicts_with = "init")]
    pub(super) set: Vec<String>,
    /// A YAML file with LitGPT's keys (`train: {max_steps: 100}`, `optimizer`, `precision`, ...). Options of the
    /// command line come before it.
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) run: Run,
}

/// Arguments of `train resnet`.
#[derive(Args)]
#[command(after_help = concat!(rules!(), "\
  fulgurite train resnet --size nano --steps 200 --batch 32 --out runs/shapes
  fulgurite train resnet --size 18-small --data cifar-10-batches-bin --optimizer sgd --momentum 0.9 --lr 0.05
  fulgurite train resnet --size nano --steps 400 --out runs/shapes --resume
  fulgurite train resnet --size 50 --init resnet50.safetensors --device cuda --precision bf16-mixed --bench 20"))]
pub struct Resnet {
    /// nano, 18-small (both for images of 32 x 32), 18 or 50 (those of ImageNet); 18-small otherwise.
    #[arg(long)]
    pub(super) size: Option<String>,
    #[command(flatten)]
    pub(super) run: Run,
}

/// Arguments of `train vit`.
#[derive(Args)]
#[command(after_help = concat!(rules!(), "\
  fulgurite train vit --size nano --steps 300 --batch 32 --out runs/vit
  fulgurite train vit --size micro --data cifar-10-batches-bin --batch 64 --dropout 0.1
  fulgurite train vit --size b_16 --device cuda --precision bf16-mixed --bench 20"))]
pub struct Vit {
    /// nano, micro (both for images of 32 x 32) or b_16 (of ImageNet); micro otherwise.
    #[arg(long)]
    pub(super) size: Option<String>,
    /// Probability of dropping a value.
    #[arg(long, default_value_t = 0.0)]
    pub(super) dropout: f64,
    #[command(flatten)]
    pub(super) run: Run,
}

/// Arguments of `train unet`.
#[derive(Args)]
#[command(after_help = concat!(rules!(), "\
  fulgurite train unet --size nano --steps 200 --batch 16 --out runs/unet
  fulgurite train unet --size micro --steps 1000 --evaluate-every 100 --optimizer adam"))]
pub struct Unet {
    /// nano (images of 32 x 32), micro (64 x 64) or base (256 x 256); micro otherwise.
    #[arg(long)]
    pub(super) size: Option<String>,
    #[command(flatten)]
    pub(super) run: Run,
}

/// Options of [`Run`] that mean nothing for models of images, which have one rank and no text.
pub(super) const OF_TEXT: [&str; 13] = [
    "tokenizer",
    "validation",
    "context",
    "logits",
    "sample_every",
    "sample_tokens",
    "prompt",
    "peak_tflops",
    "devices",
    "strategy",
    "tensor",
    "state_dict",
    "bucket_mib",
];

/// The command of a model of images, whose help has what applies to it.
pub fn for_images(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| match arg.get_id().as_str() {
        "batch" => arg.help("Images in a batch"),
        "data" => arg.help(
            "The folder of CIFAR-10's binary files (data_batch_1.bin, ..., test_batch.bin); shapes that are drawn, and \
             need no file, otherwise",
        ),
        "init" => arg.help("Weights to start from: a checkpoint, or a safetensors file under torchvision's names"),
        name if OF_TEXT.contains(&name) => arg.hide(true),
        _ => arg,
    })
}

/// What all families have in common.
#[derive(Args)]
pub(super) struct Run {
    /// Weights to start from, and the size with them: a checkpoint, llm.c's .bin, or Hugging Face's safetensors.
    #[arg(long, value_name = "FILE")]
    pub(super) init: Option<PathBuf>,
    /// gpt2, bytes, or a file (tokenizer.json, SentencePiece's tokenizer.model, a GGUF, vocab.json with merges.txt
    /// beside it) or its folder; that of --init, or else bytes, otherwise.
    #[arg(long)]
    pub(super) tokenizer: Option<String>,
    /// Text files, or llm.c's shards of tokens, as names or patterns; tinyshakespeare otherwise.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(super) data: Vec<PathBuf>,
    /// Files to validate with; the last tenth of the data otherwise.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(super) validation: Vec<PathBuf>,
    /// Optimizer steps in all, those of a resumed run included, which has as many as before if they are not given.
    #[arg(long, default_value_t = 1500)]
    pub(super) steps: u64,
    /// Sequences in a batch of each rank: with --devices N, a batch has N times as many in all.
    #[arg(long, default_value_t = 8)]
    pub(super) batch: usize,
    /// Tokens in a sequence; the size's own otherwise.
    #[arg(long)]
    pub(super) context: Option<usize>,
    /// Batches whose gradients are added for one step.
    #[arg(long, default_value_t = 1)]
    pub(super) accumulate: usize,
    /// Peak learning rate.
    #[arg(long, default_value_t = 1e-3)]
    pub(super) lr: f64,
    /// Learning rate at the end, as a part of the peak.
    #[arg(long, default_value_t = 0.1)]
    pub(super) final_lr: f64,
    /// Steps until the peak; a tenth of all steps, 100 at most, otherwise.
    #[arg(long)]
    pub(super) warmup: Option<u64>,
    /// The optimizer: adamw, adam, adamax, sgd, lion, rmsprop or adagrad. Each takes those of the next options that it
    /// has a use for; rmsprop takes --beta2 as its alpha.
    #[arg(long, default_value_t = Optimizer::AdamW, value_name = "NAME")]
    pub(super) optimizer: Optimizer,
    /// Momentum of sgd and rmsprop; 0 is none.
    #[arg(long, default_value_t = 0.0)]
    pub(super) momentum: f64,
    /// Nesterov's momentum, of sgd.
    #[arg(long)]
    pub(super) nesterov: bool,
    /// Decay of the mean of gradients.
    #[arg(long, default_value_t = OptimizerSettings::default().beta1)]
    pub(super) beta1: f64,
    /// Decay of the mean of squared gradients.
    #[arg(long, default_value_t = OptimizerSettings::default().beta2)]
    pub(super) beta2: f64,
    /// Added to the root of the mean of squared gradients.
    #[arg(long, default_value_t = OptimizerSettings::default().epsilon)]
    pub(super) epsilon: f64,
    /// Weight decay of matrices: decoupled of adamw and lion, otherwise added to gradients.
    #[arg(long, default_value_t = OptimizerSettings::default().weight_decay)]
    pub(super) weight_decay: f64,
    /// The largest norm of the gradients; 0 is no limit.
    #[arg(long, default_value_t = 1.0)]
    pub(super) clip: f64,
    /// Seed of the weights, the order of the data and dropout.
    #[arg(long, default_value_t = 42)]
    pub(super) seed: u64,
    /// Steps between validation losses; one is also computed at the end. 0 computes only that one.
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    pub(super) evaluate_every: u64,
    /// Validation batches.
    #[arg(long, default_value_t = 10, value_name = "BATCHES")]
    pub(super) evaluate_batches: usize,
    /// Steps between checkpoints; one is also written at the end. 0 writes only that one.
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    pub(super) save_every: u64,
    /// Steps between lines of progress.
    #[arg(long, default_value_t = 10, value_name = "STEPS")]
    pub(super) log_every: u64,
    /// What the device does at most, in 10^12 floating-point operations a second, for the part of it that the run uses
    /// (MFU); that of NVIDIA's data sheet otherwise, for the devices in a list.
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = above_zero)]
    pub(super) peak_tflops: Option<f64>,
    /// How many checkpoints are kept, the newest included.
    #[arg(long, default_value_t = 2, value_name = "COUNT")]
    pub(super) keep: usize,
    /// Where a loss or gradients are not finite: `stop` ends the run with exit code 3, `skip` leaves that step's update
    /// out (20 in a row end the run).
    #[arg(long, default_value = "stop", value_parser = ["stop", "skip"], value_name = "WHAT")]
    pub(super) nonfinite: String,
    /// Accepts weights that are not finite from --init or a checkpoint.
    #[arg(long)]
    pub(super) allow_nonfinite: bool,
    /// Steps between samples of text, for report.html; one is also made at the end. 0 makes only that one.
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    pub(super) sample_every: u64,
    /// Tokens of a sample of text.
    #[arg(long, default_value_t = 100, value_name = "TOKENS")]
    pub(super) sample_tokens: usize,
    /// The beginning of samples of text.
    #[arg(long, default_value = "\n")]
    pub(super) prompt: String,
    /// Times this many steps after a warm-up, with the options and the data of the run, and ends: prints the median,
    /// the spread, tokens/s, peak memory, the host's time by part, its time of waiting and MFU, and writes
    /// bench/bench.json in the folder. No checkpoint is read or written.
    #[arg(long, value_name = "STEPS", conflicts_with_all = [
        "resume", "overwrite", "profile", "steps", "save_every", "evaluate_every", "sample_every"
    ])]
    pub(super) bench: Option<u64>,
    /// The folder for the checkpoint and the traces; `runs/` and the family otherwise.
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Writes where one step's time goes to profile.html and profile.json (for Perfetto) in the folder, and prints it
    /// as a table.
    #[arg(long)]
    pub(super) profile: bool,
    /// Continues from the checkpoint in the folder, as the run was started: with its model, tokenizer, batch, context,
    /// seed, dropout, precision, learning rates, warm-up, optimizer, accumulation, data, validation and samples,
    /// unless they are given.
    #[arg(long)]
    pub(super) resume: bool,
    /// Starts anew although the folder holds a checkpoint, and replaces it.
    #[arg(long, conflicts_with = "resume")]
    pub(super) overwrite: bool,
    /// Where it runs: cpu, cuda, cuda:1, ..., or auto for the first device that is available.
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = Device::named)]
    pub(super) device: Device,
    /// How many ranks train together: processes that this one starts, each with a device of its own (cuda:0, cuda:1,
    /// ...) or a part of the host's processors. The steps are those of one rank with batches N times as large. Under
    /// `fulgurite launch`, torchrun, Slurm or MPI it is their number of ranks.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) devices: Option<u16>,
    /// How ranks divide the work: `ddp` gives each the whole state and its part of each batch; `zero2` a part of the
    /// state too, from which the parameters are gathered once a step; `zero3` gathers them again for the backward
    /// pass; `tensor_parallel` divides each layer among ranks that have the same batch; `sequence_parallel` divides
    /// the positions between layers too.
    #[arg(long, default_value_t = Strategy::Ddp, value_name = "NAME")]
    pub(super) strategy: Strategy,
    /// How many ranks divide each layer, of `tensor_parallel` and `sequence_parallel`: all of them unless it is given.
    /// Of the N ranks, groups of as many have the same batch, and the groups divide the work as `ddp` does.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) tensor: Option<u16>,
    /// What ranks with parts of the state (`zero2`, `zero3`) write as a checkpoint: `sharded`, the default, a file of
    /// each rank, named by checkpoint.safetensors; `full` one file, of tensors that are gathered first. Every command
    /// reads both.
    #[arg(long, value_name = "KIND", value_parser = ["full", "sharded"])]
    pub(super) state_dict: Option<String>,
    /// Up to how many MiB of gradients go through one exchange of the ranks, and a quarter of parameters that are
    /// gathered; 0 gives each tensor an exchange of its own.
    #[arg(long, value_name = "MIB", default_value_t = (bucket::BYTES >> 20) as u32)]
    pub(super) bucket_mib: u32,
    /// LitGPT's names: 32-true (everything in f32), bf16-mixed (products in bf16; weights, gradients and moments in
    /// f32), bf16-true (all of these in bf16); and tf32 on CUDA (32-true with operands of products rounded to 10 bits
    /// of fraction).
    #[arg(long, default_value_t = Precision::F32True, value_name = "NAME")]
    pub(super) precision: Precision,
    #[command(flatten)]
    pub(super) activations: model_options::Activations,
    /// What of the logits exists at a time: `whole` all of them; `chunked` those of a chunk of positions, with which
    /// the loss is computed in less memory and more time; `auto` is `whole`, and `chunked` where the step does not fit
    /// into the memory limit or the device's free memory, which is told. A run that is resumed has those of a chunk if
    /// its checkpoint's run had, unless this is given.
    #[arg(long, default_value = "auto", value_parser = ["whole", "chunked", "auto"], value_name = "WHAT")]
    pub(super) logits: String,
    /// The most memory that a compiled program may need: bytes, or with a unit, such as 512MiB or 7.5GiB. Larger ones
    /// are refused before they run. On the CPU it is the available memory otherwise; on a device there is no limit.
    #[arg(long, value_name = "BYTES", value_parser = model_options::bytes)]
    pub(super) memory_limit: Option<u64>,
    #[command(flatten)]
    pub(super) compile: options::Compile,
}

/// A number above 0.
fn above_zero(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".into())
}

impl Run {
    /// The mesh of so many ranks by the strategy.
    pub(super) fn mesh(&self, ranks: usize) -> Result<Mesh, String> {
        let mesh = self.strategy.mesh(ranks, self.tensor.map(usize::from));
        mesh.map_err(|message| if self.tensor.is_some() { format!("--tensor: {message}") } else { message })
    }

    /// Fails where `--tensor` is not how many ranks divide each layer on the mesh of a run.
    pub(super) fn check_tensor(&self, mesh: &Mesh) -> Result<(), String> {
        let Some(tensor) = self.tensor.map(usize::from) else { return Ok(()) };
        // What no ranks can have is told as where they are started.
        self.mesh(mesh.ranks())?;
        let there = mesh.axis(TENSOR).map_or(1, |(_, axis)| axis.extent());
        if there == tensor {
            return Ok(());
        }
        Err(format!("--tensor: {tensor} ranks are to divide each layer, and the mesh of the ranks is '{mesh}'"))
    }
}

impl Model {
    /// The family, the dropout if it has one, and what all families have in common.
    pub(super) fn parts_mut(&mut self) -> (Family, Option<&mut f64>, &mut Run) {
        match self {
            Model::Gpt2(of) => (Family::Gpt2, Some(&mut of.dropout), &mut of.run),
            Model::Llama(of) => (Family::Llama, None, &mut of.run),
            Model::Resnet(of) => (Family::Images(ImageKind::Resnet), None, &mut of.run),
            Model::Vit(of) => (Family::Images(ImageKind::Vit), Some(&mut of.dropout), &mut of.run),
            Model::Unet(of) => (Family::Images(ImageKind::Unet), None, &mut of.run),
        }
    }

    /// The family, the size and its replaced fields, the dropout, and the rest.
    pub(super) fn parts(&self) -> (Family, Option<&str>, &[String], f64, &Run) {
        match self {
            Model::Gpt2(of) => (Family::Gpt2, of.size.as_deref(), &[], of.dropout, &of.run),
            Model::Llama(of) => (Family::Llama, of.size.as_deref(), &of.set, 0.0, &of.run),
            Model::Resnet(of) => (Family::Images(ImageKind::Resnet), of.size.as_deref(), &[], 0.0, &of.run),
            Model::Vit(of) => (Family::Images(ImageKind::Vit), of.size.as_deref(), &[], of.dropout, &of.run),
            Model::Unet(of) => (Family::Images(ImageKind::Unet), of.size.as_deref(), &[], 0.0, &of.run),
        }
    }
}
