//! Devices: values are on the devices of the target's mesh, and nothing in a program copies between devices.

use rustc_hash::FxHashSet;

use super::super::print::print_input;
use super::super::{Block, BoundSymbol, Trace, ValueId};
use super::verifier::Verifier;
use crate::error::{Error, Failure, Result};
use crate::mesh::Mesh;
use crate::meta::Device;

/// A value that is not where the program runs.
pub struct Elsewhere<'a> {
    trace: &'a Trace,
    block: &'a Block,
    /// The line that gives it, or the number of the input.
    from: Result<&'a BoundSymbol, usize>,
    value: ValueId,
    /// The first device that the program runs on.
    first: Device,
    mesh: &'a Mesh,
}

impl Elsewhere<'_> {
    fn message(&self) -> String {
        let value = self.block.value(self.value);
        let expected = match self.mesh.len() {
            1 => self.first.to_string(),
            count => format!("one of {count} devices from {} on", self.first),
        };
        let what = if self.from.is_ok() { "create" } else { "pass" };
        format!(
            "'{}' is on {}, the program runs on {expected}; nothing in a program copies between devices, so {what} it \
             on {expected}",
            value.name,
            value.meta.device()
        )
    }

    /// As an error of the author's call or argument.
    pub fn error(&self) -> Error {
        match self.from {
            Ok(symbol) => symbol.failed(self.block, Failure::new("Device", self.message())),
            Err(_) => {
                Error::Argument { argument: self.block.value(self.value).name.to_string(), message: self.message() }
            }
        }
    }
}

/// Checks that all values of a trace and of its bodies are on devices of the target's mesh, which is one device today.
pub fn on_the_mesh(trace: &Trace) -> Result<(), Elsewhere<'_>> {
    on_devices(trace, trace.target.mesh())
}

/// Checks that all values are on devices of `mesh`. It begins with the device of the first value that is on one of the
/// target's kind: programs of a kind run on any device of it.
fn on_devices<'a>(trace: &'a Trace, mesh: &'a Mesh) -> Result<(), Elsewhere<'a>> {
    let home = trace.target.device();
    let ours = trace.block.values.iter().map(|value| value.meta.device()).find(|device| device.kind() == home.kind());
    let first = if home.is_cpu() { home } else { ours.unwrap_or(home) };
    let on = |device: Device| device.kind() == first.kind() && mesh.contains(first.index(), device.index());
    let elsewhere =
        |block: &Block, id: &ValueId| block.values.get(id.index()).is_some_and(|value| !on(value.meta.device()));
    let block = &trace.block;
    if let Some(i) = block.parameters.iter().position(|id| elsewhere(block, id)) {
        return Err(Elsewhere { trace, block, from: Err(i), value: block.parameters[i], first, mesh });
    }
    let mut seen: FxHashSet<*const Block> = FxHashSet::default();
    let mut blocks: Vec<&Block> = vec![block];
    while let Some(block) = blocks.pop() {
        for symbol in &block.symbols {
            if let Some(value) = symbol.results.iter().find(|id| elsewhere(block, id)) {
                return Err(Elsewhere { trace, block, from: Ok(symbol), value: *value, first, mesh });
            }
            blocks.extend(symbol.body.as_deref().filter(|body| seen.insert(std::ptr::from_ref(*body))));
        }
    }
    Ok(())
}

impl Verifier<'_> {
    pub(super) fn devices(&self) -> Result<()> {
        on_the_mesh(self.trace).map_err(|elsewhere| match elsewhere.from {
            Ok(symbol) => self.broken_by(elsewhere.block, symbol, elsewhere.message()),
            Err(input) => self.broken(print_input(elsewhere.trace, input), None, elsewhere.message()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parse;

    #[test]
    fn values_are_on_devices_of_the_mesh() {
        let text = |second: &str| {
            let text = format!(
                "# fulgurite trace 2\ntrace f for tt_device (x: f32[8]@tt_device:1, y: f32[8]@{second}) {{\n\
                 return x = x, y = y\n}}\n"
            );
            parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
        };
        let wrong = |second: &str, mesh: &Mesh| {
            let trace = text(second);
            on_devices(&trace, mesh).err().map(|elsewhere| elsewhere.message())
        };
        let (one, two) = (Mesh::one(), Mesh::grid([2]));
        assert_eq!(text("tt_device:1").target.mesh(), &one);
        assert_eq!(wrong("tt_device:1", &one), None);
        let message = wrong("tt_device:2", &one).unwrap();
        assert!(message.contains("'y' is on tt_device:2, the program runs on tt_device:1;"), "{message}");
        assert_eq!(wrong("tt_device:2", &two), None);
        for outside in ["tt_device:0", "tt_device:3", "cpu"] {
            let message = wrong(outside, &two).unwrap();
            assert!(message.contains("runs on one of 2 devices from tt_device:1 on"), "{message}");
        }
    }
}
