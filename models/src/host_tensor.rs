//! A tensor in plain memory: what checkpoints are read into and written from.

use fulgurite_kernels::DType;
use fulgurite_kernels::buffer::OutOfMemory;
use fulgurite_kernels::scratch::{try_room, try_zeroed};
use fulgurite_runtime::meta::TensorMeta;
use fulgurite_runtime::{Array, Device, Result as RuntimeResult};
use half::{bf16, f16};
use rayon::prelude::*;

use crate::tensor_bytes::TensorBytes;

/// Values that one thread takes at a time.
const BLOCK: usize = 1 << 16;

/// Element type, shape, and the values row-major as little-endian bytes: in memory of their own, or of a file that is
/// mapped, of which clones share one mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: TensorBytes,
}

/// Values that do not fit the requested tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostTensorError {
    /// Another number of bytes than shape and dtype need.
    #[error("a {dtype} tensor of shape {shape:?} cannot be made of {bytes} bytes")]
    Length {
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
        /// Number of bytes given.
        bytes: usize,
    },
    /// A byte of a `bool` tensor that is neither 0 nor 1.
    #[error("element {index} of a bool tensor is {value}, expected 0 or 1")]
    NotBool {
        /// Position, row-major.
        index: usize,
        /// The byte.
        value: u8,
    },
    /// Values requested in another type than the tensor's.
    #[error("the tensor holds {found}, not {expected}")]
    DType {
        /// The requested type.
        expected: DType,
        /// The type there is.
        found: DType,
    },
    /// A copy that there is no memory for.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
}

/// Bytes of a tensor of this shape; `None` where the number overflows.
pub(crate) fn byte_length(dtype: DType, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(dtype.size(), |product, &size| product.checked_mul(size))
}

macro_rules! typed {
    ($($make:ident, $read:ident, $type:ty, $dtype:ident;)*) => {$(
        #[doc = concat!("A tensor of `", stringify!($type), "` values, row-major.")]
        pub fn $make(shape: &[usize], values: &[$type]) -> Result<Self, HostTensorError> {
            let mut bytes = try_room(size_of_val(values))?;
            values.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            HostTensor::new(DType::$dtype, shape, bytes)
        }

        #[doc = concat!("The values of a `", stringify!($type), "` tensor, row-major.")]
        pub fn $read(&self) -> Result<Vec<$type>, HostTensorError> {
            if self.dtype != DType::$dtype {
                return Err(HostTensorError::DType { expected: DType::$dtype, found: self.dtype });
            }
            let (elements, _) = self.bytes().as_chunks();
            let mut values = try_room(elements.len())?;
            values.extend(elements.iter().map(|&bytes| <$type>::from_le_bytes(bytes)));
            Ok(values)
        }
    )*};
}

impl HostTensor {
    /// A tensor of given bytes (row-major, little-endian); their number must be that of shape and dtype.
    pub fn new(dtype: DType, shape: &[usize], bytes: Vec<u8>) -> Result<Self, HostTensorError> {
        HostTensor::of(dtype, shape, TensorBytes::Owned(bytes))
    }

    pub(crate) fn of(dtype: DType, shape: &[usize], bytes: TensorBytes) -> Result<Self, HostTensorError> {
        let values = bytes.as_slice();
        if byte_length(dtype, shape) != Some(values.len()) {
            return Err(HostTensorError::Length { dtype, shape: shape.to_vec(), bytes: values.len() });
        }
        if dtype == DType::Bool
            && let Some(index) = values.iter().position(|&byte| byte > 1)
        {
            return Err(HostTensorError::NotBool { index, value: values[index] });
        }
        Ok(HostTensor { dtype, shape: shape.to_vec(), bytes })
    }

    typed! {
        from_f32, to_f32, f32, F32;
        from_f64, to_f64, f64, F64;
        from_i32, to_i32, i32, I32;
        from_i64, to_i64, i64, I64;
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape, outermost dimension first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values, row-major, little-endian.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// The tensor as an array on the host: over the mapped file where its values are there, and aligned, and a copy
    /// otherwise.
    pub fn to_array(&self) -> RuntimeResult<Array> {
        let bytes = self.bytes();
        let TensorBytes::Mapped(file, _) = &self.bytes else {
            return Array::from_bytes(&self.shape, self.dtype, bytes);
        };
        if !bytes.as_ptr().addr().is_multiple_of(self.dtype.size()) {
            return Array::from_bytes(&self.shape, self.dtype, bytes);
        }
        let (start, file) = (bytes.as_ptr().cast_mut(), file.clone());
        let meta = TensorMeta::new(&self.shape, self.dtype, Device::CPU);
        // SAFETY: the bytes are those of shape and dtype, booleans were checked; the deleter keeps the file mapped, and
        // nobody writes to it.
        unsafe { Array::from_external(start, meta, None, move || drop(file), None) }
    }

    /// The first value that is infinite or no number, with its position, row-major; none in types that have no such
    /// values.
    pub fn first_nonfinite(&self) -> Option<(usize, f64)> {
        // A value is not finite where all bits of its exponent are set: no arithmetic on what may be hundreds of
        // millions of values. A block is looked through without a branch for each value, which is several times faster.
        fn find<const N: usize>(bytes: &[u8], finite: impl Fn([u8; N]) -> bool + Sync) -> Option<usize> {
            let bad = |block: &[[u8; N]]| block.iter().fold(false, |bad, value| bad | !finite(*value));
            let blocks = bytes.as_chunks::<N>().0.par_chunks(BLOCK);
            let block = blocks.position_first(bad)?;
            let place = bytes.as_chunks::<N>().0[block * BLOCK..].iter().position(|value| !finite(*value))?;
            Some(block * BLOCK + place)
        }
        let bytes = self.bytes();
        match self.dtype {
            DType::F16 => find(bytes, |b| u16::from_le_bytes(b) & 0x7C00 != 0x7C00)
                .map(|at| (at, f16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f64())),
            DType::BF16 => find(bytes, |b| u16::from_le_bytes(b) & 0x7F80 != 0x7F80)
                .map(|at| (at, bf16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f64())),
            DType::F32 => find(bytes, |b| u32::from_le_bytes(b) & 0x7F80_0000 != 0x7F80_0000)
                .map(|at| (at, f64::from(f32::from_le_bytes(bytes.as_chunks().0[at])))),
            DType::F64 => find(bytes, |b| f64::from_le_bytes(b).is_finite())
                .map(|at| (at, f64::from_le_bytes(bytes.as_chunks().0[at]))),
            // Of complex numbers the part that is not finite.
            DType::C64 => find(bytes, |b| f32::from_le_bytes(b).is_finite())
                .map(|at| (at / 2, f64::from(f32::from_le_bytes(bytes.as_chunks().0[at])))),
            DType::C128 => find(bytes, |b| f64::from_le_bytes(b).is_finite())
                .map(|at| (at / 2, f64::from_le_bytes(bytes.as_chunks().0[at]))),
            _ => None,
        }
    }

    /// Zeros of this type and shape.
    pub fn zeros_like(&self) -> Result<HostTensor, OutOfMemory> {
        let bytes = TensorBytes::Owned(try_zeroed(self.bytes().len())?);
        Ok(HostTensor { dtype: self.dtype, shape: self.shape.clone(), bytes })
    }

    /// The transpose of a matrix; `None` for other shapes.
    pub fn transposed(&self) -> Result<Option<HostTensor>, OutOfMemory> {
        let [rows, columns] = self.shape[..] else { return Ok(None) };
        let size = self.dtype.size();
        let mut bytes = try_room(self.bytes().len())?;
        for column in 0..columns {
            for row in 0..rows {
                let start = (row * columns + column) * size;
                bytes.extend_from_slice(&self.bytes()[start..start + size]);
            }
        }
        Ok(Some(HostTensor { dtype: self.dtype, shape: vec![columns, rows], bytes: TensorBytes::Owned(bytes) }))
    }

    /// The tensor in f32, which holds every f16 and bf16 exactly; `None` for other types than these three.
    pub fn widened(&self) -> Result<Option<HostTensor>, OutOfMemory> {
        self.converted(DType::F32)
    }

    /// A tensor of f32, bf16 or f16 in f32 or in bf16, rounded to the nearest, ties to even; `None` for other types.
    pub fn converted(&self, dtype: DType) -> Result<Option<HostTensor>, OutOfMemory> {
        fn each<const N: usize, const M: usize>(
            bytes: &[u8],
            value: impl Fn([u8; N]) -> [u8; M] + Sync,
        ) -> Result<Vec<u8>, OutOfMemory> {
            let values = bytes.as_chunks::<N>().0;
            let mut converted = try_zeroed(values.len() * M)?;
            let blocks = converted.as_chunks_mut::<M>().0.par_chunks_mut(BLOCK).zip(values.par_chunks(BLOCK));
            blocks.for_each(|(to, from)| to.iter_mut().zip(from).for_each(|(to, from)| *to = value(*from)));
            Ok(converted)
        }
        let bytes = self.bytes();
        let bytes = match (self.dtype, dtype) {
            (DType::F32, DType::F32) | (DType::BF16, DType::BF16) => return Ok(Some(self.clone())),
            (DType::F16, DType::F32) => each(bytes, |half| f16::from_le_bytes(half).to_f32().to_le_bytes()),
            (DType::BF16, DType::F32) => each(bytes, |half| bf16::from_le_bytes(half).to_f32().to_le_bytes()),
            (DType::F32, DType::BF16) => each(bytes, |wide| bf16::from_f32(f32::from_le_bytes(wide)).to_le_bytes()),
            (DType::F16, DType::BF16) => {
                each(bytes, |half| bf16::from_f32(f16::from_le_bytes(half).to_f32()).to_le_bytes())
            }
            _ => return Ok(None),
        };
        Ok(Some(HostTensor { dtype, shape: self.shape.clone(), bytes: TensorBytes::Owned(bytes?) }))
    }

    /// The values, row-major, little-endian; copied where they are those of a mapped file.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let tensor = HostTensor::from_f32(&[2, 1], &[1.5, f32::NAN]).unwrap();
        assert_eq!(tensor.to_f32().unwrap()[0], 1.5);
        assert!(tensor.to_f32().unwrap()[1].is_nan());
        assert_eq!(tensor.to_i64(), Err(HostTensorError::DType { expected: DType::I64, found: DType::F32 }));
        assert_eq!(HostTensor::from_i64(&[], &[-1]).unwrap().to_i64().unwrap(), [-1]);
        assert_eq!(HostTensor::from_f64(&[0, 9], &[]).unwrap().bytes(), [0u8; 0]);
    }

    #[test]
    fn matrices_turn_and_halves_widen() {
        let matrix = HostTensor::from_i32(&[2, 3], &[1, 2, 3, 4, 5, 6]).unwrap();
        assert_eq!(matrix.transposed().unwrap(), Some(HostTensor::from_i32(&[3, 2], &[1, 4, 2, 5, 3, 6]).unwrap()));
        assert_eq!(HostTensor::from_i32(&[1], &[1]).unwrap().transposed().unwrap(), None);
        assert_eq!(HostTensor::from_i32(&[0, 4], &[]).unwrap().transposed().unwrap().unwrap().shape(), [4, 0]);
        for (dtype, bits) in [(DType::F16, 0xC100_u16), (DType::BF16, 0xC020)] {
            let half = HostTensor::new(dtype, &[1], bits.to_le_bytes().to_vec()).unwrap();
            assert_eq!(half.widened().unwrap().unwrap().to_f32().unwrap(), [-2.5], "{dtype}");
        }
        assert_eq!(matrix.widened().unwrap(), None);
        // Ties go to the even number; more values than one thread takes.
        let values = [1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0, -1.0, f32::MAX];
        let many = HostTensor::from_f32(&[BLOCK, 4], &values.repeat(BLOCK)).unwrap();
        let rounded = many.converted(DType::BF16).unwrap().unwrap();
        assert_eq!(rounded.dtype(), DType::BF16);
        let expected = [1.0, 1.0 + 4.0 / 256.0, -1.0, f32::INFINITY];
        assert!(rounded.widened().unwrap().unwrap().to_f32().unwrap().chunks(4).all(|row| row == expected));
        assert_eq!(many.first_nonfinite(), None);
        assert_eq!(rounded.first_nonfinite(), Some((3, f64::INFINITY)));
        let mut values = values.repeat(BLOCK);
        values[2 * BLOCK + 5] = f32::NEG_INFINITY;
        let many = HostTensor::from_f32(&[4 * BLOCK], &values).unwrap();
        assert_eq!(many.first_nonfinite(), Some((2 * BLOCK + 5, f64::NEG_INFINITY)));
    }

    #[test]
    fn wrong_bytes_are_refused() {
        assert!(matches!(HostTensor::from_i32(&[2], &[1]), Err(HostTensorError::Length { bytes: 4, .. })));
        assert!(HostTensor::new(DType::F64, &[usize::MAX, 2], Vec::new()).is_err());
        assert_eq!(
            HostTensor::new(DType::Bool, &[2], vec![1, 2]),
            Err(HostTensorError::NotBool { index: 1, value: 2 })
        );
    }
}
