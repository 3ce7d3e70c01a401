//! Inputs for a stored trace: given by name, or random.

use std::path::Path;

use fulgurite::testing::samples::{Random, round_to};
use fulgurite::trace::Trace;
use fulgurite::{Array, TensorMeta};
use fulgurite_kernels::machine;

use super::output::Failed;
use crate::cases::TensorFile;

/// The inputs of `trace` from the tensors of a file, by name.
pub fn given(trace: &Trace, path: &Path) -> Result<Vec<Array>, Failed> {
    let tensors = TensorFile::read(path)?;
    let names: Vec<&str> = trace.block.parameters.iter().map(|id| &*trace.block.value(*id).name).collect();
    if let Some(key) = tensors.keys().find(|key| !names.contains(key)) {
        let known = names.join(", ");
        return Err(Failed::file(path, format!("the trace has no input '{key}', it has: {known}")));
    }
    collect(trace, |name, meta| {
        let array = tensors.get(name).map_err(|error| Failed::file(path, error.message))?;
        if array.meta() != meta {
            return Err(Failed::file(path, format!("tensor '{name}' is {}, the trace takes {meta}", array.meta())));
        }
        Ok(array.to_bytes()?)
    })
}

/// Random inputs for `trace`: numbers between 0 and 1, whose roots and logarithms are numbers; integers are 0 or 1, which are
/// positions in most dimensions.
pub fn random(trace: &Trace, seed: u64) -> Result<Vec<Array>, Failed> {
    let mut random = Random::new(seed);
    collect(trace, |_, meta| {
        let dtype = meta.dtype();
        let mut draw = || match dtype.is_floating() {
            true => round_to(random.unit(), dtype),
            false => (random.next() & 1) as f64,
        };
        let values: Vec<f64> = (0..meta.len()).map(|_| draw()).collect();
        Ok(Array::from_f64(meta.shape(), dtype, &values)?.to_bytes()?)
    })
}

fn collect(
    trace: &Trace,
    mut values: impl FnMut(&str, &TensorMeta) -> Result<Vec<u8>, Failed>,
) -> Result<Vec<Array>, Failed> {
    let inputs = trace.block.parameters.iter().zip(&trace.inputs);
    inputs
        .map(|(id, input)| {
            let value = trace.block.value(*id);
            let bytes = values(&value.name, &value.meta)?;
            match &input.strides {
                None => Ok(Array::from_bytes(value.meta.shape(), value.meta.dtype(), &bytes)?),
                Some(strides) => strided(&value.meta, strides, &bytes).ok_or_else(|| {
                    Failed(format!("no array can be made with strides {strides:?} for '{}'", value.name))
                }),
            }
        })
        .collect()
}

/// An array with the strides that a program was compiled for, and these bytes in row-major order. A dense array is made and
/// looked into, so the strides must be those of a view: each a multiple of the next smaller one, or 0 for repetition.
fn strided(meta: &TensorMeta, strides: &[isize], bytes: &[u8]) -> Option<Array> {
    let (shape, size) = (meta.shape(), meta.dtype().size());
    if meta.is_empty() {
        return None;
    }
    let strides: Vec<usize> = strides.iter().map(|stride| usize::try_from(*stride).ok()).collect::<Option<_>>()?;
    // The widest stride first; dimensions that repeat come last, with one element each.
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.sort_by_key(|dim| std::cmp::Reverse(strides[*dim]));
    let mut dense = Vec::new();
    let mut wider: Option<usize> = None;
    for dim in &order {
        let stride = strides[*dim];
        // As many as lie between two elements of the wider dimension.
        let extent = match wider {
            _ if stride == 0 => 1,
            None => shape[*dim],
            Some(wider) if wider.is_multiple_of(stride) => wider / stride,
            Some(_) => return None,
        };
        if stride > 0 && extent < shape[*dim] {
            return None;
        }
        dense.push(extent);
        wider = if stride > 0 { Some(stride) } else { wider };
    }
    let step = wider.unwrap_or(1);
    let innermost = order.iter().rposition(|dim| strides[*dim] > 0);
    if let Some(at) = innermost {
        dense[at] = dense[at].checked_mul(step)?;
    }
    let len = dense.iter().try_fold(1usize, |len, extent| len.checked_mul(*extent))?;
    let mut data = Vec::new();
    data.try_reserve_exact(
        len.checked_mul(size).filter(|bytes| *bytes as u64 <= machine::memory_limit().unwrap_or(u64::MAX))?,
    )
    .ok()?;
    data.resize(len * size, 0);
    let mut index = vec![0; shape.len()];
    for element in bytes.chunks_exact(size) {
        let offset: usize = index.iter().zip(&strides).map(|(i, stride)| i * stride).sum();
        data.get_mut(offset * size..(offset + 1) * size)?.copy_from_slice(element);
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            if index[dim] < shape[dim] {
                break;
            }
            index[dim] = 0;
        }
    }
    let mut array = Array::from_bytes(&dense, meta.dtype(), &data).ok()?;
    for (at, dim) in order.iter().enumerate().filter(|(_, dim)| strides[**dim] > 0) {
        let step = if Some(at) == innermost { step } else { 1 };
        array = array.slice(at, 0, (shape[*dim] - 1) * step + 1, step).ok()?;
    }
    let back: Vec<usize> = (0..shape.len()).filter_map(|dim| order.iter().position(|other| *other == dim)).collect();
    let array = array.permute(&back).ok()?.expand(shape).ok()?;
    let same = array.strides().iter().zip(&strides).all(|(own, wanted)| usize::try_from(*own) == Ok(*wanted));
    same.then_some(array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite::{DType, Device};

    #[test]
    fn arrays_take_the_strides_of_views() {
        for (shape, strides) in [
            (vec![2, 3], vec![1, 2]),
            (vec![2, 3], vec![12, 4]),
            (vec![2, 3], vec![0, 1]),
            (vec![4, 2, 3], vec![3, 0, 1]),
            (vec![4], vec![3]),
            (vec![2, 2], vec![0, 0]),
            (vec![], vec![]),
        ] {
            let meta = TensorMeta::new(&shape, DType::F32, Device::CPU);
            let mut next = 0.0f32;
            let bytes: Vec<u8> = (0..meta.len())
                .flat_map(|_| {
                    next += 1.0;
                    next.to_ne_bytes()
                })
                .collect();
            let array = strided(&meta, &strides, &bytes).unwrap();
            assert_eq!(array.strides(), strides);
            if !strides.contains(&0) {
                assert_eq!(array.to_bytes().unwrap(), bytes, "{shape:?} {strides:?}");
            }
        }
        let meta = TensorMeta::new([2, 3], DType::F32, Device::CPU);
        assert!(strided(&meta, &[3, 2], &[0; 24]).is_none());
        assert!(strided(&meta, &[-3, 1], &[0; 24]).is_none());
        // More than any machine has.
        assert!(strided(&meta, &[1 << 50, 1 << 51], &[0; 24]).is_none());
    }
}
