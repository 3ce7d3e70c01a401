//! The command of a crate outside the workspace's own knows that crate's operators.

use std::path::Path;
use std::process::Command;

fn run(folder: &Path, arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_outside")).args(arguments).current_dir(folder).output().expect("it starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && err.is_empty(), "{arguments:?}: {out}{err}");
    out.into_owned()
}

#[test]
fn operators_of_this_crate_are_listed_shown_traced_and_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| run(folder.path(), arguments);
    let rows: serde_json::Value = serde_json::from_str(&run(&["ops", "list", "--json"])).expect("JSON");
    let names: Vec<&str> = rows.as_array().expect("a list").iter().filter_map(|row| row["name"].as_str()).collect();
    let own = names.iter().find(|name| name.rsplit("::").next() == Some("squareplus")).expect("it is linked");
    assert!(names.contains(&"softmax"));
    assert!(run(&["ops", "show", own]).contains("A smooth relu without exponentials"));
    let trace = run(&["trace", "show", own, "--backward", "--stage", "claim"]);
    assert!(trace.contains("by handmade"), "{trace}");
    std::fs::write(folder.path().join("own.trace"), run(&["trace", "show", own])).expect("written");
    assert!(run(&["trace", "run", "own.trace"]).contains(": f32["));
    run(&["ops", "samples", "--op", own, "--out", "cases"]);
    assert!(run(&["ops", "run", "cases", "--out", "results"]).contains(" ok, 0 failed"));
}
