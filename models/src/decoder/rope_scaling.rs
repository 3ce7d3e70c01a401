//! Rotations for sequences that are longer than those of a model's first training.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

/// Slower rotations for longer sequences than a model was first trained on. With `factor` alone all are slower by it;
/// with the other fields, as Llama 3.1 has it, those are whose wavelength is long.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RopeAdjustments {
    /// Factor by which rotations are slower.
    pub factor: f64,
    /// Rotations that turn fewer times than this within `original_max_seq_len` are slower by the whole factor.
    #[serde(default)]
    pub low_freq_factor: Option<f64>,
    /// Rotations that turn more times than this stay as they are.
    #[serde(default)]
    pub high_freq_factor: Option<f64>,
    /// The context of the first training.
    #[serde(default)]
    pub original_max_seq_len: Option<usize>,
}

fn beta_fast() -> f64 {
    32.0
}

fn one() -> f64 {
    1.0
}

fn yes() -> bool {
    true
}

/// Rotations that depend on the context of the first training in other ways, with the formulas of `transformers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rope_type", rename_all = "lowercase", deny_unknown_fields)]
pub enum RopeScaling {
    /// YaRN (Peng et al., 2023): rotations that turn less than `beta_slow` times within the first context are slower by
    /// `factor`, those that turn more than `beta_fast` times stay, and those between are a linear mixture.
    Yarn {
        /// Factor by which rotations are slower.
        factor: f64,
        /// The context of the first training.
        original_max_seq_len: usize,
        /// See above.
        #[serde(default = "beta_fast")]
        beta_fast: f64,
        /// See above.
        #[serde(default = "one")]
        beta_slow: f64,
        /// Whether the mixture begins and ends at whole numbers of rotations.
        #[serde(default = "yes")]
        truncate: bool,
        /// Rotated values are multiplied by it; see [`yarn_attention_factor`].
        #[serde(default = "one")]
        attention_factor: f64,
    },
    /// The base grows with the length of a sequence beyond the first context.
    Dynamic {
        /// Factor by which the base grows with the length.
        factor: f64,
        /// The context of the first training.
        original_max_seq_len: usize,
    },
    /// LongRoPE (Ding et al., 2024): each rotation is slower by a factor of its own, one for sequences within the first
    /// context and another one for longer sequences.
    Longrope {
        /// The context of the first training.
        original_max_seq_len: usize,
        /// The factors of sequences within the first context, one for each rotation.
        short_factor: Vec<f64>,
        /// Those of longer sequences.
        long_factor: Vec<f64>,
        /// Rotated values are multiplied by it; see [`longrope_attention_factor`].
        #[serde(default = "one")]
        attention_factor: f64,
    },
}

/// What YaRN multiplies rotated values by where a file does not say it: `0.1 ln(factor) + 1`.
pub(crate) fn yarn_attention_factor(factor: f64, multiplier: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * multiplier * factor.ln() + 1.0 }
}

/// What LongRoPE multiplies rotated values by where a file does not say it, for contexts that are longer by `factor`
/// than the first one: `√(1 + ln(factor) / ln(original))`.
pub(crate) fn longrope_attention_factor(factor: f64, original: usize) -> f64 {
    if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() }
}

impl RopeScaling {
    /// The context of the first training.
    pub fn original_max_seq_len(&self) -> usize {
        match self {
            RopeScaling::Yarn { original_max_seq_len, .. }
            | RopeScaling::Dynamic { original_max_seq_len, .. }
            | RopeScaling::Longrope { original_max_seq_len, .. } => *original_max_seq_len,
        }
    }

    /// What rotated values are multiplied by.
    pub fn attention_factor(&self) -> f64 {
        match self {
            RopeScaling::Yarn { attention_factor, .. } | RopeScaling::Longrope { attention_factor, .. } => {
                *attention_factor
            }
            RopeScaling::Dynamic { .. } => 1.0,
        }
    }

    /// The longest sequence that the scaling is for, where it says one.
    pub(crate) fn reach(&self) -> Option<usize> {
        match self {
            RopeScaling::Yarn { factor, original_max_seq_len, .. }
            | RopeScaling::Dynamic { factor, original_max_seq_len } => {
                Some((factor * *original_max_seq_len as f64) as usize)
            }
            RopeScaling::Longrope { .. } => None,
        }
    }

    /// The base of the rotations of `rotated` values of a head in a sequence of `length` positions.
    pub(crate) fn base(&self, base: f64, rotated: usize, length: usize) -> f64 {
        match self {
            RopeScaling::Dynamic { factor, original_max_seq_len } if length > *original_max_seq_len => {
                let grown = factor * length as f64 / *original_max_seq_len as f64 - (factor - 1.0);
                let rotated = rotated as f64;
                base * grown.powf(rotated / (rotated - 2.0))
            }
            _ => base,
        }
    }

    /// Where the mixture of YaRN begins and ends, in numbers of rotations of `rotated` values of a head.
    pub(crate) fn mixture(&self, base: f64, rotated: usize) -> Option<[f64; 2]> {
        let RopeScaling::Yarn { original_max_seq_len, beta_fast, beta_slow, truncate, .. } = self else { return None };
        let rotated = rotated as f64;
        // The number of a rotation that turns so many times within the first context.
        let place = |turns: &f64| rotated * (*original_max_seq_len as f64 / (turns * TAU)).ln() / (2.0 * base.ln());
        let (first, last) = (place(beta_fast), place(beta_slow));
        let (first, last) = if *truncate { (first.floor(), last.ceil()) } else { (first, last) };
        let (first, last) = (first.max(0.0), last.min(rotated - 1.0));
        Some([first, if first == last { last + 0.001 } else { last }])
    }

    /// The factors of LongRoPE for a sequence of `length` positions.
    pub(crate) fn factors(&self, length: usize) -> Option<&[f64]> {
        let RopeScaling::Longrope { original_max_seq_len, short_factor, long_factor, .. } = self else { return None };
        Some(if length > *original_max_seq_len { long_factor } else { short_factor })
    }

    /// What is wrong with it for rotations with `base` of `rotated` values of a head: what was expected.
    pub(crate) fn fault(&self, base: f64, rotated: usize) -> Option<String> {
        let above = |value: f64, least: f64| value > least && value.is_finite();
        if self.original_max_seq_len() == 0 || self.original_max_seq_len() > 1 << 24 {
            return Some(format!("original_max_seq_len of 1 to {}", 1 << 24));
        }
        if !above(self.attention_factor(), 0.0) {
            return Some("attention_factor above 0".to_owned());
        }
        match self {
            RopeScaling::Yarn { factor, beta_fast, beta_slow, .. } => {
                let right = above(*factor, 0.0) && above(*beta_slow, 0.0) && above(*beta_fast, *beta_slow);
                let expected = "factor above 0, beta_fast above beta_slow, and that above 0";
                (!right).then(|| expected.to_owned()).or((base <= 1.0).then(|| "rope_base above 1 with it".to_owned()))
            }
            RopeScaling::Dynamic { factor, .. } => {
                let right = *factor >= 1.0 && factor.is_finite();
                let wide =
                    (rotated <= 2).then(|| format!("more than two values of a head to be rotated, not {rotated}"));
                (!right).then(|| "factor of 1 or more".to_owned()).or(wide)
            }
            RopeScaling::Longrope { short_factor, long_factor, .. } => {
                let fits = |all: &[f64]| all.len() == rotated / 2 && all.iter().all(|factor| above(*factor, 0.0));
                let expected = || format!("{} numbers above 0 in short_factor and in long_factor", rotated / 2);
                (!fits(short_factor) || !fits(long_factor)).then(expected)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of the published formulas, worked out by hand.
    #[test]
    fn scaling_follows_its_formulas() {
        assert_eq!(yarn_attention_factor(1.0, 1.0), 1.0);
        assert!((yarn_attention_factor(4.0, 1.0) - 1.138_629_436).abs() < 1e-9);
        assert!((longrope_attention_factor(32.0, 4096) - 1.190_238_071).abs() < 1e-9);
        let dynamic = RopeScaling::Dynamic { factor: 2.0, original_max_seq_len: 8 };
        assert_eq!((dynamic.base(10.0, 4, 8), dynamic.reach()), (10.0, Some(16)));
        // Of twice the context: (2 · 2 - 1)² times the base.
        assert!((dynamic.base(10.0, 4, 16) - 90.0).abs() < 1e-9);
        let text = r#"{"rope_type": "yarn", "factor": 4, "original_max_seq_len": 4096, "truncate": false}"#;
        let yarn: RopeScaling = serde_json::from_str(text).unwrap();
        let [first, last] = yarn.mixture(10_000.0, 128).unwrap();
        assert!((first - 20.944_3).abs() < 1e-3 && (last - 45.026_6).abs() < 1e-3, "{first} {last}");
        let text = r#"{"rope_type": "yarn", "factor": 4, "original_max_seq_len": 4096}"#;
        let yarn: RopeScaling = serde_json::from_str(text).unwrap();
        assert_eq!(yarn.mixture(10_000.0, 128), Some([20.0, 46.0]));
        assert!(serde_json::from_str::<RopeScaling>(r#"{"rope_type": "yarn", "factor": 4, "surprise": 1}"#).is_err());
    }
}
