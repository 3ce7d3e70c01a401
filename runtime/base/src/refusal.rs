//! Why an executor leaves a call to others, or a rewrite leaves its match as it is.

/// Why an executor does not take a symbol, or a rewrite does not replace what its pattern matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The executor that refused, or the rewrite, if it prepares for no executor.
    pub executor: &'static str,
    /// Why, as a sentence.
    pub reason: String,
}

impl Refusal {
    /// The refusal of a call of `operator`, for a line of what the call became.
    pub fn inside(self, operator: &str) -> Self {
        Refusal { reason: format!("{operator}: {}", self.reason), ..self }
    }
}
