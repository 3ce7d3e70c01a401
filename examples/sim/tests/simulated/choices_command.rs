//! `tune` on the device: what it writes is followed where the device is, and where it is only a target.

use std::path::Path;
use std::process::Command;

fn run(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(arguments).current_dir(folder).env("FULGURITE_CACHE", folder.join("cache"));
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    out.into_owned()
}

#[test]
fn a_program_is_tuned_and_its_records_are_followed() {
    let home = tempfile::tempdir().unwrap();
    let tune = ["tune", "softmax", "--device", "sim", "--from", "0"];
    let text = run(home.path(), &[&tune[..], &["-o", "first.choices"]].concat());
    assert!(text.contains("softmax on sim:0: 1 call with candidates"), "{text}");
    assert!(text.contains("  * sim ") && text.contains("decomposed "), "{text}");
    let file = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
    assert!(file("first.choices").contains("\"target\":\"sim\""), "{}", file("first.choices"));
    // The records of the cache are followed: nothing is measured again.
    run(home.path(), &[&tune[..], &["-o", "second.choices"]].concat());
    assert_eq!(file("first.choices"), file("second.choices"));
    // Nothing was left in the journal, and measuring anew needs neither it nor the records.
    let files = std::fs::read_dir(home.path().join("cache/choices")).unwrap().map(|entry| entry.unwrap().path());
    let logs: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "log")).collect();
    assert!(logs.len() == 1 && std::fs::read_to_string(&logs[0]).unwrap().is_empty(), "{logs:?}");
    let text = run(home.path(), &[&tune[..], &["--again", "--no-confirm"]].concat());
    assert!(text.contains("1 call with candidates"), "{text}");
    // The file is read where programs are shown for the device.
    let show = ["trace", "show", "softmax", "--target", "sim", "--explain"];
    let said = run(home.path(), &[&show[..], &["--choices", "first.choices"]].concat());
    assert!(said.contains("choice of softmax(input: f32["), "{said}");
    assert!(!run(home.path(), &show).contains("choice of"));
    // Without the device, candidates are known all the same.
    let listed = run(home.path(), &["tune", "softmax", "--target", "sim", "--from", "0", "--list"]);
    assert!(listed.contains("\n    sim, decomposed"), "{listed}");
}
