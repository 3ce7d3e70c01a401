//! `generate` with a folder of Hugging Face: `tests/golden/tokenizer_files/llama`.

use std::path::Path;

use crate::{Ran, run_in};
use fulgurite_models::Tokenizer;
use fulgurite_models::streaming::StreamingDecoder;

fn golden() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer_files")
}

/// The folder `llama` in another one, with a file replaced.
fn copied(file: &str, text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("llama")).unwrap();
    for entry in std::fs::read_dir(golden().join("llama")).unwrap().map(|entry| entry.unwrap()) {
        std::fs::copy(entry.path(), folder.path().join("llama").join(entry.file_name())).unwrap();
    }
    std::fs::write(folder.path().join(file), text).unwrap();
    folder
}

fn generate(folder: &Path, more: &[&str]) -> Ran {
    run_in(folder, &[&["generate", "llama", "--tokens", "24"], more].concat())
}

#[test]
fn a_folder_is_continued_as_transformers_does() {
    let tokenizer = Tokenizer::open(golden().join("llama").to_str().unwrap()).unwrap();
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden().join("expected.json")).unwrap()).unwrap();
    let prompts: Vec<String> = serde_json::from_value(expected["llama"]["prompts"].clone()).unwrap();
    let continuations: Vec<Vec<u32>> = serde_json::from_value(expected["llama"]["continuations"].clone()).unwrap();
    // As it is shown: bytes that make no character may be beside each other.
    let text = |row: usize, count: usize| {
        let prompt = tokenizer.encode_prompt(&prompts[row]).unwrap();
        let mut decoder = StreamingDecoder::after(tokenizer.clone(), &prompt).unwrap();
        let tokens = continuations[row].iter().take(count);
        let shown: String = tokens.map(|token| decoder.push(*token).unwrap()).collect();
        format!("{}{shown}{}", prompts[row], decoder.finish())
    };
    let whole = |row: usize| text(row, 24);
    let folder = copied("prompts.txt", &(prompts.join("\n\n") + "\n"));
    let greedy = |more: &[&str]| generate(folder.path(), &[&["--temperature", "0"], more].concat());
    assert_eq!(greedy(&["--prompt", &prompts[0]]).ok(), whole(0) + "\n");
    let all = (0..3).map(|row| format!("--- {} of 3 ---\n{}\n", row + 1, whole(row))).collect::<String>();
    assert_eq!(greedy(&["--prompts", "prompts.txt"]).ok(), all);
    assert_eq!(greedy(&["--prompts", "prompts.txt", "--cache", "0", "--executors", "cpu"]).ok(), all);
    // The token before a prompt is put there once, and special tokens give no text.
    assert_eq!(greedy(&["--prompt", "<s>The glass"]).ok(), whole(0).replace("The glass", "<s>The glass") + "\n");
    assert_ne!(greedy(&["--prompt", &prompts[0], "--plain"]).ok(), whole(0) + "\n");
    let stop = greedy(&["--prompt", &prompts[0], "--stop-token", "317"]);
    assert_eq!(stop.ok(), text(0, 2) + "\n");
    let full = greedy(&["--prompt", &prompts[0], "--cache", "16"]);
    assert!(full.err.contains("the cache of 16 positions is full"), "{}", full.err);
    let count = 17 - tokenizer.encode_prompt(&prompts[0]).unwrap().len();
    assert_eq!((full.code, full.out), (0, text(0, count) + "\n"));
    let half = greedy(&["--prompt", &prompts[0], "--dtype", "bf16"]).ok();
    assert!(half.starts_with("The glass") && half.len() > "The glass\n".len(), "{half:?}");
}

/// `tests/golden/tokenizer_files/llama.gguf`, which the package `gguf` wrote: weights, and the tokenizer in it.
#[test]
fn a_file_of_llama_cpp_is_continued_alone() {
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden().join("expected.json")).unwrap()).unwrap();
    let prompts: Vec<String> = serde_json::from_value(expected["llama"]["prompts"].clone()).unwrap();
    let folder = copied("prompts.txt", &(prompts.join("\n\n") + "\n"));
    std::fs::create_dir(folder.path().join("alone")).unwrap();
    std::fs::copy(golden().join("llama.gguf"), folder.path().join("alone/llama.gguf")).unwrap();
    let greedy = |file: &str, more: &[&str]| {
        let usual = ["generate", file, "--tokens", "24", "--temperature", "0", "--prompts", "prompts.txt"];
        run_in(folder.path(), &[&usual[..], more].concat()).ok()
    };
    let text = greedy("llama", &[]);
    assert_eq!(greedy("alone/llama.gguf", &[]), text);
    // What it becomes has its tokenizer beside it.
    run_in(folder.path(), &["convert", "alone/llama.gguf", "converted/model.safetensors", "--from", "gguf"]).ok();
    assert_eq!(greedy("converted", &[]), text);
    run_in(folder.path(), &["convert", "alone/llama.gguf", "own.safetensors", "--to", "checkpoint"]).ok();
    assert_eq!(greedy("own.safetensors", &[]), text);
    assert_eq!(greedy("own.safetensors", &["--tokenizer", "alone/llama.gguf"]), text);
}

#[test]
fn draws_follow_their_seed_and_their_rules() {
    let folder = copied("unused.txt", "");
    let drawn =
        |more: &[&str]| generate(folder.path(), &[&["--prompt", "The ", "--top-k", "0"], more].concat()).noted();
    let rules = ["--top-p", "0.9", "--min-p", "0.01", "--repetition-penalty", "1.2", "--temperature", "2"];
    assert_eq!(drawn(&rules), drawn(&rules));
    assert_ne!(drawn(&rules), drawn(&[&rules[..], &["--seed", "7"]].concat()));
    let greedy = drawn(&["--temperature", "0"]);
    for certain in [["--top-p", "0"], ["--min-p", "1"], ["--top-k", "1"]] {
        assert_eq!(
            generate(folder.path(), &[&["--prompt", "The "], &certain[..]].concat()).ok(),
            greedy,
            "{certain:?}"
        );
    }
    let whole = drawn(&rules);
    let stop: String = whole.chars().skip(10).take(2).collect();
    let ended = drawn(&[&rules[..], &["--stop", &stop]].concat());
    assert_eq!(ended, whole[..4].to_owned() + whole[4..].split(&stop).next().unwrap() + "\n");
}

#[test]
fn what_cannot_be_used_is_named() {
    for (file, text, more, expected) in [
        ("llama/tokenizer.json", "{", &[][..], "tokenizer.json': EOF while parsing"),
        ("llama/generation_config.json", "[", &[], "generation_config.json': EOF while parsing"),
        ("prompts.txt", "\n\n", &["--prompts", "prompts.txt"], "prompts.txt: has no line with a prompt"),
        (
            "unused",
            "",
            &["--weights", "int8:32"],
            "are int8:32, 'h.0.mlp.proj.weight' has 48 inputs, expected a multiple of 32",
        ),
        ("unused", "", &["--prompts", "absent.txt"], "'absent.txt'"),
        (
            "unused",
            "",
            &["--tokenizer", "gpt2"],
            "the tokenizer 'gpt2' has 50257 ids, the model has a vocabulary of 448",
        ),
        (
            "unused",
            "",
            &["--tokenizer", "other"],
            "unknown tokenizer 'other', expected 'gpt2', 'bytes', or the name of",
        ),
        ("unused", "", &["--top-p", "1.5"], "argument 'top_p': is 1.5, expected a number from 0 to 1"),
        ("unused", "", &["--min-p", "-1"], "argument 'min_p': is -1"),
        ("unused", "", &["--repetition-penalty", "0"], "argument 'repetition_penalty': is 0"),
        ("unused", "", &["--prompt", "one two three four", "--cache", "3"], "(text 1), the cache has 3"),
        ("unused", "", &["--cache", "65"], "has 65 positions, the model's context 64"),
        ("unused", "", &["--stop", ""], "argument 'stop_texts': hold an empty text"),
        ("unused", "", &["--stop-token", "99999"], "argument 'stop_tokens': hold 99999, the model's vocabulary is"),
    ] {
        let folder = copied(file, text);
        let complaint = generate(folder.path(), more).fails(1);
        assert!(complaint.contains(expected), "{more:?}: {complaint}");
    }
    let folder = copied("unused", "");
    generate(folder.path(), &["--prompt", "a", "--prompts", "b"]).fails(2);
    // A tokenizer with more ids than the model, by itself.
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden().join("byte_level/tokenizer.json")).unwrap()).unwrap();
    // Its added tokens are in the vocabulary too, or they would be numbered behind the new one.
    for added in config["added_tokens"].as_array().unwrap().clone() {
        config["model"]["vocab"][added["content"].as_str().unwrap()] = added["id"].clone();
    }
    config["model"]["vocab"]["zzz"] = 600.into();
    std::fs::write(folder.path().join("llama/tokenizer.json"), config.to_string()).unwrap();
    let complaint = generate(folder.path(), &[]).fails(1);
    let expected = "llama/tokenizer.json' has 601 ids, the model has a vocabulary of 448";
    assert!(complaint.contains(expected), "{complaint}");
    // Text to shards by the tokenizer of a file.
    std::fs::write(folder.path().join("text.txt"), "The glass\n\nthat lightning leaves in sand. ".repeat(20)).unwrap();
    let tokens = ["tokenize", "--data", "text.txt", "--out", "shards", "--validation-tokens", "20", "--tokenizer"];
    let file = golden().join("metaspace/tokenizer.json");
    let said = run_in(folder.path(), &[&tokens[..], &[file.to_str().unwrap()]].concat()).ok();
    assert!(said.contains("shards/text_val.bin: 20 tokens"), "{said}");
    // Its tokens have no bytes that llm.c's vocabulary could hold, which is told before anything is written.
    let more = [&tokens[..], &[file.to_str().unwrap(), "--vocabulary", "--out", "none"]].concat();
    let more: Vec<&str> = more.into_iter().enumerate().filter(|(i, _)| ![3, 4].contains(i)).map(|(_, s)| s).collect();
    let complaint = run_in(folder.path(), &more).fails(1);
    let expected = "is of a file, which has no bytes for each token, but a file of this kind holds gpt2";
    assert!(complaint.contains("--vocabulary: the tokenizer '") && complaint.contains(expected), "{complaint}");
    assert!(!folder.path().join("none").exists());
}

#[test]
fn files_that_are_cut_or_absent_are_named_and_nothing_is_written() {
    let shard = |number: usize| format!("llama/model-0000{number}-of-00003.safetensors");
    let complain = |change: &dyn Fn(&Path), from: &str, expected: &str| {
        let folder = copied("unused", "");
        std::fs::create_dir(folder.path().join("lit")).unwrap();
        for name in ["lit_model.pth", "model_config.yaml"] {
            let file = golden().join("../torch_files/litgpt_old").join(name);
            std::fs::copy(file, folder.path().join("lit").join(name)).unwrap();
        }
        change(folder.path());
        let generated = run_in(folder.path(), &["generate", from, "--prompt", "a", "--tokens", "1"]).fails(1);
        let converted = run_in(folder.path(), &["convert", from, "out.safetensors"]).fails(1);
        for complaint in [generated, converted] {
            assert!(complaint.contains(expected), "{complaint}");
        }
        assert!(!folder.path().join("out.safetensors").exists() && !folder.path().join("config.json").exists());
    };
    let cut = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 5]).unwrap();
    };
    let incomplete = "model-00002-of-00003.safetensors': the header describes 55552 bytes of data, but 55547 follow it";
    complain(&|root| cut(&root.join(shard(2))), "llama", incomplete);
    let remove = |root: &Path, name: &str| std::fs::remove_file(root.join(name)).unwrap();
    complain(&|root| remove(root, &shard(3)), "llama", "model-00003-of-00003.safetensors': cannot read the file");
    let index = "llama/model.safetensors.index.json";
    complain(
        &|root| remove(root, index),
        "llama",
        "llama': has no checkpoint.safetensors of a training run, and no model.safetensors, model.safetensors.",
    );
    complain(&|root| cut(&root.join(index)), "llama", "index.json': EOF while parsing");
    complain(&|root| cut(&root.join("llama/config.json")), "llama", "config.json': EOF while parsing");
    complain(&|root| cut(&root.join("lit/lit_model.pth")), "lit", "lit_model.pth': is no whole archive of torch.save");
    let emptied = |root: &Path| std::fs::write(root.join("lit/lit_model.pth"), "").unwrap();
    for from in ["lit", "lit/lit_model.pth"] {
        complain(&emptied, from, "error: 'lit/lit_model.pth': is no whole archive of torch.save: it is empty");
    }
    complain(&|root| remove(root, "lit/model_config.yaml"), "lit", "model_config.yaml': No such file");
    let unknown = |root: &Path| {
        let path = root.join("lit/model_config.yaml");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, text + "n_blocks: 3\n").unwrap();
    };
    complain(&unknown, "lit", "model_config.yaml': line 52: a llama has no field 'n_blocks'");
}

#[test]
fn a_folder_of_litgpt_is_converted_there_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let of = golden().join("../torch_files/litgpt_old");
    let tokenizer = golden().join("../llama_files/tokenizer.json");
    let convert = |from: &str, to: &str| run_in(folder.path(), &["convert", from, to]);
    let said = convert(of.to_str().unwrap(), "hf/model.safetensors").ok();
    assert!(said.starts_with("hf/model.safetensors: litgpt to huggingface, 2 layers, 4 heads"), "{said}");
    let said = convert("hf", "lit/lit_model.pth").ok();
    assert!(said.starts_with("lit/lit_model.pth: huggingface to litgpt, 2 layers, 4 heads"), "{said}");
    let generate = |from: &str| {
        let more =
            ["--prompt", "t3 t5", "--temperature", "0", "--tokens", "8", "--tokenizer", tokenizer.to_str().unwrap()];
        run_in(folder.path(), &[&["generate", from], &more[..]].concat()).noted()
    };
    let expected = generate(of.to_str().unwrap());
    assert!(expected.starts_with("t3 t5 t"), "{expected}");
    assert_eq!([generate("hf"), generate("lit"), generate("lit/lit_model.pth")], [(); 3].map(|()| expected.clone()));
    for (from, to) in [("hf", "hf/model.safetensors"), ("lit/lit_model.pth", "lit/../lit/lit_model.pth")] {
        let complaint = convert(from, to).fails(1);
        assert!(complaint.contains("is read, and would be written over"), "{complaint}");
    }
    assert_eq!(generate("lit"), expected);
    let complaint = convert(golden().join("../llama_files/gpt2").to_str().unwrap(), "gpt2/lit_model.pth").fails(1);
    assert!(complaint.contains("the format litgpt does not hold models of the family gpt2"), "{complaint}");
}
