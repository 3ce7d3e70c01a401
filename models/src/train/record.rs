//! What a run leaves to be read: the traces of its step, and where its time went.

use std::path::Path;

use fulgurite_runtime::compile::Stage;
use fulgurite_runtime::program::{Ceiling, Ceilings, Profile, Source};
use fulgurite_runtime::{Error, Result};

use super::options::TrainOptions;

/// Whether a file's name is that of a stage: `00_acquire.trace`.
fn is_stage(name: &str) -> bool {
    let numbered = name.strip_suffix(".trace").and_then(|name| name.split_once('_'));
    numbered.is_some_and(|(number, name)| {
        number.len() >= 2 && number.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty()
    })
}

/// Writes every stage of a compiled function as text, in place of the stages that an earlier run left in `folder`.
pub fn write_stages(folder: &Path, stages: &[Stage]) -> Result<()> {
    let failed = |path: &Path, error: std::io::Error| Error::File {
        path: path.display().to_string(),
        message: error.to_string(),
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for entry in std::fs::read_dir(folder).map_err(|error| failed(folder, error))?.filter_map(|entry| entry.ok()) {
        if entry.file_name().to_str().is_some_and(is_stage) {
            std::fs::remove_file(entry.path()).map_err(|error| failed(&entry.path(), error))?;
        }
    }
    for (i, stage) in stages.iter().enumerate() {
        let path = folder.join(format!("{i:02}_{}.trace", stage.name));
        fulgurite_kernels::durable::write(&path, stage.trace.to_string().as_bytes())
            .map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// What the device of a run does at most: what was given, else what is measured, else what its data sheet has.
pub(super) fn ceilings(options: &TrainOptions) -> Result<Ceilings> {
    let found = fulgurite_rates::ceilings(options.device(), options.precision.products())?;
    let given = options.peak_flops.map(|per_second| Ceiling { per_second, source: Source::Given });
    Ok(Ceilings { flops: given.or(found.flops), ..found })
}

/// Writes a profile as a file for trace viewers, and tells it as a table.
pub(super) fn write_profile(folder: &Path, profile: &Profile, line: &mut dyn FnMut(&str)) -> Result<()> {
    let path = folder.join("profile.json");
    fulgurite_kernels::durable::write(&path, profile.to_chrome_trace().as_bytes())
        .map_err(|error| Error::File { path: path.display().to_string(), message: error.to_string() })?;
    line(&format!("{profile}\nprofile: {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_take_the_place_of_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let names =
            ["00_acquire.trace", "123_fuse.trace", "notes.trace", "00_acquire.txt", "1_own.trace", "x0_a.trace"];
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), "").unwrap());
        write_stages(folder.path(), &[]).unwrap();
        let there = names.map(|name| folder.path().join(name).exists());
        assert_eq!(there, [false, false, true, true, true, true]);
    }
}
