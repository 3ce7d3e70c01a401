//! What traced code asks of a handle, and its arithmetic.

use std::ops::{Add, Div, Mul, Neg, Sub};

use fulgurite_kernels::DType;

use super::tensor::{POISON, Tensor};
use super::{Builder, TRACER, call_role, fail};
use crate::argument::{Arg, Attribute, Operand, Scalar};
use crate::meta::{Device, Shape, TensorMeta, normalize_dim};
use crate::operator::Role;
use crate::trace::ValueId;
use crate::tree::{Leaf, Tree};

impl Tensor {
    pub(super) fn value_in(&self, builder: &Builder) -> Option<ValueId> {
        (self.builder == builder.id && self.value != POISON).then_some(self.value)
    }

    fn known_meta(&self) -> Option<TensorMeta> {
        TRACER.with_borrow(|tracer| {
            let builder = tracer.stack.iter().rev().find(|builder| builder.id == self.builder)?;
            (self.value != POISON).then(|| builder.block.meta(self.value).clone())
        })
    }

    /// Shape, element type and device; a zero-dimensional f32 on the host if the handle is poisoned or stale.
    pub fn meta(&self) -> TensorMeta {
        self.known_meta().unwrap_or_else(|| TensorMeta::new([], DType::F32, Device::CPU))
    }

    /// Whether an earlier call failed, so that this handle is poisoned.
    pub fn is_poisoned(&self) -> bool {
        self.known_meta().is_none()
    }

    /// Extents. Those of a poisoned handle are one for every dimension.
    pub fn shape(&self) -> Shape {
        self.known_meta().map_or_else(Shape::poisoned, |meta| Shape::new(meta.shape().into()))
    }

    /// Extent of dimension `dim`, counted from the end if negative. Out of range is an error of the trace.
    #[track_caller]
    pub fn size(&self, dim: i64) -> usize {
        let Some(meta) = self.known_meta() else { return 1 };
        match normalize_dim(dim, meta.rank()) {
            Ok(_) if meta.rank() == 0 => 1,
            Ok(axis) => meta.shape()[axis],
            Err(failure) => {
                fail("size", failure);
                1
            }
        }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.meta().rank()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.meta().dtype()
    }

    /// Device.
    pub fn device(&self) -> Device {
        self.meta().device()
    }
}

impl From<Tensor> for Operand<Tensor> {
    fn from(tensor: Tensor) -> Self {
        Operand::Tensor(tensor)
    }
}

/// The second operand of arithmetic: a tensor or a number.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a tensor nor a number",
    label = "expected a tensor or a number",
    note = "the arguments of an operator, `with(...)`, become a call by `.call()` behind them"
)]
pub trait SecondOperand {
    /// The operand.
    fn operand(self) -> Operand<Tensor>;
}
#[diagnostic::do_not_recommend]
impl<T: Into<Operand<Tensor>>> SecondOperand for T {
    fn operand(self) -> Operand<Tensor> {
        self.into()
    }
}

macro_rules! arithmetic {
    ($($trait:ident $method:ident;)*) => {$(
        impl<T: SecondOperand> $trait<T> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: T) -> Tensor {
                call_role(Role::$trait, vec![Arg::Tensor(self), crate::expansion::from_operand(other.operand())])
            }
        }
        impl $trait<Tensor> for f64 {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                call_role(Role::$trait, vec![Arg::Attribute(Attribute::Scalar(Scalar::Float(self))), Arg::Tensor(other)])
            }
        }
    )*};
}
arithmetic! { Add add; Sub sub; Mul mul; Div div; }

impl Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        call_role(Role::Neg, vec![Arg::Tensor(self)])
    }
}

impl Leaf for Tensor {}
impl Tree for Tensor {
    type Leaf = Tensor;
    type With<U: Leaf> = U;
    fn visit<'a>(&'a self, path: &str, f: &mut dyn FnMut(&str, &'a Tensor)) {
        f(path, self);
    }
    fn map<U: Leaf>(self, f: &mut dyn FnMut(Tensor) -> U) -> U {
        f(self)
    }
}
