//! Inputs for a stored trace: given by name, or random.

use std::path::Path;

use fulgurite::testing::samples::{Random, round_to};
use fulgurite::trace::Trace;
use fulgurite::{Array, TensorMeta};

use super::outcome::Failed;
use crate::cases::TensorFile;

/// The inputs of `trace` from the tensors of a file, by name. They are on the host, whatever the trace's device is.
pub fn given(trace: &Trace, path: &Path) -> Result<Vec<Array>, Failed> {
    let tensors = TensorFile::read(path)?;
    let names: Vec<&str> = trace.block.parameters.iter().map(|id| &*trace.block.value(*id).name).collect();
    if let Some(key) = tensors.keys().find(|key| !names.contains(key)) {
        let known = names.join(", ");
        return Err(Failed::file(path, format!("the trace has no input '{key}', it has: {known}")));
    }
    collect(trace, |name, meta| {
        let array = tensors.get(name).map_err(|error| Failed::file(path, error.message))?;
        // A program takes what it needs from the host to its device.
        if array.meta().with_device(meta.device()) != *meta {
            return Err(Failed::file(path, format!("tensor '{name}' is {}, the trace takes {meta}", array.meta())));
        }
        Ok(array)
    })
}

/// Numbers that are drawn at a time: an input may have as many as memory holds.
const BLOCK: usize = 1 << 16;

/// Random inputs for `trace`: numbers between 0 and 1, whose roots and logarithms are numbers; integers are 0 or 1,
/// which are positions in most dimensions.
pub fn random(trace: &Trace, seed: u64) -> Result<Vec<Array>, Failed> {
    let mut random = Random::new(seed);
    collect(trace, |name, meta| {
        let dtype = meta.dtype();
        let mut draw = || match dtype.is_differentiable() {
            true => round_to(random.unit(), dtype),
            false => (random.next() & 1) as f64,
        };
        let drawn = Array::written_bytes(meta.shape(), dtype, |bytes| {
            for block in bytes.chunks_mut(BLOCK * dtype.size()) {
                let count = block.len() / dtype.size();
                let values: Vec<f64> = (0..count * dtype.parts()).map(|_| draw()).collect();
                block.copy_from_slice(&Array::from_f64([count], dtype, &values)?.to_bytes()?);
            }
            Ok(())
        });
        drawn.map_err(|error| Failed(format!("'{name}', {meta}: {error}; --inputs takes inputs from a file")))
    })
}

fn collect(
    trace: &Trace,
    mut values: impl FnMut(&str, &TensorMeta) -> Result<Array, Failed>,
) -> Result<Vec<Array>, Failed> {
    let inputs = trace.block.parameters.iter().zip(&trace.inputs);
    inputs
        .map(|(id, input)| {
            let value = trace.block.value(*id);
            let dense = values(&value.name, &value.meta)?;
            match &input.strides {
                None => Ok(dense),
                Some(strides) => Array::strided(value.meta.shape(), value.meta.dtype(), strides, &dense.to_bytes()?)
                    .map_err(|error| Failed(format!("'{}': {error}", value.name))),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite::trace::parse;

    /// No device is needed to see which inputs a trace takes.
    #[test]
    fn tensors_of_a_file_fit_a_trace_of_any_device() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("inputs.safetensors");
        let array = Array::new([2], &[1.0_f32, 2.0]).unwrap();
        std::fs::write(&path, crate::cases::tensor_bytes(&[("input".into(), array)]).unwrap()).unwrap();
        let text = crate::cases::trace_call(
            &crate::cases::Call {
                operator: crate::cases::resolve_operator("prims::exp").unwrap(),
                arguments: vec![fulgurite::argument::Arg::Tensor(TensorMeta::new(
                    [2],
                    fulgurite::DType::F32,
                    fulgurite::Device::new("cuda", 0),
                ))],
            },
            "cuda:sm_90a".parse().unwrap(),
        )
        .unwrap()
        .to_string();
        let trace = parse(&text).unwrap();
        let inputs = given(&trace, &path).unwrap();
        assert_eq!(inputs[0].to_vec::<f32>().unwrap(), [1.0, 2.0]);
    }
}
