//! Messages in the words of a caller in Python. Most say the same in both languages; these name what an author in Rust
//! would write, and Python writes otherwise.

/// What is said in Rust's words, and in Python's.
const WORDS: [(&str, &str); 14] = [
    // An executor that is unknown; a near name may be proposed before it.
    (": is its crate linked? (`use the_crate as _;`) There are: ", ". There are: "),
    (" Or is its crate linked? (`use the_crate as _;`) There are: ", " There are: "),
    ("call it inside `trace(...)` or a function given to `jit(...)`", "call it in a function that `jit` is given"),
    ("call the Rust function that it was made of", "call the function that it was made of"),
    ("run again with every symbol waited for (FULGURITE_GRAPH=0, or --no-graph)", "run again with FULGURITE_GRAPH=0"),
    ("Array::", "Array."),
    // Generated tests.
    ("write `s.case(with(s.normal([4, 8])))`", "write `s.case(s.normal([4, 8]))` in `samples(s)`"),
    ("has neither a rule `reference` nor a decomposition", "has neither a `reference` nor a decomposition"),
    ("write `fn reference(...)`, the same in f64", "write `reference`, the same in NumPy and float64"),
    (
        "has no rule `reference`, an independent computation in f64",
        "has no `reference`, a computation of its own in NumPy",
    ),
    ("remove the waiver", "remove it from `waive`"),
    // Explanations.
    ("its implementation has no `grad`, so", "its implementation has no `grad_transform`, so"),
    ("has no `plan`, but `cpu`", "has no `cuda`, but `fn`"),
    ("has no `cpu`, but `plan`", "has no `fn`, but `cuda`"),
];

/// `text` in Python's words.
pub(crate) fn in_python(text: &str) -> String {
    let mut text = WORDS.iter().fold(text.to_owned(), |text, (rust, python)| text.replace(rust, python));
    // `waive(b = "reason")`.
    while let Some((before, rest)) = text.split_once("`waive(")
        && let Some((name, after)) = rest.split_once(" = \"reason\")`")
    {
        text = format!("{before}`waive = {{\"{name}\": \"reason\"}}`{after}");
    }
    text
}
