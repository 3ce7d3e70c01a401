//! Runs of few steps, and what is known before their first.

use std::path::Path;

use fulgurite_runtime::Error;
use fulgurite_runtime::compile::Options;

use super::options::TrainOptions;
use super::run::within_memory;
use super::train;
use crate::config::GptConfig;
use crate::model_config::Family;
use crate::tokenizer::Tokenizer;

fn limited(gigabytes: u64, accumulate: usize) -> TrainOptions {
    TrainOptions {
        family: Default::default(),
        size: None,
        set: Vec::new(),
        init: None,
        tokenizer: None,
        data: Vec::new(),
        validation: Vec::new(),
        steps: 1,
        batch: 4,
        context: None,
        accumulate,
        lr: 1e-3,
        final_lr: 0.1,
        warmup: 0,
        optimizer: Default::default(),
        dropout: 0.0,
        seed: 0,
        evaluate_every: 0,
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
        sample_tokens: 0,
        prompt: String::new(),
        out: Default::default(),
        profile: false,
        resume: false,
        overwrite: false,
        name: None,
        strategy: Default::default(),
        state_dict: None,
        precision: Default::default(),
        compile: Options { memory_limit: Some(gigabytes << 30), ..Options::default() },
        stop: None,
    }
}

/// By its configuration alone: nothing of the model is made.
#[test]
fn what_does_not_fit_is_known_before_it_is_made() {
    let config = |size: &str| GptConfig::named(size, 50257).unwrap();
    for (size, gigabytes, accumulate) in [("1558M", 8, 1), ("1558M", 8, 4), ("124M", 3, 1)] {
        let error = within_memory(&limited(gigabytes, accumulate), &config(size), 1024).unwrap_err();
        assert!(matches!(error, Error::PlanTooLarge { limit, .. } if limit == gigabytes << 30), "{size}: {error}");
    }
    within_memory(&limited(8, 1), &config("124M"), 64).unwrap();
    let mut elsewhere = limited(1, 1);
    elsewhere.compile.device = Some(fulgurite_runtime::Device::new("cuda", 0));
    within_memory(&elsewhere, &config("1558M"), 1024).unwrap();
}

fn small(folder: &Path, steps: u64) -> TrainOptions {
    let size = Some("nano".to_owned());
    let out = folder.join("run");
    TrainOptions { size, steps, batch: 1, sample_tokens: 1, prompt: "\n".into(), out, ..limited(8, 1) }
}

/// The lines of a run, or its error.
fn told(options: &TrainOptions) -> Result<String, String> {
    let mut lines = String::new();
    match train(options, false, &mut |line| lines += &format!("{line}\n")) {
        Ok(_) => Ok(lines),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_size_that_is_named_again_has_the_context_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    for (family, set) in [(Family::Gpt2, vec![]), (Family::Llama, vec!["n_layer=1".to_owned()])] {
        let out = folder.path().join(family.to_string());
        let first = TrainOptions { family, set, out, context: Some(16), ..small(folder.path(), 1) };
        told(&first).unwrap();
        let again = TrainOptions { steps: 2, context: None, resume: true, ..first };
        let said = told(&again).unwrap();
        assert!(said.contains("resumed at step 1 of 2"), "{said}");
        let error = told(&TrainOptions { steps: 3, context: Some(8), ..again }).unwrap_err();
        assert!(error.contains("context is 16 in the checkpoint, got 8"), "{error}");
    }
}

#[test]
fn a_run_keeps_the_tokenizer_that_it_was_started_with() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, words: [&str; 2]| {
        let vocabulary: serde_json::Map<_, _> =
            words.into_iter().zip([0.into(), 1.into()]).map(|(w, i)| (w.to_owned(), i)).collect();
        let json = serde_json::json!({
            "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": words[0]},
        });
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, json.to_string()).unwrap();
        path.display().to_string()
    };
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "a b b a ".repeat(100)).unwrap();
    let own = file("own/tokenizer.json", ["a", "b"]);
    let first = TrainOptions { tokenizer: Some(own), data: vec![text], context: Some(8), ..small(folder.path(), 1) };
    // White space alone has no tokens here: the run has no sample, and does not fail for it.
    let said = told(&first).unwrap();
    assert!(said.contains("no samples: the prompt \"\\n\" has no tokens") && !said.contains("sample:"), "{said}");
    // The same content at another place is the same tokenizer.
    let same = file("elsewhere/tokenizer.json", ["a", "b"]);
    let again = TrainOptions { resume: true, steps: 2, tokenizer: Some(same), ..first };
    told(&again).unwrap();
    // The file has changed since; the run has its copy.
    let changed = file("own/tokenizer.json", ["b", "a"]);
    let copy = again.out.join("tokenizer.json");
    let found = Tokenizer::found(changed.clone(), &again.out.join("checkpoint.safetensors"));
    assert_eq!(Path::new(&found), copy);
    told(&TrainOptions { steps: 3, tokenizer: None, ..again.clone() }).unwrap();
    let error = told(&TrainOptions { steps: 4, tokenizer: Some(changed), ..again }).unwrap_err();
    assert!(error.contains("the checkpoint is of another run: tokenizer is"), "{error}");
}

#[test]
fn a_folder_is_locked_by_the_run_that_is_going_on() {
    let folder = tempfile::tempdir().unwrap();
    let first = TrainOptions { context: Some(8), ..small(folder.path(), 2) };
    // The second run starts while the first takes its steps.
    let (mut second, mut bench) = (None, None);
    let mut try_others = |line: &str| {
        if line.starts_with("step 1:") {
            let others = [(false, true), (true, false), (false, false)];
            second = Some(others.map(|(resume, overwrite)| told(&TrainOptions { resume, overwrite, ..first.clone() })));
            bench = Some(super::bench(&first, 1, false, &mut |_| {}).map(|_| ()));
        }
    };
    train(&first, false, &mut try_others).unwrap();
    for refused in second.unwrap() {
        let error = refused.unwrap_err();
        let own = format!("another run writes to this folder: process {}", std::process::id());
        assert!(error.contains(&own) && error.contains("since 20"), "{error}");
    }
    bench.unwrap().expect("a bench has a folder of its own, in that of the run");
    assert!(!first.out.join(".run.lock").exists(), "the lock goes with the run");
    told(&TrainOptions { resume: true, steps: 3, ..first }).unwrap();
}

#[test]
fn a_checkpoint_of_another_program_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let first = TrainOptions { context: Some(8), save_every: 1, log_every: 1, keep: 2, ..small(folder.path(), 3) };
    let checkpoint = first.out.join("checkpoint.safetensors");
    let run = |after: &str, content: Option<&str>| {
        let mut line = |line: &str| {
            if line.starts_with(after) {
                // The checkpoint of step 1 is written meanwhile; the next one is begun behind this line.
                while after == "step 2:" && !checkpoint.exists() {
                    std::thread::yield_now();
                }
                std::thread::sleep(std::time::Duration::from_millis(300));
                match content {
                    Some(content) => std::fs::write(&checkpoint, content).unwrap(),
                    None => std::fs::remove_file(&checkpoint).unwrap(),
                }
            }
        };
        train(&first, false, &mut line).map(|_| ()).map_err(|error| error.to_string())
    };
    // Before the first is saved, and after.
    for (after, since) in [("step 1:", "this run began"), ("step 2:", "step 1 was saved")] {
        let error = run(after, Some("of another program")).unwrap_err();
        assert!(error.contains("was written by another program since") && error.contains(since), "{error}");
        assert_eq!(std::fs::read_to_string(&checkpoint).unwrap(), "of another program");
        std::fs::remove_dir_all(&first.out).unwrap();
    }
    run("step 2:", None).expect("one that was removed is written again");
    assert!(checkpoint.exists());
}

#[test]
fn a_run_that_cannot_begin_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let options = TrainOptions { data: vec![folder.path().join("none")], ..small(&folder.path().join("a/b"), 1) };
    told(&options).unwrap_err();
    assert!(!folder.path().join("a").exists());
}
