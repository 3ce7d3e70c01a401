//! `tune`, and the records that it writes.

use std::path::Path;

use crate::{Ran, json, run_with};

/// Runs the command with a cache of its own.
fn run_in(folder: &Path, arguments: &[&str]) -> Ran {
    let cache = folder.join("cache");
    run_with(folder, arguments, &[("FULGURITE_CACHE", cache.to_str().unwrap())])
}

/// A training step with calls that the host has two implementations of.
const STEP: [&str; 5] = ["gpt2", "--size", "nano", "--layers", "1"];

#[test]
fn what_is_measured_is_written_and_followed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let tune =
        |more: &[&str]| run_in(folder, &[&["tune"], &STEP[..], &["--device", "cpu", "--from", "0"], more].concat());
    let text = tune(&["--no-confirm", "-o", "step.choices"]).ok();
    // Where the decomposition wins, what it leaves in the forward pass is a call with candidates too.
    let file = std::fs::read_to_string(folder.join("step.choices")).unwrap();
    let records = file.lines().count() - 1;
    let count = format!("{records} {} with candidates", if records == 1 { "call" } else { "calls" });
    assert!(records > 0 && text.contains(&format!("gpt2 on cpu: {count}")), "{text}");
    assert!(text.contains("cross_entropy(input: f32[256, 256], ") && text.contains("  * "), "{text}");
    assert!(text.contains(&format!("wrote step.choices: {count}")), "{text}");
    assert!(file.starts_with("{\"fulgurite_choices\":1}\n"), "{file}");
    // The second time the records are there.
    assert!(tune(&["--no-confirm", "-o", "again.choices"]).ok().contains(&count));
    assert_eq!(std::fs::read_to_string(folder.join("again.choices")).unwrap(), file);

    // The winner in the file takes the call.
    let explained = |winner: &str| {
        let lines = file.lines().map(|line| {
            let mut line = json(line);
            if line["purpose"] == "forward and backward" {
                line["winner"] = winner.into();
            }
            line.to_string() + "\n"
        });
        std::fs::write(folder.join("edited.choices"), lines.collect::<String>()).unwrap();
        let show = [&["trace", "show"], &STEP[..], &["--choices", "edited.choices", "--explain"]].concat();
        run_in(folder, &show).ok()
    };
    let own = explained("cpu");
    assert!(own.contains("forward and backward: cpu of cpu ") && own.contains("rule is that of cpu"), "{own}");
    let opened = explained("decomposed");
    assert!(opened.contains("forward and backward: decomposed of cpu "), "{opened}");
    assert!(!opened.contains("rule is that of cpu"), "{opened}");
    // Programs that are only shown follow no record of the machine.
    let show = [&["trace", "show"], &STEP[..], &["--explain"]].concat();
    assert!(!run_in(folder, &show).ok().contains("choice of"));

    // Training by records of other calls, or of none, gives a warning.
    std::fs::write(folder.join("empty.choices"), "{\"fulgurite_choices\":1}\n").unwrap();
    let train = |batch: &str, choices: &str| {
        let size = ["train", "gpt2", "--size", "nano", "--batch", batch, "--steps", "1"];
        let files = ["--out", &format!("{batch}-{choices}"), "--choices", choices];
        let ran = run_in(folder, &[&size[..], &files[..]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        ran.err
    };
    let said = train("8", "step.choices");
    assert!(
        said.contains(&format!("no record ({records} in all) is of a call of this program"))
            && said.contains("has a record of it for"),
        "{said}"
    );
    let said = train("4", "step.choices");
    assert!(!said.contains("record"), "{said}");
    let said = train("4", "empty.choices");
    assert!(said.contains("empty.choices: no records; the list decides"), "{said}");

    let doctor = run_in(folder, &["doctor"]).ok();
    assert!(doctor.contains(&format!("choices      {records} of ")) && doctor.contains("(cpu; none)"), "{doctor}");
    let report = json(&run_in(folder, &["doctor", "--json"]).ok());
    assert_eq!((&report["choices"][0]["records"], &report["choices"][0]["followed"]), (&records.into(), &true.into()));
}

#[test]
fn measuring_again_clears_candidates_that_ended_a_process() {
    let home = tempfile::tempdir().unwrap();
    let tune = |more: &[&str]| {
        let arguments = ["tune", "softmax", "--device", "cpu", "--executors", "reference,cpu", "--from", "0"];
        run_in(home.path(), &[&arguments[..], &["--no-confirm"], more].concat()).ok()
    };
    tune(&[]);
    let files = || {
        let entries = std::fs::read_dir(home.path().join("cache/choices")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>()
    };
    let ending = |end: &str| files().into_iter().find(|path| path.extension().is_some_and(|own| own == end)).unwrap();
    // As a process leaves it that ends while it measures.
    let record = ending("jsonl").file_name().unwrap().to_str().unwrap().to_owned();
    let line = format!(
        "{{\"record\":\"{record}\",\"candidate\":\"cpu\",\"call\":\"softmax(..)\",\"what\":\"running\",\"number\":1}}\n"
    );
    std::fs::write(ending("log"), line).unwrap();
    let doctor = || run_in(home.path(), &["doctor"]).ok();
    let said = "cpu of softmax(..): ended the process that ran it; the next process that measures skips it";
    assert!(doctor().contains(said), "{}", doctor());
    let before = std::fs::read(ending("jsonl")).unwrap();
    let table = tune(&["--again"]);
    assert!(!table.contains("dropped"), "{table}");
    assert_ne!(std::fs::read(ending("jsonl")).unwrap(), before, "it is measured again");
    assert!(!doctor().contains("ended the process"), "{}", doctor());
}

#[test]
fn whole_programs_confirm_choices() {
    let home = tempfile::tempdir().unwrap();
    let arguments = [&["tune"], &STEP[..], &["--device", "cpu", "--from", "0", "-o", "step.choices"]].concat();
    let text = run_in(home.path(), &arguments).ok();
    // The winner depends on the machine; a winner that was not faster in the program says so in the file. Candidates
    // that did not win alone have no record of their own.
    let file = std::fs::read_to_string(home.path().join("step.choices")).unwrap();
    let left = |line: &str| line.contains(" with the choices of ") && line.contains(": left to the list");
    assert_eq!(file.contains("no gain in the program"), text.lines().any(left), "{text}\n{file}");
}

#[test]
fn candidates_are_listed_without_a_device() {
    let step = [&["tune"], &STEP[..], &["--target", "cuda:sm_90a", "--from", "0", "--list"]].concat();
    let text = crate::run(&step).ok();
    assert!(text.starts_with("gpt2 for cuda:sm_90a: "), "{text}");
    assert!(text.contains("\nscaled_dot_product_attention(query: f32["), "{text}");
    let after = |call: &str| text.lines().skip_while(|line| !line.starts_with(call)).nth(1).unwrap_or_default();
    assert_eq!(after("layer_norm(").trim(), "decomposed, liger, llmc");
    // The optimizer's updates of all parameters are one launch: what one of them takes alone says nothing.
    assert!(!text.contains("\nadamw("), "{text}");
    // What a product's epilogue does may be done by a kernel of its own.
    // (More rows are left to regions, and to batches.)
    let few = ["--autocast", "bf16", "--no-batching", "--batch", "2"];
    let low = crate::run(&[&step[..], &few].concat()).ok();
    let after = |call: &str| low.lines().skip_while(|line| !line.starts_with(call)).nth(1).unwrap_or_default();
    for epilogue in ["linear_gelu_aux", "matmul_gelu_backward", "weight_gradients"] {
        assert_eq!(after(&format!("cublaslt::{epilogue}(")).trim(), "cublaslt, decomposed", "{low}");
    }
    // Arithmetic is a part of regions.
    assert!(!text.contains("\nprims::mul("), "{text}");
}

#[test]
fn what_cannot_be_tuned_or_followed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let complaint = |arguments: &[&str], code: i32| run_in(folder, arguments).fails(code);
    assert!(complaint(&["tune", "nope", "--device", "cpu"], 1).contains("nope"));
    // Before anything is measured.
    let ran = run_in(folder, &["tune", "exp", "nope", "--device", "cpu", "-o", "none.choices"]);
    assert!(ran.code == 1 && ran.err.contains("nope") && ran.out.is_empty(), "{}{}", ran.out, ran.err);
    for (path, expected) in [("absent.trace", "there is no such file"), (".", "is no regular file")] {
        let said = complaint(&["tune", path, "--device", "cpu"], 1);
        assert!(said.contains(expected) && said.contains("the name of an operator or a model"), "{said}");
    }
    let said = complaint(&["tune", "exp", "nope", "--target", "cpu", "--list"], 1);
    assert!(said.contains("nope"), "{said}");
    // A folder that is called as an operator is none of its business.
    std::fs::create_dir(folder.join("exp")).unwrap();
    // Where nothing is measured, it is told why.
    let said = run_in(folder, &["tune", "exp", "--device", "cpu"]);
    assert!(said.code == 0 && said.err.contains("exp: no call has candidates"), "{}", said.err);
    let rivals = ["tune", "softmax", "--device", "cpu", "--executors", "reference,cpu"];
    let said = run_in(folder, &rivals);
    assert!(said.code == 0 && said.err.contains("softmax: 2 calls with candidates below 20 us"), "{}", said.err);
    let said = complaint(&["tune", "exp", "--target", "cpu"], 1);
    assert!(said.contains("expected --device"), "{said}");
    std::fs::write(folder.join("bad.choices"), "{\"fulgurite_choices\":1}\n{\"winner\":\"cpu\"}\n").unwrap();
    let said = complaint(&["trace", "show", "exp", "--stage", "claim", "--choices", "bad.choices"], 1);
    assert!(said.contains("bad.choices") && said.contains("line 2: expected a text 'purpose'"), "{said}");
    let said = complaint(&["trace", "show", "exp", "--choices", "absent.choices"], 1);
    assert!(said.contains("absent.choices"), "{said}");
    let said = complaint(&["tune", "exp", "--device", "cpu", "--choices", "bad.choices"], 1);
    assert!(said.contains("bad.choices"), "{said}");
    std::fs::write(folder.join("good.choices"), "{\"fulgurite_choices\":1}\n").unwrap();
    let said = complaint(&["tune", "exp", "--device", "cpu", "--choices", "good.choices"], 1);
    assert!(said.contains("expected -o FILE"), "{said}");
    let claimed = run_in(folder, &["trace", "show", "exp", "--stage", "claim"]).ok();
    std::fs::write(folder.join("claimed.trace"), claimed).unwrap();
    let said = complaint(&["tune", "claimed.trace", "--device", "cpu"], 1);
    assert!(said.contains("is past the stage 'claim'"), "{said}");
    let said = complaint(&["tune", "claimed.trace", "--device", "cpu", "-o", "claimed.trace"], 1);
    assert!(said.contains("would be written over"), "{said}");
    complaint(&["train", "gpt2", "--choose", "sometimes"], 2);
    complaint(&["train", "gpt2", "--choose", "never", "--choices", "good.choices"], 2);
}
