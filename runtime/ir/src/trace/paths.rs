//! Where inputs and outputs are in the trees of a function's arguments and results.

/// Where an input or output is in its tree: its path, or the number of an unnamed root (`arg0`, `result0`).
fn place_in_tree<'a>(path: &'a str, positional: &str) -> &'a str {
    path.strip_prefix(positional).filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(path)
}

/// Where an input is in its tree.
pub fn input_place(name: &str) -> &str {
    place_in_tree(name, "arg")
}

/// Where an output is in its tree.
pub fn output_place(path: &str) -> &str {
    place_in_tree(path, "result")
}
