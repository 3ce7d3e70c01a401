//! What a device does at most, and how that is known.

use std::fmt;

use serde_json::{Value, json};

/// How a ceiling is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// It was measured on a device of this model, with this driver.
    Measured,
    /// The maker's data sheet has it.
    DataSheet,
    /// The user gave it.
    Given,
}

impl Source {
    /// In words: `measured`, `data sheet`, `given`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Measured => "measured",
            Source::DataSheet => "data sheet",
            Source::Given => "given",
        }
    }
}

/// The most of something in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Bytes or floating-point operations.
    pub per_second: f64,
    /// How it is known.
    pub source: Source,
}

/// What a device does at most, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ceilings {
    /// Bytes that it reads and writes.
    pub bytes: Option<Ceiling>,
    /// Floating-point operations, of the products of the program.
    pub flops: Option<Ceiling>,
}

impl Ceilings {
    /// Bytes in a second.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.bytes.map(|ceiling| ceiling.per_second)
    }

    /// Floating-point operations in a second.
    pub fn flops_per_second(&self) -> Option<f64> {
        self.flops.map(|ceiling| ceiling.per_second)
    }

    /// As an object with `bytes_per_second`, `flops_per_second`, `bytes_source` and `flops_source`; null where nothing
    /// is known.
    pub fn to_json(&self) -> Value {
        let source = |ceiling: Option<Ceiling>| ceiling.map(|ceiling| ceiling.source.name());
        json!({
            "bytes_per_second": self.bytes_per_second(), "bytes_source": source(self.bytes),
            "flops_per_second": self.flops_per_second(), "flops_source": source(self.flops),
        })
    }
}

/// `3921.0 GB/s (measured), 989.4 TFLOP/s (data sheet)`.
impl fmt::Display for Ceilings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |ceiling: Option<Ceiling>, unit: f64, name: &str| match ceiling {
            Some(Ceiling { per_second, source }) => format!("{:.1} {name} ({})", per_second / unit, source.name()),
            None => format!("no {name} known"),
        };
        write!(f, "{}, {}", told(self.bytes, 1e9, "GB/s"), told(self.flops, 1e12, "TFLOP/s"))
    }
}
