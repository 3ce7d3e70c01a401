//! Kernels that do what they must not. A fault puts the whole process's context out of use, so each runs in a process
//! of its own: this binary again, asked for one test.

use crate::fixture::device;
use fulgurite_cuda::{Arguments, DeviceAddress, DeviceMemory, LaunchShape};
use std::process::Command;

const CHILD: &str = "FULGURITE_TEST_CHILD";

#[test]
fn a_fault_is_an_error_that_is_fatal_and_nothing_hangs() {
    if device().is_none() {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::child", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("the fault was seen"), "{out}\n{err}");
}

/// What the process of the test above does; alone it does nothing.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let Some(device) = device() else { return };
    let source = "extern \"C\" __global__ void poke(int* at) { *at = 1; }";
    let function = device.function(source, "poke");
    let memory = DeviceMemory::new(&device.context, 1024).unwrap();
    let arguments = Arguments::new().pointer(DeviceAddress(0x10));
    // SAFETY: it is not safe. The process does nothing but look at the error.
    unsafe { function.launch(&device.stream, &LaunchShape::linear(1, 1), &arguments) }.unwrap();
    let error = device.stream.synchronize().unwrap_err();
    println!("{error}");
    assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS") && error.is_fatal());
    assert!(DeviceMemory::new(&device.context, 1024).unwrap_err().is_fatal());
    // Freeing fails now as well, and is told when asked for.
    drop(memory);
    assert!(device.context.check().unwrap_err().is_fatal());
    println!("the fault was seen");
    // Nothing can be given back any more.
    std::process::exit(0);
}
