//! Rows of quantized weights on the host: read from blocks of files, put one below the other, widened.

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::scratch::{try_room, try_zeroed};
use half::{bf16, f16};
use rayon::prelude::*;

use crate::gguf_blocks::{code_of_q4_k, scales_and_offsets};
use crate::gguf_file::GgufType;
use crate::host_tensor::{HostTensor, HostTensorError};

/// Values of a block of Q4_K.
const LARGE: usize = 256;

/// A quantized weight [out, in], in the form of [`mod@fulgurite_ops::nn::dequantize_weight`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packed {
    /// i8 [out, in] or u8 [out, in / 2].
    pub(crate) codes: HostTensor,
    /// [out, in / group].
    pub(crate) scales: HostTensor,
    /// As the scales.
    pub(crate) offsets: Option<HostTensor>,
}

/// The bits of codes of this type, if they are codes.
pub(crate) fn bits_of(codes: &HostTensor) -> Option<usize> {
    match codes.dtype() {
        DType::I8 => Some(8),
        DType::U8 => Some(4),
        _ => None,
    }
}

/// Rows of blocks of a file, in the order in which `row_at` tells them, as codes and scales that come after those that
/// are there.
pub(crate) struct Rows {
    kind: GgufType,
    inputs: usize,
    rows: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
    offsets: Vec<u8>,
    /// Whether f16 has a place for every scale and offset.
    fits: bool,
}

impl Rows {
    /// Room for a weight [rows, inputs]; `None` for types that are not kept as integers.
    pub(crate) fn new(kind: GgufType, [rows, inputs]: [usize; 2]) -> Result<Option<Rows>, OutOfMemory> {
        let bits = match kind {
            GgufType::Q8_0 => 8,
            GgufType::Q4_0 | GgufType::Q4_1 | GgufType::Q4K => 4,
            _ => return Ok(None),
        };
        let scales = rows * (inputs / GROUP) * 2;
        Ok(Some(Rows {
            kind,
            inputs,
            rows: 0,
            codes: try_room(rows * inputs / 8 * bits)?,
            scales: try_room(scales)?,
            offsets: try_room(if matches!(kind, GgufType::Q4_1 | GgufType::Q4K) { scales } else { 0 })?,
            fits: true,
        }))
    }

    /// Adds `count` rows, of which row i is row `row_at(i)` of `bytes`.
    pub(crate) fn push(&mut self, bytes: &[u8], count: usize, row_at: &dyn Fn(usize) -> usize) {
        let (values, block) = self.kind.block();
        let row = self.inputs / values * block;
        for i in 0..count {
            let start = row_at(i) * row;
            for block in bytes[start..start + row].chunks_exact(block) {
                if self.kind == GgufType::Q4K {
                    self.push_groups(block);
                    continue;
                }
                let (scale, rest) = block.split_at(2);
                self.scales.extend_from_slice(scale);
                match self.kind {
                    GgufType::Q4_1 => {
                        let (offset, rest) = rest.split_at(2);
                        self.offsets.extend_from_slice(offset);
                        self.push_neighbours(rest);
                    }
                    GgufType::Q4_0 => self.push_neighbours(rest),
                    _ => self.codes.extend_from_slice(rest),
                }
            }
        }
        self.rows += count;
    }

    /// Adds the eight groups of a block of 256. Their scales and offsets, products of two numbers, are rounded to f16,
    /// which a product of a large one may leave.
    fn push_groups(&mut self, block: &[u8]) {
        for group in scales_and_offsets(block) {
            let [scale, offset] = group.map(f16::from_f32);
            self.fits &= scale.is_finite() && offset.is_finite();
            self.scales.extend_from_slice(&scale.to_le_bytes());
            self.offsets.extend_from_slice(&offset.to_le_bytes());
        }
        self.codes.extend((0..LARGE).step_by(2).map(|i| code_of_q4_k(block, i) | code_of_q4_k(block, i + 1) << 4));
    }

    /// Adds 32 numbers of 4 bits: a byte of a block has number `i` in its lower half and number `i + 16` in its upper
    /// one, a byte of ours two neighbours.
    fn push_neighbours(&mut self, halves: &[u8]) {
        for shift in [0, 4] {
            for pair in halves.chunks_exact(2) {
                self.codes.push((pair[0] >> shift & 15) | (pair[1] >> shift & 15) << 4);
            }
        }
    }

    /// The weight; `None` where f16 has no place for one of its scales or offsets.
    pub(crate) fn finish(self) -> Result<Option<Packed>, HostTensorError> {
        if !self.fits {
            return Ok(None);
        }
        let (rows, inputs) = (self.rows, self.inputs);
        let scales = |bytes: Vec<u8>| HostTensor::new(DType::F16, &[rows, inputs / GROUP], bytes);
        let codes = match self.kind {
            GgufType::Q8_0 => HostTensor::new(DType::I8, &[rows, inputs], self.codes)?,
            _ => HostTensor::new(DType::U8, &[rows, inputs / 2], self.codes)?,
        };
        let offsets = (!self.offsets.is_empty()).then(|| scales(self.offsets)).transpose()?;
        Ok(Some(Packed { codes, scales: scales(self.scales)?, offsets }))
    }
}

/// Values of a group.
pub(crate) const GROUP: usize = 32;

/// The numbers [out, in] of a quantized weight in f32 or bf16: products and sums in f32, rounded once. `None` for other
/// types, and for scales of a type that weights do not have.
pub(crate) fn numbers_of(
    own_codes: &HostTensor,
    scales: &HostTensor,
    offsets: Option<&HostTensor>,
    dtype: DType,
) -> Result<Option<HostTensor>, OutOfMemory> {
    let Some(bits) = bits_of(own_codes) else { return Ok(None) };
    let (rows, groups) = (scales.shape()[0], scales.shape()[1]);
    let (Some(scales), offsets) = (scales.widened()?, offsets.map(HostTensor::widened).transpose()?.flatten()) else {
        return Ok(None);
    };
    let inputs = own_codes.shape()[1] * (8 / bits);
    let size = match dtype {
        DType::F32 => 4,
        DType::BF16 => 2,
        _ => return Ok(None),
    };
    let mut bytes = try_zeroed(rows * inputs * size)?;
    let number = |tensor: &HostTensor, at: usize| f32::from_le_bytes(tensor.bytes().as_chunks().0[at]);
    let center = if bits == 4 && offsets.is_none() { 8.0 } else { 0.0 };
    bytes.par_chunks_mut((inputs * size).max(1)).enumerate().for_each(|(row, to)| {
        let codes = &own_codes.bytes()[row * (inputs * bits / 8)..][..inputs * bits / 8];
        for (input, to) in to.chunks_exact_mut(size).enumerate() {
            let group = row * groups + input / (inputs / groups);
            let code = match bits {
                8 => f32::from(codes[input] as i8),
                _ => f32::from(codes[input / 2] >> (4 * (input % 2)) & 15),
            };
            let offset = offsets.as_ref().map_or(0.0, |offsets| number(offsets, group));
            let value = (code - center) * number(&scales, group) + offset;
            match size {
                4 => to.copy_from_slice(&value.to_le_bytes()),
                _ => to.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
            }
        }
    });
    Ok(HostTensor::new(dtype, &[rows, inputs], bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block by its definition: value `i` of 32.
    fn expected(kind: GgufType, block: &[u8], i: usize) -> f32 {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        let nibble = |start: usize| {
            let byte = block[start + i % 16];
            f32::from(if i < 16 { byte & 15 } else { byte >> 4 })
        };
        match kind {
            GgufType::Q8_0 => half(0) * f32::from(block[2 + i] as i8),
            GgufType::Q4_0 => half(0) * (nibble(2) - 8.0),
            _ => half(0) * nibble(4) + half(2),
        }
    }

    #[test]
    fn blocks_keep_their_values() {
        for kind in [GgufType::Q8_0, GgufType::Q4_0, GgufType::Q4_1] {
            let (_, size) = kind.block();
            // Two rows of two blocks, read in the other order.
            let mut bytes: Vec<u8> = (0..4 * size).map(|i| (i * 37 + 11) as u8).collect();
            for block in bytes.chunks_exact_mut(size) {
                block[..2].copy_from_slice(&f16::from_f32(0.25).to_le_bytes());
                if kind == GgufType::Q4_1 {
                    block[2..4].copy_from_slice(&f16::from_f32(-1.5).to_le_bytes());
                }
            }
            let mut rows = Rows::new(kind, [2, 64]).unwrap().unwrap();
            rows.push(&bytes, 2, &|row| 1 - row);
            let packed = rows.finish().unwrap().unwrap();
            assert_eq!(packed.offsets.is_some(), kind == GgufType::Q4_1);
            let numbers = numbers_of(&packed.codes, &packed.scales, packed.offsets.as_ref(), DType::F32);
            let numbers = numbers.unwrap().unwrap().to_f32().unwrap();
            for (at, number) in numbers.into_iter().enumerate() {
                let (row, block) = (1 - at / 64, at % 64 / 32);
                let block = &bytes[(2 * row + block) * size..][..size];
                assert_eq!(number, expected(kind, block, at % 32), "{kind:?} {at}");
            }
        }
    }
}
