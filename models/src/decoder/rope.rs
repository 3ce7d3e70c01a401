//! The angles of rotary position embeddings.

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::argument::Scalar;

use super::config::{DecoderConfig, RopeAdjustments};

/// Cosines and sines of the angles of positions 0 to `length`, each f32[length, n], where n is the number of values of
/// a head that are rotated. In f64 up to the last rounding: in f32 an angle of position 100,000 would be off by 0.004.
#[track_caller]
pub(super) fn table(config: &DecoderConfig, length: usize, device: Device) -> [Tensor; 2] {
    let half = config.rotated_width() / 2;
    let count = |length: usize, step: f64| {
        prims::iota(length, Scalar::Float(0.0), Scalar::Float(step), DType::F64, device.to_string())
    };
    // Rotation i turns by base^(-i / half) a position.
    let speeds = exp(count(half, -config.rope_base.ln() / half as f64));
    let speeds = config.rope_adjustments.map_or(speeds, |adjustments| adjusted(speeds, adjustments));
    let positions = count(length, 1.0 / config.rope_condense_ratio);
    let angles = reshape(positions, [length as i64, 1]) * reshape(speeds, [1, half as i64]);
    [cos(angles), sin(angles)].map(|part| {
        let part = to(part, DType::F32);
        cat::with([part, part]).dim(-1).call()
    })
}

/// Slower rotations.
#[track_caller]
fn adjusted(speeds: Tensor, adjustments: RopeAdjustments) -> Tensor {
    let slow = speeds / adjustments.factor;
    let RopeAdjustments { low_freq_factor, high_freq_factor, original_max_seq_len, .. } = adjustments;
    let (Some(low), Some(high), Some(length)) = (low_freq_factor, high_freq_factor, original_max_seq_len) else {
        return slow;
    };
    // How often a rotation turns within the first context; between the two factors, part of both.
    let turns = speeds * (length as f64 / std::f64::consts::TAU);
    let kept = minimum(maximum((turns - low) / (high - low), 0.0), 1.0);
    slow + (speeds - slow) * kept
}
