//! Names of what is registered: those that declarations can have. They are printed in traces, and read back.

/// A Rust identifier of ASCII letters.
fn is_word(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(plain) && text.chars().any(|c| c != '_') && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// Checks the name of an executor, a rewrite, or a tensor of one.
///
/// # Errors
/// What is wrong, and what is expected.
pub(super) fn word(name: &str) -> Result<(), String> {
    if is_word(name) {
        return Ok(());
    }
    Err(format!("'{name}' is no name, expected one word of ASCII letters, digits and '_', no digit first"))
}

/// Checks the name of an operator: a word, in namespaces if it has some.
///
/// # Errors
/// What is wrong, and what is expected.
pub(super) fn path(name: &str) -> Result<(), String> {
    // Traces call the library's prims by one word, which would then mean another operator in texts of before.
    if name.starts_with("prims::") {
        return Err(format!("'{name}' is in the namespace of the library's prims, expected another one"));
    }
    if name.split("::").all(is_word) {
        return Ok(());
    }
    let expected = "expected words of ASCII letters, digits and '_', separated by '::', as in 'mine::swish'";
    Err(format!("'{name}' is no name of an operator, {expected}"))
}

/// Checks the name of an operator's parameter.
///
/// # Errors
/// What is wrong.
pub(super) fn parameter(name: &str) -> Result<(), String> {
    let is_result = name.strip_prefix("out").is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()));
    match name {
        "arguments" => Err(format!("'{name}' has another meaning in rules; give the parameter another name")),
        _ if is_result => Err(format!("'{name}' is what kernels call a result; give the parameter another name")),
        _ if !is_word(name) || name.starts_with('_') => Err(format!("'{name}' is no name of a parameter")),
        _ => Ok(()),
    }
}

/// Checks the name of one of several results.
///
/// # Errors
/// What is wrong.
pub(super) fn result(name: &str) -> Result<(), String> {
    match name {
        "plan" => Err(format!("'{name}' has another meaning in rules; give the result another name")),
        _ if !is_word(name) || name.starts_with('_') => Err(format!("'{name}' is no name of a result")),
        _ => Ok(()),
    }
}

/// Checks the name of a transform, which traces quote where it is no word.
///
/// # Errors
/// If there is nothing in it.
pub(super) fn label(name: &str) -> Result<(), String> {
    if name.trim().is_empty() { Err("a transform's name is not empty".into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_declarations() {
        for good in ["mine", "mine::swish", "a::b::c2", "where", "_x1"] {
            assert_eq!(path(good), Ok(()));
        }
        for bad in ["", "a b", "a:b", "::a", "a::", "2a", "a-b", "a.b", "_", "größe", "a\n"] {
            assert!(path(bad).unwrap_err().contains("is no name of an operator"), "{bad:?}");
            assert!(word(bad).unwrap_err().contains("is no name"), "{bad:?}");
        }
        assert!(path("prims::swish").unwrap_err().contains("namespace of the library's prims"));
        assert!(path("prims").is_ok() && path("mine::prims::swish").is_ok());
        assert!(word("a::b").is_err());
        assert!(label("at Start").is_ok() && label(" ").is_err());
        for bad in ["x y", "2x", "_x", "out", "out1", "arguments", ""] {
            assert!(parameter(bad).is_err(), "{bad:?}");
        }
        assert!(parameter("output").is_ok() && result("out").is_ok());
        assert!(result("plan").is_err() && result("a b").is_err());
    }
}
