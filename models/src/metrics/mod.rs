//! What a run measured of each of its steps: a table in the run's folder, and its curves.
//!
//! The table is CSV with a line for each step, in order. It is written line by line. Where a run is resumed, the lines
//! of steps after its checkpoint are removed, since these steps come again; the lines of the steps before are on the
//! disk when the checkpoint is. So no line is missing or there twice, wherever a process was killed.

pub mod flops;
mod plot;
mod table;

use std::path::{Path, PathBuf};

use fulgurite_kernels::durable;

pub use plot::{losses, svg};
pub use table::{Metrics, MetricsError, MetricsFile, TABLE, read};

/// The name of the picture of its curves.
pub const PLOT: &str = "metrics.svg";

/// Writes the curves of the table in `folder` beside it.
///
/// # Errors
/// The file system's, and those of [`read`].
pub fn plot(folder: &Path) -> Result<PathBuf, MetricsError> {
    let name = folder.file_name().map_or_else(|| folder.display().to_string(), |name| name.display().to_string());
    let picture = svg(&[(name, read(&folder.join(TABLE))?)]);
    let path = folder.join(PLOT);
    durable::write(&path, picture.as_bytes()).map_err(|error| MetricsError::Io { path: path.clone(), error })?;
    Ok(path)
}
