//! The angles of rotary position embeddings.

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::argument::Scalar;

use super::config::DecoderConfig;
use super::rope_scaling::{RopeAdjustments, RopeScaling};

/// The rotations of some blocks.
pub(super) struct Rotations<'a> {
    config: &'a DecoderConfig,
    base: f64,
    adjustments: Option<RopeAdjustments>,
    scaling: Option<&'a RopeScaling>,
    /// The length of the sequences, which the scaling may depend on.
    length: usize,
}

impl<'a> Rotations<'a> {
    /// Those of the blocks that have the model's base, or its local base, in sequences of `length` positions.
    pub(super) fn of(config: &'a DecoderConfig, is_local: bool, length: usize) -> Rotations<'a> {
        match config.rope_local_base_freq.filter(|_| is_local) {
            Some(base) => Rotations { config, base, adjustments: None, scaling: None, length },
            None => Rotations {
                config,
                base: config.rope_base,
                adjustments: config.rope_adjustments,
                scaling: config.rope_scaling.as_ref(),
                length,
            },
        }
    }

    /// Cosines and sines of the angles of positions 0 to the length, each f32[length, n], where n is the number of
    /// values of a head that are rotated. In f64 up to the last rounding: in f32 an angle of position 100,000 would be
    /// off by 0.004.
    #[track_caller]
    pub(super) fn table(&self, device: Device) -> [Tensor; 2] {
        let speeds = self.speeds(device);
        let positions = count(self.length, 1.0 / self.config.rope_condense_ratio, device);
        self.of_angles(reshape(positions, [self.length as i64, 1]), speeds)
    }

    /// The rows of [`Rotations::table`] of positions i64[B, T], each f32[B, 1, T, n].
    #[track_caller]
    pub(super) fn table_at(&self, positions: Tensor) -> [Tensor; 2] {
        let speeds = self.speeds(positions.device());
        let (batch, length) = (positions.size(0) as i64, positions.size(1) as i64);
        let mut positions = to(positions, DType::F64);
        if self.config.rope_condense_ratio != 1.0 {
            positions = positions * (1.0 / self.config.rope_condense_ratio);
        }
        self.of_angles(reshape(positions, [batch, 1, length, 1]), speeds)
    }

    /// How far each rotation turns a position: rotation i by base^(-i / half).
    #[track_caller]
    fn speeds(&self, device: Device) -> Tensor {
        let rotated = self.config.rotated_width();
        let half = rotated / 2;
        let base = self.scaling.map_or(self.base, |scaling| scaling.base(self.base, rotated, self.length));
        let speeds = exp(count(half, -base.ln() / half as f64, device));
        if let Some(adjustments) = self.adjustments {
            return adjusted(speeds, adjustments);
        }
        match self.scaling {
            Some(scaling @ RopeScaling::Yarn { factor, .. }) => {
                let [first, last] = scaling.mixture(base, rotated).unwrap_or_default();
                // 0 up to the first rotation of the mixture, 1 from the last one on.
                let slowed = within_one((count(half, 1.0, device) - first) / (last - first));
                speeds + (speeds / *factor - speeds) * slowed
            }
            Some(scaling @ RopeScaling::Longrope { .. }) => {
                speeds / listed(scaling.factors(self.length).unwrap_or_default(), device)
            }
            _ => speeds,
        }
    }

    /// Cosines and sines [.., n] of positions [.., 1]: both halves of a row have the same angles, which are written
    /// twice rather than copied, so that all of it is one kernel.
    #[track_caller]
    fn of_angles(&self, positions: Tensor, speeds: Tensor) -> [Tensor; 2] {
        let half = speeds.size(0) as i64;
        let mut rows: Vec<i64> = positions.shape().iter().map(|extent| *extent as i64).collect();
        rows.pop();
        let with = |last: &[i64]| [&rows[..], last].concat();
        let angles = expand(reshape(positions, with(&[1, 1])), with(&[2, half])) * reshape(speeds, [1, half]);
        let factor = self.scaling.map_or(1.0, RopeScaling::attention_factor);
        let scaled = |part: Tensor| if factor == 1.0 { part } else { part * factor };
        [cos(angles), sin(angles)].map(|part| reshape(to(scaled(part), DType::F32), with(&[2 * half])))
    }
}

/// `0, step, 2 step, ...`, f64.
#[track_caller]
fn count(length: usize, step: f64, device: Device) -> Tensor {
    prims::iota(length, Scalar::Float(0.0), Scalar::Float(step), DType::F64, device)
}

/// At least 0 and at most 1.
#[track_caller]
fn within_one(x: Tensor) -> Tensor {
    prims::minimum(prims::maximum(x, 0.0), 1.0)
}

/// These numbers, f64[n]: each where its own place is reached, so that all of it is one kernel.
#[track_caller]
fn listed(numbers: &[f64], device: Device) -> Tensor {
    let places = count(numbers.len(), 1.0, device);
    let first =
        prims::full([numbers.len()], Scalar::Float(numbers.first().copied().unwrap_or(0.0)), DType::F64, device);
    let changes = numbers.windows(2).enumerate().filter(|(_, pair)| pair[0] != pair[1]);
    changes.fold(first, |all, (place, pair)| prims::select(prims::gt(places, place as f64), pair[1], all))
}

/// The speeds of rotation with the adjustments for contexts longer than a model was trained on.
#[track_caller]
fn adjusted(speeds: Tensor, adjustments: RopeAdjustments) -> Tensor {
    let slow = speeds / adjustments.factor;
    let RopeAdjustments { low_freq_factor, high_freq_factor, original_max_seq_len, .. } = adjustments;
    let (Some(low), Some(high), Some(length)) = (low_freq_factor, high_freq_factor, original_max_seq_len) else {
        return slow;
    };
    // How often a rotation turns within the first context; between the two factors, part of both.
    let turns = speeds * (length as f64 / std::f64::consts::TAU);
    let kept = within_one((turns - low) / (high - low));
    slow + (speeds - slow) * kept
}
