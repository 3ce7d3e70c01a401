//! `doctor`.

use crate::{json, run};

#[test]
fn it_says_what_there_is() {
    let text = run(&["doctor"]).ok();
    for part in
        ["fulgurite ", "memory", "device       cpu: 1, usable", "NVRTC", "NCCL", "executor     reference on cpu"]
    {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let report = json(&run(&["doctor", "--json"]).ok());
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["threads"].as_u64() > Some(0));
    assert!(report["operators"]["prims"].as_u64() > Some(0));
    for library in report["libraries"].as_array().unwrap() {
        // What is missing says why.
        assert!(library["path"].is_string() != library["reason"].is_string(), "{library}");
    }
    for device in report["devices"].as_array().unwrap() {
        assert!(device["usable"] == true || device["reason"].is_string(), "{device}");
    }
}
