//! Products of f32 in TF32: which executors take the place of which.

use fulgurite_runtime::executor::{ExecutorDef, find_executor};
use fulgurite_runtime::{DType, Result};

/// Executors whose f32 is IEEE, or that leave f32 alone, and those that round its operands to TF32.
const ROUNDED: [(&str, &str); 1] = [("flash", "flash_tf32")];

/// `list` with products of f32 rounded to TF32 (10 bits of fraction): `tf32` first, and `flash_tf32` in place of
/// `flash`.
///
/// # Errors
/// If one of them is not linked into the program.
pub fn rounded_to_tf32(list: &[&'static ExecutorDef]) -> Result<Vec<&'static ExecutorDef>> {
    let mut rounded = vec![find_executor("tf32")?];
    for executor in list {
        rounded.push(match ROUNDED.iter().find(|(exact, _)| *exact == executor.name) {
            Some((_, name)) => find_executor(name)?,
            None => executor,
        });
    }
    Ok(rounded)
}

/// What products are computed in: the type of autocast, or `tf32`, or `f32`.
pub fn compute_dtype(autocast: Option<DType>, executors: Option<&[&'static ExecutorDef]>) -> &'static str {
    let named = |name: &str| executors.unwrap_or_default().iter().any(|executor| executor.name == name);
    match autocast {
        Some(low) => low.name(),
        None if named("tf32") || named("flash_tf32") => "tf32",
        None => "f32",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_runtime::executor::default_executors;

    #[test]
    fn rounded_executors_take_the_place_of_exact_ones() {
        let list = default_executors("cuda");
        let rounded = rounded_to_tf32(&list).unwrap();
        let names: Vec<&str> = rounded.iter().map(|executor| executor.name).collect();
        assert_eq!(names[0], "tf32");
        assert!(names.contains(&"flash_tf32") && !names.contains(&"flash"), "{names:?}");
        assert_eq!(names.len(), list.len() + 1);
        assert_eq!(compute_dtype(None, Some(&rounded)), "tf32");
        assert_eq!(compute_dtype(None, Some(&list)), "f32");
        assert_eq!(compute_dtype(Some(DType::BF16), None), "bf16");
    }
}
