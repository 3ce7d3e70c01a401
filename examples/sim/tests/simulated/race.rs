//! A race made on purpose is caught: where a stream does not wait for an event, the delays of the device make generated
//! tests fail.

use fulgurite::testing::directives::Template;
use fulgurite::testing::{Filter, Settings, generated_tests};
use fulgurite_example_sim::stream::LOST_WAITS;

/// How many tests of operators whose programs use several streams fail, of how many.
fn failures() -> (usize, usize) {
    let operators = ["cross_entropy", "gelu", "layer_norm", "log_softmax"].map(str::to_owned).to_vec();
    let templates = vec![Template::Consistency, Template::Determinism, Template::RoundTrip];
    let tests = generated_tests(&Filter { operators, templates, ..Filter::device("sim") }, &Settings::default());
    (tests.iter().filter(|test| (test.run)().is_err()).count(), tests.len())
}

/// The events of a process are lost or not as its environment says when it begins: the race is in one of its own.
#[test]
fn a_lost_wait_fails_generated_tests() {
    let (failed, all) = failures();
    if std::env::var_os(LOST_WAITS).is_some() {
        assert!(failed > 0, "all {all} tests pass without the waits");
        return;
    }
    assert!(failed == 0 && all > 20, "{failed} of {all} tests fail with all waits");
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output =
        command.args(["race::a_lost_wait_fails_generated_tests", "--exact"]).env(LOST_WAITS, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
