//! Checkpoints: their lines are run without their pullbacks, and again, with them, where their cotangents arrive.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Back, Key, Recorded, Tape, Tracked, add};
use crate::argument::Arg;
use crate::choices::Ranking;
use crate::error::Result;
use crate::trace::Block;
use crate::tracer::{self, Tensor};
use crate::transforms::autodiff::names::with_names;
use crate::transforms::autodiff::supplied::BACKWARD;

/// What the names of lines begin with that are computed again.
const AGAIN: &str = "grad.again.";

impl Tape<'_> {
    /// Writes the lines of a body in place of the line that defines `names`, whose operands are `inputs`.
    pub(in super::super) fn inlined(
        &mut self,
        body: &Block,
        inputs: &[Tracked],
        names: &[&Arc<str>],
    ) -> Result<Vec<Tracked>> {
        let prefix = names.first().map_or("checkpoint", |name| name);
        let results = self.lines(body, inputs, prefix)?;
        for (result, name) in results.iter().zip(names) {
            if !inputs.iter().any(|input| input.handle == result.handle) {
                tracer::rename(result.handle, name);
            }
        }
        Ok(results)
    }

    /// Writes the lines of a body, named below `prefix`.
    fn lines(&mut self, body: &Block, inputs: &[Tracked], prefix: &str) -> Result<Vec<Tracked>> {
        let body = with_names(body, |name| tracer::free_name(&format!("{prefix}.{name}")));
        let mut known = vec![None; body.values.len()];
        for (parameter, input) in body.parameters.iter().zip(inputs) {
            known[parameter.index()] = Some(*input);
        }
        self.forward(&body, &mut known, "", None)?;
        let defined = body.results.iter().map(|id| known[id.index()].unwrap_or_else(|| unreachable!("defined")));
        Ok(defined.collect())
    }

    /// Runs a checkpoint forward. It is differentiated as one line.
    pub(super) fn checkpoint(
        &mut self,
        body: &Arc<Block>,
        operands: Vec<Arg<Tracked>>,
        names: &[Arc<str>],
    ) -> Result<Vec<Tracked>> {
        let inputs: Vec<Tracked> = operands.iter().flat_map(Arg::tensors).copied().collect();
        let before = self.recorded.len();
        let inner = self.inlined(body, &inputs, &names.iter().collect::<Vec<_>>())?;
        // The lines are those of a program without the checkpoint, so that their bits are the same; what only the
        // pullbacks read is dead now.
        self.recorded.truncate(before);
        let results: Vec<Tracked> = inner.iter().map(|result| self.track(result.handle, result.varied)).collect();
        if results.iter().any(|result| result.varied) {
            let name = names.first().map_or("checkpoint", |name| name);
            self.recorded.push(Recorded {
                name: name.strip_prefix(self.again).unwrap_or(name).to_owned(),
                operator: "checkpoint".to_owned(),
                // Its lines have places of their own.
                place: None,
                results: results.clone(),
                operands,
                back: Back::Again(body.clone()),
            });
        }
        Ok(results)
    }

    /// Computes a checkpoint again, called `name`, and adds its gradients to the cotangents of its operands; `arrived`
    /// are the cotangents of its results.
    pub(super) fn gradients(
        ranking: &Ranking<'_>,
        body: &Block,
        name: &str,
        operands: &[Tracked],
        arrived: &[Option<Tensor>],
        cotangents: &mut FxHashMap<Key, Tensor>,
    ) -> Result<()> {
        // The sources of the rules were recorded at the forward lines.
        let mut rules = Vec::new();
        let mut tape = Tape { again: AGAIN, ..Tape::new(ranking, &mut rules) };
        let mut own: FxHashMap<Key, Tracked> = FxHashMap::default();
        let inputs: Vec<Tracked> = operands
            .iter()
            .map(|operand| *own.entry(operand.key).or_insert_with(|| tape.track(operand.handle, operand.varied)))
            .collect();
        let outputs = tracer::recomputed(|| tape.lines(body, &inputs, &format!("{AGAIN}{name}")))?;
        // What arrived at an operand before is the first term of its sum, as it is without the checkpoint: in another
        // order of the terms the sum has other bits.
        let before = operands.iter().zip(&inputs);
        let mut inner: FxHashMap<Key, Tensor> =
            before.filter_map(|(operand, input)| Some((input.key, *cotangents.get(&operand.key)?))).collect();
        for (output, arrived) in outputs.iter().zip(arrived) {
            if let Some(cotangent) = arrived {
                add(&mut inner, output.key, *cotangent, &format!("{BACKWARD}.{name}"));
            }
        }
        for (operand, gradient) in operands.iter().zip(tape.backward(inner, &inputs)?) {
            gradient.map(|gradient| cotangents.insert(operand.key, gradient));
        }
        Ok(())
    }
}
