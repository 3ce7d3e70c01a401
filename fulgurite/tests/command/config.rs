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

    std::fs::write(folder.path().join("run.yaml"), SETTINGS.replace("max_steps", "max_step")).unwrap();
    let complaint = train(&[]).fails(1);
    assert!(complaint.contains("'run.yaml', line 10: train has no key 'max_step', did you mean 'max_steps'?"));

    let table = String::from_utf8(file("run/metrics.csv")).unwrap();
    assert_eq!(table.lines().count(), 4, "{table}");
    let plot = |arguments: &[&str]| run_in(folder.path(), &[&["plot"][..], arguments].concat());
    assert_eq!(plot(&["run", "other/metrics.csv", "--out", "both.svg"]).ok(), "both.svg\n");
    let picture = String::from_utf8(file("both.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.matches("<polyline").count() == 6, "{picture}");
    assert_eq!(plot(&["run"]).ok(), "run/metrics.svg\n");
    assert!(plot(&["run", "other"]).fails(1).contains("--out"));
    std::fs::write(folder.path().join("run/metrics.csv"), table.replace("\n2,", "\nx,")).unwrap();
    assert!(plot(&["run"]).fails(1).contains("metrics.csv', line 3: step is 'x', expected a number"));
}
