//! The optimizers that a run may train with, and the update of one parameter by each.

use std::fmt;
use std::str::FromStr;

use fulgurite_ops::prelude::*;
use fulgurite_runtime::operator::nearest;
use serde::{Deserialize, Serialize};

/// Prefix of the name of a weight's first state: Adam's running mean of its gradient, the momentum of others.
pub const FIRST_MOMENT: &str = "adamw.first_moment.";

/// Prefix of the name of a weight's second state: Adam's running mean of its squared gradient.
pub const SECOND_MOMENT: &str = "adamw.second_moment.";

/// The optimizer and its settings but for the learning rate, which the [`Schedule`](crate::schedule::Schedule) gives.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSettings {
    /// The optimizer.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kind: Optimizer,
    /// Decay of the running mean of gradients, in [0, 1).
    pub beta1: f64,
    /// Decay of the running mean of squared gradients, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment, above 0.
    pub epsilon: f64,
    /// Decoupled weight decay of matrices, per unit of learning rate, at least 0.
    pub weight_decay: f64,
    /// The largest global 2-norm of the gradients, above 0; none is no clipping.
    pub clip: Option<f64>,
    /// Momentum of `sgd` and `rmsprop`, at least 0; 0 is none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub momentum: f64,
    /// Whether `sgd` takes the step after the next momentum.
    #[serde(default, skip_serializing_if = "is_default")]
    pub nesterov: bool,
}

/// Whether a setting may be left out of a file: those of versions before lack it.
fn is_default<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

impl OptimizerSettings {
    /// Checks the ranges; an error has the setting's name, its value, and what is expected.
    pub fn validate(&self) -> Result<(), (&'static str, f64, &'static str)> {
        let unit = |value: f64| (0.0..1.0).contains(&value);
        let settings = [
            ("optimizer.beta1", self.beta1, unit(self.beta1), "0 to below 1"),
            ("optimizer.beta2", self.beta2, unit(self.beta2), "0 to below 1"),
            ("optimizer.epsilon", self.epsilon, self.epsilon > 0.0 && self.epsilon.is_finite(), "a number above 0"),
            (
                "optimizer.weight_decay",
                self.weight_decay,
                self.weight_decay >= 0.0 && self.weight_decay.is_finite(),
                "a number, 0 or more",
            ),
            (
                "optimizer.clip",
                self.clip.unwrap_or(1.0),
                self.clip.is_none_or(|clip| clip > 0.0 && clip.is_finite()),
                "a number above 0",
            ),
            (
                "optimizer.momentum",
                self.momentum,
                self.momentum >= 0.0 && self.momentum.is_finite(),
                "a number, 0 or more",
            ),
        ];
        match settings.into_iter().find(|(_, _, fits, _)| !fits) {
            Some((name, value, _, expected)) => Err((name, value, expected)),
            None => Ok(()),
        }
    }
}

impl Default for OptimizerSettings {
    /// GPT-2's as nanoGPT and llm.c train it.
    fn default() -> Self {
        OptimizerSettings {
            kind: Optimizer::AdamW,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.1,
            clip: Some(1.0),
            momentum: 0.0,
            nesterov: false,
        }
    }
}

/// An optimizer. Its settings are those of [`OptimizerSettings`]; its states are at most two for each parameter, which
/// checkpoints have under the names of Adam's moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Adam with a decay of its own: [`adamw`]. Two states.
    #[default]
    AdamW,
    /// [`adam`], whose weight decay passes through the means. Two states.
    Adam,
    /// [`adamax`]. Two states: a mean, and the largest magnitude.
    Adamax,
    /// [`sgd`]. The first state is the momentum; without momentum there is none.
    Sgd,
    /// [`lion`]. The first state is the mean.
    Lion,
    /// [`rmsprop`] with the decay `beta2`. The second state is the mean of squares, the first the momentum, if there is
    /// one.
    RmsProp,
    /// [`adagrad`]. The second state is the sum of squares.
    Adagrad,
}

impl Optimizer {
    /// All of them.
    pub const ALL: [Optimizer; 7] = [
        Optimizer::AdamW,
        Optimizer::Adam,
        Optimizer::Adamax,
        Optimizer::Sgd,
        Optimizer::Lion,
        Optimizer::RmsProp,
        Optimizer::Adagrad,
    ];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Optimizer::AdamW => "adamw",
            Optimizer::Adam => "adam",
            Optimizer::Adamax => "adamax",
            Optimizer::Sgd => "sgd",
            Optimizer::Lion => "lion",
            Optimizer::RmsProp => "rmsprop",
            Optimizer::Adagrad => "adagrad",
        }
    }

    /// Whether a run with these settings has the first and the second state of each parameter.
    pub fn states(self, settings: &OptimizerSettings) -> [bool; 2] {
        match self {
            Optimizer::AdamW | Optimizer::Adam | Optimizer::Adamax => [true, true],
            Optimizer::Sgd => [settings.momentum > 0.0, false],
            Optimizer::Lion => [true, false],
            Optimizer::RmsProp => [settings.momentum > 0.0, true],
            Optimizer::Adagrad => [false, true],
        }
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Optimizer {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(found) = Optimizer::ALL.into_iter().find(|optimizer| optimizer.name() == name) {
            return Ok(found);
        }
        let all = Optimizer::ALL.map(Optimizer::name);
        let there = all.join(", ");
        Err(match nearest(name, all.into_iter()) {
            Some(near) => format!("did you mean {near}? there are {there}"),
            None => format!("there are {there}"),
        })
    }
}

impl fmt::Display for OptimizerSettings {
    /// The optimizer, and its momentum if it has one: `sgd, momentum 0.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if self.momentum > 0.0 && matches!(self.kind, Optimizer::Sgd | Optimizer::RmsProp) {
            let nesterov = if self.nesterov { " of Nesterov" } else { "" };
            write!(f, ", momentum {}{nesterov}", self.momentum)?;
        }
        Ok(())
    }
}

impl OptimizerSettings {
    /// The prefixes of the names that a checkpoint has for each parameter: of the parameter itself and of its states.
    pub fn prefixes(&self) -> Vec<&'static str> {
        let states = self.kind.states(self);
        let kept = [FIRST_MOMENT, SECOND_MOMENT].into_iter().zip(states).filter(|(_, kept)| *kept);
        std::iter::once("").chain(kept.map(|(prefix, _)| prefix)).collect()
    }
}

/// The new parameter and the new states. `decay` is the weight decay of this parameter; where `apply` is false all are
/// as they were.
#[track_caller]
pub(crate) fn updated(
    settings: &OptimizerSettings,
    (param, grad): (Tensor, Tensor),
    states: [Option<Tensor>; 2],
    (lr, step): (Tensor, Tensor),
    decay: f64,
    apply: Option<Tensor>,
) -> (Tensor, [Option<Tensor>; 2]) {
    let OptimizerSettings { beta1, beta2, epsilon, momentum, nesterov, .. } = *settings;
    let pair = |(out, first, second): (Tensor, Tensor, Tensor)| (out, [Some(first), Some(second)]);
    match (settings.kind, states) {
        (Optimizer::AdamW, [Some(mean), Some(square)]) => {
            let update = adamw::with(param, grad, mean, square, lr, step).beta1(beta1).beta2(beta2).eps(epsilon);
            pair(update.weight_decay(decay).apply(apply).call())
        }
        (Optimizer::Adam, [Some(mean), Some(square)]) => {
            let update = adam::with(param, grad, mean, square, lr, step).beta1(beta1).beta2(beta2).eps(epsilon);
            pair(update.weight_decay(decay).apply(apply).call())
        }
        (Optimizer::Adamax, [Some(mean), Some(most)]) => {
            let update = adamax::with(param, grad, mean, most, lr, step).beta1(beta1).beta2(beta2).eps(epsilon);
            pair(update.weight_decay(decay).apply(apply).call())
        }
        (Optimizer::Lion, [Some(mean), _]) => {
            let update = lion::with(param, grad, mean, lr).beta1(beta1).beta2(beta2);
            let (out, mean) = update.weight_decay(decay).apply(apply).call();
            (out, [Some(mean), None])
        }
        (Optimizer::Adagrad, [_, Some(sum)]) => {
            let update = adagrad::with(param, grad, sum, lr, step).eps(epsilon).weight_decay(decay);
            let (out, sum) = update.apply(apply).call();
            (out, [None, Some(sum)])
        }
        (Optimizer::RmsProp, [buffer, Some(square)]) => {
            let momentum = if buffer.is_some() { momentum } else { 0.0 };
            let update = rmsprop::with(param, grad, square, None, buffer, lr).alpha(beta2).eps(epsilon);
            let new = update.weight_decay(decay).momentum(momentum).apply(apply).call();
            (new[0], [new.get(2).copied(), Some(new[1])])
        }
        // Sgd; and what a state without its trees cannot be.
        (_, [buffer, _]) => {
            let momentum = if buffer.is_some() { momentum } else { 0.0 };
            let update = sgd::with(param, grad, buffer, lr, step).momentum(momentum);
            let new = update.nesterov(nesterov && momentum > 0.0).weight_decay(decay).apply(apply).call();
            (new[0], [new.get(1).copied(), None])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_and_of_checkpoints() {
        for optimizer in Optimizer::ALL {
            assert_eq!(optimizer.name().parse(), Ok(optimizer));
            assert_eq!(serde_json::to_string(&optimizer).unwrap(), format!("\"{optimizer}\""));
        }
        assert_eq!(Optimizer::default(), Optimizer::AdamW);
        let message = "adamx".parse::<Optimizer>().unwrap_err();
        assert!(message.starts_with("did you mean adam") && message.contains("rmsprop, adagrad"), "{message}");
    }

    #[test]
    fn states_are_those_that_an_update_has() {
        let with = |kind, momentum| OptimizerSettings { kind, momentum, ..OptimizerSettings::default() };
        let prefixes = |kind, momentum| with(kind, momentum).prefixes().len();
        assert_eq!(prefixes(Optimizer::AdamW, 0.0), 3);
        assert_eq!([prefixes(Optimizer::Sgd, 0.0), prefixes(Optimizer::Sgd, 0.9)], [1, 2]);
        assert_eq!([prefixes(Optimizer::RmsProp, 0.0), prefixes(Optimizer::RmsProp, 0.9)], [2, 3]);
        assert_eq!(with(Optimizer::Adagrad, 0.9).prefixes(), ["", SECOND_MOMENT]);
        assert_eq!(with(Optimizer::Lion, 0.0).prefixes(), ["", FIRST_MOMENT]);
    }
}
