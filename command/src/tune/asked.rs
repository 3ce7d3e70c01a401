//! What a compilation asks for, counted and measured.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fulgurite::choices::{Call, Choices, Entry, Found, Question, Records, Wanted};
use indicatif::{ProgressBar, ProgressStyle};

/// Lists the calls that have candidates, on any target.
#[derive(Debug)]
pub struct Listing {
    smallest: Duration,
    calls: Mutex<Vec<(Call, Vec<&'static str>)>>,
}

impl Listing {
    pub fn new(smallest: Duration) -> Listing {
        Listing { smallest, calls: Mutex::default() }
    }

    /// The calls with their candidates, in the order of the questions.
    pub fn calls(&self) -> Vec<(Call, Vec<&'static str>)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Choices for Listing {
    fn find(&self, question: &Question<'_>) -> Found {
        if let Some(names) = Records::candidates(question, self.smallest) {
            let call = question.call();
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            if !calls.iter().any(|(known, _)| *known == call) {
                calls.push((call, names));
            }
        }
        Found::Nothing
    }
}

/// Has calls measured, with a progress bar, and keeps the records that were asked for.
#[derive(Debug)]
pub struct Measuring {
    records: Arc<Records>,
    bar: ProgressBar,
    entries: Mutex<Vec<Arc<Entry>>>,
}

impl Measuring {
    pub fn new(records: Arc<Records>) -> Measuring {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Measuring { records, bar, entries: Mutex::default() }
    }

    /// The records that were asked for, each once.
    pub fn finished(&self) -> Vec<Arc<Entry>> {
        self.bar.finish_and_clear();
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Choices for Measuring {
    fn find(&self, question: &Question<'_>) -> Found {
        let found = self.records.find(question);
        if let Found::Entry(entry) = &found {
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            if !entries.iter().any(|known| known.call == entry.call) {
                entries.push(entry.clone());
            }
        }
        found
    }

    fn measure(&self, wanted: &[Wanted], peak: Option<u64>) {
        // What a winner's decomposition consists of comes on top of what was asked for first.
        self.bar.inc_length(wanted.len() as u64);
        self.records.measure_for(wanted, peak, None, &mut |call| {
            self.bar.set_message(call.to_string());
            self.bar.inc(1);
        });
    }
}
