//! Rates of devices for the shares of rows.

use fulgurite::Device;
use fulgurite_rates::Rates;
use fulgurite_rates::too_low::TooLow;

use super::figures::Figure;
use super::report::short;
use super::rows::Row;
use super::work::Work;

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

    /// The kept rates of `device` that figures of a row exceed.
    pub fn too_low(&self, device: Device, row: &Row, figures: &[Figure]) -> Vec<TooLow> {
        let known = self.measured.iter().find(|(known, _)| *known == device);
        let Some(Ok(rates)) = known.map(|(_, rates)| rates) else { return Vec::new() };
        figures.iter().filter_map(|figure| too_low(device, rates, row, figure)).collect()
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

/// The kept rate that a figure exceeds. Backward is a difference of two times, of which the longer one may do less than
/// both alone. On the host a share of a copy is that of one measured beside the row.
fn too_low(device: Device, rates: &Rates, row: &Row, figure: &Figure) -> Option<TooLow> {
    let (share, of) = figure.share.as_ref().filter(|_| figure.unit == "us" && figure.name != "backward")?;
    let seconds = figure.median * 1e-6;
    let by = format!("{} of the row {}", figure.name, row.name);
    match (&**of, &row.work) {
        ("copy", _) if !device.is_cpu() => {
            TooLow::by_bytes(device, rates.copy, share * rates.copy * seconds, seconds, &by)
        }
        ("products", Work::Attention { dtype, .. } | Work::Product { dtype, .. } | Work::Convolution { dtype, .. }) => {
            let kept = *rates.products.get(*dtype)?;
            TooLow::by_flops(device, kept, share * kept * seconds, seconds, &by)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::all;
    use super::*;

    #[test]
    fn a_row_that_exceeds_a_kept_rate_proves_it_too_low() {
        let rows = all();
        let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        let products = [("bf16", 1e14), ("f32", 1e12)].map(|(name, rate)| (name.to_owned(), rate)).into();
        let text = String::new;
        let rates = Rates { device: text(), libraries: text(), version: text(), copy: 1e12, products };
        let found = |name: &str, figure: &str, (share, of): (f64, &str)| {
            let figure = Figure::one(figure, "us", 1000.0).with_share(Some(share), of);
            too_low(Device::CPU, &rates, row(name), &figure)
                .map(|low| (low.rate, (low.measured / low.kept * 10.0).round()))
        };
        assert_eq!(found("host-attention", "forward", (2.0, "products")), Some(("products", 20.0)));
        assert_eq!(found("product-mlp-forward", "forward", (1.3, "products")), Some(("products", 13.0)));
        assert_eq!(found("host-attention", "forward", (1.1, "products")), None);
        assert_eq!(found("host-attention", "backward", (2.0, "products")), None);
        assert_eq!(found("host-gelu", "forward", (2.0, "copy")), None, "of a copy beside the row");
        assert_eq!(found("product-mlp-forward", "forward", (2.0, "the library's best")), None);
    }
}
