//! Plans: a convolution with an engine of the library.

use super::super::super::error::{CudaError, Result};
use super::super::super::stream::Stream;
use super::super::descriptor::Descriptor;
use super::super::engines::{Engine, configurations, engine_of, name_of, pack_of, plan_of, whole_graph};
use super::super::library::Cudnn;
use super::super::planned::Planned;
use super::super::problem::ALIGNMENT;
use super::super::sys::{HeuristicsMode, notes};
use super::graph::{IDS, operation_of};
use super::problem::ConvolutionProblem;
use fulgurite_kernels::DType;
use fulgurite_kernels::launch::DeviceAddress;
use std::ffi::c_void;
use std::sync::Arc;

/// The addresses of a problem's tensors, each on a multiple of 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConvolutionOperands {
    /// Images, or their gradient.
    pub image: DeviceAddress,
    /// Weights, or their gradient.
    pub weight: DeviceAddress,
    /// The result, or its gradient.
    pub out: DeviceAddress,
    /// At least [`ConvolutionPlan::workspace_bytes`].
    pub workspace: DeviceAddress,
}

/// A convolution, ready to run any number of times, from any thread.
#[derive(Debug, Clone)]
pub struct ConvolutionPlan {
    // Dropped before the library, whose handle it names.
    planned: Arc<Planned>,
    library: Cudnn,
    problem: ConvolutionProblem,
}

impl ConvolutionPlan {
    /// A plan with the engine that was chosen, or else with the first one of the library's heuristics that may be used
    /// and needs at most [`ConvolutionProblem::workspace_bytes`]. `library` keeps it for the next plan of the same
    /// problem.
    ///
    /// # Errors
    /// [`CudaError::Convolution`] if the problem is none, or the library has no such engine for it on this device: then
    /// with what is in the way of each engine.
    pub fn new(library: &Cudnn, problem: &ConvolutionProblem) -> Result<ConvolutionPlan> {
        if let Some(planned) = library.planned_convolution(problem) {
            return Ok(ConvolutionPlan { planned, library: library.clone(), problem: problem.clone() });
        }
        let mut search = Search::default();
        let first = ConvolutionPlan::search(library, problem, &mut search, 1, None)?.into_iter().next();
        let plan = first.ok_or_else(|| CudaError::from(problem.refused(search.reason())))?;
        plan.keep();
        Ok(plan)
    }

    /// Plans with the engines that may be used, in the order of the library's heuristics, `most` at most.
    ///
    /// # Errors
    /// [`CudaError::Convolution`] if the problem is none; the driver's.
    pub fn candidates(library: &Cudnn, problem: &ConvolutionProblem, most: usize) -> Result<Vec<ConvolutionPlan>> {
        ConvolutionPlan::search(library, problem, &mut Search::default(), most, None)
    }

    /// The plan with the configuration of a [name](Self::name), if the library's heuristics name it.
    ///
    /// # Errors
    /// As [`Self::candidates`].
    pub fn named(library: &Cudnn, problem: &ConvolutionProblem, name: &str) -> Result<Option<ConvolutionPlan>> {
        let found = ConvolutionPlan::search(library, problem, &mut Search::default(), 1, Some(name))?;
        Ok(found.into_iter().next())
    }

    fn search(
        library: &Cudnn,
        problem: &ConvolutionProblem,
        search: &mut Search,
        most: usize,
        name: Option<&str>,
    ) -> Result<Vec<ConvolutionPlan>> {
        problem.check()?;
        let _current = library.context().enter()?;
        let operation = operation_of(problem)?;
        let whole = match whole_graph(library, &[&operation]) {
            Ok(whole) => whole,
            Err(error) => {
                search.note(error)?;
                return Ok(Vec::new());
            }
        };
        let mut found: Vec<ConvolutionPlan> = Vec::new();
        for mode in [HeuristicsMode::A, HeuristicsMode::Fallback] {
            // The others are slower, and there for what the first ones do not take.
            if !found.is_empty() {
                break;
            }
            let configurations = match configurations(&whole, mode) {
                Ok(configurations) => configurations,
                Err(error) => {
                    search.note(error)?;
                    continue;
                }
            };
            for configuration in configurations {
                match planned(library, problem, &configuration, name) {
                    Ok(Ok(planned)) => {
                        let planned = Arc::new(planned);
                        found.push(ConvolutionPlan { planned, library: library.clone(), problem: problem.clone() });
                        if found.len() == most {
                            return Ok(found);
                        }
                    }
                    Ok(Err(reason)) => search.reasons.push(reason),
                    Err(error) => search.note(error)?,
                }
            }
        }
        Ok(found)
    }

    /// Has the next plans of this problem be this one.
    pub(super) fn keep(&self) {
        self.library.keep_convolution(&self.problem, self.planned.clone());
    }

    /// The problem.
    pub fn problem(&self) -> &ConvolutionProblem {
        &self.problem
    }

    /// Workspace that a run needs, in bytes.
    pub fn workspace_bytes(&self) -> usize {
        self.planned.workspace_bytes
    }

    /// What the library's version knows the engine and its knobs by.
    pub fn name(&self) -> &str {
        &self.planned.configuration
    }

    /// Enqueues the work on `stream`, which may be recording a graph.
    ///
    /// # Errors
    /// [`CudaError::Convolution`] if a tensor has no address, or one that is not aligned; the library's otherwise.
    ///
    /// # Safety
    /// The tensors must be allocated, as large as the problem says, and used by no work that is not ordered with the
    /// stream. What is written, and the workspace, must not overlap anything else.
    pub unsafe fn run(&self, stream: &Stream, operands: &ConvolutionOperands) -> Result<()> {
        let ConvolutionOperands { image, weight, out, workspace } = *operands;
        let tensors = [("image", image), ("weight", weight), ("out", out)];
        let needed = (self.workspace_bytes() > 0).then_some(("workspace", workspace));
        for (name, address) in tensors.into_iter().chain(needed) {
            let refused = |reason: String| CudaError::from(self.problem.refused(reason));
            if address.is_null() {
                return Err(refused(format!("{name} has no address")));
            }
            if !address.0.is_multiple_of(ALIGNMENT as u64) {
                return Err(refused(format!("{name} is at {address:?}, no multiple of {ALIGNMENT} bytes")));
            }
        }
        let named = [0, 1, 2].map(|i| (IDS[i], tensors[i].1.0 as *mut c_void));
        // SAFETY: what the pointers are to is promised by the caller.
        let pack = unsafe { pack_of(&named, workspace) }?;
        // SAFETY: as above.
        unsafe { self.library.execute(stream, &self.planned.plan, &pack) }
            .map_err(|error| error.about(&format!("the {} by engine {}", self.problem, self.name())))
    }
}

/// Why engines are not used.
#[derive(Debug, Default)]
struct Search {
    reasons: Vec<String>,
}

/// Reasons that a message has.
const MOST_REASONS: usize = 12;

impl Search {
    /// An error of the library is a reason; others end the search.
    fn note(&mut self, error: CudaError) -> Result<()> {
        match error {
            CudaError::Cudnn { .. } => {
                self.reasons.push(error.to_string());
                Ok(())
            }
            error => Err(error),
        }
    }

    fn reason(mut self) -> String {
        self.reasons.dedup();
        let more = self.reasons.len().saturating_sub(MOST_REASONS);
        self.reasons.truncate(MOST_REASONS);
        match (self.reasons.is_empty(), more) {
            (true, _) => "no engine knows it".to_owned(),
            (false, 0) => self.reasons.join("; "),
            (false, more) => format!("{}; and {more} more", self.reasons.join("; ")),
        }
    }
}

/// Why an engine with such notes is not used for a problem.
fn objection(problem: &ConvolutionProblem, engine: &Engine) -> Option<&'static str> {
    let has = |note| engine.notes.contains(&note);
    let exact = !(problem.dtype == DType::F32 && problem.tf32);
    if has(notes::NONDETERMINISTIC) {
        return Some("gives other bits in every run");
    }
    if has(notes::REDUCED_PRECISION_SUMS) {
        return Some("adds in less than f32");
    }
    if has(notes::FFT) || notes::WINOGRAD.into_iter().any(has) {
        return Some("multiplies sums of elements, which lose digits");
    }
    if exact && has(notes::DOWN_CONVERTED_INPUTS) {
        return Some("rounds operands");
    }
    if exact && problem.dtype == DType::F32 && has(notes::TENSOR_CORE) {
        return Some("rounds operands to TF32");
    }
    None
}

/// A plan of a configuration, or why it is not used: among others, that it has not this name.
fn planned(
    library: &Cudnn,
    problem: &ConvolutionProblem,
    configuration: &Descriptor,
    wanted: Option<&str>,
) -> Result<Result<Planned, String>> {
    let Some(engine) = engine_of(configuration)? else { return Ok(Err("a configuration has no engine".into())) };
    let index = engine.index;
    if let Some(objection) = objection(problem, &engine) {
        return Ok(Err(format!("engine {index} {objection}")));
    }
    let name = name_of(configuration, &engine)?;
    if wanted.is_some_and(|wanted| wanted != name) {
        return Ok(Err(format!("engine {name} is another")));
    }
    let (plan, workspace_bytes) =
        plan_of(library, configuration).map_err(|error| error.about(&format!("engine {name}")))?;
    let room = problem.workspace_bytes();
    if workspace_bytes as u64 > room {
        return Ok(Err(format!("engine {name} needs {workspace_bytes} bytes of workspace, more than {room}")));
    }
    Ok(Ok(Planned { plan, workspace_bytes, engine: index, configuration: name }))
}

#[cfg(test)]
mod tests {
    use super::super::problem::ConvolutionPass;
    use super::super::problem::tests::good;
    use super::*;

    #[test]
    fn engines_that_round_more_or_differ_from_run_to_run_are_not_used() {
        let of = |dtype: DType, tf32: bool, notes: &[i32]| {
            let problem = ConvolutionProblem { dtype, tf32, ..good(ConvolutionPass::Forward) };
            objection(&problem, &Engine { index: 1, notes: notes.to_vec() })
        };
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
            assert_eq!(of(dtype, false, &[]), None);
            assert!(of(dtype, false, &[0, 4]).is_some_and(|reason| reason.contains("other bits")));
            for note in [2, 3, 5, 6, 7, 8] {
                assert!(of(dtype, false, &[note]).is_some(), "{dtype} {note}");
            }
            assert_eq!(of(dtype, false, &[1]), Some("rounds operands"));
            // Tensor cores multiply f64 as it is.
            assert_eq!(of(dtype, false, &[0]).is_some(), dtype == DType::F32, "{dtype}");
        }
        assert_eq!(of(DType::F32, true, &[0, 1]), None);
        assert!(of(DType::F32, true, &[0, 4]).is_some());
    }

    #[test]
    fn a_message_has_the_first_reasons() {
        assert_eq!(Search::default().reason(), "no engine knows it");
        let reasons = (0..20).map(|i| format!("engine {i} rounds operands")).collect();
        let reason = Search { reasons }.reason();
        assert!(reason.starts_with("engine 0 rounds") && reason.ends_with("; and 8 more"), "{reason}");
    }
}
