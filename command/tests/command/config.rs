//! `train llama --config`, and the metrics and the picture of a run.

use crate::run_in;

const SETTINGS: &str = "
model_name: nano
model_config:
  n_layer: 1
out_dir: run
precision: 32-true
train:
  global_batch_size: 4
  micro_batch_size: 2
  max_steps: 3
  max_seq_length: 16
  lr_warmup_steps: 1
  log_interval: 1
  max_norm: 1.0
  min_lr: 1e-4
eval: {max_iters: 1, max_new_tokens: 2}
optimizer:
  class_path: torch.optim.AdamW
  init_args: {lr: 1e-3, weight_decay: 0.1, betas: [0.9, 0.95]}
seed: 7
";

#[test]
fn a_file_describes_a_run_and_the_command_line_comes_before_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.yaml"), SETTINGS).unwrap();
    let train =
        |more: &[&str]| run_in(folder.path(), &[&["train", "llama", "--config", "run.yaml"][..], more].concat());
    let of_file = train(&[]).ok();
    assert!(of_file.contains("64 tokens a step, 3 steps"), "{of_file}");
    assert!(of_file.contains("step 3: loss ") && of_file.contains("lr 5.50e-4"), "{of_file}");
    // The same run by options.
    let options = "--size nano --set n_layer=1 --out flags --batch 2 --accumulate 2 --steps 3 --context 16 --warmup 1 \
                   --log-every 1 --clip 1 --lr 1e-3 --final-lr 0.1 --weight-decay 0.1 --beta2 0.95 --seed 7 \
                   --evaluate-batches 1 --sample-tokens 2";
    let options: Vec<&str> = options.split(' ').filter(|word| !word.is_empty()).collect();
    run_in(folder.path(), &[&["train", "llama"][..], &options].concat()).ok();
    let file = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert_eq!(file("run/checkpoint.safetensors"), file("flags/checkpoint.safetensors"));
    // What the command line says is so, also where it is the default.
    let more = ["--steps", "2", "--out", "other", "--accumulate", "1", "--set", "n_layer=2"];
    let said = train(&more).ok();
    assert!(said.contains("32 tokens a step, 2 steps") && said.contains("other/checkpoint"), "{said}");
    let checkpointed = train(&["--out", "again", "--activation-checkpointing", "blocks"]).ok();
    assert!(checkpointed.contains("step 3: loss "), "{checkpointed}");
    assert_eq!(file("run/checkpoint.safetensors"), file("again/checkpoint.safetensors"));

    // What is divided is divided by what the command line says.
    let tokens = SETTINGS.replace("max_steps: 3", "max_tokens: 192");
    std::fs::write(folder.path().join("run.yaml"), &tokens).unwrap();
    let said = train(&["--out", "wide", "--batch", "4", "--context", "8"]).ok();
    assert!(said.contains("32 tokens a step, 6 steps"), "{said}");
    assert!(
        train(&["--out", "odd", "--batch", "3"]).fails(1).contains("'run.yaml': global_batch_size, 4, is no multiple")
    );
    let huge = train(&["--out", "huge", "--batch", "4611686018427387904", "--accumulate", "4"]).fails(1);
    assert!(huge.contains("more tokens a step than can be counted"), "{huge}");
    // Weights have their own configuration.
    let of_weights =
        SETTINGS.replace("model_config:\n  n_layer: 1", "initial_checkpoint_dir: run/checkpoint.safetensors");
    std::fs::write(folder.path().join("run.yaml"), &of_weights).unwrap();
    let refused = train(&["--out", "set", "--set", "n_layer=2"]).fails(1);
    assert!(refused.contains("--set sets n_layer=2, but the model is that of the weights"), "{refused}");
    let said = train(&["--out", "next", "--precision", "bf16-true", "--steps", "2"]).ok();
    assert!(said.contains("step 2: loss "), "{said}");
    let both = of_weights.replace("out_dir: run", "model_config: {n_layer: 2}\nout_dir: run");
    std::fs::write(folder.path().join("run.yaml"), &both).unwrap();
    assert!(train(&["--out", "both"]).fails(1).contains("model_config or train.tie_embeddings sets n_layer=2"));

    std::fs::write(folder.path().join("run.yaml"), SETTINGS.replace("max_steps", "max_step")).unwrap();
    let complaint = train(&[]).fails(1);
    assert!(complaint.contains("'run.yaml', line 10: train has no key 'max_step', did you mean 'max_steps'?"));

    // What is found later names the file too, unless the command line says it.
    std::fs::write(folder.path().join("run.yaml"), SETTINGS.replace("model_name: nano", "model_name: huge")).unwrap();
    assert!(train(&["--out", "huge"]).fails(1).contains("'run.yaml': argument 'size': unknown model 'huge'"));
    assert!(!train(&["--out", "huge", "--size", "vast"]).fails(1).contains("run.yaml"));

    let table = String::from_utf8(file("run/metrics.csv")).unwrap();
    assert_eq!(table.lines().count(), 4, "{table}");
    let plot = |arguments: &[&str]| run_in(folder.path(), &[&["plot"][..], arguments].concat());
    assert_eq!(plot(&["run", "other/metrics.csv", "--out", "both.svg"]).ok(), "both.svg\n");
    let picture = String::from_utf8(file("both.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.matches("<polyline").count() == 6, "{picture}");
    assert_eq!(plot(&["run"]).ok(), "run/metrics.svg\n");
    assert!(plot(&["run", "other"]).fails(1).contains("--out"));
    assert!(plot(&["run", "--out", "both.png"]).fails(1).contains("expected a name that ends in .svg"));
    let heading = table.lines().next().unwrap().to_owned() + "\n";
    std::fs::write(folder.path().join("run/metrics.csv"), heading).unwrap();
    assert!(plot(&["run"]).fails(1).contains("metrics.csv: has no step yet"));
    std::fs::write(folder.path().join("run/metrics.csv"), table.replace("\n2,", "\nx,")).unwrap();
    assert!(plot(&["run"]).fails(1).contains("metrics.csv', line 3: step is 'x', expected a number"));
}

#[test]
fn a_resumed_run_keeps_what_is_not_said_again() {
    let folder = tempfile::tempdir().unwrap();
    let common = "train llama --size nano --set n_layer=1 --batch 2 --context 16 --log-every 1 --evaluate-batches 1 \
                  --sample-tokens 1";
    let train = |more: &str| {
        let words: Vec<&str> = common.split_whitespace().chain(more.split_whitespace()).collect();
        run_in(folder.path(), &words)
    };
    let settings = "--lr 0.01 --final-lr 0.3 --beta2 0.9 --weight-decay 0.3 --warmup 1 --clip 0.5 --accumulate 2";
    train(&format!("{settings} --steps 4 --out whole")).ok();
    train(&format!("{settings} --steps 2 --out parts")).ok();
    let said = train("--steps 4 --out parts --resume").ok();
    // The schedule follows from the number of steps, and nothing else has changed.
    assert!(said.contains("steps of the schedule 4, was 2") && !said.contains("beta2"), "{said}");
    let again = train(&format!("{settings} --steps 2 --out again"));
    again.ok();
    train(&format!("{settings} --steps 4 --out again --resume")).ok();
    let file = |name: &str| std::fs::read(folder.path().join(name).join("checkpoint.safetensors")).unwrap();
    assert_eq!(file("parts"), file("again"), "as if all had been said again");
    let said = train("--steps 5 --out parts --resume --beta2 0.95").ok();
    assert!(said.contains("beta2 0.95, was 0.9"), "{said}");
}

/// Keys and forms as LitGPT documents them: folders of texts, nothing that says how long a sequence is.
const TEXT_FILES: &str = "
precision: bf16-mixed
out_dir: out
data:
  class_path: litgpt.data.TextFiles
  init_args:
    train_data_path: texts/train
    val_data_path: texts/val
    num_workers: 2
train:
  global_batch_size: 8
  micro_batch_size: 1
  max_tokens: 1024
  lr_warmup_steps: 1
  save_interval: 10
  log_interval: 1
eval: {max_iters: 1, max_new_tokens: 2}
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 0.0003
    weight_decay: 0.01
devices: 1
logger_name: csv
";

#[test]
fn litgpts_own_files_train() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for name in ["texts/train/a.txt", "texts/train/b.txt", "texts/val/c.txt"] {
        write(name, &format!("{name}: to be, or not to be. ").repeat(40));
    }
    let train = |text: &str, more: &[&str]| {
        write("run.yaml", text);
        run_in(folder.path(), &[&["train", "llama", "--config", "run.yaml"][..], more].concat())
    };
    // The length of a sequence is the model's own, 64 of nano, and so max_tokens are 2 steps of 8 sequences.
    let said = train(TEXT_FILES, &["--size", "nano"]).ok();
    assert!(said.contains("512 tokens a step, 2 steps") && said.contains("step 2: loss "), "{said}");
    // The same sequences on two ranks, unless the command line has another number.
    let sharding = "{class_path: FSDPStrategy, init_args: {sharding_strategy: SHARD_GRAD_OP}}";
    let two = TEXT_FILES
        .replace("devices: 1", &format!("devices: 2\nstrategy: {sharding}"))
        .replace("out_dir: out", "out_dir: two");
    let said = train(&two, &["--size", "nano"]).ok();
    assert!(said.contains("512 tokens a step on 2 ranks by zero2, 2 sequences a batch, 2 steps"), "{said}");
    let said = train(&two, &["--size", "nano", "--strategy", "ddp", "--out", "ddp"]).ok();
    assert!(said.contains("on 2 ranks by ddp"), "{said}");
    let said = train(&two, &["--size", "nano", "--devices", "1", "--out", "one"]).ok();
    assert!(said.contains("512 tokens a step, 2 steps") && !said.contains(" ranks by "), "{said}");
    // Without texts to validate with the first file is.
    let alone = TEXT_FILES.replace("    val_data_path: texts/val\n", "").replace("out_dir: out", "out_dir: alone");
    let said = train(&alone, &["--size", "nano", "--set", "block_size=32"]).ok();
    assert!(said.contains("256 tokens a step, 4 steps") && said.contains("validation loss "), "{said}");
    let noted = std::fs::read(folder.path().join("alone/checkpoint.safetensors")).unwrap();
    let noted = String::from_utf8_lossy(&noted[..noted.len().min(1 << 16)]).into_owned();
    assert!(noted.contains("texts/train/a.txt") && noted.contains("texts/train/b.txt"), "the files are noted");
    let missing = TEXT_FILES.replace("texts/val", "texts");
    let refused = train(&missing, &["--size", "nano", "--out", "missing"]).fails(1);
    assert!(refused.contains("'run.yaml': the folder 'texts' has no file that ends in .txt"), "{refused}");

    // TinyStories from a folder, with the tokenizer of another one.
    let stories = "
out_dir: stories
data:
  class_path: litgpt.data.TinyStories
  init_args: {path: data, num_workers: 0, seed: 42}
train: {global_batch_size: 2, micro_batch_size: 1, max_steps: 2, max_seq_length: 8, log_interval: 1, lr_warmup_steps: 1}
eval: {max_iters: 1, max_new_tokens: 2}
tokenizer_dir: checkpoints/small
logger_name: csv
";
    let refused = train(stories, &["--size", "nano"]).fails(1);
    assert!(refused.contains("'run.yaml': TinyStories: 'data' has 0 files that end in .json"), "{refused}");
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/llama_files/tokenizer.json");
    write("checkpoints/small/tokenizer.json", &std::fs::read_to_string(golden).unwrap());
    for (name, word) in [("data00", "t3 t5"), ("data01", "t7 t1")] {
        let story = format!("{{\"story\": \" {} \", \"source\": \"made\"}}", format!("{word} ").repeat(40));
        write(&format!("data/TinyStories_all_data/{name}.json"), &format!("[{story}, {story}]"));
    }
    let said = train(stories, &["--size", "nano"]).ok();
    assert!(said.contains("16 tokens a step, 2 steps") && said.contains("step 2: loss "), "{said}");
}
