//! The expansion of a family: what its operators share is emitted once, as a macro that each row calls.

use proc_macro2::{Ident, Punct, Spacing, TokenStream};
use quote::{format_ident, quote};

use super::made;
use super::operator::{Library, call, exported, module, own_class, signature};
use crate::declaration::Operator;

/// Operators of one signature, but for the classes of their arguments.
struct Group {
    /// What tells it from others: the signature with variables in place of the classes.
    signature: String,
    /// The places of its operators in the table.
    rows: Vec<usize>,
}

/// Expands the operators of a family, each told whether nothing is wrong with it: all are exported together.
pub fn expand(operators: &[(Operator, bool)]) -> TokenStream {
    let Some((first, _)) = operators.first() else { return TokenStream::new() };
    let mut groups: Vec<Group> = Vec::new();
    for (row, (operator, _)) in operators.iter().enumerate() {
        let signature = signature(operator, |place, _| variable(place)).to_string();
        match groups.iter_mut().find(|group| group.signature == signature) {
            Some(group) => group.rows.push(row),
            None => groups.push(Group { signature, rows: vec![row] }),
        }
    }
    let mut calls: Vec<TokenStream> = operators.iter().map(|(operator, _)| call(operator)).collect();
    let mut macros = TokenStream::new();
    // What one row alone has stays in that row.
    for (i, group) in groups.iter().filter(|group| group.rows.len() > 1).enumerate() {
        let members: Vec<&Operator> = group.rows.iter().map(|row| &operators[*row].0).collect();
        let (definition, members) = shared(&format_ident!("__family_{i}"), &members);
        macros.extend(definition);
        group.rows.iter().zip(members).for_each(|(row, call)| calls[*row] = call);
    }
    let modules = operators.iter().zip(&calls).map(|((operator, complete), call)| module(operator, call, *complete));
    let exported = operators.iter().map(|(operator, _)| exported(operator));
    let vis = &first.vis;
    quote! {
        #macros
        #(#modules)*
        #[doc(inline)]
        #[allow(unused_imports)]
        #vis use {#(#exported),*};
    }
}

/// The macro that adds what operators share to what is a row's own, and its call by each of them. Shared are the
/// signature (a row gives the classes of its arguments, if they differ) and the sets of rules that all have alike.
fn shared(name: &Ident, operators: &[&Operator]) -> (TokenStream, Vec<TokenStream>) {
    let libraries: Vec<Library> = operators.iter().map(|operator| Library::of(operator)).collect();
    let classes: Vec<Vec<(usize, &str)>> = operators.iter().map(|operator| classes(operator)).collect();
    let differ = classes.iter().any(|own| *own != classes[0]);
    let alike = |set: &TokenStream| {
        let text = set.to_string();
        libraries.iter().all(|library| library.sets.iter().any(|own| own.to_string() == text))
    };
    let calls = libraries.iter().zip(&classes).map(|(Library { own, sets }, classes)| {
        let classes = differ.then(|| {
            let classes = classes.iter().map(|(_, class)| made(class));
            quote!((#(#classes)*))
        });
        let sets = sets.iter().filter(|set| !alike(set));
        quote!(#name! { #classes #own #(#sets)* })
    });
    let calls = calls.collect();
    let variables = differ.then(|| {
        let variables = classes[0].iter().map(|(place, _)| variable(*place));
        quote!((#(#variables:ident)*))
    });
    let signature = match differ {
        true => signature(operators[0], |place, _| variable(place)),
        false => signature(operators[0], own_class),
    };
    let sets = libraries[0].sets.iter().filter(|set| alike(set));
    let (dollar, root) = (dollar(), super::root());
    let definition = quote! {
        macro_rules! #name {
            (#variables #dollar(#dollar row:tt)*) => {
                #root::__operator! { #signature #dollar(#dollar row)* #(#sets)* }
            };
        }
    };
    (definition, calls)
}

/// The classes of an operator's arguments, each with the argument's place.
fn classes(operator: &Operator) -> Vec<(usize, &'static str)> {
    let params = operator.signature.params.iter().enumerate();
    params.filter_map(|(place, param)| Some((place, param.kind.class()?.name()))).collect()
}

/// The variable of a family's macro that stands for the class of the argument at `place`.
fn variable(place: usize) -> TokenStream {
    let (dollar, name) = (dollar(), format_ident!("class_{place}"));
    quote!(#dollar #name)
}

fn dollar() -> Punct {
    Punct::new('$', Spacing::Alone)
}
