//! Takes the Rust blocks of the README and of the book that declare something, each as a module of its own. Lines keep
//! their numbers, so that a message about line 120 of `out/cuda.md` is about line 120 of the page.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// What a block must have to be taken: the others are documentation tests alone.
const DECLARATIONS: [&str; 5] = ["#[operator", "#[implementation", "#[executor", "#[rewrite", "operators!"];

/// The text of `page` with its declaring blocks as modules, and nothing else.
fn modules(page: &str) -> Option<String> {
    let lines: Vec<&str> = page.lines().collect();
    let mut kept = vec![String::new(); lines.len()];
    let mut found = false;
    let mut at = 0;
    while at < lines.len() {
        let fence = lines[at].trim_start();
        if !fence.starts_with("```") {
            at += 1;
            continue;
        }
        let end = (at + 1..lines.len()).find(|i| lines[*i].trim_start().starts_with("```")).unwrap_or(lines.len() - 1);
        let (block, language) = (&lines[at + 1..end], fence.trim_start_matches('`'));
        let rust = language.split(',').next() == Some("rust") && !language.contains("ignore");
        let declares = block.iter().any(|line| DECLARATIONS.iter().any(|word| line.starts_with(word)));
        if rust && declares {
            found = true;
            kept[at] = format!("pub mod line_{} {{", at + 1);
            for (kept, line) in kept[at + 1..end].iter_mut().zip(block) {
                // Lines that readers do not see.
                *kept = line.strip_prefix("# ").unwrap_or(line).to_owned();
            }
            kept[end] = "}".to_owned();
        }
        at = end + 1;
    }
    found.then(|| kept.join("\n") + "\n")
}

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut pages: Vec<PathBuf> = fs::read_dir(root.join("src"))
        .expect("the book has a folder")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .filter(|path| path.file_stem().is_some_and(|stem| stem != "README"))
        .chain([root.join("../README.md")])
        .collect();
    pages.sort();
    let mut book = String::new();
    for page in &pages {
        println!("cargo::rerun-if-changed={}", page.display());
        let text = fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let Some(modules) = modules(&text) else { continue };
        let name = module_name(page);
        let file = out.join(format!("{name}.md"));
        fs::write(&file, modules).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        book += &format!("#[path = {:?}]\npub mod {name};\n", file);
    }
    println!("cargo::rerun-if-changed={}", root.join("src").display());
    fs::write(out.join("book.rs"), book).expect("the folder can be written to");
}

/// `reading_traces` for `reading-traces.md`.
fn module_name(page: &Path) -> String {
    let stem = page.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()).unwrap_or_default();
    stem.replace('-', "_")
}
