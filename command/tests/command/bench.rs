//! `train --bench`: what it prints and writes, and that it leaves a run alone.

use std::fs;

use serde_json::Value;

use crate::run_in;

const SMALL: [&str; 10] = ["train", "gpt2", "--size", "nano", "--context", "16", "--batch", "2", "--out", "run"];

#[test]
fn a_bench_tells_and_writes_what_a_step_takes() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run_in(folder.path(), &[&SMALL[..], &["--bench", "3", "--peak-tflops", "0.5"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(ran.marked, fulgurite::BUILD == "debug", "{}", ran.err);
    for word in ["step: ", "half of 3 steps", "tokens/s, 32 tokens a step", "% of 0.5 TFLOP/s", "memory: ", "host: "] {
        assert!(ran.out.contains(word), "no {word:?} in\n{}", ran.out);
    }
    let text = fs::read_to_string(folder.path().join("run/bench/bench.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let number = |name: &str| file[name].as_f64().unwrap_or_else(|| panic!("no number {name} in {text}"));
    assert_eq!(file["milliseconds"].as_array().unwrap().len(), 3);
    assert_eq!((&file["asked"], &file["timed"], &file["interrupted"]), (&3.into(), &3.into(), &false.into()));
    assert_eq!((number("tokens"), number("vocabulary"), number("warm_up")), (32.0, 256.0, 10.0));
    let (median, least, most) = (number("median_ms"), file["range_ms"][0].as_f64(), file["range_ms"][1].as_f64());
    assert!(least.unwrap() <= median && median <= most.unwrap(), "{text}");
    assert!((number("tokens_per_second") * median - 32e3).abs() < 1e-3 * 32e3, "{text}");
    assert!(["mfu", "peak_bytes", "host_us", "first_step_s"].iter().all(|name| number(name) > 0.0), "{text}");
    // On the host the step is launched, and nothing is waited for.
    let part = |name: &str| file["host_parts_us"][name].as_f64().unwrap_or_else(|| panic!("no part {name} in {text}"));
    let parts = ["batch", "arguments", "inputs", "launch", "results", "report"].map(part);
    assert!(parts[3] > 0.0 && (parts[2], parts[4], number("waiting_us")) == (0.0, 0.0, 0.0), "{text}");
    assert!(ran.out.contains("us a step (batch ") && ran.out.contains("us waiting for the device"), "{}", ran.out);
    let command = file["command"].as_str().unwrap();
    assert!(command.ends_with("--out run --bench 3 --peak-tflops 0.5"), "{command}");
    assert!(!folder.path().join("run/checkpoint.safetensors").exists());
    assert!(!folder.path().join("run/bench/checkpoint.safetensors").exists());
}

#[test]
fn a_run_in_the_folder_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["--steps", "2", "--warmup", "1", "--evaluate-batches", "1", "--sample-tokens", "2"];
    assert_eq!(run_in(folder.path(), &[&SMALL[..], &more].concat()).code, 0);
    let files = || {
        let names = ["checkpoint.safetensors", "metrics.csv", "events.jsonl", "report.html"];
        names.map(|name| fs::read(folder.path().join("run").join(name)).unwrap())
    };
    let before = files();
    for _ in 0..2 {
        let ran = run_in(folder.path(), &[&SMALL[..], &["--bench", "1"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    assert!(files() == before, "a file of the run has changed");
}

/// A bench evaluates nothing: validation data that does not fill a batch is none of its business.
#[test]
fn a_bench_needs_no_validation_data() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data.txt"), "to be or not to be ".repeat(40)).unwrap();
    fs::write(folder.path().join("few.txt"), "to be").unwrap();
    let run = |more: &[&str]| {
        run_in(folder.path(), &[&SMALL[..], &["--data", "data.txt", "--validation", "few.txt"], more].concat())
    };
    let trained = run(&["--steps", "2", "--warmup", "1"]);
    assert!(trained.code != 0 && trained.err.contains("validation data"), "{}", trained.err);
    let timed = run(&["--bench", "1"]);
    assert_eq!(timed.code, 0, "{}", timed.err);
}

#[test]
fn what_a_bench_cannot_do_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for (more, expected) in [
        (&["--bench", "0"][..], "argument 'bench': is 0, expected a number of steps from 1 on"),
        (&["--bench", "18446744073709551615"], "expected a number of steps from 1 on"),
        (&["--bench", "few"], "invalid value 'few' for '--bench <STEPS>'"),
        (&["--bench", "3", "--resume"], "cannot be used with"),
        (&["--bench", "3", "--steps", "4"], "cannot be used with"),
    ] {
        let ran = run_in(folder.path(), &[&SMALL[..], more].concat());
        assert!(ran.code != 0 && ran.err.contains(expected), "{more:?}: {}\n{}", ran.code, ran.err);
        assert!(!folder.path().join("run").exists(), "{more:?} wrote something");
    }
}

/// Ctrl-C before all steps are timed: the figures say of how many they are.
#[test]
#[cfg(unix)]
fn an_interrupted_bench_says_how_many_steps_it_timed() {
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    // As `nohup` starts it: a closed terminal does not end it.
    let mut child = Command::new("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_fulgurite")])
        .args([&SMALL[..], &["--bench", "1000000"]].concat())
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A line for each step, and the first ten are no part of it.
    let steps =
        || fs::read_to_string(folder.path().join("run/bench/metrics.csv")).map_or(0, |text| text.lines().count());
    let id = child.id().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    let mut wait_for = |count: usize| {
        while steps() < count {
            assert_eq!(child.try_wait().unwrap(), None, "the command has ended");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    };
    wait_for(14);
    signal("-HUP");
    wait_for(steps() + 3);
    signal("-INT");
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(130), "{out}{err}");
    let file: Value =
        serde_json::from_str(&fs::read_to_string(folder.path().join("run/bench/bench.json")).unwrap()).unwrap();
    let timed = file["milliseconds"].as_array().unwrap().len();
    assert!((1..1_000_000).contains(&timed), "{timed}");
    assert_eq!(
        (&file["asked"], &file["timed"], &file["interrupted"]),
        (&1_000_000.into(), &timed.into(), &true.into())
    );
    assert!(out.contains(&format!("half of {timed} of 1000000 steps, interrupted, ")), "{out}");
    assert!(err.contains("stopping after this step with the steps that were timed"), "{err}");
    assert!(err.contains(&format!("warning: interrupted: {timed} of 1000000 steps were timed")), "{err}");
}

/// What an earlier bench timed is not beside the table of one that timed nothing.
#[test]
#[cfg(unix)]
fn an_interrupted_warm_up_leaves_no_figures_of_an_earlier_bench() {
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run/bench/bench.json");
    let table = || fs::read_to_string(folder.path().join("run/bench/metrics.csv")).unwrap_or_default();
    run_in(folder.path(), &[&SMALL[..], &["--bench", "3"]].concat()).ok();
    assert!(file.exists());
    let earlier = table();
    let mut child = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args([&SMALL[..], &["--bench", "1000000"]].concat())
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while table() == earlier {
        assert_eq!(child.try_wait().unwrap(), None, "the command has ended");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    // Where the signal came after the warm-up, the figures are the new ones.
    let asked = fs::read_to_string(&file).map(|text| serde_json::from_str::<Value>(&text).unwrap()["asked"].clone());
    assert!(asked.is_err() || asked.as_ref().is_ok_and(|asked| *asked == 1_000_000), "{asked:?}");
}
