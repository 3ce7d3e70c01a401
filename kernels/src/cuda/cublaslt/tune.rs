//! Which algorithm computes a product fastest on this device: measured once, kept in a record, used again.
//!
//! The library's heuristics rate algorithms without running them; for products of a few microseconds their first answer is
//! often not the best. Algorithms add in different orders, so a choice is part of what makes a run reproducible: it is
//! pinned in a record (`products/` beside the cache of kernels), one file a problem, which names problem, device
//! and version of the library. A record that is damaged, or that the library no longer takes, is measured anew.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::super::KernelCache;
use super::super::error::Result;
use super::super::event::Event;
use super::super::memory::DeviceAddress;
use super::super::stream::Stream;
use super::CublasLt;
use super::plan::{Algorithm, MatmulOperands, MatmulPlan};
use super::problem::{Operand, Problem};

/// Smaller products, in multiplications, are left to the heuristics: what there is to win is less than what measuring costs.
const SMALLEST: usize = 5_000_000;
/// Algorithms that are measured, of those that the heuristics rate best.
const CANDIDATES: usize = 12;
/// Runs of each algorithm; the median counts.
const RUNS: usize = 7;
/// What is written between runs, so that operands come from memory as they do in a training step: more than the L2 cache.
const FLUSH_BYTES: usize = 128 << 20;
const FIRST_LINE: &str = "fulgurite product 1";

/// Measures algorithms, in memory that nobody else uses meanwhile.
#[derive(Debug)]
pub struct Tuner<'a> {
    library: &'a CublasLt,
    stream: &'a Stream,
    scratch: (DeviceAddress, usize),
    folder: Option<PathBuf>,
}

impl<'a> Tuner<'a> {
    /// With `bytes` bytes of scratch memory at `scratch`; records are kept beside the process's cache of kernels.
    ///
    /// # Safety
    /// The scratch memory must be allocated, start on a multiple of 256 bytes, and be used by no work that is not ordered with
    /// the stream, as long as the tuner lives. Its content is lost.
    pub unsafe fn new(library: &'a CublasLt, stream: &'a Stream, scratch: DeviceAddress, bytes: usize) -> Tuner<'a> {
        let folder = KernelCache::global().folder().and_then(Path::parent).map(|folder| folder.join("products"));
        Tuner { library, stream, scratch: (scratch, bytes), folder }
    }

    /// Keeps records in this folder.
    pub fn keep_in(self, folder: impl Into<PathBuf>) -> Tuner<'a> {
        Tuner { folder: Some(folder.into()), ..self }
    }

    /// Has the plans of this problem use the fastest algorithm: the recorded one, or one that is measured now. Small problems,
    /// and those whose operands the scratch memory cannot hold, stay with the heuristics.
    ///
    /// # Errors
    /// Those of the library or the driver. That a record cannot be kept is a warning.
    pub fn pin(&self, problem: &Problem, workspace_bytes: usize) -> Result<()> {
        let products =
            [problem.m, problem.n, problem.k, problem.batch].iter().fold(1usize, |a, b| a.saturating_mul(*b));
        if products < SMALLEST || self.library.chosen(problem, workspace_bytes).is_some() {
            return Ok(());
        }
        let subject = self.subject(problem, workspace_bytes);
        let path = self.folder.as_ref().map(|folder| folder.join(file_name(&subject)));
        if let Some(path) = &path {
            match read(path, &subject) {
                Ok(Some(algorithm)) => match MatmulPlan::with_algorithm(self.library, problem, &algorithm) {
                    Ok(plan) if plan.workspace_bytes() <= workspace_bytes => {
                        self.library.choose(problem, workspace_bytes, plan.algorithm());
                        return Ok(());
                    }
                    _ => tracing::warn!("the library no longer takes the record {}", path.display()),
                },
                Ok(None) => {}
                Err(reason) => tracing::warn!("{} is damaged ({reason}); it is measured anew", path.display()),
            }
        }
        let Some(algorithm) = self.measure(problem, workspace_bytes)? else { return Ok(()) };
        if let Some(path) = &path
            && let Err(error) = write(path, &subject, &algorithm)
        {
            tracing::warn!("the record {} cannot be kept: {error}", path.display());
        }
        self.library.choose(problem, workspace_bytes, &algorithm);
        Ok(())
    }

    /// What a record belongs to.
    fn subject(&self, problem: &Problem, workspace_bytes: usize) -> String {
        let version = self.library.version().map_or_else(|| "unknown".into(), |version| version.to_string());
        let device = self.library.context().device();
        format!("{problem:?}, {workspace_bytes} bytes of workspace, cuBLASLt {version}, {device}")
    }

    /// The fastest of the heuristics' candidates; none if there is nothing to choose from.
    fn measure(&self, problem: &Problem, workspace_bytes: usize) -> Result<Option<Algorithm>> {
        let candidates = MatmulPlan::candidates(self.library, problem, workspace_bytes, CANDIDATES)?;
        let Some(operands) = self.operands(problem, workspace_bytes) else { return Ok(None) };
        if candidates.len() < 2 {
            return Ok(None);
        }
        let context = self.stream.context();
        let (start, end) = (Event::timed(context)?, Event::timed(context)?);
        // SAFETY: the scratch memory is this tuner's.
        unsafe { self.stream.fill_u8(self.scratch.0, 0, self.scratch.1) }?;
        let mut best: Option<(f32, Algorithm)> = None;
        for algorithm in candidates {
            // The heuristics name algorithms that the library then does not take.
            let Ok(plan) = MatmulPlan::with_algorithm(self.library, problem, &algorithm) else { continue };
            if plan.workspace_bytes() > workspace_bytes {
                continue;
            }
            let mut times = Vec::with_capacity(RUNS);
            // The first run loads the kernel.
            for run in 0..=RUNS {
                // SAFETY: the scratch memory is this tuner's, and the operands' parts of it do not overlap.
                unsafe {
                    self.stream.fill_u8(self.scratch.0, 0, self.scratch.1.min(FLUSH_BYTES))?;
                    start.record(self.stream)?;
                    plan.run(self.stream, &operands, 1.0)?;
                }
                end.record(self.stream)?;
                end.synchronize()?;
                if run > 0 {
                    times.push(end.milliseconds_since(&start)?);
                }
            }
            times.sort_by(f32::total_cmp);
            let median = times[RUNS / 2];
            if best.as_ref().is_none_or(|(least, _)| median < *least) {
                best = Some((median, plan.algorithm().clone()));
            }
        }
        if let Some((milliseconds, algorithm)) = &best {
            tracing::debug!(%problem, microseconds = milliseconds * 1e3, split_k = algorithm.split_k, "measured a product");
        }
        Ok(best.map(|(_, algorithm)| algorithm))
    }

    /// Places for the operands, one after the other; `None` if they do not fit.
    fn operands(&self, problem: &Problem, workspace_bytes: usize) -> Option<MatmulOperands> {
        let mut end = 0usize;
        let mut take = |bytes: usize| {
            let start = end;
            end = end.checked_add(bytes.checked_next_multiple_of(256)?)?;
            (end <= self.scratch.1).then(|| self.scratch.0.offset(start))
        };
        let Problem { m, n, k, batch, .. } = *problem;
        let size = problem.d.dtype.size();
        Some(MatmulOperands {
            d: take(extent(&problem.d, m, n, batch)?)?,
            c: if problem.accumulate { take(extent(&problem.d, m, n, batch)?)? } else { DeviceAddress::NULL },
            a: take(extent(&problem.a, m, k, batch)?)?,
            b: take(extent(&problem.b, k, n, batch)?)?,
            bias: take(problem.bias_len().checked_mul(size)?)?,
            aux: if problem.epilogue.has_aux() { take(extent(&problem.d, m, n, batch)?)? } else { DeviceAddress::NULL },
            workspace: take(workspace_bytes)?,
        })
    }
}

/// Bytes from the first element of an operand of `rows x columns` to behind its last.
fn extent(operand: &Operand, rows: usize, columns: usize, batch: usize) -> Option<usize> {
    let (rows, columns) = operand.stored(rows, columns);
    let last = (batch - 1).checked_mul(operand.batch_stride)?;
    let elements = last.checked_add((rows - 1).checked_mul(operand.leading)?)?.checked_add(columns)?;
    elements.checked_mul(operand.dtype.size())
}

fn file_name(subject: &str) -> String {
    format!("{}.txt", blake3::hash(subject.as_bytes()).to_hex())
}

/// Text that people can read: what it belongs to, the algorithm, and a checksum of the lines before it.
fn text(subject: &str, algorithm: &Algorithm) -> String {
    let encoding: Vec<String> = algorithm.encoding.iter().map(|word| format!("{word:016x}")).collect();
    let Algorithm { workspace_bytes, split_k, .. } = algorithm;
    let lines = format!(
        "{FIRST_LINE}\nof: {subject}\nalgorithm: {}\nworkspace: {workspace_bytes}\nsplit_k: {split_k}\n",
        encoding.join(" ")
    );
    let checksum = blake3::hash(lines.as_bytes()).to_hex();
    format!("{lines}checksum: {checksum}\n")
}

/// The algorithm of a record's text, or what is wrong with it.
fn parse(content: &str, subject: &str) -> Result<Algorithm, &'static str> {
    let (lines, checksum) = content.split_once("checksum: ").ok_or("it has no checksum")?;
    if checksum.trim_end() != blake3::hash(lines.as_bytes()).to_hex().as_str() {
        return Err("wrong checksum");
    }
    let mut rest = lines.lines();
    let mut value = |key: &str| rest.next().and_then(|line| line.strip_prefix(key)).ok_or("a line is missing");
    value(FIRST_LINE)?;
    if value("of: ")? != subject {
        return Err("it belongs to another problem");
    }
    let words: Vec<u64> =
        value("algorithm: ")?.split(' ').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
    let encoding = words.try_into().map_err(|_| "the algorithm is not eight numbers")?;
    let workspace_bytes = value("workspace: ")?.parse().map_err(|_| "the workspace is no number")?;
    let split_k = value("split_k: ")?.parse().map_err(|_| "split_k is no number")?;
    Ok(Algorithm { encoding, workspace_bytes, waves: 0.0, split_k })
}

/// A record, if there is one.
fn read(path: &Path, subject: &str) -> Result<Option<Algorithm>, String> {
    match fs::read_to_string(path) {
        Ok(content) => parse(&content, subject).map(Some).map_err(str::to_owned),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Writes a record so that it is there as a whole or not at all.
fn write(path: &Path, subject: &str, algorithm: &Algorithm) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text(subject, algorithm).as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn algorithm() -> Algorithm {
        Algorithm { encoding: [1, 2, u64::MAX, 4, 5, 6, 7, 8], workspace_bytes: 4096, waves: 0.0, split_k: 3 }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below").join(file_name("a product"));
        assert_eq!(read(&path, "a product"), Ok(None));
        write(&path, "a product", &algorithm()).unwrap();
        assert_eq!(read(&path, "a product"), Ok(Some(algorithm())));
        assert!(read(&path, "another").unwrap_err().contains("another problem"));
    }

    #[test]
    fn every_damage_is_noticed() {
        let whole = text("a product", &algorithm());
        assert!(parse(&whole, "a product").is_ok());
        for end in 0..whole.len() - 1 {
            assert!(parse(&whole[..end], "a product").is_err(), "cut off at {end}");
        }
        for at in 0..whole.len() - 1 {
            let mut bytes = whole.clone().into_bytes();
            bytes[at] ^= 1;
            let damaged = String::from_utf8(bytes).unwrap();
            assert!(parse(&damaged, "a product").is_err(), "changed at {at}");
        }
    }

    #[test]
    fn the_extent_of_an_operand_ends_behind_its_last_element() {
        let plain = Operand::contiguous(DType::F32, 3, 5);
        assert_eq!(extent(&plain, 3, 5, 1), Some(60));
        assert_eq!(extent(&plain, 3, 5, 2), Some(120));
        let wide = Operand { leading: 8, ..plain };
        assert_eq!(extent(&wide, 3, 5, 1), Some((2 * 8 + 5) * 4));
        let transposed = Operand { transposed: true, leading: 3, ..plain };
        assert_eq!(extent(&transposed, 3, 5, 1), Some(60));
        assert_eq!(extent(&Operand { leading: usize::MAX / 2, ..plain }, 3, 5, 1), None);
    }
}
