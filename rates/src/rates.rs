//! Measured rates of devices: measured once for a model of devices, its driver and its libraries, and recorded below
//! the cache. `fulgurite profile --measure` measures again.

use std::collections::BTreeMap;

use fulgurite_kernels::caches::caches;
use fulgurite_kernels::folder::Folder;
use fulgurite_runtime::choices::{Machine, VERSION};
use fulgurite_runtime::program::{Ceiling, Ceilings, Source};
use fulgurite_runtime::{Device, Result};
use serde::{Deserialize, Serialize};

use super::measured::{copy_rate, product_rates};
use super::{bandwidth, flops};

/// Maximum size of all records, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// Rates beyond this are no measurement, in bytes or operations a second.
const MOST_RATE: f64 = 1e21;

/// What the devices of a model do in a second, measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// The model.
    pub device: String,
    /// Versions of the driver and libraries.
    pub libraries: String,
    /// The version of Fulgurite, whose kernels were measured too.
    pub version: String,
    /// Bytes that a large copy reads and writes in a second: that of the driver or of a kernel, whichever is faster.
    pub copy: f64,
    /// Floating-point operations in a second of a large product of random numbers, by what its operands are rounded to:
    /// `bf16`, `f16`, `tf32`, `f32`. Without those that no executor of the device computes.
    pub products: BTreeMap<String, f64>,
}

impl Rates {
    /// Those of `device`: recorded, or measured now, which takes seconds.
    ///
    /// # Errors
    /// If the device is not available, or a measurement fails.
    pub fn of(device: Device) -> Result<Rates> {
        match Rates::recorded(device)? {
            Some(rates) => Ok(rates),
            None => Rates::measure(device),
        }
    }

    /// The record of `device`; `None` where there is none, or a damaged one.
    ///
    /// # Errors
    /// If the device is not available.
    pub fn recorded(device: Device) -> Result<Option<Rates>> {
        let machine = Machine::of(device)?;
        let found = folder().and_then(|folder| folder.read(&file(&machine)).ok().flatten());
        Ok(found.and_then(|content| Rates::read(&content, &machine)))
    }

    /// Measures `device`, and records what comes out in place of an earlier record.
    ///
    /// # Errors
    /// If the device is not available, or a measurement fails.
    pub fn measure(device: Device) -> Result<Rates> {
        let Machine { device: model, libraries } = Machine::of(device)?;
        let (copy, products) = (copy_rate(device)?, product_rates(device)?);
        let rates = Rates { device: model, libraries, version: VERSION.to_owned(), copy, products };
        if let (Some(folder), Ok(text)) = (folder(), serde_json::to_string_pretty(&rates)) {
            let machine = Machine { device: rates.device.clone(), libraries: rates.libraries.clone() };
            folder.keep(&file(&machine), &[text.as_bytes(), b"\n"]);
        }
        Ok(rates)
    }

    /// A record, if it is one of this machine and has rates that can be.
    fn read(content: &[u8], machine: &Machine) -> Option<Rates> {
        let rates: Rates = serde_json::from_slice(content).ok()?;
        let own = (&rates.device, &rates.libraries) == (&machine.device, &machine.libraries);
        let can_be = |rate: &f64| (1.0..MOST_RATE).contains(rate);
        (own && rates.version == VERSION && can_be(&rates.copy) && rates.products.values().all(can_be)).then_some(rates)
    }

    /// The ceilings of a program whose products round their operands to `products`.
    pub fn ceilings(&self, products: &str) -> Ceilings {
        let measured = |per_second: f64| Ceiling { per_second, source: Source::Measured };
        Ceilings { bytes: Some(measured(self.copy)), flops: self.products.get(products).copied().map(measured) }
    }
}

/// The ceilings of `device` for a program whose products round their operands to `products` (`bf16`, `f16`, `tf32`,
/// `f32`): measured, or, where that fails, those of the data sheet.
///
/// # Errors
/// If the device is not available.
pub fn ceilings(device: Device, products: &str) -> Result<Ceilings> {
    let model = Machine::of(device)?.device;
    let of_sheet = |rate: Option<f64>| rate.map(|per_second| Ceiling { per_second, source: Source::DataSheet });
    let measured = Rates::of(device).map_or_else(|_| Ceilings::default(), |rates| rates.ceilings(products));
    Ok(Ceilings {
        bytes: measured.bytes.or(of_sheet(bandwidth::of_device(&model))),
        flops: measured.flops.or(of_sheet(flops::of_device(&model, products))),
    })
}

fn folder() -> Option<Folder> {
    Some(Folder::new(caches()?.join("rates"), MOST_BYTES))
}

/// The name of a machine's record. What the name cannot have, the record itself says.
fn file(machine: &Machine) -> String {
    let words = format!("{} {} {VERSION}", machine.device, machine.libraries);
    let plain = words.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' });
    format!("{}.json", plain.take(200).collect::<String>())
}

#[cfg(test)]
mod tests {
    // Naming the crate links the executors, which run what is measured.
    use fulgurite_executors as _;

    use super::*;

    fn rates() -> Rates {
        let products = [("bf16", 6.5e14), ("f32", 5e13)].map(|(name, rate)| (name.to_owned(), rate)).into();
        let version = VERSION.to_owned();
        Rates { device: "NVIDIA H200".into(), libraries: "driver 580".into(), version, copy: 4.1e12, products }
    }

    #[test]
    fn records_of_other_machines_and_damaged_ones_are_not_taken() {
        let machine = Machine { device: "NVIDIA H200".into(), libraries: "driver 580".into() };
        let text = |rates: &Rates| serde_json::to_vec(rates).unwrap();
        assert_eq!(Rates::read(&text(&rates()), &machine), Some(rates()));
        for other in [
            Rates { device: "NVIDIA H100".into(), ..rates() },
            Rates { libraries: "driver 570".into(), ..rates() },
            Rates { version: "0".into(), ..rates() },
            Rates { copy: 0.0, ..rates() },
            Rates { products: [("bf16".to_owned(), 1e30)].into(), ..rates() },
        ] {
            assert_eq!(Rates::read(&text(&other), &machine), None, "{other:?}");
        }
        let whole = text(&rates());
        assert_eq!(Rates::read(&whole[..whole.len() - 2], &machine), None);
        assert_eq!(file(&machine), format!("NVIDIA-H200-driver-580-{VERSION}.json"));
    }

    #[test]
    fn a_program_has_the_ceiling_of_its_products() {
        let of = |products: &str| rates().ceilings(products).flops.map(|ceiling| ceiling.per_second);
        assert_eq!([of("bf16"), of("f32"), of("tf32")], [Some(6.5e14), Some(5e13), None]);
        assert_eq!(rates().ceilings("bf16").to_string(), "4100.0 GB/s (measured), 650.0 TFLOP/s (measured)");
    }

    #[test]
    fn the_host_is_measured() {
        let measured = Rates::measure(Device::CPU).unwrap();
        assert!(measured.copy > 1e8 && measured.products["f32"] > 1e8, "{measured:?}");
        assert!(!measured.products.contains_key("tf32"), "{measured:?}");
        let ceilings = ceilings(Device::CPU, "f32").unwrap();
        assert_eq!(ceilings.flops.map(|ceiling| ceiling.source), Some(Source::Measured));
    }
}
