//! What fails the build: checks made while constants are evaluated. They are `#[track_caller]`, so that the compiler
//! points at the author's line alone, not at this file and the library's `panic!` besides.

use crate::operator::ParamDef;

/// Fails the build if `rule` does not take every one of `params`. One that it does not use is written between the texts
/// of `unused`.
#[track_caller]
pub const fn takes_all(rule: &str, params: &[ParamDef], taken: &[&str], unused: [&str; 2]) {
    let mut i = 0;
    while i < params.len() {
        let name = params[i].name;
        if !contains(taken, name) {
            let mut text = Text { bytes: [0; 512], len: 0 };
            text = text.with("`").with(rule).with("` leaves out `").with(name);
            text = text.with("`: it takes every argument, so that none falls back to a default unseen; write `");
            text = text.with(unused[0]).with(name).with(unused[1]).with("` if it does not use it");
            panic!("{}", text.as_str());
        }
        i += 1;
    }
}

/// Fails the build if an argument is taken by its `name` as well as in the struct of all of them.
#[track_caller]
pub const fn in_one_form(rule: &str, params: &[ParamDef], name: &str) {
    let mut i = 0;
    while i < params.len() {
        if equal(params[i].name, name) {
            let text = Text { bytes: [0; 512], len: 0 };
            let text =
                text.with("`").with(rule).with("` takes `").with(name).with("` in `Args` already: read that field, ");
            panic!("{}", text.with("or take every argument by name").as_str());
        }
        i += 1;
    }
}

/// Fails the build if the kernel `rule` does not take every one of the operator's `results`.
#[track_caller]
pub const fn writes_all(rule: &str, results: &[&str], taken: &[&str]) {
    let mut i = 0;
    while i < results.len() {
        if !contains(taken, results[i]) {
            let mut text = Text { bytes: [0; 512], len: 0 };
            text = text.with("`").with(rule).with("` leaves out the result `").with(results[i]);
            text = text.with("`: a kernel writes every result");
            panic!("{}", text.as_str());
        }
        i += 1;
    }
}

/// Fails the build if the names of a pullback's cotangents are not `d_` and those of `results` in order. A pullback may
/// also take all of them as one value.
#[track_caller]
pub const fn cotangents(results: &[&str], names: &[&str]) {
    let mut i = 0;
    while names.len() == results.len() && i < results.len() {
        if !is_cotangent_of(names[i], results[i]) {
            let mut text = Text { bytes: [0; 512], len: 0 };
            text = text.with("the cotangent of the result `").with(results[i]).with("` is called `d_").with(results[i]);
            text = text.with("`, not `").with(names[i]).with("`");
            panic!("{}", text.as_str());
        }
        i += 1;
    }
}

/// Whether `name` is `d_` and `result`, or that with an underscore before it.
const fn is_cotangent_of(name: &str, result: &str) -> bool {
    let (name, result) = (name.as_bytes(), result.as_bytes());
    let start = if !name.is_empty() && name[0] == b'_' { 1 } else { 0 };
    let mut same = name.len() == start + 2 + result.len() && name[start] == b'd' && name[start + 1] == b'_';
    let mut i = 0;
    while same && i < result.len() {
        same = name[start + 2 + i] == result[i];
        i += 1;
    }
    same
}

const fn contains(names: &[&str], name: &str) -> bool {
    let mut i = 0;
    while i < names.len() {
        if equal(names[i], name) {
            return true;
        }
        i += 1;
    }
    false
}

/// Fails the build if no kernel of the kind that `rule` describes is ever run by `executor`, which runs on `device`.
#[track_caller]
pub const fn runs_on(rule: &str, executor: &str, device: &str) {
    let needed = if equal(device, "cpu") { "cpu" } else { "plan" };
    if !equal(rule, needed) {
        let mut text = Text { bytes: [0; 512], len: 0 };
        text = text.with("`").with(rule).with("` is never run: executor `").with(executor).with("` runs on ");
        text = text.with(device).with(", where the kernel is the rule `").with(needed);
        text = text.with("`; kernels for host and GPU are two executors, each with its own implementation");
        panic!("{}", text.as_str());
    }
}

const fn equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut same = a.len() == b.len();
    let mut i = 0;
    while same && i < a.len() {
        same = a[i] == b[i];
        i += 1;
    }
    same
}

/// A message made while constants are evaluated.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    const fn with(mut self, more: &str) -> Text {
        let more = more.as_bytes();
        let mut i = 0;
        while i < more.len() && self.len < self.bytes.len() {
            self.bytes[self.len] = more[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "a rule leaves out an argument",
        }
    }
}
