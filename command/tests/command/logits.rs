//! `train --logits` and `--memory-limit`: all logits at a time, or those of a chunk of positions.

use std::path::Path;

use crate::{Ran, run, run_in};

/// The loss of a chunk of 32 positions at a time, of 128.
const SMALL: &str = "--size nano --tokenizer gpt2 --data text.txt --batch 4 --context 32 --evaluate-batches 1 \
                     --sample-tokens 1 --log-every 1";

fn train(folder: &Path, family: &str, more: &str) -> Ran {
    let words = ["train", family].into_iter().chain(SMALL.split_whitespace()).chain(more.split_whitespace());
    run_in(folder, &words.collect::<Vec<_>>())
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.txt"), "the quick brown fox jumps over the lazy dog. ".repeat(300))
        .unwrap();
    folder
}

/// The number before `unit` and behind `before`.
#[track_caller]
fn number(text: &str, before: &str, unit: &str) -> u64 {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("{text} lacks {before}")).1;
    rest.split_once(unit).and_then(|(number, _)| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

/// The losses of steps and of the validation, as they are printed.
fn losses(said: &str) -> Vec<f64> {
    let of = |line: &str| {
        let rest = line.split_once(": loss ").or_else(|| line.split_once("validation loss "))?.1;
        rest.split([',', ' ']).next()?.parse().ok()
    };
    said.lines().filter_map(of).collect()
}

#[test]
fn chunks_are_taken_where_whole_logits_exceed_the_limit() {
    let folder = folder();
    for family in ["gpt2", "llama"] {
        let train = |more: &str| train(folder.path(), family, more);
        // What weights, moments and gradients need is known without a plan.
        let least = number(&train("--out none --memory-limit 1").fails(1), "the plan needs ", " bytes");
        let both = train(&format!("--out none --memory-limit {least}")).fails(1);
        let chunked = number(&both, "the plan needs ", " bytes");
        let whole = number(&both, "this is with chunked logits, with whole ones it needs ", " bytes");
        assert!(least < chunked && chunked < whole, "{both}");
        assert!(!folder.path().join("none").exists(), "a folder was left");

        let limit = (chunked + whole) / 2;
        let of = |logits: &str| format!("--logits {logits} --memory-limit {limit} --steps 2 --out {family}-{logits}");
        let said = train(&of("auto")).ok();
        let told: Vec<&str> = said.lines().filter(|line| line.contains("logits")).collect();
        let [line] = told[..] else { panic!("{said}") };
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let expected = format!(
            "logits in chunks: the step needs {:.1} MiB with whole logits, the limit is {:.1} MiB; it needs {:.1} MiB \
             in chunks",
            mib(whole),
            mib(limit),
            mib(chunked)
        );
        assert_eq!(line, expected);
        let page = std::fs::read_to_string(folder.path().join(format!("{family}-auto/events.jsonl"))).unwrap();
        assert!(page.contains("logits in chunks: the step needs "), "{page}");

        // Asked for, either is what it is.
        let refused = train(&of("whole")).fails(1);
        assert!(refused.contains(&format!("the plan needs {whole} bytes (")), "{refused}");
        assert!(refused.trim_end().ends_with(&format!("the limit is {limit}")), "{refused}");
        let asked = train(&of("chunked")).ok();
        assert!(!asked.contains("logits"), "{asked}");
        assert_eq!(losses(&asked), losses(&said));
        let file =
            |logits: &str| std::fs::read(folder.path().join(format!("{family}-{logits}/checkpoint.safetensors")));
        assert_eq!(file("chunked").unwrap(), file("auto").unwrap());

        // Where there is room the logits are whole, and nothing is said. The guard of a step needs a little more than
        // what is known before weights are made.
        let roomy = train(&format!("--memory-limit {} --steps 2 --out {family}-roomy", whole + (1 << 20))).ok();
        assert!(!roomy.contains("logits") && losses(&roomy).len() == 3, "{roomy}");
        // Four digits are printed.
        for (whole, chunked) in losses(&roomy).iter().zip(losses(&asked)) {
            assert!((whole - chunked).abs() < 2e-4, "{roomy}\n{asked}");
        }

        // A run goes on with the other setting, from the same weights.
        for (out, logits) in [("auto", "whole"), ("roomy", "chunked")] {
            let more = format!("--out {family}-{out} --logits {logits} --steps 3 --resume");
            let said = train(&more).ok();
            assert!(said.contains("resumed at step 2 of 3") && losses(&said).len() == 2, "{said}");
            let before = if logits == "whole" { "chunked" } else { "whole" };
            let told = format!("; logits {logits}, were {before}\n");
            assert!(said.contains("\nnot as in the checkpoint") && said.contains(&told), "{said}");
            assert!(said.contains("steps of the schedule 3, was 2"), "{said}");
        }
        // Or with that of its checkpoint, if nothing is asked for.
        let resumed = |out: &str, logits: &str| {
            let (from, to) = (folder.path().join(format!("{family}-chunked")), folder.path().join(out));
            std::fs::create_dir(&to).unwrap();
            std::fs::copy(from.join("checkpoint.safetensors"), to.join("checkpoint.safetensors")).unwrap();
            let said = train(&format!("--out {out} --steps 3 --resume {logits}")).ok();
            assert!(said.contains("resumed at step 2 of 3") && !said.contains("logits"), "{said}");
            std::fs::read(to.join("checkpoint.safetensors")).unwrap()
        };
        let asked = resumed(&format!("{family}-asked"), "--logits chunked");
        assert!(resumed(&format!("{family}-left"), "") == asked, "the checkpoints differ");
        // What is left to memory may be otherwise.
        let said = train(&format!("--out {family}-left --steps 4 --resume --logits auto")).ok();
        let told = "\nlogits whole, were chunked in the checkpoint: sums are rounded otherwise\n";
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn a_step_over_several_batches_has_chunks_too() {
    let folder = folder();
    let train = |more: &str| {
        let most = "--accumulate 2 --dropout 0.1 --clip 0.5 --activation-checkpointing blocks --precision bf16-mixed";
        train(folder.path(), "gpt2", &format!("{most} --steps 2 {more}"))
    };
    let plan = |logits: &str, limit: u64| {
        let out = format!("--out {logits} --logits {logits} --memory-limit {limit}");
        train(&out)
    };
    // The plan of a batch is known once weights are made.
    let least = number(&plan("whole", 1).fails(1), "the plan needs ", " bytes");
    let refused = plan("whole", least);
    assert_eq!(refused.code, 1, "{}", refused.out);
    let whole = number(&refused.err, "the plan needs ", " bytes");
    let said = plan("auto", whole - 1).ok();
    assert!(said.contains("logits in chunks: the step needs "), "{said}");
    let chunked = plan("chunked", whole - 1).ok();
    assert_eq!(losses(&chunked), losses(&said));
}

#[test]
fn traces_have_chunks_if_asked_for() {
    let show =
        |name: &str, more: &[&str]| run(&[&["trace", "show", name, "--stage", "autodiff"][..], more].concat()).ok();
    for name in ["gpt2", "llama-loss"] {
        assert!(!show(name, &[]).contains("fused_linear_cross_entropy"));
        assert!(show(name, &["--logits", "chunked"]).contains("fused_linear_cross_entropy"));
    }
    let complaint = run(&["trace", "show", "gpt2", "--logits", "auto"]).fails(2);
    assert!(complaint.contains("possible values: whole, chunked"), "{complaint}");
}

#[test]
fn limits_that_are_none_are_refused() {
    for limit in ["4GB", "-1MiB", "lots"] {
        let complaint = run(&["train", "gpt2", &format!("--memory-limit={limit}")]).fails(2);
        assert!(complaint.contains("expected a number of bytes: 1048576, 512MiB, 7.5GiB"), "{complaint}");
    }
    let complaint = run(&["train", "gpt2", "--logits", "some"]).fails(2);
    assert!(complaint.contains("possible values: whole, chunked, auto"), "{complaint}");
}
