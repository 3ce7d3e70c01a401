//! The functions that a source calls.

use std::collections::BTreeSet;

/// What a source calls, and which words it has in quotes.
#[derive(Debug, Default)]
pub struct Calls {
    functions: BTreeSet<String>,
    quoted: BTreeSet<String>,
}

impl Calls {
    /// Those of a source, without comments and, but for `tests`, without the tests at its end.
    pub fn of(text: &str, tests: bool) -> Calls {
        let text = if tests { text } else { text.split("#[cfg(test)]\n").next().unwrap_or_default() };
        let mut calls = Calls::default();
        for line in text.lines() {
            calls.add(line.split("//").next().unwrap_or_default());
            calls.quoted.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
        }
        calls
    }

    /// Names before a bracket, `exp(x)` and `exp::with(x)`; a method of an iterator or a number is no operator.
    fn add(&mut self, line: &str) {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        for (at, _) in line.match_indices('(') {
            let before = line[..at].strip_suffix("::with").unwrap_or(&line[..at]);
            let name = &before[before.trim_end_matches(is_word).len()..];
            let rest = &before[..before.len() - name.len()];
            if !name.is_empty() && !rest.ends_with('.') && !rest.ends_with("fn ") {
                self.functions.insert(name.to_owned());
            }
        }
    }

    /// Whether it calls a function of this name.
    pub fn function(&self, name: &str) -> bool {
        self.functions.contains(name)
    }

    /// Whether it calls a function of this name, or has it in quotes.
    pub fn names(&self, name: &str) -> bool {
        self.function(name) || self.quoted.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_from_other_words() {
        for (text, expected) in [
            ("let y = exp(x);", true),
            ("exp::with(x).call()", true),
            ("(exp(x))", true),
            ("prims::exp(x)", true),
            ("case(\"exp\", x)", true),
            ("x.exp()", false),
            ("fn exp(x: f64)", false),
            ("log_exp(x)", false),
            ("experts(x)", false),
            ("the exp of x", false),
            ("x // exp(x)", false),
        ] {
            assert_eq!(Calls::of(text, true).names("exp"), expected, "{text}");
        }
        let tested = "log(x)\n#[cfg(test)]\nmod tests { exp(x) }";
        assert!(Calls::of(tested, true).function("exp") && !Calls::of(tested, false).function("exp"));
        assert!(Calls::of(tested, false).function("log"));
    }
}
