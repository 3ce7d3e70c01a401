//! The report of a run: a page in its folder with curves, samples of text, settings and notes, which is replaced while
//! the run goes on, so that people watch it in a browser.
//!
//! What the table of metrics does not have (validation losses, samples, notes) is in a file of events, a line of JSON
//! each. A resumed run reads both, and goes on with the same page.

mod curves;
mod document;
mod events;
mod run_report;

pub use events::{EVENTS, Event, EventsFile, What};
pub use run_report::{REPORT, RunReport, Subject};
