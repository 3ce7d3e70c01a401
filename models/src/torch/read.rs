//! Tensors of an archive.

use std::collections::BTreeMap;
use std::path::Path;

use fulgurite_kernels::DType;
use fulgurite_kernels::scratch::try_room;

use super::archive::{self, Entry};
use super::error::TorchError;
use super::machine::{self, Described, Id, Made, Object};
use super::names::unwrapped;
use super::start::{is_archive, is_old};
use crate::host_tensor::HostTensor;
use crate::tensor_bytes::{MappedFile, TensorBytes};

/// Keys under which training frameworks keep the tensors of the model.
const INNER: [&str; 2] = ["model", "state_dict"];

/// Tensors may share a storage, as a tied embedding does; of a small file no large memory is made so.
const MOST_SHARED: usize = 4;

/// Reads the tensors of a file, which is mapped into memory: those that are row-major are not copied. The file must not
/// be changed in place while they are in use. Every error names it.
pub fn load(path: &Path) -> Result<BTreeMap<String, HostTensor>, TorchError> {
    let read = |error| TorchError::Read(error).in_file(path);
    // What is empty cannot be mapped.
    if std::fs::metadata(path).map_err(read)?.len() == 0 {
        return Err(TorchError::Archive("it is empty".into()).in_file(path));
    }
    let file = MappedFile::open(path).map_err(read)?;
    let part = |entry: &Entry| TensorBytes::Mapped(file.clone(), entry.range.clone());
    tensors(file.bytes(), &part).map_err(|error| error.in_file(path))
}

/// Reads the tensors of a file held in memory. Never panics, whatever the bytes.
pub fn parse(bytes: &[u8]) -> Result<BTreeMap<String, HostTensor>, TorchError> {
    tensors(bytes, &|entry: &Entry| TensorBytes::Owned(bytes[entry.range.clone()].to_vec()))
}

fn tensors(file: &[u8], part: &dyn Fn(&Entry) -> TensorBytes) -> Result<BTreeMap<String, HostTensor>, TorchError> {
    if is_old(file) {
        return Err(TorchError::Old);
    }
    if !is_archive(file) {
        return Err(TorchError::Archive("does not begin as one".into()));
    }
    let entries = archive::entries(file)?;
    let fault = |message: &str| TorchError::Archive(message.to_owned());
    let pickle = entries.keys().find_map(|name| name.strip_suffix("data.pkl"));
    let folder = pickle.filter(|folder| folder.ends_with('/')).ok_or_else(|| fault("it has no data.pkl"))?.to_owned();
    let whole = |name: &str| -> Result<&Entry, TorchError> {
        let name = format!("{folder}{name}");
        let entry = entries.get(&name).ok_or_else(|| fault(&format!("it has no entry {name:?}")))?;
        let found = crc32fast::hash(&file[entry.range.clone()]);
        match found == entry.crc {
            true => Ok(entry),
            false => Err(TorchError::Checksum { name, expected: entry.crc, found }),
        }
    };
    if entries.contains_key(&format!("{folder}byteorder")) && file[whole("byteorder")?.range.clone()] != *b"little" {
        return Err(fault("its numbers are not little-endian"));
    }
    let made = machine::run(&file[whole("data.pkl")?.range.clone()])?;
    // Tensors may share a storage, whose checksum is computed once.
    let mut storages: BTreeMap<&str, TensorBytes> = BTreeMap::new();
    let listed = described(&made)?;
    let (mut found, mut total) = (BTreeMap::new(), 0_usize);
    for (name, described) in &listed {
        let wrong = |message: String| TorchError::Tensor { name: name.clone(), message };
        let storage = match storages.get(described.storage) {
            Some(storage) => storage,
            None => {
                let entry = whole(&format!("data/{}", described.storage))?;
                storages.entry(described.storage).or_insert(part(entry))
            }
        };
        let tensor = tensor(described, storage).map_err(wrong)?;
        total = total.saturating_add(tensor.bytes().len());
        if total > MOST_SHARED * file.len() {
            return Err(wrong(format!("the tensors up to it have {total} bytes, the file {}", file.len())));
        }
        found.insert(name.clone(), tensor);
    }
    Ok(found)
}

/// The tensors of the dictionary, or of the one in it, by their names in the model.
fn described(made: &Made) -> Result<BTreeMap<String, Described<'_>>, TorchError> {
    let content = |what: String| Err(TorchError::Content(what));
    let Object::Dict(items) = &made.objects[made.root] else {
        return content(made.objects[made.root].words().to_owned());
    };
    let items = inner(made, items)?.unwrap_or(items);
    let mut found: Vec<(&str, Described<'_>)> = Vec::new();
    for (key, value) in items {
        let Object::Text(name) = &made.objects[*key] else {
            return content(format!("{} as the name of a tensor", made.objects[*key].words()));
        };
        let Some(tensor) = made.tensor(*value) else {
            return content(format!("{} named {name:?}", made.objects[*value].words()));
        };
        found.push((name, tensor));
    }
    unwrapped(found).or_else(|name| content(format!("two tensors named {name:?}")))
}

/// The pairs of the dictionary that holds the model's tensors beside other things, if there is one.
///
/// # Errors
/// Several dictionaries that may be meant.
fn inner<'a>(made: &'a Made, items: &'a [(Id, Id)]) -> Result<Option<&'a [(Id, Id)]>, TorchError> {
    let named = items.iter().filter_map(|(key, value)| match (&made.objects[*key], &made.objects[*value]) {
        (Object::Text(name), Object::Dict(items)) => Some((name.as_str(), items.as_slice())),
        _ => None,
    });
    let (of_models, others): (Vec<_>, Vec<_>) = named.partition(|(name, _)| INNER.contains(name));
    let Some((chosen, tensors)) = of_models.first() else { return Ok(None) };
    // Names as they are in the model: averages of the weights may be wrapped where the weights are not.
    let names = |items: &[(Id, Id)]| -> Vec<String> {
        let tensors = items.iter().filter(|(_, value)| matches!(made.objects[*value], Object::Tensor { .. }));
        let texts = tensors.filter_map(|(key, _)| match &made.objects[*key] {
            Object::Text(name) => Some((name.as_str(), ())),
            _ => None,
        });
        unwrapped(texts).map_or_else(|name| vec![name], |names| names.into_keys().collect())
    };
    let own = names(tensors);
    // Averages of the weights, for example.
    let again = others.iter().filter(|(_, items)| names(items).iter().any(|name| own.contains(name)));
    if let Some((other, _)) = of_models.iter().skip(1).chain(again).next() {
        return Err(TorchError::Ambiguous([chosen, other].map(|name| (*name).to_owned())));
    }
    if let Some(name) = names(items).first() {
        return Err(TorchError::Ambiguous([(*chosen).to_owned(), (*name).to_owned()]));
    }
    Ok(Some(tensors))
}

/// A tensor of a storage: a part of it if its elements are row-major, and otherwise gathered.
fn tensor(described: &Described<'_>, storage: &TensorBytes) -> Result<HostTensor, String> {
    let Described { dtype, elements, offset, shape, strides, negative, .. } = described;
    let (bytes, size) = (storage.as_slice(), dtype.size());
    if elements.checked_mul(size as u64) != Some(bytes.len() as u64) {
        return Err(format!("its storage has {} bytes, expected {elements} elements of {dtype}", bytes.len()));
    }
    let outside = || {
        format!("shape {shape:?} with strides {strides:?} from element {offset} on does not fit {elements} elements")
    };
    if shape.len() != strides.len() {
        return Err(outside());
    }
    let sizes: Option<Vec<usize>> = shape.iter().map(|size| usize::try_from(*size).ok()).collect();
    let sizes = sizes.ok_or_else(outside)?;
    let empty = sizes.contains(&0);
    // An element may be shown several times (stride 0), which would make large tensors of small files.
    let count = sizes.iter().try_fold(1_u64, |count, size| count.checked_mul(*size as u64));
    let count = count.filter(|count| *count <= *elements).or(empty.then_some(0)).ok_or_else(outside)?;
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(*offset, |last, (size, stride)| last.checked_add(size.saturating_sub(1).checked_mul(*stride)?));
    if !empty && last.is_none_or(|last| last >= *elements) {
        return Err(outside());
    }
    let mut dense = 1_u64;
    let row_major = shape.iter().zip(strides).rev().all(|(size, stride)| {
        let fits = *size <= 1 || *stride == dense;
        dense = dense.saturating_mul(*size);
        fits
    });
    let taken = match storage {
        _ if empty => TensorBytes::Owned(Vec::new()),
        _ if *negative => {
            let mut bytes = gathered(bytes, *dtype, &sizes, strides, *offset as usize)?;
            negate(&mut bytes, *dtype)?;
            TensorBytes::Owned(bytes)
        }
        TensorBytes::Mapped(file, range) if row_major => {
            let start = range.start + *offset as usize * size;
            TensorBytes::Mapped(file.clone(), start..start + count as usize * size)
        }
        _ => TensorBytes::Owned(gathered(bytes, *dtype, &sizes, strides, *offset as usize)?),
    };
    HostTensor::of(*dtype, &sizes, taken).map_err(|error| error.to_string())
}

/// Elements in row-major order. There are no more than the storage has.
fn gathered(bytes: &[u8], dtype: DType, shape: &[usize], strides: &[u64], offset: usize) -> Result<Vec<u8>, String> {
    let size = dtype.size();
    let mut result = try_room(shape.iter().product::<usize>() * size).map_err(|error| error.to_string())?;
    let mut index = vec![0; shape.len()];
    loop {
        let place = offset + index.iter().zip(strides).map(|(at, stride)| at * *stride as usize).sum::<usize>();
        result.extend_from_slice(&bytes[place * size..(place + 1) * size]);
        let Some(dim) = (0..shape.len()).rev().find(|dim| index[*dim] + 1 < shape[*dim]) else {
            return Ok(result);
        };
        index[dim] += 1;
        index[dim + 1..].fill(0);
    }
}

/// Gives each number the other sign: of floating-point numbers, and of both parts of complex ones, the bit is changed,
/// integers wrap.
pub(super) fn negate(bytes: &mut [u8], dtype: DType) -> Result<(), String> {
    let size = dtype.part().size();
    match dtype {
        DType::Bool => return Err("booleans have no negative bit".into()),
        _ if dtype.is_differentiable() => bytes.chunks_exact_mut(size).for_each(|number| number[size - 1] ^= 0x80),
        _ => {
            for number in bytes.chunks_exact_mut(size) {
                let mut carry = true;
                for byte in number {
                    (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
                }
            }
        }
    }
    Ok(())
}
