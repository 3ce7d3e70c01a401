//! `--resume`: settings that nobody says again are those of the checkpoint.

use std::path::PathBuf;

use fulgurite::models::Family;
use fulgurite::models::checkpoint::TrainingState;

use super::arguments::Run;

/// The name of the newest checkpoint in a run's folder.
const CHECKPOINT: &str = "checkpoint.safetensors";

/// The folder of a run.
pub(super) fn folder(family: Family, run: &Run) -> PathBuf {
    run.out.clone().unwrap_or_else(|| PathBuf::from(format!("runs/{family}")))
}

/// Sets what neither the command line nor a file says of a run that is resumed; `given` is whether one of them says it.
/// A checkpoint that cannot be read is left to the run, which says why.
pub(super) fn apply(family: Family, run: &mut Run, given: &dyn Fn(&str) -> bool) {
    let state = run.resume.then(|| TrainingState::of_file(&folder(family, run).join(CHECKPOINT)));
    let Some(Ok(TrainingState { schedule, optimizer, accumulation, .. })) = state else { return };
    macro_rules! set {
        ($($option:ident = $value:expr),* $(,)?) => {$(
            if !given(stringify!($option)) {
                run.$option = $value;
            }
        )*};
    }
    set! {
        lr = schedule.peak,
        warmup = Some(schedule.warmup_steps.min(run.steps)),
        accumulate = accumulation as usize,
        beta1 = optimizer.beta1,
        beta2 = optimizer.beta2,
        epsilon = optimizer.epsilon,
        weight_decay = optimizer.weight_decay,
        clip = optimizer.clip.unwrap_or(0.0),
    }
    // The floor to the bit: it is the product of the two.
    if !given("final_lr") && run.lr == schedule.peak && run.lr * run.final_lr != schedule.floor {
        let part = schedule.floor / schedule.peak;
        let fits = |part: &f64| schedule.peak * part == schedule.floor;
        run.final_lr = [part, part.next_up(), part.next_down()].into_iter().find(fits).unwrap_or(part);
    }
}
