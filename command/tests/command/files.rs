//! `convert`, `tokenize`, and `train` and `generate` with files of llm.c and of Hugging Face.

use std::path::Path;

use crate::{Ran, run_in};

const SMALL: [&str; 8] = ["train", "gpt2", "--batch", "2", "--evaluate-batches", "1", "--sample-tokens", "2"];

fn run(folder: &Path, arguments: &[&str]) -> Ran {
    run_in(folder, arguments)
}

fn train(folder: &Path, more: &[&str]) -> Ran {
    run(folder, &[&SMALL[..], more].concat())
}

#[test]
fn weights_go_from_format_to_format_and_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let bytes = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let convert = |arguments: &[&str]| run(folder, &[&["convert"], arguments].concat());
    train(folder, &["--size", "nano", "--context", "16", "--steps", "1", "--out", "run"]).ok();

    let said = convert(&["run/checkpoint.safetensors", "nano.bin"]).ok();
    let expected = "nano.bin: checkpoint to llmc, 2 layers, 2 heads, 64 channels, context 16, vocabulary 256\n";
    assert_eq!(said, expected);
    convert(&["nano.bin", "nano.safetensors", "--from", "llmc"]).ok();
    convert(&["nano.safetensors", "prefixed.safetensors", "--prefix"]).ok();
    convert(&["prefixed.safetensors", "again.safetensors", "--to", "checkpoint"]).ok();
    convert(&["again.safetensors", "again.bin"]).ok();
    assert!(bytes("again.bin") == bytes("nano.bin"));
    convert(&["nano.bin", "half.bin", "--to", "llmc-bf16"]).ok();
    convert(&["nano.bin", "old.bin", "--to", "llmc-v1"]).ok();
    assert!(bytes("half.bin").len() < bytes("old.bin").len());

    let generate = |file: &str| run(folder, &["generate", file, "--prompt", "The ", "--tokens", "6"]).ok();
    let text = generate("run/checkpoint.safetensors");
    for file in ["nano.bin", "old.bin", "prefixed.safetensors", "again.safetensors"] {
        assert_eq!(generate(file), text, "{file}");
    }
    generate("half.bin");

    // A run starts from any of them; its size is the file's, and sequences may be shorter.
    let started = |file: &str| {
        let out = format!("from_{file}");
        let arguments = ["--init", file, "--context", "8", "--steps", "1", "--out", &out];
        let said = train(folder, &arguments).ok();
        assert!(said.starts_with(&format!("gpt2 from {file}: ")) && said.contains("16 tokens a step"), "{said}");
        bytes(&format!("{out}/checkpoint.safetensors"))
    };
    let first = started("nano.bin");
    assert!(started("prefixed.safetensors") == first && started("again.safetensors") == first);
    let said =
        train(folder, &["--init", "nano.bin", "--context", "8", "--steps", "2", "--out", "from_nano.bin", "--resume"]);
    assert!(said.ok().contains("step 2: "));

    // What cannot be done is refused.
    assert_eq!(train(folder, &["--init", "nano.bin", "--size", "nano"]).code, 2);
    let refused = |arguments: &[&str], part: &str| {
        let said = train(folder, &[arguments, &["--out", "refused"]].concat()).fails(1);
        assert!(said.contains(part), "{said} lacks {part}");
    };
    refused(&["--init", "nano.bin", "--context", "17"], "is 17, but the weights of 'nano.bin' have 16 positions");
    refused(
        &["--init", "nano.bin", "--tokenizer", "gpt2"],
        "'gpt2' has 50257 ids, the model of 'init' has a vocabulary of 256",
    );
    refused(&["--init", "absent.bin"], "absent.bin");
    std::fs::create_dir(folder.join("made")).unwrap();
    convert(&["nano.bin", "made/checkpoint.safetensors", "--to", "checkpoint"]).ok();
    let said = train(folder, &["--init", "nano.bin", "--out", "made", "--seed", "0", "--resume"]).fails(1);
    assert!(said.contains("converted from weights and has no position in data"), "{said}");
    let refused = |arguments: &[&str], code: i32, part: &str| {
        let said = convert(arguments).fails(code);
        assert!(said.contains(part), "{said} lacks {part}");
    };
    refused(&["nano.bin", "x.gguf"], 1, "ends in neither .bin");
    refused(&["nano.bin", "x.bin", "--to", "gguf"], 2, "gguf is read, and not written, expected one of checkpoint");
    refused(&["nano.bin", "x.bin", "--from", "gguf"], 1, "nano.bin: is in the format llmc, not gguf");
    refused(&["nano.bin", "x.bin", "--from", "huggingface"], 1, "nano.bin: is in the format llmc, not huggingface");
    std::fs::write(folder.join("cut.bin"), &bytes("nano.bin")[..5000]).unwrap();
    refused(&["nano.bin", "x.bin", "--heads", "2"], 1, "is in the format llmc, which says its number of heads");
    refused(&["cut.bin", "x.bin"], 1, "'cut.bin': cut short: tensor 'wte' begins at offset 1024");
    assert!(!folder.join("x.bin").exists());
}

#[test]
fn text_goes_to_shards_and_is_trained_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let said = run(folder, &["tokenize", "--out", "shards", "--vocabulary"]).ok();
    let expected = "shards/tiny_shakespeare_val.bin: 32768 tokens\nshards/tiny_shakespeare_train.bin: 305260 tokens\n\
                    shards/gpt2_tokenizer.bin: 50257 token ids\n";
    assert_eq!(said, expected);
    let length = |name: &str| std::fs::metadata(folder.join("shards").join(name)).unwrap().len();
    assert_eq!((length("tiny_shakespeare_val.bin"), length("tiny_shakespeare_train.bin")), (66_560, 611_544));

    // Small ones, of bytes: two shards are trained on as the text they were cut from.
    let text: String = ('a'..='z').cycle().take(400).collect();
    for (name, part) in [("all", &text[..]), ("one", &text[..250]), ("two", &text[250..])] {
        let file = format!("{name}.txt");
        std::fs::write(folder.join(&file), part).unwrap();
        let arguments =
            ["tokenize", "--data", &file, "--out", name, "--tokenizer", "bytes", "--validation-tokens", "100"];
        run(folder, &arguments).ok();
    }
    let nano = ["--size", "nano", "--context", "8", "--steps", "2"];
    let losses = |more: &[&str]| {
        let said = train(folder, &[&nano[..], more].concat()).ok();
        let at = said.find("step 1: loss").unwrap();
        said[at..at + 20].to_owned()
    };
    let validated = ["--validation", "one/one_val.bin"];
    let whole = losses(&[&["--out", "a", "--data", "all/all_val.bin", "all/all_train.bin"], &validated[..]].concat());
    let parts = ["one/one_val.bin", "one/one_train.bin", "two/two_val.bin", "two/two_train.bin"];
    assert_eq!(losses(&[&["--out", "b", "--data"], &parts[..], &validated[..]].concat()), whole);
    assert_eq!(losses(&[&["--out", "c", "--data", "all.txt"], &validated[..]].concat()), whole);
    losses(&[&["--out", "d", "--data", "t*/two_*.bin"], &validated[..]].concat());

    let refused = |arguments: &[&str], part: &str| {
        let said = train(folder, &[&nano[..], &["--out", "refused", "--data"], arguments].concat()).fails(1);
        assert!(said.contains(part), "{said} lacks {part}");
    };
    refused(&["none*.bin"], "no file matches 'none*.bin'");
    refused(&["[.bin"], "pattern '[.bin'");
    refused(&["all.txt", "all/all_train.bin"], "is a shard of tokens and");
    refused(
        &["shards/tiny_shakespeare_train.bin"],
        "but the vocabulary of 'bytes' has 256 ids: the shard is damaged, or of another tokenizer",
    );
    let mut bytes = std::fs::read(folder.join("all/all_train.bin")).unwrap();
    bytes.truncate(1100);
    std::fs::write(folder.join("cut.bin"), &bytes).unwrap();
    refused(&["all/all_val.bin", "cut.bin"], "'cut.bin': cut short: token 38 of 300 begins at offset 1100");
    let said = run(folder, &["tokenize", "--data", "all.txt", "--out", "x", "--validation-tokens", "9999"]).fails(1);
    assert!(said.contains("--validation-tokens is 9999, expected 1 to"), "{said}");
    let said = run(folder, &["tokenize", "--data", "all.txt", "--out", "x", "--tokenizer", "words"]).fails(1);
    assert!(said.contains("unknown tokenizer 'words'"), "{said}");
}

#[test]
fn debug_states_are_written_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| run_in(folder.path(), arguments);
    let small = ["--steps", "1", "--batch", "1", "--context", "16", "--evaluate-batches", "1", "--sample-tokens", "1"];
    for (out, seed) in [("a", "1"), ("b", "2")] {
        run(&[&["train", "gpt2", "--size", "nano", "--out", out, "--seed", seed][..], &small].concat()).ok();
    }
    for (more, name) in [(&["--version-1"][..], "one.bin"), (&[], "two.bin")] {
        let write = ["debug-state", "write", "a/checkpoint.safetensors", name, "--batch", "2", "--context", "8"];
        assert!(run(&[&write[..], more].concat()).ok().contains("2 sequences of 8 tokens, loss "));
        let check = |model: &str, more: &[&str]| run(&[&["debug-state", "check", model, name][..], more].concat());
        let said = check("a/checkpoint.safetensors", &[]).ok();
        assert!(said.starts_with("OK        logits [2, 8, ") && said.ends_with("OK: all tensors agree within 1e-4\n"));
        let other = check("b/checkpoint.safetensors", &[]);
        assert_eq!(other.code, 1);
        assert!(other.out.contains("DIFFERENT loss []: ") && other.out.contains(" tensors differ by more than 1e-4\n"));
        let refused = check("a/checkpoint.safetensors", &["--executors", "none"]).fails(1);
        assert!(refused.contains("none"), "{refused}");
        for tolerance in ["nan", "inf", "-1"] {
            let refused = check("a/checkpoint.safetensors", &[&format!("--tolerance={tolerance}")]).fails(2);
            assert!(refused.contains("expected a number of 0 or more"), "{refused}");
        }
    }
    // A model of 16 positions.
    let write = |more: &[&str]| run(&[&["debug-state", "write", "a/checkpoint.safetensors"][..], more].concat());
    assert!(write(&["usual.bin", "--batch", "1"]).ok().contains("1 sequences of 16 tokens"));
    assert!(write(&["x.bin", "--context", "17"]).fails(1).contains("--context is 17, the model's is 16"));
    let before = std::fs::read(folder.path().join("a/checkpoint.safetensors")).unwrap();
    assert!(write(&["./a/checkpoint.safetensors"]).fails(1).contains("is read, and would be written over"));
    assert!(before == std::fs::read(folder.path().join("a/checkpoint.safetensors")).unwrap());
    let ids: Vec<u8> = [1_i32, 2, 3, 4].iter().flat_map(|id| id.to_le_bytes()).collect();
    std::fs::write(folder.path().join("old.bin"), ids).unwrap();
    let said = run(&["tokenize", "--headerless", "old.bin", "--out", "shards"]).ok();
    assert_eq!(said, "shards/old.bin: 4 tokens\n");
    assert!(run(&["tokenize", "--headerless", "old.bin", "--out", "."]).fails(1).contains("choose another folder"));
    assert!(run(&["tokenize", "--headerless", "shards/old.bin", "--out", "x"]).fails(1).contains("20240520"));
}

#[test]
fn what_is_converted_for_others_has_its_configuration_and_tokenizer() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/llama_files");
    for name in ["llama", "gpt2"] {
        std::fs::create_dir(folder.join(name)).unwrap();
        for entry in std::fs::read_dir(golden.join(name)).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.join(name).join(entry.file_name())).unwrap();
        }
        std::fs::copy(golden.join("tokenizer.json"), folder.join(name).join("tokenizer.json")).unwrap();
        let to = format!("out/{name}/model.safetensors");
        run(folder, &["convert", name, &to]).ok();
        let read = |path: &Path| std::fs::read(path.join("tokenizer.json")).unwrap();
        assert!(read(&folder.join(name)) == read(&folder.join("out").join(name)), "{name}");
        let config = |path: &Path| crate::json(&std::fs::read_to_string(path.join("config.json")).unwrap());
        let [own, written] = [folder.join(name), folder.join("out").join(name)].map(|path| config(&path));
        assert_eq!(own["model_type"], written["model_type"]);
        assert_eq!(own["eos_token_id"], written["eos_token_id"], "{name}");
        let generate = |from: &str| {
            run(folder, &["generate", from, "--prompt", "t3 t5", "--temperature", "0", "--tokens", "6"]).noted()
        };
        assert_eq!(generate(name), generate(&format!("out/{name}")));
        // Once more, over what is there.
        run(folder, &["convert", name, &to]).ok();
    }
    // Another model's configuration and another tokenizer are left alone.
    let refused = run(folder, &["convert", "gpt2", "out/llama/gpt2.safetensors"]).fails(1);
    assert!(refused.contains("config.json' beside the file: is there already"), "{refused}");
    std::fs::write(folder.join("out/gpt2/tokenizer.json"), "{}").unwrap();
    let refused = run(folder, &["convert", "gpt2", "out/gpt2/model.safetensors"]).fails(1);
    assert!(refused.contains("tokenizer.json': is another one than"), "{refused}");
    // An end that the tokenizer does not have is told, and the text is made all the same.
    let config = std::fs::read_to_string(folder.join("llama/config.json")).unwrap();
    let beyond = config.replace("\"eos_token_id\": 2", "\"eos_token_id\": 128009");
    assert_ne!(beyond, config);
    std::fs::write(folder.join("llama/config.json"), beyond).unwrap();
    let said = run(folder, &["generate", "llama", "--prompt", "t3 t5", "--temperature", "0", "--tokens", "6"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("warning: ") && said.err.contains("no text ends at [128009]"), "{}", said.err);
}

/// What a `--tokenizer` may be and what `convert` reads is said where people look for it.
#[test]
fn help_names_the_files_that_are_read() {
    let help = |words: &[&str]| {
        let text = run(Path::new("."), &[words, &["--help"]].concat()).ok();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for words in [
        &["convert"][..],
        &["generate"],
        &["tokenize"],
        &["train", "gpt2"],
        &["train", "llama"],
        &["debug-state", "write"],
    ] {
        let text = help(words);
        for file in ["tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt"] {
            assert!(text.contains(file), "{words:?} does not name {file}: {text}");
        }
    }
    let text = help(&["convert"]);
    for read in
        [".pth", ".bin", "model.safetensors.index.json", "pytorch_model.bin.index.json", "_orig_mod.", "the folder"]
    {
        assert!(text.contains(read), "convert does not name {read}: {text}");
    }
}
