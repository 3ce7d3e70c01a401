//! Which helpers of references rules call as well.
//!
//! A helper says "For references:" or "For samples:" in its documentation, or its file says so of all that is in it. It
//! is compared with the rules and has no mutants, unless a rule reaches it: what rule and reference share must be
//! caught by something else. Functions are followed by name, through imports and paths, over-cautiously: where several
//! could be meant all count. Of a table of operators the columns that only references and samples have reach nothing.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;

/// Rules that say how operators are tested, not what they do.
pub const NOT_CHANGED: [&str; 3] = ["reference", "samples", "errors"];

/// Estimates of work: they choose between executors that compute the same, and change no value.
pub const ESTIMATES: [&str; 4] = ["flops", "term_flops", "seen_pairs", "cost"];

/// How the documentation of a helper begins.
const HELPER: [&str; 2] = ["For references:", "For samples:"];

/// How the documentation of a file of helpers begins.
const HELPERS: &str = "//! What references share";

/// What families of operators (`unary! { ... }`) call the parts that are rules; the others are references and samples.
pub const FAMILY_RULES: [&str; 3] = ["scalar", "grad", "decomposition"];

/// Whether the attribute in front of a function says that it is a helper of references or of samples.
pub fn is_helper(attribute: &str) -> bool {
    HELPER.iter().any(|begins| attribute.contains(begins))
}

/// Whether all functions of a source are helpers of references.
pub fn holds_helpers(source: &str) -> bool {
    source.starts_with(HELPERS)
}

/// The functions of a source that are helpers and what every function mentions.
#[derive(Default)]
struct Functions {
    helpers: BTreeSet<String>,
    /// Paths, by the function that mentions them; `None` is everything that is no helper.
    mentions: BTreeMap<Option<String>, Vec<Vec<String>>>,
    /// Paths of `use` items.
    imports: Vec<Vec<String>>,
    families: BTreeSet<String>,
    variables: BTreeSet<String>,
}

/// The helpers that a rule reaches: file and name. `sources` are files from the repository's root with their texts.
pub fn reached(sources: &[(String, String)]) -> BTreeSet<(String, String)> {
    let read: Vec<(&str, Functions)> =
        sources.iter().map(|(file, source)| (file.as_str(), functions(source))).collect();
    let mut found: BTreeSet<(String, String)> = BTreeSet::new();
    loop {
        let before = found.len();
        for (file, own) in &read {
            let runs = |owner: &Option<String>| match owner {
                None => true,
                Some(helper) => found.contains(&((*file).to_owned(), helper.clone())),
            };
            let mentioned: Vec<&Vec<String>> =
                own.mentions.iter().filter(|(owner, _)| runs(owner)).flat_map(|(_, paths)| paths).collect();
            for path in mentioned {
                for meant in meanings(path, own, file) {
                    let here = |other: &str| match meant.len() {
                        1 => other == *file,
                        _ => lies_in(other, file, &meant[meant.len() - 2]),
                    };
                    let name = &meant[meant.len() - 1];
                    let named = read.iter().filter(|(other, helpers)| here(other) && helpers.helpers.contains(name));
                    found.extend(named.map(|(other, _)| ((*other).to_owned(), name.clone())));
                }
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The private functions of a source that only references, samples and errors call, also through each other: they test
/// the product and are no part of it.
pub fn of_tests(parsed: &syn::File) -> BTreeSet<String> {
    let mut functions = Vec::new();
    let mut named = BTreeSet::new();
    named_values(quote::ToTokens::to_token_stream(parsed), &mut named);
    of_items(&parsed.items, &named, &mut functions);
    let mut found: BTreeSet<String> = BTreeSet::new();
    loop {
        let tests = |name: &str| NOT_CHANGED.contains(&name) || found.contains(name);
        let next = functions.iter().filter(|own| own.private && !tests(&own.name)).filter(|own| {
            let mut callers =
                functions.iter().filter(|other| other.name != own.name && other.words.contains(&own.name)).peekable();
            callers.peek().is_some() && callers.all(|caller| tests(&caller.name))
        });
        let next: Vec<String> = next.map(|own| own.name.clone()).collect();
        if next.is_empty() {
            return found;
        }
        found.extend(next);
    }
}

/// Adds the names of parameters and fields: words before a colon.
fn named_values(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, tree) in trees.iter().enumerate() {
        match tree {
            TokenTree::Group(group) => named_values(group.stream(), found),
            TokenTree::Ident(word) => {
                let colon = |tree: Option<&TokenTree>| tree.is_some_and(|tree| is(tree, ":"));
                if colon(trees.get(at + 1)) && !colon(trees.get(at + 2)) {
                    found.insert(word.to_string());
                }
            }
            _ => {}
        }
    }
}

/// A function, or another item without a name, and the words in it; of names that parameters or fields have as well,
/// those that are called.
struct Words {
    name: String,
    private: bool,
    words: BTreeSet<String>,
}

fn of_items(items: &[syn::Item], named: &BTreeSet<String>, found: &mut Vec<Words>) {
    for item in items {
        let (name, private) = match item {
            syn::Item::Mod(module) => {
                of_items(module.content.as_ref().map_or(&[], |(_, items)| items), named, found);
                continue;
            }
            syn::Item::Use(_) => continue,
            syn::Item::Fn(function) => {
                (function.sig.ident.to_string(), matches!(function.vis, syn::Visibility::Inherited))
            }
            _ => (String::new(), false),
        };
        let mut words = BTreeSet::new();
        let tokens = quote::ToTokens::to_token_stream(item);
        let mut called = BTreeSet::new();
        called_in(tokens.clone(), &mut called);
        words_of(tokens, &mut words);
        words.retain(|word| !named.contains(word) || called.contains(word));
        found.push(Words { name, private, words });
    }
}

/// Adds the words in front of parentheses.
fn called_in(tokens: TokenStream, found: &mut BTreeSet<String>) {
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, tree) in trees.iter().enumerate() {
        match (tree, trees.get(at + 1)) {
            (TokenTree::Group(group), _) => called_in(group.stream(), found),
            (TokenTree::Ident(word), Some(TokenTree::Group(next))) if next.delimiter() == Delimiter::Parenthesis => {
                found.insert(word.to_string());
            }
            _ => {}
        }
    }
}

/// Adds the words in tokens.
pub fn words_of(tokens: TokenStream, found: &mut BTreeSet<String>) {
    for tree in tokens {
        match tree {
            TokenTree::Group(group) => words_of(group.stream(), found),
            TokenTree::Ident(word) => drop(found.insert(word.to_string())),
            _ => {}
        }
    }
}

/// A path as it is written, and as the imports of its file complete it.
fn meanings(path: &[String], own: &Functions, file: &str) -> Vec<Vec<String>> {
    let first = &path[0];
    let completed = own.imports.iter().filter(|import| import.last() == Some(first));
    let mut all: Vec<Vec<String>> = completed.map(|import| [import, &path[1..]].concat()).collect();
    all.push(path.to_vec());
    // A path that begins with `self` or `super` may end in its own file.
    if path.len() == 2 && ["self", "super"].contains(&first.as_str()) && !file.is_empty() {
        all.push(path[1..].to_vec());
    }
    all
}

/// Whether the module `module`, as `file` calls it, is the file `other` or the folder that it is in.
fn lies_in(other: &str, file: &str, module: &str) -> bool {
    let folder = |path: &str| path.rsplit_once('/').map_or(String::new(), |(folder, _)| folder.to_owned());
    let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    match module {
        "self" | "super" | "crate" => folder(other) == folder(file),
        module => last(other) == format!("{module}.rs") || last(&folder(other)) == module,
    }
}

fn functions(source: &str) -> Functions {
    let mut found = Functions::default();
    let Ok(tokens) = source.parse::<TokenStream>() else { return found };
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let defined = trees.windows(3).filter(|three| is(&three[0], "macro_rules"));
    found.families = defined.map(|three| three[2].to_string()).collect();
    variables(&trees, &mut found.variables);
    walk(&trees, None, holds_helpers(source), &mut found);
    found
}

/// Adds the names that `let` binds.
fn variables(trees: &[TokenTree], found: &mut BTreeSet<String>) {
    for (at, tree) in trees.iter().enumerate() {
        if is(tree, "let") {
            let name = trees[at + 1..].iter().find(|tree| !is(tree, "mut"));
            found.extend(name.map(TokenTree::to_string));
        }
        variables(&inside(tree), found);
    }
}

fn is(tree: &TokenTree, text: &str) -> bool {
    !matches!(tree, TokenTree::Group(_)) && tree.to_string() == text
}

fn inside(tree: &TokenTree) -> Vec<TokenTree> {
    match tree {
        TokenTree::Group(group) => group.stream().into_iter().collect(),
        _ => Vec::new(),
    }
}

fn is_block(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

fn walk(trees: &[TokenTree], owner: Option<&str>, all: bool, found: &mut Functions) {
    let (mut helper, mut test) = (all, false);
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        let next = trees.get(at + 1);
        let end_of = |start: usize, ends: &dyn Fn(&TokenTree) -> bool| {
            (start..trees.len()).find(|i| ends(&trees[*i])).unwrap_or(trees.len())
        };
        if is(tree, "#") && next.is_some() {
            let text = trees[at + 1].to_string();
            helper |= is_helper(&text);
            test |= text.replace(' ', "") == "[cfg(test)]";
            at += 2;
        } else if is(tree, "mod") && trees.get(at + 2).is_some_and(is_block) {
            if !test {
                walk(&inside(&trees[at + 2]), owner, all, found);
            }
            (helper, test) = (all, false);
            at += 3;
        } else if is(tree, "fn") && next.is_some_and(|next| matches!(next, TokenTree::Ident(_)) || is(next, "$")) {
            let name = trees[at + if next.is_some_and(|next| is(next, "$")) { 2 } else { 1 }].to_string();
            let body = end_of(at, &|tree| is_block(tree) || is(tree, ";"));
            if let Some(body) = trees.get(body).filter(|_| !NOT_CHANGED.contains(&name.as_str())) {
                if helper {
                    found.helpers.insert(name.clone());
                }
                walk(&inside(body), if helper { Some(&name) } else { owner }, false, found);
            }
            (helper, test) = (all, false);
            at = body + 1;
        } else if is(tree, "use") {
            let end = end_of(at, &|tree| is(tree, ";"));
            import(&trees[at + 1..end.max(at + 1)], &[], &mut found.imports);
            at = end + 1;
        } else if matches!(tree, TokenTree::Ident(_)) && next.is_some_and(|next| is(next, "!")) {
            // Of a family of operators the rules alone.
            let family = found.families.contains(&tree.to_string());
            let body = trees.get(at + 2).map(inside).unwrap_or_default();
            if family {
                walk_family(&body, owner, found)
            } else if is(tree, "operators") {
                walk_table(&body, owner, found)
            } else {
                walk(&body, owner, false, found)
            }
            at += 3;
        } else if matches!(tree, TokenTree::Ident(_)) {
            let mut path = vec![tree.to_string()];
            let start = at;
            at += 1;
            while at + 2 < trees.len() && is(&trees[at], ":") && is(&trees[at + 1], ":") {
                let TokenTree::Ident(part) = &trees[at + 2] else { break };
                path.push(part.to_string());
                at += 3;
            }
            // A method, a field or a variable is no function of this name.
            let field = start > 0 && is(&trees[start - 1], ".");
            let called =
                matches!(trees.get(at), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
            let variable = path.len() == 1 && !called && found.variables.contains(&path[0]);
            if !field && !variable {
                found.mentions.entry(owner.map(str::to_owned)).or_default().push(path);
            }
        } else {
            walk(&inside(tree), owner, false, found);
            at += 1;
        }
    }
}

/// Of `name, ...; scalar |x| RULE; reference |x| ...;` what follows the names of rules.
fn walk_family(trees: &[TokenTree], owner: Option<&str>, found: &mut Functions) {
    for part in trees.split(|tree| is(tree, ";")) {
        if part.first().is_some_and(|first| FAMILY_RULES.contains(&first.to_string().as_str())) {
            walk(&part[1..], owner, false, found);
        }
    }
}

/// Of `DECLARATION table($name, $column, ...) { name, cell, ...; ... }` the declaration, and the cells of the columns
/// that it has in other places than references, samples and errors.
fn walk_table(trees: &[TokenTree], owner: Option<&str>, found: &mut Functions) {
    let table = trees.windows(3).position(|three| is(&three[0], "table") && is_block(&three[2]));
    let Some(at) = table else { return walk(trees, owner, false, found) };
    walk(&trees[..at], owner, false, found);
    let mut of_rules = BTreeSet::new();
    variables_of_rules(&trees[..at], &mut of_rules);
    let columns: Vec<String> = inside(&trees[at + 1]).iter().filter_map(identifier).collect();
    for row in inside(&trees[at + 2]).split(|tree| is(tree, ";")) {
        let documented = row.iter().rposition(|tree| is(tree, "#")).map_or(0, |hash| hash + 2);
        let tokens: TokenStream = row[documented.min(row.len())..].iter().cloned().collect();
        let cells = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated.parse2(tokens.clone());
        match cells {
            Ok(cells) if cells.len() == columns.len() => {
                for (_, cell) in columns.iter().zip(&cells).filter(|(column, _)| of_rules.contains(*column)) {
                    walk(&quote::ToTokens::to_token_stream(cell).into_iter().collect::<Vec<_>>(), owner, false, found);
                }
            }
            _ => walk(&tokens.into_iter().collect::<Vec<_>>(), owner, false, found),
        }
    }
}

fn identifier(tree: &TokenTree) -> Option<String> {
    matches!(tree, TokenTree::Ident(_)).then(|| tree.to_string())
}

/// Adds the names behind `$` that are not in the body of a reference, of samples or of errors.
fn variables_of_rules(trees: &[TokenTree], found: &mut BTreeSet<String>) {
    let mut at = 0;
    while let Some(tree) = trees.get(at) {
        let next = trees.get(at + 1).and_then(identifier);
        if is(tree, "fn") && next.as_ref().is_some_and(|name| NOT_CHANGED.contains(&name.as_str())) {
            let body = (at..trees.len()).find(|i| is_block(&trees[*i]) || is(&trees[*i], ";"));
            at = body.unwrap_or(trees.len()) + 1;
            continue;
        }
        if is(tree, "$") {
            found.extend(next);
        }
        variables_of_rules(&inside(tree), found);
        at += 1;
    }
}

/// The paths of a tree of imports.
fn import(trees: &[TokenTree], before: &[String], imports: &mut Vec<Vec<String>>) {
    for tree in trees.split(|tree| is(tree, ",")) {
        let mut path = before.to_vec();
        for part in tree {
            match part {
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(_) => import(&inside(part), &path, imports),
                _ => {}
            }
        }
        if tree.last().is_some_and(|last| matches!(last, TokenTree::Ident(_))) {
            imports.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::reached;

    fn names(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<(String, String)> =
            sources.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        reached(&sources).into_iter().map(|(file, name)| format!("{file} {name}")).collect()
    }

    const HELPERS: &str = "/// For references: a.\npub fn one(x: i64) -> i64 { two(x) }\n\
                           /// For references: b.\nfn two(x: i64) -> i64 { x + 1 }\n\
                           /// For references: c.\nfn three(x: i64) -> i64 { x }\n";

    #[test]
    fn references_and_tests_reach_no_helper() {
        let rule = "use super::help::one; mod a { fn reference(x: i64) -> i64 { one(x) } fn meta(x: T) { x.one(); } } \
                    #[cfg(test)] mod tests { fn t() { one(2); } }";
        assert!(names(&[("p/help.rs", HELPERS), ("p/a.rs", rule)]).is_empty());
    }

    #[test]
    fn what_a_rule_calls_is_reached_with_what_that_calls() {
        for rule in [
            "use super::help::{one, four}; mod a { fn cpu(x: i64) -> i64 { one(x) } }",
            "mod a { fn grad(x: i64) -> i64 { crate::p::help::one(x) } }",
            "use super::one; fn beside(x: i64) -> i64 { f(one) }",
        ] {
            assert_eq!(
                names(&[("p/help.rs", HELPERS), ("p/a.rs", rule)]),
                ["p/help.rs one", "p/help.rs two"],
                "{rule}"
            );
        }
        let variable = "use super::help::one; fn f() { let one = 1; g(one) }";
        assert!(names(&[("p/help.rs", HELPERS), ("p/a.rs", variable)]).is_empty());
        let own = format!("{HELPERS} mod a {{ fn decomposition() {{ super::three(2) }} }}");
        assert_eq!(names(&[("p/a.rs", &own)]), ["p/a.rs three"]);
    }

    #[test]
    fn of_families_and_of_their_macros_rules_alone_count() {
        let family = "use super::help::{one, three}; \
                      macro_rules! unary { () => { mod x { fn reference() { one(3) } } } } \
                      unary! { exp; scalar |x| three(x); reference |x| one(x); }";
        assert_eq!(names(&[("p/help.rs", HELPERS), ("p/a.rs", family)]), ["p/help.rs three"]);
        let defined = "use super::help::one; macro_rules! unary { () => { mod x { fn $name() { one(3) } } } }";
        assert_eq!(names(&[("p/help.rs", HELPERS), ("p/a.rs", defined)]), ["p/help.rs one", "p/help.rs two"]);
    }

    #[test]
    fn of_tables_the_columns_of_rules_count() {
        let table = "use super::help::{one, three}; operators! { \
                     pub mod $name { fn scalar(x: Expr) { $value } fn reference(x: f64) { each(x, $reference) } } \
                     table($name, $torch, $value, $reference) { \
                     /// The first.\n a, \"a\", three(x), |x, y| one(x) + y; b, \"b\", x, |x, y| one(y); } }";
        assert_eq!(names(&[("p/help.rs", HELPERS), ("p/a.rs", table)]), ["p/help.rs three"]);
        let both = table.replace("three(x)", "one(x)");
        assert_eq!(names(&[("p/help.rs", HELPERS), ("p/a.rs", &both)]), ["p/help.rs one", "p/help.rs two"]);
    }

    #[test]
    fn a_file_may_hold_helpers_alone() {
        let file =
            "//! What references share: arrays.\npub fn one(x: i64) -> i64 { x }\npub fn two(x: i64) -> i64 { x }";
        let rule = "use super::help::{one, two}; mod a { fn meta() { one(2) } fn reference() { two(2) } }";
        assert_eq!(names(&[("p/help.rs", file), ("p/a.rs", rule)]), ["p/help.rs one"]);
    }
}
