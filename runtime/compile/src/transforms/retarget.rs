//! The same program for another target: every value on the target's device.

use std::sync::Arc;

use crate::argument::{Arg, Attribute};
use crate::meta::{Device, Target};
use crate::operator::OperatorDef;
use crate::trace::{Block, Callee, Trace};

/// `trace` with every value on the device of `target`. Attributes called `device` name it as well. Nothing may be
/// claimed yet.
pub fn retarget(trace: &Trace, target: &Target) -> Trace {
    let block = moved(&trace.block, target.device());
    Trace { target: target.clone(), block, ..trace.clone() }
}

fn moved(block: &Block, device: Device) -> Block {
    let mut block = block.clone();
    for value in &mut block.values {
        value.meta = value.meta.with_device(device);
    }
    for symbol in &mut block.symbols {
        if let Callee::Operator(def) = symbol.callee {
            rename(def, &mut symbol.arguments, device);
        }
        symbol.body = symbol.body.as_ref().map(|body| Arc::new(moved(body, device)));
    }
    block
}

fn rename<V>(def: &OperatorDef, arguments: &mut [Arg<V>], device: Device) {
    let named = def.param("device").and_then(|i| arguments.get_mut(i));
    if let Some(Arg::Attribute(attribute @ Attribute::Text(_))) = named {
        *attribute = Attribute::Text(device.to_string().into());
    }
}
