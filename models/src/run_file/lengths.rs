//! Batches and steps of a run, of which LitGPT's keys give products.

use super::RunFile;

/// How many sequences, tokens and steps a run has. `None` is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// Sequences in a batch.
    pub batch: Option<usize>,
    /// Batches of a step.
    pub accumulate: Option<usize>,
    /// Tokens in a sequence.
    pub context: Option<usize>,
    /// Optimizer steps.
    pub steps: Option<u64>,
    /// Ranks, each with batches of its own; one where it is not known.
    pub ranks: Option<usize>,
}

/// What ranks are called in the file.
const DEVICES: &str = "devices";

impl RunFile {
    /// `given`, and what the file says of the rest: `global_batch_size` and `max_tokens` are divided by what a run has
    /// after `given`, not by what the file says, and both are those of all ranks. Where neither says how long a
    /// sequence is, it has the model's own context, `of_model`.
    ///
    /// # Errors
    /// A `global_batch_size` that is no multiple of the batch, `max_tokens` of sequences whose length is not known.
    pub fn lengths(&self, given: Lengths, of_model: impl FnOnce() -> Option<usize>) -> Result<Lengths, String> {
        let ranks = given.ranks.or(self.devices.map(usize::from)).unwrap_or(1);
        let (batch, accumulate) = self.batches(given.batch.or(self.micro_batch), given.accumulate, ranks)?;
        let context = given.context.or(self.context);
        let of_tokens = |tokens: f64| {
            let sequences = batch.map(|batch| batch as f64 * accumulate.unwrap_or(1) as f64 * ranks as f64);
            let tokens_of_step =
                sequences.zip(context.or_else(of_model)).map(|(sequences, length)| sequences * length as f64);
            let tokens_of_step = tokens_of_step.filter(|tokens| *tokens > 0.0);
            tokens_of_step.map(|own| (tokens / own).ceil() as u64).ok_or_else(|| {
                "max_tokens needs global_batch_size beside it and a model whose context is known, or max_steps"
                    .to_owned()
            })
        };
        let steps = match (given.steps.or(self.steps), self.max_tokens) {
            (None, Some(tokens)) => Some(of_tokens(tokens)?),
            (steps, _) => steps,
        };
        Ok(Lengths { batch, accumulate, context, steps, ranks: given.ranks })
    }

    /// Sequences in a batch and batches of a step on each rank, of which `global_batch_size` is the product where one
    /// is not given.
    fn batches(
        &self,
        batch: Option<usize>,
        accumulate: Option<usize>,
        ranks: usize,
    ) -> Result<(Option<usize>, Option<usize>), String> {
        let over = |whole: usize, part: usize, what: &str| match part != 0 && whole.is_multiple_of(part) {
            true => Ok(Some(whole / part)),
            false => {
                let each = if ranks > 1 && what != DEVICES { " of each device" } else { "" };
                Err(format!("global_batch_size, {whole}{each}, is no multiple of the {what}, {part}"))
            }
        };
        let of_rank = |whole| match batch.zip(accumulate) {
            // Nothing is divided.
            Some(_) => Ok(None),
            None => over(whole, ranks, DEVICES),
        };
        let of_rank = self.global_batch.map(of_rank).transpose()?.flatten();
        Ok(match (of_rank, batch, accumulate) {
            (None, ..) | (_, Some(_), Some(_)) => (batch, accumulate),
            (Some(whole), Some(batch), None) => (Some(batch), over(whole, batch, "sequences in a batch")?),
            (Some(whole), None, Some(count)) => (over(whole, count, "batches of a step")?, Some(count)),
            (Some(whole), None, None) => (Some(whole), Some(1)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_wins_before_anything_is_divided() {
        let file = RunFile {
            global_batch: Some(64),
            micro_batch: Some(4),
            context: Some(128),
            max_tokens: Some(1e6),
            ..RunFile::default()
        };
        let lengths = |batch, accumulate, context, steps| Lengths { batch, accumulate, context, steps, ranks: None };
        let own = lengths(Some(4), Some(16), Some(128), Some(123));
        assert_eq!(file.lengths(Lengths::default(), || None), Ok(own));
        for (given, expected) in [
            // The step keeps its sequences where the batch is another, and the run its tokens.
            (lengths(Some(16), None, None, None), lengths(Some(16), Some(4), Some(128), Some(123))),
            (lengths(None, Some(1), None, None), lengths(Some(4), Some(1), Some(128), Some(1954))),
            (lengths(None, None, Some(32), None), lengths(Some(4), Some(16), Some(32), Some(489))),
            (lengths(Some(2), Some(2), Some(8), Some(7)), lengths(Some(2), Some(2), Some(8), Some(7))),
        ] {
            assert_eq!(file.lengths(given, || None), Ok(expected), "{given:?}");
        }
        let whole = RunFile { global_batch: Some(64), ..RunFile::default() };
        let four = lengths(None, Some(4), None, None);
        assert_eq!(whole.lengths(four, || None), Ok(lengths(Some(16), Some(4), None, None)));
        assert_eq!(whole.lengths(Lengths::default(), || None), Ok(lengths(Some(64), Some(1), None, None)));
        assert_eq!(RunFile::default().lengths(Lengths::default(), || None), Ok(Lengths::default()));
    }

    #[test]
    fn ranks_have_their_parts_of_a_step() {
        let file = RunFile {
            global_batch: Some(64),
            micro_batch: Some(4),
            context: Some(128),
            max_tokens: Some(1e6),
            devices: Some(2),
            ..RunFile::default()
        };
        let of = |given| file.lengths(given, || None).map(|own| (own.batch, own.accumulate, own.steps));
        assert_eq!(of(Lengths::default()), Ok((Some(4), Some(8), Some(123))));
        let four = Lengths { ranks: Some(4), ..Lengths::default() };
        assert_eq!(of(four), Ok((Some(4), Some(4), Some(123))));
        assert_eq!(of(Lengths { batch: Some(4), accumulate: Some(1), ..four }), Ok((Some(4), Some(1), Some(489))));
        let refused = |ranks| of(Lengths { ranks: Some(ranks), ..four }).unwrap_err();
        assert_eq!(refused(3), "global_batch_size, 64, is no multiple of the devices, 3");
        assert_eq!(refused(32), "global_batch_size, 2 of each device, is no multiple of the sequences in a batch, 4");
    }

    #[test]
    fn what_does_not_divide_is_told() {
        let file = RunFile { global_batch: Some(10), micro_batch: Some(4), ..RunFile::default() };
        let message = "global_batch_size, 10, is no multiple of the sequences in a batch, 4";
        assert_eq!(file.lengths(Lengths::default(), || None), Err(message.to_owned()));
        for batch in [0, 3] {
            let given = Lengths { batch: Some(batch), ..Lengths::default() };
            assert!(file.lengths(given, || None).unwrap_err().contains("is no multiple"));
        }
        let whole = RunFile { global_batch: Some(10), ..RunFile::default() };
        for accumulate in [0, 3] {
            let given = Lengths { accumulate: Some(accumulate), ..Lengths::default() };
            assert!(whole.lengths(given, || None).unwrap_err().contains("no multiple of the batches of a step"));
        }
        let given = Lengths { batch: Some(5), ..Lengths::default() };
        assert_eq!(file.lengths(given, || None).unwrap().accumulate, Some(2));
        let tokens = RunFile { max_tokens: Some(1e6), ..RunFile::default() };
        assert!(tokens.lengths(given, || None).unwrap_err().contains("max_tokens needs global_batch_size beside it"));
        assert_eq!(tokens.lengths(Lengths { steps: Some(3), ..given }, || None).unwrap().steps, Some(3));
        // As LitGPT has it, sequences are as long as the model's context where nothing says so.
        let lengths = tokens.lengths(given, || Some(100)).unwrap();
        assert_eq!((lengths.steps, lengths.context), (Some(2_000), None));
    }
}
