//! The loss of a run as a small chart of text.

use std::path::Path;

use fulgurite_models::metrics::{Metrics, TABLE, losses, read};
use fulgurite_plots::terminal::{Terminal, chart};

use super::outcome::Failed;
use super::output::{printable, write};

/// Lines of the drawing.
const LINES: usize = 8;
/// Columns where the output is no terminal, or one that does not tell.
const COLUMNS: usize = 80;

/// Writes the chart of a table's losses.
pub fn show(title: &str, metrics: &[Metrics]) -> Result<(), Failed> {
    let columns = console::Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| usize::from(columns));
    let terminal = Terminal { columns, lines: LINES, unicode: Terminal::locale_has_unicode() };
    write(format_args!("{}", chart(&printable(title), "step", &losses(metrics), terminal)))
}

/// Writes the chart of the run in a folder. A table that cannot be read has none.
pub fn show_run(folder: &Path) -> Result<(), Failed> {
    read(&folder.join(TABLE)).map_or(Ok(()), |metrics| show("loss", &metrics))
}
