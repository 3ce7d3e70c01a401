//! Several ranks, here threads, follow one rank with the same whole batches.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fulgurite_models::checkpoint::Checkpoint;
use fulgurite_models::train::{StateDict, Strategy, TrainError, TrainOptions, TrainReport, train};
use fulgurite_runtime::ranks::simulate;

use super::options;

/// What `train` gives on each of so many ranks.
fn on_ranks(
    count: usize,
    options: impl Fn(usize) -> TrainOptions + Sync,
    line: impl Fn(&str) + Sync,
) -> Vec<Result<TrainReport, TrainError>> {
    let mesh = format!("data={count}").parse().unwrap();
    simulate(&mesh, |rank| train(&options(rank), false, &mut |text| line(text))).unwrap()
}

/// A run whose ranks together take eight sequences a batch.
fn of_eight(count: usize, out: &Path, steps: u64) -> TrainOptions {
    TrainOptions { batch: 8 / count, dropout: 0.0, ..options(out, steps) }
}

fn weights(report: &TrainReport) -> Vec<f64> {
    let checkpoint = Checkpoint::load(&report.checkpoint).unwrap();
    let floats =
        |bytes: &[u8]| bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect();
    checkpoint.tensors.values().flat_map(|tensor| -> Vec<f64> { floats(tensor.bytes()) }).collect()
}

#[test]
fn ranks_take_the_steps_of_one_with_the_same_whole_batches() {
    for accumulate in [1, 2] {
        let run = |count: usize| {
            let folder = tempfile::tempdir().unwrap();
            let options = |_| TrainOptions { accumulate, evaluate_every: 5, ..of_eight(count, folder.path(), 10) };
            let reports: Vec<TrainReport> = on_ranks(count, options, |_| {}).into_iter().map(Result::unwrap).collect();
            // That the ranks have the same weights to the bit, they check themselves.
            assert!(reports.iter().all(|report| report.losses == reports[0].losses), "the ranks tell the same losses");
            assert!(reports.iter().all(|report| report.validation_loss == reports[0].validation_loss));
            (reports[0].clone(), weights(&reports[0]))
        };
        let (one, weights_of_one) = run(1);
        for count in [2, 4] {
            let (several, weights_of_several) = run(count);
            let pairs = || one.losses.iter().zip(&several.losses);
            assert_eq!(several.losses.len(), 10);
            assert!(
                pairs().all(|(a, b)| (a / b - 1.0).abs() <= 1e-5),
                "{accumulate} {count}: {:?}",
                pairs().collect::<Vec<_>>()
            );
            let (a, b) = (one.validation_loss.unwrap(), several.validation_loss.unwrap());
            assert!((a / b - 1.0).abs() <= 1e-5, "{accumulate} {count}: {a} {b}");
            let worst = weights_of_one.iter().zip(&weights_of_several).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            // Where a gradient is next to nothing, Adam makes a step of its noise.
            assert!(worst <= 3e-3, "{accumulate} {count}: {worst}");
            let (again, weights_again) = run(count);
            assert_eq!((several.losses, weights_of_several), (again.losses, weights_again), "the same bits");
        }
    }
}

/// Ranks drop what one rank drops of the whole batches, by each strategy, and of each batch of a step.
#[test]
fn ranks_drop_the_places_of_one() {
    let run = |count: usize, dropout: f64, accumulate: usize, strategy: Strategy| {
        let folder = tempfile::tempdir().unwrap();
        let own = |_| TrainOptions { dropout, accumulate, strategy, ..of_eight(count, folder.path(), 4) };
        let reports: Vec<TrainReport> = on_ranks(count, own, |_| {}).into_iter().map(Result::unwrap).collect();
        reports[0].losses.clone()
    };
    for accumulate in [1, 2] {
        let one = run(1, 0.2, accumulate, Strategy::Ddp);
        let without = run(1, 0.0, accumulate, Strategy::Ddp);
        assert!(one.iter().zip(&without).any(|(a, b)| (a - b).abs() > 1e-3 * b), "{one:?} {without:?}");
        for (count, strategy) in
            [(2, Strategy::Ddp), (4, Strategy::Ddp), (2, Strategy::Zero2), (2, Strategy::Zero3), (4, Strategy::Zero3)]
        {
            let several = run(count, 0.2, accumulate, strategy);
            let close = one.iter().zip(&several).all(|(a, b)| (a / b - 1.0).abs() <= 1e-5);
            assert!(close, "{accumulate} {count} {strategy}: {one:?} {several:?}");
        }
    }
}

#[test]
fn a_run_goes_on_with_another_number_of_ranks() {
    let (parts, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = train(&of_eight(1, whole.path(), 6), false, &mut |_| {}).unwrap().losses;
    let mut losses = Vec::new();
    for (count, until) in [(2, 2), (4, 4), (1, 6)] {
        let options = |_| TrainOptions { resume: until > 2, warmup: 2, ..of_eight(count, parts.path(), 6) };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped =
            |rank: usize| TrainOptions { stop: (rank == 0).then(|| stop.clone()), log_every: 1, ..options(rank) };
        // One rank alone is asked to stop; all do, after the same step.
        let line = |line: &str| {
            if until < 6 && line.starts_with(&format!("step {until}: ")) {
                stop.store(true, Ordering::Relaxed);
            }
        };
        let reports: Vec<_> = on_ranks(count, stopped, line).into_iter().map(Result::unwrap).collect();
        assert!(reports.iter().all(|report| (report.steps, report.stopped) == (until, until < 6)), "{reports:?}");
        losses.extend_from_slice(&reports[0].losses);
    }
    assert_eq!(losses.len(), 6);
    let pairs = || losses.iter().zip(&expected);
    assert!(pairs().all(|(a, b)| (a / b - 1.0).abs() <= 1e-5), "{:?}", pairs().collect::<Vec<_>>());
    let other = |_| TrainOptions { resume: true, batch: 3, ..of_eight(2, parts.path(), 9) };
    for outcome in on_ranks(2, other, |_| {}) {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("batch is 8 in the checkpoint, got 6 (2 ranks of 3)"), "{error}");
    }
}

/// The parts of the checkpoint at `path`, and all files of parts beside it.
fn parts(path: &Path) -> [Vec<String>; 2] {
    let entries = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut there: Vec<String> = names.filter(|name| name.contains("-of-")).collect();
    there.sort();
    [Checkpoint::parts(path).unwrap(), there]
}

/// What ranks write in parts are the bits that one of them writes, and any ranks go on from there, by any strategy.
#[test]
fn a_sharded_checkpoint_is_the_full_one() {
    let run = |count: usize, folder: &Path, of: &(dyn Fn(&mut TrainOptions) + Sync)| -> TrainReport {
        let options = |_| {
            let mut options = TrainOptions { strategy: Strategy::Zero2, save_every: 2, ..of_eight(count, folder, 6) };
            of(&mut options);
            options
        };
        on_ranks(count, options, |_| {}).into_iter().map(Result::unwrap).next().unwrap()
    };
    let folders: [_; 2] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let [full, sharded] = folders.each_ref().map(|folder| folder.path());
    let whole = run(2, full, &|options| options.state_dict = Some(StateDict::Full));
    let in_parts = run(2, sharded, &|_| {});
    let path = in_parts.checkpoint.clone();
    let load = |path: &Path| Checkpoint::load(path).unwrap();
    assert_eq!(whole.losses, in_parts.losses);
    assert_eq!(load(&whole.checkpoint), load(&path));
    let before = path.with_file_name("checkpoint-4.safetensors");
    assert_eq!(load(&whole.checkpoint.with_file_name("checkpoint-4.safetensors")), load(&before));
    // Two checkpoints of two parts each, and none of the one that is no longer kept.
    let [own, there] = parts(&path);
    assert!(own.len() == 2 && there.len() == 4 && own.iter().all(|name| there.contains(name)), "{there:?}");
    assert_eq!(parts(&whole.checkpoint), [Vec::<String>::new(), Vec::new()]);

    // As if it had been killed after step 4, while it wrote.
    let half = path.with_file_name(".checkpoint-6.0-of-2.01234567.safetensors.abc.partial");
    for (count, strategy) in [(2, Strategy::Zero2), (4, Strategy::Zero3), (1, Strategy::Ddp), (2, Strategy::Ddp)] {
        let copy = tempfile::tempdir().unwrap();
        for name in &there {
            std::fs::copy(path.with_file_name(name), copy.path().join(name)).unwrap();
        }
        std::fs::copy(&before, copy.path().join("checkpoint.safetensors")).unwrap();
        std::fs::write(copy.path().join(half.file_name().unwrap()), b"half").unwrap();
        let resumed = run(count, copy.path(), &|options| (options.resume, options.strategy) = (true, strategy));
        assert_eq!(resumed.steps, 6);
        let pairs = || resumed.losses.iter().zip(&in_parts.losses[4..]);
        assert!(pairs().all(|(a, b)| (a / b - 1.0).abs() <= 1e-5), "{strategy} {count}: {resumed:?}");
        if (count, strategy) == (2, Strategy::Zero2) {
            assert_eq!(load(&resumed.checkpoint), load(&path), "the same bits");
        }
        assert!(!copy.path().join(half.file_name().unwrap()).exists());
    }

    // Parts that are damaged, those of another step, and missing.
    let good = std::fs::read(path.with_file_name(&own[1])).unwrap();
    let mut damaged = good.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let other = parts(&before)[0][1].clone();
    let other = std::fs::read(path.with_file_name(other)).unwrap();
    let part = path.with_file_name(&own[1]);
    for content in [&damaged, &other, &good[..good.len() - 1].to_vec()] {
        std::fs::write(&part, content).unwrap();
        let error = Checkpoint::load(&path).unwrap_err().to_string();
        assert!(error.contains(&own[1]), "{error}");
    }
    std::fs::remove_file(&part).unwrap();
    let error = Checkpoint::load(&path).unwrap_err().to_string();
    assert!(error.contains(&own[1]) && error.contains("cannot read the file"), "{error}");
    let mut lines = Vec::new();
    let resumed = TrainOptions { resume: true, ..of_eight(1, sharded, 6) };
    train(&resumed, false, &mut |line| lines.push(line.to_owned())).unwrap();
    assert!(lines.iter().any(|line| line == "resumed at step 4 of 6"), "{lines:#?}");

    let refused = |_| TrainOptions { state_dict: Some(StateDict::Sharded), ..of_eight(2, full, 6) };
    let error = on_ranks(2, refused, |_| {}).remove(0).unwrap_err().to_string();
    assert!(error.contains("'state_dict': is sharded, and with ddp"), "{error}");
}

/// Ranks that share no axis with the one that differs are told of the setting too.
#[test]
fn settings_are_compared_along_both_axes() {
    let folder = tempfile::tempdir().unwrap();
    let run = |rank: usize| {
        let strategy = Strategy::TensorParallel;
        let asked = TrainOptions { strategy, seed: u64::from(rank == 0), ..of_eight(2, folder.path(), 2) };
        train(&asked, false, &mut |_| {}).unwrap_err().to_string()
    };
    let said = simulate(&"data=2 tensor=2".parse().unwrap(), run).unwrap();
    for error in &said {
        assert!(error.contains("'seed': is 1 on rank 0 and 0 on rank "), "{said:?}");
    }
}

#[test]
fn an_error_of_one_rank_ends_all() {
    let folder = tempfile::tempdir().unwrap();
    let run = |options: &(dyn Fn(usize) -> TrainOptions + Sync)| -> Vec<String> {
        on_ranks(2, options, |_| {}).into_iter().map(|outcome| outcome.unwrap_err().to_string()).collect()
    };
    let own = |rank: usize| TrainOptions { seed: rank as u64, ..of_eight(2, folder.path(), 2) };
    let said = run(&own);
    assert!(said[0].contains("'seed': is 0 on rank 0 and 1 on rank 1, expected the same on all ranks"), "{said:?}");
    let by = |rank: usize| [Strategy::Ddp, Strategy::Zero2][rank];
    let said = run(&|rank| TrainOptions { strategy: by(rank), ..of_eight(2, folder.path(), 2) });
    assert!(said[0].contains("'strategy': is ddp on rank 0 and zero2 on rank 1"), "{said:?}");
    let said = run(&|rank| {
        let state_dict = [None, Some(StateDict::Full)][rank];
        TrainOptions { strategy: Strategy::Zero2, state_dict, ..of_eight(2, folder.path(), 2) }
    });
    assert!(said[0].contains("'state_dict': is absent on rank 0 and full on rank 1"), "{said:?}");
    let said = run(&|rank| TrainOptions { profile: rank == 1, ..of_eight(2, folder.path(), 2) });
    assert!(said[0].contains("'profile': is false on rank 0 and true on rank 1"), "{said:?}");
    let other = tempfile::tempdir().unwrap();
    let out = |rank: usize| [folder.path(), other.path()][rank];
    let said = run(&|rank| of_eight(2, out(rank), 2));
    let told = format!("'out': is {} on rank 0 and {} on rank 1", out(0).display(), out(1).display());
    assert!(said[0].contains(&told), "{said:?}");
    let own_data = |rank: usize| {
        let data = if rank == 1 { vec![folder.path().join("none")] } else { Vec::new() };
        TrainOptions { data, ..of_eight(2, folder.path(), 2) }
    };
    let said = run(&own_data);
    assert!(said[0].contains("'data': is absent on rank 0 and ") && said[0].contains("none on rank 1"), "{said:?}");
    let peaks = [None, Some(-1.0)];
    let said = run(&|rank| TrainOptions { peak_flops: peaks[rank], ..of_eight(2, folder.path(), 2) });
    assert!(said[1].contains("is -1") && said[0] == format!("rank 1 ended the run: {}", said[1]), "{said:?}");
    // The rank that writes cannot.
    let blocked = |_| TrainOptions { save_every: 1, ..of_eight(2, folder.path(), 2) };
    let block = |line: &str| {
        if line.starts_with("step 1: ") {
            std::fs::create_dir(folder.path().join("checkpoint.safetensors")).unwrap();
        }
    };
    let outcomes = on_ranks(2, blocked, block);
    let said: Vec<String> = outcomes.into_iter().map(|outcome| outcome.unwrap_err().to_string()).collect();
    assert!(said[0].contains("checkpoint.safetensors"), "{said:?}");
    assert_eq!(said[1], format!("rank 0 ended the run: {}", said[0]));
}

#[test]
fn ranks_diverge_together() {
    let folder = tempfile::tempdir().unwrap();
    let options = |_| TrainOptions { lr: 1e30, accumulate: 2, warmup: 0, ..of_eight(2, folder.path(), 4) };
    let outcomes = on_ranks(2, options, |_| {});
    let [Err(TrainError::Diverged(first)), Err(TrainError::OtherRank { rank: 0, diverged: true, message })] =
        &outcomes[..]
    else {
        panic!("{outcomes:?}");
    };
    assert_eq!(first.to_string(), *message);
}
