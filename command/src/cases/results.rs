//! The results of cases, on the disk as they come: memory holds a bounded part of them, and a run that is ended early
//! leaves what it did.
//!
//! `results.json` is a list of reports, whole after every case. Tensors go to parts, `results.part-N.safetensors`, and
//! in the end the parts become one file, `results.safetensors`. A run that was killed leaves the parts, each a file of
//! its own.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fulgurite::{Array, DType, Error};
use fulgurite_kernels::durable;
use serde::Serialize;

use super::CaseError;

const REPORTS: &str = "results.json";
const TENSORS: &str = "results.safetensors";

/// What memory holds before a part is written, in bytes.
const MOST_HELD: usize = 64 << 20;

/// How long a result stays in memory alone.
const LONGEST_HELD: Duration = Duration::from_secs(5);

/// How many results an error names.
const MOST_NAMED: usize = 12;

/// What is left after the last report, and is written over by the next.
const END: &str = "\n]\n";

struct Entry {
    key: String,
    dtype: DType,
    shape: Vec<usize>,
    bytes: usize,
}

/// A part that was written: its tensors in the order of their data.
struct Part {
    path: PathBuf,
    /// Where the data begins.
    start: u64,
    entries: Vec<Entry>,
}

/// The files of a run of cases.
pub struct Results {
    folder: PathBuf,
    reports: File,
    reported: usize,
    keys: HashSet<String>,
    parts: Vec<Part>,
    held: Vec<(Entry, Vec<u8>)>,
    written: Instant,
}

impl Results {
    /// Begins the results in `folder`, which is made if it is not there. Results of an earlier run are removed.
    pub fn begin(folder: &Path) -> Result<Results, Error> {
        std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
        let stale = |name: &str| name == TENSORS || name == REPORTS || part_number(name).is_some();
        for entry in std::fs::read_dir(folder).map_err(|error| failed(folder, error))?.flatten() {
            if entry.file_name().to_str().is_some_and(stale) {
                std::fs::remove_file(entry.path()).map_err(|error| failed(&entry.path(), error))?;
            }
        }
        let path = folder.join(REPORTS);
        let create = || -> io::Result<File> {
            let mut reports = OpenOptions::new().write(true).create_new(true).open(&path)?;
            reports.write_all(b"[\n]\n")?;
            Ok(reports)
        };
        Ok(Results {
            folder: folder.to_owned(),
            reports: create().map_err(|error| failed(&path, error))?,
            reported: 0,
            keys: HashSet::new(),
            parts: Vec::new(),
            held: Vec::new(),
            written: Instant::now(),
        })
    }

    /// Takes the tensors of a case.
    ///
    /// # Errors
    /// If a result of that name is there already, or what memory holds cannot be written and must be; then the tensors
    /// of this case are given up, and those of earlier cases are kept for a later try.
    pub fn tensors(&mut self, arrays: Vec<(String, Array)>) -> Result<(), CaseError> {
        if let Some((key, _)) = arrays.iter().find(|(key, _)| self.keys.contains(key)) {
            return Err(CaseError::new("TwoTensors", format!("two results are called '{key}'")));
        }
        let earlier = self.held.len();
        let mut own = Vec::with_capacity(arrays.len());
        for (key, array) in arrays {
            let bytes = array.to_bytes().map_err(super::of_case)?;
            let entry = Entry { key, dtype: array.dtype(), shape: array.shape().to_vec(), bytes: bytes.len() };
            own.push((entry, bytes));
        }
        self.keys.extend(own.iter().map(|(entry, _)| entry.key.clone()));
        self.held.extend(own);
        let due = !self.held.is_empty() && self.written.elapsed() > LONGEST_HELD;
        if self.held_bytes() <= MOST_HELD && !due {
            return Ok(());
        }
        // Where a large file is too much, those of earlier cases may not be.
        let written = self.write_part(self.held.len());
        let written = written.or_else(|error| if earlier > 0 { self.write_part(earlier) } else { Err(error) });
        if self.held_bytes() > MOST_HELD && written.is_err() {
            for (entry, _) in self.held.drain(earlier..) {
                self.keys.remove(&entry.key);
            }
            written?;
        }
        Ok(())
    }

    /// How many bytes memory holds.
    fn held_bytes(&self) -> usize {
        self.held.iter().map(|(entry, _)| entry.bytes).sum()
    }

    /// Adds the report of a case. The file is whole before and after.
    pub fn report(&mut self, report: &impl Serialize) -> Result<(), Error> {
        let path = self.folder.join(REPORTS);
        let text = serde_json::to_string(report).map_err(|error| failed(&path, error))?;
        let (back, separator) = if self.reported == 0 { (2, "") } else { (END.len() as i64, ",\n") };
        self.reported += 1;
        let more = format!("{separator}  {text}{END}");
        let written = self.reports.seek(SeekFrom::End(-back)).and_then(|_| self.reports.write_all(more.as_bytes()));
        written.map_err(|error| failed(&path, error))
    }

    /// Writes the first `count` of what memory holds; all of it is still held if that fails.
    fn write_part(&mut self, count: usize) -> Result<(), Error> {
        let path = self.folder.join(format!("results.part-{}.safetensors", self.parts.len()));
        let mut part: Vec<&(Entry, Vec<u8>)> = self.held[..count].iter().collect();
        // Wide types first, so that every value is aligned.
        part.sort_by_key(|(entry, _)| std::cmp::Reverse(entry.dtype.size()));
        let header = header(part.iter().map(|(entry, _)| entry));
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&path).map_err(|error| failed(&path, error))?;
        let written =
            file.write_all(&header).and_then(|()| part.iter().try_for_each(|(_, bytes)| file.write_all(bytes)));
        if let Err(error) = written {
            // A part is whole or not there. The error that led here is the one to report.
            let _ = std::fs::remove_file(&path);
            return Err(failed(&path, error));
        }
        let mut entries: Vec<Entry> = self.held.drain(..count).map(|(entry, _)| entry).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.dtype.size()));
        self.parts.push(Part { path, start: header.len() as u64, entries });
        self.written = Instant::now();
        Ok(())
    }

    /// Makes the parts one file.
    ///
    /// # Errors
    /// If that file cannot be written; the parts are left then, and the error names the results that are in none of
    /// them.
    pub fn finish(mut self) -> Result<(), Error> {
        let path = self.folder.join(TENSORS);
        let one = self.parts.is_empty();
        // Where a part cannot be written, the whole may be.
        let unwritten = if one || self.held.is_empty() { Ok(()) } else { self.write_part(self.held.len()) };
        let Err(error) = self.join(&path) else { return self.remove_parts() };
        let noted = |note: &str| match error {
            Error::File { path, message } => Error::File { path, message: format!("{message}; {note}") },
            other => other,
        };
        // A part that is left is better than nothing.
        let unwritten = if one && !self.held.is_empty() { self.write_part(self.held.len()) } else { unwritten };
        if unwritten.is_ok() {
            return Err(noted("the results are in results.part-N.safetensors"));
        }
        let mut lost: Vec<&str> = self.held.iter().map(|(entry, _)| &*entry.key).collect();
        let count = lost.len();
        lost.truncate(MOST_NAMED);
        let more = if count > MOST_NAMED { ", ..." } else { "" };
        Err(noted(&format!("{count} results are lost: {}{more}", lost.join(", "))))
    }

    fn join(&self, path: &Path) -> Result<(), Error> {
        // Where each tensor's data is: in a part, or still in memory.
        let mut all: Vec<(&Entry, Result<(usize, u64), &[u8]>)> = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            let mut offset = part.start;
            for entry in &part.entries {
                all.push((entry, Ok((number, offset))));
                offset += entry.bytes as u64;
            }
        }
        all.extend(self.held.iter().map(|(entry, bytes)| (entry, Err(&bytes[..]))));
        all.sort_by_key(|(entry, _)| std::cmp::Reverse(entry.dtype.size()));
        let mut open: Vec<File> = Vec::new();
        for part in &self.parts {
            open.push(File::open(&part.path).map_err(|error| failed(&part.path, error))?);
        }
        durable::write_with(path, |writer| {
            writer.write_all(&header(all.iter().map(|(entry, _)| *entry)))?;
            for (entry, place) in &all {
                match place {
                    Err(bytes) => writer.write_all(bytes)?,
                    Ok((part, offset)) => {
                        let mut file = &open[*part];
                        file.seek(SeekFrom::Start(*offset))?;
                        io::copy(&mut file.take(entry.bytes as u64), writer)?;
                    }
                }
            }
            Ok(())
        })
        .map_err(|error| failed(path, error))
    }

    /// Removes the parts of what is one file now.
    fn remove_parts(&self) -> Result<(), Error> {
        self.parts.iter().try_for_each(|part| {
            let note = |error| failed(&part.path, format!("{error}; {TENSORS} has all results"));
            std::fs::remove_file(&part.path).map_err(note)
        })
    }
}

/// The number of a part of this name.
fn part_number(name: &str) -> Option<usize> {
    name.strip_prefix("results.part-")?.strip_suffix(".safetensors")?.parse().ok()
}

/// The beginning of a safetensors file of these tensors in this order: the header's length and the header.
fn header<'a>(entries: impl Iterator<Item = &'a Entry>) -> Vec<u8> {
    let mut described = serde_json::Map::new();
    let mut begin = 0;
    for entry in entries {
        let end = begin + entry.bytes;
        let description = serde_json::json!({
            "dtype": entry.dtype.name().to_uppercase(),
            "shape": entry.shape,
            "data_offsets": [begin, end],
        });
        described.insert(entry.key.clone(), description);
        begin = end;
    }
    let mut text = serde_json::Value::Object(described).to_string();
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::File { path: path.display().to_string(), message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::TensorFile;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn reports(folder: &Path) -> Vec<u64> {
        let text = std::fs::read(folder.join(REPORTS)).unwrap();
        let reports: serde_json::Value = serde_json::from_slice(&text).unwrap();
        reports.as_array().unwrap().iter().map(|report| report.as_u64().unwrap()).collect()
    }

    /// Results of mixed types, in parts of which each is a file, and together in the end.
    #[test]
    fn what_came_is_on_the_disk_and_in_the_end_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        for parts in [false, true] {
            let mut results = Results::begin(folder.path()).unwrap();
            assert_eq!((names(folder.path()), reports(folder.path())), (vec![REPORTS.into()], vec![]));
            let mut expected = Vec::new();
            for i in 0..5_u64 {
                let bytes = Array::from_f64([3], DType::Bool, &[1.0, 0.0, 1.0]).unwrap();
                let floats = Array::new([2, 2], &[i as f32, 1.5, f32::NAN, -0.0]).unwrap();
                let named = vec![(format!("{i}/a"), bytes), (format!("{i}/é\""), floats)];
                expected.extend(named.clone());
                results.tensors(named).unwrap();
                results.report(&i).unwrap();
                assert_eq!(reports(folder.path()), (0..=i).collect::<Vec<_>>());
                if parts && i != 4 {
                    results.write_part(results.held.len()).unwrap();
                    let part = folder.path().join(format!("results.part-{i}.safetensors"));
                    assert_eq!(TensorFile::read(&part).unwrap().keys().count(), 2);
                }
            }
            let twice = results.tensors(vec![("1/a".to_owned(), Array::scalar(0.0))]).unwrap_err();
            assert_eq!(twice.code, "TwoTensors");
            results.finish().unwrap();
            assert_eq!(names(folder.path()), [REPORTS, TENSORS]);
            let file = TensorFile::read(&folder.path().join(TENSORS)).unwrap();
            assert_eq!(file.keys().count(), expected.len());
            for (key, array) in expected {
                let read = file.get(&key).unwrap();
                assert_eq!((read.meta(), read.to_bytes().unwrap()), (array.meta(), array.to_bytes().unwrap()), "{key}");
            }
        }
    }

    /// What is large does not stay in memory until the end.
    #[test]
    fn memory_holds_a_bounded_part() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::begin(folder.path()).unwrap();
        for i in 0..10 {
            let large = Array::zeros([4 << 20], DType::F32).unwrap();
            results.tensors(vec![(format!("{i}"), large)]).unwrap();
            assert!(results.held_bytes() <= MOST_HELD);
        }
        assert!(results.parts.len() >= 2);
        // A run that ended here would have left these; the next run begins anew.
        drop(results);
        assert!(names(folder.path()).len() > 2);
        Results::begin(folder.path()).unwrap().finish().unwrap();
        assert_eq!(names(folder.path()), [REPORTS, TENSORS]);
    }
    /// A folder that is not there for a while: what came before is written later, and what does not fit into memory
    /// meanwhile is the error of its own case.
    #[test]
    fn results_of_earlier_cases_outlive_a_failed_write() {
        let outer = tempfile::tempdir().unwrap();
        let folder = outer.path().join("results");
        let array = |value: f32, len: usize| Array::new([len], &vec![value; len]).unwrap();
        let large = MOST_HELD / 4;
        let mut results = Results::begin(&folder).unwrap();
        results.tensors(vec![("a".into(), array(1.0, 3))]).unwrap();
        results.tensors(vec![("b".into(), array(2.0, large / 2))]).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let error = results.tensors(vec![("c".into(), array(3.0, large)), ("d".into(), array(4.0, 1))]).unwrap_err();
        assert!(error.message.contains("results.part-0.safetensors"), "{}", error.message);
        assert!(results.held_bytes() <= MOST_HELD);
        // What fits is taken.
        results.tensors(vec![("e".into(), array(5.0, 2))]).unwrap();
        std::fs::create_dir(&folder).unwrap();
        // The name is free again: nothing of the failed case is there.
        results.tensors(vec![("d".into(), array(6.0, large))]).unwrap();
        assert_eq!(names(&folder), ["results.part-0.safetensors"]);
        results.finish().unwrap();
        let file = TensorFile::read(&folder.join(TENSORS)).unwrap();
        let mut keys: Vec<&str> = file.keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, ["a", "b", "d", "e"]);
        for (key, value, len) in [("a", 1.0, 3), ("b", 2.0, large / 2), ("e", 5.0, 2), ("d", 6.0, large)] {
            let read: Vec<f32> = file.get(key).unwrap().to_vec().unwrap();
            assert!(read.len() == len && read.iter().all(|own| *own == value), "{key}");
        }
        // What can be written nowhere is named.
        let mut results = Results::begin(&folder).unwrap();
        results.tensors(vec![("f".into(), array(1.0, 3))]).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let message = results.finish().unwrap_err().to_string();
        assert!(message.contains("1 results are lost: f"), "{message}");
    }
}
