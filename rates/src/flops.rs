//! Arithmetic of devices, as their makers state it.

/// The first entry whose name is a part of the device's, by whole words.
pub(super) fn named<T>(model: &str, devices: impl IntoIterator<Item = (&'static str, T)>) -> Option<(&'static str, T)> {
    let words = |name: &str| name.split(|c: char| !c.is_ascii_alphanumeric()).map(str::to_owned).collect::<Vec<_>>();
    let own = words(model);
    let holds = |name: &str| own.windows(words(name).len()).any(|part| part == words(name));
    devices.into_iter().find(|(name, _)| holds(name))
}

/// Operations a second of dense products in `dtype` (`bf16`, `tf32`, `f32`) by a device that is called `model`, as its
/// maker says; `None` for a device that is not in this list.
pub fn of_device(model: &str, dtype: &str) -> Option<f64> {
    // In units of 10¹². NVIDIA's data sheets, without sparsity. The first name that is a part of the device's decides:
    // `H200 NVL` comes before `H200`.
    const DEVICES: [(&str, [f64; 3]); 9] = [
        ("H200 NVL", [835.5, 417.5, 60.0]),
        ("H200", [989.4, 494.7, 66.9]),
        ("H100 PCIe", [756.0, 378.0, 51.2]),
        ("H100 NVL", [835.5, 417.5, 60.0]),
        ("H100", [989.4, 494.7, 66.9]),
        ("A100", [312.0, 156.0, 19.5]),
        ("L40S", [362.05, 183.2, 91.6]),
        ("L4", [121.0, 60.0, 30.3]),
        ("A10", [125.0, 62.5, 31.2]),
    ];
    let (_, [bf16, tf32, f32]) = named(model, DEVICES)?;
    let unit = match dtype {
        "bf16" => bf16,
        "tf32" => tf32,
        "f32" => f32,
        _ => return None,
    };
    Some(unit * 1e12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_by_whole_words() {
        assert_eq!(of_device("NVIDIA H200, 132 multiprocessors", "bf16"), Some(989.4e12));
        assert_eq!(of_device("NVIDIA H200 NVL", "bf16"), Some(835.5e12));
        assert_eq!(of_device("NVIDIA H100 80GB HBM3", "tf32"), Some(494.7e12));
        assert_eq!(of_device("NVIDIA H100 PCIe", "bf16"), Some(756e12));
        assert_eq!(of_device("NVIDIA L40S", "f32"), Some(91.6e12));
        assert_eq!(of_device("NVIDIA A100-SXM4-80GB", "bf16"), Some(312e12));
        for (name, dtype) in [("NVIDIA GeForce", "bf16"), ("NVIDIA L400", "bf16"), ("NVIDIA H200", "f16")] {
            assert_eq!(of_device(name, dtype), None);
        }
    }
}
