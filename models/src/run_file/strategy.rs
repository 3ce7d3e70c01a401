//! How the file's devices divide the work: names of ours, and Lightning's strategies with their arguments.

use super::fields::{Fault, Fields};
use super::yaml::{Node, Value};
use crate::train::{StateDict, Strategy};

const EXPECTED: &str = "expected ddp, zero2, zero3, fsdp, tensor_parallel, sequence_parallel, or the class_path \
                        DDPStrategy or FSDPStrategy";

/// Lightning's names: `fsdp` is FSDP with its default sharding.
enum Named {
    Ddp,
    Fsdp,
    Ours(Strategy),
}

fn named(name: &str) -> Result<Named, String> {
    match name.rsplit('.').next() {
        Some("ddp" | "DDPStrategy") => Ok(Named::Ddp),
        Some("fsdp" | "FSDPStrategy") => Ok(Named::Fsdp),
        _ => name.parse().map(Named::Ours).map_err(|_| EXPECTED.to_owned()),
    }
}

/// The sharding of FSDP by PyTorch's names.
fn sharding(name: &str) -> Result<Strategy, String> {
    match name {
        "FULL_SHARD" => Ok(Strategy::Zero3),
        "SHARD_GRAD_OP" => Ok(Strategy::Zero2),
        "NO_SHARD" => Ok(Strategy::Ddp),
        _ => Err("expected FULL_SHARD (zero3), SHARD_GRAD_OP (zero2) or NO_SHARD (ddp)".into()),
    }
}

/// The strategy of a name, or of a class with its arguments, and what it says of checkpoints; `auto` says nothing.
pub fn read(node: &Node) -> Result<Option<(Strategy, Option<StateDict>)>, Fault> {
    if let Value::Scalar(name) = &node.value {
        return match &**name {
            "auto" => Ok(None),
            name => match named(name).map_err(|message| (node.line, format!("strategy is '{name}': {message}")))? {
                Named::Ddp => Ok(Some((Strategy::Ddp, None))),
                Named::Fsdp => Ok(Some((Strategy::Zero3, None))),
                Named::Ours(strategy) => Ok(Some((strategy, None))),
            },
        };
    }
    let class = Fields::of(node, "strategy")?;
    let found = class.one_of("class_path", named)?;
    let found = found.ok_or_else(|| (node.line, format!("strategy has no class_path, {EXPECTED}")))?;
    let arguments = class.map("init_args")?;
    let mut state_dict = None;
    let strategy = match found {
        Named::Ours(strategy) => strategy,
        Named::Ddp => Strategy::Ddp,
        Named::Fsdp => {
            let given =
                arguments.as_ref().map(|arguments| arguments.one_of("sharding_strategy", sharding)).transpose()?;
            if let Some(arguments) = &arguments {
                state_dict = arguments.one_of("state_dict_type", str::parse)?;
            }
            given.flatten().unwrap_or(Strategy::Zero3)
        }
    };
    if let Some(arguments) = arguments {
        arguments.end()?;
    }
    class.end()?;
    Ok(Some((strategy, state_dict)))
}
