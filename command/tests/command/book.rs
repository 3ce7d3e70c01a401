//! What the book shows of the command is what the command prints: blocks of the language `console` begin with
//! `$ fulgurite ...`; a line `...` stands for lines that are left out. With `INSTA_UPDATE=always`, blocks that leave
//! out nothing are written anew.

use std::path::Path;

use crate::run;

/// What begins a line with a command.
const PROMPT: &str = "$ fulgurite ";
/// A line that stands for any number of lines.
const LEFT_OUT: &str = "...";

/// A block of a page.
struct Shown {
    /// The number of the line with the command, from 0.
    line: usize,
    arguments: Vec<String>,
    expected: Vec<String>,
}

/// The blocks of `page` that show what a command prints.
fn shown(page: &str) -> Vec<Shown> {
    let lines: Vec<&str> = page.lines().collect();
    let starts = (0..lines.len()).filter(|i| lines[*i] == "```console");
    let block = |start: usize| {
        let line = start + 1;
        let command = lines[line].strip_prefix(PROMPT).unwrap_or_else(|| panic!("line {line} is no command"));
        let expected = lines[line + 1..].iter().take_while(|line| **line != "```");
        Shown {
            line,
            arguments: command.split_whitespace().map(str::to_owned).collect(),
            expected: expected.map(|line| (*line).to_owned()).collect(),
        }
    };
    starts.map(block).collect()
}

/// Whether `printed` is `expected`, where any lines may be for a line of three points.
fn fits(expected: &[String], printed: &[&str]) -> bool {
    let parts: Vec<&[String]> = expected.split(|line| line == LEFT_OUT).collect();
    let same = |part: &[String], at: usize| {
        printed.get(at..at + part.len()).is_some_and(|lines| part.iter().zip(lines).all(|(a, b)| a == b))
    };
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 {
        return printed.len() == first.len() && same(first, 0);
    }
    if !same(first, 0) {
        return false;
    }
    let mut at = first.len();
    for part in &parts[1..parts.len() - 1] {
        let Some(found) = (at..=printed.len()).find(|at| same(part, *at)) else { return false };
        at = found + part.len();
    }
    printed.len() >= at + last.len() && same(last, printed.len() - last.len())
}

/// The page with the blocks of these commands replaced by what they print.
fn rewritten(page: &str, printed: &[(&Shown, Vec<String>)]) -> String {
    let mut lines: Vec<String> = page.lines().map(str::to_owned).collect();
    for (shown, text) in printed.iter().rev() {
        let start = shown.line + 1;
        lines.splice(start..start + shown.expected.len(), text.iter().cloned());
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_book_shows_what_commands_print() {
    let accept = std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/src");
    let (mut commands, mut complaints) = (0, String::new());
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = std::fs::read_to_string(&path).unwrap();
        let blocks = shown(&page);
        commands += blocks.len();
        let mut anew = Vec::new();
        for block in &blocks {
            let arguments: Vec<&str> = block.arguments.iter().map(String::as_str).collect();
            let ran = run(&arguments);
            let output = ran.out + &ran.err;
            let printed: Vec<&str> = output.trim_end().lines().map(str::trim_end).collect();
            if fits(&block.expected, &printed) {
                continue;
            }
            if accept && !block.expected.iter().any(|line| line == LEFT_OUT) {
                anew.push((block, printed.into_iter().map(str::to_owned).collect()));
                continue;
            }
            let place = format!("{}:{}", path.display(), block.line + 1);
            complaints += &format!("{place}: `{PROMPT}{}` prints:\n{output}\n", arguments.join(" "));
        }
        if !anew.is_empty() {
            std::fs::write(&path, rewritten(&page, &anew)).unwrap();
        }
    }
    assert!(commands > 0, "no page of {} shows a command", folder.display());
    assert!(
        complaints.is_empty(),
        "the book shows something else (INSTA_UPDATE=always rewrites whole blocks)\n{complaints}"
    );
}

#[test]
fn a_block_that_is_not_what_is_printed_is_found() {
    let lines = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let printed = ["a", "b", "c", "b", "d"];
    for text in ["a b c b d", "...", "a ...", "... d", "a ... d", "... b ... d", "a ... c b ...", "... a b c b d ..."] {
        assert!(fits(&lines(text), &printed), "{text}");
    }
    for text in
        ["a b c b", "a b c b d e", "b ...", "... c", "a ... x ... d", "... d ... c ...", "... b ... b ... b ...", ""]
    {
        assert!(!fits(&lines(text), &printed), "{text}");
    }
    // A line is not used twice.
    assert!(!fits(&lines("a ... a"), &["a"]));
}

#[test]
fn blocks_are_found_and_rewritten() {
    let page = "# Page\n\n```console\n$ fulgurite ops list\nold\nlines\n```\n\n```sh\n$ fulgurite doctor\n```\n";
    let blocks = shown(page);
    assert_eq!(blocks.len(), 1, "other languages are not run");
    assert_eq!(blocks[0].arguments, ["ops", "list"]);
    assert_eq!(blocks[0].expected, ["old", "lines"]);
    let anew = rewritten(page, &[(&blocks[0], vec!["new".to_owned()])]);
    assert_eq!(anew, page.replace("old\nlines", "new"));
}
