//! The page of a run while the run goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fulgurite_kernels::durable;

use super::curves::Curves;
use super::document::{Document, Sample, State};
use super::events::{Event, EventsFile, What};
use crate::metrics::{Metrics, MetricsError, PLOT, TABLE, read};

/// The page's name in the folder of a run.
pub const REPORT: &str = "report.html";

/// The least time from one writing of the page to the next.
const EVERY: Duration = Duration::from_secs(2);
/// How many times as long as a writing takes the run goes on before the next: a hundredth of the time is the most.
const REST: u32 = 100;
/// Samples on the page: the first, and the newest.
const SAMPLES: usize = 40;
/// Notes on the page, the newest.
const NOTES: usize = 100;

/// What the page says of its run as a whole.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// The heading.
    pub title: String,
    /// Steps in all.
    pub steps: u64,
    /// Names and values.
    pub settings: Vec<(String, String)>,
}

/// The page of a run. Each change is shown when the page is written next.
pub struct RunReport {
    /// `None` for a page that nobody reads.
    folder: Option<PathBuf>,
    subject: Subject,
    events: EventsFile,
    curves: Curves,
    samples: Vec<Sample>,
    omitted: u64,
    notes: Vec<(u64, String)>,
    done: u64,
    /// When it was written last, and how long that took.
    written: Option<(Instant, Duration)>,
    failed: Option<String>,
}

impl RunReport {
    /// The page in `folder`: a new one, or, for a run that goes on after step `done`, with what was before.
    ///
    /// # Errors
    /// The file system's, and those of the table and the events that are there.
    pub fn open(folder: &Path, subject: Subject, done: Option<u64>) -> Result<RunReport, MetricsError> {
        let (events, before) = EventsFile::open(folder, done)?;
        let mut report = RunReport::of(Some(folder.to_owned()), subject, events);
        report.done = done.unwrap_or(0);
        let table = folder.join(TABLE);
        if let Some(done) = done.filter(|_| table.exists()) {
            read(&table)?.iter().filter(|step| step.step <= done).for_each(|step| report.curves.step(step));
        }
        before.into_iter().for_each(|event| report.show(event));
        Ok(report)
    }

    /// A page that goes nowhere: that of a rank beside the one which writes.
    pub fn nowhere(subject: Subject) -> RunReport {
        RunReport::of(None, subject, EventsFile::nowhere())
    }

    fn of(folder: Option<PathBuf>, subject: Subject, events: EventsFile) -> RunReport {
        RunReport {
            folder,
            subject,
            events,
            curves: Curves::default(),
            samples: Vec::new(),
            omitted: 0,
            notes: Vec::new(),
            done: 0,
            written: None,
            failed: None,
        }
    }

    /// A step was done. Writes the page if that is due, and says how long that took.
    pub fn step(&mut self, metrics: &Metrics) -> Duration {
        self.curves.step(metrics);
        self.done = metrics.step;
        let due = self.written.is_none_or(|(at, took)| at.elapsed() >= EVERY.max(REST * took));
        if !due {
            return Duration::ZERO;
        }
        let started = Instant::now();
        let every = self.written.map_or(EVERY, |(at, _)| at.elapsed());
        let written = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.write(&State::Running { written, every: every.as_secs_f64() });
        self.written = Some((Instant::now(), started.elapsed()));
        started.elapsed()
    }

    /// Something else happened, after the last step that was told.
    ///
    /// # Errors
    /// The file system's.
    pub fn add(&mut self, what: What) -> Result<(), MetricsError> {
        let event = Event { step: self.done, what };
        self.events.add(&event)?;
        self.show(event);
        Ok(())
    }

    /// Brings the events to the disk. A checkpoint is written after this.
    ///
    /// # Errors
    /// The file system's.
    pub fn sync(&self) -> Result<(), MetricsError> {
        self.events.sync()
    }

    /// The run has ended as `words` say, well or not: the page is written for the last time, and is not read again.
    pub fn end(&mut self, words: Result<&str, &str>) {
        self.write(&match words {
            Ok(words) => State::Ended(words.to_owned()),
            Err(words) => State::Failed(words.to_owned()),
        });
    }

    /// Why the page could not be written last, if it could not; once. A run goes on without it.
    pub fn failure(&mut self) -> Option<String> {
        self.failed.take()
    }

    /// Where the page is.
    pub fn path(&self) -> PathBuf {
        self.folder.as_deref().unwrap_or(Path::new("")).join(REPORT)
    }

    fn show(&mut self, event: Event) {
        let step = event.step;
        match event.what {
            What::Validation { loss, .. } => self.curves.validation(step, loss),
            What::Sample { prompt, text } => {
                // A run that is resumed at its end tells its last sample again.
                self.samples.pop_if(|last| last.step == step);
                self.samples.push(Sample { step, prompt, text });
                if self.samples.len() > SAMPLES {
                    self.samples.remove(1);
                    self.omitted += 1;
                }
            }
            What::Note { text } => {
                self.notes.push((step, text));
                if self.notes.len() > NOTES {
                    self.notes.remove(0);
                }
            }
        }
    }

    fn write(&mut self, state: &State) {
        let Some(folder) = &self.folder else { return };
        let files = [
            (TABLE, "each step"),
            (PLOT, "curves"),
            ("traces", "programs"),
            ("profile.html", "time of each line"),
            ("profile.json", "the same for Perfetto"),
        ];
        let files: Vec<(&str, &str)> = files.into_iter().filter(|(name, _)| folder.join(name).exists()).collect();
        let document = Document {
            title: &self.subject.title,
            steps: (self.done, self.subject.steps),
            state,
            curves: &self.curves,
            samples: &self.samples,
            omitted: self.omitted,
            notes: &self.notes,
            settings: &self.subject.settings,
            files: &files,
        };
        let path = self.path();
        if let Err(error) = durable::write(&path, document.html().as_bytes()) {
            self.failed = Some(format!("'{}' could not be written: {error}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(step: u64) -> Metrics {
        Metrics {
            step,
            loss: 5.0 - step as f32 / 10.0,
            learning_rate: 1e-3,
            gradient_norm: None,
            tokens_per_second: Some(1e4),
            mfu: None,
            milliseconds: 20.0,
            peak_bytes: 1 << 20,
        }
    }

    #[test]
    fn a_page_is_live_until_the_end_and_goes_on_when_resumed() {
        let folder = tempfile::tempdir().unwrap();
        let text = || std::fs::read_to_string(folder.path().join(REPORT)).unwrap();
        let subject = || Subject { title: "<b>".into(), steps: 9, settings: vec![("data".into(), "<i>".into())] };
        let mut table = crate::metrics::MetricsFile::open(folder.path(), None).unwrap();
        let mut report = RunReport::open(folder.path(), subject(), None).unwrap();
        for step in 1..=4 {
            table.add(&metrics(step)).unwrap();
            report.step(&metrics(step));
        }
        // As before a checkpoint.
        table.sync().unwrap();
        let live = text();
        assert!(live.contains("data-reload=\"3\"") && live.contains("step 1 of 9"), "{live}");
        let sample = "<script>alert(1)</script>\u{0}";
        report.add(What::Sample { prompt: "The ".into(), text: sample.into() }).unwrap();
        report.add(What::Validation { loss: 4.25, accuracy: Some(0.5) }).unwrap();
        report.end(Ok("4 of 9 steps"));
        let ended = text();
        assert!(ended.contains("data-reload=\"\"") && !ended.contains("http-equiv=\"refresh\""), "{ended}");
        assert!(ended.contains("&lt;script&gt;alert(1)&lt;/script&gt;\u{2400}") && !ended.contains("<script>alert"));
        assert!(!ended.contains("<b>") && !ended.contains("<i>") && ended.contains("4.25"), "{ended}");
        // Resumed from step 3: what came after it is not there twice.
        let mut report = RunReport::open(folder.path(), subject(), Some(3)).unwrap();
        assert!(report.samples.is_empty() && report.curves.validation.is_empty());
        assert_eq!(report.curves.loss.points().len(), 3);
        report.end(Err("no more"));
        assert!(text().contains("Failed") && text().contains("no more"));
        assert_eq!(report.failure(), None);
    }

    #[test]
    fn samples_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut report = RunReport::open(folder.path(), Subject::default(), None).unwrap();
        for step in 1..=500 {
            report.step(&metrics(step));
            report.add(What::Sample { prompt: String::new(), text: "x".repeat(100) }).unwrap();
        }
        report.end(Ok(""));
        let page = std::fs::read_to_string(report.path()).unwrap();
        assert_eq!(page.matches("class=\"prompt\"").count(), SAMPLES);
        assert!(page.contains("after step 1<") && page.contains("after step 500<") && page.contains("460 others"));
    }
}
