//! PyTorch's functions on tensors, from a list that `ops-dsl/torch_names.py` writes.

use std::collections::BTreeMap;

/// A line for each name, `NAME = OTHER` for another name of a function, behind a line that has the version.
const LIST: &str = include_str!("torch_operators.txt");

/// The version of PyTorch that the list was made from.
pub fn version() -> &'static str {
    LIST.strip_prefix("# PyTorch ").and_then(|rest| rest.split(',').next()).unwrap_or("?")
}

/// The functions by one name of each, with all names that it has, that one among them.
pub fn functions() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut functions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        let (name, of) = line.split_once(" = ").unwrap_or((line, line));
        functions.entry(of).or_default().push(name);
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both lists are written at once, from one PyTorch.
    #[test]
    fn the_names_are_those_that_declarations_may_say() {
        let all = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../ops-dsl/src/torch_names.txt"));
        let all: Vec<&str> = all.lines().collect();
        let functions = functions();
        assert!(functions.len() > 700, "{}", functions.len());
        for name in functions.values().flatten() {
            assert!(all.contains(name), "{name}");
        }
        for (name, names) in &functions {
            assert!(names.contains(name), "{name} is the name of {names:?}");
        }
        assert!(version().starts_with("2."), "{}", version());
        assert_eq!(
            functions["abs"],
            ["Tensor.abs", "Tensor.abs_", "Tensor.absolute", "Tensor.absolute_", "abs", "abs_", "absolute"]
        );
    }
}
