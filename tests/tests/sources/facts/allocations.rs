//! Allocations whose size follows from a shape or from a file are errors where there is no memory: by
//! `kernels::scratch` or `try_reserve`. Every other one is listed here, with the reason why it is small.
//!
//! The test looks for `vec![element; length]`, `with_capacity`, `resize` and `repeat`. It sees no allocation by
//! `collect`, `to_vec` or `mapv`.

use std::path::Path;

use super::openings::{only_known, sources};

/// Where elements of tensors are held in memory of the host.
const FOLDERS: [&str; 5] = ["executors/cpu/src", "kernels/src", "models/src", "runtime/base/src", "runtime/run/src"];

const COUNT: &str = "as many as a tensor has dimensions, a call operands, a mesh ranks, or a program lines or values";
const FIXED: &str = "a number of the source, or one that the machine tells";
const SCRATCH: &str = "it has room already";
const TEXT: &str = "as long as a text or a list that is in memory";
const BATCH: &str = "the tokens of a batch, which are few beside its activations";
const TESTS: &str = "tests alone call it";

/// The files with allocations of their own: how many each has, and why.
const KNOWN: [(&str, usize, &str); 54] = [
    ("executors/cpu/src/moving.rs", 1, COUNT),
    ("kernels/src/access.rs", 1, COUNT),
    ("kernels/src/durable.rs", 1, FIXED),
    ("kernels/src/elementwise.rs", 2, COUNT),
    ("kernels/src/fused/layout.rs", 2, COUNT),
    ("kernels/src/fused/long_rows.rs", 1, COUNT),
    ("kernels/src/fused/recognition.rs", 1, COUNT),
    ("kernels/src/fused/schedule.rs", 7, COUNT),
    ("kernels/src/fused/values.rs", 1, COUNT),
    ("kernels/src/ranks/world.rs", 1, COUNT),
    ("kernels/src/scratch.rs", 1, SCRATCH),
    ("kernels/src/view.rs", 1, COUNT),
    ("kernels/src/windows.rs", 1, COUNT),
    ("models/src/batches.rs", 4, BATCH),
    ("models/src/config.rs", 1, COUNT),
    ("models/src/decode.rs", 2, BATCH),
    ("models/src/decoder/registry.rs", 1, FIXED),
    ("models/src/initialize.rs", 1, TESTS),
    ("models/src/llmc/shard.rs", 1, TEXT),
    ("models/src/llmc/stream.rs", 1, FIXED),
    ("models/src/llmc/tokenizer.rs", 1, TEXT),
    ("models/src/next_tokens.rs", 1, BATCH),
    ("models/src/tensor_file.rs", 2, COUNT),
    ("models/src/tensor_parallel.rs", 1, COUNT),
    ("models/src/tokenizer_vocabulary.rs", 1, TEXT),
    ("models/src/tokens.rs", 1, COUNT),
    ("models/src/torch/archive.rs", 1, FIXED),
    ("models/src/torch/read.rs", 1, COUNT),
    ("models/src/torch/write.rs", 1, COUNT),
    ("runtime/base/src/array.rs", 2, COUNT),
    ("runtime/base/src/array/values.rs", 1, COUNT),
    ("runtime/base/src/array/values.rs", 1, SCRATCH),
    ("runtime/base/src/device/code.rs", 3, COUNT),
    ("runtime/base/src/device/faults.rs", 1, FIXED),
    ("runtime/base/src/device/timeline.rs", 1, TEXT),
    ("runtime/run/src/choices/clock.rs", 1, FIXED),
    ("runtime/run/src/choices/measure.rs", 3, COUNT),
    ("runtime/run/src/choices/program.rs", 1, COUNT),
    ("runtime/run/src/choices/program.rs", 1, FIXED),
    ("runtime/run/src/choices/rounds.rs", 2, COUNT),
    ("runtime/run/src/jit.rs", 1, COUNT),
    ("runtime/run/src/jit/bound.rs", 1, COUNT),
    ("runtime/run/src/jit/vjp.rs", 1, COUNT),
    ("runtime/run/src/program/device.rs", 4, COUNT),
    ("runtime/run/src/program/device/bound.rs", 1, COUNT),
    ("runtime/run/src/program/device/checked.rs", 2, COUNT),
    ("runtime/run/src/program/device/checked.rs", 3, SCRATCH),
    ("runtime/run/src/program/device/steps.rs", 2, COUNT),
    ("runtime/run/src/program/device/timed.rs", 1, COUNT),
    ("runtime/run/src/program/host.rs", 3, COUNT),
    ("runtime/run/src/program/host/checked.rs", 4, COUNT),
    ("runtime/run/src/program/host/gaps.rs", 1, COUNT),
    ("runtime/run/src/program/placement.rs", 6, COUNT),
    ("runtime/run/src/program/profile.rs", 1, TEXT),
];

/// How often a line allocates without an error: `vec![element; length]`, room, longer vectors, repetitions.
fn allocations(line: &str) -> usize {
    let filled = line.split("vec![").skip(1).filter(|rest| rest.split(']').next().is_some_and(|own| own.contains(';')));
    filled.count()
        + ["with_capacity(", ".resize(", ".repeat("].map(|word| line.matches(word).count()).iter().sum::<usize>()
}

#[test]
fn every_allocation_without_an_error_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| sources(&root.join(folder), &mut files));
    assert!(files.len() > 200, "{}", files.len());
    let instead = "ask for it by kernels::scratch if its size follows from a shape or a file";
    only_known(root, &files, &KNOWN, allocations, ["allocations", instead]);
}

#[test]
fn an_allocation_is_found() {
    assert_eq!(allocations("let (a, b) = (vec![0; rows], vec![1.0f32; rows * columns]);"), 2);
    assert_eq!(allocations("let list = Vec::with_capacity(rows); list.resize(rows, 0);"), 2);
    assert_eq!(allocations("let list = vec![a, b]; scratch::zeroed::<f32>(rows); list.try_reserve(rows)?;"), 0);
}
