//! What fails the build: checks made while constants are evaluated.

use crate::operator::ParamDef;

/// Fails the build if `rule` does not take every one of `params`.
pub const fn takes_all(rule: &str, params: &[ParamDef], taken: &[&str]) {
    let mut i = 0;
    while i < params.len() {
        let (mut found, mut j) = (false, 0);
        while j < taken.len() {
            found |= equal(params[i].name, taken[j]);
            j += 1;
        }
        if !found {
            let mut text = Text { bytes: [0; 512], len: 0 };
            text = text.with("`").with(rule).with("` leaves out `").with(params[i].name);
            text = text.with("`: it takes every argument, so that none falls back to a default unseen; write `_");
            text = text.with(params[i].name).with(": ...` if it does not use it");
            panic!("{}", text.as_str());
        }
        i += 1;
    }
}

/// Fails the build if no kernel of the kind that `rule` describes is ever run by `executor`, which runs on `device`.
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
