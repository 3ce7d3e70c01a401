//! Exchanges tensors with PyTorch on the host, where there is a Python with PyTorch: `FULGURITE_PYTHON`, or `python3`.

use std::path::{Path, PathBuf};
use std::process::Command;

// Has cargo build the library before this test.
use fulgurite_dlpack_test as _;

/// The library that cargo built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let name = format!("{}fulgurite_dlpack_test{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let folders = test.ancestors().skip(1).take(2).map(|folder| folder.join(&name));
    folders.into_iter().find(|path| path.exists()).expect("cargo builds the library with the test")
}

#[test]
fn tensors_are_exchanged_with_pytorch() {
    let python = std::env::var("FULGURITE_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_torch = Command::new(&python).args(["-c", "import torch"]).output();
    if !has_torch.is_ok_and(|output| output.status.success()) {
        let reason = format!("{python} has no PyTorch (FULGURITE_PYTHON names another Python)");
        assert!(std::env::var_os("FULGURITE_REQUIRE_PYTORCH").is_none(), "{reason}");
        println!("skipped: {reason}");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("exchange.py");
    let output = Command::new(&python).arg(script).arg(library()).output().expect("Python starts");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    println!("{out}");
}
