//! Syntax: an attribute's settings, and a module of rules whose bodies stay unparsed.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Result, Signature, Token, Visibility, parenthesized, token};

/// One setting of an attribute: `prim`, `torch = "exp"`, `waive(x = "reason")`.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Its name.
    pub name: Ident,
    /// What follows the name.
    pub value: Value,
}

/// The value of a [`Setting`].
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing follows the name.
    Flag,
    /// `= value`.
    Equals(Box<Expr>),
    /// `(settings)`.
    List(Vec<Setting>),
    /// `(words, that, are, no, settings)`, such as `in_place(0, x)` of positions.
    Tokens(TokenStream),
}

impl Parse for Setting {
    fn parse(input: ParseStream) -> Result<Setting> {
        let name = input.call(Ident::parse_any)?;
        let value = if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            Value::Equals(input.parse()?)
        } else if input.peek(token::Paren) {
            let content;
            parenthesized!(content in input);
            let tokens: TokenStream = content.parse()?;
            match settings.parse2(tokens.clone()) {
                Ok(settings) => Value::List(settings),
                Err(_) => Value::Tokens(tokens),
            }
        } else {
            Value::Flag
        };
        Ok(Setting { name, value })
    }
}

impl ToTokens for Setting {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.name.to_tokens(tokens);
        match &self.value {
            Value::Flag => {}
            Value::Equals(value) => value.to_tokens(tokens),
            Value::List(settings) => settings.iter().for_each(|setting| setting.to_tokens(tokens)),
            Value::Tokens(inner) => inner.to_tokens(tokens),
        }
    }
}

/// Settings separated by commas.
pub fn settings(input: ParseStream) -> Result<Vec<Setting>> {
    Ok(Punctuated::<Setting, Token![,]>::parse_terminated(input)?.into_iter().collect())
}

/// A function of a module whose body is kept as it was written.
#[derive(Debug, Clone)]
pub struct Function {
    /// Its attributes.
    pub attrs: Vec<Attribute>,
    /// Its visibility.
    pub vis: Visibility,
    /// Everything from `fn` to the return type.
    pub sig: Signature,
    /// The body, unparsed; `None` for a signature.
    pub body: Option<Group>,
}

impl ToTokens for Function {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.attrs.iter().for_each(|attribute| attribute.to_tokens(tokens));
        self.vis.to_tokens(tokens);
        self.sig.to_tokens(tokens);
        match &self.body {
            Some(body) => body.to_tokens(tokens),
            None => <Token![;]>::default().to_tokens(tokens),
        }
    }
}

/// Something in a module.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A function, with or without a body.
    Function(Box<Function>),
    /// Anything else, passed through.
    Other(TokenStream),
}

/// An attributed module.
#[derive(Debug, Clone)]
pub struct Module {
    /// Attributes beside ours: documentation, `cfg`, ...
    pub attrs: Vec<Attribute>,
    /// Its visibility.
    pub vis: Visibility,
    /// Its name.
    pub ident: Ident,
    /// The items of the module.
    pub entries: Vec<Entry>,
}

impl Parse for Module {
    fn parse(input: ParseStream) -> Result<Module> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        if !input.peek(Token![mod]) {
            return Err(input.error("expected a module: `pub mod name { ... }`, which holds the rules as functions"));
        }
        input.parse::<Token![mod]>()?;
        let ident: Ident = input.parse()?;
        if input.peek(Token![;]) {
            return Err(input.error(format!("the rules must be written right here: `mod {ident} {{ ... }}`")));
        }
        let content;
        syn::braced!(content in input);
        let mut attrs = attrs;
        attrs.extend(content.call(Attribute::parse_inner)?);
        let mut entries = Vec::new();
        while !content.is_empty() {
            entries.push(content.parse()?);
        }
        Ok(Module { attrs, vis, ident, entries })
    }
}

impl Parse for Entry {
    fn parse(input: ParseStream) -> Result<Entry> {
        let ahead = input.fork();
        let _ = ahead.call(Attribute::parse_outer)?;
        let _ = ahead.parse::<Visibility>()?;
        if !starts_function(&ahead) {
            return Ok(Entry::Other(input.parse::<syn::Item>()?.into_token_stream()));
        }
        let attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let sig = input.parse()?;
        let body = match input.parse::<TokenTree>()? {
            TokenTree::Group(body) => Some(body),
            _ => None,
        };
        Ok(Entry::Function(Box::new(Function { attrs, vis, sig, body })))
    }
}

fn starts_function(input: ParseStream) -> bool {
    let ahead = input.fork();
    loop {
        if ahead.peek(Token![fn]) {
            return true;
        }
        // `const`, `async`, `unsafe` and `extern "C"` may come before `fn`; any of them may also begin another item.
        let qualifier = ahead.peek(Token![const])
            || ahead.peek(Token![async])
            || ahead.peek(Token![unsafe])
            || ahead.peek(Token![extern])
            || ahead.peek(syn::LitStr);
        if !qualifier || ahead.parse::<TokenTree>().is_err() {
            return false;
        }
    }
}

/// The text of `///` comments, one leading space of each line removed.
pub fn documentation(attrs: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attrs {
        if let syn::Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &pair.value
        {
            let text = text.value();
            lines.extend(text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end().to_owned()));
            if text.is_empty() {
                lines.push(String::new());
            }
        }
    }
    lines.join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use quote::quote;

    #[test]
    fn bodies_stay_unparsed() {
        let module: Module = syn::parse2(quote! {
            /// Adds.
            ///
            /// More.
            pub mod add {
                use std::fmt;
                fn add(a: Tensor, #[default(1.0)] alpha: f64) -> Tensor;
                fn meta(a: &TensorMeta) -> Result<TensorMeta> { this is no Rust }
                const fn helper() -> usize { 3 }
                const LIMIT: usize = { 3 };
                struct Held { a: usize }
            }
        })
        .unwrap();
        assert_eq!(module.ident, "add");
        assert_eq!(documentation(&module.attrs), "Adds.\n\nMore.");
        let functions: Vec<_> = module
            .entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Function(function) => Some((function.sig.ident.to_string(), function.body.is_some())),
                Entry::Other(_) => None,
            })
            .collect();
        assert_eq!(functions, [("add".into(), false), ("meta".into(), true), ("helper".into(), true)]);
        assert_eq!(module.entries.len(), 6);
    }

    #[test]
    fn settings_of_every_form() {
        let parsed =
            settings.parse2(quote!(prim, torch = "exp", effects(random, shares(0, x)), executor = a::b)).unwrap();
        assert_eq!(parsed.len(), 4);
        assert!(matches!(&parsed[0].value, Value::Flag));
        assert!(matches!(&parsed[1].value, Value::Equals(_)));
        let Value::List(effects) = &parsed[2].value else { panic!("effects is a list") };
        assert!(matches!(&effects[1].value, Value::Tokens(_)));
    }
}
