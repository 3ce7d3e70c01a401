//! `ops golden`: PyTorch's results for samples, and what is said without PyTorch.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::run_in;

/// A program in place of Python.
fn program(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("python");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_python_without_torch_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let python = program(folder.path(), "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1");
    let arguments = ["ops", "golden", "--op", "gelu", "--python", python.to_str().unwrap()];
    let complaint = run_in(folder.path(), &arguments).fails(1);
    for part in ["has no package torch", "No module named 'torch'", "pip install torch", "FULGURITE_PYTHON"] {
        assert!(complaint.contains(part), "{part}: {complaint}");
    }
    let complaint = run_in(folder.path(), &["ops", "golden", "--op", "gelu", "--python", "/no/python"]).fails(1);
    assert!(complaint.contains("/no/python: ") && complaint.contains("--python or FULGURITE_PYTHON"), "{complaint}");
    assert!(!folder.path().join("golden").exists());
}

#[test]
fn the_operators_are_those_of_the_package() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"my_own\"\n").unwrap();
    let complaint = run_in(folder.path(), &["ops", "golden", "--python", "true"]).fails(1);
    assert!(complaint.contains("package my_own declares no operator") && complaint.contains("--op"), "{complaint}");
    // The script gets the samples of the operators of this package, and where to write.
    std::fs::write(folder.path().join("Cargo.toml"), "[package]\nname = \"fulgurite-ops\"\n").unwrap();
    let script = "[ \"$1\" = -c ] && exit 0; grep -c '\"id\"' \"$2/cases.json\"; \
                  grep -o 'prims::tanh/f32/0' \"$2/cases.json\" | head -n 1; test -s \"$(dirname \"$1\")/liger.py\" && echo \"$3 $4\"";
    let python = program(folder.path(), script);
    let arguments = ["ops", "golden", "--dtype", "f32", "--out", "own", "--python", python.to_str().unwrap()];
    let printed = run_in(folder.path(), &arguments).ok();
    let count: usize = printed.lines().next().unwrap().parse().unwrap();
    assert!(count > 300, "{printed}");
    let out = folder.path().canonicalize().unwrap().join("own");
    assert!(printed.contains("prims::tanh/f32/0\n"), "{printed}");
    assert!(
        printed.contains(&format!("--out {}", folder.path().join("own").display()))
            || printed.contains(&format!("--out {}", out.display())),
        "{printed}"
    );
}

#[test]
fn pytorch_computes_the_results() {
    let Some(python) = std::env::var_os("FULGURITE_PYTHON") else {
        eprintln!("skipped: FULGURITE_PYTHON names no Python with PyTorch");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["ops", "golden", "--op", "gelu", "--dtype", "f32", "--python", python.to_str().unwrap()];
    let printed = run_in(folder.path(), &arguments).ok();
    assert!(printed.contains(" cases, ") && printed.contains("operators.json"), "{printed}");
    let listing = std::fs::read_to_string(folder.path().join("golden/operators.json")).unwrap();
    assert!(listing.contains("\"gelu/f32/0\""), "{listing}");
    assert!(folder.path().join("golden/operators.safetensors.gz").exists());
}
