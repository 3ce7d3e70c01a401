//! The command of a crate outside the workspace's own knows that crate's operators.

use std::path::Path;
use std::process::Command;

use fulgurite_example_outside::squareplus;

/// The executor of what is written.
#[fulgurite::executor(device = "cpu")]
pub mod plain {}

// What `ops new` writes for an operator of this crate.
#[deny(warnings)]
#[path = "written/squareplus_by_plain.rs"]
mod squareplus_by_plain_file;

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

/// The default list takes none of the values of a tuned parameter, and each can be named.
#[test]
fn values_of_tuned_parameters_are_executors_that_must_be_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| run(folder.path(), arguments);
    let rows: serde_json::Value = serde_json::from_str(&run(&["ops", "list", "--json"])).expect("JSON");
    let mut names = rows.as_array().expect("a list").iter().filter_map(|row| row["name"].as_str());
    let own = names.find(|name| name.rsplit("::").next() == Some("squareplus")).expect("it is linked");
    let claimed = |executors: &[&str]| {
        let show = ["trace", "show", own, "--target", "cuda:sm_90a", "--stage", "claim", "--plain"];
        run(&[&show[..], executors].concat())
    };
    let listed = claimed(&[]);
    assert!(listed.contains(" by handmade_cuda") && !listed.contains("forward_only"), "{listed}");
    let values = [128, 256, 512].iter().flat_map(|threads| [1, 4].map(|each| format!("THREADS_{threads}_EACH_{each}")));
    for value in values {
        // The first values are those of the executor itself.
        let name = match value.as_str() {
            "THREADS_256_EACH_1" => "forward_only".to_owned(),
            _ => format!("squareplus_by_forward_only_{value}"),
        };
        let named = claimed(&["--executors", &format!("{name},default")]);
        assert!(named.contains(&format!(" by {name}\n")), "{named}");
    }
}

/// What is built with this crate decides: a build of the whole workspace has models.
#[test]
fn help_and_messages_name_models_where_there_are_some() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| run(folder.path(), arguments);
    let models = run(&["--help"]).contains("Trains a model");
    for command in [&["--help"][..], &["trace", "show", "--help"], &["view", "--help"], &["profile", "--help"]] {
        assert_eq!(run(command).contains("gpt2"), models, "{command:?}");
    }
    let unknown = Command::new(env!("CARGO_BIN_EXE_outside")).args(["trace", "show", "gpt3"]).output();
    let unknown = unknown.expect("it starts");
    let message = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && message.contains("models: gpt2") == models, "{message}");
}

#[test]
fn a_function_of_this_crate_is_traced_like_a_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let acquired = run(folder.path(), &["trace", "show", "step"]);
    assert!(acquired.contains("trace step for cpu") && acquired.contains("state.0.first"), "{acquired}");
    assert!(acquired.contains("donated") && acquired.contains("optim.second"), "{acquired}");
    let claimed = run(folder.path(), &["trace", "show", "step", "--stage", "claim", "--plain"]);
    assert!(claimed.contains("by handmade"), "{claimed}");
    let device =
        run(folder.path(), &["trace", "show", "step", "--target", "cuda:sm_90a", "--stage", "fuse", "--plain"]);
    assert!(device.contains("for cuda:sm_90a") && device.contains("region"), "{device}");
    let wrong = Command::new(env!("CARGO_BIN_EXE_outside")).args(["trace", "show", "step", "--backward"]).output();
    let message = String::from_utf8_lossy(&wrong.expect("it starts").stderr).into_owned();
    assert!(message.contains("--backward") && message.contains("step is a function of outside"), "{message}");
    let unknown = Command::new(env!("CARGO_BIN_EXE_outside")).args(["trace", "show", "stepp"]).output();
    let message = String::from_utf8_lossy(&unknown.expect("it starts").stderr).into_owned();
    assert!(message.contains("functions: step"), "{message}");
}

#[test]
fn a_model_of_this_crate_is_trained() {
    use fulgurite::Array;
    use fulgurite::random::Random;
    use fulgurite_example_outside::training::{initial, step};

    let (step, mut state) = (step(), initial(7).expect("memory"));
    let x = Random::new(1).uniform([64, 2], -1.0, 1.0).expect("memory");
    let pairs = x.to_vec::<f32>().expect("f32");
    let products: Vec<f32> = pairs.chunks(2).map(|pair| pair[0] * pair[1]).collect();
    let y = Array::new([64, 1], &products).expect("it fits");
    let mut losses = Vec::new();
    for number in 1..=150 {
        let arguments = (state, x.clone(), y.clone(), Array::scalar(0.02), Array::scalar(number as f32));
        let (next, loss) = step.call(arguments).expect("a step");
        state = next;
        losses.push(loss.item().expect("a number"));
    }
    assert!(losses[149] < 0.1 * losses[0], "{losses:?}");
    assert_eq!(step.compiles(), 1);
}

#[test]
fn an_implementation_of_an_operator_of_this_crate_is_written_with_its_imports() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| run(folder.path(), arguments);
    run(&["ops", "new", "plain", "--executor"]);
    let rows: serde_json::Value = serde_json::from_str(&run(&["ops", "list", "--json"])).expect("JSON");
    let mut names = rows.as_array().expect("a list").iter().filter_map(|row| row["name"].as_str());
    let own = names.find(|name| name.rsplit("::").next() == Some("squareplus")).expect("it is linked");
    run(&["ops", "new", "squareplus_by_plain", "--implementation", "plain", "--of", own]);
    let written = std::fs::read_to_string(folder.path().join("squareplus_by_plain.rs")).expect("written");
    assert_eq!(written, include_str!("written/squareplus_by_plain.rs"));
}
