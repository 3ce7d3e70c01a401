//! Products of f32 in TF32: the executors that compute them.

use fulgurite_runtime::DType;
use fulgurite_runtime::executor::{ExecutorDef, executors};
use fulgurite_runtime::precision::Precision;

/// `list` with products of f32 rounded to TF32 (10 bits of fraction): before the others stand the executors of that
/// precision that come in one package with an executor of the list (`tf32` with `cublaslt`, `flash_tf32` with `flash`).
/// Without such an executor the list is unchanged.
pub fn rounded_to_tf32(list: &[&'static ExecutorDef]) -> Vec<&'static ExecutorDef> {
    let rounds = |executor: &&'static ExecutorDef| executor.precision == Precision::Tf32;
    let comes_with = |executor: &&'static ExecutorDef| list.iter().any(|own| own.package == executor.package);
    let first = executors().into_iter().filter(|executor| rounds(executor) && comes_with(executor));
    first.chain(list.iter().copied().filter(|executor| !rounds(executor))).collect()
}

/// What products are computed in: the type of autocast, or `tf32`, or `f32`.
pub fn compute_dtype(autocast: Option<DType>, executors: Option<&[&'static ExecutorDef]>) -> &'static str {
    let rounds = |executor: &&'static ExecutorDef| executor.precision == Precision::Tf32;
    match autocast {
        Some(low) => low.name(),
        None if executors.unwrap_or_default().iter().any(rounds) => Precision::Tf32.name(),
        None => DType::F32.name(),
    }
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
        assert_eq!(compute_dtype(None, Some(&rounded)), "tf32");
        assert_eq!(compute_dtype(None, Some(&list)), "f32");
        assert_eq!(compute_dtype(Some(DType::BF16), None), "bf16");
        let again = rounded_to_tf32(&rounded);
        assert_eq!(again.len(), rounded.len());
        let without_attention: Vec<_> = list.iter().copied().filter(|executor| executor.name != "flash").collect();
        assert_eq!(rounded_to_tf32(&without_attention)[0].name, "tf32");
        let host = default_executors("cpu");
        assert_eq!(rounded_to_tf32(&host).len(), host.len());
    }
}
