//! The command of a crate that brings a kind of device: `ops new` writes declarations for it.

use std::path::Path;
use std::process::Command;

use fulgurite::executor::find_implementation;
use fulgurite_example_sim::sim;

// What `ops new` writes.
#[deny(warnings)]
#[path = "written/halves.rs"]
mod halves_file;
#[deny(warnings)]
#[path = "written/other.rs"]
mod other_file;
#[deny(warnings)]
#[path = "written/relu_by_sim.rs"]
mod relu_by_sim_file;

fn run(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).current_dir(folder).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && err.is_empty(), "{arguments:?}: {out}{err}");
    out.into_owned()
}

#[test]
fn declarations_for_this_kind_of_device_are_written_as_they_are_compiled_here() {
    let folder = tempfile::tempdir().unwrap();
    for (name, arguments, expected) in [
        ("other", &["--executor", "--device", "sim"][..], include_str!("written/other.rs")),
        ("halves", &["--symbol", "sim"], include_str!("written/halves.rs")),
        (
            "relu_by_sim",
            &["--implementation", "sim", "--of", "relu", "--device", "sim"],
            include_str!("written/relu_by_sim.rs"),
        ),
    ] {
        run(folder.path(), &[&["ops", "new", name], arguments].concat());
        assert_eq!(std::fs::read_to_string(folder.path().join(format!("{name}.rs"))).unwrap(), expected, "{name}");
    }
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    assert!(
        files.into_iter().all(|file| file.extension().is_some_and(|extension| extension == "rs")),
        "no kernel text"
    );
    // They are declarations for the device.
    assert_eq!(other_file::other::EXECUTOR.device, "sim");
    assert_eq!(halves_file::halves::OPERATOR.name, "sim::halves");
    assert!(find_implementation("relu", "sim").unwrap().kernel.plan.is_some());
}

/// `tests/declared/main.rs` compiles them.
#[test]
fn the_crate_of_a_kind_of_device_is_written_as_it_is_compiled_here() {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), &["ops", "new", "--device-kind", "npu"]);
    assert!(said.contains("cargo test --test suite, in npu"), "{said}");
    let written = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/written/npu");
    let files = [
        "src/code.rs",
        "src/error.rs",
        "src/executor.rs",
        "src/kernels.rs",
        "src/kind.rs",
        "src/lib.rs",
        "src/main.rs",
        "src/stream.rs",
        "tests/generated.rs",
        "tests/suite.rs",
    ];
    for file in files {
        let [found, expected] =
            [folder.path().join("npu"), written.clone()].map(|root| std::fs::read_to_string(root.join(file)).unwrap());
        assert_eq!(found, expected, "{file}");
    }
    let manifest = std::fs::read_to_string(folder.path().join("npu/Cargo.toml")).unwrap();
    for line in ["name = \"npu\"", "linkme = \"0.3\"", "thiserror = \"2\"", "name = \"suite\""] {
        assert!(manifest.contains(line), "{line}: {manifest}");
    }
}

#[test]
fn programs_are_profiled_and_measured_on_this_kind_of_device() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
        command.args(arguments).current_dir(folder.path()).env("FULGURITE_CACHE", folder.path().join("cache"));
        let output = command.output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {out}{err}");
        out.into_owned()
    };
    let text = run(&["profile", "softmax", "--backward", "--device", "sim", "--plot", "roof.svg", "--runs", "1"]);
    assert!(text.contains("GB/s (measured)") && text.contains("TFLOP/s (measured)"), "{text}");
    assert!(folder.path().join("roof.svg").exists());
}

/// With the text at the end, which one rank makes of the weights of all.
#[test]
fn ranks_on_devices_train_by_each_strategy() {
    let folder = tempfile::tempdir().unwrap();
    let model = ["train", "llama", "--size", "nano", "--set", "n_head=8", "--set", "n_query_groups=8"];
    let short = ["--context", "16", "--batch", "2", "--steps", "2", "--evaluate-every", "0", "--sample-tokens", "4"];
    for strategy in ["ddp", "zero2", "zero3", "tensor_parallel", "sequence_parallel"] {
        let ranks = ["--device", "sim", "--devices", "2", "--strategy", strategy, "--out", strategy];
        let said = run(folder.path(), &[&model[..], &short[..], &ranks[..]].concat());
        assert!(said.contains("step 2: loss ") && said.contains("sample:"), "{strategy}: {said}");
    }
}
