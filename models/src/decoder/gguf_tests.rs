use std::collections::BTreeMap;

use half::f16;

use super::*;
use crate::initialize::initial_values;
use crate::weight_files::{Format, open};

/// A file as llama.cpp writes it.
#[derive(Clone)]
struct Written {
    keys: Vec<(String, u32, Vec<u8>)>,
    tensors: Vec<(String, Vec<usize>, u32, Vec<u8>)>,
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

impl Written {
    fn set(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.keys.retain(|(own, ..)| own != key);
        self.keys.push((key.to_owned(), kind, value.to_vec()));
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.keys.len() as u64).to_le_bytes());
        for (key, kind, value) in &self.keys {
            bytes.extend([text(key), kind.to_le_bytes().to_vec(), value.clone()].concat());
        }
        let mut offset = 0u64;
        for (name, shape, kind, values) in &self.tensors {
            bytes.extend([text(name), (shape.len() as u32).to_le_bytes().to_vec()].concat());
            shape.iter().rev().for_each(|extent| bytes.extend((*extent as u64).to_le_bytes()));
            bytes.extend([kind.to_le_bytes().to_vec(), offset.to_le_bytes().to_vec()].concat());
            offset = (offset + values.len() as u64).next_multiple_of(32);
        }
        for (.., values) in &self.tensors {
            bytes.resize(bytes.len().next_multiple_of(32), 0);
            bytes.extend(values);
        }
        bytes
    }
}

/// Types that are made of any bytes, with the places of their figures in f16, and their numbers in files.
const UNUSUAL: [(GgufType, &[usize], u32); 7] = [
    (GgufType::Q5_0, &[0], 6),
    (GgufType::Q5_1, &[0, 2], 7),
    (GgufType::Q2K, &[80, 82], 10),
    (GgufType::Q3K, &[108], 11),
    (GgufType::Q4K, &[0, 2], 12),
    (GgufType::Q5K, &[0, 2], 13),
    (GgufType::Q6K, &[208], 14),
];

/// Numbers as blocks of a type, and the numbers that the blocks stand for.
fn blocks(kind: u32, numbers: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let (mut bytes, mut kept) = (Vec::new(), Vec::new());
    if kind < 2 {
        for number in numbers {
            let half = f16::from_f32(*number);
            bytes.extend(if kind == 0 { number.to_le_bytes().to_vec() } else { half.to_le_bytes().to_vec() });
            kept.push(if kind == 0 { *number } else { half.to_f32() });
        }
        return (bytes, kept);
    }
    if let Some((kind, figures)) =
        UNUSUAL.iter().find(|(.., own)| *own == kind).map(|(kind, figures, _)| (kind, figures))
    {
        // Of these any bytes are numbers, which a test of their own compares.
        let (values, size) = kind.block();
        for number in 0..numbers.len() / values {
            let mut block: Vec<u8> = (0..size).map(|i| ((number * size + i) * 41 + number * 7) as u8).collect();
            for place in *figures {
                block[*place..place + 2].copy_from_slice(&f16::from_f32(0.001).to_le_bytes());
            }
            let mut own = vec![0.0; values];
            gguf_blocks::numbers(*kind, &block, &mut own);
            kept.extend(own);
            bytes.extend(block);
        }
        return (bytes, kept);
    }
    for block in numbers.chunks(32) {
        let most = block.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let least = block.iter().copied().fold(0.0f32, f32::min);
        let (scale, offset, low, high): (f32, f32, f32, f32) = match kind {
            8 => (most / 127.0, 0.0, -127.0, 127.0),
            2 => (most / 7.0, 0.0, -7.0, 7.0),
            _ => ((block.iter().copied().fold(0.0f32, f32::max) - least) / 15.0, least, 0.0, 15.0),
        };
        let [scale, offset] = [scale, offset].map(f16::from_f32);
        bytes.extend(scale.to_le_bytes());
        if kind == 3 {
            bytes.extend(offset.to_le_bytes());
        }
        let [scale, offset] = [scale, offset].map(f16::to_f32);
        let code = |x: f32| if scale == 0.0 { low.max(0.0) } else { ((x - offset) / scale).round().clamp(low, high) };
        kept.extend(block.iter().map(|x| code(*x) * scale + offset));
        if kind == 8 {
            bytes.extend(block.iter().map(|x| code(*x) as i8 as u8));
            continue;
        }
        let half = |x: f32| (code(x) + if kind == 2 { 8.0 } else { 0.0 }) as u8;
        bytes.extend((0..16).map(|i| half(block[i]) | half(block[i + 16]) << 4));
    }
    (bytes, kept)
}

fn written(architecture: &str, kind_of: &dyn Fn(&str) -> u32) -> (Written, BTreeMap<String, Vec<f32>>) {
    written_of(architecture, 16, kind_of)
}

/// A small model of an architecture with four heads of a width, of whose matrices each is of the type that `kind_of`
/// says; and its numbers.
fn written_of(architecture: &str, head: u32, kind_of: &dyn Fn(&str) -> u32) -> (Written, BTreeMap<String, Vec<f32>>) {
    let (width, inner) = (4 * head, if head == 16 { 96 } else { 8 * head });
    let kind = ARCHITECTURES.iter().find(|(name, _)| *name == architecture).unwrap().1;
    let type_name = KINDS.iter().find(|(own, ..)| *own == kind).unwrap().1;
    let json = json!({
        "model_type": type_name, "num_hidden_layers": 2, "max_position_embeddings": 64,
        "hidden_size": width, "intermediate_size": inner, "num_attention_heads": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "head_dim": head, "vocab_size": 40,
        "tie_word_embeddings": kind == Kind::Gemma,
    });
    let mut config = from_json(kind, &json).unwrap();
    config.norm_add_unit_offset = false;
    let (mut tensors, mut numbers) = (Vec::new(), BTreeMap::new());
    for parameter in config.parameters() {
        let values = initial_values(&parameter, 3);
        let width: usize = parameter.shape[1..].iter().product();
        let (mut start, mut all) = (0, Vec::new());
        for piece in pieces(kind, &config, &parameter.name, parameter.shape[0]) {
            let name = name_in_file(&piece.name);
            let own = &values[start * width..(start + piece.rows) * width];
            let type_number = if parameter.shape.len() == 1 { 0 } else { kind_of(&name) };
            let turned = architecture == "llama" && (name.contains("attn_q.") || name.contains("attn_k."));
            let half = turned.then_some(head as usize / 2);
            let mut in_file = vec![0.0; own.len()];
            for row in 0..piece.rows {
                let to = row_in_file(row, half) * width;
                in_file[to..to + width].copy_from_slice(&own[row * width..][..width]);
            }
            let (bytes, kept) = blocks(type_number, &in_file);
            (0..piece.rows).for_each(|row| all.extend(&kept[row_in_file(row, half) * width..][..width]));
            tensors.push((name, [&[piece.rows], &parameter.shape[1..]].concat(), type_number, bytes));
            start += piece.rows;
        }
        numbers.insert(parameter.name, all);
    }
    let mut file = Written { keys: Vec::new(), tensors };
    file.set("general.architecture", 8, &text(architecture));
    file.set("general.name", 8, &text("small"));
    for (key, value) in [
        ("block_count", 2u32),
        ("context_length", 64),
        ("embedding_length", width),
        ("feed_forward_length", inner),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", head),
        ("rope.dimension_count", head),
    ] {
        file.set(&format!("{architecture}.{key}"), 4, &value.to_le_bytes());
    }
    file.set(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 6, &1e-5f32.to_le_bytes());
    let tokens = [8u32.to_le_bytes().to_vec(), 2u64.to_le_bytes().to_vec(), text("a"), text("b")].concat();
    file.set("tokenizer.ggml.tokens", 9, &tokens);
    (file, numbers)
}

fn loaded(file: &Written) -> Result<Weights<crate::ModelConfig>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, file.bytes()).unwrap();
    let loaded = open(&path, None).map_err(|error| error.to_string().replace(&path.display().to_string(), "FILE"))?;
    assert_eq!(loaded.format, Format::Gguf);
    Ok(loaded.weights)
}

#[test]
fn numbers_of_every_type_and_architecture_come_back() {
    let mixed = |name: &str| match name {
        _ if name.contains("attn_q.") => 8,
        _ if name.contains("attn_k.") => 2,
        _ if name.contains("attn_v.") => 1,
        _ if name.contains("ffn_") => 3,
        _ => 0,
    };
    for (architecture, _) in ARCHITECTURES {
        for kind in [0u32, 1, 2, 3, 8, 99] {
            let (file, numbers) = written(architecture, &|name| if kind == 99 { mixed(name) } else { kind });
            let weights = loaded(&file).unwrap_or_else(|error| panic!("{architecture}, type {kind}: {error}"));
            assert_eq!(weights.are_quantized(), kind > 1, "{architecture} {kind}");
            for (name, tensor) in weights.widened().unwrap().tensors() {
                assert_eq!(tensor.to_f32().unwrap(), numbers[name], "{architecture}, type {kind}: {name}");
            }
        }
    }
}

/// Blocks of 256 are read as numbers, and those of 4 bits kept in layers, whose scales and offsets are rounded to f16.
/// A file of `llama-quantize Q4_K_M` has 4 bits, and 6 in some.
#[test]
fn blocks_of_large_files_come_back() {
    let usual =
        |name: &str| if name.contains("attn_v.") || name.contains("ffn_down") || name == "output" { 14 } else { 12 };
    for kind in UNUSUAL.map(|(.., kind)| kind).into_iter().chain([99]) {
        let (file, numbers) = written_of("llama", 64, &|name| if kind == 99 { usual(name) } else { kind });
        let weights = loaded(&file).unwrap_or_else(|error| panic!("type {kind}: {error}"));
        assert_eq!(weights.are_quantized(), kind == 12 || kind == 99, "{kind}");
        for (name, tensor) in weights.widened().unwrap().tensors() {
            let (found, expected) = (tensor.to_f32().unwrap(), &numbers[name]);
            let is_kept = [12, 99].contains(&kind) && (name.starts_with("h.") || name == HEAD);
            let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let allowed = if is_kept { largest / 1000.0 } else { 0.0 };
            let off = found.iter().zip(expected).fold(0.0f32, |most, (x, y)| most.max((x - y).abs()));
            assert!(
                found.len() == expected.len() && off <= allowed,
                "type {kind}: {name} is off by {off} of {largest}"
            );
        }
    }
}

/// The scale of a group is a product of two numbers, and f16 ends at 65504: such a weight is read as numbers.
#[test]
fn scales_beyond_f16_are_kept_as_numbers() {
    let large = ["blk.1.attn_output.weight", "blk.0.ffn_up.weight"];
    let (mut file, mut numbers) = written_of("llama", 64, &|_| 12);
    for (name, figure) in large.into_iter().zip([0, 2]) {
        let (.., bytes) = file.tensors.iter_mut().find(|(own, ..)| own == name).unwrap();
        bytes[figure..figure + 2].copy_from_slice(&f16::from_f32(60_000.0).to_le_bytes());
        let mut own = vec![0.0; 256];
        gguf_blocks::numbers(GgufType::Q4K, &bytes[..144], &mut own);
        assert!(own.iter().any(|number| number.abs() > 65_504.0), "{name}");
        let parameter = if figure == 0 { "h.1.attn.proj.weight" } else { "h.0.mlp.fc_2.weight" };
        let all = numbers.get_mut(parameter).unwrap_or_else(|| panic!("{parameter}"));
        all[..256].copy_from_slice(&own);
    }
    let weights = loaded(&file).unwrap();
    let of_type = |dtype: DType| {
        let all = weights.tensors().iter().filter(|(_, tensor)| tensor.dtype() == dtype && tensor.shape().len() == 2);
        all.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert!(of_type(DType::U8).len() > 5, "the others have 4 bits: {:?}", of_type(DType::U8));
    for name in ["h.1.attn.proj.weight", "h.0.mlp.fc_2.weight"] {
        assert!(of_type(DType::F32).contains(&name.to_owned()), "{:?}", of_type(DType::F32));
        assert_eq!(weights.tensors()[name].to_f32().unwrap(), numbers[name], "{name}");
    }
}

/// The tokenizer of the file is read if it can be, and otherwise one beside it.
#[test]
fn a_tokenizer_beside_a_file_is_read_where_its_own_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, beside) = (folder.path().join("model.gguf"), folder.path().join("tokenizer.json"));
    let opened = |model: Option<&str>| {
        let (mut file, _) = written("llama", &|_| 8);
        if let Some(model) = model {
            file.set("tokenizer.ggml.model", 8, &text(model));
            file.set("tokenizer.ggml.pre", 8, &text("gpt-2"));
            file.set("tokenizer.ggml.merges", 9, &[8u32.to_le_bytes().to_vec(), vec![0; 8]].concat());
        }
        std::fs::write(&path, file.bytes()).unwrap();
        open(&path, None).unwrap()
    };
    assert_eq!(opened(Some("gpt2")).tokenizer_file.as_ref(), Some(&path));
    assert_eq!(opened(None).tokenizer_file, None);
    let refused = opened(Some("bert"));
    assert_eq!(refused.tokenizer_file.as_ref(), Some(&path), "the reason is told where it is asked for");
    let message = refused.tokenizer().unwrap_err().to_string();
    assert!(message.contains("tokenizer.ggml.model is 'bert'"), "{message}");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/tokenizer_files");
    std::fs::copy(golden.join("byte_level/tokenizer.json"), &beside).unwrap();
    assert_eq!(opened(Some("gpt2")).tokenizer_file.as_ref(), Some(&path));
    assert_eq!(opened(None).tokenizer_file.as_ref(), Some(&beside));
    let loaded = opened(Some("bert"));
    assert_eq!(loaded.tokenizer_file.as_ref(), Some(&beside));
    assert_eq!(loaded.tokenizer_folder(&path).as_deref(), Some(folder.path()));
}

#[test]
fn keys_say_the_configuration() {
    let (mut file, _) = written("llama", &|_| 8);
    file.set("llama.rope.freq_base", 6, &500_000.0f32.to_le_bytes());
    let factors: Vec<u8> =
        (0..8).flat_map(|i| (slower(500_000.0, f64::from(i) / 8.0, 32.0, 8192.0) as f32).to_le_bytes()).collect();
    file.tensors.push((ROTATIONS.to_owned(), vec![8], 0, factors));
    let weights = loaded(&file).unwrap();
    let crate::ModelConfig::Decoder(config) = weights.config() else { panic!("no decoder") };
    assert_eq!((config.rope_base, config.norm_eps, config.head_width()), (500_000.0, 1e-5, 16));
    assert!(format!("{:?}", config.rope_adjustments).contains("32"), "{:?}", config.rope_adjustments);
}

/// As llama.cpp has it.
#[test]
fn a_factor_without_a_type_is_linear() {
    let adjusted = |kind: Option<&str>, factor: f32| {
        let (mut file, _) = written("llama", &|_| 8);
        file.set("llama.rope.scaling.factor", 6, &factor.to_le_bytes());
        if let Some(kind) = kind {
            file.set("llama.rope.scaling.type", 8, &text(kind));
        }
        let weights = loaded(&file).unwrap();
        let crate::ModelConfig::Decoder(config) = weights.config() else { panic!("no decoder") };
        format!("{:?}", config.rope_adjustments)
    };
    assert_eq!(adjusted(None, 4.0), adjusted(Some("linear"), 4.0));
    assert_ne!(adjusted(None, 4.0), adjusted(Some("none"), 4.0));
    assert_eq!(adjusted(None, 1.0), adjusted(Some("none"), 4.0));
    assert_eq!(adjusted(None, 0.0), adjusted(Some("none"), 4.0));
}

#[test]
fn what_is_not_computed_is_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Written)| {
        let (mut file, _) = written("llama", &|_| 8);
        change(&mut file);
        loaded(&file).unwrap_err()
    };
    let one = 1u32.to_le_bytes();
    for (key, kind, value, expected) in [
        ("llama.expert_count", 4, &one[..], "llama.expert_count is 1, which is not computed here"),
        ("llama.something", 4, &one, "has the key \"llama.something\" (1), which a llama is not known to have"),
        ("split.count", 4, &one, "has the key \"split.count\" (1)"),
        ("llama.rope.scaling.type", 8, &text("yarn"), "llama.rope.scaling.type is 'yarn', expected none or linear"),
        ("llama.rope.dimension_count", 4, &one, "llama.rope.dimension_count is 1, expected 16, the width of a head"),
        ("llama.block_count", 8, &text("2"), "llama.block_count is '2', expected a whole number"),
        (
            "general.architecture",
            8,
            &text("rwkv"),
            "general.architecture is 'rwkv', which is not read, expected one of",
        ),
        ("general.type", 8, &text("adapter"), "general.type is 'adapter', expected 'model'"),
        ("general.alignment", 4, &one, "general.alignment is Integer(1), expected a multiple of 8"),
        ("llama.vocab_size", 4, &one, "llama.vocab_size is 1, token_embd.weight has 40 rows"),
    ] {
        let message = refused(&|file| file.set(key, kind, value));
        assert!(message.contains(expected) && message.contains("FILE"), "{key}: {message}");
    }
    let message = refused(&|file| file.set("llama.rope.freq_base", 12, &1e300f64.to_le_bytes()));
    assert!(
        message.contains("llama.rope.freq_base is ") && message.contains("expected a number of 32 bits"),
        "{message}"
    );
    for count in [0usize, 4, 9] {
        let factors = vec![0; 4 * count];
        let message = refused(&|file| file.tensors.push((ROTATIONS.to_owned(), vec![count], 0, factors.clone())));
        assert!(message.contains(&format!("has {count} elements, expected 8, half of a head")), "{message}");
    }
    let message = refused(&|file| {
        file.set("llama.rope.scaling.factor", 6, &4.0f32.to_le_bytes());
        file.tensors.push((ROTATIONS.to_owned(), vec![8], 0, vec![0; 32]));
    });
    assert!(message.contains("rope.scaling.factor and by tensor \"rope_freqs.weight\", expected one"), "{message}");
    let message = refused(&|file| file.tensors[0].2 = 16);
    assert!(message.contains("\"token_embd.weight\" is of type IQ2_XXS, expected one of F32, F16"), "{message}");
    let message = refused(&|file| file.tensors[0].2 = 14);
    assert!(message.contains("\"token_embd.weight\" has rows of 64 values, expected a multiple of 256"), "{message}");
    let message = refused(&|file| drop(file.tensors.remove(1)));
    assert!(message.contains("is missing"), "{message}");
    let message = refused(&|file| file.tensors.push(("more.weight".to_owned(), vec![1], 0, vec![0; 4])));
    assert!(message.contains("\"more.weight\" belongs to no parameter"), "{message}");
    let message = refused(&|file| file.tensors[0].1 = vec![41, 64]);
    assert!(message.contains("ends beyond the file's") || message.contains("has shape"), "{message}");
}

/// Cut at every place, and with each byte of what is before the values changed: an error or a model, and no panic.
#[test]
fn damaged_files_are_errors() {
    let (file, _) = written("llama", &|_| 2);
    let (bytes, folder) = (file.bytes(), tempfile::tempdir().unwrap());
    let header = bytes.len() - file.tensors.iter().map(|(.., values)| values.len().next_multiple_of(32)).sum::<usize>();
    let path = folder.path().join("model.gguf");
    let opened = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        open(&path, None).map(drop).map_err(|error| error.to_string())
    };
    opened(&bytes).unwrap();
    for end in (4..header).step_by(7).chain([header, bytes.len() - 1]) {
        let message = opened(&bytes[..end]).unwrap_err();
        assert!(message.contains("model.gguf"), "{end}: {message}");
    }
    for place in (4..header.min(bytes.len())).step_by(3) {
        for change in [0xFF, 0x80, 1] {
            let mut damaged = bytes.clone();
            damaged[place] ^= change;
            let _ = opened(&damaged);
        }
    }
}
