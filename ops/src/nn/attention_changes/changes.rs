//! What a problem changes about scores and weights beside causal attention, for rules of executors that have no
//! addresses.

use fulgurite_runtime::executor::Claim;
use fulgurite_runtime::{DType, TensorMeta, refuse_unless};

use crate::prims::checks::is_generator;

/// Metas of what there is, for rules that have no addresses.
#[derive(Debug, Clone, Copy)]
pub struct ChangesMeta<'a> {
    /// Booleans, or numbers of the elements' type: [B, H, L, S], where every extent may be 1.
    pub mask: Option<&'a TensorMeta>,
    /// How many keys of each batch are seen: [B].
    pub lengths: Option<&'a TensorMeta>,
    /// What dropout draws by, i64[2], or i64[3] of a part.
    pub generator: Option<&'a TensorMeta>,
    /// Whether position i sees 0 to i.
    pub is_causal: bool,
    /// Position i sees that number of last ones alone.
    pub window: Option<i64>,
    /// Scores become `cap · tanh(score / cap)`.
    pub cap: Option<f64>,
    /// The probability of a weight to be dropped.
    pub dropout_p: f64,
}

impl ChangesMeta<'_> {
    /// Whether they are changes of a query [B, H, L, E] and key [B, H', S, E].
    pub fn fit(&self, query: &TensorMeta, key: &TensorMeta) -> Claim {
        let (q, k) = (query.shape(), key.shape());
        if let Some(mask) = self.mask {
            let scores = [q[0], q[1], q[2], k[2]];
            let spreads = mask.rank() == 4 && mask.shape().iter().zip(scores).all(|(own, of)| *own == 1 || *own == of);
            refuse_unless!(spreads, "mask is {mask}, which does not broadcast to {scores:?} from four dimensions");
            let marks = mask.dtype() == DType::Bool || mask.dtype() == query.dtype();
            refuse_unless!(marks, "mask is {}, takes bool and {}", mask.dtype(), query.dtype());
        }
        if let Some(lengths) = self.lengths {
            let fits = lengths.shape() == [q[0]] && lengths.dtype().is_integer();
            refuse_unless!(fits, "lengths is {lengths}, takes an integer for each of the batch, query is {query}");
        }
        if let Some(window) = self.window {
            refuse_unless!(self.is_causal, "window is {window} without is_causal");
            refuse_unless!((1..=i64::from(i32::MAX)).contains(&window), "window is {window}, takes 1 to {}", i32::MAX);
        }
        if let Some(cap) = self.cap {
            // Neither a score over the cap nor the cap times log2 e leaves the range of f32.
            refuse_unless!((1e-30..=1e30).contains(&cap), "cap is {cap}, takes 1e-30 to 1e30");
        }
        refuse_unless!((0.0..1.0).contains(&self.dropout_p), "dropout_p is {}, takes 0 to below 1", self.dropout_p);
        let drawn = self.dropout_p == 0.0 || self.generator.is_some_and(is_generator);
        refuse_unless!(drawn, "dropout_p is {}, takes a generator i64[2] or i64[3] with it", self.dropout_p);
        Ok(())
    }
}
