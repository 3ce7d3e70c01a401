//! `profile.html` of a run: the programs of its step with the time of each line, as `view --profile` shows them.

use std::path::{Path, PathBuf};

use fulgurite::trace::parse;
use fulgurite_view::{Shown, Subject, Timing, page};

use super::outcome::Failed;
use crate::cases::write_whole;

/// The profile of a run, in its folder.
const PROFILE: &str = "profile.json";
/// The page beside it.
const PAGE: &str = "profile.html";

/// Writes the page of the run in `folder`, from its profile and the traces of its step.
pub fn write(folder: &Path) -> Result<PathBuf, Failed> {
    let text = |path: &Path| std::fs::read_to_string(path).map_err(|error| Failed::file(path, error));
    let profile = folder.join(PROFILE);
    let timing = Timing::read(&text(&profile)?).map_err(|error| Failed::file(&profile, error))?;
    let traces = folder.join("traces");
    let entries = std::fs::read_dir(&traces).map_err(|error| Failed::file(&traces, error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // `00_acquire.trace`, `01_...`: the order of their names is that of the stages.
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "trace"));
    paths.sort();
    let stage = |path: &PathBuf| {
        let trace = parse(&text(path)?).map_err(|error| Failed::file(path, error))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.split_once('_').map_or(&*name, |(_, name)| name).to_owned();
        Ok(Shown { name, trace })
    };
    let stages = paths.iter().map(stage).collect::<Result<Vec<_>, Failed>>()?;
    let name = format!("{} of {}", timing.function, folder.display());
    let out = folder.join(PAGE);
    write_whole(&out, page(&[Subject { name, stages, timing: Some(timing), ..Subject::default() }]).as_bytes())?;
    Ok(out)
}
