//! Types: element types, extents and devices, and what is said of a value where it is defined.

use fulgurite_kernels::DType;

use super::messages::{MAX_HINT, hint, quote};
use super::{MAX_KINDS, Parser, Typed};
use crate::error::Result;
use crate::meta::{Device, Dims, LARGEST_TENSOR, TensorMeta};

impl Parser<'_> {
    /// The first device of a kind.
    pub(super) fn kind_of_device(&mut self, kind: &str) -> Result<Device> {
        let known = self.devices.get(kind).copied();
        if known.is_none() && (kind.len() > MAX_HINT || self.devices.len() >= MAX_KINDS) {
            return self.fail(self.at, format!("{} is one kind of device too many, or too long", quote(kind)));
        }
        let known = known.unwrap_or_else(|| Device::new(kind, 0));
        self.devices.insert(kind.to_owned(), known);
        Ok(known)
    }

    fn device(&mut self) -> Result<Device> {
        let kind = self.peek_word();
        if kind.is_empty() || !kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return self.expected("a device like 'cuda:0'");
        }
        let known = self.kind_of_device(kind)?;
        self.at += kind.len();
        let index = if self.eat(':') { self.integer("the index of a device")? } else { 0 };
        Ok(if known.index() == index { known } else { Device::new(known.kind(), index) })
    }

    /// `f32[4, 5]`, `f32[4]@cuda:0`.
    pub(super) fn meta(&mut self) -> Result<TensorMeta> {
        let at = self.at;
        let word = self.peek_word();
        let Some(dtype) = DType::ALL.into_iter().find(|dtype| dtype.name() == word) else {
            let hint = hint(word, DType::ALL.into_iter().map(DType::name));
            let found = self.found();
            return self.fail(self.at, format!("expected a type like 'f32[4, 5]', found {found}{hint}"));
        };
        self.at += word.len();
        self.expect('[', "and extents after the dtype")?;
        let shape: Dims = self.list(']', |p| p.integer::<usize>("an extent"))?.into();
        let device = if self.eat('@') { self.device()? } else { self.home };
        let meta = TensorMeta::new(shape, dtype, device);
        // Rules multiply extents of what they are given.
        match meta.addressable() {
            Ok(()) => Ok(meta),
            Err(_) => self.fail(at, format!("{meta} is larger than any memory, {LARGEST_TENSOR} bytes")),
        }
    }

    /// `name: f32[4]`.
    pub(super) fn typed(&mut self) -> Result<Typed> {
        let (name, at) = self.name("a name")?;
        self.expect(':', "and a type after the name")?;
        let meta = self.meta()?;
        Ok(Typed { name, at, meta })
    }

    /// `a, b: f32[4], c: i64[4]` up to `end`: a type is that of all names before it that have none. Before a call, a
    /// list may have no types at all; then it is returned as names, and where they are.
    pub(super) fn typed_list(&mut self, end: char) -> Result<(Vec<Typed>, Vec<(String, usize)>)> {
        let outside = self.scope.clone();
        let mut named: Vec<(String, usize)> = Vec::new();
        let mut typed: Vec<Typed> = Vec::new();
        loop {
            // A comma may be behind the last parameter of a body, not behind the last result of a line.
            if end == ')' && named.is_empty() && self.eat(end) {
                break;
            }
            let previous = named.last().map(|(name, _)| &**name).or(typed.last().map(|typed| &*typed.name));
            let previous = previous.map(str::to_owned);
            self.follow_name(previous.as_deref(), &outside);
            let name = self.name("a name");
            self.scope = outside.clone();
            let (name, at) = name?;
            let counted = self.names_to(&name)?;
            named.push((name, at));
            named.extend(counted.into_iter().map(|name| (name, at)));
            if self.eat(':') {
                let meta = self.meta()?;
                typed.extend(named.drain(..).map(|(name, at)| Typed { name, at, meta: meta.clone() }));
                if self.eat(',') {
                    continue;
                }
                self.expect(end, if end == '=' { "and a call after the results" } else { "or ','" })?;
                break;
            }
            if end == '=' && typed.is_empty() && self.eat(end) {
                break;
            }
            self.expect(',', "or ':' and a type after the name")?;
        }
        Ok((typed, named))
    }
}
