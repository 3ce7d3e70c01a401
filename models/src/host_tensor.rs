//! A tensor in plain memory: what checkpoints are read into and written from.

use fulgurite_kernels::DType;
use half::{bf16, f16};

/// Element type, shape, and the values row-major as little-endian bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTensor {
    dtype: DType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
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
        /// Bytes given.
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
}

/// Bytes of a tensor of this shape; `None` where the number overflows.
pub(crate) fn byte_length(dtype: DType, shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(dtype.size(), |product, &size| product.checked_mul(size))
}

macro_rules! typed {
    ($($make:ident, $read:ident, $type:ty, $dtype:ident;)*) => {$(
        #[doc = concat!("A tensor of `", stringify!($type), "` values, row-major.")]
        pub fn $make(shape: &[usize], values: &[$type]) -> Result<Self, HostTensorError> {
            HostTensor::new(DType::$dtype, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        }

        #[doc = concat!("The values of a `", stringify!($type), "` tensor, row-major.")]
        pub fn $read(&self) -> Result<Vec<$type>, HostTensorError> {
            if self.dtype != DType::$dtype {
                return Err(HostTensorError::DType { expected: DType::$dtype, found: self.dtype });
            }
            let (values, _) = self.bytes.as_chunks();
            Ok(values.iter().map(|&bytes| <$type>::from_le_bytes(bytes)).collect())
        }
    )*};
}

impl HostTensor {
    /// A tensor of given bytes (row-major, little-endian); their number must be that of shape and dtype.
    pub fn new(dtype: DType, shape: &[usize], bytes: Vec<u8>) -> Result<Self, HostTensorError> {
        if byte_length(dtype, shape) != Some(bytes.len()) {
            return Err(HostTensorError::Length { dtype, shape: shape.to_vec(), bytes: bytes.len() });
        }
        if dtype == DType::Bool
            && let Some(index) = bytes.iter().position(|&byte| byte > 1)
        {
            return Err(HostTensorError::NotBool { index, value: bytes[index] });
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
        &self.bytes
    }

    /// The first value that is infinite or no number, with its position, row-major; none in types that have no such
    /// values.
    pub fn first_nonfinite(&self) -> Option<(usize, f64)> {
        // A value is not finite where all bits of its exponent are set: no arithmetic on what may be hundreds of
        // millions of values.
        fn find<const N: usize>(bytes: &[u8], finite: impl Fn([u8; N]) -> bool) -> Option<usize> {
            bytes.as_chunks::<N>().0.iter().position(|value| !finite(*value))
        }
        let bytes = &self.bytes[..];
        match self.dtype {
            DType::F16 => find(bytes, |b| u16::from_le_bytes(b) & 0x7C00 != 0x7C00)
                .map(|at| (at, f16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f64())),
            DType::BF16 => find(bytes, |b| u16::from_le_bytes(b) & 0x7F80 != 0x7F80)
                .map(|at| (at, bf16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]).to_f64())),
            DType::F32 => find(bytes, |b| u32::from_le_bytes(b) & 0x7F80_0000 != 0x7F80_0000)
                .map(|at| (at, f64::from(f32::from_le_bytes(bytes.as_chunks().0[at])))),
            DType::F64 => find(bytes, |b| f64::from_le_bytes(b).is_finite())
                .map(|at| (at, f64::from_le_bytes(bytes.as_chunks().0[at]))),
            _ => None,
        }
    }

    /// Zeros of this type and shape.
    pub fn zeros_like(&self) -> HostTensor {
        HostTensor { dtype: self.dtype, shape: self.shape.clone(), bytes: vec![0; self.bytes.len()] }
    }

    /// The transpose of a matrix; `None` for other shapes.
    pub fn transposed(&self) -> Option<HostTensor> {
        let [rows, columns] = self.shape[..] else { return None };
        let size = self.dtype.size();
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for column in 0..columns {
            for row in 0..rows {
                let start = (row * columns + column) * size;
                bytes.extend_from_slice(&self.bytes[start..start + size]);
            }
        }
        Some(HostTensor { dtype: self.dtype, shape: vec![columns, rows], bytes })
    }

    /// The tensor in f32, which holds every f16 and bf16 exactly; `None` for other types than these three.
    pub fn widened(&self) -> Option<HostTensor> {
        fn wide(bytes: &[u8], value: fn([u8; 2]) -> f32) -> Vec<u8> {
            bytes.as_chunks().0.iter().flat_map(|&half| value(half).to_le_bytes()).collect()
        }
        let bytes = match self.dtype {
            DType::F32 => self.bytes.clone(),
            DType::F16 => wide(&self.bytes, |half| f16::from_le_bytes(half).to_f32()),
            DType::BF16 => wide(&self.bytes, |half| bf16::from_le_bytes(half).to_f32()),
            _ => return None,
        };
        Some(HostTensor { dtype: DType::F32, shape: self.shape.clone(), bytes })
    }

    /// The values, row-major, little-endian, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
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
        assert_eq!(matrix.transposed(), Some(HostTensor::from_i32(&[3, 2], &[1, 4, 2, 5, 3, 6]).unwrap()));
        assert_eq!(HostTensor::from_i32(&[1], &[1]).unwrap().transposed(), None);
        assert_eq!(HostTensor::from_i32(&[0, 4], &[]).unwrap().transposed().unwrap().shape(), [4, 0]);
        for (dtype, bits) in [(DType::F16, 0xC100_u16), (DType::BF16, 0xC020)] {
            let half = HostTensor::new(dtype, &[1], bits.to_le_bytes().to_vec()).unwrap();
            assert_eq!(half.widened().unwrap().to_f32().unwrap(), [-2.5], "{dtype}");
        }
        assert_eq!(matrix.widened(), None);
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
