//! Calls of operators, by themselves and by the roles that they play.

use super::decomposed::append_body;
use super::draws::tell_apart;
use super::tensor::Tensor;
use super::{add_call, set_pending, with_defaults, with_top};
use crate::argument::{Arg, Attribute, AttributeType, Scalar};
use crate::error::Place;
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, Role};
use crate::registry::role;

/// Calls an operator: checks the arguments, derives the results' metas and adds a line to the trace being built.
///
/// Two calls of random operators with one generator draw different numbers: from the second on they get a generator
/// that is made of it and of their number, in a line of its own. The numbers follow from the generator and from the
/// calls before in the traced function, whatever transforms make of the program.
#[track_caller]
pub fn call(def: &'static OperatorDef, arguments: Vec<Arg<Tensor>>) -> Vec<Tensor> {
    call_at(def, arguments, Place::caller())
}

/// As [`call`], for a call at `place`.
pub fn call_at(def: &'static OperatorDef, mut arguments: Vec<Arg<Tensor>>, place: Place) -> Vec<Tensor> {
    tell_apart(def, &mut arguments, place);
    add_call(def, arguments, place, append_body)
}

/// A call of the operator with a role, with its defaults behind the `leading` arguments.
#[track_caller]
pub fn call_role(which: Role, leading: Vec<Arg<Tensor>>) -> Tensor {
    let place = Place::caller();
    match role(which) {
        Ok(def) => {
            let results = call_at(def, with_defaults(def, leading), place);
            results[0]
        }
        Err(error) => {
            let poison = with_top(|builder| {
                builder.fail(error.clone());
                builder.poison()
            });
            poison.unwrap_or_else(|| {
                set_pending(error);
                Tensor::PLACEHOLDER
            })
        }
    }
}

/// A tensor like `tensor`, filled with `value`; both parts of complex numbers are.
#[track_caller]
pub fn full_like(tensor: Tensor, value: f64) -> Tensor {
    let meta = tensor.meta();
    if meta.dtype().is_complex() {
        let parts = full_like_meta(&meta.in_parts(), value);
        return call_role(Role::ViewAsComplex, vec![Arg::Tensor(parts)]);
    }
    full_like_meta(&meta, value)
}

#[track_caller]
fn full_like_meta(meta: &TensorMeta, value: f64) -> Tensor {
    let number = if meta.dtype().is_floating() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
    call_role(
        Role::Full,
        vec![
            Arg::Attribute(meta.shape().to_vec().to_attribute()),
            Arg::Attribute(Attribute::Scalar(number)),
            Arg::Attribute(Attribute::DType(meta.dtype())),
            Arg::Attribute(Attribute::Text(meta.device().to_string().into())),
        ],
    )
}

/// `tensor` in `dtype`.
#[track_caller]
pub fn convert(tensor: Tensor, dtype: fulgurite_kernels::DType) -> Tensor {
    call_role(Role::Convert, vec![Arg::Tensor(tensor), Arg::Attribute(Attribute::DType(dtype))])
}

/// Zeros like `tensor`.
#[track_caller]
pub fn zeros_like(tensor: Tensor) -> Tensor {
    full_like(tensor, 0.0)
}

/// `a + b` by the operator that plays [`Role::Add`].
#[track_caller]
pub fn accumulate(a: Tensor, b: Tensor) -> Tensor {
    call_role(Role::Add, vec![Arg::Tensor(a), Arg::Tensor(b)])
}
