//! What fails the build: checks made while constants are evaluated. They are `#[track_caller]`, so that the compiler
//! points at the author's line alone, not at this file and the library's `panic!` besides.

use crate::executor::ExecutorDef;
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

/// Fails the build if none of the `executors` runs on a device that the kernel `rule` is for.
#[track_caller]
pub const fn runs_on(rule: &str, executors: &[&ExecutorDef]) {
    let mut text = Text { bytes: [0; 512], len: 0 }.with("`").with(rule).with("` is never run: ");
    let mut i = 0;
    while i < executors.len() {
        let ExecutorDef { name, device, .. } = *executors[i];
        let needed = kernel_for(device);
        if equal(rule, needed) {
            return;
        }
        text = text.with(if i == 0 { "" } else { "; " }).with("executor `").with(name).with("` runs on ").with(device);
        text = text.with(", where the kernel is the rule `").with(needed).with("`");
        i += 1;
    }
    text = text.with("; name an executor of each kind of device, as in `[on_host, on_gpu]`");
    panic!("{}", text.as_str());
}

/// As [`runs_on`], of the executors of a symbol. Where two of them run on one kind of device, [`one_a_device`] says so,
/// and it is open which of them is meant for another.
#[track_caller]
pub const fn one_runs_on(rule: &str, executors: &[&ExecutorDef]) {
    if two_on_a_device(executors).is_none() {
        runs_on(rule, executors);
    }
}

/// Fails the build if none of the `kernels` is for the device of this executor.
#[track_caller]
pub const fn has_kernel(executor: &ExecutorDef, kernels: &[&str]) {
    let needed = kernel_for(executor.device);
    if !contains(kernels, needed) {
        let text = Text { bytes: [0; 512], len: 0 }.with("executor `").with(executor.name).with("` runs on ");
        let text = text.with(executor.device).with(", where the kernel is the rule `").with(needed);
        let text = text.with("`, which is missing: write `fn ").with(needed).with("(...)`, or leave out `");
        panic!("{}", text.with(executor.name).with("`").as_str());
    }
}

/// Fails the build if two of a symbol's executors run on one kind of device: one of them would never run it.
#[track_caller]
pub const fn one_a_device(executors: &[&ExecutorDef]) {
    if let Some((i, j)) = two_on_a_device(executors) {
        let text = Text { bytes: [0; 512], len: 0 }.with("executors `").with(executors[j].name);
        let text = text.with("` and `").with(executors[i].name).with("` both run on ");
        let text = text.with(executors[i].device);
        let text = text.with(": a kernel symbol has one executor on a kind of device; leave out `");
        panic!("{}", text.with(executors[i].name).with("`").as_str());
    }
}

/// The first executor that runs where one before it does, and that one.
const fn two_on_a_device(executors: &[&ExecutorDef]) -> Option<(usize, usize)> {
    let mut i = 0;
    while i < executors.len() {
        let mut j = 0;
        while j < i {
            if equal(executors[i].device, executors[j].device) {
                return Some((i, j));
            }
            j += 1;
        }
        i += 1;
    }
    None
}

/// The rule that is the kernel on devices of this kind.
const fn kernel_for(device: &str) -> &'static str {
    if equal(device, "cpu") { "cpu" } else { "plan" }
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
