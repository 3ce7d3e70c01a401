//! The crate at whose root expansions find what they need.

use proc_macro::TokenStream;
use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::TokenStream as Tokens;

/// What the operator language calls the root.
const FACADE: &str = "fulgurite";

/// What `expand` makes for the crate that the expanding package depends on: the facade under whatever name its manifest
/// gives it, else the runtime. Without either, the compiler's message is about the facade.
pub fn rooted(expand: impl FnOnce() -> Tokens) -> TokenStream {
    let named = |package: &str| match crate_name(package) {
        Ok(FoundCrate::Name(name)) => Some(name),
        // The facade's own tests and examples; its library names itself.
        Ok(FoundCrate::Itself) => Some(package.replace('-', "_")),
        Err(_) => None,
    };
    let root = named(FACADE).or_else(|| named("fulgurite-runtime")).unwrap_or_else(|| FACADE.to_owned());
    fulgurite_ops_dsl::at_root(root, expand).into()
}
