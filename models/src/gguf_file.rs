//! GGUF, the files of llama.cpp: what is said of the model, and where the tensors are.
//!
//! The layout, little-endian: `GGUF`, a version, the number of tensors, the number of keys; the keys, each with the
//! type of its value; names, extents (the fastest first), types and offsets of the tensors; then the values, which
//! begin at multiples of `general.alignment`. The specification is docs/gguf.md of ggml. Nothing is allocated on the
//! file's word: every length is checked against what is left of the file first.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use crate::tensor_bytes::MappedFile;

/// The first bytes.
pub(crate) const MAGIC: &[u8] = b"GGUF";
/// The versions that have lengths of 64 bits.
const VERSIONS: [u32; 2] = [2, 3];
/// Bytes of the longest key, by the specification; of names of tensors as well.
const LONGEST_NAME: usize = 65_535;
const ALIGNMENT: &str = "general.alignment";
/// The alignment of files that say none.
const USUAL_ALIGNMENT: u64 = 32;
/// The most dimensions of a tensor.
const MOST_DIMENSIONS: u32 = 4;

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum GgufValue {
    Integer(i128),
    Number(f64),
    Flag(bool),
    Text(String),
    /// The type, how many values there are, and where: they stay in the file.
    List {
        kind: u32,
        count: u64,
        bytes: Range<usize>,
    },
}

/// How the values of a tensor are stored: in blocks, each of so many values and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GgufType {
    F32,
    F16,
    Bf16,
    /// Blocks of 32: a scale in f16, and integers of 8 bits.
    Q8_0,
    /// Blocks of 32: a scale in f16, and integers of 4 bits, which are less 8.
    Q4_0,
    /// Blocks of 32: a scale and an offset in f16, and integers of 4 bits.
    Q4_1,
    /// As Q4_0, of 5 bits, which are less 16.
    Q5_0,
    /// As Q4_1, of 5 bits.
    Q5_1,
    /// Blocks of 256: 16 groups with scales and offsets of 4 bits, and integers of 2 bits.
    Q2K,
    /// Blocks of 256: 16 groups with scales of 6 bits, and integers of 3 bits.
    Q3K,
    /// Blocks of 256: 8 groups with scales and offsets of 6 bits, and integers of 4 bits.
    Q4K,
    /// As Q4K, of 5 bits.
    Q5K,
    /// Blocks of 256: 16 groups with scales of 8 bits, and integers of 6 bits.
    Q6K,
}

/// Types that are read, with their numbers in files, and values and bytes of a block.
const TYPES: [(GgufType, u32, &str, usize, usize); 13] = [
    (GgufType::F32, 0, "F32", 1, 4),
    (GgufType::F16, 1, "F16", 1, 2),
    (GgufType::Q4_0, 2, "Q4_0", 32, 18),
    (GgufType::Q4_1, 3, "Q4_1", 32, 20),
    (GgufType::Q5_0, 6, "Q5_0", 32, 22),
    (GgufType::Q5_1, 7, "Q5_1", 32, 24),
    (GgufType::Q8_0, 8, "Q8_0", 32, 34),
    (GgufType::Q2K, 10, "Q2_K", 256, 84),
    (GgufType::Q3K, 11, "Q3_K", 256, 110),
    (GgufType::Q4K, 12, "Q4_K", 256, 144),
    (GgufType::Q5K, 13, "Q5_K", 256, 176),
    (GgufType::Q6K, 14, "Q6_K", 256, 210),
    (GgufType::Bf16, 30, "BF16", 1, 2),
];

/// The most values of a block.
pub(crate) const LARGEST_BLOCK: usize = 256;

/// Types that are not read.
const OTHER_TYPES: [(u32, &str); 18] = [
    (9, "Q8_1"),
    (15, "Q8_K"),
    (16, "IQ2_XXS"),
    (17, "IQ2_XS"),
    (18, "IQ3_XXS"),
    (19, "IQ1_S"),
    (20, "IQ4_NL"),
    (21, "IQ3_S"),
    (22, "IQ2_S"),
    (23, "IQ4_XS"),
    (24, "I8"),
    (25, "I16"),
    (26, "I32"),
    (27, "I64"),
    (28, "F64"),
    (29, "IQ1_M"),
    (34, "TQ1_0"),
    (39, "MXFP4"),
];

impl GgufType {
    /// Values and bytes of a block.
    pub(crate) fn block(self) -> (usize, usize) {
        let found = TYPES.iter().find(|(own, ..)| *own == self);
        found.map_or((1, 1), |(_, _, _, values, bytes)| (*values, *bytes))
    }

    fn numbered(number: u32, tensor: &str) -> Result<GgufType, String> {
        if let Some((own, ..)) = TYPES.iter().find(|(_, own, ..)| *own == number) {
            return Ok(*own);
        }
        let name = OTHER_TYPES.iter().find(|(own, _)| *own == number).map(|(_, name)| (*name).to_owned());
        let name = name.unwrap_or_else(|| format!("number {number}"));
        let read = TYPES.map(|(_, _, name, ..)| name).join(", ");
        Err(format!(
            "tensor {tensor:?} is of type {name}, expected one of {read}: take another file of the model, or make one \
             by llama.cpp's `llama-quantize --pure --allow-requantize IN OUT Q8_0`"
        ))
    }
}

/// Whether a file begins as those of this format do.
pub(crate) fn is_one(path: &Path) -> bool {
    let mut start = [0; 4];
    std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *MAGIC
}

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GgufTensor {
    /// The slowest dimension first.
    pub(crate) shape: Vec<usize>,
    pub(crate) kind: GgufType,
    /// Its bytes in the file.
    pub(crate) bytes: Range<usize>,
}

/// A file, whose tensors' values are read as they are used.
#[derive(Debug)]
pub(crate) struct GgufFile {
    pub(crate) file: MappedFile,
    pub(crate) keys: BTreeMap<String, GgufValue>,
    pub(crate) tensors: BTreeMap<String, GgufTensor>,
}

impl GgufFile {
    /// The keys and the places of the tensors. The error says what is wrong with the file, and where.
    pub(crate) fn open(path: &Path) -> Result<GgufFile, String> {
        let file = MappedFile::open(path).map_err(|error| format!("cannot be read: {error}"))?;
        let (keys, tensors) = parse(file.bytes())?;
        Ok(GgufFile { file, keys, tensors })
    }

    /// The bytes of a tensor.
    pub(crate) fn bytes(&self, tensor: &GgufTensor) -> &[u8] {
        &self.file.bytes()[tensor.bytes.clone()]
    }

    /// The values of a list, each as `of` reads it. `None` if the file has no such key; the first value that `of` does
    /// not read is an error.
    pub(crate) fn list<T>(&self, key: &str, of: impl Fn(GgufValue) -> Option<T>) -> Result<Option<Vec<T>>, String> {
        let (kind, count, bytes) = match self.keys.get(key) {
            None => return Ok(None),
            Some(GgufValue::List { kind, count, bytes }) => (*kind, *count, bytes.clone()),
            Some(_) => return Err(format!("{key} is no list")),
        };
        let mut reader = Reader { bytes: &self.file.bytes()[..bytes.end], place: bytes.start };
        let wrong = || format!("{key} is a list of values of another type");
        // Each value takes a byte of the file at least, which is there.
        (0..count).map(|_| of(reader.value(kind, key)?).ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
    }
}

type Parsed = (BTreeMap<String, GgufValue>, BTreeMap<String, GgufTensor>);

fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let mut reader = Reader { bytes, place: 0 };
    if reader.take(4, "the first bytes")? != MAGIC {
        return Err("does not begin with GGUF".to_owned());
    }
    let version = reader.u32("the version")?;
    if !VERSIONS.contains(&version) {
        let reversed = version.swap_bytes();
        let order = if VERSIONS.contains(&reversed) { ", which is big-endian" } else { "" };
        return Err(format!("is of version {version}{order}, expected 2 or 3, little-endian"));
    }
    let (tensor_count, key_count) = (reader.u64("the number of tensors")?, reader.u64("the number of keys")?);
    let mut keys = BTreeMap::new();
    for number in 0..key_count {
        let key = reader.name(&format!("key {number}"))?;
        let kind = reader.u32(&key)?;
        let value = reader.value(kind, &key)?;
        if keys.insert(key.clone(), value).is_some() {
            return Err(format!("has the key {key:?} twice"));
        }
    }
    let alignment = match keys.get(ALIGNMENT) {
        None => USUAL_ALIGNMENT,
        Some(GgufValue::Integer(alignment)) if *alignment > 0 && alignment % 8 == 0 && *alignment <= 1 << 20 => {
            *alignment as u64
        }
        Some(other) => return Err(format!("{ALIGNMENT} is {other:?}, expected a multiple of 8 of at most a MiB")),
    };
    let mut found = Vec::new();
    for number in 0..tensor_count {
        let name = reader.name(&format!("tensor {number}"))?;
        let rank = reader.u32(&name)?;
        if rank > MOST_DIMENSIONS {
            return Err(format!("tensor {name:?} has {rank} dimensions, expected {MOST_DIMENSIONS} at most"));
        }
        let mut shape = Vec::new();
        for _ in 0..rank {
            let extent = reader.u64(&name)?;
            shape.push(usize::try_from(extent).map_err(|_| format!("tensor {name:?} has an extent of {extent}"))?);
        }
        shape.reverse();
        let (kind, offset) = (reader.u32(&name)?, reader.u64(&name)?);
        found.push((name, shape, kind, offset));
    }
    let start = (reader.place as u64).next_multiple_of(alignment);
    let mut tensors = BTreeMap::new();
    for (name, shape, kind, offset) in found {
        let kind = GgufType::numbered(kind, &name)?;
        if !offset.is_multiple_of(alignment) {
            return Err(format!("tensor {name:?} begins at {offset}, expected a multiple of {alignment}"));
        }
        let (values, block) = kind.block();
        let width = shape.last().copied().unwrap_or(1);
        if !width.is_multiple_of(values) {
            return Err(format!("tensor {name:?} has rows of {width} values, expected a multiple of {values}"));
        }
        let blocks = shape.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
        let length = blocks.and_then(|elements| (elements / values).checked_mul(block));
        let begin = start.checked_add(offset).and_then(|begin| usize::try_from(begin).ok());
        let range = begin.zip(length).and_then(|(begin, length)| Some(begin..begin.checked_add(length)?));
        let range = range.filter(|range| range.end <= bytes.len());
        let range = range.ok_or_else(|| {
            format!("tensor {name:?} of shape {shape:?} at {offset} ends beyond the file's {} bytes", bytes.len())
        })?;
        if tensors.insert(name.clone(), GgufTensor { shape, kind, bytes: range }).is_some() {
            return Err(format!("has the tensor {name:?} twice"));
        }
    }
    Ok((keys, tensors))
}

/// What is left of a file.
struct Reader<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8], String> {
        let end = self.place.checked_add(length).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| {
            let (place, all) = (self.place, self.bytes.len());
            format!("ends within {what}: {length} bytes are needed at {place}, the file has {all}")
        })?;
        let taken = &self.bytes[self.place..end];
        self.place = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, what)?);
        Ok(bytes)
    }

    fn u32(&mut self, what: &str) -> Result<u32, String> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &str) -> Result<u64, String> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The bytes of a text.
    fn text(&mut self, what: &str) -> Result<&'a [u8], String> {
        let length = self.u64(what)?;
        self.take(usize::try_from(length).unwrap_or(usize::MAX), what)
    }

    fn name(&mut self, what: &str) -> Result<String, String> {
        let name = self.text(&format!("the name of {what}"))?;
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(format!("{what} has a name of {} bytes, expected 1 to {LONGEST_NAME}", name.len()));
        }
        std::str::from_utf8(name).map(str::to_owned).map_err(|_| format!("{what} has a name that is no UTF-8"))
    }

    /// The value of a key, of the type of this number.
    fn value(&mut self, kind: u32, key: &str) -> Result<GgufValue, String> {
        Ok(match kind {
            0 => GgufValue::Integer(u8::from_le_bytes(self.array(key)?).into()),
            1 => GgufValue::Integer(i8::from_le_bytes(self.array(key)?).into()),
            2 => GgufValue::Integer(u16::from_le_bytes(self.array(key)?).into()),
            3 => GgufValue::Integer(i16::from_le_bytes(self.array(key)?).into()),
            4 => GgufValue::Integer(self.u32(key)?.into()),
            5 => GgufValue::Integer(i32::from_le_bytes(self.array(key)?).into()),
            6 => GgufValue::Number(f32::from_le_bytes(self.array(key)?).into()),
            7 => match self.array(key)? {
                [0] => GgufValue::Flag(false),
                [1] => GgufValue::Flag(true),
                [other] => return Err(format!("key {key:?} is a flag of {other}, expected 0 or 1")),
            },
            8 => GgufValue::Text(String::from_utf8_lossy(self.text(key)?).into_owned()),
            9 => {
                let (kind, count) = (self.u32(key)?, self.u64(key)?);
                if kind == 9 {
                    return Err(format!("key {key:?} is a list of lists, which no model needs here"));
                }
                let start = self.place;
                match sizes_of(kind) {
                    Some(size) => {
                        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size));
                        self.take(bytes.unwrap_or(usize::MAX), key)?;
                    }
                    // One after the other, each of which takes a byte of the file at least.
                    None => {
                        for _ in 0..count {
                            self.value(kind, key)?;
                        }
                    }
                }
                GgufValue::List { kind, count, bytes: start..self.place }
            }
            10 => GgufValue::Integer(self.u64(key)?.into()),
            11 => GgufValue::Integer(i64::from_le_bytes(self.array(key)?).into()),
            12 => GgufValue::Number(f64::from_le_bytes(self.array(key)?)),
            other => return Err(format!("key {key:?} is of type {other}, expected 0 to 12")),
        })
    }
}

/// Bytes of a number of this type.
fn sizes_of(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
