//! `report.html` of a run, as people watch it in a browser, and the chart of a terminal.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::browser::Browser;
use crate::run_in;

/// Trains a model so small that a step takes milliseconds.
const SMALL: [&str; 13] = [
    "train",
    "gpt2",
    "--size",
    "nano",
    "--context",
    "16",
    "--batch",
    "2",
    "--out",
    "run",
    "--sample-tokens",
    "8",
    "--evaluate-batches=1",
];

fn train(folder: &Path, more: &[&str]) -> String {
    let ran = run_in(folder, &[&SMALL[..], more].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out
}

/// A run that goes on, ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_report_has_curves_samples_and_settings() {
    let folder = tempfile::tempdir().unwrap();
    let often = ["--evaluate-every", "2", "--sample-every", "3", "--peak-tflops", "0.1"];
    let script = "<script>window.ran = true</script><img onerror='window.ran = true' src='x'>";
    let told = train(folder.path(), &[&["--steps", "8", "--prompt", script][..], &often].concat());
    assert!(told.contains("step 3: sample:\n<script>") && told.contains("report: run/report.html"), "{told}");
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&folder.path().join("run/report.html"));
    let headings = browser.eval("[...document.querySelectorAll('.chart h2')].map((of) => of.textContent).join()");
    assert_eq!(
        headings,
        "Loss,Learning rate,Gradient norm,Tokens a second,Model FLOPs utilization, %,Peak of memory, MiB"
    );
    // Text is shown, and not run.
    assert!(browser.text("#samples pre").starts_with(script), "{}", browser.text("#samples pre"));
    assert_eq!(browser.eval("[window.ran === undefined, document.images.length]"), serde_json::json!([true, 0]));
    assert_eq!(browser.eval("document.querySelectorAll('#samples details').length"), 3, "after steps 3, 6 and 8");
    assert!(browser.text(".state").contains("8 steps"), "{}", browser.text(".state"));
    // Values by keys: validation after steps 2, 4, 6 and 8, a loss after each step.
    browser.eval("document.querySelector('.plot').focus()");
    let words = "document.querySelector('.plot').getAttribute('aria-valuetext')";
    for (key, step) in
        [("Home", "step 1: "), ("ArrowRight", "step 2: "), ("End", "step 8: "), ("ArrowLeft", "step 7: ")]
    {
        browser.press(key);
        let words = browser.eval(words);
        assert!(words.as_str().unwrap().starts_with(step), "{key}: {words}");
        assert!(words.as_str().unwrap().contains("validation "), "{key}: {words}");
    }
    assert_eq!(browser.text(".chart output"), browser.eval(words).as_str().unwrap());
    // The table and the settings.
    browser.click("#table summary", "");
    assert_eq!(browser.eval("document.querySelectorAll('#table tbody tr').length"), 8);
    browser.click("#settings summary", "");
    let settings = browser.text("#settings");
    assert!(settings.contains("peak learning rate\t0.001") && settings.contains("tinyshakespeare"), "{settings}");
    for (width, height) in [(360, 800), (320, 256)] {
        browser.resize(width, height);
        let wide = browser.eval("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, 0, "at {width} pixels");
    }
    browser.check();
}

#[test]
fn a_resumed_run_goes_on_with_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let page = || std::fs::read_to_string(folder.path().join("run/report.html")).unwrap();
    train(folder.path(), &["--steps", "4", "--evaluate-every", "2"]);
    train(folder.path(), &["--steps", "6", "--evaluate-every", "2", "--resume"]);
    let events = std::fs::read_to_string(folder.path().join("run/events.jsonl")).unwrap();
    assert_eq!(events.matches("\"validation\"").count(), 3, "{events}");
    assert!(page().contains("resumed at step 4") && page().contains(": 6 steps<"), "{}", page());
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&folder.path().join("run/report.html"));
    let points = "JSON.parse(document.querySelector('.chart script').textContent).curves.map((of) => of[1].length / 2)";
    assert_eq!(browser.eval(points), serde_json::json!([6, 3]));
    // A run anew begins a report anew.
    train(folder.path(), &["--steps", "2", "--overwrite"]);
    browser.open(&folder.path().join("run/report.html"));
    assert_eq!(browser.eval(points), serde_json::json!([2, 1]));
    browser.check();
}

/// The page is read again by itself as long as the run goes on, and not after its end.
#[test]
fn a_report_grows_while_its_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_fulgurite"))
        .args(SMALL)
        .args(["--steps", "1000000", "--save-every", "0"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = Running(child);
    let page = folder.path().join("run/report.html");
    while !page.exists() {
        assert!(child.0.try_wait().unwrap().is_none(), "the run ended");
        std::thread::sleep(Duration::from_millis(50));
    }
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&page);
    let done = |browser: &mut Browser| -> u64 {
        let state = browser.text(".state");
        let (_, step) = state.split_once("step ").unwrap_or_else(|| panic!("{state}"));
        step.split(' ').next().unwrap().parse().unwrap()
    };
    let first = done(&mut browser);
    while browser.reloaded() && done(&mut browser) == first {}
    assert!(done(&mut browser) > first);
    // A reader stops it.
    browser.click(".reload button", "stop reloading");
    assert_eq!(browser.text(".reload button"), "go on reloading");
    browser.open(&page);
    assert_eq!(browser.text(".reload button"), "go on reloading", "the choice is kept");
    drop(child);
    browser.check();
}

#[test]
fn the_loss_is_shown_in_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    train(folder.path(), &["--steps", "5"]);
    let variables = [("LC_ALL", "C"), ("LANG", "C")];
    let ran = crate::run_with(folder.path(), &["plot", "run", "--terminal"], &variables);
    let text = ran.ok();
    assert!(text.starts_with("loss: first ") && text.contains('*') && text.is_ascii(), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let ran = crate::run_with(folder.path(), &["plot", "run", "run", "--terminal"], &[("LC_ALL", "C.UTF-8")]);
    let text = ran.ok();
    assert_eq!(text.matches("run: loss: first ").count(), 2);
    assert!(text.contains('\u{2502}') && !text.contains('*'), "{text}");
    let complaint = run_in(folder.path(), &["plot", "run", "--terminal", "--out", "x.svg"]).fails(2);
    assert!(complaint.contains("--out"), "{complaint}");
}
