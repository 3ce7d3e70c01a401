//! Tensors as plans see them: with places instead of addresses.

use std::ops::Deref;

use super::command::{Address, Parameter};
use crate::meta::TensorMeta;

/// A tensor that a device kernel reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTensor {
    /// Shape, element type, device.
    pub meta: TensorMeta,
    /// Strides in elements.
    pub strides: Vec<isize>,
    /// Of its first element.
    pub address: Address,
    /// The address is a multiple of this number of bytes, a power of two.
    pub alignment: usize,
}

impl Deref for DeviceTensor {
    type Target = TensorMeta;
    fn deref(&self) -> &TensorMeta {
        &self.meta
    }
}

impl DeviceTensor {
    /// Whether the elements are in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        fulgurite_kernels::view::is_contiguous(self.meta.shape(), &self.strides)
    }
}

impl From<&DeviceTensor> for Parameter {
    fn from(operand: &DeviceTensor) -> Parameter {
        Parameter::Address(operand.address)
    }
}
