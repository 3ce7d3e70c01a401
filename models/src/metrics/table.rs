//! The table of a run: a line for each step.

use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fulgurite_kernels::durable;

/// The table's name in the folder of a run.
pub const TABLE: &str = "metrics.csv";

/// The first line of a table.
const COLUMNS: &str = "step,loss,learning_rate,gradient_norm,tokens_per_second,mfu,milliseconds,peak_bytes";

/// What was measured of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metrics {
    /// The step's number, from 1.
    pub step: u64,
    /// The loss before the step's update.
    pub loss: f32,
    /// The learning rate of its update.
    pub learning_rate: f64,
    /// The norm of all gradients before they are clipped; absent where it is not computed.
    pub gradient_norm: Option<f32>,
    /// Absent in the first step of a process, which compiles.
    pub tokens_per_second: Option<f64>,
    /// Model FLOPs utilization: the part of the device's arithmetic that the model needs at this speed; absent where
    /// the device's arithmetic is not known.
    pub mfu: Option<f64>,
    /// The time from the report of the step before, without evaluations and saves.
    pub milliseconds: f64,
    /// The largest amount of the device's memory that this process has held so far; on the host, of arrays alone.
    pub peak_bytes: u64,
}

impl fmt::Display for Metrics {
    /// A line of the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn or_nothing(f: &mut fmt::Formatter<'_>, value: Option<impl fmt::Display>) -> fmt::Result {
            value.map_or(Ok(()), |value| write!(f, "{value}"))?;
            f.write_str(",")
        }
        let Metrics { step, loss, learning_rate, gradient_norm, tokens_per_second, mfu, milliseconds, peak_bytes } =
            self;
        write!(f, "{step},{loss},{learning_rate},")?;
        or_nothing(f, *gradient_norm)?;
        or_nothing(f, *tokens_per_second)?;
        or_nothing(f, *mfu)?;
        write!(f, "{milliseconds},{peak_bytes}")
    }
}

impl Metrics {
    fn parse(line: &str) -> Result<Metrics, String> {
        let mut fields = line.split(',');
        let mut columns = COLUMNS.split(',');
        let mut next = || {
            let (column, field) = (columns.next().unwrap_or("column"), fields.next());
            field.map(|field| (column, field)).ok_or_else(|| format!("lacks {column}"))
        };
        fn number<T: std::str::FromStr>((column, field): (&str, &str)) -> Result<T, String> {
            field.parse().map_err(|_| format!("{column} is '{field}', expected a number"))
        }
        fn optional<T: std::str::FromStr>((column, field): (&str, &str)) -> Result<Option<T>, String> {
            if field.is_empty() { Ok(None) } else { number((column, field)).map(Some) }
        }
        let metrics = Metrics {
            step: number(next()?)?,
            loss: number(next()?)?,
            learning_rate: number(next()?)?,
            gradient_norm: optional(next()?)?,
            tokens_per_second: optional(next()?)?,
            mfu: optional(next()?)?,
            milliseconds: number(next()?)?,
            peak_bytes: number(next()?)?,
        };
        match fields.next() {
            Some(_) => Err(format!("has more than the columns {COLUMNS}")),
            None => Ok(metrics),
        }
    }
}

/// A table that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The file system's.
    #[error("'{}': {error}", path.display())]
    Io {
        /// The table.
        path: PathBuf,
        /// The error of the file system.
        error: io::Error,
    },
    /// A line that is none of such a table.
    #[error("'{}', line {line}: {message}", path.display())]
    Line {
        /// The table.
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
}

/// The lines of a table. One that a killed process did not write to its end is left out.
///
/// # Errors
/// A file that is no such table, and steps that are not in order.
pub fn read(path: &Path) -> Result<Vec<Metrics>, MetricsError> {
    let text = std::fs::read_to_string(path).map_err(|error| MetricsError::Io { path: path.to_owned(), error })?;
    parse(&text).map_err(|(line, message)| MetricsError::Line { path: path.to_owned(), line, message })
}

/// The lines of a text, or the number of a faulty one and what is wrong with it.
fn parse(text: &str) -> Result<Vec<Metrics>, (usize, String)> {
    // Behind the last line break is nothing, or what was being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut lines = whole.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).zip(1..);
    match lines.next() {
        Some((COLUMNS, _)) => {}
        _ => return Err((1, format!("is not '{COLUMNS}'"))),
    }
    let mut table: Vec<Metrics> = Vec::new();
    for (line, number) in lines {
        let metrics = Metrics::parse(line).map_err(|message| (number, message))?;
        if let Some(before) = table.last().map(|before| before.step).filter(|before| *before >= metrics.step) {
            return Err((number, format!("step {} comes after step {before}", metrics.step)));
        }
        table.push(metrics);
    }
    Ok(table)
}

/// Lines reach the file so long after the last that did, at the latest when the next one is added: a step of a
/// millisecond does not write by itself.
const EVERY: Duration = Duration::from_millis(200);

/// A table that is being written.
pub struct MetricsFile {
    path: PathBuf,
    /// `None` for a table that nobody reads.
    file: Option<File>,
    /// Steps whose lines are not written yet. They are put into words when they are: a step only adds its numbers.
    waiting: Vec<Metrics>,
    /// The words, kept for their memory.
    lines: String,
    /// When lines were written last.
    written: Instant,
}

impl MetricsFile {
    /// The table in `folder`: a new one, or, for a run that goes on after step `done`, the one that is there without
    /// the lines of later steps.
    ///
    /// # Errors
    /// The file system's, and those of [`read`].
    pub fn open(folder: &Path, done: Option<u64>) -> Result<MetricsFile, MetricsError> {
        let path = folder.join(TABLE);
        let before = match done {
            Some(done) if path.exists() => read(&path)?.into_iter().filter(|metrics| metrics.step <= done).collect(),
            _ => Vec::new(),
        };
        let mut text = format!("{COLUMNS}\n");
        before.iter().for_each(|metrics: &Metrics| text += &format!("{metrics}\n"));
        let failed = |error| MetricsError::Io { path: path.clone(), error };
        durable::write(&path, text.as_bytes()).map_err(failed)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        let (waiting, lines) = (Vec::new(), String::new());
        Ok(MetricsFile { path, file: Some(file), waiting, lines, written: Instant::now() })
    }

    /// A table that goes nowhere: that of a rank beside the one which writes.
    pub fn nowhere() -> MetricsFile {
        let (waiting, lines) = (Vec::new(), String::new());
        MetricsFile { path: PathBuf::new(), file: None, waiting, lines, written: Instant::now() }
    }

    fn failed(&self, error: io::Error) -> MetricsError {
        MetricsError::Io { path: self.path.clone(), error }
    }

    /// Adds a line. It is written to the file with those of the next fifth of a second, or by [`MetricsFile::sync`], or
    /// when the table is dropped.
    ///
    /// # Errors
    /// The file system's.
    pub fn add(&mut self, metrics: &Metrics) -> Result<(), MetricsError> {
        self.waiting.push(*metrics);
        if self.written.elapsed() >= EVERY { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), MetricsError> {
        self.lines.clear();
        for metrics in self.waiting.drain(..) {
            // A string takes whatever is written.
            let _ = writeln!(self.lines, "{metrics}");
        }
        let written = self.file.as_mut().map_or(Ok(()), |file| file.write_all(self.lines.as_bytes()));
        self.written = Instant::now();
        written.map_err(|error| self.failed(error))
    }

    /// Brings all lines to the disk. A checkpoint is written after this.
    ///
    /// # Errors
    /// The file system's.
    pub fn sync(&mut self) -> Result<(), MetricsError> {
        self.write()?;
        self.file.as_ref().map_or(Ok(()), File::sync_data).map_err(|error| self.failed(error))
    }
}

impl Drop for MetricsFile {
    /// A run that fails leaves the lines of the steps before. An error has nobody to go to.
    fn drop(&mut self) {
        let _ = self.write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(step: u64) -> Metrics {
        Metrics {
            step,
            loss: 0.1 + step as f32,
            learning_rate: 0.1 / step as f64,
            gradient_norm: step.is_multiple_of(2).then_some(1.0 / 3.0),
            tokens_per_second: (step > 1).then_some(1e5 / 3.0),
            mfu: None,
            milliseconds: 1.25,
            peak_bytes: 1 << 40,
        }
    }

    #[test]
    fn a_resumed_run_has_each_line_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(TABLE);
        let write = |done: Option<u64>, steps: std::ops::RangeInclusive<u64>| {
            let mut file = MetricsFile::open(folder.path(), done).unwrap();
            steps.for_each(|step| file.add(&metrics(step)).unwrap());
            file.sync().unwrap();
        };
        let all: Vec<Metrics> = (1..=9).map(metrics).collect();
        write(None, 1..=7);
        // Killed while step 8 was written, with a checkpoint of step 5.
        let mut text = std::fs::read_to_string(&path).unwrap();
        text += "8,8.1,0.0";
        std::fs::write(&path, &text).unwrap();
        assert_eq!(read(&path).unwrap(), all[..7]);
        write(Some(5), 6..=9);
        assert_eq!(read(&path).unwrap(), all);
        // A new run replaces it, and one whose table is gone begins one.
        write(None, 1..=2);
        assert_eq!(read(&path).unwrap(), all[..2]);
        std::fs::remove_file(&path).unwrap();
        write(Some(5), 6..=9);
        assert_eq!(read(&path).unwrap(), all[5..]);
    }

    /// A run that fails drops its table.
    #[test]
    fn a_dropped_table_has_all_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(TABLE);
        let mut file = MetricsFile::open(folder.path(), None).unwrap();
        (1..=3).for_each(|step| file.add(&metrics(step)).unwrap());
        drop(file);
        assert_eq!(read(&path).unwrap(), (1..=3).map(metrics).collect::<Vec<_>>());
        // What waited is written with the line that comes later.
        let mut file = MetricsFile::open(folder.path(), Some(3)).unwrap();
        file.add(&metrics(4)).unwrap();
        std::thread::sleep(EVERY);
        file.add(&metrics(5)).unwrap();
        assert_eq!(read(&path).unwrap().len(), 5);
    }

    #[test]
    fn what_is_no_table_is_named_by_its_line() {
        let of = |lines: &str| parse(&format!("{COLUMNS}\n{lines}\n")).unwrap_err();
        assert_eq!(parse("a,b\n").unwrap_err().0, 1);
        assert_eq!(parse("").unwrap_err().0, 1);
        assert_eq!(of("1,2,3,,,,1,5\n1,2,3,,,,1,5"), (3, "step 1 comes after step 1".into()));
        assert_eq!(of("1,2,3,,,,1"), (2, "lacks peak_bytes".into()));
        assert_eq!(of("1,x,3,,,,1,5"), (2, "loss is 'x', expected a number".into()));
        assert!(of("1,2,3,,,,1,5,6").1.starts_with("has more than the columns"));
        assert!(parse(&format!("{COLUMNS}\r\n1,NaN,3,,,,1,5\r\n")).unwrap()[0].loss.is_nan());
    }

    /// Whatever the bytes are, the answer is an error, or a table that is written again as it was read.
    #[test]
    fn damaged_tables_are_errors_or_read_back() {
        let whole: String =
            std::iter::once(format!("{COLUMNS}\n")).chain((1..6).map(|step| format!("{}\n", metrics(step)))).collect();
        let mut tables = 0;
        for case in 0..20_000 {
            let mut random = crate::random::Stream::new(case, 0xC5F);
            let mut bytes = whole.clone().into_bytes();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(3) {
                    0 => bytes[at] = b",\n.0123456789-e\rN\xc3"[random.below(18) as usize],
                    1 => drop(bytes.remove(at)),
                    _ => bytes.truncate(at + 1),
                }
            }
            let Ok(text) = String::from_utf8(bytes) else { continue };
            let Ok(table) = parse(&text) else { continue };
            let lines: Vec<String> = table.iter().map(Metrics::to_string).collect();
            let again = parse(&format!("{COLUMNS}\n{}\n", lines.join("\n").trim_end()));
            let again = if table.is_empty() { Ok(Vec::new()) } else { again };
            let told = again.map(|again| again.iter().map(Metrics::to_string).collect::<Vec<_>>());
            assert_eq!(told, Ok(lines), "case {case}: {text}");
            tables += 1;
        }
        assert!(tables > 2000, "{tables}");
    }
}
