//! Rates of devices for the shares of rows.

use fulgurite::Device;
use fulgurite::models::metrics::rates::Rates;

use super::report::short;

/// Rates of devices, measured when the first row needs them: training runs before that have the device for themselves.
pub struct RatesOf {
    measured: Vec<(Device, Result<Rates, String>)>,
    again: bool,
}

impl RatesOf {
    /// None yet; `again` is whether records are replaced.
    pub fn new(again: bool) -> RatesOf {
        RatesOf { measured: Vec::new(), again }
    }

    /// Those of a device, if they can be measured.
    pub fn of(&mut self, device: Device) -> Option<Rates> {
        if let Some((_, rates)) = self.measured.iter().find(|(known, _)| *known == device) {
            return rates.as_ref().ok().cloned();
        }
        let rates = if self.again { Rates::measure(device) } else { Rates::of(device) };
        let rates = rates.map_err(|error| error.to_string());
        self.measured.push((device, rates.clone()));
        rates.ok()
    }

    /// A line for each device.
    pub fn in_words(&self) -> Vec<String> {
        let words = |(device, rates): &(Device, Result<Rates, String>)| match rates {
            Ok(rates) => {
                let products =
                    rates.products.iter().map(|(name, rate)| format!("{name} {} TFLOP/s", short(rate / 1e12)));
                let products: Vec<String> = products.collect();
                format!("{device}: copy {} GB/s; products {}", short(rates.copy / 1e9), products.join(", "))
            }
            Err(reason) => format!("{device}: none: {reason}"),
        };
        self.measured.iter().map(words).collect()
    }
}
