//! Which items of sources mention which others, by name. Where several items have one name, all are meant.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// The items of sources by the words that they mention.
#[derive(Debug, Clone, Default)]
pub struct Callers {
    items: Vec<Item>,
    mentions: BTreeMap<String, Vec<usize>>,
    /// Items that their own files alone can mention, by their files.
    private: HashMap<String, HashSet<String>>,
    /// The packages whose sources mention a package, by folders.
    users: BTreeMap<String, BTreeSet<String>>,
}

/// An item at the top of a file.
#[derive(Debug, Clone)]
struct Item {
    file: String,
    /// The folder of its package.
    folder: String,
    /// What others call it; `None` of a module or a macro's call, which declare what no name reaches.
    name: Option<String>,
}

impl Callers {
    /// Reads sources: files and their texts.
    pub fn new(sources: impl IntoIterator<Item = (String, String)>) -> Callers {
        let sources: Vec<(String, String)> = sources.into_iter().collect();
        let mut callers = Callers { users: users(&sources), ..Callers::default() };
        let read: Vec<_> = sources.into_iter().map(|(file, text)| (file, items(&text))).collect();
        let defined: BTreeSet<String> =
            read.iter().flat_map(|(_, items)| items).filter_map(|(name, _)| name.clone()?.defined()).collect();
        let files: Vec<String> = read.iter().map(|(file, _)| file.clone()).collect();
        // What a file with modules of its own does not publish is open to these.
        let has_modules = |file: &str| {
            let stem = file.strip_suffix(".rs").unwrap_or(file);
            let folder = ["/mod", "/lib", "/main"].iter().any(|name| stem.ends_with(name));
            folder || files.iter().any(|other| other.strip_prefix(stem).is_some_and(|rest| rest.starts_with('/')))
        };
        for (file, items) in read {
            let closed = !has_modules(&file);
            for (name, body) in items {
                if closed && let Some(Name::Private(name)) = &name {
                    callers.private.entry(file.clone()).or_default().insert(name.clone());
                }
                let name = name.map(|name| name.of(&defined));
                for word in words(&body) {
                    callers.mentions.entry(word).or_default().push(callers.items.len());
                }
                callers.items.push(Item { folder: folder(&file).to_owned(), file: file.clone(), name });
            }
        }
        callers
    }

    /// The items of a file that others can mention.
    pub fn names_in(&self, file: &str) -> BTreeSet<&str> {
        self.items.iter().filter(|item| item.file == file).filter_map(|item| item.name.as_deref()).collect()
    }

    /// The files whose modules mention the item `name` of `file`, or an item that mentions it, and so on.
    pub fn files<'a>(&'a self, file: &'a str, name: &'a str) -> BTreeSet<&'a str> {
        // Where an item can be mentioned: its package, or its file.
        let is_private = |file: &str, name: &str| self.private.get(file).is_some_and(|private| private.contains(name));
        let scope = |item: &'a Item, name: &str| -> &'a str {
            if is_private(&item.file, name) { &item.file } else { &item.folder }
        };
        let mut next = vec![(if is_private(file, name) { file } else { folder(file) }, name)];
        let mut known: HashSet<_> = next.iter().copied().collect();
        let mut found = BTreeSet::new();
        while let Some((of, name)) = next.pop() {
            for item in self.mentions.get(name).into_iter().flatten().map(|at| &self.items[*at]) {
                // A file means its own private item.
                let meant = scope(item, name);
                if meant != of && (meant == item.file || !self.users.get(of).is_some_and(|own| own.contains(meant))) {
                    continue;
                }
                match &item.name {
                    Some(caller) => {
                        let caller = (scope(item, caller), caller.as_str());
                        if known.insert(caller) {
                            next.push(caller);
                        }
                    }
                    None => drop(found.insert(item.file.as_str())),
                }
            }
        }
        found
    }
}

/// The folder of a file's package.
fn folder(file: &str) -> &str {
    file.split_once("/src/").map_or("", |(folder, _)| folder)
}

/// The packages whose sources mention a package by the last word of its folder; all, if none does: it has another name.
fn users(sources: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let folders: BTreeSet<&str> = sources.iter().map(|(file, _)| folder(file)).collect();
    let mut found = BTreeMap::new();
    for of in &folders {
        let word = format!("{}::", of.rsplit('/').next().unwrap_or(of).replace('-', "_"));
        let others = sources.iter().filter(|(file, text)| folder(file) != *of && text.contains(&word));
        let mut own: BTreeSet<String> = others.map(|(file, _)| folder(file).to_owned()).collect();
        if own.is_empty() {
            own.extend(folders.iter().map(|folder| (*folder).to_owned()));
        }
        found.insert((*of).to_owned(), own);
    }
    found
}

/// What others call an item.
#[derive(Debug, Clone)]
enum Name {
    Defined(String),
    /// A definition that is not public.
    Private(String),
    /// An `impl` of a type, perhaps of a trait. A trait of these sources is mentioned where the type is not theirs.
    Of(String, Option<String>),
}

impl Name {
    fn defined(self) -> Option<String> {
        match self {
            Name::Defined(name) | Name::Private(name) => Some(name),
            Name::Of(..) => None,
        }
    }

    fn of(self, defined: &BTreeSet<String>) -> String {
        match self {
            Name::Of(name, Some(of)) if !defined.contains(&name) => of,
            Name::Defined(name) | Name::Private(name) | Name::Of(name, _) => name,
        }
    }
}

/// What a line without indentation begins: its name, if others can mention it; `None` if it begins no item.
fn begun(line: &str) -> Option<Option<Name>> {
    let public = ["pub(crate) ", "pub(super) ", "pub "].iter().find_map(|word| line.strip_prefix(word));
    let rest = public.unwrap_or(line);
    let rest = ["const fn ", "unsafe fn "].iter().find(|word| rest.starts_with(**word)).map_or(rest, |_| &rest[6..]);
    let rest = rest.trim_start();
    let (keyword, behind) = rest.split_once([' ', '<', '!'])?;
    let word = |text: &str| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let text = text.trim_start_matches(|c| !is_word(c));
        text.split(|c| !is_word(c)).next().unwrap_or_default().to_owned()
    };
    match keyword {
        // Macros are in scope behind their definition, in other files too.
        "macro_rules" => Some(Some(Name::Defined(word(behind)))),
        "fn" | "const" | "static" | "struct" | "enum" | "trait" | "type" => {
            let name = word(behind);
            Some(Some(if public.is_some() { Name::Defined(name) } else { Name::Private(name) }))
        }
        // `impl<T> Trait for Type<T> {`
        "impl" => {
            let head = behind.split(" {").next().unwrap_or(behind);
            let (of, head) = head.split_once(" for ").map_or((None, head), |(of, head)| (Some(of), head));
            let last = |text: &str| word(text.rsplit_once("> ").map_or(text, |(_, behind)| behind));
            Some(Some(Name::Of(last(head), of.map(last))))
        }
        "mod" => Some(None),
        "use" => None,
        _ if rest.contains("! {") || rest.contains("!(") || rest.contains("!{") => Some(None),
        _ => None,
    }
}

/// The items at the top of a source, without comments and imports.
fn items(text: &str) -> Vec<(Option<Name>, String)> {
    let mut found: Vec<(Option<Name>, String)> = Vec::new();
    let mut inside = false;
    let mut tests = false;
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or_default();
        let top = !inside && !line.starts_with([' ', '}', ')', ']']) && !line.is_empty();
        if top && line.starts_with("#[cfg(test)]") {
            tests = true;
        } else if top && let Some(name) = begun(line) {
            inside = !line.ends_with([';', '}']);
            if std::mem::take(&mut tests) && name.is_none() {
                continue;
            }
            found.push((name, behind_name(line)));
        } else if top && !is_import(line) {
            // What nothing here knows may call anything.
            found.push((None, line.to_owned()));
        } else if inside {
            if let Some((_, body)) = found.last_mut() {
                body.push_str(line);
                body.push('\n');
            }
            // The end of an item is the first line that closes it without indentation.
            inside =
                !(line.starts_with('}') && !line.ends_with('{') || line.starts_with([')', ']']) && line.ends_with(';'));
        }
    }
    found
}

/// Whether a line begins an import, which is no call.
fn is_import(line: &str) -> bool {
    line.split_whitespace().take(2).any(|word| word == "use")
}

/// A first line of a function without its name: it does not mention itself.
fn behind_name(line: &str) -> String {
    line.split_once("fn ").map_or(line, |(_, rest)| &rest[rest.find(['(', '<']).unwrap_or(0)..]).to_owned() + "\n"
}

/// Words of a text that may name an item: neither a method or a field, nor what is defined or bound here.
fn words(text: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    let mut bound = BTreeSet::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(is_word).map(|more| at + more) {
        let end = text[start..].find(|c| !is_word(c)).map_or(text.len(), |more| start + more);
        let (word, before, behind) = (&text[start..end], text[..start].trim_end(), &text[end..]);
        at = end;
        let ends = |words: &[&str]| words.iter().any(|word| before.ends_with(word));
        if ends(&[" let", "\nlet", "(let", "let mut", "fn", "for"]) {
            bound.insert(word.to_owned());
            continue;
        }
        let called = behind.starts_with('(') || behind.starts_with("::<") || behind.starts_with('!');
        let path = before.ends_with("::");
        let range = before.ends_with("..");
        if before.ends_with('.') && !range {
            continue;
        }
        // A field, a parameter, or what is bound.
        let single =
            behind.starts_with(':') && !behind.starts_with("::") || behind.starts_with(" =") || before.ends_with('|');
        if single && !called && !path && word.starts_with(char::is_lowercase) {
            bound.insert(word.to_owned());
            continue;
        }
        // A value may be a variable of the same name.
        found.insert((word.to_owned(), called || path || !word.starts_with(char::is_lowercase)));
    }
    let named = found.into_iter().filter(|(word, sure)| *sure || !bound.contains(word));
    named.map(|(word, _)| word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(sources: &[(&str, &str)], name: &str) -> Vec<String> {
        let owned = sources.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
        Callers::new(owned).files("help.rs", name).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn helpers_are_followed_through_helpers() {
        let help = "/// lowest() is deep.\npub fn lowest(x: i64) -> i64 {\n    x\n}\n\n\
                    pub fn middle(x: i64) -> i64 {\n    lowest(x)\n}\n\n\
                    impl Meta for Tensor {\n    fn of() {\n        middle(1)\n    }\n}\n\n\
                    impl Kind {\n    fn of(self) -> i64 {\n        middle(1)\n    }\n}\n\n\
                    #[cfg(test)]\nmod tests {\n    fn t() { lowest(1); }\n}\n";
        let sources = [
            ("help.rs", help),
            ("a.rs", "use super::help::middle;\n#[operator]\npub mod a {\n    fn meta() { super::middle(2) }\n}\n"),
            ("b.rs", "pub mod b {\n    fn meta() { Kind::Of.of() }\n}\n"),
            (
                "c.rs",
                "use super::help::middle;\npub mod c {\n    fn meta() { x.middle(2); let middle = 1; f(middle) }\n}\n",
            ),
            ("d.rs", "unary! {\n    exp; scalar |x| lowest(x);\n}\n"),
            ("e.rs", "pub mod e {\n    fn meta(all: Tensor) { all.map(middle) }\n}\n"),
            ("f.rs", "pub mod f {\n    fn meta(all: Tensor) {}\n}\n"),
        ];
        assert_eq!(files(&sources, "lowest"), ["a.rs", "b.rs", "d.rs", "e.rs"]);
        assert_eq!(files(&sources, "middle"), ["a.rs", "b.rs", "e.rs"]);
        assert_eq!(files(&sources, "Kind"), ["b.rs"]);
        assert!(files(&sources, "nothing").is_empty());
    }

    #[test]
    fn packages_that_do_not_use_a_package_call_another_function_of_the_name() {
        let sources = [
            ("low/src/help.rs", "pub fn middle() {}\n"),
            ("high/src/a.rs", "use low::help::middle;\npub mod a {\n    fn meta() { middle() }\n}\n"),
            ("high/src/lib.rs", "fn open() {\n    help::middle()\n}\n"),
            ("high/src/d.rs", "pub mod d {\n    fn meta() { crate::open() }\n}\n"),
            ("high/src/c.rs", "fn middle() {}\npub mod c {\n    fn meta() { middle() }\n}\n"),
            ("other/src/b.rs", "pub fn middle() {}\npub mod b {\n    fn meta() { middle() }\n}\n"),
        ];
        let owned = sources.map(|(file, text)| (file.to_owned(), text.to_owned()));
        let callers = Callers::new(owned);
        let found: Vec<&str> = callers.files("low/src/help.rs", "middle").into_iter().collect();
        assert_eq!(found, ["high/src/a.rs", "high/src/d.rs"]);
    }

    #[test]
    fn constants_and_macros_are_followed() {
        let sources = [
            ("help.rs", "const LOW: i64 = low();\nmacro_rules! kept {\n    () => { LOW };\n}\n"),
            ("a.rs", "pub mod a {\n    fn meta() { kept!() }\n}\n"),
        ];
        assert_eq!(files(&sources, "low"), ["a.rs"]);
    }
}
