//! What a run leaves to be read: the traces of its step, and where its time went.

use std::path::Path;

use fulgurite_runtime::compile::Stage;
use fulgurite_runtime::device::DeviceState;
use fulgurite_runtime::program::{Ceilings, Profile};
use fulgurite_runtime::{Error, Result};

use super::log::peak_flops;
use super::options::TrainOptions;
use crate::metrics::bandwidth;

/// Writes every stage of a compiled function as text.
pub fn write_stages(folder: &Path, stages: &[Stage]) -> Result<()> {
    let failed = |path: &Path, error: std::io::Error| Error::File {
        path: path.display().to_string(),
        message: error.to_string(),
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (i, stage) in stages.iter().enumerate() {
        let path = folder.join(format!("{i:02}_{}.trace", stage.name));
        crate::durable::write(&path, stage.trace.to_string().as_bytes()).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// What the device of a run does at most: the host's memory is measured, other devices are looked up.
pub(super) fn ceilings(options: &TrainOptions) -> Result<Ceilings> {
    let bytes_per_second = match options.device().is_cpu() {
        true => Some(bandwidth::of_host()),
        false => bandwidth::of_device(&DeviceState::of(options.device())?.context().properties().model),
    };
    Ok(Ceilings { bytes_per_second, flops_per_second: peak_flops(options)? })
}

/// Writes a profile as a file for trace viewers, and tells it as a table.
pub(super) fn write_profile(folder: &Path, profile: &Profile, line: &mut dyn FnMut(&str)) -> Result<()> {
    let path = folder.join("profile.json");
    crate::durable::write(&path, profile.to_chrome_trace().as_bytes())
        .map_err(|error| Error::File { path: path.display().to_string(), message: error.to_string() })?;
    line(&format!("{profile}\nprofile: {}", path.display()));
    Ok(())
}
