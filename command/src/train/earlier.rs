//! `--resume`: settings that nobody says again are those of the checkpoint.

use std::path::PathBuf;

use fulgurite_models::checkpoint::TrainingState;
use fulgurite_models::head::Logits;
use fulgurite_models::train::{notes, precision_of};
use fulgurite_models::{Family, Model};

use super::arguments::Run;

/// The folder of a run.
pub(super) fn folder(family: Family, run: &Run) -> PathBuf {
    run.out.clone().unwrap_or_else(|| PathBuf::from(format!("runs/{family}")))
}

/// Has a run that a launcher starts again go on from the newest checkpoint in its folder, if that is its own; it begins
/// as it did otherwise. `name` is the run's.
pub(super) fn go_on(family: Family, run: &mut Run, name: Option<&str>) {
    let noted = |state: TrainingState| state.notes.get(notes::RUN).cloned();
    if name.is_some() && TrainingState::newest(&folder(family, run)).and_then(noted).as_deref() == name {
        (run.resume, run.overwrite) = (true, false);
    }
}

/// Sets what neither the command line nor a file says of a run that is resumed on so many ranks; `given` is whether one
/// of them says it.
/// A checkpoint that cannot be read is left to the run, which says why.
/// The model and the tokenizer are the checkpoint's where these options are absent, and stay absent here.
pub(super) fn apply(
    family: Family,
    dropout: Option<&mut f64>,
    run: &mut Run,
    ranks: usize,
    given: &dyn Fn(&str) -> bool,
) {
    let Some(state) = run.resume.then(|| TrainingState::newest(&folder(family, run))).flatten() else { return };
    let TrainingState { schedule, optimizer, accumulation, .. } = state;
    if let Some(dropout) = dropout.filter(|_| !given("dropout")) {
        *dropout = state.model.dropout();
    }
    let files = |note: &str| state.notes.get(note).and_then(|noted| serde_json::from_str(noted).ok());
    if !given("data") {
        run.data = files(notes::DATA).unwrap_or_default();
    }
    if !given("validation") {
        run.validation = files(notes::VALIDATION).unwrap_or_default();
    }
    if let Some(precision) = precision_of(&state).and_then(|name| name.parse().ok())
        && !given("precision")
    {
        run.precision = precision;
    }
    let kept = |note: &str| state.notes.get(note);
    // Whole logits are the usual ones, and chunks are taken where memory asks for them.
    if !given("logits")
        && let Some(chunked) = kept(notes::LOGITS).filter(|noted| *noted == Logits::Chunked.name())
    {
        run.logits.clone_from(chunked);
    }
    macro_rules! keep {
        ($($option:ident = $note:ident),* $(,)?) => {$(
            if !given(stringify!($option)) && let Some(value) = kept(notes::$note).and_then(|text| text.parse().ok()) {
                run.$option = value;
            }
        )*};
    }
    keep! {
        evaluate_every = EVALUATE_EVERY,
        evaluate_batches = EVALUATE_BATCHES,
        sample_every = SAMPLE_EVERY,
        sample_tokens = SAMPLE_TOKENS,
        prompt = PROMPT,
    }
    macro_rules! set {
        ($($option:ident = $value:expr),* $(,)?) => {$(
            if !given(stringify!($option)) {
                run.$option = $value;
            }
        )*};
    }
    // Converted weights have no schedule.
    if schedule.total_steps > 0 {
        set!(steps = schedule.total_steps);
    }
    set! {
        batch = if state.data.rows.is_multiple_of(ranks) { state.data.rows / ranks } else { run.batch },
        seed = state.seed,
        lr = schedule.peak,
        warmup = Some(schedule.warmup_steps.min(run.steps)),
        accumulate = accumulation as usize,
        beta1 = optimizer.beta1,
        beta2 = optimizer.beta2,
        epsilon = optimizer.epsilon,
        weight_decay = optimizer.weight_decay,
        clip = optimizer.clip.unwrap_or(0.0),
        optimizer = optimizer.kind,
        momentum = optimizer.momentum,
        nesterov = optimizer.nesterov,
    }
    // The floor to the bit: it is the product of the two.
    if !given("final_lr") && run.lr == schedule.peak && run.lr * run.final_lr != schedule.floor {
        let part = schedule.floor / schedule.peak;
        let fits = |part: &f64| schedule.peak * part == schedule.floor;
        run.final_lr = [part, part.next_up(), part.next_down()].into_iter().find(fits).unwrap_or(part);
    }
}
