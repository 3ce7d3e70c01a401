//! A command without models: no name is one of theirs, and there are no options of them. As `model_programs`.

use clap::Args;
use fulgurite::DType;
use fulgurite::trace::Trace;

use super::outcome::Failed;
use super::part::Part;

/// Families of models: none.
#[derive(Debug, Clone, Copy)]
pub enum Family {}

/// The names of models' parts.
pub const PARTS: [(&str, Family, Part); 0] = [];

/// Which program of a model.
#[derive(Args, Clone, Debug)]
pub struct Options {}

impl Options {
    pub fn take(&mut self, _: Options, _: &dyn Fn(&str) -> bool) {}

    pub fn in_words(&self) -> Vec<String> {
        Vec::new()
    }

    pub fn sets_fields(&self) -> bool {
        false
    }

    pub fn trace(&self, family: Family, _: Part, _: Option<DType>, _: Option<DType>) -> Result<Trace, Failed> {
        match family {}
    }
}
