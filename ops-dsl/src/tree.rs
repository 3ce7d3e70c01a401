//! `#[derive(Tree)]`: a struct that is generic over its leaf as a tree of named leaves.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens;
use syn::{Data, DeriveInput, Fields, GenericParam, Type};

use crate::errors::Errors;
use crate::scan;

/// A struct that becomes a tree.
#[derive(Debug)]
pub struct Tree {
    /// As it was written.
    pub input: DeriveInput,
    /// The parameter that stands for a leaf.
    pub leaf: Ident,
    /// Its fields.
    pub fields: Vec<Field>,
}

/// A field of a tree.
#[derive(Debug)]
pub struct Field {
    /// Its name.
    pub ident: Ident,
    /// Its type.
    pub ty: Type,
    /// Whether it is no part of the tree, but decides which program is compiled.
    pub attribute: bool,
}

/// Reads a struct; `None` if nothing can be made of it.
pub fn read(input: TokenStream, errors: &mut Errors) -> Option<Tree> {
    let input: DeriveInput = errors.keep(syn::parse2(input))?;
    let leaves: Vec<&Ident> = input
        .generics
        .params
        .iter()
        .filter_map(|param| match param {
            GenericParam::Type(param) => Some(&param.ident),
            _ => None,
        })
        .collect();
    let [leaf] = leaves[..] else {
        errors.at(
            &input.ident,
            format!(
                "a tree is generic over one type, which stands for its leaves: write `struct {}<T> {{ ... }}`",
                input.ident
            ),
        );
        return None;
    };
    let Data::Struct(data) = &input.data else {
        errors.at(&input.ident, "a tree is a struct: its fields name its leaves");
        return None;
    };
    let Fields::Named(named) = &data.fields else {
        errors.at(&input.ident, "the fields of a tree have names, which name its leaves");
        return None;
    };
    let mut fields = Vec::new();
    for field in &named.named {
        let mut attribute = false;
        for setting in field.attrs.iter().filter(|attribute| attribute.path().is_ident("tree")) {
            match setting.parse_args::<Ident>() {
                Ok(word) if word == "attribute" => attribute = true,
                _ => errors.at(setting, "write `#[tree(attribute)]` on a field that holds no leaves"),
            }
        }
        let holds_leaves = scan::mentions(field.ty.to_token_stream(), &leaf.to_string());
        if !attribute && !holds_leaves {
            errors.at(
                &field.ty,
                format!(
                    "this field holds no `{leaf}`; write `#[tree(attribute)]` before it if it decides which \
                         program is compiled"
                ),
            );
        } else if attribute && holds_leaves {
            errors.at(
                &field.ty,
                format!("this field holds `{leaf}`, so it is no attribute; remove `#[tree(attribute)]`"),
            );
        }
        if let Some(ident) = &field.ident {
            // A field whose kind is unclear is left out of the walk, but not of the struct.
            fields.push(Field { ident: ident.clone(), ty: field.ty.clone(), attribute: !holds_leaves });
        }
    }
    let leaf = leaf.clone();
    Some(Tree { leaf, fields, input })
}
