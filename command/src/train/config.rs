//! `--config`: the options of a run from a file. Options on the command line stay as they are.

use std::path::Path;

use fulgurite_kernels::mesh::Mesh;
use fulgurite_kernels::ranks::environment;
use fulgurite_models::run_file::{Lengths, RunFile, read};
use fulgurite_models::weight_files::open;
use fulgurite_models::{Family, Model, ModelConfig, Tokenizer};

use super::super::outcome::Failed;
use super::arguments::Llama;

/// How many ranks a launcher has started; a variable that is wrong is told where this process joins them.
fn of_launcher() -> Option<usize> {
    environment().ok().flatten().map(|member| member.mesh.ranks())
}

/// How many ranks of a mesh have parts of a batch.
pub(super) fn data_ranks(mesh: &Mesh) -> usize {
    mesh.axis("data").map_or(1, |(_, axis)| axis.extent())
}

/// Sets what the file at `path` says and no option of the command line does; `given` is whether an option is there.
/// Gives the options that were set.
pub(super) fn apply(path: &Path, of: &mut Llama, given: &dyn Fn(&str) -> bool) -> Result<Vec<&'static str>, Failed> {
    let mut said = Vec::new();
    let file: RunFile = read(path).map_err(|error| Failed(error.to_string()))?;
    let run = &mut of.run;
    let strategy = file.strategy.filter(|_| !given("strategy")).unwrap_or(run.strategy);
    // Ranks that divide a layer have one batch. What is no mesh is told where the ranks start.
    let tensor = run.tensor.map(usize::from);
    let of_data = |ranks: usize| strategy.mesh(ranks, tensor).map_or(ranks, |mesh| data_ranks(&mesh));
    // Before anything is derived from them, the command line's numbers take the place of the file's.
    let own = Lengths {
        batch: given("batch").then_some(run.batch),
        accumulate: given("accumulate").then_some(run.accumulate),
        context: run.context,
        steps: given("steps").then_some(run.steps),
        ranks: run.devices.or(file.devices).map_or_else(of_launcher, |devices| Some(usize::from(devices))).map(of_data),
    };
    let in_file = |message: String| Failed(format!("'{}': {message}", path.display()));
    let init = run.init.clone().or_else(|| file.init.clone().filter(|_| !given("size")));
    let of_model = || match init {
        Some(init) => open(&init, None).ok().map(|loaded| loaded.weights.config().context()),
        None => {
            let size = of.size.as_deref().or(file.size.as_deref()).unwrap_or(Family::Llama.usual_size());
            let set: Vec<String> = file.set.iter().chain(&of.set).cloned().collect();
            let config = ModelConfig::named(Family::Llama, size, &set, None, &Tokenizer::bytes());
            config.ok().map(|config| config.context())
        }
    };
    let lengths = file.lengths(own, of_model).map_err(in_file)?;
    let (data, validation) = match file.data.as_ref().filter(|_| !given("data")) {
        Some(set) => set.files().map_err(in_file)?,
        None => Default::default(),
    };
    macro_rules! set {
        ($($option:ident = $value:expr),* $(,)?) => {$(
            if let Some(value) = $value && !given(stringify!($option)) {
                run.$option = value;
                said.push(stringify!($option));
            }
        )*};
    }
    set! {
        steps = lengths.steps,
        batch = lengths.batch,
        accumulate = lengths.accumulate,
        lr = file.lr,
        beta1 = file.betas.map(|[beta1, _]| beta1),
        beta2 = file.betas.map(|[_, beta2]| beta2),
        epsilon = file.epsilon,
        weight_decay = file.weight_decay,
        clip = file.clip,
        seed = file.seed,
        evaluate_every = file.evaluate_every,
        evaluate_batches = file.evaluate_batches,
        save_every = file.save_every,
        log_every = file.log_every,
        sample_tokens = file.sample_tokens,
        context = lengths.context.map(Some),
        warmup = file.warmup.map(Some),
        tokenizer = file.tokenizer.map(Some),
        out = file.out.map(Some),
        data = (!data.is_empty()).then_some(data),
        validation = (!validation.is_empty()).then_some(validation),
        precision = file.precision,
        devices = file.devices.map(Some),
        strategy = file.strategy,
        state_dict = file.state_dict.map(|kind| Some(kind.name().to_owned())),
    }
    // A part of the peak, wherever the peak is given.
    let (lr, min_lr) = (run.lr, file.min_lr);
    set!(final_lr = min_lr.map(|least| least / lr));
    // A run is resumed or begins anew, and the command line says one of the two.
    if !given("overwrite") {
        set!(resume = file.resume);
    }
    // Weights say which model it is, so that one of the two is the command line's.
    if !given("size") {
        set!(init = file.init.map(Some));
    }
    if given("init") {
        return Ok(said);
    }
    if let Some(init) = &run.init {
        // Weights have a configuration, no field of which can be replaced.
        let fields = [("--set", &of.set), ("model_config or train.tie_embeddings", &file.set)];
        return match fields.into_iter().find(|(_, set)| !set.is_empty()) {
            None => Ok(said),
            Some((name, set)) => Err(Failed(format!(
                "'{}': {name} sets {}, but the model is that of the weights in '{}', whose configuration is their own",
                path.display(),
                set.join(", "),
                init.display()
            ))),
        };
    }
    if let Some(size) = file.size.filter(|_| !given("size")) {
        of.size = Some(size);
        said.push("size");
    }
    if !file.set.is_empty() && of.set.is_empty() {
        said.push("set");
    }
    // Those of the command line come last, and win.
    of.set.splice(0..0, file.set);
    Ok(said)
}
