//! How programs are compiled, as options of the command line.

use clap::Args;
use fulgurite::compile::Options;
use fulgurite::fuel::Fuel;
use fulgurite::models::ActivationCheckpointing;

use super::outcome::Failed;

/// Options of compilation.
#[derive(Args)]
pub struct Compile {
    /// Executors in the order of their priority; the default is the target's default list.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    executors: Option<Vec<String>>,
    /// Maximum number of optimizations, to find the one that breaks a program.
    #[arg(long, value_name = "STEPS")]
    fuel: Option<u64>,
    /// Does not fuse symbols into regions.
    #[arg(long)]
    no_fuse: bool,
    /// Saves all values that the backward pass needs: recomputes nothing large.
    #[arg(long)]
    no_recompute: bool,
    /// Minimum size, in bytes, of values that are recomputed for the backward pass.
    #[arg(long, value_name = "BYTES", conflicts_with = "no_recompute")]
    recompute_from: Option<u64>,
    /// On a device, launches every kernel by itself instead of replaying a graph, and waits for each symbol: an error
    /// names it.
    #[arg(long)]
    no_graph: bool,
}

/// Options of what the backward pass of a model keeps.
#[derive(Args)]
pub struct Activations {
    /// `blocks` keeps the result of each of the model's blocks alone for the backward pass, which computes the rest
    /// again: less memory, more time, the same numbers.
    #[arg(long, default_value = "none", value_parser = ["none", "blocks"], value_name = "WHAT")]
    activation_checkpointing: String,
}

impl Activations {
    /// As models take them.
    pub fn checkpointing(&self) -> ActivationCheckpointing {
        match &*self.activation_checkpointing {
            "blocks" => ActivationCheckpointing::Blocks,
            _ => ActivationCheckpointing::None,
        }
    }
}

impl Compile {
    /// As the compiler takes them. A program that needs more memory than the machine has is refused: it would take the
    /// whole process with it.
    pub fn options(&self) -> Result<Options, Failed> {
        let mut options = Options::default();
        if let Some(names) = &self.executors {
            options = options.with_executors(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        options.fuel = self.fuel.map_or(Fuel::UNLIMITED, Fuel::limited);
        options.fuse = !self.no_fuse;
        options.graph = !self.no_graph;
        options.recompute = self.recompute_from.or(options.recompute).filter(|_| !self.no_recompute);
        options.memory_limit = fulgurite_kernels::machine::memory_limit();
        Ok(options)
    }
}
