//! `operators! { ... }`: many operators of one kind, as a template and a table of what differs.
//!
//! The template is an ordinary declaration in which `$column` stands for a cell of the table. Each row, with its
//! documentation, becomes an `#[operator]` of its own: the same record as if it had been written out. A cell `_` leaves
//! out the settings and functions that mention its column.
//!
//! ```ignore
//! operators! {
//!     #[operator(prim, torch = $torch)]
//!     pub mod $name {
//!         fn $name(input: Tensor<Floating>) -> Tensor;
//!         fn scalar(input: Expr) -> Expr { $scalar }
//!         fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
//!             let out = $name(input);
//!             (out, move |d_out| Grads { input: $d_input })
//!         }
//!         fn reference(input: &ArrayD<f64>) -> ArrayD<f64> { elementwise(input, $reference) }
//!         fn samples(s: &mut Samples) { s.elementwise_unary($domain) }
//!     }
//!
//!     table($name, $torch, $scalar,     $d_input,        $reference, $domain) {
//!         /// Natural exponential, elementwise: `eˣ`.
//!         exp,     "exp",  input.exp(), d_out * out,     f64::exp,   Domain::ALL;
//!         /// Natural logarithm, elementwise.
//!         log,     "log",  input.log(), d_out / input,   f64::ln,    Domain::POSITIVE;
//!     }
//! }
//! ```

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, Expr, Result, Token, braced, bracketed, parenthesized};

use crate::errors::{Errors, did_you_mean};
use crate::parse::{Entry, Setting, Value};
use crate::{parse, scan};

/// The expansion of a cell `_`.
const LEFT_OUT: &str = "__left_out";

/// A template and its table.
#[derive(Debug)]
pub struct Family {
    /// The settings of the template's `#[operator(...)]`.
    pub settings: TokenStream,
    /// The template's other attributes.
    pub attrs: Vec<Attribute>,
    /// The template, from its visibility on.
    pub template: TokenStream,
    /// Names of the columns.
    pub columns: Vec<Ident>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// Its documentation.
    pub attrs: Vec<Attribute>,
    /// Its cells.
    pub cells: Vec<TokenStream>,
    /// The row in the source.
    pub span: Span,
}

impl Parse for Family {
    fn parse(input: ParseStream) -> Result<Family> {
        let mut attrs = Vec::new();
        let mut settings = None;
        while input.peek(Token![#]) {
            // Attributes of the template may hold `$column`, so only their outside is parsed.
            let ahead = input.fork();
            ahead.parse::<Token![#]>()?;
            let content;
            bracketed!(content in ahead);
            if content.peek(syn::Ident) && content.parse::<Ident>()? == "operator" {
                input.parse::<Token![#]>()?;
                input.parse::<TokenTree>()?;
                settings = Some(match content.parse::<Option<Group>>()? {
                    Some(group) => group.stream(),
                    None => TokenStream::new(),
                });
            } else {
                attrs.extend(input.call(Attribute::parse_outer)?.into_iter().take(1));
            }
        }
        let Some(settings) = settings else {
            return Err(input.error("expected the template: `#[operator(...)] pub mod $name { ... }`"));
        };
        let mut template = TokenStream::new();
        loop {
            let token: TokenTree = input.parse().map_err(|_| {
                input.error("expected the template's module, `pub mod $name { ... }`, and then `table(...) { ... }`")
            })?;
            let last = matches!(&token, TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace);
            template.extend([token]);
            if last {
                break;
            }
        }
        let word: Option<Ident> = input.parse()?;
        if word.is_none_or(|word| word != "table") {
            return Err(input.error("expected `table($name, ...) { rows }`"));
        }
        let content;
        parenthesized!(content in input);
        let columns = content.parse_terminated(
            |input: ParseStream| {
                input.parse::<Token![$]>()?;
                input.parse::<Ident>()
            },
            Token![,],
        )?;
        let content;
        braced!(content in input);
        let mut rows = Vec::new();
        while !content.is_empty() {
            rows.push(content.parse()?);
        }
        if !input.is_empty() {
            return Err(input.error("nothing follows the table; write another `operators! { ... }`"));
        }
        Ok(Family { settings, attrs, template, columns: columns.into_iter().collect(), rows })
    }
}

impl Parse for Row {
    fn parse(input: ParseStream) -> Result<Row> {
        let attrs = input.call(Attribute::parse_outer)?;
        let span = input.span();
        let mut cells = Vec::new();
        while !input.peek(Token![;]) {
            cells.push(cell(input)?);
            if !input.peek(Token![;]) {
                input.parse::<Token![,]>().map_err(|error| {
                    syn::Error::new(error.span(), "expected `,` before the next cell, or `;` at the end of the row")
                })?;
            }
        }
        input.parse::<Token![;]>()?;
        Ok(Row { attrs, cells, span })
    }
}

/// An expression, or else all tokens before the next comma or semicolon.
fn cell(input: ParseStream) -> Result<TokenStream> {
    let ahead = input.fork();
    if let Ok(expression) = ahead.parse::<Expr>()
        && (ahead.peek(Token![,]) || ahead.peek(Token![;]))
    {
        input.parse::<Expr>()?;
        return Ok(expression.into_token_stream());
    }
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) && !input.peek(Token![;]) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok(tokens)
}

/// The declarations that a family stands for, as the attribute and the module of each.
pub fn read(input: TokenStream, errors: &mut Errors) -> Vec<(TokenStream, TokenStream)> {
    let Some(family) = errors.keep(syn::parse2::<Family>(input)) else { return Vec::new() };
    let columns: Vec<String> = family.columns.iter().map(Ident::to_string).collect();
    unknown_columns(&family.settings, &columns, errors);
    unknown_columns(&family.template, &columns, errors);
    for (i, column) in family.columns.iter().enumerate() {
        if columns[..i].contains(&columns[i]) {
            errors.at(column, format!("the column `${column}` is given twice"));
        } else if !uses(&family.settings, &columns[i]) && !uses(&family.template, &columns[i]) {
            errors.at(column, format!("the template does not use `${column}`"));
        }
    }
    let mut declarations = Vec::new();
    for row in family.rows {
        if row.cells.len() != columns.len() {
            let message = format!(
                "this row has {} cells, the table has {} columns: {}",
                row.cells.len(),
                columns.len(),
                columns.join(", ")
            );
            errors.span(row.span, message);
            continue;
        }
        let settings = without_left_out(substitute(family.settings.clone(), &columns, &row.cells));
        let (docs, attrs) = (&row.attrs, &family.attrs);
        let template = substitute(family.template.clone(), &columns, &row.cells);
        let module = match syn::parse2::<parse::Module>(template.clone()) {
            Ok(module) => {
                let (vis, ident) = (&module.vis, &module.ident);
                let inner = &module.attrs;
                let entries = module.entries.iter().map(|entry| match entry {
                    Entry::Function(function) => function.to_token_stream(),
                    Entry::Other(tokens) => tokens.clone(),
                });
                let entries = entries.filter(|entry| !scan::mentions(entry.clone(), LEFT_OUT));
                quote!(#(#docs)* #(#attrs)* #(#inner)* #vis mod #ident { #(#entries)* })
            }
            // What is wrong with it is said when it is read as an operator.
            Err(_) => quote!(#(#docs)* #(#attrs)* #template),
        };
        declarations.push((settings, module));
    }
    declarations
}

/// The settings that mention no cell `_`.
fn without_left_out(settings: TokenStream) -> TokenStream {
    // What is wrong with them is said when they are read as those of an operator.
    let Ok(parsed) = parse::settings.parse2(settings.clone()) else { return settings };
    let kept = parsed.iter().filter(|setting| !scan::mentions(setting.to_token_stream(), LEFT_OUT)).map(written);
    quote!(#(#kept),*)
}

fn written(setting: &Setting) -> TokenStream {
    let name = &setting.name;
    match &setting.value {
        Value::Flag => quote!(#name),
        Value::Equals(value) => quote!(#name = #value),
        Value::List(inner) => {
            let inner = inner.iter().map(written);
            quote!(#name(#(#inner),*))
        }
        Value::Tokens(tokens) => quote!(#name(#tokens)),
    }
}

/// Calls `f` with every `$name`.
fn each_placeholder(tokens: &TokenStream, f: &mut impl FnMut(&Ident)) {
    let mut tokens = tokens.clone().into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => {
                if let Some(TokenTree::Ident(name)) = tokens.peek() {
                    f(name);
                }
            }
            TokenTree::Group(group) => each_placeholder(&group.stream(), f),
            _ => {}
        }
    }
}

fn uses(tokens: &TokenStream, column: &str) -> bool {
    let mut found = false;
    each_placeholder(tokens, &mut |name| found |= name == column);
    found
}

fn unknown_columns(tokens: &TokenStream, columns: &[String], errors: &mut Errors) {
    each_placeholder(tokens, &mut |name| {
        if !columns.contains(&name.to_string()) {
            let known: Vec<String> = columns.iter().map(|column| format!("${column}")).collect();
            let hint = did_you_mean(&format!("${name}"), known.iter().map(String::as_str));
            errors.at(name, format!("the table has no column `${name}`{hint} (it has: {})", known.join(", ")));
        }
    });
}

/// `tokens` with the cells in place of `$column`.
fn substitute(tokens: TokenStream, columns: &[String], cells: &[TokenStream]) -> TokenStream {
    let mut result = TokenStream::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => {
                let Some(TokenTree::Ident(name)) = tokens.peek() else {
                    result.extend([TokenTree::Punct(punct)]);
                    continue;
                };
                // A column that the table lacks was reported; it is treated as left out.
                let cell = columns.iter().position(|column| name == column).map(|column| &cells[column]);
                match cell.filter(|cell| cell.to_string() != "_") {
                    Some(cell) => result.extend(cell.clone()),
                    None => result.extend([TokenTree::Ident(Ident::new(LEFT_OUT, Span::call_site()))]),
                }
                tokens.next();
            }
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), substitute(group.stream(), columns, cells));
                inner.set_span(group.span());
                result.extend([TokenTree::Group(inner)]);
            }
            other => result.extend([other]),
        }
    }
    result
}
