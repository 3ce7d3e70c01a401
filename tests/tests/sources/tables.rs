//! Tables of the book that repeat the registry are what the registry says.

use std::path::Path;

use fulgurite_executors as _;
use fulgurite_runtime::operator::Autocast;
use fulgurite_runtime::registry::operators;

/// The operators of the library with a class of autocast, as the table of `docs/src/autocast.md` lists them.
fn operators_of(class: Autocast) -> String {
    let library = operators().into_iter().filter(|def| def.package == "fulgurite-ops" && def.autocast == Some(class));
    let mut names: Vec<String> = library.map(|def| format!("`{}`", def.name)).collect();
    // Composites before prims.
    names.sort_by_key(|name| (name.contains("::"), name.clone()));
    names.join(", ")
}

#[test]
fn the_table_of_autocast_lists_the_operators_of_each_class() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src/autocast.md");
    let page = std::fs::read_to_string(path).unwrap();
    let classes =
        [("low", Autocast::Low), ("full", Autocast::Full), ("widest", Autocast::Widest), ("keep", Autocast::Keep)];
    for (name, class) in classes {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        let listed = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        assert_eq!(listed, operators_of(class), "the last column of class `{name}` in docs/src/autocast.md");
    }
}
