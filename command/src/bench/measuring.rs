//! Rows are measured one after the other by a thread of their own, which tells what comes out: the command listens to
//! that and to interruptions at once.

use std::path::PathBuf;
use std::sync::mpsc::Sender;

use fulgurite::Device;
use fulgurite_rates::too_low::TooLow;

use super::figures::{Figure, Peer};
use super::processes::Processes;
use super::rates_of::RatesOf;
use super::rows::{Group, Row};
use super::{kernels, peers, products, step};

/// What is measured, and how.
pub struct Asked {
    pub rows: Vec<Row>,
    pub device: Device,
    pub executors: Option<String>,
    /// Whether rates are measured again.
    pub again: bool,
    /// The folder of the peers' scripts.
    pub peers: Option<PathBuf>,
    /// A folder for the files of runs.
    pub folder: PathBuf,
}

impl Asked {
    /// Where a row runs.
    pub fn device_of(&self, row: &Row) -> Device {
        if row.group == Group::Host { Device::CPU } else { self.device }
    }
}

/// What a measuring thread reports.
pub enum Event {
    /// This row is measured now.
    Begins(usize),
    /// What came out of it.
    Row {
        row: usize,
        figures: Result<Vec<Figure>, String>,
        /// The rates that are known by now, in words.
        rates: Vec<String>,
        /// Kept rates that the row exceeds.
        too_low: Vec<TooLow>,
    },
    /// What a peer measured.
    Peer(Peer),
    /// The peers and their versions, or why there are none.
    Peers(String),
    /// The command is asked to end.
    Interrupted,
    /// There is no more to come.
    Ended,
}

/// Tells the end, also that of a panic.
struct Ending(Sender<Event>);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Ended);
    }
}

/// Measures all that is asked for. `to` is told until nobody listens any more.
pub fn measure(asked: &Asked, processes: &Processes, to: Sender<Event>) {
    let to = Ending(to);
    let tell = |event: Event| to.0.send(event).is_ok();
    let mut rates = RatesOf::new(asked.again);
    for (i, row) in asked.rows.iter().enumerate() {
        if !tell(Event::Begins(i)) {
            return;
        }
        let figures = figures_of(asked, row, processes, &mut rates);
        let too_low =
            figures.as_ref().map_or_else(|_| Vec::new(), |figures| rates.too_low(asked.device_of(row), row, figures));
        if !tell(Event::Row { row: i, figures, rates: rates.in_words(), too_low }) {
            return;
        }
    }
    if let Some(folder) = &asked.peers {
        let mut each = |peer: Peer| {
            tell(Event::Peer(peer));
        };
        let about = peers::run(folder, &asked.rows, asked.device, processes, &mut each);
        tell(Event::Peers(about));
    }
}

/// The figures of a row, or why there are none.
fn figures_of(asked: &Asked, row: &Row, processes: &Processes, rates: &mut RatesOf) -> Result<Vec<Figure>, String> {
    let (device, executors) = (asked.device_of(row), asked.executors.as_deref());
    if let Some(figures) = step::measure(&row.work, (device, executors), &asked.folder, processes) {
        return figures;
    }
    let rates = rates.of(device);
    match kernels::measure(&row.work, device, executors, rates.as_ref()) {
        Some(figures) => {
            let mut figures = figures.map_err(|error| error.to_string())?;
            products::library(&row.work, device, &mut figures)?;
            Ok(figures)
        }
        None => Err("no program is known for it".into()),
    }
}
