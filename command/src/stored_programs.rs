//! The programs of a text that holds several: a snapshot, or what `trace show --stage all` prints.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use fulgurite::executor::find_executor;
use fulgurite::trace::parse;

/// How the names of files with stored programs end.
pub const ENDINGS: [&str; 2] = [".snap", ".trace"];

/// What insta, and this library's tests, leave beside a snapshot that differs.
pub const PENDING: &str = ".snap.new";

/// How the names of insta's files end that hold snapshots which are written in sources.
pub const INLINE: &str = ".pending-snap";

/// In the heading of a stage: every line of the program is as it was acquired, and of one executor.
const AS_ACQUIRED: &str = ": as acquired, by ";

/// The text of a program after `claim`, all of whose lines `executor` takes. What cannot be read stays as it is.
fn taken_whole(acquired: &str, executor: &str) -> String {
    let (Ok(mut trace), Ok(executor)) = (parse(acquired), find_executor(executor)) else { return acquired.to_owned() };
    for symbol in &mut trace.block.symbols {
        (symbol.executor, symbol.body) = (Some(executor.name), None);
    }
    trace.to_string()
}

/// `forward, claimed` of `== forward, claimed`, `claim` of `# === claim ===`.
fn heading_of(line: &str) -> Option<&str> {
    let stage = line.strip_prefix("# === ").and_then(|rest| rest.strip_suffix(" ==="));
    stage.or_else(|| line.strip_prefix("== "))
}

/// A program of a text that holds several.
pub struct Stored {
    /// What is written above it, without a number; nothing if there is no heading.
    pub heading: Option<String>,
    /// The first line of the text of traces, if a line above the program says it and the program does not.
    pub version: Option<String>,
    /// The bytes of the text that are the program, without the end of its last line; none for a program that its
    /// heading alone describes.
    pub range: Option<Range<usize>>,
    /// The program with its version.
    pub text: String,
}

/// The programs of a text in their order. A version is said by each program, or once for all.
pub fn stored(text: &str) -> Vec<Stored> {
    let mut found: Vec<Stored> = Vec::new();
    let (mut heading, mut version): (Option<&str>, Option<&str>) = (None, None);
    let mut acquired: HashMap<&str, usize> = HashMap::new();
    let mut open = false;
    // The end of the last program that has a text, if nothing came behind it but empty lines.
    let mut ended: Option<usize> = None;
    let mut next = 0;
    for whole in text.split_inclusive('\n') {
        let (at, line) = (next, whole.trim_end_matches('\n'));
        let line = line.strip_suffix('\r').unwrap_or(line);
        next += whole.len();
        let begins = line.starts_with("# fulgurite trace ");
        if let Some(title) = heading_of(line) {
            heading = Some(title);
            (open, ended) = (false, None);
            if let Some((stage, executor)) = title.split_once(AS_ACQUIRED)
                && let Some(acquired) = acquired.get(&*stage.replace("claimed", "acquired"))
            {
                let text = taken_whole(&found[*acquired].text, executor);
                found.push(Stored { heading: Some(stage.to_owned()), version: None, range: None, text });
            }
        } else if !open && (begins || line.starts_with("trace ")) {
            let version = version.filter(|_| !begins).map(str::to_owned);
            let first = version.as_ref().map_or_else(String::new, |version| format!("{version}\n"));
            if let Some(heading) = heading {
                acquired.entry(heading).or_insert(found.len());
            }
            found.push(Stored { heading: heading.map(str::to_owned), version, range: Some(at..at), text: first });
            (open, ended) = (true, None);
        } else if let (Some(from), Some(program)) = (ended, found.last_mut())
            && !(line.is_empty() || line.starts_with('#'))
        {
            // Behind the end of a program there is nothing but the next one: the parser says so of its line.
            let end = at + line.len();
            program.text.push_str(&text[from..end]);
            program.text.push('\n');
            program.range = program.range.take().map(|range| range.start..end);
            ended = Some(next);
        }
        if begins {
            version = Some(line);
        }
        if let Some(program) = found.last_mut().filter(|_| open) {
            program.text.push_str(line);
            program.text.push('\n');
            if let Some(range) = &mut program.range {
                range.end = at + line.len();
            }
        }
        if open && line == "}" {
            (open, ended) = (false, Some(next));
        }
    }
    // What is a version alone said that of the programs behind it.
    found.retain(|stored| stored.text.lines().count() > 1);
    found
}

/// The programs of a text in their order, each with its heading (`== forward, claimed`, `# === claim ===`), or, where
/// there is none, with its function and stage. Titles that repeat are numbered.
pub fn programs(text: &str) -> Vec<(String, String)> {
    titled(text).into_iter().map(|(title, stored)| (title, stored.text)).collect()
}

/// As [`programs`], with where they are in the text.
pub fn titled(text: &str) -> Vec<(String, Stored)> {
    // How many have had a title: a text may hold thousands of the same.
    let (mut known, mut times): (HashSet<String>, HashMap<String, usize>) = Default::default();
    let numbered = stored(text).into_iter().map(|stored| {
        let title = stored.heading.clone().unwrap_or_else(|| title_of(&stored.text));
        let mut key = title.clone();
        let times = times.entry(title.clone()).or_insert(1);
        while !known.insert(key.clone()) {
            *times += 1;
            key = format!("{title} {times}");
        }
        (key, stored)
    });
    numbered.collect()
}

/// What a program without a heading is called: its function and the transform that made it, `step after claim`. It is
/// read from the first lines alone, so that a program with a fault further below has the same title.
fn title_of(program: &str) -> String {
    let (mut stage, mut goes_on) = (None, false);
    for line in program.lines() {
        let transforms = line.strip_prefix("# made by ").or_else(|| line.strip_prefix('#').filter(|_| goes_on));
        if let Some(transforms) = transforms {
            goes_on = transforms.trim_end().ends_with(',');
            stage = transforms.rsplit(", ").next().map(str::trim);
        } else if let Some(rest) = line.strip_prefix("trace ") {
            let function = Some(function_of(rest)).filter(|name| !name.is_empty()).unwrap_or("program");
            return stage.map_or_else(|| function.to_owned(), |stage| format!("{function} after {stage}"));
        }
    }
    "program".into()
}

/// The name at the beginning of `"a \"name\"" for cpu (x: f32[4]) {`, without its quotes.
fn function_of(rest: &str) -> &str {
    let Some(quoted) = rest.strip_prefix('"') else {
        return rest.split([' ', '(']).next().unwrap_or_default();
    };
    let mut escaped = false;
    let end = quoted.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    &quoted[..end.unwrap_or(quoted.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAPSHOT: &str = "---\nsource: x\n---\n== forward, acquired\n\n# fulgurite trace 2\ntrace f for cpu () {\n}\n\n\
        == forward, claimed\n\n# fulgurite trace 2\ntrace f for cpu () {\n  return\n}\n";

    fn headings(text: &str) -> Vec<String> {
        programs(text).into_iter().map(|(heading, _)| heading).collect()
    }

    #[test]
    fn programs_are_found_by_their_headings() {
        let found = programs(SNAPSHOT);
        assert_eq!(headings(SNAPSHOT), ["forward, acquired", "forward, claimed"]);
        assert!(found[1].1.ends_with("  return\n}\n"), "{found:?}");
        assert_eq!(headings("# fulgurite trace 2\n}\n# fulgurite trace 2\n}\n"), ["program", "program 2"]);
    }

    #[test]
    fn what_stands_behind_a_program_is_a_part_of_it() {
        let program = "# fulgurite trace 2\ntrace f for cpu (x: f32[]) {\n  return out = x\n}\n";
        let text = format!("== acquired\n{program}\nfurther text\n# saved\n== claimed\n{program}\n");
        let found = stored(&text);
        assert_eq!(found.len(), 2);
        let range = found[0].range.clone().unwrap();
        assert!(text[range].ends_with("}\n\nfurther text"), "{}", found[0].text);
        let error = parse(&found[0].text).unwrap_err().to_string();
        assert!(error.contains("expected the end of the text, found 'further'"), "{error}");
        parse(&found[1].text).unwrap();
    }

    #[test]
    fn thousands_of_programs_without_headings_are_numbered() {
        // A search through all programs for every number of every program would not come to its end.
        let count = 20_000;
        let text = "# fulgurite trace 2\n}\n".repeat(count);
        let expected = (2..=count).map(|number| format!("program {number}"));
        assert!(headings(&text).into_iter().eq(std::iter::once("program".to_owned()).chain(expected)));
    }

    #[test]
    fn numbers_pass_over_headings_that_look_numbered() {
        let one = |heading: &str| format!("== {heading}\n# fulgurite trace 2\n}}\n");
        let text = ["claim 2", "claim", "claim", "claim", "claim 2"].map(one).concat();
        assert_eq!(headings(&text), ["claim 2", "claim", "claim 3", "claim 4", "claim 2 2"]);
    }

    #[test]
    fn programs_without_headings_are_called_by_function_and_stage() {
        let one = |name: &str, made: &str| format!("# fulgurite trace 2\n{made}trace {name} for cpu () {{\n}}\n");
        let text = [
            one("f", ""),
            one("f", "# made by acquire, claim\n"),
            one(r#""a \"b\" for c""#, "# made by acquire\n"),
            one("f", "# made by claim\n"),
            one("g", "# made by acquire,\n#   fuse,\n#   claim\n# layout\n"),
        ];
        let expected = ["f", "f after claim", r#"a \"b\" for c after acquire"#, "f after claim 2", "g after claim"];
        assert_eq!(headings(&text.concat()), expected);
    }

    #[test]
    fn stages_keep_their_order() {
        let one = |name: &str| format!("# === {name} ===\n# fulgurite trace 2\ntrace f for cpu () {{\n}}\n\n");
        let text = ["rewrite", "claim", "donate"].map(one).concat();
        assert_eq!(headings(&text), ["rewrite", "claim", "donate"]);
    }
}
