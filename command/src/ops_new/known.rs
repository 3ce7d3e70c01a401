//! What a new declaration refers to: operators and kinds of devices that are linked, and executors that are linked or
//! declared beside it.

use std::path::{Path, PathBuf};

use fulgurite::device::find_kind;
use fulgurite::executor::find_executor;
use fulgurite::operator::OperatorDef;
use fulgurite::registry::find_operator;

use super::super::outcome::Failed;
use super::surroundings::folders_above;

/// The host, where kernels are functions.
pub(super) const HOST: &str = "cpu";
/// The kind whose kernels are texts in files of their own.
pub(super) const CUDA: &str = "cuda";

/// Said where a name is not known: the library's command does not link the crates of others.
const OTHERS: &str =
    "declarations of another crate are known to that crate's own command (`fulgurite_command::main()`)";

/// The operator of that name.
pub(super) fn operator(name: &str) -> Result<&'static OperatorDef, Failed> {
    find_operator(name).map_err(|error| Failed(format!("{error}; {OTHERS}")))
}

/// The kind of device of that name: the host, or one that is linked.
pub(super) fn kind(name: &str) -> Result<String, Failed> {
    if name != HOST {
        find_kind(name).map_err(|error| Failed(format!("{error}; {OTHERS}")))?;
    }
    Ok(name.to_owned())
}

/// The kind of device of the executor of that name, which is linked, or declared in a file of the crate that `path` is
/// in.
pub(super) fn device_of(name: &str, path: &Path) -> Result<String, Failed> {
    let unknown = match find_executor(name) {
        Ok(executor) if executor.device == "any" => {
            return Err(Failed(format!(
                "executor '{name}' stands for all kinds of devices, and has no kernels of one"
            )));
        }
        Ok(executor) => return Ok(executor.device.to_owned()),
        Err(error) => error,
    };
    let folders = folders_above(path);
    let root = folders.iter().find(|folder| folder.join("Cargo.toml").is_file());
    let sources = root.map(|root| root.join("src")).into_iter().chain(folders.first().cloned());
    let declared = sources.flat_map(|folder| rust_files(&folder)).find_map(|file| {
        let text = std::fs::read_to_string(file).ok()?;
        declared_device(&text, name)
    });
    declared.ok_or_else(|| Failed(format!("{unknown}; {OTHERS}")))
}

/// The Rust files below `folder`, which may be a crate's sources: two levels of modules.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    fn collect(folder: &Path, levels: usize, found: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            } else if levels > 0 && path.is_dir() {
                collect(&path, levels - 1, found);
            }
        }
    }
    let mut found = Vec::new();
    collect(folder, 2, &mut found);
    found
}

/// The kind of device of `#[executor(device = "...")] pub mod NAME`, if the text declares that.
fn declared_device(text: &str, name: &str) -> Option<String> {
    text.split("executor(").skip(1).find_map(|declaration| {
        let (settings, rest) = declaration.split_once(']')?;
        let module = rest.split("mod ").nth(1)?;
        let own = module.split(|next: char| !next.is_alphanumeric() && next != '_').next()?;
        let device = settings.split("device = \"").nth(1)?.split('"').next()?;
        (own == name).then(|| device.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::declared_device;

    #[test]
    fn executors_are_found_in_sources() {
        let text = "/// One.\n#[executor(device = \"cpu\", priority = 4)]\npub mod host {}\n\n\
                    #[fulgurite::executor(device = \"npu\")]\nmod fast {\n}\n";
        assert_eq!(declared_device(text, "host").as_deref(), Some("cpu"));
        assert_eq!(declared_device(text, "fast").as_deref(), Some("npu"));
        assert_eq!(declared_device(text, "nobody"), None);
    }
}
