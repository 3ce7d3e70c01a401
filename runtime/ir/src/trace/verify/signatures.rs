//! Arguments, results and bodies against what is called.

use super::super::{Block, BoundSymbol, Callee, ValueId};
use super::verifier::{Check, Verifier, count, name};
use crate::argument::Arg;
use crate::error::Error;
use crate::meta::TensorMeta;
use crate::operator::OperatorDef;
use crate::tracer::{InferError, infer};

/// Why a line does not fit what it calls.
pub(super) enum Wrong {
    Here(String),
    Inside(Error),
}

impl Verifier<'_> {
    /// Arguments and results against what is called. Every operand is known to be in range.
    pub(super) fn signature(block: &Block, symbol: &BoundSymbol) -> Result<(), Wrong> {
        let only_tensors = symbol.arguments.iter().all(|argument| matches!(argument, Arg::Tensor(_) | Arg::List(_)));
        if symbol.operator().is_none() && !only_tensors {
            return Err(Wrong::Here(format!("arguments of '{}' are tensors", symbol.name())));
        }
        let expected: Vec<TensorMeta> = match &symbol.callee {
            Callee::Operator(def) => Self::infer(def, block, symbol)?,
            Callee::Delete => {
                if symbol.arguments.is_empty() || symbol.body.is_some() || symbol.executor.is_some() {
                    return Err(Wrong::Here("'del' takes values, and nobody runs it".into()));
                }
                Vec::new()
            }
            Callee::ValueAndGrad { wrt } => {
                let Some(body) = &symbol.body else { return Err(Wrong::Here("value_and_grad lacks its body".into())) };
                // The loss, and auxiliary outputs.
                let given = body.results.iter().map(|id| body.values.get(id.index()).map(|value| value.meta.clone()));
                let Some(mut metas) = given.collect::<Option<Vec<TensorMeta>>>() else {
                    return Err(Wrong::Here("the body gives a value that it does not have".into()));
                };
                let Some(loss) = metas.first() else {
                    return Err(Wrong::Here("the body gives nothing, expected the loss first".into()));
                };
                if loss.rank() != 0 || !loss.dtype().is_floating() {
                    return Err(Wrong::Here(format!(
                        "the body gives {loss}, expected a zero-dimensional floating-point tensor"
                    )));
                }
                for (i, index) in wrt.iter().enumerate() {
                    let value = body.parameters.get(*index).and_then(|id| body.values.get(id.index()));
                    let Some(value) = value else {
                        let has = count(body.parameters.len(), "parameter");
                        return Err(Wrong::Here(format!("wrt names parameter {index}, the body has {has}")));
                    };
                    if wrt[..i].contains(index) {
                        return Err(Wrong::Here(format!("wrt names parameter {index} twice")));
                    }
                    if !value.meta.dtype().is_differentiable() {
                        let message = format!("no gradient with respect to '{}': it is {}", value.name, value.meta);
                        return Err(Wrong::Here(message));
                    }
                    metas.push(value.meta.clone());
                }
                metas
            }
            Callee::Region { .. } | Callee::Checkpoint => {
                let lacking = || Wrong::Here(format!("{} lacks its body", symbol.name()));
                let body = symbol.body.as_ref().ok_or_else(lacking)?;
                let metas = body.results.iter().map(|id| body.values.get(id.index()).map(|value| value.meta.clone()));
                match metas.collect::<Option<_>>() {
                    Some(metas) => metas,
                    None => return Err(Wrong::Here("the body gives a value that it does not have".into())),
                }
            }
        };
        if expected.len() != symbol.results.len() {
            let named = symbol.results.len();
            let message =
                format!("{} returns {}, the line names {named}", symbol.name(), count(expected.len(), "tensor"));
            return Err(Wrong::Here(message));
        }
        for (id, expected) in symbol.results.iter().zip(&expected) {
            if block.meta(*id) != expected {
                let message =
                    format!("{} is {}, {} gives {expected}", name(block, *id), block.meta(*id), symbol.name());
                return Err(Wrong::Here(message));
            }
        }
        Ok(())
    }

    fn infer(def: &'static OperatorDef, block: &Block, symbol: &BoundSymbol) -> Result<Vec<TensorMeta>, Wrong> {
        match infer(def, &block.argument_metas(symbol)) {
            Ok((metas, _)) => Ok(metas),
            Err(InferError::Failure(failure)) => Err(Wrong::Here(failure.message)),
            Err(InferError::Inner(error)) => Err(Wrong::Inside(error)),
        }
    }

    /// A body's parameters are the operands, and its results the symbol's.
    pub(super) fn body(block: &Block, symbol: &BoundSymbol, body: &Block) -> Check {
        let operands: Vec<ValueId> = symbol.operands().collect();
        if operands.len() != body.parameters.len() {
            let (takes, gets) = (count(body.parameters.len(), "parameter"), count(operands.len(), "tensor"));
            return Err(format!("its body takes {takes}, the call has {gets}"));
        }
        for (operand, parameter) in operands.iter().zip(&body.parameters) {
            let meta = body.values.get(parameter.index()).map(|value| &value.meta);
            if meta != Some(block.meta(*operand)) {
                let meta = meta.map_or_else(|| "no value".to_owned(), ToString::to_string);
                return Err(format!(
                    "its body's parameter {} is {meta}, the argument {} is {}",
                    name(body, *parameter),
                    name(block, *operand),
                    block.meta(*operand)
                ));
            }
        }
        if matches!(symbol.callee, Callee::ValueAndGrad { .. }) {
            return Ok(());
        }
        if body.results.len() != symbol.results.len() {
            let (gives, names) = (count(body.results.len(), "result"), symbol.results.len());
            return Err(format!("its body gives {gives}, the line names {names}"));
        }
        for (inner, outer) in body.results.iter().zip(&symbol.results) {
            let meta = body.values.get(inner.index()).map(|value| &value.meta);
            if meta != Some(block.meta(*outer)) {
                let meta = meta.map_or_else(|| "no value".to_owned(), ToString::to_string);
                return Err(format!(
                    "its body gives {meta} for {}, which is {}",
                    name(block, *outer),
                    block.meta(*outer)
                ));
            }
        }
        Ok(())
    }
}
