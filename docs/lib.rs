//! The declarations of the README and of the book. `tests/generated.rs` runs the tests that they generate, so that what
//! a reader copies from a page is right: its kernels compile, its gradients agree, its snapshots are stored in
//! `snapshots/`.
//!
//! The blocks are documentation tests of `fulgurite` as well, which run their `main`.
#![allow(missing_docs, dead_code, clippy::all, reason = "the pages are written for readers")]

include!(concat!(env!("OUT_DIR"), "/book.rs"));
