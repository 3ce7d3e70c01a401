//! Debug states of llm.c, computed by a model here and compared with each other, tensor by tensor.

use fulgurite_ops::prelude::Tensor;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::{Array, Device, Result, jit};

use crate::argument_error::wrong;
use crate::config::GptConfig;
use crate::dropout::Dropout;
use crate::head::mean_cross_entropy;
use crate::llmc::DebugState;
use crate::model::Model;
use crate::parameter_list::Parameters;
use crate::step::BatchTensors;
use crate::tokens::Tokens;
use crate::weights::Weights;

/// The first batch of a stream of tokens as llm.c's loader cuts it: the inputs [B, T] in their order, and the token
/// after each.
///
/// # Errors
/// A stream with fewer than B · T + 1 tokens, or one that cannot be read.
pub fn first_batch(tokens: &Tokens, rows: usize, context: usize) -> Result<[Vec<i32>; 2]> {
    let count = rows.checked_mul(context).filter(|count| (1..usize::MAX).contains(count));
    let count = count.ok_or_else(|| wrong("batch", format!("has {rows} sequences of {context} tokens")))?;
    let read = tokens.read(0, count + 1).map_err(|error| wrong("data", error))?;
    let ids: Vec<i32> = read.iter().map(|id| *id as i32).collect();
    Ok([ids[..count].to_vec(), ids[1..].to_vec()])
}

/// Logits, loss and gradients of a batch by a model: `inputs` and `targets` [B, T].
///
/// # Errors
/// A batch that the model does not take; a program's errors.
pub fn state_of(
    weights: &Weights,
    [rows, context]: [usize; 2],
    [inputs, targets]: [Vec<i32>; 2],
    device: Device,
    options: &Options,
) -> Result<DebugState> {
    let config: GptConfig = weights.config().clone();
    let array = |ids: &[i32]| {
        let ids: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
        Array::new([rows, context], &ids)?.to_device(device)
    };
    let batch = BatchTensors::of_tokens(array(&inputs)?, array(&targets)?);
    let step = jit(|(params, batch): (Parameters<Tensor>, BatchTensors<Tensor>)| {
        let ((loss, logits), gradients) = fulgurite_ops::prelude::value_and_grad_aux(params, |params| {
            let hidden = config.hidden(params, batch.inputs, &Dropout::none());
            let logits = config.head(params, hidden);
            (mean_cross_entropy(logits, batch.targets), logits)
        });
        (logits, loss, gradients)
    })
    .options(options.clone());
    let params = weights.placed(fulgurite_runtime::DType::F32, device)?;
    let (logits, loss, gradients): (Array, Array, Parameters<Array>) = step.call((params, batch))?;
    let gradients = Weights::of(weights.config(), &gradients)?;
    let logits = logits.to_vec::<f32>()?;
    let loss = loss.item()? as f32;
    Ok(DebugState { rows, context, inputs, targets, logits, loss, gradients })
}

/// How far two tensors of one name are from each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// `logits`, `loss`, or the parameter whose gradient it is.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The largest difference of two elements; infinite where one of the two is not finite.
    pub difference: f64,
    /// The magnitude of the largest expected element.
    pub largest: f64,
    /// The place of that difference, in row-major order.
    pub at: usize,
    /// The two elements there: found, expected.
    pub values: [f32; 2],
}

impl Comparison {
    fn of(name: &str, shape: &[usize], found: &[f32], expected: &[f32]) -> Comparison {
        let values = |at: usize| [found, expected].map(|of| of.get(at).copied().unwrap_or(f32::NAN));
        let mut all = Comparison {
            name: name.to_owned(),
            shape: shape.to_vec(),
            difference: 0.0,
            largest: expected.iter().fold(0.0, |most: f64, value| most.max(f64::from(value.abs()))),
            at: 0,
            values: values(0),
        };
        for at in 0..found.len().max(expected.len()) {
            let [found, expected] = values(at);
            let apart = (f64::from(found) - f64::from(expected)).abs();
            let apart = if apart.is_nan() { f64::INFINITY } else { apart };
            if apart > all.difference {
                (all.difference, all.at, all.values) = (apart, at, [found, expected]);
            }
        }
        all
    }

    /// Whether the difference is at most this part of the largest element.
    pub fn within(&self, tolerance: f64) -> bool {
        self.difference.is_finite() && self.difference <= tolerance * self.largest
    }

    /// The indices of the place of the largest difference.
    pub fn indices(&self) -> Vec<usize> {
        let mut rest = self.at;
        let mut indices: Vec<usize> = self
            .shape
            .iter()
            .rev()
            .map(|size| {
                let index = rest % (*size).max(1);
                rest /= (*size).max(1);
                index
            })
            .collect();
        indices.reverse();
        indices
    }
}

/// Compares two states of one batch: logits, loss, and the gradients in the order of the model's parameters.
pub fn compare(found: &DebugState, expected: &DebugState) -> Vec<Comparison> {
    let config = expected.gradients.config();
    let logits = [expected.rows, expected.context, config.vocabulary];
    let mut all = vec![
        Comparison::of("logits", &logits, &found.logits, &expected.logits),
        Comparison::of("loss", &[], &[found.loss], &[expected.loss]),
    ];
    let values = |of: &Weights, name: &str| of.tensor(name).and_then(|tensor| tensor.to_f32().ok()).unwrap_or_default();
    all.extend(config.parameters().iter().map(|parameter| {
        let [found, expected] = [found, expected].map(|state| values(&state.gradients, &parameter.name));
        Comparison::of(&parameter.name, &parameter.shape, &found, &expected)
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_is_never_within() {
        let compared = |found: &[f32], expected: &[f32]| Comparison::of("logits", &[2], found, expected).within(0.01);
        assert!(compared(&[1.0, 2.0], &[1.0, 2.01]));
        assert!(!compared(&[1.0, 2.0], &[1.0, 2.1]));
        assert!(!compared(&[f32::NAN, 1.0], &[f32::INFINITY, 1.0]));
        assert!(!compared(&[5.0, 1.0], &[f32::INFINITY, 1.0]));
        assert!(!compared(&[f32::NAN, 1.0], &[f32::NAN, 1.0]));
    }
}
