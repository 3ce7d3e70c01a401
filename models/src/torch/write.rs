//! Files that `torch.load(..., weights_only=True)` reads.

use std::collections::BTreeMap;
use std::io::{self, Write};

use fulgurite_kernels::DType;

use super::archive;
use crate::host_tensor::HostTensor;

/// Writes a dictionary of tensors. `name` is the archive's own, which PyTorch takes from the file's.
pub fn write(tensors: &BTreeMap<String, HostTensor>, name: &str, writer: &mut dyn Write) -> io::Result<()> {
    let pickle = pickle(tensors)?;
    let plain: [(&str, &[u8]); 4] =
        [("data.pkl", &pickle), (".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")];
    let mut parts: Vec<(String, Vec<&[u8]>)> =
        plain.iter().map(|(entry, bytes)| (format!("{name}/{entry}"), vec![*bytes])).collect();
    for (number, tensor) in tensors.values().enumerate() {
        parts.push((format!("{name}/data/{number}"), vec![tensor.bytes()]));
    }
    parts.push((format!("{name}/version"), vec![b"3\n"]));
    let entries: Vec<(String, &[&[u8]])> = parts.iter().map(|(entry, parts)| (entry.clone(), &parts[..])).collect();
    archive::write(&entries, writer)
}

/// The instructions that make the dictionary, of protocol 2.
fn pickle(tensors: &BTreeMap<String, HostTensor>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0x80, 2, b'}', b'('];
    for (number, (name, tensor)) in tensors.iter().enumerate() {
        text(&mut bytes, name)?;
        bytes.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut bytes, "storage")?;
        bytes.extend(format!("ctorch\n{}\n", class(name, tensor.dtype())?).as_bytes());
        text(&mut bytes, &number.to_string())?;
        text(&mut bytes, "cpu")?;
        whole(&mut bytes, tensor.shape().iter().product());
        bytes.extend(b"tQ");
        whole(&mut bytes, 0);
        let mut strides = vec![1; tensor.shape().len()];
        for dim in (1..strides.len()).rev() {
            strides[dim - 1] = strides[dim] * tensor.shape()[dim].max(1);
        }
        for sizes in [tensor.shape(), &strides] {
            bytes.push(b'(');
            sizes.iter().for_each(|size| whole(&mut bytes, *size));
            bytes.push(b't');
        }
        // Needs no gradient, and has no hooks.
        bytes.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }
    bytes.extend(b"u.");
    Ok(bytes)
}

fn class(name: &str, dtype: DType) -> io::Result<&'static str> {
    Ok(match dtype {
        DType::Bool => "BoolStorage",
        DType::U8 => "ByteStorage",
        DType::I8 => "CharStorage",
        DType::I16 => "ShortStorage",
        DType::I32 => "IntStorage",
        DType::I64 => "LongStorage",
        DType::F16 => "HalfStorage",
        DType::BF16 => "BFloat16Storage",
        DType::F32 => "FloatStorage",
        DType::F64 => "DoubleStorage",
        DType::C64 => "ComplexFloatStorage",
        DType::C128 => "ComplexDoubleStorage",
        DType::U16 | DType::U32 => {
            let message = format!("tensor '{name}' is {dtype}, for which PyTorch has no class of storages; convert it");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    })
}

fn text(bytes: &mut Vec<u8>, text: &str) -> io::Result<()> {
    let length = u32::try_from(text.len()).map_err(|_| io::Error::other("a name is too long"))?;
    bytes.push(b'X');
    bytes.extend(length.to_le_bytes());
    bytes.extend(text.as_bytes());
    Ok(())
}

/// A number of 63 bits.
fn whole(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend([0x8A, 8]);
    bytes.extend((number as u64).to_le_bytes());
}
