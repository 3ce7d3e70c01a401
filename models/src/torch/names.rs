//! Names of tensors without what wrappers of modules put into them.

use std::collections::BTreeMap;

/// Parts of names that wrappers add where a module is wrapped: `torch.compile`, FSDP, and checkpointing of activations.
const WRAPPERS: [&str; 3] = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];
/// What `DataParallel` and `DistributedDataParallel` put before every name.
const OF_ALL: &str = "module.";

/// The tensors by their names in the model that was wrapped.
///
/// # Errors
/// A name that two tensors then have.
pub(crate) fn unwrapped<T>(
    tensors: impl IntoIterator<Item = (impl AsRef<str>, T)>,
) -> Result<BTreeMap<String, T>, String> {
    let without_wrappers = |name: &str| {
        let parts: Vec<&str> = name.split('.').filter(|part| !WRAPPERS.contains(part)).collect();
        parts.join(".")
    };
    let mut tensors: Vec<(String, T)> =
        tensors.into_iter().map(|(name, tensor)| (without_wrappers(name.as_ref()), tensor)).collect();
    while !tensors.is_empty() && tensors.iter().all(|(name, _)| name.starts_with(OF_ALL)) {
        tensors.iter_mut().for_each(|(name, _)| drop(name.drain(..OF_ALL.len())));
    }
    let mut found = BTreeMap::new();
    for (name, tensor) in tensors {
        if found.insert(name.clone(), tensor).is_some() {
            return Err(name);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(wrapped: &[&str]) -> Result<Vec<String>, String> {
        let found = unwrapped(wrapped.iter().map(|name| (*name, ())))?;
        Ok(found.into_keys().collect())
    }

    #[test]
    fn wrappers_leave_no_part_of_a_name() {
        assert_eq!(names(&["_orig_mod.a", "_orig_mod.b.c"]).unwrap(), ["a", "b.c"]);
        assert_eq!(names(&["module._orig_mod.a", "module.b"]).unwrap(), ["a", "b"]);
        assert_eq!(names(&["h.0._orig_mod.a", "h.1._fsdp_wrapped_module.a"]).unwrap(), ["h.0.a", "h.1.a"]);
        // A model may have a part of that name.
        assert_eq!(names(&["module.a", "b"]).unwrap(), ["b", "module.a"]);
        assert_eq!(names(&["a", "_orig_mod.a"]).unwrap_err(), "a");
    }
}
