//! The crate at whose root expansions find what they need.

use proc_macro::TokenStream;
use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Group, Ident, TokenStream as Tokens, TokenTree};

/// What the operator language calls the root.
const FACADE: &str = "fulgurite";

/// The expansion with `::fulgurite` replaced by the name of the crate that the expanding package depends on: the
/// facade under whatever name its manifest gives it, else the runtime. Without either, the compiler's message is about
/// the facade. A path of the author's own with a segment `fulgurite` behind others is renamed as well.
pub fn rooted(expansion: Tokens) -> TokenStream {
    let named = |package: &str| match crate_name(package) {
        Ok(FoundCrate::Name(name)) => Some(name),
        // The facade's own tests and examples; its library names itself.
        Ok(FoundCrate::Itself) => Some(package.replace('-', "_")),
        Err(_) => None,
    };
    let root = named(FACADE).or_else(|| named("fulgurite-runtime")).unwrap_or_else(|| FACADE.to_owned());
    let replaced = if root == FACADE { None } else { replaced(&expansion, &root) };
    replaced.unwrap_or(expansion).into()
}

/// The tokens with `::fulgurite` replaced by `::root`. A group in which nothing is replaced stays the same object: what
/// a `macro_rules` captured in the author's code would lose its precedence in a new one.
fn replaced(tokens: &Tokens, root: &str) -> Option<Tokens> {
    let (mut colons, mut found) = (0, false);
    let replaced = tokens
        .clone()
        .into_iter()
        .map(|token| {
            let behind = colons >= 2;
            colons = match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons + 1,
                _ => 0,
            };
            let new = match &token {
                TokenTree::Group(group) => replaced(&group.stream(), root).map(|stream| {
                    let mut new = Group::new(group.delimiter(), stream);
                    new.set_span(group.span());
                    TokenTree::Group(new)
                }),
                TokenTree::Ident(ident) if behind && ident == FACADE => {
                    Some(TokenTree::Ident(Ident::new(root, ident.span())))
                }
                _ => None,
            };
            found |= new.is_some();
            new.unwrap_or(token)
        })
        .collect();
    found.then_some(replaced)
}
