//! The list of a folder's files, which a new file is added to.

use std::io;
use std::path::{Path, PathBuf};

/// The files that a folder's modules are listed in.
const LISTS: [&str; 3] = ["mod.rs", "lib.rs", "main.rs"];

/// Where a file was listed.
pub(super) enum Added {
    /// There, by this call.
    To(PathBuf),
    /// The file listed it before.
    Already(PathBuf),
    /// There is no file to list it in.
    Nowhere,
}

/// Lists the file `stem`.rs beside `path`. A plain `mod` would not do: the module of the file would hide that of the
/// operator, which has the same name, and its function.
pub(super) fn add(path: &Path, stem: &str, macros: &str) -> Result<Added, (PathBuf, io::Error)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let lists = LISTS.iter().map(|name| folder.join(name));
    let there: Vec<(PathBuf, String)> =
        lists.filter_map(|list| std::fs::read_to_string(&list).ok().map(|text| (list, text))).collect();
    let with_list = there.iter().find(|(_, text)| entries(text).is_some());
    let Some((list, text)) = with_list.or(there.first()) else { return Ok(Added::Nowhere) };
    let Some(changed) = with_entry(text, stem, macros) else { return Ok(Added::Already(list.clone())) };
    std::fs::write(list, changed).map_err(|error| (list.clone(), error))?;
    Ok(Added::To(list.clone()))
}

/// Where the entries of `operator_files! { ... }` are in the text: between the braces.
fn entries(text: &str) -> Option<(usize, usize)> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let code = line.trim_start();
        if let Some(found) =
            line.find("operator_files!").filter(|_| !code.starts_with("//") && !code.starts_with("use "))
        {
            let open = at + found + text[at + found..].find('{')? + 1;
            return Some((open, open + text[open..].find('}')?));
        }
        at += line.len();
    }
    None
}

/// The text with one entry more, in its place if the others are sorted; `None` if it is there already.
fn with_entry(text: &str, stem: &str, macros: &str) -> Option<String> {
    let Some((open, close)) = entries(text) else {
        return Some(format!("{}\n\n{macros}::operator_files! {{\n    {stem},\n}}\n", text.trim_end()));
    };
    let inner = &text[open..close];
    if inner.contains("//") {
        // Comments stay where they are.
        let present = inner
            .lines()
            .any(|line| line.split("//").next().is_some_and(|code| code.split(',').any(|word| word.trim() == stem)));
        let body = inner.trim_end();
        return (!present).then(|| format!("{}{body}\n    {stem},\n{}", &text[..open], &text[close..]));
    }
    let mut names: Vec<&str> = inner.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.contains(&stem) {
        return None;
    }
    let place = if names.is_sorted() { names.partition_point(|name| *name < stem) } else { names.len() };
    names.insert(place, stem);
    let lines: String = names.iter().map(|name| format!("    {name},\n")).collect();
    Some(format!("{}\n{lines}{}", &text[..open], &text[close..]))
}

#[cfg(test)]
mod tests {
    use super::with_entry;

    #[test]
    fn an_entry_is_put_in_its_place() {
        let list =
            "//! Mine: operator_files! { x }.\nfulgurite::operator_files! {\n    exp,\n    relu,\n}\n\nmod other;\n";
        let changed = with_entry(list, "gelu", "fulgurite").expect("it is new");
        assert_eq!(changed, list.replace("    relu", "    gelu,\n    relu"));
        assert_eq!(with_entry(&changed, "gelu", "fulgurite"), None);
    }

    #[test]
    fn other_forms_of_lists() {
        let one = with_entry("fulgurite::operator_files! { exp }\n", "gelu", "fulgurite");
        assert_eq!(one.as_deref(), Some("fulgurite::operator_files! {\n    exp,\n    gelu,\n}\n"));
        let empty = with_entry("fulgurite::operator_files! {\n}\n", "gelu", "fulgurite");
        assert_eq!(empty.as_deref(), Some("fulgurite::operator_files! {\n    gelu,\n}\n"));
        let none = with_entry("//! Mine.\n", "gelu", "fulgurite");
        assert_eq!(none.as_deref(), Some("//! Mine.\n\nfulgurite::operator_files! {\n    gelu,\n}\n"));
        let unsorted = with_entry("fulgurite::operator_files! {\n    relu,\n    exp,\n}\n", "gelu", "fulgurite");
        assert_eq!(unsorted.as_deref(), Some("fulgurite::operator_files! {\n    relu,\n    exp,\n    gelu,\n}\n"));
        let commented = "fulgurite::operator_files! {\n    // The first.\n    exp, // natural\n}\n";
        let changed = with_entry(commented, "gelu", "fulgurite");
        assert_eq!(
            changed.as_deref(),
            Some("fulgurite::operator_files! {\n    // The first.\n    exp, // natural\n    gelu,\n}\n")
        );
        assert_eq!(with_entry(commented, "exp", "fulgurite"), None);
    }
}
