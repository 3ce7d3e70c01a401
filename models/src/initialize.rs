//! Initial weights of a model, from a seed.

use crate::config::{Initial, Parameter};
use crate::random::{Stream, stream_of};

/// Writes the initial values of a parameter, row-major. They depend on `seed`, the parameter's name, shape and rule
/// alone, so neither the order in which parameters are made nor the number of layers changes one of them (but for the
/// scale of residual projections).
pub fn initialize(parameter: &Parameter, seed: u64, values: &mut [f32]) {
    match parameter.initial {
        Initial::Zeros => values.fill(0.0),
        Initial::Ones => values.fill(1.0),
        Initial::Normal(deviation) => Stream::fill_normals(seed, stream_of(&parameter.name), deviation, values),
    }
}

/// The values that [`initialize`] writes.
pub fn initial_values(parameter: &Parameter, seed: u64) -> Vec<f32> {
    let mut values = vec![0.0; parameter.elements()];
    initialize(parameter, seed, &mut values);
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GptConfig;

    fn deviation(values: &[f32]) -> f64 {
        (values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / values.len() as f64).sqrt()
    }

    #[test]
    fn follows_the_rule_and_the_seed() {
        let config = GptConfig::named("micro", 256).unwrap();
        for parameter in config.parameters() {
            let values = initial_values(&parameter, 42);
            assert_eq!(values.len(), parameter.elements());
            let expected = match parameter.initial {
                Initial::Zeros => 0.0,
                Initial::Ones => 1.0,
                Initial::Normal(deviation) => deviation,
            };
            assert!(
                (deviation(&values) / expected.max(1e-9) - 1.0).abs() < 0.05 || expected == 0.0,
                "{}",
                parameter.name
            );
            let residual = parameter.name.ends_with("c_proj.weight");
            assert_eq!(residual, parameter.initial == Initial::Normal(0.02 / 8f64.sqrt()), "{}", parameter.name);
            assert_eq!(values, initial_values(&parameter, 42));
            if parameter.decays {
                assert_ne!(values, initial_values(&parameter, 43));
            }
        }
    }
}
