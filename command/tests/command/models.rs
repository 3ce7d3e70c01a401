//! `train`, `generate`, and `trace show` of models.

use crate::{run, run_in};

#[test]
fn a_model_is_trained_resumed_and_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let train_to = |out: &'static str, steps: &'static str, more: &[&str]| {
        let small = ["train", "gpt2", "--batch", "2", "--context", "16", "--out", out, "--sample-tokens", "4"];
        let eval = ["--evaluate-batches", "1", "--steps", steps];
        run_in(folder.path(), &[&small[..], &eval[..], more].concat())
    };
    let train = |steps, more: &[&str]| train_to("run", steps, more);
    let said = train("2", &[]).ok();
    assert!(said.contains("step 2: loss ") && said.contains("validation loss "), "{said}");
    assert!(folder.path().join("run/traces/00_acquire.trace").exists());
    let complaint = train("1", &[]).fails(1);
    let there = "run/checkpoint.safetensors: a checkpoint is there already";
    assert!(complaint.contains(there) && complaint.contains("--resume"), "{complaint}");
    assert!(complaint.contains("--overwrite"), "{complaint}");
    assert!(train_to("fresh", "0", &[]).fails(1).contains("argument 'steps'"));
    train("1", &["--resume", "--overwrite"]).fails(2);
    let said = train("3", &["--resume"]).ok();
    assert!(said.contains("\nresumed at step 2 of 3\n"), "{said}");
    assert!(said.contains("step 3: loss ") && !said.contains("step 2: "), "{said}");
    let said = train("3", &["--resume"]).ok();
    assert!(said.starts_with("nothing to do: the checkpoint is at step 3"), "{said}");
    assert!(
        train("3", &["--resume", "--precision", "bf16-true"]).fails(1).contains("was made in 32-true, got bf16-true")
    );
    let said = train_to("mixed", "2", &["--precision", "bf16-mixed"]).ok();
    assert!(said.contains("step 2: loss ") && folder.path().join("mixed/traces/02_autocast.trace").exists(), "{said}");
    let refused = train("3", &["--precision", "16-true"]);
    assert!(refused.fails(2).contains("f16 needs loss scaling"));
    assert!(train("3", &["--precision", "tf32"]).fails(1).contains("no executor of the list computes"));
    assert!(train_to("other", "3", &["--size", "huge"]).fails(1).contains("unknown model size 'huge'"));
    assert!(train("3", &["--resume", "--seed", "7"]).code == 1);
    assert!(train("3", &["--overwrite", "--data", "no such file"]).fails(1).contains("no such file"));
    assert_eq!(train("3", &["--lr", "fast"]).code, 2);

    let generate = |more: &[&str]| {
        let arguments = ["generate", "run/checkpoint.safetensors", "--prompt", "The ", "--tokens", "6"];
        run_in(folder.path(), &[&arguments[..], more].concat())
    };
    let said = generate(&[]).ok();
    assert!(said.starts_with("The ") && said.ends_with('\n'), "{said:?}");
    assert_eq!(generate(&[]).ok(), said);
    assert_eq!(generate(&["--temperature", "-1"]).code, 1);
    for temperature in ["1e39", "nan", "inf"] {
        assert!(generate(&["--temperature", temperature]).code == 1);
    }
    let greedy = generate(&["--temperature", "0"]).ok();
    assert_eq!(generate(&["--temperature", "1e-40"]).ok(), greedy);
    std::fs::write(folder.path().join("run/checkpoint.safetensors"), "nonsense").unwrap();
    assert!(generate(&[]).code == 1);
    // Gone on with from the one before.
    let said = train("4", &["--resume"]).ok();
    assert!(said.contains("an earlier checkpoint is taken") && said.contains("resumed at step 2 of 4"), "{said}");
    for name in ["checkpoint.safetensors", "checkpoint-2.safetensors"] {
        std::fs::write(folder.path().join("run").join(name), "nonsense").unwrap();
    }
    assert!(train("5", &["--resume"]).fails(1).contains("checkpoint.safetensors: "));
}

#[test]
fn a_run_is_resumed_as_it_was_started() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.txt"), "the quick brown fox jumps over the lazy dog. ".repeat(40)).unwrap();
    let fulgurite = |arguments: &[&str]| run_in(folder.path(), arguments);
    let short = ["--evaluate-batches", "1", "--sample-tokens", "2", "--out", "run"];
    let started = ["--batch", "2", "--context", "16", "--seed", "7", "--data", "text.txt", "--dropout", "0.1"];
    let size = ["train", "gpt2", "--size", "nano", "--precision", "bf16-true", "--steps", "2"];
    fulgurite(&[&size[..], &started, &short].concat()).ok();
    // From another folder: the name of the data is that of the file, in any working folder.
    let elsewhere = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let resume = ["train", "gpt2", "--resume", "--steps", "3", "--evaluate-batches", "1", "--sample-tokens", "2"];
    let resume = [&resume[..], &["--out", run.to_str().unwrap()]].concat();
    let said = run_in(elsewhere.path(), &resume).ok();
    assert!(said.starts_with("gpt2 nano (2 layers, 2 heads, 64 channels): "), "{said}");
    assert!(said.contains("\nresumed at step 2 of 3\n"), "{said}");
    // As many steps as the run was to have.
    let said = run_in(elsewhere.path(), &["train", "gpt2", "--resume", "--out", run.to_str().unwrap()]).ok();
    assert!(said.starts_with("nothing to do: the checkpoint is at step 3, and 3 steps in all"), "{said}");
    // Its newest checkpoint is lost: the settings are those of the one before.
    std::fs::write(run.join("checkpoint.safetensors"), "nonsense").unwrap();
    let said = run_in(elsewhere.path(), &resume).ok();
    assert!(said.contains("an earlier checkpoint is taken") && said.contains("resumed at step 2 of 3"), "{said}");
    // What is given counts, and is refused where it cannot change.
    for (option, value, complaint) in [
        ("--batch", "4", "batch is 2 in the checkpoint, got 4"),
        ("--context", "8", "context is 16 in the checkpoint, got 8"),
        ("--size", "micro", "size is nano"),
        ("--size", "mini", "leave these options out to go on with it, or begin another run in a folder of its own"),
        ("--dropout", "0.2", "dropout is 0.1 in the checkpoint, got 0.2"),
        ("--seed", "42", "made with seed 7, got 42"),
        ("--precision", "32-true", "made in bf16-true, got 32-true"),
    ] {
        let said = fulgurite(&[&resume[..], &[option, value]].concat()).fails(1);
        assert!(said.contains(complaint), "{said} lacks {complaint}");
    }
    // The folder of a run stands for its newest checkpoint wherever weights are read.
    fulgurite(&["convert", "run", "weights.bin"]).ok();
    let said = fulgurite(&["train", "gpt2", "--init", "run", "--steps", "1", "--batch", "1", "--out", "second"]).ok();
    assert!(said.contains("step 1: loss "), "{said}");
    assert!(fulgurite(&["train", "gpt2", "--lr", "-1", "--out", "third"]).fails(1).contains("lr"));
}

#[test]
fn a_resumed_run_validates_and_samples_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let train = |more: &str| {
        let words = ["train", "gpt2", "--batch", "2", "--out", "run"].into_iter().chain(more.split_whitespace());
        run_in(folder.path(), &words.collect::<Vec<_>>())
    };
    let kept = "--evaluate-every 1 --evaluate-batches 1 --sample-every 1 --sample-tokens 2 --prompt Who";
    train(&format!("--size nano --context 16 --steps 1 {kept}")).ok();
    let said = train("--steps 3 --resume").ok();
    assert!(said.contains("step 2: validation loss ") && said.contains("step 2: sample:\nWho"), "{said}");
    // What is given counts.
    let said = train("--steps 5 --resume --evaluate-every 0 --prompt Then").ok();
    assert!(!said.contains("step 4: validation loss ") && said.contains("step 4: sample:\nThen"), "{said}");
}

#[test]
fn settings_that_no_run_can_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let train = |more: &[&str]| run_in(folder.path(), &[&["train", "gpt2", "--out", "run"], more].concat());
    for peak in ["-1", "0", "NaN", "inf"] {
        let complaint = train(&["--peak-tflops", peak]).fails(2);
        assert!(complaint.contains("--peak-tflops") && complaint.contains("expected a number above 0"), "{complaint}");
    }
    assert!(train(&["--batch", "0"]).fails(1).contains("'batch': is 0, expected at least 1"));
    let complaint = train(&["--init", "no\u{1b}[31m.bin"]).fails(1);
    assert!(complaint.contains("no␛[31m.bin"), "{complaint:?}");
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    let complaint = run_in(folder.path(), &["generate", "empty"]).fails(1);
    assert!(complaint.contains("'empty': has no checkpoint.safetensors of a training run"), "{complaint}");
    let complaint = run_in(folder.path(), &["view", "gpt2", "--batch", "0", "-o", "x.html"]).fails(1);
    assert!(complaint.contains("--batch is 0, expected at least 1"), "{complaint}");
}

#[test]
fn other_data_for_validation_leave_the_data_that_a_run_trains_with() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in [("text.txt", "the quick brown fox. "), ("one.txt", "a few words. "), ("two.txt", "others. ")] {
        std::fs::write(folder.path().join(name), text.repeat(80)).unwrap();
    }
    let train = |more: &[&str]| {
        let small = ["train", "gpt2", "--size", "nano", "--batch", "1", "--context", "16", "--evaluate-batches", "1"];
        run_in(folder.path(), &[&small[..], &["--sample-tokens", "2", "--out", "run"], more].concat())
    };
    train(&["--steps", "1", "--data", "text.txt", "--validation", "one.txt"]).ok();
    let said = train(&["--steps", "2", "--resume", "--validation", "two.txt"]).ok();
    assert!(said.contains("resumed at step 1 of 2"), "{said}");
}

#[test]
fn a_llama_is_trained_resumed_and_sampled() {
    let folder = tempfile::tempdir().unwrap();
    let train = |steps: &'static str, more: &[&str]| {
        let small = ["train", "llama", "--batch", "2", "--context", "16", "--sample-tokens", "4", "--steps", steps];
        run_in(folder.path(), &[&small[..], &["--evaluate-batches", "1"], more].concat())
    };
    let said = train("2", &["--set", "n_layer=1"]).ok();
    assert!(said.starts_with("llama nano: ") && said.contains("step 2: loss "), "{said}");
    // With the fields that it was started with.
    let said = train("3", &["--resume"]).ok();
    assert!(said.contains("\nresumed at step 2 of 3\n"), "{said}");
    let complaint = train("4", &["--resume", "--set", "n_layer=1", "--set", "rope_base=5"]).fails(1);
    assert!(complaint.contains("rope_base is 10000.0 in the checkpoint, got 5.0"), "{complaint}");
    for (more, expected) in [
        (&["--set", "n_layers=2"][..], "argument 'set': a llama has no field 'n_layers', did you mean 'n_layer'?"),
        (&["--set", "n_query_groups=3"], "n_query_groups is 3, expected a divisor of n_head, 4"),
        (&["--size", "124M"], "argument 'size': unknown model '124M', expected one of nano, micro"),
        (&["--tokenizer", "gpt2", "--set", "padded_vocab_size=300"], "'gpt2' has 50257 ids, the model of 'size'"),
    ] {
        let complaint = train("1", &[more, &["--out", "other"]].concat()).fails(1);
        assert!(complaint.contains(expected), "{complaint}");
    }
    let checkpoint = "runs/llama/checkpoint.safetensors";
    let generate = ["generate", checkpoint, "--prompt", "The ", "--tokens", "6", "--temperature", "0"];
    let said = run_in(folder.path(), &generate).ok();
    assert!(said.starts_with("The ") && said.ends_with('\n'), "{said:?}");
    // The folder of a run stands for its checkpoint.
    let of_folder = [&["generate", "runs/llama"], &generate[2..]].concat();
    assert_eq!(run_in(folder.path(), &of_folder).ok(), said);
    let init =
        |family| run_in(folder.path(), &["train", family, "--init", checkpoint, "--out", "more", "--steps", "1"]);
    assert!(init("gpt2").fails(1).contains("holds weights of a llama model, expected those of a gpt2 model"));
    assert!(init("llama").ok().starts_with(&format!("llama from {checkpoint}: ")));
    let convert = ["convert", checkpoint, "out/model.safetensors"];
    // Its folder is made.
    let converted = run_in(folder.path(), &convert).ok();
    assert!(converted.contains("checkpoint to huggingface, 1 layers, 4 heads, 64 channels, context 16"), "{converted}");
    let again = [&["generate", "out", "--tokenizer", "bytes"], &generate[2..]].concat();
    assert_eq!(run_in(folder.path(), &again).ok(), said);
    // Most of its ids have no text.
    train("1", &["--set", "padded_vocab_size=4096", "--out", "wide"]).ok();
    let noted = run_in(folder.path(), &["generate", "wide", "--prompt", "The ", "--tokens", "20", "--top-k", "0"]);
    assert!(noted.err.contains("of 20 tokens are ids of 256 or more, which 'bytes' has no text for"), "{}", noted.err);
    // A file that is smaller than a tensor.
    let sharded = ["convert", checkpoint, "parts/model.safetensors", "--max-shard-size", "5"];
    let noted = run_in(folder.path(), &sharded);
    let expected = "has 65536 bytes, more than --max-shard-size, 5: such a tensor has a file of its own";
    assert!(noted.code == 0 && noted.err.contains(expected), "{}", noted.err);
    let complaint = run_in(folder.path(), &["generate", "out"]).fails(1);
    assert!(complaint.contains("do not say which tokenizer the model of 256 ids was trained with"), "{complaint}");
    let config = folder.path().join("out/config.json");
    let before = std::fs::read(&config).unwrap();
    let over = ["convert", "out/model.safetensors", "out/config.json", "--to", "litgpt"];
    let complaint = run_in(folder.path(), &over).fails(1);
    assert!(complaint.contains("out/config.json: is there already, and is no file of weights"), "{complaint}");
    assert_eq!(std::fs::read(&config).unwrap(), before);
    for option in [&["--heads", "2"][..], &["--prefix"]] {
        let complaint = run_in(folder.path(), &[&["convert", checkpoint, "llama.safetensors"][..], option].concat());
        let expected = format!("holds a llama, {} is of files of gpt2 alone", option[0]);
        assert!(complaint.fails(1).contains(&expected));
    }
    let complaint = run_in(folder.path(), &["convert", checkpoint, "llama.bin"]).fails(1);
    assert!(complaint.contains("the format llmc does not hold models of the family llama"), "{complaint}");
}

#[test]
fn a_folder_of_others_is_trained_on_with_its_own_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let train = |more: &[&str]| {
        let small = ["train", "llama", "--batch", "2", "--context", "8", "--steps", "1", "--sample-tokens", "2"];
        run_in(folder.path(), &[&small[..], &["--evaluate-batches", "1"], more].concat())
    };
    train(&["--size", "nano", "--set", "n_layer=1", "--out", "first"]).ok();
    run_in(folder.path(), &["convert", "first/checkpoint.safetensors", "hf/model.safetensors"]).ok();
    let vocabulary: serde_json::Map<_, _> = (0..41).map(|i| (format!("w{i}"), serde_json::json!(i))).collect();
    let tokenizer = serde_json::json!({
        "version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    });
    std::fs::write(folder.path().join("hf/tokenizer.json"), tokenizer.to_string()).unwrap();
    // A shard of llm.c: 256 numbers, then ids of 16 bits.
    let shard = |name: &str, largest: u16| {
        let header: Vec<i32> = [20_240_520, 1, 800].into_iter().chain([0; 253]).collect();
        let ids = (0..800_u16).flat_map(|i| (i % (largest + 1)).to_le_bytes());
        let bytes: Vec<u8> = header.iter().flat_map(|n| n.to_le_bytes()).chain(ids).collect();
        std::fs::write(folder.path().join(name), bytes).unwrap();
    };
    shard("good.bin", 40);
    let said = train(&["--init", "hf", "--data", "good.bin", "--out", "next", "--prompt", "w3 w5"]).ok();
    assert!(said.starts_with("llama from hf: ") && said.contains("step 1: loss "), "{said}");
    // The checkpoint names it.
    let said = run_in(folder.path(), &["generate", "next", "--prompt", "w1 w2", "--tokens", "3"]).noted();
    assert!(said.starts_with("w1 w2"), "{said}");
    // From the root, so that it is found from every folder, and however it is spelt.
    let elsewhere = tempfile::tempdir().unwrap();
    let next = folder.path().join("next");
    let again = run_in(elsewhere.path(), &["generate", next.to_str().unwrap(), "--prompt", "w1 w2", "--tokens", "3"]);
    assert_eq!(again.noted(), said);
    let complaint = run_in(folder.path(), &["generate", "next", "--tokenizer", "bytes"]).fails(1);
    assert!(complaint.contains("the model was trained with the tokenizer '"), "{complaint}");
    run_in(folder.path(), &["convert", "next/checkpoint.safetensors", "moved", "--to", "checkpoint"]).ok();
    // Its name need not end in .json.
    std::fs::rename(folder.path().join("hf/tokenizer.json"), folder.path().join("words.tok")).unwrap();
    let named = ["--init", "hf", "--data", "good.bin", "--prompt", "w3 w5", "--out", "named"];
    train(&[&named[..], &["--tokenizer", "words.tok"]].concat()).ok();
    let more =
        ["train", "llama", "--resume", "--tokenizer", "./words.tok", "--steps", "2", "--batch", "2", "--context", "8"];
    let said =
        run_in(folder.path(), &[&more[..], &["--evaluate-batches", "1", "--sample-tokens", "2"], &named[..]].concat());
    let said = said.ok();
    assert!(said.contains("resumed at step 1 of 2"), "{said}");
    let lost = ["convert", "next/checkpoint.safetensors", "found", "--to", "checkpoint"];
    // The run has a copy.
    run_in(folder.path(), &lost).ok();
    let more = ["train", "llama", "--resume", "--out", "next", "--steps", "2", "--sample-tokens", "2"];
    let more = [&more[..], &["--prompt", "w3 w5"]].concat();
    assert!(run_in(folder.path(), &more).ok().contains("resumed at step 1 of 2"));
    std::fs::remove_file(folder.path().join("next/tokenizer.json")).unwrap();
    let lost = ["convert", "next/checkpoint-1.safetensors", "none", "--to", "checkpoint"];
    run_in(folder.path(), &lost).fails(1);
    run_in(folder.path(), &[&lost[..], &["--tokenizer", "words.tok"]].concat()).ok();
    // Another tokenizer is not written over, unless the run is to begin anew.
    let other = ["--init", "hf", "--data", "good.bin", "--out", "other", "--prompt", "w3", "--tokenizer", "words.tok"];
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::write(folder.path().join("other/tokenizer.json"), "{}").unwrap();
    let complaint = train(&other).fails(1);
    assert!(complaint.contains("other/tokenizer.json") && complaint.contains("is another one than"), "{complaint}");
    train(&[&other[..], &["--overwrite"]].concat()).ok();
    std::fs::rename(folder.path().join("words.tok"), folder.path().join("hf/tokenizer.json")).unwrap();
    shard("bad.bin", 41);
    let complaint = train(&["--init", "hf", "--data", "bad.bin", "--out", "bad"]).fails(1);
    assert!(complaint.contains("tokenizer.json' has 41 ids"), "{complaint}");
}

#[test]
fn as_many_checkpoints_are_kept_as_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |out: &str, keep: &[&str]| -> Vec<String> {
        let small = ["train", "gpt2", "--batch", "2", "--context", "16", "--out", out, "--sample-tokens", "1"];
        let often = ["--evaluate-batches", "1", "--steps", "5", "--save-every", "1"];
        run_in(folder.path(), &[&small[..], &often, keep].concat()).ok();
        let entries = std::fs::read_dir(folder.path().join(out)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.starts_with("checkpoint"));
        names.sort();
        names
    };
    let [three, four, newest] = ["checkpoint-3.safetensors", "checkpoint-4.safetensors", "checkpoint.safetensors"];
    assert_eq!(kept("two", &[]), [four, newest]);
    assert_eq!(kept("three", &["--keep", "3"]), [three, four, newest]);
    assert_eq!(kept("one", &["--keep", "1"]), [newest]);
}

/// The exit code is 3, step and parameter are named, and no file has a weight that is not finite.
#[test]
fn a_run_that_diverges_exits_with_three() {
    let folder = tempfile::tempdir().unwrap();
    let train = |more: &[&str]| {
        let small = ["train", "gpt2", "--batch", "2", "--context", "16", "--out", "run", "--sample-tokens", "1"];
        run_in(folder.path(), &[&small[..], &["--evaluate-batches", "1", "--warmup", "0"], more].concat())
    };
    let checkpoint = folder.path().join("run/checkpoint.safetensors");
    assert!(train(&["--steps", "1", "--lr", "1e39"]).fails(1).contains("learning rate is 1e39"));
    let ran = train(&["--steps", "1", "--lr", "3e38"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.starts_with("error: step 1: after the update '") && ran.err.contains("at element "), "{}", ran.err);
    assert!(!checkpoint.exists());
    train(&["--steps", "2"]).ok();
    let good = std::fs::read(&checkpoint).unwrap();
    let ran = train(&["--steps", "9", "--lr", "1e30", "--resume"]);
    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.err.starts_with("error: step ") && ran.err.contains("the checkpoint is that of step 2"), "{}", ran.err);
    assert_eq!(std::fs::read(&checkpoint).unwrap(), good);
    assert_eq!(train(&["--steps", "2", "--nonfinite", "jump"]).code, 2);

    // What another program saved: readers refuse it unless they are told otherwise.
    let mut wild = fulgurite_models::Checkpoint::load(&checkpoint).unwrap();
    let bias = wild.tensors["ln_f.bias"].clone();
    let mut bytes = bias.bytes().to_vec();
    bytes[4..8].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let spoilt = fulgurite_models::HostTensor::new(bias.dtype(), bias.shape(), bytes).unwrap();
    wild.tensors.insert("ln_f.bias".into(), spoilt);
    let path = folder.path().join("wild.safetensors");
    wild.save_unchecked(&path).unwrap();
    let place = "wild.safetensors': tensor 'ln_f.bias' is inf at element 1";
    let run = |arguments: &[&str]| run_in(folder.path(), arguments);
    assert!(run(&["generate", "wild.safetensors"]).fails(1).contains(place));
    assert!(run(&["convert", "wild.safetensors", "wild.bin"]).fails(1).contains(place));
    let converted = run(&["convert", "wild.safetensors", "wild.bin", "--allow-nonfinite"]).ok();
    assert!(converted.contains("checkpoint to llmc"), "{converted}");
    assert!(run(&["generate", "wild.bin"]).fails(1).contains("'ln_f.bias' is inf at element 1"));
    let init = ["--init", "wild.bin", "--steps", "1", "--out", "other"];
    assert!(run(&[&["train", "gpt2"][..], &init].concat()).fails(1).contains("'ln_f.bias' is inf at element 1"));
    std::fs::copy(&path, &checkpoint).unwrap();
    assert!(train(&["--steps", "3", "--resume"]).fails(1).contains("'ln_f.bias' is inf at element 1"));
    let ran = train(&["--steps", "3", "--resume", "--allow-nonfinite"]);
    assert!(ran.code == 3 && ran.err.contains("step 3: the weight 'ln_f.bias' is inf at element 1"), "{}", ran.err);
}

/// Ctrl-C while steps are made: the run ends with a checkpoint, and goes on from it.
#[test]
#[cfg(unix)]
fn an_interrupted_run_keeps_what_it_did() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let folder = tempfile::tempdir().unwrap();
    let small = ["train", "gpt2", "--batch", "2", "--context", "16", "--out", "run", "--sample-tokens", "1"];
    let arguments = |steps| [&small[..], &["--evaluate-batches", "1", "--steps", steps]].concat();
    let mut child = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(arguments("1000000"))
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.starts_with("step 1: ")).unwrap();
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupted.success());
    let said: Vec<String> = lines.collect();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said:?} {complaint}");
    assert!(complaint.contains("stopping after this step with a checkpoint"), "{complaint}");
    let stopped = said.iter().find(|line| line.starts_with("stopped after step ")).unwrap();
    let steps: u64 = stopped.split(' ').nth(3).unwrap().parse().unwrap();
    assert!(stopped.ends_with(" of 1000000; --resume goes on"), "{stopped}");
    let more = (steps + 1).to_string();
    let said = run_in(folder.path(), &[&arguments(&more)[..], &["--resume"]].concat()).ok();
    assert!(said.contains(&format!("resumed at step {steps} of {more}")), "{said}");
}

#[test]
fn traces_of_a_llama() {
    let small = ["--layers", "1", "--batch", "2", "--context", "16", "--set", "mlp_class_name=GemmaMLP"];
    let step = run(&[&["trace", "show", "llama"][..], &small].concat()).ok();
    assert!(step.contains("value_and_grad") && step.contains("geglu("), "{step}");
    assert!(!step.contains("transformer.h.1."), "one layer: {step}");
    let loss = run(&[&["trace", "show", "llama-loss", "--backward", "--plain"][..], &small].concat()).ok();
    assert!(loss.contains("rms_norm") && loss.contains("cotangent"), "{loss}");
    for (arguments, expected) in [
        (&["llama", "--set", "n_layers=2"][..], "n_layer"),
        (&["llama", "--layers", "0"], "n_layer"),
        (&["llama", "--backward"], "`llama-loss --backward` shows that of the loss"),
        (&["gpt2", "--set", "n_layer=2"], "is given for gpt2"),
        (&["softmax", "--set", "n_layer=2"], "--set replaces fields of a llama"),
    ] {
        let complaint = run(&[&["trace", "show"][..], arguments].concat()).fails(1);
        assert!(complaint.contains(expected), "{complaint}");
    }
}

#[test]
fn traces_of_a_model() {
    let small = ["trace", "show", "gpt2", "--layers", "1", "--batch", "2", "--context", "16"];
    let step = run(&small).ok();
    assert!(step.contains("value_and_grad"), "{step}");
    // Of the vocabulary that `train` has, and of another.
    assert!(step.contains("state.params.wte.weight: f32[256, 64]"), "{step}");
    let step = run(&[&small[..], &["--tokenizer", "gpt2"]].concat()).ok();
    assert!(step.contains("state.params.wte.weight: f32[50257, 64]"), "{step}");
    let folder = tempfile::tempdir().unwrap();
    let planned = run(&[&small[..], &["--stage", "delete_last_used"]].concat()).ok();
    std::fs::write(folder.path().join("step.trace"), planned).unwrap();
    run_in(folder.path(), &["trace", "verify", "step.trace"]).ok();
    let out = run_in(folder.path(), &["trace", "run", "step.trace"]).ok();
    assert!(out.contains("\nloss: f32[]"), "{out}");
    let plain = run(&[&small[..], &["--stage", "claim", "--plain"]].concat()).ok();
    assert!(plain.contains(" by cpu") && !plain.contains("yield"), "{plain}");
    let half = run(&[&small[..], &["--dtype", "bf16"]].concat()).ok();
    assert!(half.contains("state.params.wte.weight: bf16[256, 64]"), "{half}");
    let complaint = run(&[&small[..], &["--dtype", "i64"]].concat()).fails(1);
    assert!(complaint.contains("--dtype is i64, expected a floating-point type"), "{complaint}");
    for model in ["gpt2", "gpt2-loss", "llama", "llama-decode"] {
        for batch in ["9223372036854775807", "18446744073709551615", "4611686018427387904"] {
            let complaint = run(&["trace", "show", model, "--batch", batch]).fails(1);
            assert!(complaint.contains("larger than any memory"), "{model}, {batch}: {complaint}");
        }
    }
    // Before the default executors of the target, or instead of them.
    let claim = |executors| {
        let model = ["trace", "show", "llama-loss", "--layers", "1", "--dtype", "bf16", "--target", "cuda:sm_90a"];
        run(&[&model[..], &["--stage", "claim", "--plain", "--executors", executors]].concat()).ok()
    };
    let (mixed, alone) = (claim("liger,default"), claim("liger,cuda"));
    assert!(mixed.contains("by liger") && mixed.contains("by flash") && mixed.contains("by cublaslt"), "{mixed}");
    assert!(alone.contains("by liger") && !alone.contains("by flash"), "{alone}");
    let loss = run(&["trace", "show", "gpt2-loss", "--layers", "1"]).ok();
    assert!(!loss.contains("value_and_grad"), "{loss}");
    for model in ["gpt2-decode", "llama-decode"] {
        let shown = ["trace", "show", model, "--layers", "1", "--batch", "2", "--dtype", "bf16"];
        let decode = run(&shown).ok();
        assert!(decode.contains("extend_and_attend(") && decode.contains("logits = "), "{decode}");
        assert!(run(&[&shown[..], &["--backward"]].concat()).fails(1).contains("has no backward pass"));
    }
    assert!(run(&["trace", "show", "gpt2", "--size", "huge"]).fails(1).contains("expected one of nano"));
    assert!(run(&["trace", "show", "gpt2", "--layers", "0"]).fails(1).contains("layers is 0"));
    let mixed = [&small[..], &["--autocast", "bf16", "--stage", "autocast"]].concat();
    let text = run(&mixed).ok();
    assert!(text.contains("c_fc.linear: bf16[2, 16, 256] = linear("), "{text}");
    let complaint = run(&[&small[..], &["--stage", "autocast"]].concat()).fails(1);
    assert!(complaint.contains("--autocast bf16 makes it"), "{complaint}");
    let complaint = run(&[&small[..], &["--stage", "recompute"]].concat()).fails(1);
    assert!(complaint.contains("where something large and cheap is computed again"), "{complaint}");
    let complaint = run(&[&small[..], &["--autocast", "f32", "--stage", "claim"]].concat()).fails(1);
    assert!(complaint.contains("is f32, expected bf16 or f16"), "{complaint}");
    let joint = ["trace", "show", "linear", "--backward", "--autocast", "bf16"];
    let text = run(&[&joint[..], &["--stage", "claim"]].concat()).ok();
    assert!(
        text.contains("made by acquire, autocast, vjp, ")
            && text.contains("grad.linear.weight.convert_element_type: f32[3, 8]"),
        "{text}"
    );
    // No such device is needed.
    let elsewhere = run(&[&small[..], &["--target", "cuda:sm_90a", "--stage", "claim", "--plain"]].concat()).ok();
    assert!(elsewhere.contains("for cuda:sm_90a") && elsewhere.contains(" by cublaslt"), "{elsewhere}");
}
