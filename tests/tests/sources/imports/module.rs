//! What the text of a module says: the names that it defines, and the paths that its code names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::Visit;

/// A module of a crate, be it a file or inline.
pub struct Module {
    /// Where it is written.
    pub file: PathBuf,
    /// Its types and traits: what paths may lead through, as through modules.
    pub types: BTreeSet<String>,
    /// Its functions, constants and macros, which may have the names of modules and types.
    pub values: BTreeSet<String>,
    /// All words in the macros that it calls where items are: the items that they make have their names from there, or
    /// from the macro.
    pub words: BTreeSet<String>,
    /// The macros that it calls where items are.
    pub calls: BTreeSet<String>,
    /// All words in the macros that it defines, by the macros.
    pub macros: BTreeMap<String, BTreeSet<String>>,
    /// The modules in it, by their whole paths below the crate.
    pub modules: BTreeMap<String, Vec<String>>,
    /// Imports and re-exports: the paths by the name that they give, a module and a function of one name, say.
    pub uses: BTreeMap<String, Vec<Vec<String>>>,
    /// Paths of which everything is imported.
    pub globs: Vec<Vec<String>>,
    /// What its code names.
    pub named: Vec<Named>,
}

/// A path that code names.
pub struct Named {
    pub path: Vec<String>,
    /// Whether an import names it. An import of a name that is a module and a function as well needs neither yet.
    pub import: bool,
}

impl Module {
    pub fn new(file: PathBuf) -> Module {
        Module {
            file,
            types: BTreeSet::new(),
            values: BTreeSet::new(),
            words: BTreeSet::new(),
            calls: BTreeSet::new(),
            macros: BTreeMap::new(),
            modules: BTreeMap::new(),
            uses: BTreeMap::new(),
            globs: Vec::new(),
            named: Vec::new(),
        }
    }

    /// Takes note of an item that is no module.
    pub fn read(&mut self, item: &syn::Item) {
        if let syn::Item::Use(item) = item {
            // A re-export passes a name on; its users need the file that defines it.
            let exported = !matches!(item.vis, syn::Visibility::Inherited);
            read_use(&item.tree, &mut Vec::new(), &mut |path, name| {
                match name {
                    Some(name) => self.uses.entry(name).or_default().push(path.clone()),
                    None => self.globs.push(path.clone()),
                }
                if !exported {
                    self.named.push(Named { path, import: true });
                }
            });
            return;
        }
        match item {
            syn::Item::Macro(item) => self.read_macro(item),
            _ => {
                self.types.extend(defined_type(item));
                self.values.extend(defined_value(item));
            }
        }
        Paths(&mut self.named).visit_item(item);
    }

    fn read_macro(&mut self, item: &syn::ItemMacro) {
        if let Some(name) = &item.ident {
            self.values.insert(name.to_string());
            words(item.mac.tokens.clone(), self.macros.entry(name.to_string()).or_default());
            return;
        }
        let called = item.mac.path.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
        if !LISTS.contains(&&*called) {
            words(item.mac.tokens.clone(), &mut self.words);
            self.calls.insert(called);
        }
    }
}

/// Macros whose words name files that are not looked at.
const LISTS: [&str; 1] = ["operator_files"];

/// All words among tokens.
fn words(tokens: TokenStream, found: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => drop(found.insert(ident.to_string())),
            TokenTree::Group(group) => words(group.stream(), found),
            _ => {}
        }
    }
}

/// The paths of a `use`, each with the name that it gives; a glob gives none.
fn read_use(tree: &syn::UseTree, path: &mut Vec<String>, found: &mut impl FnMut(Vec<String>, Option<String>)) {
    let whole = |path: &[String], last: &syn::Ident| -> Vec<String> {
        let own = Some(last.to_string()).filter(|name| name != "self");
        path.iter().cloned().chain(own).collect()
    };
    match tree {
        syn::UseTree::Path(inner) => {
            path.push(inner.ident.to_string());
            read_use(&inner.tree, path, found);
            path.pop();
        }
        syn::UseTree::Name(name) => {
            let whole = whole(path, &name.ident);
            let given = whole.last().cloned();
            found(whole, given);
        }
        syn::UseTree::Rename(name) => found(whole(path, &name.ident), Some(name.rename.to_string())),
        syn::UseTree::Glob(_) => found(path.clone(), None),
        syn::UseTree::Group(group) => group.items.iter().for_each(|tree| read_use(tree, path, found)),
    }
}

/// Macros whose tokens are code of another crate.
const QUOTES: [&str; 3] = ["parse_quote", "quote", "quote_spanned"];

/// Collects every path that an item names, those in the arguments of macros and attributes included.
struct Paths<'a>(&'a mut Vec<Named>);

impl Paths<'_> {
    fn add(&mut self, path: Vec<String>) {
        self.0.push(Named { path, import: false });
    }

    /// Paths of several names among tokens. A single name may be anything there.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => path.push(ident.to_string()),
                other => {
                    self.add_several(&mut path);
                    match other {
                        TokenTree::Ident(ident) => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.add_tokens(group.stream()),
                        _ => {}
                    }
                }
            }
            colons = 0;
        }
        self.add_several(&mut path);
    }

    fn add_several(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.add(path);
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        read_use(&item.tree, &mut Vec::new(), &mut |path, _| self.add(path));
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let quotes = |last: &syn::PathSegment| QUOTES.iter().any(|name| last.ident == name);
        if !called.path.segments.last().is_some_and(quotes) {
            self.add_tokens(called.tokens.clone());
        }
        syn::visit::visit_macro(self, called);
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.add_tokens(list.tokens.clone());
        syn::visit::visit_meta_list(self, list);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !for_tests(&function.attrs) {
            syn::visit::visit_impl_item_fn(self, function);
        }
    }

    // `pub(super)` and `pub(in crate::a)` name no need.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

fn defined_value(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Static(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn defined_type(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// The attributes of an item.
pub fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether these attributes leave an item out of everything but tests: `#[cfg(test)]`, `#[cfg(all(test, ...))]`.
pub fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if needs_test(list.tokens.clone()))
    })
}

/// Whether a predicate holds in tests alone.
fn needs_test(predicate: TokenStream) -> bool {
    let mut all = true;
    predicate.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => {
            all = ident == "all";
            ident == "test"
        }
        TokenTree::Group(group) => all && needs_test(group.stream()),
        _ => false,
    })
}

/// The file that `#[path = "..."]` names.
pub fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }) => Some(file.value()),
            _ => None,
        },
        _ => None,
    })
}
