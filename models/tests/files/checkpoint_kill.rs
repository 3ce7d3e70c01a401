//! A process killed while it writes checkpoints leaves a whole one behind, every time.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fulgurite_models::optimizer::OptimizerSettings;
use fulgurite_models::random::Stream;
use fulgurite_models::{BatchPosition, Checkpoint, GptConfig, HostTensor, Schedule, TrainingState, batches::Order};

/// Set to a path, it turns this test into the process that is killed.
const CHILD: &str = "FULGURITE_TEST_SAVE_FOREVER";

/// Two megabytes that all depend on the step, so that a mixture of two checkpoints would be seen.
fn checkpoint(step: u64) -> Checkpoint {
    let values: Vec<i64> = (0..1 << 18).map(|index| index ^ step as i64).collect();
    let data = BatchPosition {
        seed: 0,
        order: Order::Shuffled,
        epoch: 0,
        batch: step,
        rows: 1,
        context: 8,
        tokens: 100,
        fingerprint: 0,
    };
    let state = TrainingState {
        step,
        model: GptConfig { vocabulary: 256, context: 8, layers: 1, heads: 1, channels: 4, ..GptConfig::GPT2 }.into(),
        tokenizer: "bytes".to_owned(),
        data,
        accumulation: 1,
        schedule: Schedule::constant(1e-3),
        optimizer: OptimizerSettings::default(),
        seed: 0,
        random_offset: 0,
        notes: BTreeMap::new(),
    };
    let tensor = HostTensor::from_i64(&[values.len()], &values).unwrap();
    Checkpoint { state, tensors: BTreeMap::from([("values".to_owned(), tensor)]) }
}

#[test]
fn a_kill_while_saving_leaves_a_whole_checkpoint() {
    if let Some(path) = std::env::var_os(CHILD) {
        let path = Path::new(&path);
        let start = Checkpoint::load(path).unwrap().state.step;
        for step in start + 1.. {
            checkpoint(step).save(path).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("last.safetensors");
    checkpoint(0).save(&path).unwrap();
    let mut random = Stream::new(11, 0);
    let (mut step, mut interrupted) = (0, 0);
    for _ in 0..25 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "checkpoint_kill::a_kill_while_saving_leaves_a_whole_checkpoint"])
            .env(CHILD, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(20_000 + random.below(80_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let found = Checkpoint::load(&path).unwrap();
        assert!(found.state.step >= step, "step {} after {step}", found.state.step);
        step = found.state.step;
        assert_eq!(found, checkpoint(step));
        let leftovers = std::fs::read_dir(folder.path()).unwrap().count() - 1;
        assert!(leftovers <= 1, "{leftovers} partial files");
        interrupted += leftovers;
    }
    println!("{step} checkpoints, {interrupted} kills in the middle of one");
    assert!(step > 0, "no child came to save anything");
    checkpoint(step).save(&path).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the leftover of the last kill is still there");
}
