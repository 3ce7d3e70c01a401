//! `review` of files that are no snapshots, of programs that cannot be read, and of more than a comment holds.

use crate::review::{NORM, Repository, assert_named};

/// A program of one line.
fn program(name: &str, call: &str) -> String {
    format!(
        "# fulgurite trace 2\n# made by acquire\ntrace {name} for cpu (x: f32[4]) {{\n  y = {call}\n  return y\n}}\n"
    )
}

#[test]
fn programs_without_headings_are_compared_with_those_of_their_function() {
    let repository = Repository::with(&[NORM]);
    let (first, second) = (program("first", "exp(x)"), program("second", "tanh(x)"));
    repository.write("two.snap", &[&*first, &*second].concat());
    repository.commit("two");
    repository.write("two.snap", &[&*program("zeroth", "log(x)"), &*first, &*second].concat());
    let found = repository.reviewed();
    assert_named(&found, &["1 program of 1 file changed", "zeroth after acquire", "new"]);
    assert!(found.0.contains("2 as before"), "{}", found.0);
}

#[test]
fn both_sides_that_cannot_be_read_are_told() {
    let repository = Repository::with(&[NORM]);
    let text = |call: &str| format!("{}{}", program("f", call), program("g", "exp(x)"));
    repository.write("a.snap", &text("exp(x, 1, 2)"));
    repository.commit("faulty");
    repository.write("a.snap", &text("tanh(x, 3, 4)"));
    let found = repository.reviewed();
    assert_named(&found, &["the text before cannot be read: line 4", "the text after cannot be read: line 4"]);
    let json = crate::json(&repository.review(&["--json", "-"]).ok());
    let faults = &json["files"][0]["programs"][0]["difference"]["faults"];
    assert_eq!((&faults[0]["side"], &faults[1]["side"]), (&"before".into(), &"after".into()));
}

#[test]
fn an_error_at_the_end_of_a_text_shows_no_line() {
    let repository = Repository::with(&[NORM]);
    repository.write("a.trace", &program("f", "exp(x)"));
    repository.commit("whole");
    repository.write("a.trace", "# fulgurite trace 2\ntrace f for cpu (x: f32[4]) {\n  y = exp(x)\n");
    let (summary, markdown) = repository.reviewed();
    assert!(summary.contains("the text after cannot be read"), "{summary}");
    assert!(!summary.contains("``") && !markdown.contains(", in "), "{summary}\n{markdown}");
}

#[test]
fn files_that_are_no_text_are_named_as_what_they_are() {
    let repository = Repository::with(&[NORM]);
    for name in ["empty", "header", "binary", "folder"] {
        repository.write(&format!("{name}.snap"), &program("f", "exp(x)"));
    }
    repository.commit("four");
    repository.write("empty.snap", "");
    repository.write("header.snap", "---\nsource: x.rs\n---\n");
    std::fs::write(repository.path().join("binary.snap"), b"# fulgurite trace 2\n\xff\xfe").unwrap();
    std::fs::remove_file(repository.path().join("folder.snap")).unwrap();
    repository.write("folder.snap/notes.txt", "x");
    // A folder where a test would leave its snapshot stands for nothing.
    repository.plant(NORM, "mul(sum, 0.125)", "mul(sum, 0.25)");
    repository.write(&format!("{NORM}.new/notes.txt"), "x");
    let ran = repository.review(&["--markdown", "review.md"]);
    assert!(ran.err.contains("rms_norm.snap.new is a folder, expected a file"), "{}", ran.err);
    assert_eq!(ran.code, 0);
    let summary = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let reasons = ["it is empty", "it is empty below its header", "it is not UTF-8, byte 20 is 0xff", "it is a folder"];
    let reasons = reasons.map(|reason| format!("the text after cannot be read: {reason}"));
    let reasons: Vec<&str> = reasons.iter().map(String::as_str).chain(["0.125 → 0.25"]).collect();
    assert_named(&(summary.clone(), repository.read("review.md")), &reasons);
    assert!(!summary.contains("gone"), "{summary}");
}

#[test]
fn operators_that_are_not_linked_have_one_note_at_the_end() {
    let repository = Repository::with(&[NORM]);
    let files = ["a.snap", "b.snap", "c.snap"];
    files.iter().for_each(|path| repository.write(path, &program("f", "own::scale(x, 1.0)")));
    repository.commit("own");
    files.iter().for_each(|path| repository.write(path, &program("f", "own::scale(x, 2.0)")));
    repository.plant(NORM, "mul(sum, 0.125)", "mul(sum, 0.25)");
    let found = repository.reviewed();
    let note = "3 programs of 3 files cannot be read, because this command does not have own::scale";
    assert_named(&found, &["1 program of 1 file changed; 3 programs with operators that are not linked", note]);
    for text in [&found.0, &found.1] {
        assert_eq!(text.matches("own::scale").count(), 1, "{text}");
        assert!(text.find("own::scale") > text.find("0.125 → 0.25"), "{text}");
    }
    let json = crate::json(&repository.review(&["--json", "-"]).ok());
    assert_eq!(json["files"][1]["programs"][0]["change"], "not linked");
    // One side alone is a text with a fault.
    repository.commit("second");
    repository.write("a.snap", &program("f", "exp(x)"));
    assert_named(&repository.reviewed(), &["the text before cannot be read", "own::scale"]);
}

#[test]
fn texts_without_bodies_are_told() {
    let repository = Repository::with(&[NORM]);
    let text = |scale: &str| {
        format!(
            "# fulgurite trace 2\n# made by acquire\ntrace f for cpu (x: f32[4]) {{\n  \
            y = gelu(x)\n  z = mul(y, {scale})\n  return z\n}}\n"
        )
    };
    repository.write("a.trace", &text("2.0"));
    repository.commit("outline");
    repository.write("a.trace", &text("3.0"));
    assert_named(&repository.reviewed(), &["2.0 → 3.0", "both texts have no bodies (`trace show --plain` leaves them"]);
    repository.write("b.trace", &text("2.0"));
    let compared = crate::run_in(repository.path(), &["trace", "diff", "a.trace", "b.trace"]);
    assert!(compared.err.contains("note: both texts have no bodies"), "{}", compared.err);
}

#[test]
fn bars_are_escaped_in_tables_alone() {
    let repository = Repository::with(&[NORM]);
    repository.write("a|b.trace", &program("\"f|g\"", "exp(x)"));
    repository.commit("bars");
    repository.write("a|b.trace", &program("\"f|g\"", "tanh(x)"));
    let (_, markdown) = repository.reviewed();
    assert!(markdown.contains("| `a\\|b` | `f\\|g after acquire` |"), "{markdown}");
    assert!(markdown.contains("\n`a|b.trace`: changed\n"), "{markdown}");
}

#[test]
fn a_comment_is_as_long_as_github_takes() {
    let repository = Repository::with(&[NORM]);
    let long = |name: &str| format!("{name}{}", "<wide|name>".repeat(1000));
    let text = |call: &str| {
        let one = |i: usize| format!("== {}\n{}", long(&format!("{i} ")), program(&format!("f{i}"), call));
        (0..120).map(one).collect::<String>()
    };
    repository.write("many.snap", &text("exp(x)"));
    repository.write("text.snap", "before");
    (0..400).for_each(|i| repository.write(&format!("{}{i}.snap", "other".repeat(40)), "before"));
    repository.commit("many");
    repository.write("many.snap", &text("tanh(x)"));
    (0..400).for_each(|i| repository.write(&format!("{}{i}.snap", "other".repeat(40)), "after"));
    let (summary, markdown) = repository.reviewed();
    assert!(summary.contains("120 programs of 1 file changed; 400 other texts"), "{summary}");
    assert!(markdown.chars().count() <= 65_536, "{} characters", markdown.chars().count());
    for part in ["more programs are not in the table", "are left out: the comment is full", "- and "] {
        assert!(markdown.contains(part), "{part} in\n{markdown}");
    }
    assert_eq!(markdown.matches("<details>").count(), markdown.matches("</details>").count());
}
