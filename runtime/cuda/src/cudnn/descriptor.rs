//! The library's descriptors, owned by values.

use super::super::error::Result;
use super::call::{alone, cudnn, functions};
use super::sys::{
    Attribute, ConvolutionMode, DataType, HeuristicsMode, Kind, PointwiseMode, RawDescriptor, ReductionOperator,
    ValueKind,
};
use std::ffi::{c_int, c_void};
use std::ptr;

/// A value that attributes take, in the form that the library reads.
pub(super) trait Value: Copy {
    /// What the library calls it.
    const KIND: ValueKind;
}

impl Value for i64 {
    const KIND: ValueKind = ValueKind::Int64;
}
impl Value for f32 {
    const KIND: ValueKind = ValueKind::Float;
}
impl Value for f64 {
    const KIND: ValueKind = ValueKind::Double;
}
/// One byte of 0 or 1, as C has it.
impl Value for bool {
    const KIND: ValueKind = ValueKind::Boolean;
}
impl Value for DataType {
    const KIND: ValueKind = ValueKind::DataType;
}
impl Value for ConvolutionMode {
    const KIND: ValueKind = ValueKind::ConvolutionMode;
}
impl Value for HeuristicsMode {
    const KIND: ValueKind = ValueKind::HeuristicsMode;
}
impl Value for PointwiseMode {
    const KIND: ValueKind = ValueKind::PointwiseMode;
}
impl Value for ReductionOperator {
    const KIND: ValueKind = ValueKind::ReductionOperator;
}

/// A descriptor. It is changed before it is finalized only, and read by any thread after that.
#[derive(Debug)]
pub(super) struct Descriptor {
    raw: RawDescriptor,
    kind: Kind,
}

// SAFETY: a descriptor is host memory that belongs to no thread.
unsafe impl Send for Descriptor {}
// SAFETY: methods that change it take it exclusively; the library only reads a finalized one.
unsafe impl Sync for Descriptor {}

impl Descriptor {
    /// An empty one.
    ///
    /// # Errors
    /// Without the library, or the library's own.
    pub(super) fn new(kind: Kind) -> Result<Descriptor> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        unsafe { cudnn!(cudnnBackendCreateDescriptor(kind as c_int, &mut raw)) }
            .map_err(|error| error.about(&format!("{kind:?}")))?;
        Ok(Descriptor { raw, kind })
    }

    /// Sets an attribute to one value.
    pub(super) fn set<T: Value>(&mut self, attribute: Attribute, value: T) -> Result<()> {
        self.set_all(attribute, &[value])
    }

    /// Sets an attribute to several values.
    pub(super) fn set_all<T: Value>(&mut self, attribute: Attribute, values: &[T]) -> Result<()> {
        // SAFETY: the values are of the kind that is named, and there are as many.
        unsafe { self.set_raw(attribute, T::KIND, values.len(), values.as_ptr().cast()) }
    }

    /// Sets an attribute to a descriptor, which may be dropped after this one is finalized: the library copies it.
    pub(super) fn refer(&mut self, attribute: Attribute, to: &Descriptor) -> Result<()> {
        self.refer_all(attribute, &[to])
    }

    /// As [`Self::refer`], to several descriptors.
    pub(super) fn refer_all(&mut self, attribute: Attribute, to: &[&Descriptor]) -> Result<()> {
        let raw: Vec<RawDescriptor> = to.iter().map(|descriptor| descriptor.raw).collect();
        // SAFETY: as many descriptors, all alive.
        unsafe { self.set_raw(attribute, ValueKind::Descriptor, raw.len(), raw.as_ptr().cast()) }
    }

    /// Sets an attribute.
    ///
    /// # Safety
    /// `values` must point to `count` values of the kind. Where they are addresses, the library may use what is there
    /// when the descriptor is executed.
    pub(super) unsafe fn set_raw(
        &mut self,
        attribute: Attribute,
        kind: ValueKind,
        count: usize,
        values: *const c_void,
    ) -> Result<()> {
        // SAFETY: the descriptor is alive; the rest is promised by the caller.
        unsafe { cudnn!(cudnnBackendSetAttribute(self.raw, attribute as c_int, kind as c_int, count as i64, values)) }
            .map_err(|error| error.about(&format!("{:?} of {:?}", attribute, self.kind)))
    }

    /// Ends its making.
    pub(super) fn finalize(&mut self) -> Result<()> {
        let _alone = alone();
        // SAFETY: the descriptor is alive.
        unsafe { cudnn!(cudnnBackendFinalize(self.raw)) }.map_err(|error| error.about(&format!("{:?}", self.kind)))
    }

    /// A number.
    pub(super) fn number(&self, attribute: Attribute) -> Result<i64> {
        let mut value = 0i64;
        // SAFETY: there is room for one value of the kind.
        unsafe { self.get_raw(attribute, ValueKind::Int64, 1, (&raw mut value).cast()) }?;
        Ok(value)
    }

    /// How many values an attribute has.
    pub(super) fn count(&self, attribute: Attribute, kind: ValueKind) -> Result<usize> {
        // SAFETY: nothing is written where there is no room.
        unsafe { self.get_raw(attribute, kind, 0, ptr::null_mut()) }
    }

    /// Has the library write an attribute into descriptors; the first ones that it wrote.
    pub(super) fn descriptors(&self, attribute: Attribute, mut into: Vec<Descriptor>) -> Result<Vec<Descriptor>> {
        let mut raw: Vec<RawDescriptor> = into.iter().map(|descriptor| descriptor.raw).collect();
        // SAFETY: the descriptors are alive and of the kind that the attribute has; there is room for as many.
        let written = unsafe { self.get_raw(attribute, ValueKind::Descriptor, raw.len(), raw.as_mut_ptr().cast()) }?;
        into.truncate(written);
        Ok(into)
    }

    /// Reads an attribute; how many values it has, or had been written.
    ///
    /// # Safety
    /// `values` must have room for `room` values of the kind.
    pub(super) unsafe fn get_raw(
        &self,
        attribute: Attribute,
        kind: ValueKind,
        room: usize,
        values: *mut c_void,
    ) -> Result<usize> {
        let mut count = 0i64;
        let _alone = alone();
        // SAFETY: the descriptor is alive; the rest is promised by the caller.
        unsafe {
            cudnn!(cudnnBackendGetAttribute(
                self.raw,
                attribute as c_int,
                kind as c_int,
                room as i64,
                &mut count,
                values
            ))
        }
        .map_err(|error| error.about(&format!("{:?} of {:?}", attribute, self.kind)))?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    pub(super) fn raw(&self) -> RawDescriptor {
        self.raw
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Ok(functions) = functions() {
            // SAFETY: made in `new`, and not used afterwards. It is host memory: it cannot fail in a way that matters.
            let _ = unsafe { (functions.cudnnBackendDestroyDescriptor)(self.raw) };
        }
    }
}
