//! Tables of operators: `operators! { TEMPLATE table($name, $column, ...) { name, cell, ...; ... } }`.
//!
//! [`readable`] makes of `$column` an identifier of the same length, so that the template is a source as any other and
//! every place has the bytes that it has in the file.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, Expr, Token};

use crate::reach::{ESTIMATES, NOT_CHANGED, words_of};

/// A source in which `$column` is `_column`: what a parser of Rust can read.
pub fn readable(source: &str) -> String {
    source.replace('$', "_")
}

/// A table, read from a [`readable`] source.
pub struct Table {
    /// The declaration that all rows share.
    pub template: syn::File,
    /// The rows, with the cells that are expressions and parts of rules.
    pub rows: Vec<Row>,
}

/// A row of a table.
pub struct Row {
    /// The operator.
    pub name: String,
    pub cells: Vec<Cell>,
}

/// A cell that a rule has in it.
pub struct Cell {
    /// The column, without the `$`.
    pub column: String,
    pub value: Expr,
    /// Whether the rule is that of gradients.
    pub of_grad: bool,
}

impl Table {
    /// The table in the tokens of `operators! { ... }`, if they are one.
    pub fn read(tokens: TokenStream) -> Option<Table> {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let at = trees.windows(3).position(|three| {
            let brace =
                |tree: &TokenTree| matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
            matches!(&three[0], TokenTree::Ident(word) if word == "table") && brace(&three[2])
        })?;
        let template: syn::File = syn::parse2(trees[..at].iter().cloned().collect()).ok()?;
        let TokenTree::Group(header) = &trees[at + 1] else { return None };
        let TokenTree::Group(body) = &trees[at + 2] else { return None };
        let columns: Vec<String> = header
            .stream()
            .into_iter()
            .filter_map(|tree| match tree {
                TokenTree::Ident(column) => Some(column.to_string()),
                _ => None,
            })
            .collect();
        let [mut of_rules, mut of_grads] = [BTreeSet::new(), BTreeSet::new()];
        mentioned(&template.items, &mut of_rules, &mut of_grads);
        let read = |input: ParseStream| {
            let mut rows = Vec::new();
            while !input.is_empty() {
                rows.push(input.parse::<Cells>()?);
            }
            Ok(rows)
        };
        let rows = read.parse2(body.stream()).ok()?;
        let rows = rows.into_iter().filter(|row| row.0.len() == columns.len()).map(|row| {
            let name_at = columns.iter().position(|column| column == "_name").unwrap_or(0);
            let (name, _) = &row.0[name_at];
            let name = name.clone();
            let cells = columns.iter().zip(row.0).filter(|(column, _)| of_rules.contains(*column));
            let cells = cells.filter_map(|(column, (_, value))| {
                Some(Cell { column: column[1..].to_owned(), value: value?, of_grad: of_grads.contains(column) })
            });
            Row { name, cells: cells.collect() }
        });
        Some(Table { template, rows: rows.collect() })
    }
}

/// Adds the words in the bodies of rules, and those in the bodies of gradients.
fn mentioned(items: &[syn::Item], of_rules: &mut BTreeSet<String>, of_grads: &mut BTreeSet<String>) {
    for item in items {
        match item {
            syn::Item::Mod(module) => {
                let inner = module.content.as_ref().map_or(&[][..], |(_, items)| items);
                mentioned(inner, of_rules, of_grads);
            }
            syn::Item::Fn(function) => {
                let name = function.sig.ident.to_string();
                if NOT_CHANGED.contains(&name.as_str()) || ESTIMATES.contains(&name.as_str()) {
                    continue;
                }
                let body = || quote::ToTokens::to_token_stream(&function.block);
                words_of(body(), of_rules);
                if name == "grad" {
                    words_of(body(), of_grads);
                }
            }
            _ => {}
        }
    }
}

/// The cells of a row: their tokens, and the expressions that they are.
struct Cells(Vec<(String, Option<Expr>)>);

impl Parse for Cells {
    fn parse(input: ParseStream) -> syn::Result<Cells> {
        input.call(Attribute::parse_outer)?;
        let mut cells = Vec::new();
        while !input.peek(Token![;]) {
            cells.push(cell(input)?);
            if !input.peek(Token![;]) {
                input.parse::<Token![,]>()?;
            }
        }
        input.parse::<Token![;]>()?;
        Ok(Cells(cells))
    }
}

/// An expression, or else all tokens before the next comma or semicolon.
fn cell(input: ParseStream) -> syn::Result<(String, Option<Expr>)> {
    let ahead = input.fork();
    if let Ok(expression) = ahead.parse::<Expr>()
        && (ahead.peek(Token![,]) || ahead.peek(Token![;]))
    {
        input.parse::<Expr>()?;
        let text = quote::ToTokens::to_token_stream(&expression).to_string();
        return Ok((text, Some(expression).filter(|expression| !matches!(expression, Expr::Infer(_)))));
    }
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !input.peek(Token![,]) && !input.peek(Token![;]) {
        tokens.extend([input.parse::<TokenTree>()?]);
    }
    Ok((tokens.to_string(), None))
}

#[cfg(test)]
mod tests {
    use super::{Table, readable};

    const SOURCE: &str = "#[operator(torch = $torch, $flag)]
        pub mod $name {
            fn $name(input: Tensor<$class>) -> Tensor;
            fn scalar(input: Expr) -> Expr { $scalar }
            fn grad(input: Tensor) -> Grads { let out = $name(input); Grads { input: $d_input } }
            fn reference(input: &ArrayD<f64>) -> ArrayD<f64> { elementwise(input, $reference) }
        }
        table($name, $torch, $flag, $class, $scalar, $d_input, $reference) {
            /// The first; a comment.
            one, \"one\", autocast = full, Number, input + 1.0, d_out, |x| x + 1.0;
            two, \"two\", _, Number, { input; input }, _, |x| x; }";

    #[test]
    fn cells_of_rules_have_the_names_of_their_columns() {
        let table = Table::read(readable(SOURCE).parse().unwrap()).unwrap();
        let named = |cell: &super::Cell| format!("{} {}", cell.column, cell.of_grad);
        let rows: Vec<(String, Vec<String>)> =
            table.rows.iter().map(|row| (row.name.clone(), row.cells.iter().map(named).collect())).collect();
        assert_eq!(rows[0].0, "one");
        assert_eq!(rows[0].1, ["name true", "scalar false", "d_input true"]);
        assert_eq!(rows[1].0, "two");
        assert_eq!(rows[1].1, ["name true", "scalar false"]);
    }
}
