//! The form of what people read in the repository: pages and comments keep to 120 columns and to plain words, and the
//! files that pages name exist.

use std::path::{Path, PathBuf};

/// Columns of a line.
const MOST_COLUMNS: usize = 120;

/// What a text is written in.
#[derive(Clone, Copy)]
enum Language {
    Markdown,
    Rust,
    /// Kernels, whose comments are as those of Rust.
    Cuda,
}

impl Language {
    /// That of a file, if its lines are looked at.
    fn of(path: &Path) -> Option<Language> {
        match path.extension()?.to_str()? {
            "md" => Some(Language::Markdown),
            "rs" => Some(Language::Rust),
            "cu" | "cuh" => Some(Language::Cuda),
            _ => None,
        }
    }

    /// What a line says to its reader: all of it, or the comment that it consists of.
    fn prose(self, line: &str) -> Option<&str> {
        let line = line.trim_start();
        match self {
            Language::Markdown => Some(line),
            Language::Rust | Language::Cuda => {
                line.strip_prefix("//").map(|comment| comment.trim_start_matches(['/', '!']).trim_start())
            }
        }
    }
}

/// Numbers of the lines of prose that are too long. Tables, blocks of code, and lines with an address on the web may
/// be. Code is left to `rustfmt`.
fn long_lines(text: &str, language: Language) -> Vec<usize> {
    let mut in_code = false;
    let mut long = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let Some(prose) = language.prose(line) else {
            in_code = false;
            continue;
        };
        if prose.starts_with("```") {
            in_code = !in_code;
            continue;
        }
        let free = in_code || prose.starts_with('|') || prose.contains("://");
        if !free && line.chars().count() > MOST_COLUMNS {
            long.push(i + 1);
        }
    }
    long
}

/// The paths in back quotes that begin with one of `folders`. A path ends at a blank; patterns and placeholders, in
/// capitals, are none.
fn paths<'a>(page: &'a str, folders: &[String]) -> Vec<&'a str> {
    let quoted = page.split('`').skip(1).step_by(2).filter_map(|quoted| quoted.split_whitespace().next());
    let path = |text: &&str| {
        let plain = text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-./".contains(c));
        plain && text.split_once('/').is_some_and(|(folder, _)| folders.iter().any(|known| known == folder))
    };
    quoted.filter(path).collect()
}

/// The place of a path that a page names: below the repository, or a CUDA header by the name that sources include.
fn place(root: &Path, path: &str) -> PathBuf {
    let include = path.starts_with("fulgurite/") && path.ends_with(".cuh");
    if include { root.join("runtime/cuda/src").join(path) } else { root.join(path) }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the repository")
}

/// The folders of the repository, without what is built and what is hidden.
fn folders(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir());
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "target" && !name.starts_with('.')).collect()
}

/// Files below `folder` whose lines are looked at.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for name in folders(folder) {
        files(&folder.join(name), found);
    }
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    found.extend(entries.filter(|path| path.is_file() && Language::of(path).is_some()));
}

/// A phrase that plain technical English does without.
struct Phrase {
    /// Its forms, in lower case.
    words: &'static [&'static [&'static str]],
    /// How to write it instead.
    instead: &'static str,
    /// Words before it that make it plain: the field's own idioms.
    after: &'static [&'static str],
    /// Words behind it that make it plain.
    before: &'static [&'static str],
}

const PHRASES: [Phrase; 8] = [
    Phrase {
        words: &[&["somebody"], &["someone"]],
        instead: "name the caller, the user, the thread or the process",
        after: &[],
        before: &[],
    },
    Phrase {
        words: &[&["whoever"], &["whomever"]],
        instead: "name the caller or the executor: `every reader`, `by any executor`",
        after: &[],
        before: &[],
    },
    Phrase {
        words: &[&["who"]],
        instead: "name the caller or the executor: `the executor that runs a line`, `a query that sees nothing`",
        after: &["people", "user", "users"],
        before: &[],
    },
    Phrase {
        words: &[&["lie"], &["lies"], &["lying"]],
        instead: "memory and data are somewhere: `is in`, `has the layout of`, `overwrites`, `is adjacent to`",
        after: &[],
        before: &[],
    },
    Phrase {
        words: &[&["stand"], &["stands"], &["standing"], &["stood"]],
        instead: "code and data are somewhere: `is`, `comes before`, `is kept`",
        after: &[],
        // A placeholder stands for something.
        before: &["for"],
    },
    Phrase {
        words: &[&["anyhow"]],
        instead: "say which ones are allowed: `may have any strides`",
        after: &[],
        before: &[],
    },
    Phrase {
        words: &[&["no", "more", "than", "that"]],
        instead: "say what it is: `assumes element alignment only`",
        after: &[],
        before: &[],
    },
    Phrase {
        words: &[&["becomes", "of"], &["became", "of"]],
        instead: "name the result: `its form in the other stages`",
        after: &[],
        before: &[],
    },
];

/// Phrases that a page may have, with the reason.
const ALLOWED: [(&str, &str, &str); 1] = [("CONTRIBUTING.md", "whoever", "an example of what not to write")];

/// Pages that are not checked, with the reason.
const KEPT_PAGES: [(&str, &str); 2] = [
    ("CHANGELOG.md", "entries of past changes are not rewritten"),
    ("benches/RESULTS.md", "figures are kept with the words that they were recorded with"),
];

/// Words that begin a comment of up to three words that says nothing beyond the name below it: `In order.`
const VAGUE: [&str; 15] =
    ["why", "how", "what", "where", "when", "which", "of", "in", "by", "to", "from", "with", "it", "on", "behind"];

/// What stands for code in back quotes among the words of a text.
const CODE: &str = "`";

/// The words of each paragraph in lower case, with the numbers of their lines. Blocks of code are left out.
fn paragraphs(text: &str, language: Language) -> Vec<Vec<(usize, String)>> {
    let mut found = vec![Vec::new()];
    let (mut in_block, mut in_code) = (false, false);
    for (i, line) in text.lines().enumerate() {
        let prose = language.prose(line);
        let fence = prose.is_some_and(|prose| prose.starts_with("```"));
        in_block = prose.is_some() && in_block != fence;
        let Some(prose) = prose.filter(|prose| !prose.is_empty() && !fence && !in_block) else {
            found.push(Vec::new());
            in_code = false;
            continue;
        };
        let mut plain = String::new();
        for (at, part) in prose.split('`').enumerate() {
            if at > 0 {
                in_code = !in_code;
                plain += if in_code { CODE } else { "" };
            }
            plain += if in_code { "" } else { part };
        }
        let word = |word: &str| match word.contains(CODE) {
            true => CODE.to_owned(),
            false => word.trim_matches(|c: char| !c.is_alphanumeric()).trim_end_matches("'s").to_lowercase(),
        };
        let words = plain.split_whitespace().map(|text| (i + 1, word(text)));
        found.last_mut().expect("there is one from the beginning").extend(words);
    }
    found
}

/// The phrases in a text, each with the number of the line that it begins in.
fn phrases(text: &str, language: Language) -> Vec<(usize, String, &'static str)> {
    let mut found = Vec::new();
    for words in paragraphs(text, language) {
        for phrase in &PHRASES {
            for form in phrase.words {
                let starts = (0..words.len()).filter(|at| {
                    let rest = &words[*at..];
                    rest.len() >= form.len() && rest.iter().zip(*form).all(|((_, word), own)| word == own)
                });
                for at in starts {
                    let before = at.checked_sub(1).map_or("", |at| words[at].1.as_str());
                    let behind = words.get(at + form.len()).map_or("", |(_, word)| word.as_str());
                    if !phrase.after.contains(&before) && !phrase.before.contains(&behind) {
                        found.push((words[at].0, form.join(" "), phrase.instead));
                    }
                }
            }
        }
    }
    found
}

/// Numbers of the lines that are a whole comment of at most three words, the first of which is vague.
fn vague_comments(text: &str) -> Vec<usize> {
    let lines: Vec<Option<&str>> =
        text.lines().map(|line| Language::Rust.prose(line).filter(|prose| !prose.is_empty())).collect();
    let alone = |at: usize| {
        at.checked_sub(1).is_none_or(|before| lines[before].is_none())
            && lines.get(at + 1).is_none_or(|behind| behind.is_none())
    };
    let vague = |prose: &str| {
        let words: Vec<&str> = prose.split_whitespace().collect();
        let first = words.first().map_or("", |word| word.trim_end_matches(['.', ','])).to_lowercase();
        prose.ends_with('.') && words.len() <= 3 && VAGUE.contains(&&*first)
    };
    let found = lines.iter().enumerate().filter(|(at, prose)| prose.is_some_and(vague) && alone(*at));
    found.map(|(at, _)| at + 1).collect()
}

#[test]
fn pages_and_comments_use_plain_words() {
    let root = root();
    let mut found = Vec::new();
    files(root, &mut found);
    let mut told = String::new();
    let (mut kept, mut allowed) = (Vec::new(), Vec::new());
    for path in found {
        let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        if let Some((page, _)) = KEPT_PAGES.iter().find(|(page, _)| *page == name) {
            kept.push(*page);
            continue;
        }
        let (text, language) = (std::fs::read_to_string(&path).unwrap(), Language::of(&path).unwrap());
        for (line, phrase, instead) in phrases(&text, language) {
            match ALLOWED.iter().find(|(file, word, _)| *file == name && *word == phrase) {
                Some((file, _, _)) => allowed.push(*file),
                None => told += &format!("{}:{line}: \"{phrase}\": {instead}\n", path.display()),
            }
        }
        if matches!(language, Language::Rust) {
            for line in vague_comments(&text) {
                told += &format!("{}:{line}: say what it is, with its unit, or delete it\n", path.display());
            }
        }
    }
    assert!(told.is_empty(), "words that readers stumble over (CONTRIBUTING.md, \"Language\"):\n{told}");
    assert_eq!(kept.len(), KEPT_PAGES.len(), "pages that are excepted and not there: {kept:?}");
    assert_eq!(allowed.len(), ALLOWED.len(), "exceptions that nothing needs: {allowed:?}");
}

#[test]
fn pages_and_comments_keep_to_120_columns() {
    let mut found = Vec::new();
    files(root(), &mut found);
    assert!(found.iter().any(|path| path.ends_with("README.md")) && found.iter().any(|path| path.ends_with(file!())));
    let mut long = String::new();
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        for line in Language::of(&path).map_or_else(Vec::new, |language| long_lines(&text, language)) {
            long += &format!("{}:{line}\n", path.display());
        }
    }
    assert!(long.is_empty(), "lines of more than {MOST_COLUMNS} columns:\n{long}");
}

/// The stored text of programs, behind the header that insta writes.
#[test]
fn stored_programs_keep_to_120_columns() {
    fn snapshots(folder: &Path, found: &mut Vec<PathBuf>) {
        folders(folder).into_iter().for_each(|name| snapshots(&folder.join(name), found));
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        found.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "snap")));
    }
    let (mut found, mut programs, mut long) = (Vec::new(), 0, String::new());
    snapshots(root(), &mut found);
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let Some(contents) = text.splitn(3, "---\n").nth(2).filter(|text| text.contains("# fulgurite trace ")) else {
            continue;
        };
        programs += 1;
        let first = text.lines().count() - contents.lines().count() + 1;
        for (i, line) in contents.lines().enumerate().filter(|(_, line)| line.chars().count() > MOST_COLUMNS) {
            long += &format!("{}:{}: {line}\n", path.display(), first + i);
        }
    }
    assert!(programs > 200, "{programs} snapshots hold programs");
    assert!(long.is_empty(), "lines of more than {MOST_COLUMNS} columns:\n{long}");
}

#[test]
fn pages_name_files_that_exist() {
    let root = root();
    let folders = folders(root);
    let mut pages = Vec::new();
    files(&root.join("docs/src"), &mut pages);
    pages.extend(["README.md", "CONTRIBUTING.md"].map(|page| root.join(page)));
    let mut missing = String::new();
    let mut named = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        for path in paths(&text, &folders) {
            named += 1;
            if !place(root, path).exists() {
                missing += &format!("{} names {path}\n", page.display());
            }
        }
    }
    assert!(named > 0, "no page names a file");
    assert!(missing.is_empty(), "files that do not exist:\n{missing}");
}

/// Programs of a page that no test runs are not noticed when they no longer compile.
#[test]
fn pages_with_programs_are_run() {
    let root = root();
    let mut pages = Vec::new();
    files(&root.join("docs/src"), &mut pages);
    let run = std::fs::read_to_string(root.join("fulgurite/src/lib.rs")).unwrap();
    let name = |page: &PathBuf| page.file_name().unwrap().to_str().unwrap().to_owned();
    let programs = |page: &&PathBuf| std::fs::read_to_string(page).unwrap().lines().any(|line| line == "```rust");
    let pages: Vec<String> =
        pages.iter().filter(|page| page.extension().is_some_and(|of| of == "md")).filter(programs).map(name).collect();
    assert!(pages.len() > 10, "{pages:?}");
    let missing: Vec<&String> = pages.iter().filter(|page| !run.contains(&format!("docs/src/{page}\""))).collect();
    assert!(missing.is_empty(), "fulgurite/src/lib.rs does not run the programs of {missing:?}");
}

/// The suites of `tests/tests` whose names no table of CONTRIBUTING.md has in its first column.
fn without_a_reason(page: &str, suites: &[String]) -> Vec<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let names: Vec<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    suites.iter().filter(|suite| !names.contains(&suite.as_str())).cloned().collect()
}

/// The test binaries below `folder`, and the modules of those that are folders.
fn suites(folder: &Path) -> Vec<String> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut found = entries(folder);
    let grouped = found.clone().into_iter().filter(|path| path.join("main.rs").exists() && !path.ends_with("choices"));
    found.extend(grouped.flat_map(|group| entries(&group)));
    let names = found.iter().map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    names.filter(|name| name != "snapshots" && name != "main").collect()
}

#[test]
fn every_suite_has_its_reason() {
    let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let suites = suites(&root().join("tests/tests"));
    assert!(["prose", "sources", "generated"].iter().all(|suite| suites.contains(&(*suite).into())), "{suites:?}");
    let missing = without_a_reason(&page, &suites);
    assert!(missing.is_empty(), "CONTRIBUTING.md does not say what these suites of tests/tests are for: {missing:?}");
    assert_eq!(without_a_reason("| `one`, `two` | words |", &["two".into(), "words".into()]), ["words"]);
}

#[test]
fn a_long_line_is_found() {
    let long = "word ".repeat(25);
    let text = format!("short\n{long}\n| {long} |\n```text\n{long}\n```\nhttps://example.org {long}\n- {long}\n");
    assert_eq!(long_lines(&text, Language::Markdown), [2, 8]);
    let text =
        format!("//! {long}\nfn f() {{}} // {long}\n    // {long}\n/// ```\n/// {long}\n/// ```\n/// | {long} |\n");
    assert_eq!(long_lines(&text, Language::Rust), [1, 3]);
    // Columns are characters, not bytes.
    assert_eq!(long_lines(&"·".repeat(MOST_COLUMNS), Language::Markdown), [0; 0]);
    assert_eq!(long_lines(&"·".repeat(MOST_COLUMNS + 1), Language::Markdown), [1]);
}

#[test]
fn a_path_is_told_from_other_words() {
    let folders = ["ops".to_owned(), "tests".to_owned()];
    let page = "See `ops/src/lib.rs`, `tests/` and `cargo test`; `ops/src/**/*.rs`, `shards/one.bin` and `ops/NAME.rs` \
                are none. `tests/device.sh build` is one, and ops/src is not quoted.";
    assert_eq!(paths(page, &folders), ["ops/src/lib.rs", "tests/", "tests/device.sh"]);
}

#[test]
fn a_phrase_is_told_from_plain_words() {
    let rust = |text: &str| -> Vec<(usize, String)> {
        phrases(text, Language::Rust).into_iter().map(|(line, phrase, _)| (line, phrase)).collect()
    };
    let one = |line: usize, phrase: &str| vec![(line, phrase.to_owned())];
    // Every form of every phrase, at the start of a sentence and in it.
    for form in PHRASES.iter().flat_map(|phrase| phrase.words) {
        let phrase = form.join(" ");
        assert_eq!(rust(&format!("fn f() {{}}\n    /// It is, {phrase}, there.\n")), one(2, &phrase));
        let first = phrase[..1].to_uppercase();
        assert_eq!(rust(&format!("//! A line.\n//! {first}{} waits.\n", &phrase[1..])), one(2, &phrase));
    }
    // Across lines, and with an apostrophe.
    assert_eq!(rust("// It knows no more\n// than that, and goes on.\n"), one(1, "no more than that"));
    assert_eq!(rust("/// Somebody's.\n"), one(1, "somebody"));
    assert_eq!(phrases("| a | whoever waits |\n", Language::Markdown).len(), 1);
    assert_eq!(phrases("__device__ int f();\n// Who sees nothing gets zeros.\n", Language::Cuda).len(), 1);
    // The field's own idioms, code, and words that only contain one.
    for plain in [
        "/// `...` stands for lines that are left out; names standing for several.\n",
        "/// For people who write kernels, and every user who may read the folder.\n",
        "/// `lies` and `who\n/// lies` are code; [`stands`] is a field.\n",
        "/// A stand-in whose layout is believed; allies understand relies and whole.\n",
        "let lies = whoever(stood);\n",
        "/// ```\n/// // Somebody lies.\n/// ```\n",
        "// No more\nfn f() {}\n// than that.\n",
    ] {
        assert!(rust(plain).is_empty(), "{plain}: {:?}", rust(plain));
    }
    assert_eq!(phrases("```console\n$ who stood\n```\nWho?\n", Language::Markdown).len(), 1);
}

#[test]
fn a_vague_comment_is_told_from_a_short_one() {
    for vague in VAGUE {
        assert_eq!(vague_comments(&format!("struct S {{\n    /// {vague} it.\n    at: u8,\n}}\n")), [2]);
    }
    assert_eq!(vague_comments("// Why.\n"), [1]);
    assert_eq!(vague_comments("/// Size in bytes.\nbytes: u64,\n/// GELU.\nGelu,\n"), [0; 0]);
    assert_eq!(vague_comments("/// What is wrong\n/// with it.\nreason: String,\n"), [0; 0]);
    assert_eq!(vague_comments("/// What it computes, in words.\ntext: String,\nlet why = 1;\n"), [0; 0]);
}
