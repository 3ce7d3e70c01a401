//! The classes of operators that mixed precision knows.

/// What the pass `autocast` makes of an operator's floating-point operands. f64, integers and
/// booleans are left alone whatever the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Autocast {
    /// They become the low-precision type: products.
    Low,
    /// f16 and bf16 become f32; if the operator has an optional `dtype`, that is set to f32 instead: sums and
    /// exponentials.
    Full,
    /// They meet in the widest type among them.
    Widest,
    /// They stay as they are.
    Keep,
}

impl Autocast {
    /// Every class.
    pub const ALL: [Autocast; 4] = [Autocast::Low, Autocast::Full, Autocast::Widest, Autocast::Keep];

    /// The word in declarations: `low`, `full`, `widest`, `keep`.
    pub const fn name(self) -> &'static str {
        match self {
            Autocast::Low => "low",
            Autocast::Full => "full",
            Autocast::Widest => "widest",
            Autocast::Keep => "keep",
        }
    }

    /// In words, for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Autocast::Low => "operands of f32 and f16 become the low-precision type",
            Autocast::Full => {
                "operands of bf16 and f16 become f32; or, where there is an optional dtype, the result is f32"
            }
            Autocast::Widest => "operands meet in the widest type among them",
            Autocast::Keep => "operands stay as they are",
        }
    }
}
