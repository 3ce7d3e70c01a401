//! Axes: ranges, round numbers, their text.

/// The least and the greatest of some numbers, a little apart where they are equal; 0 and 1 if there are none.
pub(crate) fn range(numbers: impl Iterator<Item = f64> + Clone) -> [f64; 2] {
    let (least, most) = (numbers.clone().fold(f64::INFINITY, f64::min), numbers.fold(f64::NEG_INFINITY, f64::max));
    if least > most {
        return [0.0, 1.0];
    }
    let apart = if least < most { 0.0 } else { 0.5 * least.abs().max(1e-9) };
    [least - apart, most + apart]
}

/// Round numbers between two others, about five of them and at most eight.
pub(crate) fn ticks(least: f64, most: f64) -> Vec<f64> {
    let rough = (most - least) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|unit| unit * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    if !(step.is_finite() && step > 0.0) {
        return Vec::new();
    }
    let first = (least / step).ceil();
    (0..8).map(|i| (first + f64::from(i)) * step).take_while(|tick| *tick <= most + step * 1e-9).collect()
}

/// A number for people: five digits, without the rounding errors of products; whole numbers below a million as they
/// are.
pub fn number(value: f64) -> String {
    let whole = value.fract() == 0.0 && value.abs() < 1e6;
    let short: f64 = if whole { value } else { format!("{value:.4e}").parse().unwrap_or(value) };
    match short.abs() {
        0.0 => "0".into(),
        size if (1e-3..1e6).contains(&size) => short.to_string(),
        _ => format!("{short:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let told = |least, most| ticks(least, most).iter().map(|tick| number(*tick)).collect::<Vec<_>>();
        assert_eq!(told(0.0, 1.0), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        assert_eq!(told(1.0, 300.0), ["100", "200", "300"]);
        assert_eq!(number(0.000_3), "3e-4");
        assert_eq!(number(123_456.7), "123460");
        assert_eq!([123_456.0, -0.0, -2.5, f64::INFINITY].map(number), ["123456", "0", "-2.5", "inf"]);
        assert!(ticks(f64::NAN, 1.0).is_empty() && ticks(0.0, f64::INFINITY).is_empty());
        assert_eq!(range(std::iter::empty()), [0.0, 1.0]);
        assert_eq!(range([2.0].into_iter()), [1.0, 3.0]);
    }
}
