//! The notebook of `examples/notebooks`: what it stores, and, where Jupyter and its Rust kernel are, that it runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/notebooks")
}

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    let notebook: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&notebook["nbformat"], &notebook["metadata"]["kernelspec"]["language"]), (&json!(4), &json!("rust")));
    notebook["cells"].as_array().unwrap().clone()
}

/// The lines of a cell, or of an output.
fn joined(lines: &Value) -> String {
    match lines {
        Value::Array(lines) => lines.iter().map(|line| line.as_str().unwrap()).collect(),
        other => other.as_str().unwrap_or("").to_owned(),
    }
}

/// Checks what the cells of the Liger notebook gave.
fn check(cells: &[Value]) {
    let (mut text, mut frames, mut figures) = (String::new(), 0, 0);
    for (i, cell) in cells.iter().enumerate().filter(|(_, cell)| cell["cell_type"] == "code") {
        for output in cell["outputs"].as_array().unwrap() {
            assert_ne!(output["output_type"], "error", "cell {i}: {output}");
            assert_ne!(output["name"], "stderr", "cell {i}: {output}");
            text += &joined(&output["text"]);
            text += &joined(&output["data"]["text/plain"]);
            let html = joined(&output["data"]["text/html"]);
            frames += html.matches("<iframe").count();
            figures += html.matches("<figure").count();
        }
    }
    for part in [
        "last forward trace:  {\"liger_host::rms_norm_forward\": 3, \"liger_host::rotate\": 1}",
        "last backward trace: {\"liger_host::rms_norm_backward\": 3, \"liger_host::rotate\": 1}",
        "\"liger::rms_norm\": 3",
        "f32[2, 3] on cpu, 24 bytes; from -4 to 3",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert_eq!((frames, figures), (3, 4), "explorers and arrays");
}

#[test]
fn the_stored_notebook_has_its_results() {
    let path = folder().join("liger.ipynb");
    let cells = read(&path);
    check(&cells);
    let text = std::fs::read_to_string(&path).unwrap();
    for private in ["/home/", "/root/", "/work/", "/tmp/"] {
        assert!(!text.contains(private), "{private} in the notebook");
    }
    assert!(text.len() < 4 << 20, "{} bytes", text.len());
}

/// Where a program is in the `PATH`.
fn found(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[test]
fn the_notebook_runs() {
    let (Some(jupyter), Some(kernel)) = (found("jupyter"), found("evcxr_jupyter")) else {
        eprintln!("skipped: jupyter and evcxr_jupyter are not both in the PATH");
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let spec = temporary.path().join("kernels/rust");
    std::fs::create_dir_all(&spec).unwrap();
    let arguments = json!([kernel, "--control_file", "{connection_file}"]);
    let spec_text = json!({"argv": arguments, "display_name": "Rust", "language": "rust", "interrupt_mode": "message"});
    std::fs::write(spec.join("kernel.json"), spec_text.to_string()).unwrap();
    // The kernel builds here, with the versions of the repository. A folder of one's own keeps the build.
    let kept = std::env::var_os("EVCXR_TMPDIR").map(PathBuf::from);
    let build = kept.unwrap_or_else(|| temporary.path().join("build"));
    std::fs::create_dir_all(&build).unwrap();
    std::fs::copy(folder().join("../../Cargo.lock"), build.join("Cargo.lock")).unwrap();
    let ran = Command::new(jupyter)
        .args(["nbconvert", "--to", "notebook", "--execute", "--ExecutePreprocessor.timeout=-1"])
        .arg("--output-dir")
        .arg(temporary.path())
        .args(["--output", "executed.ipynb", "liger.ipynb"])
        .current_dir(folder())
        .env("JUPYTER_PATH", temporary.path())
        .env("EVCXR_TMPDIR", &build)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    check(&read(&temporary.path().join("executed.ipynb")));
}
