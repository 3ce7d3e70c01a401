//! What happened in a run besides its steps: validation losses, samples, notes, a line of JSON each.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use fulgurite_kernels::durable;
use serde::{Deserialize, Serialize};

use crate::metrics::MetricsError;

/// The name of the file in the folder of a run.
pub const EVENTS: &str = "events.jsonl";

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The last step that was done by then; 0 before the first.
    pub step: u64,
    /// The event itself.
    #[serde(flatten)]
    pub what: What,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum What {
    /// The mean loss over the validation batches.
    Validation {
        /// The loss, finite.
        loss: f64,
        /// The share of right answers, of models that tell it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        accuracy: Option<f64>,
    },
    /// Text by the model.
    Sample {
        /// What the text continues.
        prompt: String,
        /// The text, without the prompt.
        text: String,
    },
    /// Something that people want to know.
    Note {
        /// The message.
        text: String,
    },
}

/// A file of events that is being written.
#[derive(Debug)]
pub struct EventsFile {
    path: PathBuf,
    /// `None` for events that nobody reads.
    file: Option<File>,
}

impl EventsFile {
    /// The file in `folder`: a new one, or, for a run that goes on after step `done`, the one that is there without
    /// what happened after that step, which happens again; and the events that it has. A last line that a killed
    /// process did not write to its end is left out. In place of lines that are no events there is a note.
    ///
    /// # Errors
    /// The file system's.
    pub fn open(folder: &Path, done: Option<u64>) -> Result<(EventsFile, Vec<Event>), MetricsError> {
        let path = folder.join(EVENTS);
        let failed = |error| MetricsError::Io { path: path.clone(), error };
        let mut events = Vec::new();
        if let Some(done) = done.filter(|_| path.exists()) {
            let bytes = std::fs::read(&path).map_err(failed)?;
            // The end of the last line may be inside a character.
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
            for (line, number) in whole.split(|byte| *byte == b'\n').zip(1..).filter(|(line, _)| !line.is_empty()) {
                let event = serde_json::from_slice::<Event>(line).unwrap_or_else(|error| {
                    let text = format!("line {number} of {EVENTS} is no event and is left out: {error}");
                    Event { step: done, what: What::Note { text } }
                });
                events.extend(Some(event).filter(|event| event.step <= done));
            }
        }
        let text: String = events.iter().map(line_of).collect();
        durable::write(&path, text.as_bytes()).map_err(failed)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        Ok((EventsFile { path, file: Some(file) }, events))
    }

    /// Events that go nowhere: those of a rank beside the one which writes.
    pub fn nowhere() -> EventsFile {
        EventsFile { path: PathBuf::new(), file: None }
    }

    /// Adds a line.
    ///
    /// # Errors
    /// The file system's.
    pub fn add(&mut self, event: &Event) -> Result<(), MetricsError> {
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(line_of(event).as_bytes()));
        written.map_err(|error| MetricsError::Io { path: self.path.clone(), error })
    }

    /// Brings all lines to the disk. A checkpoint is written after this.
    ///
    /// # Errors
    /// The file system's.
    pub fn sync(&self) -> Result<(), MetricsError> {
        self.file
            .as_ref()
            .map_or(Ok(()), File::sync_data)
            .map_err(|error| MetricsError::Io { path: self.path.clone(), error })
    }
}

fn line_of(event: &Event) -> String {
    // Numbers and strings: nothing of it cannot be written.
    serde_json::to_string(event).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Event> {
        let sample = What::Sample { prompt: "\n".into(), text: "<script>\n\"é\"\u{0}".into() };
        [
            (2, What::Validation { loss: 0.1 + 0.2, accuracy: None }),
            (4, sample),
            (5, What::Note { text: "stopped".into() }),
        ]
        .map(|(step, what)| Event { step, what })
        .to_vec()
    }

    #[test]
    fn a_resumed_run_has_each_event_once() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, before) = EventsFile::open(folder.path(), None).unwrap();
        assert_eq!(before, []);
        all().iter().for_each(|event| file.add(event).unwrap());
        file.sync().unwrap();
        // Killed while a line was written, inside a character.
        file.file.as_mut().unwrap().write_all(b"{\"step\":6,\"kind\":\"note\",\"text\":\"\xC3").unwrap();
        for (done, kept) in [(9, 3), (4, 2), (3, 1)] {
            assert_eq!(EventsFile::open(folder.path(), Some(done)).unwrap().1, all()[..kept], "{done}");
        }
        assert_eq!(EventsFile::open(folder.path(), None).unwrap().1, []);
        std::fs::write(folder.path().join(EVENTS), "{\"step\":1}\n").unwrap();
        let (_, events) = EventsFile::open(folder.path(), Some(1)).unwrap();
        let [Event { step: 1, what: What::Note { text } }] = &events[..] else { panic!("{events:?}") };
        assert!(text.contains("line 1 of events.jsonl is no event"), "{text}");
        // The note has taken the place of the line.
        assert_eq!(EventsFile::open(folder.path(), Some(1)).unwrap().1, events);
    }
}
