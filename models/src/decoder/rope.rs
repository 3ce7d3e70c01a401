//! The angles of rotary position embeddings.

use fulgurite_ops::prelude::*;
use fulgurite_ops::prims;
use fulgurite_runtime::argument::Scalar;

use super::config::{DecoderConfig, RopeAdjustments};

/// Cosines and sines of the angles of positions 0 to `length`, each f32[length, n], where n is the number of values of
/// a head that are rotated. In f64 up to the last rounding: in f32 an angle of position 100,000 would be off by 0.004.
#[track_caller]
pub(super) fn table(config: &DecoderConfig, length: usize, device: Device) -> [Tensor; 2] {
    let speeds = speeds(config, device);
    let positions = count(length, 1.0 / config.rope_condense_ratio, device);
    of_angles(reshape(positions, [length as i64, 1]), speeds)
}

/// The rows of [`table`] of positions i64[B, T], each f32[B, 1, T, n].
#[track_caller]
pub(super) fn table_at(config: &DecoderConfig, positions: Tensor) -> [Tensor; 2] {
    let speeds = speeds(config, positions.device());
    let (batch, length) = (positions.size(0) as i64, positions.size(1) as i64);
    let mut positions = to(positions, DType::F64);
    if config.rope_condense_ratio != 1.0 {
        positions = positions * (1.0 / config.rope_condense_ratio);
    }
    of_angles(reshape(positions, [batch, 1, length, 1]), speeds)
}

/// `0, step, 2 step, ...`, f64.
#[track_caller]
fn count(length: usize, step: f64, device: Device) -> Tensor {
    prims::iota(length, Scalar::Float(0.0), Scalar::Float(step), DType::F64, device)
}

/// How far each rotation turns a position: rotation i by base^(-i / half).
#[track_caller]
fn speeds(config: &DecoderConfig, device: Device) -> Tensor {
    let half = config.rotated_width() / 2;
    let speeds = exp(count(half, -config.rope_base.ln() / half as f64, device));
    config.rope_adjustments.map_or(speeds, |adjustments| adjusted(speeds, adjustments))
}

/// Cosines and sines [.., n] of positions [.., 1]: both halves of a row have the same angles, which are written twice
/// rather than copied, so that all of it is one kernel.
#[track_caller]
fn of_angles(positions: Tensor, speeds: Tensor) -> [Tensor; 2] {
    let half = speeds.size(0) as i64;
    let mut rows: Vec<i64> = positions.shape().iter().map(|extent| *extent as i64).collect();
    rows.pop();
    let with = |last: &[i64]| [&rows[..], last].concat();
    let angles = expand(reshape(positions, with(&[1, 1])), with(&[2, half])) * reshape(speeds, [1, half]);
    [cos(angles), sin(angles)].map(|part| reshape(to(part, DType::F32), with(&[2 * half])))
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
    let kept = prims::minimum(prims::maximum((turns - low) / (high - low), 0.0), 1.0);
    slow + (speeds - slow) * kept
}
