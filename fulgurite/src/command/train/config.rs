//! `--config`: the options of a run from a file. Options on the command line stay as they are.

use std::path::Path;

use fulgurite::models::run_file::{Precision, RunFile, read};

use super::super::outcome::Failed;
use super::arguments::Llama;

/// Sets what the file at `path` says and no option of the command line does; `given` is whether an option is there.
pub(super) fn apply(path: &Path, of: &mut Llama, given: &dyn Fn(&str) -> bool) -> Result<(), Failed> {
    let file: RunFile = read(path).map_err(|error| Failed(error.to_string()))?;
    let run = &mut of.run;
    macro_rules! set {
        ($($option:ident = $value:expr),* $(,)?) => {$(
            if let Some(value) = $value && !given(stringify!($option)) {
                run.$option = value;
            }
        )*};
    }
    set! {
        steps = file.steps,
        batch = file.batch,
        accumulate = file.accumulate,
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
        context = file.context.map(Some),
        warmup = file.warmup.map(Some),
        tokenizer = file.tokenizer.map(Some),
        out = file.out.map(Some),
        data = (!file.data.is_empty()).then_some(file.data),
        validation = (!file.validation.is_empty()).then_some(file.validation),
        dtype = file.precision.map(|precision| match precision {
            Precision::F32 => "f32".to_owned(),
            Precision::Bf16Mixed => "bf16".to_owned(),
            Precision::Tf32 => "tf32".to_owned(),
        }),
    }
    // A part of the peak, whoever says what that is.
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
    if run.init.is_some() {
        return Ok(());
    }
    if let Some(size) = file.size.filter(|_| !given("size")) {
        of.size = size;
    }
    // Those of the command line come last, and win.
    of.set.splice(0..0, file.set);
    Ok(())
}
