use super::*;

fn sample() -> (BTreeMap<String, String>, BTreeMap<String, HostTensor>) {
    let metadata = BTreeMap::from([("who".to_owned(), "\"ü\"\n".to_owned())]);
    let tensors = BTreeMap::from([
        ("a".to_owned(), HostTensor::new(DType::Bool, &[3], vec![0, 1, 1]).unwrap()),
        ("b \"quoted\"".to_owned(), HostTensor::from_f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap()),
        ("c".to_owned(), HostTensor::from_i64(&[], &[-5]).unwrap()),
        ("empty".to_owned(), HostTensor::from_f64(&[0, 4], &[]).unwrap()),
    ]);
    (metadata, tensors)
}

fn bytes_of(metadata: &BTreeMap<String, String>, tensors: &BTreeMap<String, HostTensor>) -> Vec<u8> {
    let mut bytes = Vec::new();
    TensorFile::write(metadata, tensors, &mut bytes).unwrap();
    bytes
}

/// A file with this header and `data` zero bytes after it.
fn with_header(header: &str, data: usize) -> Result<TensorFile, TensorFileError> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    TensorFile::parse(&bytes)
}

#[test]
fn written_files_read_back_here_and_by_the_library() {
    let (metadata, tensors) = sample();
    let bytes = bytes_of(&metadata, &tensors);
    assert_eq!(TensorFile::parse(&bytes).unwrap(), TensorFile { metadata, tensors: tensors.clone() });
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(theirs.len(), tensors.len());
    for (name, tensor) in &tensors {
        let view = theirs.tensor(name).unwrap();
        assert_eq!((view.shape(), view.data()), (tensor.shape(), tensor.bytes()), "{name}");
    }
    let empty = bytes_of(&BTreeMap::new(), &BTreeMap::new());
    assert_eq!(TensorFile::parse(&empty).unwrap(), TensorFile::default());
}

#[test]
fn a_mapped_file_is_used_where_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mapped.safetensors");
    let (metadata, tensors) = sample();
    std::fs::write(&path, bytes_of(&metadata, &tensors)).unwrap();
    let mapped = TensorFile::map(&path).unwrap();
    assert_eq!(mapped, TensorFile::load(&path).unwrap());
    for (name, tensor) in &mapped.tensors {
        let array = tensor.to_array().unwrap();
        assert_eq!((array.is_external(), array.to_bytes().unwrap()), (true, tensor.bytes().to_vec()), "{name}");
    }
    assert!(!TensorFile::load(&path).unwrap().tensors["c"].to_array().unwrap().is_external());
    // A file that is replaced stays what it was.
    let array = mapped.tensors["b \"quoted\""].to_array().unwrap();
    drop(mapped);
    std::fs::write(folder.path().join("other"), "other").unwrap();
    std::fs::rename(folder.path().join("other"), &path).unwrap();
    assert_eq!(array.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    // Every fault is found as in a file that is read.
    for damaged in [&b""[..], b"abc", &bytes_of(&metadata, &tensors)[..200], &[0xFF; 64]] {
        std::fs::write(&path, damaged).unwrap();
        let [mapped, loaded] = [TensorFile::map(&path), TensorFile::load(&path)];
        assert_eq!(mapped.unwrap_err().to_string(), loaded.unwrap_err().to_string());
    }
    // Values that no element may begin at are copied.
    let header = r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#;
    let header = format!("{header:<57}");
    let bytes = [&57_u64.to_le_bytes()[..], header.as_bytes(), &1.5_f32.to_le_bytes()].concat();
    std::fs::write(&path, bytes).unwrap();
    let array = TensorFile::map(&path).unwrap().tensors["x"].to_array().unwrap();
    assert_eq!((array.is_external(), array.to_vec::<f32>().unwrap()), (false, vec![1.5]));
}

#[test]
fn files_of_the_library_read_here() {
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![1], &[0, 0, 0x80, 0x3F]).unwrap();
    let bytes = safetensors::serialize([("x", view)], None).unwrap();
    assert_eq!(TensorFile::parse(&bytes).unwrap().tensors["x"].to_f32().unwrap(), [1.0]);
}

#[test]
fn pytorch_parity_vectors_read_here() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden/gpt2_parity.safetensors");
    let file = TensorFile::load(&path).unwrap();
    assert_eq!(file.tensors["inputs"].shape(), [10, 4, 16]);
    let config =
        crate::GptConfig { vocabulary: 131, context: 16, layers: 2, heads: 2, channels: 32, ..crate::GptConfig::GPT2 };
    for parameter in config.parameters() {
        let tensor = &file.tensors[&format!("initial/{}", parameter.name)];
        assert_eq!((tensor.dtype(), tensor.shape()), (DType::F32, parameter.shape.as_slice()), "{}", parameter.name);
    }
}

#[test]
fn every_truncation_is_an_error() {
    let (metadata, tensors) = sample();
    let bytes = bytes_of(&metadata, &tensors);
    for length in 0..bytes.len() {
        assert!(TensorFile::parse(&bytes[..length]).is_err(), "{length}");
    }
    let message = TensorFile::parse(&bytes[..bytes.len() - 4]).unwrap_err().to_string();
    assert!(message.contains("\"b \\\"quoted\\\"\" is incomplete"), "{message}");
    let longer = [bytes.as_slice(), b"x"].concat();
    assert!(matches!(TensorFile::parse(&longer), Err(TensorFileError::DataLength { lacking: None, .. })));
}

#[test]
fn faults_are_told_apart_and_named() {
    let f32_pair = |offsets: &str| format!(r#"{{"w":{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}}}"#);
    assert!(with_header(&f32_pair("[0,8]"), 8).is_ok());
    for (header, data, part) in [
        (f32_pair("[0,8]"), 7, "describes 8 bytes of data, but 7 follow it; tensor \"w\" is incomplete"),
        (f32_pair("[0,7]"), 7, "tensor \"w\" of dtype f32 and shape [2] has data offsets 0 to 7"),
        (f32_pair("[8,0]"), 8, "data offsets 8 to 0"),
        (f32_pair("[1,9]"), 9, "tensor \"w\" begins at data offset 1, but the tensor before it ends at 0"),
        (f32_pair("[18446744073709551615,7]"), 8, "data offsets 18446744073709551615 to 7"),
        (f32_pair("[0,8]").replace("F32", "F31"), 8, "tensor \"w\" has dtype \"F31\""),
        (f32_pair("[0,8]").replace("[2]", "[4294967296,4294967296,4294967296]"), 8, "does not fit its size"),
        (f32_pair("[0,8]").replace("[2]", "[-2]"), 8, "line 1 column"),
        (f32_pair("[0,8]").replace("F32", "BOOL").replace("[2]", "[9]"), 8, "shape [9]"),
        ("{\"w\":1}".to_owned(), 0, "line 1 column"),
        ("[]".to_owned(), 0, "expected a map of tensors"),
        (String::new(), 0, "line 1 column 0"),
        ("[".repeat(100_000), 0, "expected a map of tensors"),
        (format!("{{\"a\":{}", "[".repeat(100_000)), 0, "line 1 column"),
        (r#"{"__metadata__":{},"__metadata__":{}}"#.to_owned(), 0, "\"__metadata__\" appears twice"),
        (
            f32_pair("[0,8]").replace("}}", "},\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"),
            8,
            "\"w\" appears twice",
        ),
    ] {
        let message = with_header(&header, data).unwrap_err().to_string();
        let part = part.replace("does not fit", "do not fit");
        assert!(message.contains(&part), "{message} lacks {part}");
    }
    let mut bytes = u64::MAX.to_le_bytes().to_vec();
    assert!(matches!(TensorFile::parse(&bytes), Err(TensorFileError::HeaderLength { available: 0, .. })));
    bytes.truncate(3);
    assert!(matches!(TensorFile::parse(&bytes), Err(TensorFileError::TooShort { length: 3 })));
    let boolean = r#"{"m":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}}"#;
    let mut bytes = [&(boolean.len() as u64).to_le_bytes(), boolean.as_bytes(), &[2]].concat();
    assert!(
        TensorFile::parse(&bytes).unwrap_err().to_string().contains("tensor \"m\": element 0 of a bool tensor is 2")
    );
    bytes[10] = 0xFF;
    assert!(matches!(TensorFile::parse(&bytes), Err(TensorFileError::Header(_))));
}

#[test]
fn load_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("absent", None), ("short", Some("abc"))] {
        let path = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let message = TensorFile::load(&path).unwrap_err().to_string();
        assert!(message.contains(name), "{message}");
    }
    assert!(TensorFile::load(folder.path()).is_err());
}
