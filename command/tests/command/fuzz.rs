//! `fuzz`.

use crate::{run, run_in};

#[test]
fn a_few_cases_pass_and_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["fuzz", "--seed", "5", "--cases", "6", "--dtypes", "f32", "--operators", "prims::add,prims::exp"];
    let text = run_in(folder.path(), &arguments).ok();
    assert!(
        text.contains(" programs and ") && text.contains(" comparisons of ") && text.contains(", 0 failing"),
        "{text}"
    );
    // Nothing is left of what went well.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let again = run_in(folder.path(), &arguments).ok();
    let counts = |text: &str| text.split(" in ").next().unwrap().to_owned();
    assert_eq!(counts(&again), counts(&text));
}

/// No case is compiled and run in a microsecond: each is one that hangs, as far as the deadline knows.
#[test]
fn a_case_beyond_its_deadline_ends_the_search_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["fuzz", "--seed", "5", "--operators", "prims::add", "--deadline", "0.000001"];
    let complaint = run_in(folder.path(), &arguments).fails(1);
    let (_, named) = complaint.split_once("case ").unwrap();
    let (case, rest) = named.split_once(" takes longer than its deadline of 1µs").unwrap();
    assert!(rest.contains(&format!("fuzz --seed 5 --case {case} --operators prims::add")), "{complaint}");
    // The file that names the case of a process that ended is there too.
    let current = std::fs::read_to_string(folder.path().join("fuzz-current.txt")).unwrap();
    assert!(current.contains("--seed 5 --case "), "{current}");
}

#[test]
fn wrong_arguments_are_errors() {
    run(&["fuzz", "--operators", "no_such_operator"]).fails(1);
    run(&["fuzz", "--executors", "no_such_executor"]).fails(1);
    run(&["fuzz", "--dtypes", "f33"]).fails(2);
    run(&["fuzz", "--minutes=-1"]).fails(1);
    run(&["fuzz", "--deadline=-1"]).fails(1);
    let complaint = run(&["fuzz", "--device", "cuda:1"]).fails(1);
    assert!(complaint.contains("cuda:1") && complaint.contains("first device of a kind"), "{complaint}");
    for command in [&["fuzz"][..], &["ops", "run", "cases", "--out", "results"], &["train", "gpt2"]] {
        let complaint = run(&[command, &["--device", "cpu:2"]].concat()).fails(2);
        assert!(complaint.contains("'cpu:2' is not a device: there is one host"), "{complaint}");
    }
}
