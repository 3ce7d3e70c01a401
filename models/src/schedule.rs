//! The learning rate as a function of the step: linear warm-up, then half a cosine down to a floor, as in llm.c.

use serde::{Deserialize, Serialize};

/// A learning rate that rises linearly to `peak` over `warmup_steps`, falls along half a cosine until `total_steps`,
/// and stays at `floor` from there on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The largest learning rate, reached in the last warm-up step.
    pub peak: f64,
    /// The learning rate at and after `total_steps`; at most `peak`.
    pub floor: f64,
    /// Steps of warm-up; 0 starts at the peak.
    pub warmup_steps: u64,
    /// The step, counted from 0, at which the floor is reached; at least `warmup_steps`.
    pub total_steps: u64,
}

/// A schedule that makes no sense.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// A rate that is negative, not a number, or infinite in f32, in which a step computes.
    #[error(
        "the schedule's {which} learning rate is {value:e}; expected a number from 0 to {:e}, the largest f32",
        f32::MAX
    )]
    Rate {
        /// `peak` or `floor`.
        which: &'static str,
        /// The rate that was given.
        value: f64,
    },
    /// The floor is above the peak.
    #[error("the schedule's floor {floor} is above its peak {peak}")]
    FloorAbovePeak {
        /// The lowest learning rate.
        floor: f64,
        /// The peak learning rate.
        peak: f64,
    },
    /// More warm-up than steps.
    #[error("the schedule warms up for {warmup} steps but ends at step {total}")]
    WarmupTooLong {
        /// Steps of warm-up.
        warmup: u64,
        /// Steps in all.
        total: u64,
    },
}

impl Schedule {
    /// The same rate in every step.
    pub fn constant(rate: f64) -> Self {
        Schedule { peak: rate, floor: rate, warmup_steps: 0, total_steps: 0 }
    }

    /// Checks that both rates are finite in f32, in order and not negative, and that the warm-up ends before the
    /// schedule does.
    pub fn validate(&self) -> Result<(), ScheduleError> {
        for (which, value) in [("peak", self.peak), ("floor", self.floor)] {
            if !((value as f32).is_finite() && value >= 0.0) {
                return Err(ScheduleError::Rate { which, value });
            }
        }
        if self.floor > self.peak {
            return Err(ScheduleError::FloorAbovePeak { floor: self.floor, peak: self.peak });
        }
        if self.warmup_steps > self.total_steps {
            return Err(ScheduleError::WarmupTooLong { warmup: self.warmup_steps, total: self.total_steps });
        }
        Ok(())
    }

    /// The learning rate of `step`, counted from 0. The first warm-up step is already above 0, so no step is wasted.
    pub fn learning_rate(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step as f64 + 1.0) / self.warmup_steps as f64;
        }
        if step >= self.total_steps {
            return self.floor;
        }
        let progress = (step - self.warmup_steps) as f64 / (self.total_steps - self.warmup_steps) as f64;
        let weight = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        self.floor + weight * (self.peak - self.floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rises_falls_and_stays() {
        let schedule = Schedule { peak: 6e-4, floor: 6e-5, warmup_steps: 10, total_steps: 110 };
        assert_eq!(schedule.validate(), Ok(()));
        assert!((schedule.learning_rate(0) - 6e-5).abs() < 1e-18);
        assert_eq!(schedule.learning_rate(9), 6e-4);
        assert_eq!(schedule.learning_rate(10), 6e-4);
        assert!((schedule.learning_rate(60) - 3.3e-4).abs() < 1e-16);
        assert_eq!(schedule.learning_rate(110), 6e-5);
        assert_eq!(schedule.learning_rate(u64::MAX), 6e-5);
        assert!((10..110).all(|step| schedule.learning_rate(step + 1) < schedule.learning_rate(step)));
    }

    #[test]
    fn constant_and_edges() {
        assert_eq!(Schedule::constant(1e-3).learning_rate(0), 1e-3);
        assert_eq!(Schedule::constant(1e-3).learning_rate(1_000), 1e-3);
        let only_warmup = Schedule { peak: 1.0, floor: 0.5, warmup_steps: 4, total_steps: 4 };
        assert_eq!((only_warmup.learning_rate(3), only_warmup.learning_rate(4)), (1.0, 0.5));
    }

    #[test]
    fn nonsense_is_refused() {
        let good = Schedule { peak: 1.0, floor: 0.0, warmup_steps: 1, total_steps: 2 };
        assert!(matches!(
            Schedule { peak: f64::NAN, ..good }.validate(),
            Err(ScheduleError::Rate { which: "peak", .. })
        ));
        let beyond = Schedule { peak: 1e39, ..good }.validate().unwrap_err().to_string();
        assert!(beyond.contains("peak learning rate is 1e39; expected a number from 0 to 3.4028235e38"), "{beyond}");
        assert!(matches!(Schedule { floor: -1.0, ..good }.validate(), Err(ScheduleError::Rate { which: "floor", .. })));
        assert!(matches!(Schedule { floor: 2.0, ..good }.validate(), Err(ScheduleError::FloorAbovePeak { .. })));
        assert!(matches!(Schedule { warmup_steps: 3, ..good }.validate(), Err(ScheduleError::WarmupTooLong { .. })));
    }
}
