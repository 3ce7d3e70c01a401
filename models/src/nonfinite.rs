//! Values that are infinite or no number: where they are, in words.

use std::collections::BTreeMap;

use crate::host_tensor::HostTensor;

/// A value of a tensor that is infinite or no number.
#[derive(Debug, Clone, PartialEq)]
pub struct NonFinite {
    /// The tensor.
    pub name: String,
    /// The value's position, row-major.
    pub index: usize,
    /// The value: infinite or NaN.
    pub value: f64,
}

impl NonFinite {
    /// The first one of these tensors, in the order of their names.
    pub fn among(tensors: &BTreeMap<String, HostTensor>) -> Option<NonFinite> {
        tensors.iter().find_map(|(name, tensor)| NonFinite::of(name, tensor))
    }

    /// The first one of this tensor.
    pub fn of(name: &str, tensor: &HostTensor) -> Option<NonFinite> {
        tensor.first_nonfinite().map(|(index, value)| NonFinite { name: name.to_owned(), index, value })
    }
}

impl std::fmt::Display for NonFinite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let NonFinite { name, index, value } = self;
        write!(f, "tensor '{name}' is {value} at element {index}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_kernels::DType;

    #[test]
    fn every_floating_type_is_looked_through() {
        let bad = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let f32s = |value: f64| HostTensor::from_f32(&[3], &[0.0, f32::MAX, value as f32]).unwrap();
        let f64s = |value: f64| HostTensor::from_f64(&[3], &[f64::MIN, -0.0, value]).unwrap();
        let halves = |dtype, bytes: [u8; 2]| HostTensor::new(dtype, &[2], [[0, 1], bytes].concat()).unwrap();
        for value in bad {
            for tensor in [f32s(value), f64s(value)] {
                let found = NonFinite::of("x", &tensor).unwrap();
                assert_eq!((found.index, found.value.to_bits()), (2, value.to_bits()));
            }
        }
        for (dtype, infinity, largest) in [(DType::F16, 0x7C00_u16, 0x7BFF_u16), (DType::BF16, 0x7F80, 0x7F7F)] {
            assert_eq!(halves(dtype, infinity.to_le_bytes()).first_nonfinite(), Some((1, f64::INFINITY)));
            assert!(halves(dtype, (infinity | 0x8001).to_le_bytes()).first_nonfinite().unwrap().1.is_nan());
            assert_eq!(halves(dtype, largest.to_le_bytes()).first_nonfinite(), None);
        }
        assert_eq!(f32s(1e38).first_nonfinite(), None);
        assert_eq!(HostTensor::from_i64(&[1], &[-1]).unwrap().first_nonfinite(), None);
        let found = NonFinite::of("h.0.w", &f32s(f64::NAN)).unwrap();
        assert_eq!(found.to_string(), "tensor 'h.0.w' is NaN at element 2");
    }
}
