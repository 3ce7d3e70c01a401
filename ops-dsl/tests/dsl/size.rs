//! How much is generated: for each operator of the library, the lines of its expansion beyond what its author wrote.
//! Emitted code is compiled for every operator; what is the same for all belongs to the runtime.

use std::path::{Path, PathBuf};

use fulgurite_ops_dsl as dsl;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::{ToTokens, quote};

/// The most lines of an operator that is declared alone, and of what the rows of a table share; an operator of more
/// than `PARAMETERS` parameters may have three more for each: where it is described, and where rules take it (those of
/// a kernel's symbol are three).
const MOST: usize = 60;
const PARAMETERS: usize = 8;
/// The most lines of a row of a table.
const MOST_OF_ROW: usize = 6;
/// The lines more of a row that describes its parameters or results itself: its operands accumulate, so that they are
/// of other kinds than those of the table, or the row gives some of them their names. A name takes three lines or four,
/// and two more where the row has its default as well.
const OF_OWN_PARAMETERS: usize = 16;

/// `#[operator(settings)] pub mod name { ... }`, or the inside of `operators! { ... }`.
enum Declaration {
    Operator(TokenStream, TokenStream),
    Family(TokenStream),
}

/// The declarations among `tokens` and inside of their groups. Those inside of a `macro_rules!` are made by its calls.
fn declarations(tokens: TokenStream, found: &mut Vec<Declaration>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let word = |at: usize, word: &str| matches!(tokens.get(at), Some(TokenTree::Ident(ident)) if ident == word);
    let brace = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace);
    let is_bang = |at: usize| matches!(&tokens[at], TokenTree::Punct(punct) if punct.as_char() == '!');
    // Where the attributes of the next item begin.
    let mut start = 0;
    let mut settings = None;
    let mut at = 0;
    while at < tokens.len() {
        let attribute = match (&tokens[at], tokens.get(at + 1)) {
            (TokenTree::Punct(hash), Some(TokenTree::Group(group))) if hash.as_char() == '#' => Some(group.stream()),
            _ => None,
        };
        if let Some(attribute) = attribute {
            let mut inside = attribute.into_iter();
            if matches!(inside.next(), Some(TokenTree::Ident(name)) if name == "operator") {
                let arguments = match inside.next() {
                    Some(TokenTree::Group(arguments)) => arguments.stream(),
                    _ => TokenStream::new(),
                };
                settings = Some((arguments, at));
            }
            at += 2;
            continue;
        }
        if brace(&tokens[at]) || matches!(&tokens[at], TokenTree::Punct(punct) if punct.as_char() == ';') {
            let inside = match &tokens[at] {
                TokenTree::Group(group) => group.stream(),
                _ => TokenStream::new(),
            };
            match settings.take() {
                Some((settings, attribute)) => {
                    let item = tokens[start..attribute].iter().chain(&tokens[attribute + 2..=at]).cloned().collect();
                    found.push(Declaration::Operator(settings, item));
                }
                None if at >= 2 && word(at - 2, "operators") && is_bang(at - 1) => {
                    found.push(Declaration::Family(inside))
                }
                None if at >= 3 && word(at - 3, "macro_rules") => {}
                None => declarations(inside, found),
            }
            start = at + 1;
        }
        at += 1;
    }
}

fn lines(tokens: impl ToTokens) -> usize {
    let file = syn::parse2(tokens.to_token_stream()).expect("it is Rust");
    prettyplease::unparse(&file).lines().count()
}

/// The lines of a module of rules without its signature.
fn written(module: TokenStream) -> usize {
    let module: dsl::parse::Module = syn::parse2(module).expect("it is a module");
    let entries = module.entries.iter().filter_map(|entry| match entry {
        dsl::parse::Entry::Function(function) if function.body.is_none() => None,
        dsl::parse::Entry::Function(function) => Some(function.to_token_stream()),
        dsl::parse::Entry::Other(tokens) => Some(tokens.clone()),
    });
    let (attrs, vis, ident) = (&module.attrs, &module.vis, &module.ident);
    lines(quote!(#(#attrs)* #vis mod #ident { #(#entries)* }))
}

/// Too long expansions, by name.
#[derive(Default)]
struct Report {
    operators: usize,
    rows: usize,
    longest: usize,
    longest_row: usize,
    too_long: Vec<String>,
}

impl Report {
    fn operator(&mut self, settings: TokenStream, item: TokenStream) {
        let generated = lines(dsl::operator(settings, item.clone())) - written(item.clone());
        self.operators += 1;
        self.longest = self.longest.max(generated);
        if generated > MOST + 3 * parameters(item.clone()).saturating_sub(PARAMETERS) {
            self.too_long.push(format!("{generated} lines: {}", name_of(item)));
        }
    }

    fn family(&mut self, input: TokenStream) {
        let mut errors = dsl::errors::Errors::default();
        let rows = dsl::family::read(input.clone(), &mut errors);
        assert!(errors.is_empty(), "{:?}", errors.messages());
        let expansion: syn::File = syn::parse2(dsl::operators(input.clone())).expect("it is Rust");
        let modules: Vec<&syn::Item> =
            expansion.items.iter().filter(|item| matches!(item, syn::Item::Mod(_))).collect();
        assert_eq!(modules.len(), rows.len());
        let mut shared = lines(&expansion);
        let names_its_own = names_its_own(&input.to_string());
        for (module, (settings, row)) in modules.iter().zip(rows) {
            shared -= lines(module);
            let generated = lines(without_torch(module)) - written(row.clone());
            self.rows += 1;
            self.longest_row = self.longest_row.max(generated);
            let describes = names_its_own || settings.to_string().contains("accumulates");
            let own = if describes { OF_OWN_PARAMETERS } else { 0 };
            if generated > MOST_OF_ROW + own {
                self.too_long.push(format!("{generated} lines in a table: {}", name_of(row)));
            }
        }
        self.longest = self.longest.max(shared);
        if shared > MOST {
            self.too_long.push(format!("{shared} lines are shared by a table"));
        }
    }
}

/// A row without PyTorch's name for it, whose length decides where the printer breaks lines.
fn without_torch(module: &syn::Item) -> TokenStream {
    let text = module.to_token_stream().to_string();
    let Some((before, after)) = text.split_once("torch : Some (\"") else { return module.to_token_stream() };
    let (_, rest) = after.split_once('"').expect("the text ends");
    format!("{before}torch : Some (\"\"{rest}").parse().expect("it is Rust as before")
}

/// Whether rows of a table name parameters or results: a variable beside that of the operator's name is in the
/// signature or among the results.
fn names_its_own(table: &str) -> bool {
    let without_spaces: String = table.split_whitespace().collect();
    let between = |from: &str, to: &str| {
        let rest = without_spaces.split_once(from).map_or("", |(_, rest)| rest);
        rest.split_once(to).map_or("", |(inside, _)| inside)
    };
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut after_variables = between("fn$name(", ";").split('$').skip(1).map(|rest| rest.trim_start_matches(of_word));
    after_variables.any(|rest| rest.starts_with(':')) || between("#[results(", ")]").contains('$')
}

/// How many parameters the signature of an operator has.
fn parameters(module: TokenStream) -> usize {
    let module: dsl::parse::Module = syn::parse2(module).expect("it is a module");
    let mut signatures = module.entries.iter().filter_map(|entry| match entry {
        dsl::parse::Entry::Function(function) if function.body.is_none() => Some(function.sig.inputs.len()),
        _ => None,
    });
    signatures.next().expect("it has a signature")
}

fn name_of(module: TokenStream) -> String {
    let module: dsl::parse::Module = syn::parse2(module).expect("it is a module");
    module.ident.to_string()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn report(texts: impl IntoIterator<Item = String>) -> Report {
    let mut found = Vec::new();
    for text in texts {
        declarations(text.parse().expect("the file is Rust"), &mut found);
    }
    let mut report = Report::default();
    dsl::in_package(Some("fulgurite-ops".into()), || {
        for declaration in found {
            match declaration {
                Declaration::Operator(settings, item) => report.operator(settings, item),
                Declaration::Family(input) => report.family(input),
            }
        }
    });
    report
}

#[test]
fn expansions_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["ops/src", "executors", "examples"] {
        sources(&root.join(folder), &mut files);
    }
    let report = report(files.iter().map(|file| std::fs::read_to_string(file).expect("it can be read")));
    println!(
        "{} alone, at most {} lines; {} in tables, at most {} lines",
        report.operators, report.longest, report.rows, report.longest_row
    );
    assert!(report.operators > 80 && report.rows > 40, "{} and {} found", report.operators, report.rows);
    assert!(report.too_long.is_empty(), "{}", report.too_long.join("\n"));
}

#[test]
fn long_expansions_are_found() {
    let directives = "skip(golden, reason = \"not stored, which is said at some length to fill a line of the text\"),";
    let text = format!(
        "#[operator(prim, no_grad = \"a test\", {})]\npub mod long {{\n    fn long(input: Tensor) -> Tensor;\n    \
         fn scalar(input: Expr) -> Expr {{ input }}\n    fn samples(s: &mut Samples) {{ s.case(with(s.normal([4]))); }}\n}}\n",
        directives.repeat(60)
    );
    let report = report([text]);
    assert_eq!((report.operators, report.too_long.len()), (1, 1));
}
