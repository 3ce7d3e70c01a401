//! The expansion of `#[derive(Tree)]`.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{GenericParam, Type};

use super::{made, root};
use crate::model::{generic_argument, is_word};
use crate::tree::Tree;

/// Expands a tree.
pub fn expand(tree: &Tree) -> TokenStream {
    let Tree { input, leaf, fields } = tree;
    let (name, root) = (&input.ident, root());
    let mut generics = input.generics.clone();
    for param in &mut generics.params {
        if let GenericParam::Type(param) = param {
            param.bounds.push(syn::parse_quote!(#root::tree::Leaf));
            param.default = None;
        }
    }
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    // The same struct over other leaves.
    let other = made("Other");
    let over_other = generics.params.iter().map(|param| match param {
        GenericParam::Type(_) => quote!(#other),
        GenericParam::Lifetime(param) => {
            let lifetime = &param.lifetime;
            quote!(#lifetime)
        }
        GenericParam::Const(param) => {
            let name = &param.ident;
            quote!(#name)
        }
    });
    let over_other = quote!(#name<#(#over_other),*>);
    let visits = fields.iter().filter(|field| !field.attribute).map(|field| {
        let (ident, text) = (&field.ident, field.ident.to_string());
        quote!(#root::tree::Tree::visit(&self.#ident, &#root::tree::join(path, #text), f);)
    });
    let maps = fields.iter().map(|field| {
        let ident = &field.ident;
        match field.attribute {
            true => quote!(#ident: self.#ident),
            false => {
                let value = map(&field.ty, leaf, quote!(self.#ident));
                quote!(#ident: #value)
            }
        }
    });
    let attributes = fields.iter().map(|field| {
        let ident = &field.ident;
        match field.attribute {
            true => quote!(found.push(#root::argument::AttributeType::to_attribute(&self.#ident));),
            false => quote!(#root::tree::Tree::attributes(&self.#ident, found);),
        }
    });
    quote! {
        impl #impl_generics #root::tree::Tree for #name #type_generics #where_clause {
            type Leaf = #leaf;
            type With<#other: #root::tree::Leaf> = #over_other;
            fn visit<'tree>(&'tree self, path: &str, f: &mut dyn FnMut(&str, &'tree #leaf)) {
                #(#visits)*
            }
            fn map<#other: #root::tree::Leaf>(self, f: &mut dyn FnMut(#leaf) -> #other) -> #over_other {
                #name { #(#maps),* }
            }
            fn attributes(&self, found: &mut Vec<#root::argument::Attribute>) {
                #(#attributes)*
            }
        }
    }
}

/// `value` of type `ty` with other leaves. A leaf itself is given to `f`; what is no list or option is a tree.
fn map(ty: &Type, leaf: &Ident, value: TokenStream) -> TokenStream {
    if is_word(ty, &leaf.to_string()) {
        return quote!(f(#value));
    }
    for (word, walk) in [("Option", quote!()), ("Vec", quote!(.into_iter()))] {
        if let Some(inner) = generic_argument(ty, word) {
            let inner = map(inner, leaf, quote!(item));
            let collect = (word == "Vec").then(|| quote!(.collect()));
            return quote!(#value #walk.map(|item| #inner)#collect);
        }
    }
    let root = root();
    if let Type::Tuple(tuple) = ty {
        let parts = tuple.elems.iter().enumerate().map(|(i, element)| {
            let index = syn::Index::from(i);
            map(element, leaf, quote!(parts.#index))
        });
        return quote!({ let parts = #value; (#(#parts,)*) });
    }
    quote!(#root::tree::Tree::map(#value, f))
}
