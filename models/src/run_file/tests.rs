use super::*;

/// As `config_hub/pretrain/tinyllama.yaml` of LitGPT has it, with what is on one machine here.
const TINYLLAMA: &str = "
# The name of the model to pretrain
model_name: TinyLlama-1.1B
model_config:
out_dir: out/pretrain/tiny-llama
precision: bf16-true
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
        precision: Some(Precision::Bf16True),
        resume: Some(false),
        tokenizer: Some("gpt2".into()),
        data: Some(DataSet::Files { train: files(&["texts/*.txt"]), validation: files(&["a.txt", "b.txt"]) }),
        global_batch: Some(512),
        micro_batch: Some(4),
        max_tokens: Some(3e12),
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
    assert_eq!(parse(TINYLLAMA), Ok(expected.clone()));
    let lengths = expected.lengths(Lengths::default(), || None).unwrap();
    let expected = (Some(4), Some(128), Some(2_861_023));
    assert_eq!((lengths.batch, lengths.accumulate, lengths.steps), expected);
    for empty in ["", "# nothing\n", "~\n"] {
        assert!(parse(empty).unwrap_err().1.starts_with("the file has no settings, expected keys"), "{empty:?}");
    }
    let short = parse("{train: {global_batch_size: 8, tie_embeddings: true}, optimizer: AdamW, data: [x.bin, y.bin]}");
    let set = vec!["tie_embeddings=true".to_owned()];
    assert_eq!(
        short,
        Ok(RunFile {
            global_batch: Some(8),
            set,
            data: Some(DataSet::Files { train: files(&["x.bin", "y.bin"]), validation: Vec::new() }),
            ..RunFile::default()
        })
    );
    let config = parse("model_config: {n_layer: 1, rope_adjustments: {factor: 2.0}, mlp_class_name: GemmaMLP, x: ~}");
    let set = ["n_layer=1", "rope_adjustments={\"factor\": 2.0}", "mlp_class_name=GemmaMLP", "x=null"];
    assert_eq!(config.unwrap().set, set);
}

#[test]
fn the_name_of_a_configuration_selects_it() {
    let named = parse("model_config: {name: Llama-3-8B, n_layer: 1}").unwrap();
    assert_eq!((named.size.as_deref(), &named.set[..]), (Some("Llama-3-8B"), &["n_layer=1".to_owned()][..]));
    assert!(parse("model_name: nano\nmodel_config: {name: nano}").is_ok());
    let (line, message) = parse("model_name: nano\nmodel_config:\n  name: micro").unwrap_err();
    assert!(line == 3 && message.contains("model_name is another"), "line {line}: {message}");
}

#[test]
fn what_cannot_be_is_named_with_its_line() {
    for (text, line, expected) in [
        ("seed: 1\ntrain:\n  max_step: 3\n", 3, "train has no key 'max_step', did you mean 'max_steps'?"),
        ("modle_name: x", 1, "the file has no key 'modle_name', did you mean 'model_name'?"),
        ("eval: {zzz: 1}", 1, "eval has no key 'zzz', there are: interval, "),
        ("seed: many", 1, "seed is 'many', expected a whole number of at least 0"),
        ("seed: 1.5", 1, "seed is '1.5', expected a whole number"),
        ("seed: -1", 1, "seed is '-1', expected a whole number of at least 0"),
        ("train:\n  max_steps: -3", 2, "train.max_steps is '-3', expected a whole number of at least 1"),
        ("train: {max_steps: 12.5}", 1, "train.max_steps is '12.5', expected a whole number of at least 1"),
        ("train: {max_steps: 0}", 1, "train.max_steps is '0', expected a whole number of at least 1"),
        ("train: {micro_batch_size: 1e30}", 1, "train.micro_batch_size is '1e30', expected a whole number"),
        ("train: {max_tokens: -1}", 1, "train.max_tokens is '-1', expected a finite number above 0"),
        ("train: {max_norm: inf}", 1, "train.max_norm is 'inf', expected a finite number of at least 0"),
        ("train: {max_norm: [1]}", 1, "train.max_norm is no single value"),
        ("train: {log_interval: 0}", 1, "train.log_interval is '0', expected a whole number of at least 1"),
        ("eval: {max_iters: 0}", 1, "eval.max_iters is '0', expected a whole number of at least 1"),
        ("eval: {interval: yes}", 1, "eval.interval is 'yes', expected a whole number of at least 0"),
        ("eval: {initial_validation: true}", 1, "eval.initial_validation is 'true', expected false: a run does not"),
        ("eval: {final_validation: false}", 1, "eval.final_validation is 'false', expected true: a run validates"),
        (
            "optimizer:\n  class_path: torch.optim.AdamW\n  init_args:\n    lr: .inf\n",
            4,
            "optimizer.init_args.lr is '.inf', expected a finite number of at least 0",
        ),
        (
            "optimizer: {class_path: AdamW, init_args: {betas: [0.9, 1.5]}}",
            1,
            "optimizer.init_args.betas is '1.5', expected a finite number from 0 to below 1",
        ),
        (
            "data: {class_path: TextFiles, init_args: {train_data_path: a, seed: x}}",
            1,
            "data.init_args.seed is 'x', expected a whole",
        ),
        ("resume: auto", 1, "resume is 'auto': expected true or false: true continues the checkpoint of out_dir"),
        ("resume: out/step-3", 1, "resume is 'out/step-3': expected true or false"),
        ("logger_name: wandb", 1, "logger_name is 'wandb', expected csv: a run writes metrics.csv"),
        ("num_nodes: 2", 1, "num_nodes is '2', expected 1: a run is on one machine"),
        ("log: {project: x}", 1, "log.project is 'x', expected null: metrics.csv is in out_dir"),
        ("train: 3", 1, "train has no keys"),
        ("train: {epochs: 2}", 1, "train.epochs is '2', expected null: the length of a run"),
        ("precision: 16-mixed", 1, "precision is '16-mixed': f16 needs loss scaling"),
        ("precision: bf61", 1, "there are 32-true, bf16-mixed, bf16-true, tf32"),
        ("devices: 0", 1, "devices is '0': expected a number from 1 to 65535, or auto, which is one device"),
        ("devices: [0, 1]", 1, "devices is no single value"),
        (
            "strategy: deepspeed",
            1,
            "strategy is 'deepspeed': expected ddp, zero2, zero3, fsdp, tensor_parallel, sequence_parallel, or the class_path",
        ),
        ("strategy: {init_args: {}}", 1, "strategy has no class_path, expected ddp"),
        ("strategy: {class_path: DDPStrategy, init_args: {bucket: 1}}", 1, "strategy.init_args has no key 'bucket'"),
        (
            "strategy:\n  class_path: FSDPStrategy\n  init_args: {sharding_strategy: HYBRID_SHARD}",
            3,
            "strategy.init_args.sharding_strategy is 'HYBRID_SHARD': expected FULL_SHARD (zero3), SHARD_GRAD_OP",
        ),
        (
            "strategy: {class_path: FSDPStrategy, init_args: {state_dict_type: half}}",
            1,
            "'half' is no kind of checkpoint, expected full or sharded",
        ),
        ("data: OpenWebText", 1, "data is 'OpenWebText', expected a list of files, litgpt.data.TextFiles or"),
        ("data: TextFiles", 1, "data is TextFiles, expected train_data_path in init_args with it"),
        ("data: {class_path: litgpt.data.TextFiles}", 1, "expected train_data_path in init_args with it"),
        ("data: {class_path: litgpt.data.LitData}", 1, "data.class_path is 'litgpt.data.LitData': expected a list of"),
        ("data: {init_args: {seed: 1}}", 1, "data has no class_path, expected a list of files"),
        (
            "data: {class_path: TinyStories, init_args: {path: a, data_path: b}}",
            1,
            "data_path 'b' and path 'a', expected",
        ),
        ("optimizer: SGD", 1, "optimizer is 'SGD', expected AdamW"),
        ("optimizer: {class_path: torch.optim.AdamW, init_args: {betas: [0.9]}}", 1, "init_args.betas are two numbers"),
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

#[test]
fn devices_and_strategies_are_those_of_train() {
    let strategy = |text: &str| parse(&format!("strategy: {text}")).unwrap().strategy;
    for (text, expected) in [
        ("auto", None),
        ("~", None),
        ("ddp", Some(Strategy::Ddp)),
        ("zero2", Some(Strategy::Zero2)),
        ("tensor_parallel", Some(Strategy::TensorParallel)),
        ("fsdp", Some(Strategy::Zero3)),
        ("lightning.fabric.strategies.DDPStrategy", Some(Strategy::Ddp)),
        ("{class_path: zero3}", Some(Strategy::Zero3)),
        ("{class_path: FSDPStrategy}", Some(Strategy::Zero3)),
        ("{class_path: FSDPStrategy, init_args: {sharding_strategy: NO_SHARD}}", Some(Strategy::Ddp)),
        ("{class_path: FSDPStrategy, init_args: {sharding_strategy: SHARD_GRAD_OP}}", Some(Strategy::Zero2)),
    ] {
        assert_eq!(strategy(text), expected, "{text}");
    }
    assert_eq!(parse("devices: 4").unwrap().devices, Some(4));
    assert_eq!(parse("devices: auto").unwrap().devices, None);
}

/// As LitGPT's users write it: folders, keys of the set, and no length of sequences.
#[test]
fn sets_of_data_are_litgpts() {
    let set = |text: &str| parse(text).unwrap().data.unwrap();
    let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
    let texts = set(
        "data: {class_path: litgpt.data.TextFiles, init_args: {train_data_path: texts/train, num_workers: 2, seed: 3}}",
    );
    assert_eq!(texts, DataSet::Files { train: paths(&["texts/train"]), validation: Vec::new() });
    for (text, folder) in [
        ("data: TinyStories", "data/tinystories"),
        ("data: {class_path: litgpt.data.TinyStories}", "data/tinystories"),
        ("data: {class_path: litgpt.data.TinyStories, init_args: {path: data, num_workers: 0, seed: 42}}", "data"),
        ("data: {class_path: litgpt.data.TinyStories, init_args: {data_path: stories}}", "stories"),
    ] {
        assert_eq!(set(text), DataSet::TinyStories(folder.into()), "{text}");
    }
}

/// Every key that is read: another value of it is another run, an error, or in the list of those that change nothing.
#[test]
fn each_key_changes_the_run_or_is_refused() {
    const ALL: &str = "
model_name: nano
out_dir: out
precision: bf16-mixed
initial_checkpoint_dir: init
resume: false
tokenizer_dir: gpt2
seed: 1
devices: 1
strategy.class_path: lightning.fabric.strategies.FSDPStrategy
strategy.init_args.sharding_strategy: SHARD_GRAD_OP
strategy.init_args.state_dict_type: full
num_nodes: 1
logger_name: csv
optimizer.class_path: torch.optim.AdamW
optimizer.init_args.lr: 0.1
optimizer.init_args.weight_decay: 0.1
optimizer.init_args.eps: 0.1
optimizer.init_args.betas: [0.5, 0.6]
data.class_path: litgpt.data.TextFiles
data.init_args.train_data_path: a
data.init_args.val_data_path: b
data.init_args.seed: 1
data.init_args.num_workers: 1
train.global_batch_size: 8
train.micro_batch_size: 1
train.max_seq_length: 8
train.max_steps: 8
train.max_tokens: 8
train.lr_warmup_steps: 8
train.save_interval: 8
train.log_interval: 8
train.max_norm: 8
train.min_lr: 8
train.tie_embeddings: false
train.lr_warmup_fraction: null
train.epochs: null
train.max_time: null
eval.interval: 8
eval.max_iters: 8
eval.max_new_tokens: 8
eval.initial_validation: false
eval.final_validation: true
log.project: null
log.run: null
log.group: null
";
    let lines: Vec<(&str, &str)> = ALL.lines().filter_map(|line| line.split_once(": ")).collect();
    // Keys with dots as maps in each other.
    let text = |lines: &[(&str, &str)]| {
        let mut text = String::new();
        let mut open: Vec<&str> = Vec::new();
        for (key, value) in lines {
            let parts: Vec<&str> = key.split('.').collect();
            let (last, maps) = parts.split_last().unwrap();
            let same = open.iter().zip(maps).take_while(|(open, map)| open == map).count();
            open.truncate(same);
            for map in &maps[same..] {
                text += &format!("{}{map}:\n", "  ".repeat(open.len()));
                open.push(map);
            }
            text += &format!("{}{last}: {value}\n", "  ".repeat(open.len()));
        }
        text
    };
    let own = parse(&text(&lines)).unwrap();
    let (mut changed, mut refused) = (0, 0);
    for (at, (key, value)) in lines.iter().enumerate() {
        for other in ["other", "0.25", "7", "true", "false", "tf32", "[0.1, 0.2]"].into_iter().filter(|o| o != value) {
            let mut lines = lines.clone();
            lines[at].1 = other;
            let listed = data_set::HARMLESS.iter().any(|(name, _)| key.strip_prefix("data.init_args.") == Some(name));
            match parse(&text(&lines)) {
                Err(_) => refused += 1,
                Ok(run) if run == own => assert!(listed, "{key}: {other} is read as if it said nothing"),
                Ok(_) => changed += 1,
            }
        }
        // A key that LitGPT does not have is refused in each map.
        let mut lines = lines.clone();
        let unknown = format!("{key}_");
        lines[at].0 = &unknown;
        assert!(parse(&text(&lines)).is_err(), "{unknown}");
    }
    assert!(changed > 50 && refused > 80, "{changed} {refused}");
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
