//! Types: element types, extents and devices, and what is said of a value where it is defined.

use fulgurite_kernels::DType;

use super::super::Storage;
use super::messages::{MAX_HINT, hint, quote};
use super::{MAX_KINDS, Parser, Typed};
use crate::error::Result;
use crate::meta::{Device, Dims, TensorMeta};

impl Parser<'_> {
    pub(super) fn device(&mut self) -> Result<Device> {
        let kind = self.peek_word();
        if kind.is_empty() || !kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return self.expected("a device like 'cuda:0'");
        }
        let known = self.devices.get(kind).copied();
        if known.is_none() && (kind.len() > MAX_HINT || self.devices.len() >= MAX_KINDS) {
            return self.fail(self.at, format!("{} is one kind of device too many, or too long", quote(kind)));
        }
        self.at += kind.len();
        let known = known.unwrap_or_else(|| Device::new(kind, 0));
        self.devices.insert(kind.to_owned(), known);
        let index = if self.eat(':') { self.integer("the index of a device")? } else { 0 };
        Ok(if known.index() == index { known } else { Device::new(known.kind(), index) })
    }

    /// `f32[4, 5]`, `f32[4]@cuda:0`.
    pub(super) fn meta(&mut self) -> Result<TensorMeta> {
        let word = self.peek_word();
        let Some(dtype) = DType::ALL.into_iter().find(|dtype| dtype.name() == word) else {
            let hint = hint(word, DType::ALL.into_iter().map(DType::name));
            let found = self.found();
            return self.fail(self.at, format!("expected a type like 'f32[4, 5]', found {found}{hint}"));
        };
        self.at += word.len();
        self.expect('[', "and extents after the dtype")?;
        let shape: Dims = self.list(']', |p| p.integer::<usize>("an extent"))?.into();
        let device = if self.eat('@') { self.device()? } else { Device::CPU };
        Ok(TensorMeta::new(shape, dtype, device))
    }

    /// `name: f32[4] at arena+64`.
    pub(super) fn typed(&mut self) -> Result<Typed> {
        let (name, at) = self.name("a name")?;
        self.expect(':', "and a type after the name")?;
        let meta = self.meta()?;
        let (mut storage, mut shared) = (None, None);
        if self.eat_word("at") {
            if self.eat_word("output") {
                storage = Some(Storage::Output);
            } else if self.eat_word("arena") {
                self.expect('+', "and an offset after 'arena'")?;
                storage = Some(Storage::Arena(self.integer("an offset in bytes")?));
            } else {
                return self.expected("'arena+' and an offset, or 'output'");
            }
        } else if self.eat_word("in") {
            shared = Some(self.name("a value")?);
        }
        Ok(Typed { name, at, meta, storage, shared })
    }
}
