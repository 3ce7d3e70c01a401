use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fulgurite_kernels::DType;

use super::*;
use crate::host_tensor::HostTensor;
use crate::tensor_file::TensorFile;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/torch_files")
}

fn written(tensors: &BTreeMap<String, HostTensor>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(tensors, "archive", &mut bytes).unwrap();
    bytes
}

fn tensors() -> BTreeMap<String, HostTensor> {
    BTreeMap::from([
        ("a.weight".to_owned(), HostTensor::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()),
        ("ü".to_owned(), HostTensor::new(DType::BF16, &[1], vec![0x80, 0x3F]).unwrap()),
        ("none".to_owned(), HostTensor::from_i64(&[0, 3], &[]).unwrap()),
        ("scalar".to_owned(), HostTensor::from_f64(&[], &[-2.5]).unwrap()),
        ("flags".to_owned(), HostTensor::new(DType::Bool, &[3], vec![0, 1, 0]).unwrap()),
    ])
}

/// A pickle in an archive, with `storage` as `data/0`.
fn archived(pickle: &[u8], storage: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let entries: [(String, &[&[u8]]); 2] = [("x/data.pkl".into(), &[pickle]), ("x/data/0".into(), &[storage])];
    archive::write(&entries, &mut bytes).unwrap();
    bytes
}

/// A dictionary with one f32 tensor `x` of `data/0`, which is said to have `elements`.
fn described(elements: u8, offset: u8, shape: &[u8], strides: &[u8]) -> Vec<u8> {
    let whole = |numbers: &[u8]| numbers.iter().flat_map(|number| [b'K', *number]).collect::<Vec<u8>>();
    let tuple = |numbers: &[u8]| [&b"("[..], &whole(numbers), b"t"].concat();
    [
        b"\x80\x02}(X\x01\0\0\0xctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
            .as_slice(),
        b"X\x01\0\0\x000X\x03\0\0\0cpu",
        &whole(&[elements]),
        b"tQ",
        &whole(&[offset]),
        &tuple(shape),
        &tuple(strides),
        b"NNtRu.",
    ]
    .concat()
}

#[test]
fn files_of_pytorch_have_their_tensors() {
    let mut expected = TensorFile::load(&golden().join("expected.safetensors")).unwrap().tensors;
    for logits in ["tokens", "litgpt", "litgpt_old"] {
        assert!(expected.remove(logits).is_some());
    }
    let path = golden().join("tensors.pth");
    assert_eq!(load(&path).unwrap(), expected);
    assert_eq!(parse(&std::fs::read(&path).unwrap()).unwrap(), expected);
    assert_eq!(parse(&written(&expected)).unwrap(), expected);
}

#[test]
fn what_is_written_is_read_back_here_and_by_pytorch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.pth");
    let bytes = written(&tensors());
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(load(&path).unwrap(), tensors());
    assert_eq!(parse(&bytes).unwrap(), tensors());
    // The numbers begin at multiples of 64, so that they can be used where they are.
    assert!(load(&path).unwrap()["scalar"].to_array().unwrap().is_external());
    // A Python with PyTorch reads the file as well, where there is one.
    let Some(python) = std::env::var_os("FULGURITE_TORCH_PYTHON") else { return };
    let same = folder.path().join("same.safetensors");
    TensorFile::write(&BTreeMap::new(), &tensors(), &mut std::fs::File::create(&same).unwrap()).unwrap();
    let script = golden().with_file_name("torch_files.py");
    let ran = std::process::Command::new(python).arg(script).arg("--check").args([&path, &same]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn strides_and_places_stay_within_their_storage() {
    let six: Vec<u8> = (1..=6).flat_map(|value| (value as f32).to_le_bytes()).collect();
    let read = |offset, shape: &[u8], strides: &[u8]| {
        let made = parse(&archived(&described(6, offset, shape, strides), &six));
        made.map(|tensors| (tensors["x"].shape().to_vec(), tensors["x"].to_f32().unwrap()))
    };
    assert_eq!(read(0, &[3, 2], &[1, 3]).unwrap(), (vec![3, 2], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
    assert_eq!(read(2, &[2], &[3]).unwrap(), (vec![2], vec![3.0, 6.0]));
    assert_eq!(read(5, &[1, 1], &[9, 7]).unwrap(), (vec![1, 1], vec![6.0]));
    assert_eq!(read(0, &[0, 3], &[3, 1]).unwrap(), (vec![0, 3], vec![]));
    for (offset, shape, strides) in [
        (1, &[3, 2][..], &[1, 3][..]),
        (6, &[1], &[1]),
        (0, &[7], &[0]),
        (0, &[2], &[6]),
        (0, &[2], &[1, 1]),
        (0, &[255; 9], &[255; 9]),
    ] {
        let message = read(offset, shape, strides).unwrap_err().to_string();
        assert!(
            message.starts_with("tensor \"x\": shape ") && message.contains("does not fit 6 elements"),
            "{message}"
        );
    }
    // Of no elements, however large the other extents are.
    let huge = |shape: &[u8]| {
        let number = [b"\x8a\x08".as_slice(), &(1_u64 << 62).to_le_bytes()].concat();
        let tuple = [b"(".as_slice(), &shape.iter().flat_map(|zero| [b'K', *zero]).collect::<Vec<u8>>(), &number, b"t"];
        let pickle = described(6, 0, &[9, 9], &[1, 1]);
        let place = pickle.windows(6).position(|part| part == b"(K\x09K\x09t").unwrap();
        let pickle = [&pickle[..place], &tuple.concat(), &pickle[place + 6..]].concat();
        parse(&archived(&pickle, &six))
    };
    assert_eq!(huge(&[0]).unwrap()["x"].shape(), [0, 1 << 62]);
    assert!(huge(&[1]).unwrap_err().to_string().contains("does not fit 6 elements"));
    let message = parse(&archived(&described(7, 0, &[2], &[1]), &six)).unwrap_err().to_string();
    assert!(message.contains("its storage has 24 bytes, expected 7 elements of f32"), "{message}");
}

#[test]
fn nothing_else_than_tensors_is_made() {
    let complain = |pickle: &[u8]| parse(&archived(pickle, &[])).unwrap_err().to_string();
    for (pickle, expected) in [
        (
            &b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R."[..],
            "byte 2 of the pickle: asks for 'os.system', which is not read",
        ),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "asks for 'posix.system'"),
        (b"\x80\x02}}R.", "byte 4 of the pickle: a dictionary is called"),
        (b"\x80\x02ccollections\nOrderedDict\nK\x01\x85R.", "OrderedDict is called with 1 arguments"),
        (b"\x80\x02K\x01.", "holds a number, expected a dictionary of tensors"),
        (b"\x80\x02}X\x01\0\0\0aK\x01s.", "holds a number named \"a\""),
        (b"\x80\x02}K\x01}s.", "holds a number as the name of a tensor"),
        (b"\x80\x02}(K\x01u.", "a key has no value"),
        (b"\x80\x02h\x07.", "value 7 is not there"),
        (b"\x80\x02}(0.", "an argument is missing"),
        (b"\x80\x02t.", "a mark is missing"),
        (b"\x80\x09.", "is of protocol 9"),
        (b"\x80\x02i.", "instruction INST (0x69) is not used"),
        (b"\x80\x02X\xff\xff\xff\xffa", "it is cut short"),
        (b"\x80\x02X\x01\0\0\0\xff.", "a text is no UTF-8"),
        (b"\x80\x02}", "byte 3 of the pickle: it is cut short"),
    ] {
        let message = complain(pickle);
        assert!(message.contains(expected), "{message}");
    }
    // Values of two bytes each.
    let many = [&b"\x80\x02)q\0"[..], &b"h\0\x85".repeat(1 << 20), b"."].concat();
    assert!(complain(&many).contains("makes more than 1048576 values"));
    assert!(complain(&vec![b'N'; (4 << 20) + 1]).contains("of which at most 4194304 are read"));
    // As deep as a file is long.
    let deep = [&b"\x80\x02)"[..], &[0x85; 1_000_000], b"."].concat();
    assert!(complain(&deep).contains("holds a list"));
}

/// As [`described`] of six elements, with more arguments behind the hooks.
fn with_arguments(more: &[u8]) -> Vec<u8> {
    let pickle = described(6, 0, &[3, 2], &[1, 3]);
    [&pickle[..pickle.len() - 6], b"\x89}", more, b"tRu."].concat()
}

#[test]
fn every_argument_of_a_tensor_counts() {
    let six: Vec<u8> = (1..=6).flat_map(|value| (value as f32).to_le_bytes()).collect();
    let read = |more: &[u8]| {
        let tensors = parse(&archived(&with_arguments(more), &six)).map_err(|error| error.to_string())?;
        Ok::<_, String>(tensors["x"].to_f32().unwrap())
    };
    let plain = [1.0, 4.0, 2.0, 5.0, 3.0, 6.0];
    assert_eq!(read(b"").unwrap(), plain);
    assert_eq!(read(b"N").unwrap(), plain);
    let set = |name: &str, value: &[u8]| {
        [b"}X".as_slice(), &[name.len() as u8, 0, 0, 0], name.as_bytes(), value, b"s"].concat()
    };
    assert_eq!(read(&set("neg", b"\x89")).unwrap(), plain);
    assert_eq!(read(&set("neg", b"\x88")).unwrap(), plain.map(|value| -value));
    for (more, expected) in [
        (set("conj", b"\x88"), "a tensor has the property 'conj'"),
        (set("sparse", b"\x88"), "a tensor has the property 'sparse'"),
        (set("neg", b"K\x01"), "a tensor has the property 'neg' (a number)"),
        (b"K\x01".to_vec(), "a tensor's seventh argument is a number"),
        (b"NN".to_vec(), "called with 8 arguments"),
    ] {
        let message = read(&more).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    let hooks = with_arguments(b"");
    let place = hooks.len() - 5;
    let hooks = [&hooks[..place], b"}K\x01K\x02s", &hooks[place + 1..]].concat();
    let message = parse(&archived(&hooks, &six)).unwrap_err().to_string();
    assert!(message.contains("a tensor has hooks"), "{message}");
}

#[test]
fn the_negative_bit_changes_the_sign_of_every_type() {
    let negated = |dtype: DType, bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        read::negate(&mut bytes, dtype).map(|()| bytes)
    };
    assert_eq!(negated(DType::BF16, &[0x80, 0x3F]).unwrap(), [0x80, 0xBF]);
    assert_eq!(negated(DType::F64, &1.5_f64.to_le_bytes()).unwrap(), (-1.5_f64).to_le_bytes());
    assert_eq!(negated(DType::F32, &0.0_f32.to_le_bytes()).unwrap(), (-0.0_f32).to_le_bytes());
    for number in [0, 1, -1, 255, 256, i32::MIN, i32::MAX] {
        assert_eq!(negated(DType::I32, &number.to_le_bytes()).unwrap(), number.wrapping_neg().to_le_bytes());
    }
    assert_eq!(negated(DType::U8, &[0, 1, 255]).unwrap(), [0, 255, 1]);
    assert!(negated(DType::Bool, &[1]).is_err());
}

/// A file of dictionaries of tensors, all of one storage.
fn nested(dictionaries: &[(&str, &[&str])]) -> Vec<u8> {
    let text = |text: &str| [b"X".as_slice(), &[text.len() as u8, 0, 0, 0], text.as_bytes()].concat();
    let one = described(6, 0, &[6], &[1]);
    // Without the header, the name and the end.
    let tensor = &one[10..one.len() - 2];
    let mut pickle = b"\x80\x02}".to_vec();
    for (name, tensors) in dictionaries {
        pickle.extend([text(name), b"}".to_vec()].concat());
        tensors.iter().for_each(|name| pickle.extend([&text(name)[..], tensor, b"s"].concat()));
        pickle.extend(b"s");
    }
    pickle.extend(b".");
    archived(&pickle, &[0; 24])
}

#[test]
fn what_may_be_meant_by_two_names_is_refused() {
    let names = |file: &[u8]| parse(file).map(|tensors| tensors.into_keys().collect::<Vec<_>>());
    assert_eq!(names(&nested(&[("model", &["a", "b"]), ("optimizer", &["step"])])).unwrap(), ["a", "b"]);
    assert_eq!(names(&nested(&[("state_dict", &["module.a", "module._orig_mod.b"])])).unwrap(), ["a", "b"]);
    for (file, both) in [
        (nested(&[("state_dict", &["a"]), ("model", &["a"])]), ["state_dict", "model"]),
        (nested(&[("ema", &["a"]), ("model", &["a", "b"])]), ["model", "ema"]),
        (nested(&[("model", &["a", "b"]), ("ema", &["module.a"])]), ["model", "ema"]),
    ] {
        let message = names(&file).unwrap_err().to_string();
        assert!(message.starts_with(&format!("holds tensors as {:?} and as {:?}", both[0], both[1])), "{message}");
    }
    let message = names(&nested(&[("model", &["a", "_orig_mod.a"])])).unwrap_err().to_string();
    assert!(message.contains("two tensors named \"a\""), "{message}");
}

#[test]
fn every_instruction_is_run_or_refused_by_name() {
    let mut names = 0;
    for byte in 0..=255_u8 {
        let run = instruction::RUN.contains(&byte);
        let refused = instruction::OTHERS.iter().any(|(other, _)| *other == byte);
        assert!(!(run && refused), "{byte:#04x}");
        names += usize::from(run) + usize::from(refused);
        let told = parse(&archived(&[0x80, 2, byte, b'.'], &[])).map_err(|error| error.to_string());
        let message = told.err().unwrap_or_default();
        let unknown = message.contains("is not used by files of tensors") || message.contains("is not an instruction");
        assert_eq!(unknown, !run, "{byte:#04x}: {message}");
    }
    // Protocols 0 to 5 have 68 instructions.
    assert_eq!(names, 68);
}

/// An entry within the bytes of another one.
#[test]
fn entries_have_bytes_of_their_own() {
    let made = |entries: &[(&str, &[u8])]| {
        let mut bytes = Vec::new();
        let parts: Vec<(String, [&[u8]; 1])> = entries.iter().map(|(name, part)| ((*name).into(), [*part])).collect();
        let entries: Vec<(String, &[&[u8]])> = parts.iter().map(|(name, part)| (name.clone(), &part[..])).collect();
        archive::write(&entries, &mut bytes).unwrap();
        bytes
    };
    let find = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).position(|window| window == part).unwrap();
    let alone = made(&[("x/b", b"inner")]);
    let record = &alone[..find(&alone, b"PK\x01\x02")];
    let mut both = made(&[("x/a", record), ("x/b", b"inner")]);
    assert_eq!(archive::entries(&both).unwrap().len(), 2);
    let place = find(&both, record) as u64;
    // The table's last entry ends with the offset of its record.
    let end = find(&both, b"PK\x06\x06");
    both[end - 8..end].copy_from_slice(&place.to_le_bytes());
    let message = archive::entries(&both).unwrap_err().to_string();
    assert!(message.contains("two entries share the bytes from offset"), "{message}");
}

#[test]
fn damaged_archives_are_named() {
    let whole = written(&tensors());
    let complain = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
    for length in 0..whole.len() {
        assert!(parse(&whole[..length]).is_err(), "{length}");
    }
    let replaced = |from: &[u8], to: &[u8], which: usize| {
        let mut bytes = whole.clone();
        let mut places = whole.windows(from.len()).enumerate().filter(|(_, part)| *part == from);
        let (place, _) = places.nth(which).unwrap();
        bytes[place..place + to.len()].copy_from_slice(to);
        bytes
    };
    let two = 2.0_f32.to_le_bytes();
    assert!(complain(&replaced(&two, &[1], 0)).contains("is damaged: its checksum is"));
    // The entry's name in the table.
    assert!(complain(&replaced(b"data.pkl", b"data.qkl", 1)).contains("entry \"archive/data.qkl\" of "));
    let mut compressed = whole.clone();
    let central = whole.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
    compressed[central + 10] = 8;
    assert!(complain(&compressed).contains("is compressed, expected plain bytes"));
    assert!(complain(b"PK\x03\x04").contains("its end is missing"));
    assert!(complain(b"abc").contains("does not begin as one"));
    assert!(complain(&[0x80, 2, 0x8A, 0x0A, 0x6C]).contains("PyTorch before 1.6"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.pth");
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(load(&path).unwrap_err().to_string().contains("cut.pth': is no whole archive"), "{:?}", load(&path));
}
