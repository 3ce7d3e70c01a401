//! The same program for another target: every value on the target's device.

use std::sync::Arc;

use crate::argument::{Arg, Attribute};
use crate::meta::{Device, Target};
use crate::operator::OperatorDef;
use crate::trace::{Block, Callee, Trace};

/// `trace` with every value on the first device of the target's kind. Attributes called `device` name it as well.
/// Nothing may be claimed yet.
pub fn retarget(trace: &Trace, target: &Target) -> Trace {
    retarget_to(trace, target, target.device())
}

/// As [`retarget`], with every value on `device`, which is one of the target's kind: a target names no device, since
/// the ranks of a mesh have one target and a device each.
pub fn retarget_to(trace: &Trace, target: &Target, device: Device) -> Trace {
    Trace { target: target.clone(), block: moved(&trace.block, device), ..trace.clone() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::parse;

    const TEXT: &str = "\
# fulgurite trace 2
trace f for cpu (x: f32[8], w: f32[8]) {
  norm: f32[8] = tt::norm(x, weight=w, eps=1e-5) {
    exp: f32[8] = tt::exp(input)
    identity: f32[8] = tt::identity(exp) {
      yield input
    }
    yield add: f32[8] = tt::add(identity, weight)
  }
  return norm
}
";

    fn devices(block: &Block) -> Vec<Device> {
        let own = block.values.iter().map(|value| value.meta.device());
        let inner = block.symbols.iter().filter_map(|symbol| symbol.body.as_deref()).flat_map(devices);
        own.chain(inner).collect()
    }

    #[test]
    fn every_value_is_on_the_device_that_is_asked_for() {
        let trace = parse(TEXT).unwrap();
        let target: Target = "cuda:sm_90a x data=2".parse().unwrap();
        for device in [Device::new("cuda", 0), Device::new("cuda", 1)] {
            let moved = retarget_to(&trace, &target, device);
            moved.verify().unwrap();
            assert_eq!(moved.target, target);
            let found = devices(&moved.block);
            assert!(found.len() >= 7 && found.iter().all(|one| *one == device), "{found:?} in\n{moved}");
        }
        assert_eq!(retarget(&trace, &target).to_string(), retarget_to(&trace, &target, target.device()).to_string());
    }
}
