//! `view` of files: what is read, what is written over, what is told of what is wrong.

use std::path::{Path, PathBuf};

use crate::browser::Browser;
use crate::view::{show, view};
use crate::{run, run_in};

/// As [`view`], of what cannot be read or compiled to its end; with the warning.
fn view_with_warning(folder: &Path, arguments: &[&str]) -> (PathBuf, String) {
    let ran = run_in(folder, &[&["view"], arguments, &["-o", "page.html"]].concat());
    assert!(ran.code == 0 && ran.out.starts_with("wrote page.html, "), "{}{}", ran.out, ran.err);
    assert!(ran.err.starts_with("warning: ") && ran.err.matches("warning: ").count() == 1, "{}", ran.err);
    (folder.join("page.html"), ran.err)
}

#[test]
fn a_page_does_not_replace_what_it_shows() {
    let folder = tempfile::tempdir().unwrap();
    let text = show(folder.path(), "step.trace", &["softmax"]);
    std::fs::copy(folder.path().join("step.trace"), folder.path().join("page.html")).unwrap();
    for (what, out, expected) in [
        (&["step.trace"][..], "step.trace", "is read, and would be written over"),
        (&["gelu", "./page.html"], "page.html", "is read, and would be written over"),
        (&["gelu"], "step.trace", "is the name of a stored program, expected another ending"),
        (&["gelu"], "other.snap", "is the name of a stored program"),
        (&["gelu"], "other.snap.new", "is the name of a stored program"),
    ] {
        let complaint = run_in(folder.path(), &[&["view"], what, &["-o", out]].concat()).fails(1);
        assert!(complaint.contains(expected), "{complaint}");
        assert_eq!(std::fs::read_to_string(folder.path().join("step.trace")).unwrap(), text);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn options_without_effect_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    show(folder.path(), "stored.trace", &["softmax"]);
    let two = ["gpt2-loss", "--layers", "1", "--backward", "--sources", "--orders"];
    for (arguments, expected) in [
        (&two[..], "--sources, --orders: of one program, and gpt2-loss --backward is a forward and a backward one"),
        (&["stored.trace", "--sources", "--orders"], "--sources, --orders: programs of operators and models"),
        (&["stored.trace", "--target", "cpu", "--no-fuse"], "--target, --no-fuse: programs of operators and models"),
        (&["stored.trace", "stored.trace", "--backward"], "--backward: programs of operators and models"),
        (&["gelu", "softmax", "--layers", "2"], "--layers: of models, and changes nothing of gelu and softmax"),
        (&["gpt2", "--sample", "1"], "--sample: of operators, and changes nothing of gpt2"),
        (&["gelu", "--sources"], "a program for cpu has no sources"),
        (&["matmul", "--executors", "reference", "--orders"], "--orders: a single executor has no other order"),
    ] {
        let complaint = run_in(folder.path(), &[&["view"], arguments, &["-o", "page.html"]].concat()).fails(1);
        assert!(complaint.contains(expected), "{arguments:?}: {complaint}");
        assert!(!folder.path().join("page.html").exists(), "{arguments:?}");
    }
    // Beside a program, a file takes nothing from its options.
    view(folder.path(), &["softmax", "stored.trace", "--backward"]);
}

#[test]
fn a_program_that_is_not_compiled_has_a_page_without_sources() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["softmax", "--executors", "view", "--sources"];
    let (page, warning) = view_with_warning(folder.path(), &arguments);
    assert!(warning.contains("softmax: compilation ends in stage 'claim'"), "{warning}");
    assert!(std::fs::read_to_string(page).unwrap().contains("compilation ends in stage 'claim'"));
}

/// A trace that can be read but does not hold together is shown with what is wrong.
#[test]
fn a_trace_that_is_not_valid_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let good = run(&["trace", "show", "softmax"]).ok();
    let wrong = good.replacen("f32[4] = amax(", "f32[5] = amax(", 1);
    assert_ne!(good, wrong, "{good}");
    std::fs::write(folder.path().join("good.trace"), good).unwrap();
    std::fs::write(folder.path().join("wrong.trace"), wrong).unwrap();
    let page = std::fs::read_to_string(view(folder.path(), &["good.trace"])).unwrap();
    assert!(!page.contains("is not valid"));
    let (page, warning) = view_with_warning(folder.path(), &["wrong.trace"]);
    assert!(warning.contains("wrong.trace: acquire is not valid: line "), "{warning}");
    assert!(std::fs::read_to_string(page).unwrap().contains("acquire is not valid: line "));
}

/// What may have no end is not read; what a terminal would obey is not written.
#[cfg(unix)]
#[test]
fn only_regular_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    show(folder.path(), "step.trace", &["softmax"]);
    for arguments in [&["/dev/zero"][..], &["."], &["step.trace", "--profile", "/dev/zero"]] {
        let complaint = run_in(folder.path(), &[&["view"], arguments, &["-o", "page.html"]].concat()).fails(1);
        assert!(complaint.ends_with(": is no regular file\n"), "{arguments:?}: {complaint}");
    }
    std::fs::write(folder.path().join("bad.trace"), "# fulgurite trace 2\n\u{1b}[2J").unwrap();
    let (_, warning) = view_with_warning(folder.path(), &["bad.trace"]);
    assert!(warning.contains("line 2") && !warning.contains('\u{1b}'), "{warning}");
}

#[test]
fn names_of_operators_come_before_those_of_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("gelu"), "no trace").unwrap();
    let all_read = "\"unread\":null";
    let page = std::fs::read_to_string(view(folder.path(), &["gelu", "--backward"])).unwrap();
    assert!(page.contains(all_read));
    let (page, warning) = view_with_warning(folder.path(), &["./gelu"]);
    assert!(warning.starts_with("warning: ./gelu: line 1, column 1: "), "{warning}");
    assert!(!std::fs::read_to_string(page).unwrap().contains(all_read));
    let complaint = run_in(folder.path(), &["view", "before.trcae", "-o", "other.html"]).fails(1);
    assert!(complaint.contains("'before.trcae'") && complaint.contains("and there is no such file"), "{complaint}");
}

#[test]
fn a_corrupt_text_is_shown_up_to_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = show(folder.path(), "good.trace", &["softmax", "--stage", "all"]);
    let claim = text.find("# === claim ===").unwrap();
    let line = claim + text[claim..].find(" = ").unwrap();
    std::fs::write(folder.path().join("bad.trace"), format!("{} = no_such_call({}", &text[..line], &text[line + 3..]))
        .unwrap();
    let (page, warning) = view_with_warning(folder.path(), &["bad.trace"]);
    let place = text[..line].lines().count();
    assert!(warning.contains(&format!("bad.trace: line {place}, column ")), "{warning}");
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    // The stages before the error are there.
    assert!(browser.text(".stage-name").starts_with("late_rewrite"), "{}", browser.text(".stage-name"));
    assert!(browser.text(".banner").contains("no_such_call"), "{}", browser.text(".banner"));
    browser.click(".banner a", "show");
    let shown = browser.text(".unread pre");
    assert!(shown.trim_end().lines().last().unwrap().contains("no_such_call"), "{shown}");
    assert!(browser.text(".unread [role=alert]").contains("no_such_call"));
    browser.check();
}
