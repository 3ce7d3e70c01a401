//! How exactly executors compute products.

use std::fmt;

/// The precision of an executor: a fact of it, from which the tolerances of its generated tests follow. The lower ones
/// have no order: asking for one of them excludes the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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
    const ALL: [Precision; 3] = [Precision::Exact, Precision::Tf32, Precision::Fp8];

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
        Precision::ALL.into_iter().find(|precision| precision.name() == name)
    }
}

/// Precisions that are asked for: those of the executors of a list, and [`Precision::Exact`] always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Precisions(u8);

impl Precisions {
    /// Whether executors of this precision may be chosen.
    pub fn contains(self, precision: Precision) -> bool {
        let all = Precisions::from(precision).0;
        self.0 & all == all
    }

    /// The precisions of that text, as they are printed.
    pub fn named(text: &str) -> Option<Precisions> {
        let all: Option<Precisions> = text.split(SEPARATOR).map(Precision::named).collect();
        all.filter(|all| all.to_string() == text)
    }
}

/// Between the names of several precisions.
const SEPARATOR: &str = " and ";

impl From<Precision> for Precisions {
    fn from(precision: Precision) -> Precisions {
        match precision {
            Precision::Exact => Precisions(0),
            Precision::Tf32 => Precisions(1),
            Precision::Fp8 => Precisions(2),
        }
    }
}

impl FromIterator<Precision> for Precisions {
    fn from_iter<I: IntoIterator<Item = Precision>>(all: I) -> Precisions {
        Precisions(all.into_iter().fold(0, |bits, precision| bits | Precisions::from(precision).0))
    }
}

impl fmt::Display for Precisions {
    /// `exact`, `tf32`, or `tf32 and fp8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lower = |precision: &Precision| *precision != Precision::Exact && self.contains(*precision);
        let names: Vec<&str> = Precision::ALL.iter().filter(|own| lower(own)).map(|own| own.name()).collect();
        match &names[..] {
            [] => f.write_str(Precision::Exact.name()),
            names => f.write_str(&names.join(SEPARATOR)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_precision_asks_for_no_other() {
        use Precision::{Exact, Fp8, Tf32};
        let asked = |all: &[Precision]| {
            let asked: Precisions = all.iter().copied().collect();
            Precision::ALL.map(|own| asked.contains(own))
        };
        assert_eq!(asked(&[]), [true, false, false]);
        assert_eq!(asked(&[Exact, Tf32]), [true, true, false]);
        assert_eq!(asked(&[Fp8]), [true, false, true]);
        assert_eq!(asked(&[Fp8, Exact, Tf32]), [true, true, true]);
    }

    #[test]
    fn what_is_printed_is_read() {
        for text in ["exact", "tf32", "fp8", "tf32 and fp8"] {
            assert_eq!(Precisions::named(text).unwrap().to_string(), text);
        }
        for text in ["", "bf16", "fp8 and tf32", "exact and tf32", "tf32 and tf32"] {
            assert_eq!(Precisions::named(text), None, "{text}");
        }
    }
}
