//! Why an executor leaves a call to others.

/// Why an executor does not take a symbol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    /// The executor that refused.
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
