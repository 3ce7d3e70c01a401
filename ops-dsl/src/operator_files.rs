//! `operator_files!`: the operators of a folder.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Ident, Token};

/// The expansion of `operator_files! { exp, rms_norm }`: one file for each operator, named after it, whose operator
/// module and function are in the module that lists the file. (A file module of the operator's own name would hide the
/// operator's module.)
pub fn operator_files(input: TokenStream) -> TokenStream {
    let names = Punctuated::<Ident, Token![,]>::parse_terminated.parse2(input);
    let names = match names {
        Ok(names) => names,
        Err(error) => return error.to_compile_error(),
    };
    names
        .iter()
        .map(|name| {
            let path = format!("{name}.rs");
            let module = format_ident!("{name}_file");
            quote! {
                #[path = #path]
                mod #module;
                pub use #module::*;
            }
        })
        .collect()
}
