//! The arithmetic of a training run, by LitGPT's names.

use std::fmt;
use std::str::FromStr;

use fulgurite_runtime::compile::{Choose, Options};
use fulgurite_runtime::device::find_kind;
use fulgurite_runtime::executor::{ExecutorDef, rounded_to};
use fulgurite_runtime::operator::nearest;
use fulgurite_runtime::precision::Precision as ExecutorPrecision;
use fulgurite_runtime::{DType, Device, Result};

use crate::argument_error::wrong;

/// The element types of a run's parameters and products. Tables of rotary angles, statistics of normalizations, sums
/// and the loss are f32 in each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// `32-true`: everything in f32.
    #[default]
    F32True,
    /// `tf32`, which LitGPT does not have: as `32-true`, but products round their operands to TF32.
    Tf32,
    /// `bf16-mixed`: parameters, gradients and moments in f32, products in bf16.
    Bf16Mixed,
    /// `bf16-true`: parameters, gradients, moments and products in bf16.
    Bf16True,
}

impl Precision {
    /// Every precision.
    pub const ALL: [Precision; 4] = [Precision::F32True, Precision::Bf16Mixed, Precision::Bf16True, Precision::Tf32];

    /// The names of all precisions.
    pub const NAMES: [&'static str; 4] = ["32-true", "bf16-mixed", "bf16-true", "tf32"];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32True => "32-true",
            Precision::Tf32 => "tf32",
            Precision::Bf16Mixed => "bf16-mixed",
            Precision::Bf16True => "bf16-true",
        }
    }

    /// The element type of parameters, their gradients and moments.
    pub const fn parameters(self) -> DType {
        match self {
            Precision::Bf16True => DType::BF16,
            Precision::F32True | Precision::Tf32 | Precision::Bf16Mixed => DType::F32,
        }
    }

    /// The element type in which a state has copies of parameters for products, if it has any.
    pub const fn copies(self) -> Option<DType> {
        match self {
            Precision::Bf16Mixed => Some(DType::BF16),
            Precision::F32True | Precision::Tf32 | Precision::Bf16True => None,
        }
    }

    /// What operands of products are rounded to, as data sheets of devices call it.
    pub const fn products(self) -> &'static str {
        match self {
            Precision::F32True => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16Mixed | Precision::Bf16True => "bf16",
        }
    }

    /// Compiler options for programs of this precision on the options' device; the other options stay as they are.
    ///
    /// # Errors
    /// `tf32` where no executor of the list has it.
    pub fn compile_options(self, options: &Options) -> Result<Options> {
        let mut options = Options { autocast: self.copies(), ..options.clone() };
        if self == Precision::Tf32 {
            let device = options.device.unwrap_or(Device::CPU);
            let list = rounded_to_tf32(&options.executor_list(device.kind()));
            if !list.iter().any(rounds) {
                let message = format!(
                    "is tf32, no executor of the list computes products of f32 in tf32; the device is {device}"
                );
                return Err(wrong("precision", message));
            }
            // The list is the usual one, with what was asked for before the rest.
            if options.executors.is_none() && options.choose == Choose::Auto {
                let chooses = find_kind(device.kind()).is_ok_and(|kind| kind.chooses());
                options.choose = if chooses { Choose::Always } else { Choose::Never };
            }
            options.executors = Some(list);
        }
        Ok(options)
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = String;

    /// The precision of a name. `32` is `32-true`, as in LitGPT.
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        if name == "32" {
            return Ok(Precision::F32True);
        }
        if let Some(found) = Precision::ALL.into_iter().find(|precision| precision.name() == name) {
            return Ok(found);
        }
        if name.starts_with("16") {
            return Err("f16 needs loss scaling, which is missing; there are bf16-mixed and bf16-true".into());
        }
        let all = Precision::NAMES.join(", ");
        Err(match nearest(name, Precision::NAMES.into_iter()) {
            Some(near) => format!("did you mean {near}? there are {all}"),
            None => format!("there are {all}"),
        })
    }
}

fn rounds(executor: &&'static ExecutorDef) -> bool {
    executor.precision == ExecutorPrecision::Tf32
}

/// `list` with products of f32 rounded to TF32 (10 bits of fraction), where executors that come with those of the list
/// do that.
fn rounded_to_tf32(list: &[&'static ExecutorDef]) -> Vec<&'static ExecutorDef> {
    rounded_to(ExecutorPrecision::Tf32, list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_runtime::executor::default_executors;

    #[test]
    fn executors_of_the_precision_stand_before_the_others() {
        let list = default_executors("cuda");
        let rounded = rounded_to_tf32(&list);
        let names: Vec<&str> = rounded.iter().map(|executor| executor.name).collect();
        assert_eq!(names[..2], ["flash_tf32", "tf32"]);
        assert_eq!(names.len(), list.len() + 2);
        let again = rounded_to_tf32(&rounded);
        assert_eq!(again.len(), rounded.len());
        let without_attention: Vec<_> = list.iter().copied().filter(|executor| executor.name != "flash").collect();
        assert_eq!(rounded_to_tf32(&without_attention)[0].name, "tf32");
        let host = default_executors("cpu");
        assert_eq!(rounded_to_tf32(&host).len(), host.len());
    }

    #[test]
    fn names_are_read_and_others_are_told() {
        for precision in Precision::ALL {
            assert_eq!(precision.name().parse(), Ok(precision));
        }
        assert_eq!(Precision::NAMES, Precision::ALL.map(Precision::name));
        assert_eq!("32".parse(), Ok(Precision::F32True));
        for (name, expected) in [
            ("16-mixed", "f16 needs loss scaling"),
            ("16-true", "f16 needs loss scaling"),
            ("bf16-ture", "did you mean bf16-true? there are 32-true, bf16-mixed, bf16-true, tf32"),
            ("double", "there are 32-true"),
        ] {
            let message = name.parse::<Precision>().unwrap_err();
            assert!(message.contains(expected), "{name}: {message}");
        }
    }

    #[test]
    fn tf32_needs_an_executor_that_has_it() {
        let error = Precision::Tf32.compile_options(&Options::default()).unwrap_err().to_string();
        assert!(
            error.contains("no executor of the list computes products of f32 in tf32; the device is cpu"),
            "{error}"
        );
        let device = Some(Device::new("cuda", 0));
        let options = Precision::Tf32.compile_options(&Options { device, ..Options::default() }).unwrap();
        assert!(options.executor_list("cuda").iter().any(rounds));
        let mixed = Precision::Bf16Mixed.compile_options(&Options::default()).unwrap();
        assert_eq!(mixed.autocast, Some(DType::BF16));
        assert_eq!(Precision::Bf16True.compile_options(&mixed).unwrap().autocast, None);
    }
}
