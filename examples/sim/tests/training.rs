//! Training on a device: the next step is enqueued before a loss is read, and nothing but the time changes.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulgurite::compile::Options;
use fulgurite::registration::Transform;
use fulgurite::{Array, DType, Device, Error};
use fulgurite_example_sim as _;
use fulgurite_models::train::{Cause, TrainError, TrainOptions, TrainReport, train};
use fulgurite_models::{Family, Logits};

/// A device of its own for each test: a timeline has all that its device does.
const DEVICES: [u32; 2] = [0, 1];

/// With `evaluate_every` 1 each loss is read before the next step; with 0 behind it.
fn options(out: &Path, lr: f64, evaluate_every: u64) -> TrainOptions {
    TrainOptions {
        family: Default::default(),
        size: Some("nano".into()),
        set: Vec::new(),
        init: None,
        tokenizer: None,
        data: Vec::new(),
        validation: Vec::new(),
        steps: 5,
        batch: 1,
        context: Some(4),
        accumulate: 1,
        lr,
        final_lr: 0.1,
        warmup: 0,
        optimizer: Default::default(),
        dropout: 0.0,
        seed: 5,
        evaluate_every,
        activation_checkpointing: Default::default(),
        logits: None,
        evaluate_batches: 1,
        save_every: 0,
        log_every: 10,
        peak_flops: None,
        keep: 1,
        nonfinite: Default::default(),
        allow_nonfinite: false,
        sample_every: 0,
        sample_tokens: 1,
        prompt: "T".into(),
        out: out.to_owned(),
        profile: false,
        resume: false,
        overwrite: true,
        name: None,
        strategy: Default::default(),
        state_dict: None,
        precision: Default::default(),
        compile: Options { verify: false, ..Options::default() },
        stop: None,
    }
}

/// Tests run one after the other: what one registers concerns all programs of the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// What a run came to, with the lines about its steps, and the copies that a profile tells. The speed is left out.
fn run(
    name: &str,
    device: u32,
    lr: f64,
    evaluate_every: u64,
    profile: bool,
) -> (Result<TrainReport, TrainError>, Vec<String>) {
    let mut lines = Vec::new();
    let mut options = TrainOptions { profile, ..options(&folder(name), lr, evaluate_every) };
    options.compile.device = Some(Device::new("sim", device));
    let report = train(&options, false, &mut |line| {
        let copies = |line: &&str| line.contains("inputs of train_step") || line.contains("read 8 bytes");
        lines.extend(
            line.lines().filter(copies).filter_map(|line| line.split("  ").last().map(|what| what.trim().to_owned())),
        );
        if line.starts_with("step ") && !line.contains("validation") {
            lines.push(line.split(", ").take(2).collect::<Vec<_>>().join(", "));
        }
    });
    (report, lines)
}

#[test]
fn losses_read_late_are_the_same() {
    let _alone = alone();
    let (ahead, mut lines) = run("ahead", DEVICES[0], 1e-3, 0, true);
    let (waiting, expected) = run("waiting", DEVICES[0], 1e-3, 1, false);
    // The copies since the second of five steps: the report of the first is read behind it. Inputs are sent while the
    // step before is computed: those of the second step before the timeline begins.
    let copies = lines.split_off(expected.len());
    let count = |what: &str| copies.iter().filter(|copy| *copy == what).count();
    assert_eq!((count("inputs of train_step"), count("read 8 bytes"), copies.len()), (3, 5, 8), "{copies:#?}");
    let (ahead, waiting) = (ahead.unwrap(), waiting.unwrap());
    assert_eq!(ahead.losses.len(), 5);
    assert_eq!(ahead.losses, waiting.losses);
    assert_eq!(lines, expected);
    assert!(state(&ahead.checkpoint) == state(&waiting.checkpoint), "checkpoints differ");
}

/// The bytes of a checkpoint, but for the note how often the run was validated, in which the two runs differ, and the
/// sum over the notes.
fn state(file: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(file).unwrap();
    for (note, length) in [("evaluate_every", 1), ("fulgurite_crc32", 8)] {
        let at = bytes.windows(note.len()).position(|window| window == note.as_bytes());
        let at = at.expect("the checkpoint has the note") + note.len();
        let value = at + bytes[at..].iter().position(u8::is_ascii_hexdigit).expect("the note has a value");
        assert!(!bytes[value + length].is_ascii_hexdigit(), "{note} has another length");
        bytes[value..value + length].fill(b'_');
    }
    bytes
}

/// The step behind the one that diverges is enqueued by then, and leaves the state as it is.
#[test]
fn a_run_that_diverges_is_told_as_if_nothing_was_ahead() {
    let _alone = alone();
    let (ahead, lines) = run("ahead_diverges", DEVICES[1], 1e30, 0, false);
    let (waiting, expected) = run("waiting_diverges", DEVICES[1], 1e30, 1, false);
    let (ahead, waiting) = (ahead.unwrap_err(), waiting.unwrap_err());
    assert!(matches!(ahead, TrainError::Diverged(_)), "{ahead}");
    assert_eq!(ahead.to_string(), waiting.to_string());
    assert_eq!(lines, expected);
}

/// The lines of a profile about copies, of a run that saves after some of its steps.
fn copies(save_every: u64) -> Vec<String> {
    let mut copies = Vec::new();
    let mut options = TrainOptions { profile: true, save_every, ..options(&folder("saving"), 1e-3, 0) };
    options.compile.device = Some(Device::new("sim", DEVICES[0]));
    let report = train(&options, false, &mut |line| {
        let is_copy = |line: &&str| line.contains("inputs of train_step") || line.contains("  read ");
        copies.extend(line.lines().filter(is_copy).map(|line| line.trim().to_owned()));
    });
    report.unwrap();
    copies
}

/// A save reads all weights, which is no part of the steps.
#[test]
fn the_timeline_of_a_profile_has_steps_alone() {
    let _alone = alone();
    // After the third of five steps, when the inputs of the fourth have been sent. For the report of a step before it,
    // it has one from the host.
    let copies = copies(3);
    let count = |what: &str| copies.iter().filter(|line| line.ends_with(what)).count();
    assert_eq!((count("inputs of train_step"), count("read 8 bytes"), copies.len()), (2, 2, 4), "{copies:#?}");
    assert!(copies.iter().filter(|line| line.contains("  read ")).all(|line| line.ends_with("read 8 bytes")));
}

/// Its copy of the state is read while the next steps write into the memory of the state.
#[test]
fn a_checkpoint_is_that_of_its_step() {
    let _alone = alone();
    let run = |name: &str, more: &dyn Fn(&mut TrainOptions)| {
        let mut options = TrainOptions { save_every: 1, keep: 9, ..options(&folder(name), 1e-3, 0) };
        options.compile.device = Some(Device::new("sim", DEVICES[1]));
        more(&mut options);
        train(&options, false, &mut |_| {}).unwrap()
    };
    let whole = run("checkpoints", &|_| {});
    for step in [1, 3] {
        let name = format!("checkpoint_{step}");
        std::fs::create_dir_all(folder(&name)).unwrap();
        let from = whole.checkpoint.with_file_name(format!("checkpoint-{step}.safetensors"));
        std::fs::copy(from, folder(&name).join("checkpoint.safetensors")).unwrap();
        let resumed = run(&name, &|options| (options.resume, options.overwrite) = (true, false));
        assert_eq!(resumed.losses, whole.losses[step..]);
        assert!(state(&resumed.checkpoint) == state(&whole.checkpoint), "checkpoints differ");
    }
}

/// Why a run ends whose third step fails, which is enqueued before the report of the second one is read.
fn failing(name: &str, lr: f64) -> TrainError {
    let mut registered = None;
    let mut options = options(&folder(name), lr, 0);
    options.compile.device = Some(Device::new("sim", DEVICES[1]));
    let report = train(&options, false, &mut |line| {
        // Told when the second step is enqueued. The third one is compiled again.
        if line.starts_with("step 1:") {
            let failing = Transform::build("failing", |trace| {
                let message = format!("{} cannot be had", trace.name);
                Err(fulgurite::Error::Argument { argument: "test".into(), message })
            });
            registered = Some(failing.register().unwrap());
        }
    });
    registered.expect("the first step is told").withdraw().unwrap();
    report.unwrap_err()
}

#[test]
fn a_divergence_is_not_hidden_by_the_failure_of_the_next_step() {
    let _alone = alone();
    let error = failing("failing_diverged", 1e30);
    let TrainError::Diverged(divergence) = error else { panic!("the failure is told instead: {error}") };
    assert_eq!(divergence.step, 2, "{divergence}");
    assert!(matches!(divergence.cause, Cause::Report { .. }), "{divergence}");
    assert!(divergence.to_string().contains("train_step cannot be had"), "{divergence}");
    let error = failing("failing", 1e-3);
    assert!(matches!(error, TrainError::Failed(_)) && error.to_string().contains("cannot be had"), "{error}");
}

/// The device has 256 MiB. A step with the logits of 1024 positions of 20000 classes, and their loss, need more.
#[test]
fn logits_are_in_chunks_where_the_device_has_no_room_for_all() {
    let _alone = alone();
    let run = |name: &str, batch: usize, logits: Option<Logits>| {
        let set =
            ["n_embd=8", "n_head=2", "n_query_groups=2", "intermediate_size=16", "n_layer=1", "tie_embeddings=true"];
        let set = set.into_iter().chain(["padded_vocab_size=20000"]).map(str::to_owned).collect();
        let (family, context) = (Family::Llama, Some(16));
        let mut options =
            TrainOptions { family, set, batch, context, logits, steps: 1, ..options(&folder(name), 1e-3, 0) };
        options.compile.device = Some(Device::new("sim", DEVICES[0]));
        let mut told = Vec::new();
        let report = train(&options, false, &mut |line| {
            told.extend(line.starts_with("logits in chunks").then(|| line.to_owned()));
        });
        (report, told)
    };
    let (few, told) = run("few_logits", 1, None);
    assert!(few.is_ok() && told.is_empty(), "{few:?}, {told:?}");
    let (whole, told) = run("whole_logits", 64, Some(Logits::Whole));
    let error = whole.unwrap_err();
    assert!(matches!(error, TrainError::Failed(Error::DeviceMemory { .. })) && told.is_empty(), "{error}");
    let (auto, told) = run("auto_logits", 64, None);
    let auto = auto.unwrap();
    let [line] = &told[..] else { panic!("{told:?}") };
    // Code, graphs and libraries have a part of it.
    assert!(line.contains("with whole logits, the limit is 252.0 MiB; it needs "), "{line}");
    let (chunked, told) = run("chunked_logits", 64, Some(Logits::Chunked));
    let chunked = chunked.unwrap();
    assert!(told.is_empty(), "{told:?}");
    assert_eq!((auto.losses, auto.validation_loss), (chunked.losses, chunked.validation_loss));
    // Another array has the rest of it.
    let _held = Array::zeros_on(Device::new("sim", DEVICES[0]), [240 << 20], DType::U8).unwrap();
    let error = run("nothing_fits", 64, None).0.unwrap_err();
    assert!(matches!(error, TrainError::Failed(Error::PlanTooLarge { .. })), "{error}");
    assert!(error.to_string().contains("; this is with chunked logits, with whole ones it needs "), "{error}");
}
