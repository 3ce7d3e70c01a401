//! Options of models that several subcommands have.

use clap::Args;
use fulgurite_models::{ActivationCheckpointing, Logits};

/// A number of bytes: `1048576`, `512MiB`, `7.5GiB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
    let found = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, 1_u64 << shift)));
    let count = match found {
        Some((count, unit)) => count.parse::<f64>().ok().map(|count| count * unit as f64),
        // Whole bytes, all of which are exact.
        None => return text.parse().map_err(|_| "expected a number of bytes: 1048576, 512MiB, 7.5GiB".into()),
    };
    let count = count.filter(|count| (0.0..u64::MAX as f64).contains(count));
    count.map(|count| count as u64).ok_or_else(|| "expected a number of bytes: 1048576, 512MiB, 7.5GiB".into())
}

/// What of the logits exists at a time, by its name; `None` for another word, such as `auto`.
pub fn logits(name: &str) -> Option<Logits> {
    Logits::ALL.into_iter().find(|logits| logits.name() == name)
}

/// Options of what the backward pass of a model keeps.
#[derive(Args, Clone, Debug)]
pub struct Activations {
    /// `blocks` keeps the result of each of the model's blocks alone for the backward pass, which computes the rest
    /// again: less memory, more time, the same numbers.
    #[arg(long, default_value = "none", value_parser = ["none", "blocks"], value_name = "WHAT")]
    activation_checkpointing: String,
}

impl Activations {
    /// Takes what `given` says was written of others.
    pub fn take(&mut self, of: Activations, given: &dyn Fn(&str) -> bool) {
        if given("activation_checkpointing") {
            *self = of;
        }
    }

    /// As models take them.
    pub fn checkpointing(&self) -> ActivationCheckpointing {
        match &*self.activation_checkpointing {
            "blocks" => ActivationCheckpointing::Blocks,
            _ => ActivationCheckpointing::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("512MiB", Some(512 << 20)),
            ("7.5GiB", Some(15 << 29)),
            ("1KiB", Some(1024)),
            ("2TiB", Some(2 << 40)),
            ("1e9TiB", None),
            ("-1MiB", None),
            ("nanGiB", None),
            ("1.5", None),
            ("4GB", None),
            ("MiB", None),
            ("", None),
        ] {
            assert_eq!(bytes(text).ok(), expected, "{text}");
        }
    }
}
