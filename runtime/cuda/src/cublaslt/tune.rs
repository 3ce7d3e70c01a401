//! Which algorithm computes a product fastest on this device: measured once, kept in a record, used again.
//!
//! The library's heuristics rate algorithms without running them; for products of a few microseconds their first answer
//! is often not the best. Algorithms add in different orders, so a choice is part of what makes a run reproducible: it
//! is pinned in a record (`products/` beside the cache of kernels), one file a problem, which names problem, model of
//! the device and version of the library. Of processes that measure the same product at once the first to write is
//! followed by all. A record that is damaged, or that the library no longer takes, is measured anew.

use std::path::{Path, PathBuf};

use super::super::KernelCache;
use super::super::context::Context;
use super::super::device::Device;
use super::super::error::Result;
use super::super::event::Event;
use super::super::measuring::{FIRST_RUNS, FLUSH_BYTES, RUNS, SMALLEST, file_name, fill, keep_close, median};
use super::super::memory::DeviceMemory;
use super::super::record;
use super::super::stream::Stream;
use super::algorithm::Algorithm;
use super::library::CublasLt;
use super::plan::{MatmulOperands, MatmulPlan};
use super::problem::{Operand, Problem};
use fulgurite_kernels::DType;
use fulgurite_kernels::folder::Folder;
use fulgurite_kernels::launch::DeviceAddress;

/// Algorithms that are measured, of those that the heuristics rate best. (On an H100 cuBLASLt 13.1 names at most 8 of
/// 16-bit products. 100 more configurations of their kernels were no faster.)
const CANDIDATES: usize = 64;
/// Maximum size of all records, in bytes; the least recently used ones are removed.
const MOST_BYTES: u64 = 32 << 20;
const FIRST_LINE: &str = "fulgurite product 2";

/// Measures algorithms, in memory without other users.
#[derive(Debug)]
pub struct Tuner<'a> {
    library: &'a CublasLt,
    stream: &'a Stream,
    scratch: (DeviceAddress, usize),
    folder: Option<Folder>,
}

impl<'a> Tuner<'a> {
    /// With `bytes` bytes of scratch memory at `scratch`; records are kept beside the process's cache of kernels.
    ///
    /// # Safety
    /// The scratch memory must be allocated, start on a multiple of 256 bytes, and be used by no work that is not
    /// ordered with the stream, as long as the tuner lives. Its content is lost.
    pub unsafe fn new(library: &'a CublasLt, stream: &'a Stream, scratch: DeviceAddress, bytes: usize) -> Tuner<'a> {
        let folder = KernelCache::global().folder().and_then(Path::parent).map(|folder| folder.join("products"));
        let tuner = Tuner { library, stream, scratch: (scratch, bytes), folder: None };
        match folder {
            Some(folder) => tuner.keep_in(folder),
            None => tuner,
        }
    }

    /// Keeps records in this folder.
    pub fn keep_in(self, folder: impl Into<PathBuf>) -> Tuner<'a> {
        Tuner { folder: Some(Folder::new(folder, MOST_BYTES)), ..self }
    }

    /// Has the plans of this problem use the fastest algorithm: the recorded one, or one that is measured now, in
    /// memory of the tuner's own where the scratch memory cannot hold the operands. Small problems, and those whose
    /// operands the device has no room for, stay with the heuristics.
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
        let file = file_name(&subject);
        if let Some(folder) = &self.folder {
            let path = folder.path().join(&file);
            match read(folder, &file, &subject) {
                Ok(Some(algorithm)) => match self.taken(problem, workspace_bytes, &algorithm) {
                    Some(algorithm) => {
                        self.library.choose(problem, workspace_bytes, &algorithm);
                        return Ok(());
                    }
                    None => tracing::warn!("the library no longer takes the record {}", path.display()),
                },
                Ok(None) => {}
                Err(reason) => tracing::warn!("{} is damaged ({reason}); it is measured anew", path.display()),
            }
        }
        let Some(mut algorithm) = self.measure(problem, workspace_bytes)? else { return Ok(()) };
        if let Some(folder) = &self.folder {
            let good = |content: &[u8]| {
                let recorded = parse(std::str::from_utf8(content).ok()?, &subject).ok()?;
                self.taken(problem, workspace_bytes, &recorded)
            };
            if let Some(first) = folder.keep_first(&file, text(&subject, &algorithm).as_bytes(), good) {
                tracing::debug!(%problem, "another process has chosen first");
                algorithm = first;
            }
        }
        self.library.choose(problem, workspace_bytes, &algorithm);
        Ok(())
    }

    /// A recorded algorithm as the library takes it, if it does.
    fn taken(&self, problem: &Problem, workspace_bytes: usize, recorded: &Algorithm) -> Option<Algorithm> {
        let plan = MatmulPlan::with_algorithm(self.library, problem, recorded).ok()?;
        (plan.workspace_bytes() <= workspace_bytes).then(|| plan.algorithm().clone())
    }

    /// What a record belongs to.
    fn subject(&self, problem: &Problem, workspace_bytes: usize) -> String {
        let version = self.library.version().map_or_else(|| "unknown".into(), |version| version.to_string());
        subject(problem, workspace_bytes, &version, self.library.context().device())
    }

    /// The fastest of the heuristics' candidates; none if there is nothing to choose from.
    ///
    /// All candidates run once in each round, so that clocks that fall as the device gets warm fall for all of them.
    /// Those that are clearly slower leave after the first rounds.
    fn measure(&self, problem: &Problem, workspace_bytes: usize) -> Result<Option<Algorithm>> {
        let candidates = MatmulPlan::candidates(self.library, problem, workspace_bytes, CANDIDATES)?;
        if candidates.len() < 2 {
            return Ok(None);
        }
        let context = self.stream.context();
        let room = match operands(self.scratch, problem, workspace_bytes) {
            Some(found) => Some((None, self.scratch, found)),
            None => own_room(context, problem, workspace_bytes)?,
        };
        // `_own` is dropped at the end of this function. By then all runs have ended: each is waited for.
        let Some((_own, scratch, (operands, used))) = room else { return Ok(None) };
        let (start, end) = (Event::timed(context)?, Event::timed(context)?);
        self.fill(problem.d.dtype, problem.a.dtype, &operands, (scratch.0, used))?;
        // What is behind the operands is written between runs. Where that is little, the program's own memory is, and
        // stays in the cache when the program runs.
        let (behind, others) = (scratch.0.offset(used), (scratch.1 - used).min(FLUSH_BYTES));
        let run = |plan: &MatmulPlan| -> Result<f32> {
            // SAFETY: the scratch memory is this tuner's, and the operands' parts of it do not overlap.
            unsafe {
                self.stream.fill_u8(behind, 0, others)?;
                start.record(self.stream)?;
                plan.run(self.stream, &operands, 1.0)?;
            }
            end.record(self.stream)?;
            end.synchronize()?;
            end.milliseconds_since(&start)
        };
        let mut running: Vec<(MatmulPlan, Vec<f32>)> = Vec::new();
        for algorithm in candidates {
            // The heuristics name algorithms that the library then does not take.
            let Ok(plan) = MatmulPlan::with_algorithm(self.library, problem, &algorithm) else { continue };
            if plan.workspace_bytes() <= workspace_bytes {
                // The first run loads the kernel.
                run(&plan)?;
                running.push((plan, Vec::with_capacity(RUNS)));
            }
        }
        for round in 1..=RUNS {
            for (plan, times) in &mut running {
                times.push(run(plan)?);
            }
            if round == FIRST_RUNS {
                keep_close(&mut running);
            }
        }
        let best = running.iter().min_by(|(_, one), (_, other)| median(one).total_cmp(&median(other)));
        if let Some((plan, times)) = best {
            let (microseconds, split_k) = (median(times) * 1e3, plan.algorithm().split_k);
            tracing::debug!(%problem, microseconds, split_k, close = running.len(), "measured a product");
        }
        Ok(best.map(|(plan, _)| plan.algorithm().clone()))
    }

    /// Fills so many bytes of the scratch memory from where it starts with random numbers between -1 and 1 of the
    /// operands' type, and what has the result's type, if that is another, with those. (Products of zeros take less
    /// power, and finish sooner.)
    fn fill(
        &self,
        result: DType,
        operand: DType,
        operands: &MatmulOperands,
        (start, used): (DeviceAddress, usize),
    ) -> Result<()> {
        let at = |address: DeviceAddress| (address.0 - start.0) as usize;
        // In order of their places: d, c, a, b, bias, aux, workspace, factors.
        let (a, bias) = (at(operands.a), at(operands.bias));
        // SAFETY: all of it is this tuner's scratch memory.
        unsafe {
            fill(self.stream, result, start, a)?;
            fill(self.stream, operand, operands.a, bias - a)?;
            fill(self.stream, result, operands.bias, used - bias)
        }
    }
}

/// Places for the operands in so many bytes at `start`, one after the other, and where they end; `None` if they do not
/// fit.
fn operands(
    (start, bytes): (DeviceAddress, usize),
    problem: &Problem,
    workspace_bytes: usize,
) -> Option<(MatmulOperands, usize)> {
    let mut end = 0usize;
    let mut take = |needed: usize| {
        let place = end;
        end = end.checked_add(needed.checked_next_multiple_of(256)?)?;
        (end <= bytes).then(|| start.offset(place))
    };
    let Problem { m, n, k, batch, .. } = *problem;
    let size = problem.d.dtype.size();
    let operands = MatmulOperands {
        d: take(extent(&problem.d, m, n, batch)?)?,
        c: if problem.accumulate { take(extent(&problem.d, m, n, batch)?)? } else { DeviceAddress::NULL },
        a: take(extent(&problem.a, m, k, batch)?)?,
        b: take(extent(&problem.b, k, n, batch)?)?,
        bias: take(problem.bias_len().checked_mul(size)?)?,
        aux: if problem.epilogue.has_aux() { take(extent(&problem.d, m, n, batch)?)? } else { DeviceAddress::NULL },
        workspace: take(workspace_bytes)?,
        factors: match problem.formats {
            Some(_) => [take(size_of::<f32>())?, take(size_of::<f32>())?],
            None => [DeviceAddress::NULL; 2],
        },
    };
    Some((operands, end))
}

/// Where a problem is measured: memory of the tuner's own, if it is not the scratch memory; its start and bytes; the
/// places of the operands in it, and where they end.
type Room = (Option<DeviceMemory>, (DeviceAddress, usize), (MatmulOperands, usize));

/// Memory for the operands of a problem and for what is written between runs; `None` if less is free, but for a
/// sixteenth, which is left to others.
fn own_room(context: &Context, problem: &Problem, workspace_bytes: usize) -> Result<Option<Room>> {
    let all = operands((DeviceAddress::NULL, usize::MAX), problem, workspace_bytes);
    let Some(bytes) = all.and_then(|(_, used)| used.checked_add(FLUSH_BYTES)) else { return Ok(None) };
    let free = context.memory_info()?.free;
    if bytes > free - free / 16 {
        tracing::info!(%problem, bytes, free, "a product is not measured: too little memory is free");
        return Ok(None);
    }
    match DeviceMemory::new(context, bytes) {
        Ok(memory) => {
            let scratch = (memory.address(), bytes);
            Ok(operands(scratch, problem, workspace_bytes).map(|found| (Some(memory), scratch, found)))
        }
        Err(error) if error.is_fatal() => Err(error),
        Err(error) => {
            tracing::info!(%error, %problem, "a product is not measured");
            Ok(None)
        }
    }
}

/// Bytes from the first element of an operand of `rows x columns` to behind its last.
fn extent(operand: &Operand, rows: usize, columns: usize, batch: usize) -> Option<usize> {
    let (rows, columns) = operand.stored(rows, columns);
    let last = (batch - 1).checked_mul(operand.batch_stride)?;
    let elements = last.checked_add((rows - 1).checked_mul(operand.leading)?)?.checked_add(columns)?;
    elements.checked_mul(operand.dtype.size())
}

/// What a record belongs to. Devices of one model are as fast as one another, whatever their number in a process.
fn subject(problem: &Problem, workspace_bytes: usize, version: &str, device: &Device) -> String {
    let Device { name, multiprocessors, .. } = device;
    let architecture = device.architecture();
    format!(
        "{problem:?}, {workspace_bytes} bytes of workspace, cuBLASLt {version}, {name} ({architecture}, \
         {multiprocessors} multiprocessors)"
    )
}

/// A record of an algorithm.
fn text(subject: &str, algorithm: &Algorithm) -> String {
    let encoding: Vec<String> = algorithm.encoding.iter().map(|word| format!("{word:016x}")).collect();
    let Algorithm { workspace_bytes, split_k, .. } = algorithm;
    let encoding = encoding.join(" ");
    let further = format!("algorithm: {encoding}\nworkspace: {workspace_bytes}\nsplit_k: {split_k}\n");
    record::text(FIRST_LINE, subject, &further)
}

/// The algorithm of a record's text, or what is wrong with it.
fn parse(content: &str, subject: &str) -> Result<Algorithm, &'static str> {
    let mut lines = record::further(content, FIRST_LINE, subject)?;
    let mut value = |key: &str| record::value(&mut lines, key);
    let words: Vec<u64> =
        value("algorithm: ")?.split(' ').filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
    let encoding = words.try_into().map_err(|_| "the algorithm is not eight numbers")?;
    let workspace_bytes = value("workspace: ")?.parse().map_err(|_| "the workspace is no number")?;
    let split_k = value("split_k: ")?.parse().map_err(|_| "split_k is no number")?;
    Ok(Algorithm { encoding, workspace_bytes, waves: 0.0, split_k })
}

/// A record, if there is one.
fn read(folder: &Folder, file: &str, subject: &str) -> Result<Option<Algorithm>, String> {
    record::read(folder, file, |content| parse(content, subject))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_kernels::DType;

    fn algorithm() -> Algorithm {
        Algorithm { encoding: [1, 2, u64::MAX, 4, 5, 6, 7, 8], workspace_bytes: 4096, waves: 0.0, split_k: 3 }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let home = tempfile::tempdir().unwrap();
        let folder = Folder::new(home.path().join("below"), MOST_BYTES);
        let file = file_name("a product");
        assert_eq!(read(&folder, &file, "a product"), Ok(None));
        let good = |content: &[u8]| parse(std::str::from_utf8(content).ok()?, "a product").ok();
        assert_eq!(folder.keep_first(&file, text("a product", &algorithm()).as_bytes(), good), None);
        assert_eq!(read(&folder, &file, "a product"), Ok(Some(algorithm())));
        assert!(read(&folder, &file, "another").unwrap_err().contains("another problem"));
        // Later writers get the first one's algorithm.
        let other = Algorithm { split_k: 9, ..algorithm() };
        assert_eq!(folder.keep_first(&file, text("a product", &other).as_bytes(), good), Some(algorithm()));
        assert_eq!(read(&folder, &file, "a product"), Ok(Some(algorithm())));
    }

    #[test]
    fn a_record_belongs_to_a_model_of_devices() {
        let device = |ordinal: usize, name: &str, multiprocessors: u32| Device {
            ordinal,
            name: name.into(),
            compute_capability: (9, 0),
            memory_bytes: 1 << 36,
            multiprocessors,
            l2_bytes: 1 << 25,
            shared_bytes_per_block: 232_448,
            shared_bytes_per_multiprocessor: 233_472,
            threads_per_multiprocessor: 2048,
        };
        let problem = Problem::contiguous(DType::F32, 256, 256, 256);
        let of = |device: Device, version: &str| subject(&problem, 1024, version, &device);
        let one = of(device(0, "A", 132), "13.0.1");
        assert_eq!(one, of(device(3, "A", 132), "13.0.1"));
        assert_ne!(one, of(device(0, "B", 132), "13.0.1"));
        assert_ne!(one, of(device(0, "A", 114), "13.0.1"));
        assert_ne!(one, of(device(0, "A", 132), "13.0.2"));
        let aligned = Problem { bias_alignment: 16, ..problem.clone() };
        assert_ne!(one, subject(&aligned, 1024, "13.0.1", &device(0, "A", 132)));
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
