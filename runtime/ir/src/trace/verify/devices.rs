//! Devices and ranks: the values of a program are on one device, nothing in it copies between devices, and its
//! collectives go along axes of the target's mesh.

use rustc_hash::FxHashSet;

use super::super::print::print_input;
use super::super::{Block, BoundSymbol, Trace, ValueId};
use super::verifier::Verifier;
use crate::argument::{Arg, Attribute};
use crate::error::{Error, Failure, Result};
use crate::mesh::{Axis, Mesh};
use crate::meta::Device;

/// What is not where the program runs.
pub struct Elsewhere<'a> {
    trace: &'a Trace,
    block: &'a Block,
    /// The line that it is of, or the number of the input.
    from: Result<&'a BoundSymbol, usize>,
    what: What,
}

enum What {
    /// A value on another device than the first one.
    Value(ValueId, Device),
    /// A collective along an axis that the mesh has not.
    Axis(String),
}

impl Elsewhere<'_> {
    fn message(&self) -> String {
        let (value, first) = match &self.what {
            What::Value(value, first) => (self.block.value(*value), first),
            What::Axis(message) => return message.clone(),
        };
        let make = if self.from.is_ok() { "create" } else { "pass" };
        format!(
            "'{}' is on {}, the program runs on {first}; nothing in a program copies between devices, so {make} it on \
             {first}",
            value.name,
            value.meta.device()
        )
    }

    /// As an error of the author's call or argument.
    pub fn error(&self) -> Error {
        let input = match (self.from, &self.what) {
            (Err(_), What::Value(value, _)) => self.block.value(*value).name.to_string(),
            (Err(input), What::Axis(_)) => input.to_string(),
            (Ok(symbol), What::Value(..)) => return symbol.failed(self.block, Failure::new("Device", self.message())),
            (Ok(symbol), What::Axis(_)) => return symbol.failed(self.block, Failure::new("Axis", self.message())),
        };
        Error::Argument { argument: input, message: self.message() }
    }
}

/// Checks that all values of a trace and of its bodies are on one device of the target's kind, and that each collective
/// goes along an axis of the target's mesh. The device is that of the first value on one of the kind: programs of a
/// kind run on any device of it.
pub fn on_the_mesh(trace: &Trace) -> Result<(), Elsewhere<'_>> {
    let home = trace.target.device();
    let ours = trace.block.values.iter().map(|value| value.meta.device()).find(|device| device.kind() == home.kind());
    let first = if home.is_cpu() { home } else { ours.unwrap_or(home) };
    let elsewhere =
        |block: &Block, id: &ValueId| block.values.get(id.index()).is_some_and(|value| value.meta.device() != first);
    let block = &trace.block;
    if let Some(i) = block.parameters.iter().position(|id| elsewhere(block, id)) {
        return Err(Elsewhere { trace, block, from: Err(i), what: What::Value(block.parameters[i], first) });
    }
    let mut seen: FxHashSet<*const Block> = FxHashSet::default();
    let mut blocks: Vec<&Block> = vec![block];
    while let Some(block) = blocks.pop() {
        for symbol in &block.symbols {
            let value = symbol.results.iter().find(|id| elsewhere(block, id)).map(|id| What::Value(*id, first));
            if let Some(what) = value.or_else(|| off_mesh(symbol, trace.target.mesh()).map(What::Axis)) {
                return Err(Elsewhere { trace, block, from: Ok(symbol), what });
            }
            blocks.extend(symbol.body.as_deref().filter(|body| seen.insert(std::ptr::from_ref(*body))));
        }
    }
    Ok(())
}

/// The axis along which a collective goes; `None` of all other lines.
pub fn axis_of(symbol: &BoundSymbol) -> Option<&str> {
    match symbol.arguments.get(symbol.operator()?.effects.axis?)? {
        Arg::Attribute(Attribute::Text(axis)) => Some(axis),
        _ => None,
    }
}

/// Why a collective does not go along an axis of `mesh`. One rank is along an axis of one, whatever its name.
fn off_mesh(symbol: &BoundSymbol, mesh: &Mesh) -> Option<String> {
    let text = axis_of(symbol)?;
    let axis: Axis = match text.parse() {
        Ok(axis) => axis,
        Err(message) => return Some(message),
    };
    let there = mesh.axis(axis.name()).is_some_and(|(_, own)| *own == axis);
    let alone = axis.extent() == 1 && mesh.axis(axis.name()).is_none();
    let of = if *mesh == Mesh::ONE { "one rank, without axes".to_owned() } else { format!("the mesh '{mesh}'") };
    (!there && !alone).then(|| format!("axis is '{axis}', the program is for {of}"))
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
    fn values_are_on_one_device() {
        let wrong = |second: &str| {
            let text = format!(
                "# fulgurite trace 2\ntrace f for tt_device x data=2 (x: f32[8]@tt_device:1, y: f32[8]@{second}) {{\n\
                 return x = x, y = y\n}}\n"
            );
            let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(trace.target.mesh().to_string(), "data=2");
            on_the_mesh(&trace).err().map(|elsewhere| elsewhere.message())
        };
        assert_eq!(wrong("tt_device:1"), None);
        for outside in ["tt_device:0", "tt_device:2", "cpu"] {
            let message = wrong(outside).unwrap();
            assert!(message.contains(&format!("'y' is on {outside}, the program runs on tt_device:1;")), "{message}");
        }
    }

    #[test]
    fn collectives_go_along_axes_of_the_mesh() {
        let wrong = |target: &str, axis: &str| {
            let text = format!(
                "# fulgurite trace 2\ntrace f for {target} (x: f32[8]) {{\n\
                 y: f32[8] = tt::reduce_along(x, axis=\"{axis}\")\nreturn y = y\n}}\n"
            );
            let trace = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            on_the_mesh(&trace).err().map(|elsewhere| elsewhere.message())
        };
        for (target, axis) in [("cpu", "data=1"), ("cpu x data=4", "data=4"), ("cpu x data=2 tensor=3", "tensor=3")] {
            assert_eq!(wrong(target, axis), None, "{target} {axis}");
        }
        let axes =
            [("cpu", "data=4"), ("cpu x data=4", "data=2"), ("cpu x data=4", "data=1"), ("cpu x data=4", "tensor=4")];
        for (target, axis) in axes {
            let message = wrong(target, axis).unwrap();
            assert!(message.contains(&format!("axis is '{axis}', the program is for ")), "{message}");
        }
        assert!(wrong("cpu x data=4", "data").unwrap().contains("is not an axis of a mesh"));
    }
}
