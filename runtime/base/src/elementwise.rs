//! Elementwise operators: what follows from a `scalar` rule, and numbers in the place of tensors.
//!
//! A number given for an `Operand` of such an operator takes the element type of the tensors given for the others, to
//! which it is rounded as `full` of that type rounds it, or that type's accumulator where the operator declares
//! `accumulates`: a factor of bf16 tensors is f32, as in PyTorch.

use std::borrow::Cow;

use fulgurite_kernels::DType;
use fulgurite_kernels::scalar::{Expr, ScalarNode, ScalarOp, ScalarProgram};
use ndarray::{ArrayD, IxDyn};

use crate::argument::{Arg, Attribute, AttributeType, Operand, Scalar};
use crate::arithmetic::Arithmetic;
use crate::failure::Failure;
use crate::meta::TensorMeta;
use crate::operator::{Class, OperatorDef, ParamDef, ParamKind, RuleSet};
use crate::reference::ReferenceTensor;

/// Whether a parameter only says where: its tensor is boolean, whatever the others are.
pub fn is_mask(param: &ParamDef) -> bool {
    matches!(
        param.kind,
        ParamKind::Tensor(Class::Boolean) | ParamKind::Optional(Class::Boolean) | ParamKind::List(Class::Boolean)
    )
}

/// The tensor that decides the element type, and its parameter: the first one that is no mask, or else the first,
/// unless a number stands for the one that would decide.
fn deciding<'a>(params: &'a [ParamDef], arguments: &'a [Arg<TensorMeta>]) -> Option<(&'a ParamDef, &'a TensorMeta)> {
    let named = || params.iter().zip(arguments);
    let tensor = |(param, argument): (&'a ParamDef, &'a Arg<TensorMeta>)| Some((param, argument.tensors().first()?));
    let found = named().filter(|(param, _)| !is_mask(param)).find_map(tensor);
    let numbers = params.iter().any(|param| matches!(param.kind, ParamKind::Operand(_)));
    found.or_else(|| named().find_map(tensor).filter(|_| !numbers))
}

/// Records a scalar rule: `rule` sees the arguments with a handle in place of each tensor and of each number that
/// stands for one.
pub fn record_scalar(
    params: &[ParamDef],
    arguments: &[Arg<TensorMeta>],
    rule: impl FnOnce(&[Arg<Expr>]) -> Vec<Expr>,
) -> (ScalarProgram, Vec<f64>) {
    let inputs = arguments.iter().map(|argument| argument.tensors().len()).sum();
    let dtype = deciding(params, arguments).map(|(_, meta)| meta.dtype());
    ScalarProgram::record_with_numbers(inputs, |handles| {
        let mut handles = handles.iter();
        let mut next = || *handles.next().unwrap_or_else(|| unreachable!("one for each tensor"));
        let seen = params.iter().zip(arguments).map(|(param, argument)| match (param.kind, argument, dtype) {
            (ParamKind::Operand(_), Arg::Attribute(Attribute::Scalar(number)), Some(dtype)) => {
                Arg::Tensor(Expr::number(param.number(number.to_f64(), dtype)))
            }
            _ => argument.map(|_| next()),
        });
        rule(&seen.collect::<Vec<_>>())
    })
}

/// The meta of an elementwise operator: its tensors have one shape, and but for masks one element type, which are those
/// of the results, except that a result which is a predicate is `bool`. Numbers are such that the element type holds
/// them.
pub fn scalar_meta(def: &'static OperatorDef, arguments: &[Arg<TensorMeta>]) -> Result<Vec<TensorMeta>, Failure> {
    let Some((deciding, meta)) = deciding(def.params, arguments) else {
        let operands = def.params.iter().filter(|param| matches!(param.kind, ParamKind::Operand(_)));
        let names: Vec<&str> = operands.map(|param| param.name).collect();
        let message = format!("{} are numbers, expected at least one tensor", names.join(" and "));
        return Err(Failure::new("NoTensor", message));
    };
    let first = deciding.name;
    for (param, argument) in def.params.iter().zip(arguments) {
        let name = param.name;
        for other in argument.tensors() {
            if other.shape() != meta.shape() {
                return Err(Failure::new(
                    "ShapeMismatch",
                    format!("{name} has shape {:?}, but {first} has shape {:?}", other.shape(), meta.shape()),
                ));
            }
            if other.dtype() != meta.dtype() && !is_mask(param) {
                return Err(Failure::new(
                    "DTypeMismatch",
                    format!("{name} has dtype {}, but {first} has dtype {}", other.dtype(), meta.dtype()),
                ));
            }
        }
        if let (ParamKind::Operand(_), Arg::Attribute(Attribute::Scalar(number))) = (param.kind, argument)
            && !number.stands_for(meta.dtype())
        {
            let (number, dtype) = (number.to_attribute(), meta.dtype());
            return Err(Failure::new("NumberDType", format!("{name} is {number}, which {dtype} cannot hold")));
        }
    }
    let Some(scalar) = Arithmetic::of(def).scalar else {
        return Err(Failure::new("NoMeta", "has neither meta nor scalar rule"));
    };
    let (program, _) = scalar(arguments);
    let dtype = |result: &u32| if is_predicate(&program, *result) { DType::Bool } else { meta.dtype() };
    Ok(program.results.iter().map(|result| TensorMeta::new(meta.shape(), dtype(result), meta.device())).collect())
}

fn is_predicate(program: &ScalarProgram, node: u32) -> bool {
    match program.nodes[node as usize] {
        ScalarNode::Apply(ScalarOp::Select, [_, yes, no]) => is_predicate(program, yes) && is_predicate(program, no),
        ScalarNode::Apply(op, _) => op.is_predicate(),
        _ => false,
    }
}

/// The arguments with each number that stands for a tensor as the operator rounds it beside tensors of `dtype`.
pub fn rounded_numbers<V: Clone>(params: &[ParamDef], arguments: &[Arg<V>], dtype: DType) -> Vec<Arg<V>> {
    let one = |(param, argument): (&ParamDef, &Arg<V>)| match (param.kind, argument) {
        (ParamKind::Operand(_), Arg::Attribute(Attribute::Scalar(Scalar::Float(number)))) if dtype.is_floating() => {
            Arg::Attribute(Attribute::Scalar(Scalar::Float(param.number(*number, dtype))))
        }
        _ => argument.clone(),
    };
    params.iter().zip(arguments).map(one).collect()
}

/// The arguments of a reference with each number that stands for a tensor as the operator rounds it, beside the type of
/// the first tensor. A caller of a reference rule does this first.
pub fn as_rounded(params: &[ParamDef], arguments: &[Arg<ReferenceTensor>]) -> Vec<Arg<ReferenceTensor>> {
    let mut tensors = params.iter().zip(arguments).filter(|(param, _)| !is_mask(param));
    let deciding = tensors.find_map(|(_, argument)| argument.tensors().first().map(|tensor| tensor.dtype()));
    deciding.map_or_else(|| arguments.to_vec(), |dtype| rounded_numbers(params, arguments, dtype))
}

/// For references of elementwise operators: the operands as tensors of one shape. A number, which was rounded as the
/// operator declares it, becomes a tensor filled with it, of the shape and element type of the first tensor. At least
/// one of the operands is a tensor.
pub fn filled<const N: usize>(operands: [&Operand<ReferenceTensor>; N]) -> [Cow<'_, ReferenceTensor>; N] {
    let first = operands.iter().find_map(|operand| operand.tensor());
    let (shape, dtype) = first.map_or((&[][..], DType::F64), |tensor| (tensor.shape(), tensor.dtype()));
    operands.map(|operand| match operand {
        Operand::Tensor(tensor) => Cow::Borrowed(tensor),
        Operand::Scalar(number) if dtype.is_integer() => {
            let values = ArrayD::from_elem(IxDyn(shape), number.to_i64());
            Cow::Owned(ReferenceTensor::from_integers(dtype, values))
        }
        Operand::Scalar(number) => {
            let values = ArrayD::from_elem(IxDyn(shape), number.to_f64());
            Cow::Owned(ReferenceTensor::from_floats(dtype, values))
        }
    })
}
