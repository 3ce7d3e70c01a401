//! How exactly executors compute products.

/// The precision of an executor: a fact of it, from which the tolerances of its generated tests follow. Greater values
/// are less precise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Precision {
    /// IEEE arithmetic in the element type, or in f32 for those of 16 bits.
    #[default]
    Exact,
    /// Operands of f32 are rounded to TF32, 10 bits of fraction, before they are multiplied.
    Tf32,
    /// Operands are rounded to formats of 8 bits before they are multiplied: to E4M3, 3 bits of fraction, and
    /// gradients that come in to E5M2, 2 bits.
    Fp8,
}

impl Precision {
    /// The name in declarations and messages.
    pub fn name(self) -> &'static str {
        match self {
            Precision::Exact => "exact",
            Precision::Tf32 => "tf32",
            Precision::Fp8 => "fp8",
        }
    }

    /// The precision of that name.
    pub fn named(name: &str) -> Option<Precision> {
        [Precision::Exact, Precision::Tf32, Precision::Fp8].into_iter().find(|precision| precision.name() == name)
    }
}
