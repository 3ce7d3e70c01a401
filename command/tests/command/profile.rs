//! `profile` and `bench`: tables, files and pictures, and what they refuse.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use crate::{Ran, run_with};

/// Runs the command with a cache of its own, and a Python that has no PyTorch.
fn run_bare(folder: &Path, arguments: &[&str]) -> Ran {
    let cache = folder.join("cache");
    run_with(folder, arguments, &[("FULGURITE_CACHE", cache.to_str().unwrap()), ("FULGURITE_PYTHON", "/bin/false")])
}

/// As [`run_bare`], with the rates of this machine in the cache.
fn run_in(folder: &Path, arguments: &[&str]) -> Ran {
    with_rates(folder);
    run_bare(folder, arguments)
}

/// The record of rates in the cache of a folder.
fn record(folder: &Path) -> PathBuf {
    let entries = fs::read_dir(folder.join("cache/rates")).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.extension().is_some_and(|end| end == "json")).unwrap()
}

/// Puts the rates of this machine into the cache of a folder without any. They are measured once for all tests, which
/// takes seconds, by the first program that needs them.
fn with_rates(folder: &Path) {
    static MEASURED: OnceLock<(PathBuf, Vec<u8>)> = OnceLock::new();
    let rates = folder.join("cache/rates");
    if rates.exists() {
        return;
    }
    let (name, content) = MEASURED.get_or_init(|| {
        let home = tempfile::tempdir().unwrap();
        run_bare(home.path(), &["profile", "gelu", "--device", "cpu"]).measured();
        let path = record(home.path());
        (PathBuf::from(path.file_name().unwrap()), fs::read(path).unwrap())
    });
    fs::create_dir_all(&rates).unwrap();
    fs::write(rates.join(name), content).unwrap();
}

impl Ran {
    /// The output, if all went well. Where other tests run meanwhile, rates may be measured too low, which is told.
    #[track_caller]
    fn measured(self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        assert_eq!(self.marked, fulgurite::BUILD == "debug", "{}", self.err);
        assert!(self.err.lines().all(|line| line.starts_with("warning: the kept rate of ")), "{}", self.err);
        self.out
    }
}

fn file(folder: &Path, name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn a_profile_is_a_table_a_file_and_a_picture() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let files = ["--json", "table.json", "--perfetto", "times.json", "--plot", "roof.svg"];
    let step = ["profile", "gpt2", "--size", "nano", "--layers", "1", "--device", "cpu", "--runs", "1"];
    let text = run_in(folder, &[&step[..], &files].concat()).measured();
    for words in ["share  calls", "prims::matmul", "all of train_step", "GB/s (measured)", "the floors add up to"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    let table = file(folder, "table.json");
    let symbols = table["symbols"].as_array().unwrap();
    let sum = |name: &str| symbols.iter().map(|row| row[name].as_f64().unwrap()).sum::<f64>();
    assert!((sum("us") - table["all"]["us"].as_f64().unwrap()).abs() < 1e-3 * sum("us"));
    assert!((sum("share") - 1.0).abs() < 1e-9 && sum("bytes") > 0.0);
    assert_eq!((&table["bytes_source"], &table["flops_source"]), (&"measured".into(), &"measured".into()));
    let times = file(folder, "times.json");
    assert_eq!(times["otherData"]["bytes_source"], "measured");
    let picture = fs::read_to_string(folder.join("roof.svg")).unwrap();
    assert!(
        picture.contains("<circle") && picture.contains("prims::matmul") && picture.contains("(measured)"),
        "{picture}"
    );
    // The file is what `view` reads.
    run_in(folder, &["view", "gpt2", "--size", "nano", "--layers", "1", "--profile", "times.json", "-o", "page.html"])
        .ok();
    // The rates are measured once.
    let record = record(folder);
    let first = fs::read(&record).unwrap();
    run_in(folder, &["profile", "gelu", "--backward", "--device", "cpu"]).measured();
    assert_eq!(fs::read(&record).unwrap(), first);
    fs::write(&record, "{").unwrap();
    run_in(folder, &["profile", "gelu", "--device", "cpu"]).measured();
    assert!(fs::read(&record).unwrap().len() > 10, "a damaged record is measured anew");
}

#[test]
fn models_are_profiled_forward_and_backward() {
    let home = tempfile::tempdir().unwrap();
    let of = |name: &str, more: &[&str]| {
        run_in(home.path(), &[&["profile", name, "--size", "nano", "--device", "cpu", "--runs", "1"], more].concat())
            .measured()
    };
    assert!(of("gpt2-loss", &["--backward"]).contains("all of loss.forward and loss.backward"));
    assert!(of("llama-decode", &[]).contains("all of decode"));
}

/// What is profiled is what is trained: by the choices that are asked for, backward too.
#[test]
fn choices_are_those_of_training() {
    let home = tempfile::tempdir().unwrap();
    let model = ["--size", "micro", "--batch", "8", "--context", "64", "--device", "cpu", "--runs", "1"];
    let choices = ["--choose", "always", "--choose-for", "0"];
    for program in [&["gpt2"][..], &["gpt2-loss", "--backward"]] {
        let ran = run_in(home.path(), &[&["profile"], program, &model, &choices].concat());
        assert!(ran.code == 0 && ran.err.contains("costly calls are left"), "{program:?}: {}", ran.err);
    }
}

#[test]
fn a_row_is_measured_and_one_that_fails_says_why() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let rows = ["bench", "--only", "host-attention", "--device", "cpu", "-o", "table.md", "--json", "table.json"];
    let ran = run_in(folder, &[&rows[..], &["--peers", "nowhere"]].concat());
    assert!(ran.code == 1 && ran.err.contains("--peers: there is no 'nowhere/bench_torch.py'"), "{}", ran.err);
    assert!(ran.out.is_empty() && !folder.join("table.md").exists(), "{}", ran.out);
    // Scripts without PyTorch.
    fs::create_dir(folder.join("peers")).unwrap();
    fs::write(folder.join("peers/bench_torch.py"), "").unwrap();
    let text = run_in(folder, &[&rows[..], &["--peers", "peers"]].concat()).measured();
    assert!(text.contains("peers: none: '/bin/false' cannot import torch"), "{text}");
    assert!(text.contains("attention, B2 H8 T1024 D64, causal, f32: forward "), "{text}");
    let table = file(folder, "table.json");
    let row = &table["rows"][0];
    assert_eq!((&row["name"], &row["failed"]), (&"host-attention".into(), &Value::Null));
    let names: Vec<&str> = row["figures"].as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["forward", "backward"]);
    assert!(row["figures"][0]["share"][0].as_f64().unwrap() > 0.0 && row["figures"][0]["share"][1] == "products");
    let markdown = fs::read_to_string(folder.join("table.md")).unwrap();
    assert!(markdown.starts_with("`fulgurite bench --only host-attention"), "{markdown}");
    assert!(markdown.contains("### On the host\n\n| row | figure |"), "{markdown}");
    assert!(markdown.contains("- peers: none: '/bin/false' cannot import torch"), "{markdown}");
}

#[test]
fn rows_are_listed_and_what_cannot_be_measured_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| run_bare(home.path(), arguments);
    let list = run(&["bench", "--list"]).out;
    assert!(list.contains("gpt2-b16-t1024-bf16") && list.contains("GPT-2 124M, B16 T1024, bf16-mixed"), "{list}");
    assert_eq!(run(&["bench", "--list", "--only", "product-qkv"]).ok().lines().count(), 3);
    let many = run(&["bench", "--list", "--only", "many-gpus-tinyllama"]);
    let beyond = "many-gpus-tinyllama-b4-zero2-x8  TinyLlama-1.1B, B4 T2048 a GPU, bf16-mixed, zero2 on 8 GPUs";
    assert!(many.out.lines().count() == 10 && many.out.contains(beyond), "{}", many.out);
    assert!(many.err.contains("note: rows called many-gpus-... are measured where --only names them"), "{}", many.err);
    assert!(list.contains(beyond) && !run(&["bench", "--list", "--quick"]).ok().contains("many-gpus"), "{list}");
    for (arguments, expected) in [
        (&["bench", "--only", "nothing"][..], "no row's name begins with 'nothing', there are: gpt2-"),
        (&["bench", "--only", "attention", "--device", "cpu"], "no row that was asked for runs on the host"),
        (&["bench", "--only", "many-gpus", "--device", "cpu"], "no row that was asked for runs on the host"),
        (&["profile", "gelu", "--device", "cpu", "--plot", "a.png"], "expected a name that ends in .svg"),
        (&["profile", "gelu", "--device", "cpu", "--runs", "0"], "--runs is 0, expected 1 to 10000"),
        (&["profile", "gelu", "--device", "cpu", "--runs", "18446744073709551615"], "expected 1 to 10000"),
        (&["bench", "--only", "host", "--device", "cpu", "-o", "none/table.md"], "there is no folder 'none'"),
        (&["bench", "--only", "host", "--device", "cpu", "-o", "a", "--json", "./a"], "./a: is named twice"),
        (&["profile", "gelu", "--device", "cpu", "--json", "a", "--perfetto", "a"], "a: is named twice"),
        (&["profile", "gelu", "--device", "cpu", "--plot", "none/a.svg"], "there is no folder 'none'"),
        #[cfg(target_os = "linux")]
        (
            &["bench", "--only", "host", "--device", "cpu", "-o", "/proc/table.md"],
            "/proc/table.md: no file can be made in '/proc'",
        ),
        #[cfg(target_os = "linux")]
        (
            &["profile", "gelu", "--device", "cpu", "--json", "/dev/null"],
            "/dev/null: '/dev/null' is not a regular file",
        ),
        (&["profile", "gelu", "--target", "cuda"], "expected --device"),
        (&["profile", "gpt3"], "gpt2"),
    ] {
        let ran = run(arguments);
        assert!(ran.code == 1 && ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
    // Nobody waits for rates to be told that a name is none.
    assert!(!home.path().join("cache/rates").exists());
}

/// What is written on the command line takes the place of a sample.
#[test]
fn an_operator_is_profiled_with_the_shapes_that_are_asked_for() {
    let home = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| run_in(home.path(), &[&["profile"], more, &["--device", "cpu", "--runs", "1"]].concat());
    let norm = ["layer_norm", "--argument", "input=f32[512,96]", "--argument", "normalized_shape=[96]"];
    run(&[&norm[..], &["--backward", "--json", "norm.json"]].concat()).measured();
    // The input is read, and its gradient or the result is written, at least.
    let bytes = file(home.path(), "norm.json")["all"]["bytes"].as_f64().unwrap();
    assert!(bytes >= 2.0 * 512.0 * 96.0 * 4.0, "{bytes}");
    for (arguments, expected) in [
        (&["layer_norm", "--argument", "input=f32[512,96]"][..], "layer_norm needs the argument 'normalized_shape'"),
        (&["gelu", "--argument", "input=f32[4,"], "--argument 'input=f32[4,': is 'f32[4,', expected a type such as"),
        (&["matmul", "--argument", "input=f32[2,3]", "--argument", "other=f32[4,5]"], "3"),
        (&["gpt2", "--argument", "input=f32[2]"], "--argument is one of an operator, and gpt2 is a part of a model"),
    ] {
        let ran = run(arguments);
        assert!(ran.code == 1 && ran.err.contains(expected), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(run(&["gelu", "--argument", "input=f32[4]", "--sample", "1"]).code, 2);
}

/// A record that was measured on a busy machine is found by what is faster, here by what nobody is as slow as.
#[test]
fn rates_that_are_kept_and_too_low_are_told() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let product = ["profile", "prims::matmul", "--device", "cpu", "--json", "table.json"];
    let shapes = ["--argument", "input=f32[256,256]", "--argument", "other=f32[256,256]"];
    let profile = |more: &[&str]| run_in(folder, &[&product[..], &shapes, more].concat());
    with_rates(folder);
    let record = record(folder);
    let mut kept: Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    kept["products"]["f32"] = 1e3.into();
    fs::write(&record, kept.to_string()).unwrap();
    let ran = profile(&[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.starts_with("warning: the kept rate of products on cpu is too low"), "{}", ran.err);
    assert!(ran.err.contains("measure again while nothing else runs: `fulgurite profile gelu --device cpu --measure`"));
    let low = &file(folder, "table.json")["rates_too_low"][0];
    assert_eq!((&low["rate"], &low["device"], &low["kept"]), (&"products".into(), &"cpu".into(), &1e3.into()));
    assert!(low["measured"].as_f64().unwrap() > 1e6, "{low}");
    // So does a row of the table.
    let bench = ["bench", "--only", "host-attention", "--device", "cpu", "--json", "bench.json"];
    let ran = run_in(folder, &bench);
    assert!(ran.code == 0 && ran.err.contains("forward of the row host-attention computes"), "{}", ran.err);
    assert_eq!(file(folder, "bench.json")["rates_too_low"].as_array().unwrap().len(), 1);
    // The doctor shows what is kept.
    let doctor = run_in(folder, &["doctor"]).ok();
    let line = doctor.lines().find(|line| line.starts_with("rates        cpu: copy ")).unwrap();
    assert!(line.contains("f32 0.000 TFLOP/s") && line.ends_with("measured by version 0.1.0"), "{line}");
    let report: Value = serde_json::from_str(&run_in(folder, &["doctor", "--json"]).ok()).unwrap();
    assert_eq!(report["rates"][0]["kept"]["products"]["f32"], 1e3);
    fs::remove_file(&record).unwrap();
    let doctor = run_in(folder, &["doctor"]).ok();
    assert!(
        doctor.contains("rates        cpu: not measured; `fulgurite profile gelu --device cpu --measure`"),
        "{doctor}"
    );
}

/// Interruptions of `bench`: nothing is left behind but what was measured.
#[cfg(unix)]
mod interrupted {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use super::*;

    /// Starts the command with a folder for temporary files, and this interpreter for the peers.
    fn start(folder: &Path, arguments: &[&str]) -> Child {
        fs::create_dir_all(folder.join("tmp")).unwrap();
        Command::new(env!("CARGO_BIN_EXE_fulgurite"))
            .args(arguments)
            .current_dir(folder)
            .env("TMPDIR", folder.join("tmp"))
            .env("FULGURITE_CACHE", folder.join("cache"))
            .env("FULGURITE_PYTHON", folder.join("python"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// What `find` gives as soon as it gives something, while the command runs.
    fn wait<T>(child: &mut Child, mut find: impl FnMut() -> Option<T>) -> T {
        loop {
            if let Some(found) = find() {
                return found;
            }
            assert_eq!(child.try_wait().unwrap(), None, "the command has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Sends a signal, twice as `timeout` does; the exit code and what was complained of.
    fn end(child: Child, signal: &str) -> (Option<i32>, String) {
        let script = "kill $0 $1 || exit 1; sleep 0.02; kill $0 $1 2>/dev/null; exit 0";
        assert!(Command::new("sh").args(["-c", script, signal, &child.id().to_string()]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    }

    fn within(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).map_or_else(|_| Vec::new(), |all| all.map(|entry| entry.unwrap().path()).collect())
    }

    #[test]
    fn a_training_run_ends_with_the_command_and_its_folder_goes() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        let files = ["-o", "table.md", "--json", "table.json"];
        let mut child = start(folder, &[&["bench", "--only", "host-gpt2", "--device", "cpu"][..], &files].concat());
        // The run has made its folder.
        wait(&mut child, || within(&folder.join("tmp")).iter().find(|path| path.join("run/bench").is_dir()).cloned());
        let id = child.id();
        let children = |id: u32| {
            let tasks = within(Path::new(&format!("/proc/{id}/task")));
            let of = |task: &PathBuf| fs::read_to_string(task.join("children")).unwrap_or_default();
            tasks.iter().map(of).collect::<String>().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let runs = children(id);
        // Systems without `/proc` do not tell.
        assert!(!runs.is_empty() || !Path::new("/proc/self/task").exists());
        let (code, complaint) = end(child, "-TERM");
        assert_eq!(code, Some(130), "{complaint}");
        assert!(complaint.contains("interrupted: 0 of 1 rows were measured"), "{complaint}");
        assert_eq!(within(&folder.join("tmp")), Vec::<PathBuf>::new());
        for run in runs {
            assert!(!Path::new("/proc").join(&run).exists(), "process {run} is left");
        }
        let table = file(folder, "table.json");
        assert_eq!(
            (&table["rows"], &table["not_measured"]),
            (&serde_json::json!([]), &serde_json::json!(["host-gpt2"]))
        );
        assert!(fs::read_to_string(folder.join("table.md")).unwrap().contains("- not measured: host-gpt2\n"));
    }

    #[test]
    fn a_row_that_computes_ends_with_the_command() {
        let home = tempfile::tempdir().unwrap();
        let rows = ["bench", "--only", "host-attention", "--device", "cpu", "--json", "table.json"];
        let mut child = start(home.path(), &rows);
        // Rates are kept when the row begins.
        let is_record = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
        wait(&mut child, || within(&home.path().join("cache/rates")).into_iter().find(is_record));
        // Under `nohup` that stays ignored.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
        let (code, complaint) = end(child, if ignored & 1 == 1 { "-TERM" } else { "-HUP" });
        assert_eq!(code, Some(130), "{complaint}");
        assert!(complaint.contains("interrupted: 0 of 1 rows were measured"), "{complaint}");
        assert_eq!(file(home.path(), "table.json")["not_measured"], serde_json::json!(["host-attention"]));
        assert_eq!(within(&home.path().join("tmp")), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_script_of_the_peers_ends_with_the_command_and_rows_are_kept() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        fs::create_dir(folder.join("peers")).unwrap();
        fs::write(folder.join("peers/bench_torch.py"), "").unwrap();
        // It can import anything, and runs a script for ever.
        let python = "#!/bin/sh
[ \"$1\" = -c ] && exit 0
echo $$ > started.part && mv started.part started
exec sleep 1000
";
        fs::write(folder.join("python"), python).unwrap();
        fs::set_permissions(folder.join("python"), fs::Permissions::from_mode(0o755)).unwrap();
        let rows = ["bench", "--only", "host-attention", "--device", "cpu", "--json", "table.json", "--peers", "peers"];
        with_rates(folder);
        let mut child = start(folder, &rows);
        let script = wait(&mut child, || fs::read_to_string(folder.join("started")).ok());
        let (code, complaint) = end(child, "-INT");
        assert_eq!(code, Some(130), "{complaint}");
        assert!(complaint.contains("interrupted: 1 of 1 rows were measured"), "{complaint}");
        assert!(!Path::new("/proc").join(script.trim()).exists(), "the script is left");
        let table = file(folder, "table.json");
        assert_eq!(table["rows"][0]["name"], "host-attention");
        assert_eq!(
            (&table["peers"], &table["not_measured"]),
            (&"not all of them have run".into(), &serde_json::json!([]))
        );
    }
}
