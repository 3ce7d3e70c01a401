use super::*;

/// As `config_hub/pretrain/tinyllama.yaml` of LitGPT has it, with what is on one machine here.
const TINYLLAMA: &str = "
# The name of the model to pretrain
model_name: TinyLlama-1.1B
model_config:
out_dir: out/pretrain/tiny-llama
precision: bf16-mixed
initial_checkpoint_dir:
resume: false
data:
  class_path: litgpt.data.TextFiles
  init_args:
    train_data_path: 'texts/*.txt'
    val_data_path: [a.txt, b.txt]
    seed: 42
train:
  save_interval: 1000
  log_interval: 1
  global_batch_size: 512
  micro_batch_size: 4
  lr_warmup_steps: 2000
  lr_warmup_fraction:
  epochs:
  max_tokens: 3e12
  max_steps:
  max_seq_length: 2048
  tie_embeddings:
  max_norm: 1.0
  min_lr: 4.0e-05
eval:
  interval: 1000
  max_new_tokens:
  max_iters: 100
  initial_validation: false
  final_validation: true
optimizer:
  class_path: torch.optim.AdamW
  init_args:
    lr: 4e-4
    weight_decay: 0.1
    betas:
      - 0.9
      - 0.95
devices: auto
num_nodes: 1
tokenizer_dir: gpt2
logger_name: csv
seed: 42
";

#[test]
fn each_key_of_litgpts_sets_an_option() {
    let files = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let expected = RunFile {
        size: Some("TinyLlama-1.1B".into()),
        out: Some("out/pretrain/tiny-llama".into()),
        precision: Some(Precision::Bf16Mixed),
        resume: Some(false),
        tokenizer: Some("gpt2".into()),
        data: files(&["texts/*.txt"]),
        validation: files(&["a.txt", "b.txt"]),
        batch: Some(4),
        accumulate: Some(128),
        steps: Some(2_861_023),
        context: Some(2048),
        warmup: Some(2000),
        save_every: Some(1000),
        log_every: Some(1),
        clip: Some(1.0),
        min_lr: Some(4e-5),
        evaluate_every: Some(1000),
        evaluate_batches: Some(100),
        lr: Some(4e-4),
        betas: Some([0.9, 0.95]),
        weight_decay: Some(0.1),
        seed: Some(42),
        ..RunFile::default()
    };
    assert_eq!(parse(TINYLLAMA), Ok(expected));
    assert_eq!(parse(""), Ok(RunFile::default()));
    assert_eq!(parse("# nothing\n"), Ok(RunFile::default()));
    let short = parse("{train: {global_batch_size: 8, tie_embeddings: true}, optimizer: AdamW, data: [x.bin, y.bin]}");
    let set = vec!["tie_embeddings=true".to_owned()];
    assert_eq!(short, Ok(RunFile { batch: Some(8), set, data: files(&["x.bin", "y.bin"]), ..RunFile::default() }));
    let config = parse("model_config: {n_layer: 1, rope_adjustments: {factor: 2.0}, mlp_class_name: GemmaMLP, x: ~}");
    let set = ["n_layer=1", "rope_adjustments={\"factor\": 2.0}", "mlp_class_name=GemmaMLP", "x=null"];
    assert_eq!(config.unwrap().set, set);
}

#[test]
fn what_cannot_be_is_named_with_its_line() {
    for (text, line, expected) in [
        ("seed: 1\ntrain:\n  max_step: 3\n", 3, "train has no key 'max_step', did you mean 'max_steps'?"),
        ("modle_name: x", 1, "the file has no key 'modle_name', did you mean 'model_name'?"),
        ("eval: {zzz: 1}", 1, "eval has no key 'zzz', there are: interval, "),
        ("seed: many", 1, "seed is 'many', expected a number"),
        ("seed: 1.5", 1, "seed is '1.5', expected a number"),
        ("seed: -1", 1, "seed is '-1', expected a number"),
        ("train: {max_norm: inf}", 1, "max_norm is 'inf', expected a number"),
        ("train: {max_norm: [1]}", 1, "max_norm is no single value"),
        ("train: 3", 1, "train has no keys"),
        ("train:\n  global_batch_size: 10\n  micro_batch_size: 4", 2, "10, is no multiple of micro_batch_size, 4"),
        ("train: {global_batch_size: 10, micro_batch_size: 0}", 1, "is no multiple"),
        ("train: {max_tokens: 1e6}", 1, "max_tokens needs global_batch_size and max_seq_length"),
        ("train: {epochs: 2}", 1, "epochs is '2', expected null: the length of a run"),
        ("precision: 16-mixed", 1, "precision is '16-mixed': f16 needs loss scaling"),
        ("precision: bf61", 1, "expected 32-true, bf16-mixed or tf32"),
        ("devices: 8", 1, "devices is '8': a run is on one device"),
        ("data: TinyStories", 1, "data is a name, expected a list of files"),
        ("data: {class_path: litgpt.data.TinyStories}", 1, "expected TextFiles"),
        ("optimizer: SGD", 1, "optimizer is 'SGD', expected AdamW"),
        ("optimizer: {class_path: torch.optim.AdamW, init_args: {betas: [0.9]}}", 1, "betas are two numbers"),
        ("seed: 1\nseed: 2", 2, "the key 'seed' is there twice"),
        ("a: &x 1\nb: *x", 1, "an anchor or an alias"),
        ("seed: !!int 3", 1, "a tag"),
        ("seed: 1\n---\nseed: 2", 2, "a second document"),
        ("- 1\n- 2", 1, "the file has no keys"),
        ("train: {max_steps: 3", 2, "while parsing a flow mapping"),
        ("[1]: 2", 1, "a key is no word"),
    ] {
        let (found, message) = parse(text).map(drop).expect_err(text);
        assert!(found == line && message.contains(expected), "{text}: line {found}, {message}");
    }
    let deep = "[".repeat(10_000);
    assert!(parse(&deep).is_err());
}

/// Whatever the text is, it is read or refused.
#[test]
fn damaged_files_are_read_or_refused() {
    let (mut read, mut refused) = (0, 0);
    for case in 0..20_000 {
        let mut random = crate::random::Stream::new(case, 0x9A31);
        let mut text: Vec<char> = TINYLLAMA.chars().collect();
        for _ in 0..1 + random.below(3) {
            let at = random.below(text.len() as u64) as usize;
            match random.below(4) {
                0 => {
                    text[at] = [
                        ':', '\n', ' ', '-', '[', '{', '}', '"', '\'', '&', '*', '!', '|', '>', '#', '\t', '\u{0}', 'é',
                    ][random.below(18) as usize]
                }
                1 => drop(text.remove(at)),
                2 => text.truncate(at + 1),
                _ => {
                    let from = random.below(text.len() as u64) as usize;
                    let part: Vec<char> = text[from..(from + 20).min(text.len())].to_vec();
                    text.splice(at..at, part);
                }
            }
        }
        match parse(&text.iter().collect::<String>()) {
            Ok(_) => read += 1,
            Err((line, message)) => {
                assert!(line >= 1 && line <= text.len() + 1 && !message.is_empty(), "case {case}");
                refused += 1;
            }
        }
    }
    assert!(read > 1000 && refused > 1000, "{read} {refused}");
}
