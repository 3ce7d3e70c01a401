//! Errors are collected, so that an author sees all of them at once, each at the token that is wrong.

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// The errors found so far.
#[derive(Debug, Default)]
pub struct Errors {
    found: Vec<syn::Error>,
}

impl Errors {
    /// Adds an error that points at `tokens`.
    pub fn at(&mut self, tokens: &impl ToTokens, message: impl std::fmt::Display) {
        self.found.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds an error at a single place.
    pub fn span(&mut self, span: Span, message: impl std::fmt::Display) {
        self.found.push(syn::Error::new(span, message));
    }

    /// Adds an error of the parser.
    pub fn push(&mut self, error: syn::Error) {
        self.found.push(error);
    }

    /// The value of a result, keeping its error.
    pub fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The messages, in the order in which they were found.
    pub fn messages(&self) -> Vec<String> {
        self.found.iter().flat_map(|error| error.clone().into_iter().map(|one| one.to_string())).collect()
    }

    /// One `compile_error!` for each.
    pub fn to_compile_errors(&self) -> TokenStream {
        self.found.iter().map(syn::Error::to_compile_error).collect()
    }
}

/// The span of the first token, for errors that would otherwise underline a whole function.
pub fn span_of(tokens: &impl ToTokens) -> Span {
    tokens.to_token_stream().into_iter().next().map_or_else(Span::call_site, |token| token.span())
}

/// `, did you mean `x`?` for the candidate nearest to `name`, or nothing.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, candidates).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default()
}

/// The candidate with the least edit distance from `name` (a swap of neighbours is one edit), if it is near.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + name.len() / 4 && *distance < candidate.len())
        .map(|(_, candidate)| candidate)
}

/// The candidate that `name` is a slip of the pen away from: a letter too many or too few, or two neighbours swapped.
/// One letter for another is none: it makes another word.
pub fn slip_of<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |word: &str| {
        let mut letters: Vec<char> = word.chars().collect();
        letters.sort_unstable();
        letters
    };
    let has_slipped = |candidate: &&str| {
        let same_letters = letters(name) == letters(candidate);
        strsim::osa_distance(name, candidate) == 1 && (same_letters || name.len() != candidate.len())
    };
    candidates.into_iter().find(has_slipped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen() {
        let devices = ["cpu", "cuda"];
        for (name, meant) in [("cdua", "cuda"), ("cud", "cuda"), ("cudda", "cuda"), ("cp", "cpu"), ("pcu", "cpu")] {
            assert_eq!(slip_of(name, devices), Some(meant));
        }
        for other in ["npu", "gpu", "tpu", "dpu", "cpx", "cpu", "cuba", "sim", "c", ""] {
            assert_eq!(slip_of(other, devices), None, "{other}");
        }
    }

    #[test]
    fn near_words() {
        let rules = ["meta", "grad", "reference"];
        assert_eq!(nearest("refernce", rules), Some("reference"));
        assert_eq!(nearest("gard", rules), Some("grad"));
        assert_eq!(nearest("statistics", rules), None);
        assert_eq!(did_you_mean("met", rules), ", did you mean `meta`?");
    }
}
