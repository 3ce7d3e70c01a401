//! The expansion of a family: what its operators share is emitted once, as a macro that each row calls.

use proc_macro2::{Ident, Punct, Spacing, TokenStream};
use quote::{format_ident, quote};

use super::operator::{Library, exported, module};
use crate::declaration::Operator;

/// Expands the operators of a family, each told whether nothing is wrong with it: all are exported together.
pub fn expand(operators: &[(Operator, bool)]) -> TokenStream {
    let Some((first, _)) = operators.first() else { return TokenStream::new() };
    let libraries: Vec<Library> = operators.iter().map(|(operator, _)| Library::of(operator)).collect();
    let mut shared: Vec<(String, usize)> = Vec::new();
    for library in &libraries {
        let text = library.shared.to_string();
        match shared.iter_mut().find(|(known, _)| *known == text) {
            Some((_, rows)) => *rows += 1,
            None => shared.push((text, 1)),
        }
    }
    // What one row alone has stays in that row.
    shared.retain(|(_, rows)| *rows > 1);
    let macros = shared.iter().enumerate().filter_map(|(i, (text, _))| {
        let library = libraries.iter().find(|library| library.shared.to_string() == *text)?;
        Some(shared_macro(&family_name(i), &library.shared))
    });
    let modules = operators.iter().zip(&libraries).map(|((operator, complete), library)| {
        let text = library.shared.to_string();
        let call = match shared.iter().position(|(known, _)| *known == text) {
            Some(i) => {
                let (name, own) = (family_name(i), &library.own);
                quote!(#name! { #own })
            }
            None => library.call(),
        };
        module(operator, &call, *complete)
    });
    let exported = operators.iter().map(|(operator, _)| exported(operator));
    let vis = &first.vis;
    quote! {
        #(#macros)*
        #(#modules)*
        #[doc(inline)]
        #[allow(unused_imports)]
        #vis use {#(#exported),*};
    }
}

fn family_name(i: usize) -> Ident {
    format_ident!("__family_{i}")
}

/// The macro that adds what rows share to what is a row's own.
fn shared_macro(name: &Ident, shared: &TokenStream) -> TokenStream {
    let dollar = Punct::new('$', Spacing::Alone);
    quote! {
        macro_rules! #name {
            (#dollar(#dollar row:tt)*) => {
                ::fulgurite::__operator! { #dollar(#dollar row)* #shared }
            };
        }
    }
}
