//! Which engine computes a convolution fastest on this device: measured once, kept in a record, used again.
//!
//! As algorithms of products, engines add in different orders, so that a choice is part of what makes a run
//! reproducible. It is pinned in a record (`convolutions/` beside the cache of kernels), one file a problem, which
//! names problem, model of the device and version of the library. Of processes that measure the same convolution at
//! once the first to write is followed by all. A record that is damaged, or whose engine the library no longer names,
//! is measured anew.

use std::path::{Path, PathBuf};

use super::super::super::KernelCache;
use super::super::super::context::Context;
use super::super::super::device::Device;
use super::super::super::error::{CudaError, Result};
use super::super::super::event::Event;
use super::super::super::measuring::{FIRST_RUNS, FLUSH_BYTES, RUNS, SMALLEST, file_name, fill, keep_close, median};
use super::super::super::memory::DeviceMemory;
use super::super::super::record;
use super::super::super::stream::Stream;
use super::super::library::Cudnn;
use super::plan::{ConvolutionOperands, ConvolutionPlan};
use super::problem::ConvolutionProblem;
use fulgurite_kernels::folder::Folder;
use fulgurite_kernels::launch::DeviceAddress;

/// Engines that are measured, of those that the heuristics rate best: they name up to forty, most of which are one
/// engine with other knobs.
const CANDIDATES: usize = 16;
/// Maximum size of all records, in bytes; the least recently used ones are removed.
const MOST_BYTES: u64 = 32 << 20;
const FIRST_LINE: &str = "fulgurite convolution 1";

/// Measures engines, in memory without other users.
#[derive(Debug)]
pub struct ConvolutionTuner<'a> {
    library: &'a Cudnn,
    stream: &'a Stream,
    scratch: (DeviceAddress, usize),
    folder: Option<Folder>,
}

impl<'a> ConvolutionTuner<'a> {
    /// With `bytes` bytes of scratch memory at `scratch`; records are kept beside the process's cache of kernels.
    ///
    /// # Safety
    /// The scratch memory must be allocated, start on a multiple of 256 bytes, and be used by no work that is not
    /// ordered with the stream, as long as the tuner lives. Its content is lost.
    pub unsafe fn new(
        library: &'a Cudnn,
        stream: &'a Stream,
        scratch: DeviceAddress,
        bytes: usize,
    ) -> ConvolutionTuner<'a> {
        let folder = KernelCache::global().folder().and_then(Path::parent).map(|folder| folder.join("convolutions"));
        let tuner = ConvolutionTuner { library, stream, scratch: (scratch, bytes), folder: None };
        match folder {
            Some(folder) => tuner.keep_in(folder),
            None => tuner,
        }
    }

    /// Keeps records in this folder.
    pub fn keep_in(self, folder: impl Into<PathBuf>) -> ConvolutionTuner<'a> {
        ConvolutionTuner { folder: Some(Folder::new(folder, MOST_BYTES)), ..self }
    }

    /// Has the plans of this problem use the fastest engine: the recorded one, or one that is measured now, in memory
    /// of the tuner's own where the scratch memory cannot hold the tensors. Small problems, and those whose tensors the
    /// device has no room for, stay with the heuristics.
    ///
    /// # Errors
    /// Those of the library or the driver. That a record cannot be kept is a warning.
    pub fn pin(&self, problem: &ConvolutionProblem) -> Result<()> {
        if problem.products() < SMALLEST || self.library.planned_convolution(problem).is_some() {
            return Ok(());
        }
        let version = self.library.version().map_or_else(|| "unknown".into(), |version| version.to_string());
        let subject = subject(problem, &version, self.library.context().device());
        let file = file_name(&subject);
        if let Some(folder) = &self.folder {
            let path = folder.path().join(&file);
            match read(folder, &file, &subject) {
                Ok(Some(name)) => match ConvolutionPlan::named(self.library, problem, &name)? {
                    Some(plan) => {
                        plan.keep();
                        return Ok(());
                    }
                    None => tracing::warn!("the library no longer takes the record {}", path.display()),
                },
                Ok(None) => {}
                Err(reason) => tracing::warn!("{} is damaged ({reason}); it is measured anew", path.display()),
            }
        }
        let Some(mut plan) = self.measure(problem)? else { return Ok(()) };
        if let Some(folder) = &self.folder {
            let good = |content: &[u8]| {
                let name = parse(std::str::from_utf8(content).ok()?, &subject).ok()?;
                ConvolutionPlan::named(self.library, problem, &name).ok()?
            };
            if let Some(first) = folder.keep_first(&file, text(&subject, plan.name()).as_bytes(), good) {
                tracing::debug!(%problem, "another process has chosen first");
                plan = first;
            }
        }
        plan.keep();
        Ok(())
    }

    /// The fastest of the heuristics' candidates; none if there is nothing to choose from.
    fn measure(&self, problem: &ConvolutionProblem) -> Result<Option<ConvolutionPlan>> {
        let candidates = ConvolutionPlan::candidates(self.library, problem, CANDIDATES)?;
        if let [only] = &candidates[..] {
            only.keep();
        }
        if candidates.len() < 2 {
            return Ok(None);
        }
        let context = self.stream.context();
        let Some(needed) = places(DeviceAddress::NULL, problem).map(|(_, used)| used) else { return Ok(None) };
        let own = if needed <= self.scratch.1 { None } else { own_memory(context, problem, needed)? };
        let scratch = match &own {
            Some(memory) => (memory.address(), needed + FLUSH_BYTES),
            None if needed <= self.scratch.1 => self.scratch,
            None => return Ok(None),
        };
        let Some((operands, used)) = places(scratch.0, problem) else { return Ok(None) };
        // SAFETY: the memory is this tuner's.
        unsafe { fill(self.stream, problem.dtype, scratch.0, used) }?;
        let (start, end) = (Event::timed(context)?, Event::timed(context)?);
        // What is behind the tensors is written between runs. Where that is little, the program's own memory is, and
        // stays in the cache when the program runs.
        let (behind, others) = (scratch.0.offset(used), (scratch.1 - used).min(FLUSH_BYTES));
        let run = |plan: &ConvolutionPlan| -> Result<f32> {
            // SAFETY: the scratch memory is this tuner's, and the tensors' parts of it do not overlap. `own` is dropped
            // at the end of this function: by then all runs have ended, each of which is waited for.
            unsafe {
                self.stream.fill_u8(behind, 0, others)?;
                start.record(self.stream)?;
                plan.run(self.stream, &operands)?;
            }
            end.record(self.stream)?;
            end.synchronize()?;
            end.milliseconds_since(&start)
        };
        let mut running: Vec<(ConvolutionPlan, Vec<f32>)> = Vec::new();
        for plan in candidates {
            // The first run loads the kernel. The heuristics may name engines that then do not run.
            match run(&plan) {
                Ok(_) => running.push((plan, Vec::with_capacity(RUNS))),
                Err(error @ CudaError::Cudnn { .. }) => tracing::info!(%error, "an engine is left out"),
                Err(error) => return Err(error),
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
        let best = running.into_iter().min_by(|(_, one), (_, other)| median(one).total_cmp(&median(other)));
        Ok(best.map(|(plan, times)| {
            tracing::debug!(%problem, microseconds = median(&times) * 1e3, engine = plan.name(), "measured");
            plan
        }))
    }
}

/// Places for the tensors and the workspace from `start` on, one after the other, and how many bytes they take.
fn places(start: DeviceAddress, problem: &ConvolutionProblem) -> Option<(ConvolutionOperands, usize)> {
    let mut end = 0usize;
    let mut take = |bytes: u64| {
        let place = start.offset(end);
        end = end.checked_add(usize::try_from(bytes).ok()?.checked_next_multiple_of(256)?)?;
        Some(place)
    };
    let operands = ConvolutionOperands {
        image: take(problem.bytes(&problem.image))?,
        weight: take(problem.bytes(&problem.weight))?,
        out: take(problem.bytes(&problem.out))?,
        workspace: take(problem.workspace_bytes())?,
    };
    Some((operands, end))
}

/// Memory for so many bytes and for what is written between runs; `None` if less is free, but for a sixteenth, which is
/// left to others.
fn own_memory(context: &Context, problem: &ConvolutionProblem, needed: usize) -> Result<Option<DeviceMemory>> {
    let Some(bytes) = needed.checked_add(FLUSH_BYTES) else { return Ok(None) };
    let free = context.memory_info()?.free;
    if bytes > free - free / 16 {
        tracing::info!(%problem, bytes, free, "a convolution is not measured: too little memory is free");
        return Ok(None);
    }
    match DeviceMemory::new(context, bytes) {
        Ok(memory) => Ok(Some(memory)),
        Err(error) if error.is_fatal() => Err(error),
        Err(error) => {
            tracing::info!(%error, %problem, "a convolution is not measured");
            Ok(None)
        }
    }
}

/// What a record belongs to. Devices of one model are as fast as one another, whatever their number in a process.
fn subject(problem: &ConvolutionProblem, version: &str, device: &Device) -> String {
    let Device { name, multiprocessors, .. } = device;
    let architecture = device.architecture();
    format!("{problem:?}, cuDNN {version}, {name} ({architecture}, {multiprocessors} multiprocessors)")
}

/// A record of an engine.
fn text(subject: &str, name: &str) -> String {
    record::text(FIRST_LINE, subject, &format!("engine: {name}\n"))
}

/// The engine's name in a record's text, or what is wrong with it.
fn parse(content: &str, subject: &str) -> Result<String, &'static str> {
    let mut lines = record::further(content, FIRST_LINE, subject)?;
    Ok(record::value(&mut lines, "engine: ")?.to_owned())
}

/// A record, if there is one.
fn read(folder: &Folder, file: &str, subject: &str) -> Result<Option<String>, String> {
    record::read(folder, file, |content| parse(content, subject))
}

#[cfg(test)]
mod tests {
    use super::super::problem::ConvolutionPass;
    use super::super::problem::tests::good;
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let whole = text("a convolution", "67, 2=5 13=0");
        assert_eq!(parse(&whole, "a convolution").as_deref(), Ok("67, 2=5 13=0"));
        assert_eq!(parse(&whole, "another"), Err("it belongs to another problem"));
    }

    #[test]
    fn tensors_are_measured_side_by_side() {
        let problem = good(ConvolutionPass::Forward);
        let (operands, used) = places(DeviceAddress(4096), &problem).unwrap();
        let ConvolutionOperands { image, weight, out, workspace } = operands;
        // 864 elements of two bytes, and 72.
        assert_eq!([image, weight, out].map(|place| place.0), [4096, 4096 + 1792, 4096 + 2048]);
        assert_eq!(used as u64, workspace.0 - 4096 + problem.workspace_bytes().next_multiple_of(256));
    }
}
