//! Inputs for programs that are measured: random numbers, a block of them over and over, so that a billion are there at
//! once.

use fulgurite::testing::samples::Random;
use fulgurite::trace::Trace;
use fulgurite::{Array, DType, Result, TensorMeta};

/// Random numbers that an input is filled with, again and again: no power of two, so that rows differ.
const BLOCK: usize = (1 << 17) + 13;
/// Weights of models are small: sums of hundreds of products stay numbers.
const WEIGHTS: f64 = 0.04;

/// Inputs of `trace` on the host: numbers between 0 and 1, of a model between 0 and 0.04; integers are positions in
/// every dimension of the others.
pub fn of(trace: &Trace, of_model: bool) -> Result<Vec<Array>> {
    let block = &trace.block;
    let metas: Vec<&TensorMeta> = block.parameters.iter().map(|id| block.meta(*id)).collect();
    let floating = metas.iter().filter(|meta| meta.dtype().is_floating());
    let below = floating.flat_map(|meta| meta.shape()).copied().filter(|extent| *extent > 1).min().unwrap_or(2);
    let most = if of_model { WEIGHTS } else { 1.0 };
    metas
        .iter()
        .zip(&trace.inputs)
        .enumerate()
        .map(|(i, (meta, input))| {
            let dense = filled(meta.shape(), meta.dtype(), [0.0, most], below, i as u64)?;
            match &input.strides {
                None => Ok(dense),
                Some(strides) => Array::strided(meta.shape(), meta.dtype(), strides, &dense.to_bytes()?),
            }
        })
        .collect()
}

/// An array on the host with numbers of a range; integers are from 0 to below `below`.
pub fn filled(shape: &[usize], dtype: DType, [least, most]: [f64; 2], below: usize, seed: u64) -> Result<Array> {
    let mut random = Random::new(seed);
    let count: usize = shape.iter().product();
    let block = count.min(BLOCK);
    let mut draw = || match dtype {
        DType::Bool => (random.next() & 1) as f64,
        dtype if dtype.is_differentiable() => least + (most - least) * random.unit(),
        _ => (random.next() % below.max(1) as u64) as f64,
    };
    let numbers: Vec<f64> = (0..block * dtype.parts()).map(|_| draw()).collect();
    let drawn = Array::from_f64([block], dtype, &numbers)?.to_bytes()?;
    Array::written_bytes(shape, dtype, |bytes| {
        for part in bytes.chunks_mut(drawn.len().max(1)) {
            part.copy_from_slice(&drawn[..part.len()]);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_filled_to_their_ends() {
        let array = filled(&[3, BLOCK], DType::F32, [0.5, 1.0], 0, 1).unwrap();
        let numbers = array.to_vec::<f32>().unwrap();
        assert_eq!(numbers.len(), 3 * BLOCK);
        assert!(numbers.iter().all(|number| (0.5..=1.0).contains(number)) && numbers[7] == numbers[BLOCK + 7]);
        let positions = filled(&[1000], DType::I64, [0.0, 1.0], 10, 1).unwrap().to_vec::<i64>().unwrap();
        assert!(positions.iter().all(|position| (0..10).contains(position)) && positions.contains(&9));
        assert_eq!(filled(&[0], DType::I64, [0.0, 1.0], 10, 1).unwrap().shape(), [0]);
    }
}
