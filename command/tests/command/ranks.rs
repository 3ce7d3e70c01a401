//! Several ranks: `train --devices`, `launch`, and the processes of other launchers.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{run_in, run_with};

const SMALL: &str = "train gpt2 --size nano --context 16 --sample-tokens 2 --evaluate-batches 2 --out run";

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The losses in the table of the run in a folder.
fn losses(folder: &Path) -> Vec<f64> {
    let table = std::fs::read_to_string(folder.join("run/metrics.csv")).unwrap();
    table.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse().unwrap()).collect()
}

fn start(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fulgurite"));
    command.args(arguments).current_dir(folder).env_remove("FULGURITE_LOG").envs(variables.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until there is a checkpoint of a run in a folder.
fn saved(folder: &Path) {
    let (path, until) = (folder.join("run/checkpoint.safetensors"), Instant::now() + Duration::from_secs(60));
    while !path.exists() {
        assert!(Instant::now() < until, "no checkpoint was saved");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// By each strategy, also where gradients of several batches are added up; another number of ranks goes on by another
/// strategy, with as many sequences.
#[test]
fn ranks_train_as_one_with_their_batches_together() {
    let train = |rest: &str| {
        let folder = tempfile::tempdir().unwrap();
        let said = run_in(folder.path(), &words(&format!("{SMALL} --steps 6 --evaluate-every 4 {rest}"))).ok();
        assert_eq!(said.matches("step 6: loss").count(), 1, "{said}");
        (losses(folder.path()), folder, said)
    };
    for (accumulate, strategies) in [(1, &["ddp", "zero2", "zero3"][..]), (2, &["ddp", "zero3"])] {
        let more = format!("--accumulate {accumulate} --dropout 0.1");
        let one = train(&format!("--batch 8 {more}")).0;
        for strategy in strategies {
            let rest = format!("--batch 4 {more} --devices 2 --strategy {strategy}");
            let (two, folder, said) = train(&rest);
            assert!(said.contains(&format!("on 2 ranks by {strategy}, 8 sequences a batch")), "{said}");
            let pairs = || one.iter().zip(&two);
            assert_eq!(two.len(), one.len());
            assert!(pairs().all(|(a, b)| (a / b - 1.0).abs() <= 1e-5), "{rest}: {:?}", pairs().collect::<Vec<_>>());
            let other = if *strategy == "ddp" { "zero2" } else { "ddp" };
            let go_on = "train gpt2 --out run --resume --steps 7 --devices 4 --sample-tokens 2 --strategy";
            let said = run_in(folder.path(), &words(&format!("{go_on} {other}"))).ok();
            let told = format!("on 4 ranks by {other}, 8 sequences");
            assert!(said.contains("resumed at step 6 of 7") && said.contains(&told), "{said}");
        }
    }
}

/// Layers in parts, on ranks with one batch and on groups of them; checkpoints are those of one rank, and texts too.
#[test]
fn ranks_that_divide_layers_train_and_generate_as_one() {
    let train = |folder: &Path, rest: &str| run_in(folder, &words(&format!("{SMALL} --steps 6 {rest}"))).ok();
    let alone = tempfile::tempdir().unwrap();
    train(alone.path(), "--batch 8");
    let one = losses(alone.path());
    for (rest, told) in [
        ("--devices 2 --strategy tensor_parallel --batch 8", "on 2 ranks by tensor_parallel, 8 sequences a batch"),
        ("--devices 2 --strategy sequence_parallel --batch 8", "on 2 ranks by sequence_parallel, 8 sequences"),
        ("--devices 4 --strategy tensor_parallel --tensor 2 --batch 4", "on 4 ranks by tensor_parallel, 8 sequences"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let said = train(folder.path(), rest);
        assert!(said.contains(told), "{said}");
        let found = losses(folder.path());
        let pairs = || one.iter().zip(&found);
        assert_eq!(found.len(), one.len());
        assert!(pairs().all(|(a, b)| (a / b - 1.0).abs() <= 1e-5), "{rest}: {:?}", pairs().collect::<Vec<_>>());
        let go_on = "train gpt2 --out run --resume --steps 7 --devices 2 --sample-tokens 2 --strategy";
        let said = run_in(folder.path(), &words(&format!("{go_on} zero2"))).ok();
        assert!(said.contains("resumed at step 6 of 7"), "{said}");
        let text = |rest: &str| {
            let generate = "generate run/checkpoint.safetensors --prompt ROMEO --temperature 0 --tokens 8";
            run_in(folder.path(), &words(&format!("{generate} {rest}"))).ok()
        };
        assert_eq!(text("--devices 2"), text(""));
        assert_eq!(text("--devices 2 --cache 0"), text("--cache 0"));
    }
    // Weights of 16 bits.
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), "--batch 4 --precision bf16-true");
    let text = |rest: &str| {
        let generate = "generate run/checkpoint.safetensors --prompt ROMEO --temperature 0 --tokens 8";
        run_in(folder.path(), &words(&format!("{generate} {rest}"))).ok()
    };
    assert_eq!(text("--devices 2"), text(""));
    // Of gradients of several batches; and one that a run by another strategy began.
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), "--batch 4 --accumulate 2");
    let before = losses(folder.path());
    let rest = "--batch 2 --accumulate 2 --overwrite --devices 4 --tensor 2 --strategy tensor_parallel";
    train(folder.path(), rest);
    let close = before.iter().zip(losses(folder.path())).all(|(a, b)| (a / b - 1.0).abs() <= 1e-5);
    assert!(close, "{before:?}, {:?}", losses(folder.path()));
    let go_on = "train gpt2 --out run --resume --steps 7 --devices 2 --sample-tokens 2 --strategy tensor_parallel";
    let said = run_in(folder.path(), &words(&format!("{go_on} --batch 4"))).ok();
    assert!(said.contains("resumed at step 6 of 7"), "{said}");
}

#[test]
fn what_cannot_be_divided_among_ranks_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (rest, complaint) in [
        (
            "--devices 3 --strategy tensor_parallel",
            "has 2 attention heads, which tensor_parallel divides among 3 ranks",
        ),
        ("--devices 4 --tensor 3 --strategy tensor_parallel", "--tensor: 3 ranks are to divide each layer, expected a"),
        ("--devices 2 --tensor 2", "--tensor: 2 ranks are to divide each layer, which ddp does not do"),
        ("--tensor 2", "--tensor: 2 ranks are to divide each layer, which ddp does not do"),
        ("--strategy tensor_parallel --tensor 2", "--tensor: 2 ranks are to divide each layer, expected a divisor"),
        (
            "--devices 2 --strategy tensor_parallel --state-dict sharded",
            "is sharded, and with tensor_parallel one rank",
        ),
    ] {
        let said = run_in(folder.path(), &words(&format!("{SMALL} --steps 2 --batch 2 {rest}"))).fails(1);
        assert_eq!(said.matches(complaint).count(), 1, "{rest}: {said}");
        assert!(!folder.path().join("run").exists());
    }
}

/// `train` and the model of time exchange as much at a time.
#[test]
fn buckets_are_those_of_programs() {
    let folder = tempfile::tempdir().unwrap();
    let help = run_in(folder.path(), &["train", "gpt2", "--help"]).ok();
    let said = help.split_once("--bucket-mib").and_then(|(_, after)| after.split_once("[default: "));
    let mib = said.and_then(|(_, after)| after.split_once(']')).unwrap().0;
    assert_eq!(mib, (fulgurite::compile::Options::default().bucket >> 20).to_string());
}

/// The mesh of a launcher counts, and options do not contradict it.
#[test]
fn another_mesh_than_tensor_says_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let train = format!("{SMALL} --steps 2 --batch 2 --strategy tensor_parallel --tensor 1");
    let mut arguments = vec!["launch", "--ranks", "2", "--mesh", "tensor=2", "--"];
    arguments.extend(words(&train));
    let said = run_in(folder.path(), &arguments).fails(1);
    let complaint = "--tensor: 1 ranks are to divide each layer, and the mesh of the ranks is 'tensor=2'";
    assert_eq!(said.matches(complaint).count(), 1, "{said}");
    assert!(!folder.path().join("run").exists());
}

/// Three batches among two ranks, and one among them, which parts of a model can not have.
#[test]
fn ranks_may_have_uneven_shares_of_validation() {
    for (bytes, strategy, fits) in [(97, "ddp", true), (97, "zero2", true), (33, "ddp", true), (33, "zero2", false)] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("v.txt"), "words and words. ".repeat(6).split_at(bytes).0).unwrap();
        let rest = format!("--steps 1 --batch 2 --devices 2 --strategy {strategy} --validation v.txt");
        let ran = run_in(folder.path(), &words(&format!("{SMALL} {rest}")));
        if fits {
            let said = ran.ok();
            assert!(said.contains("validation loss"), "{rest}: {said}");
        } else {
            let said = ran.fails(1);
            assert!(said.contains("has 1 batches, expected one for each of 2 ranks"), "{said}");
        }
    }
}

#[test]
fn an_error_of_ranks_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    for (more, complaint) in [
        ("--data none", "cannot read 'none'"),
        ("--lr -1", "learning rate"),
        ("--device cuda:1", "--device is cuda:1 on several ranks, expected cuda"),
    ] {
        let said = run_in(folder.path(), &words(&format!("{SMALL} --steps 2 --devices 2 {more}"))).fails(1);
        assert_eq!(said.matches(complaint).count(), 1, "{said}");
        assert!(!folder.path().join("run").exists());
    }
    let diverged = run_in(folder.path(), &words(&format!("{SMALL} --steps 9 --devices 2 --lr 1e20 --warmup 0")));
    assert_eq!((diverged.code, diverged.err.matches("lower the learning rate").count()), (3, 1), "{}", diverged.err);
    assert!(diverged.err.ends_with("rank 0 of 2 was the first to end: exit status: 3\n"), "{}", diverged.err);
}

/// The system closes what a killed process held; the others end at once, and what was saved is whole.
#[cfg(unix)]
#[test]
fn a_rank_that_is_killed_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let kill = "(while [ ! -e run/checkpoint.safetensors ]; do sleep 0.05; done; sleep 0.3; kill -9 $$) & ";
    let train = format!("exec '{}' {SMALL} --batch 2 --steps 100000 --save-every 3", env!("CARGO_BIN_EXE_fulgurite"));
    let script = format!("if [ $RANK = 1 ]; then {kill} fi; {train}");
    let mut launched = start(folder.path(), &["launch", "--ranks", "3", "--", "sh", "-c", &script], &[]);
    saved(folder.path());
    let killed = Instant::now();
    let status = launched.wait().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(30), "{:?}", killed.elapsed());
    let output = launched.wait_with_output().unwrap();
    let said = err(&output);
    assert_eq!(status.code(), Some(128 + 9), "{said}");
    assert!(said.ends_with("error: rank 1 of 3 was the first to end: signal: 9 (SIGKILL)\n"), "{said}");
    assert!(said.contains("rank 0 waits in") && said.contains("and rank 1 has ended or failed"), "{said}");
    assert!(said.contains("\n[2] error: ") || said.starts_with("[2] error: "), "{said}");
    let names = std::fs::read_dir(folder.path().join("run")).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    let known = ["checkpoint", "events.jsonl", "metrics.csv", "report.html"];
    assert!(names.iter().all(|name| known.iter().any(|known| name.starts_with(known))), "{names:?}");
    let said =
        run_in(folder.path(), &words("train gpt2 --out run --resume --steps 2 --batch 6 --sample-tokens 2")).ok();
    assert!(said.starts_with("nothing to do: the checkpoint is at step "), "{said}");
}

/// Whatever the ranks write at that moment, the checkpoint before it remains, and all of it can be read.
#[cfg(unix)]
#[test]
fn a_rank_that_is_killed_while_parts_are_written_leaves_the_checkpoint_before() {
    let folder = tempfile::tempdir().unwrap();
    let train = format!(
        "exec '{}' {SMALL} --batch 2 --steps 100000 --save-every 1 --strategy zero2",
        env!("CARGO_BIN_EXE_fulgurite")
    );
    let mut steps = Vec::new();
    for (round, milliseconds) in [3, 17, 40, 71].into_iter().enumerate() {
        let resume = if round > 0 { "--resume" } else { "" };
        let wait = "while [ ! -e run/checkpoint.safetensors -o run/checkpoint.safetensors -ot started ]; do sleep 0.01";
        let kill = format!("(touch started; {wait}; done; sleep 0.0{milliseconds:02}; kill -9 $$) &");
        let script = format!("if [ $RANK = {} ]; then {kill} fi; {train} {resume}", round % 2);
        let launched = start(folder.path(), &["launch", "--ranks", "2", "--", "sh", "-c", &script], &[]);
        let output = launched.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(128 + 9), "{}", err(&output));
        let said = run_in(folder.path(), &words("train gpt2 --out run --resume --steps 1 --batch 4")).ok();
        let told = said.strip_prefix("nothing to do: the checkpoint is at step ");
        let step = told.and_then(|told| told.split_once(',')).unwrap_or_else(|| panic!("{said}")).0;
        steps.push(step.parse::<u64>().unwrap());
    }
    assert!(steps.is_sorted_by(|a, b| a < b), "{steps:?}");
    run_in(folder.path(), &words("generate run --max-new-tokens 2")).ok();
    run_in(folder.path(), &words("convert run whole.safetensors --to checkpoint")).ok();
}

#[cfg(unix)]
#[test]
fn an_interruption_ends_all_ranks_with_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = format!("{SMALL} --steps 100000 --batch 2 --devices 2 --save-every 2");
    let training = start(folder.path(), &words(&arguments), &[]);
    saved(folder.path());
    Command::new("kill").args(["-TERM", &training.id().to_string()]).status().unwrap();
    let output = training.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert_eq!(err(&output), "stopping after this step with a checkpoint; once more stops at once\n");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("stopped after step ") && out.contains("checkpoint: run/checkpoint.safetensors"), "{out}");
    let done = losses(folder.path()).len();
    let said = run_in(folder.path(), &words(&format!("train gpt2 --out run --resume --steps {done}"))).ok();
    assert!(said.starts_with(&format!("nothing to do: the checkpoint is at step {done}")), "{said}");
}

#[cfg(unix)]
#[test]
fn launch_starts_a_command_for_each_rank() {
    let folder = tempfile::tempdir().unwrap();
    let launch = |more: &[&str]| run_in(folder.path(), &[&["launch"], more].concat());
    let show = "echo $RANK $WORLD_SIZE $LOCAL_RANK $FULGURITE_MESH; echo to err >&2";
    let ran = launch(&["--mesh", "data=1 tensor=2", "--", "sh", "-c", show]);
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    assert_eq!((ran.code, lines), (0, vec!["0 2 0 data=1 tensor=2", "[1] 1 2 1 data=1 tensor=2"]));
    assert_eq!(ran.err.lines().collect::<std::collections::BTreeSet<_>>().len(), 2, "{}", ran.err);
    let secrets = launch(&["--ranks", "2", "--", "sh", "-c", "echo $FULGURITE_SECRET"]).ok();
    let mut secrets = secrets.lines().map(|line| line.trim_start_matches("[1] "));
    assert!(secrets.next().is_some_and(|secret| secret.len() == 64 && secrets.next() == Some(secret)));
    launch(&["--ranks", "2", "--log-folder", "logs", "--", "sh", "-c", "echo from $RANK"]).ok();
    assert_eq!(std::fs::read_to_string(folder.path().join("logs/rank-1.log")).unwrap(), "from 1\n");

    let begun = Instant::now();
    let failing = launch(&["--ranks", "3", "--", "sh", "-c", "[ $RANK != 2 ] || exit 7; sleep 60"]);
    assert_eq!((failing.code, &*failing.err), (7, "error: rank 2 of 3 was the first to end: exit status: 7\n"));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(launch(&["--ranks", "2", "--mesh", "data=4", "--", "true"]).fails(1).contains("'data=4' has 4 ranks"));
    assert!(launch(&["--ranks", "2", "--", "./none"]).fails(1).contains("rank 0: './none' cannot be started"));
    let said = launch(&["--gpus", "9999", "--", "true"]).fails(1);
    assert!(said.contains("9999 ranks need a device of kind cuda each") || said.contains("is not available"), "{said}");
    launch(&["--", "true"]).fails(2);
    launch(&["--ranks", "0", "--", "true"]).fails(2);

    // The arguments of the second start.
    let script = "[ \"$1\" = --resume ] && echo again || kill -9 $$";
    let again = launch(&["--ranks", "1", "--restarts", "1", "--", "sh", "-c", script, "name"]);
    assert_eq!((again.code, &*again.out), (0, "again\n"), "{}", again.err);
    assert!(again.err.contains("rank 0 of 1 was the first to end: signal: 9 (SIGKILL)"), "{}", again.err);
}

/// A command that dies of the signal is not started again.
#[cfg(unix)]
#[test]
fn an_interruption_is_no_reason_to_start_again() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo begun > rank-$RANK; exec sleep 60";
    let launched = start(folder.path(), &["launch", "--ranks", "1", "--restarts", "9", "--", "sh", "-c", script], &[]);
    let until = Instant::now() + Duration::from_secs(60);
    while !folder.path().join("rank-0").exists() {
        assert!(Instant::now() < until, "no rank was started");
        std::thread::sleep(Duration::from_millis(10));
    }
    Command::new("kill").args(["-TERM", &launched.id().to_string()]).status().unwrap();
    let output = launched.wait_with_output().unwrap();
    let said = err(&output);
    assert_eq!(
        (output.status.code(), &*said),
        (Some(143), "error: rank 0 of 1 was the first to end: signal: 15 (SIGTERM)\n")
    );
}

/// The processes that a process has started.
#[cfg(target_os = "linux")]
fn started_by(parent: u32) -> Vec<u32> {
    let of = |entry: std::fs::DirEntry| -> Option<u32> {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name of the program, in brackets, may have anything in it.
        let own: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        (own == parent).then_some(process)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| of(entry.ok()?)).collect()
}

/// Launches `train` on two ranks, kills one of them once `reached` is true of the folder, and gives what it said.
#[cfg(target_os = "linux")]
fn killed_once(folder: &Path, train: &str, reached: &dyn Fn(&Path) -> bool) -> Output {
    let launch = format!("launch --ranks 2 --restarts 2 -- {train}");
    let launched = start(folder, &words(&launch), &[]);
    let until = Instant::now() + Duration::from_secs(60);
    while !reached(folder) {
        assert!(Instant::now() < until, "the run did not get so far");
        std::thread::sleep(Duration::from_millis(5));
    }
    let rank = started_by(launched.id())[0];
    Command::new("kill").args(["-KILL", &rank.to_string()]).status().unwrap();
    launched.wait_with_output().unwrap()
}

/// Without a checkpoint of its own a run begins anew, whatever is in the folder; with one it goes on from it.
#[cfg(target_os = "linux")]
#[test]
fn what_is_started_again_goes_on_from_its_own_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let steps =
        |folder: &Path| std::fs::read_to_string(folder.join("run/metrics.csv")).map_or(0, |t| t.lines().count());
    let before = || run_in(folder.path(), &words(&format!("{SMALL} --batch 4 --steps 3 --seed 9"))).ok();
    before();
    let train = format!("{SMALL} --batch 2 --steps 150 --save-every 0 --evaluate-every 0 --overwrite");
    let old = std::fs::read_to_string(folder.path().join("run/metrics.csv")).unwrap();
    let goes = |folder: &Path| {
        steps(folder) > 5 && std::fs::read_to_string(folder.join("run/metrics.csv")).is_ok_and(|table| table != old)
    };
    let output = killed_once(folder.path(), &train, &goes);
    let (out, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), err(&output));
    assert!(output.status.success(), "{out}{said}");
    assert_eq!(said.matches("starting again, from its newest checkpoint if it has saved one; 1 more").count(), 1);
    assert!(!out.contains("resumed at step"), "{out}");
    let again = losses(folder.path());
    assert_eq!(again.len(), 150);

    // The same, with checkpoints of its own.
    let train = format!("{SMALL} --batch 2 --steps 150 --save-every 20 --evaluate-every 0 --overwrite");
    let written = std::fs::metadata(folder.path().join("run/checkpoint.safetensors")).unwrap().modified().unwrap();
    let saved = |folder: &Path| {
        let found = std::fs::metadata(folder.join("run/checkpoint.safetensors"));
        found.and_then(|found| found.modified()).is_ok_and(|found| found > written)
    };
    let output = killed_once(folder.path(), &train, &saved);
    let (out, said) = (String::from_utf8_lossy(&output.stdout).into_owned(), err(&output));
    assert!(output.status.success() && out.contains("resumed at step "), "{out}{said}");
    assert_eq!(losses(folder.path()), again, "the same steps, to the bit");
}

/// Neither arguments that are refused nor a folder with the checkpoint of another run are tried again.
#[test]
fn what_was_refused_is_not_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let launch = |train: &str| run_in(folder.path(), &words(&format!("launch --ranks 2 --restarts 3 -- {train}")));
    for (train, code, complaint) in [
        (format!("{SMALL} --steps 2 --lr -1"), 1, "learning rate"),
        (format!("{SMALL} --steps two"), 2, "invalid value 'two'"),
        (format!("{SMALL} --steps 2 --strategy none"), 2, "none"),
    ] {
        let ran = launch(&train);
        let said = ran.err;
        assert_eq!((ran.code, &*ran.out), (code, ""), "{said}");
        assert!(said.contains(complaint) && said.contains("note: not started again: "), "{said}");
        assert_eq!(said.matches("was the first to end").count(), 1, "{said}");
    }
    run_in(folder.path(), &words(&format!("{SMALL} --batch 4 --steps 2"))).ok();
    let before = std::fs::read(folder.path().join("run/checkpoint.safetensors")).unwrap();
    let said = launch(&format!("{SMALL} --batch 2 --steps 9")).fails(1);
    assert!(said.contains("a checkpoint is there already") && !said.contains("starting again"), "{said}");
    assert!(said.contains("not started again: it was refused before its first step"), "{said}");
    assert_eq!(std::fs::read(folder.path().join("run/checkpoint.safetensors")).unwrap(), before);
    let diverging = launch(&format!("{SMALL} --batch 2 --steps 9 --lr 1e20 --warmup 0 --overwrite"));
    assert_eq!(diverging.code, 3, "{}", diverging.err);
    assert!(diverging.err.contains("not started again: its numbers would diverge again"), "{}", diverging.err);
}

/// A part that is named as a model says which file is meant.
#[test]
fn a_part_of_a_checkpoint_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    let train = format!("{SMALL} --batch 2 --steps 2 --devices 2 --strategy zero2");
    run_in(folder.path(), &words(&train)).ok();
    let names = std::fs::read_dir(folder.path().join("run")).unwrap().map(|entry| entry.unwrap().file_name());
    let part = names.filter_map(|name| name.into_string().ok()).find(|name| name.contains("-of-2.")).unwrap();
    let told = format!(
        "'run/{part}' is one of the parts of a checkpoint that several ranks wrote: name the checkpoint, \
         'run/checkpoint.safetensors'"
    );
    for command in [
        format!("generate run/{part} --max-new-tokens 2"),
        format!("train gpt2 --init run/{part} --out other --steps 1"),
    ] {
        let said = run_in(folder.path(), &words(&command)).fails(1);
        assert!(said.contains(&told), "{command}: {said}");
    }
    run_in(folder.path(), &words("generate run/checkpoint.safetensors --max-new-tokens 2")).ok();
}

#[test]
fn ranks_of_other_launchers_are_understood() {
    let folder = tempfile::tempdir().unwrap();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let ranks = |names: [&str; 3], seeds: [&str; 2]| -> Vec<Output> {
        let begin = |(rank, seed): (usize, &str)| {
            let number = rank.to_string();
            let place = [(names[0], &*number), (names[1], "2"), (names[2], &*number)];
            let meet = [
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", &free),
                ("FULGURITE_SECRET", "known to the two of them"),
            ];
            let arguments = format!("{SMALL} --steps 2 --batch 2 --overwrite --seed {seed}");
            start(folder.path(), &words(&arguments), &[&place[..], &meet].concat())
        };
        let started: Vec<Child> = seeds.into_iter().enumerate().map(begin).collect();
        started.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
    };
    for names in [
        ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
        ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
        ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"],
    ] {
        let ended = ranks(names, ["1", "1"]);
        assert!(ended.iter().all(|output| output.status.success()), "{}{}", err(&ended[0]), err(&ended[1]));
        assert!(String::from_utf8_lossy(&ended[0].stdout).contains("on 2 ranks by ddp") && ended[1].stdout.is_empty());
    }
    let disagree = ranks(["RANK", "WORLD_SIZE", "LOCAL_RANK"], ["1", "2"]);
    assert!(err(&disagree[0]).contains("'seed': is 1 on rank 0 and 2 on rank 1"), "{}", err(&disagree[0]));

    let rank = [("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1")];
    let alone = |variables: &[(&str, &str)]| run_with(folder.path(), &words(SMALL), variables).fails(1);
    assert!(alone(&rank).contains("rank 1 of 2, and FULGURITE_SECRET is not set"));
    // Each of them would start as many again.
    let each = run_with(folder.path(), &words(&format!("{SMALL} --devices 2 --steps 1 --batch 2")), &rank).fails(1);
    assert!(each.contains("rank 1 of 2, and FULGURITE_SECRET is not set"), "{each}");
    assert!(alone(&rank[..1]).contains("RANK is set, and WORLD_SIZE is not"));
}
