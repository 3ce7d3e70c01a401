//! Targets that programs can be compiled for.

use fulgurite::Target;
use fulgurite::device::find_kind;
use fulgurite::executor::executors;

/// Reads a target for the command line.
pub fn parse(text: &str) -> Result<Target, String> {
    let target = text.parse()?;
    check(&target)?;
    Ok(target)
}

/// Whether an executor runs on devices of this kind, and the architecture is the name of one.
pub fn check(target: &Target) -> Result<(), String> {
    let kind = target.kind();
    // Those that run on any device run on none alone: what they give is of another executor's making.
    let mut kinds: Vec<&str> =
        executors().iter().map(|executor| executor.device).filter(|kind| *kind != "any").collect();
    kinds.sort_unstable();
    kinds.dedup();
    if !kinds.contains(&kind) {
        return Err(format!("no executor runs on '{kind}'; there are {}", kinds.join(", ")));
    }
    match (kind, target.architecture()) {
        ("cpu", Some(architecture)) => Err(format!("'cpu' has no architectures, got '{architecture}'")),
        (kind, Some(architecture)) => {
            find_kind(kind).map_err(|error| error.to_string())?.check_architecture(architecture)
        }
        _ => Ok(()),
    }
}
