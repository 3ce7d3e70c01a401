//! Plans: a problem's graph with the engine that the library chose.

use super::super::error::{CudaError, Result};
use super::super::library::Version;
use super::super::stream::Stream;
use super::attention::{UNSEEN, graph_of, ids};
use super::descriptor::Descriptor;
use super::engines::{configurations, engine_of, pack_of, plan_of, whole_graph};
use super::library::Cudnn;
use super::planned::Planned;
use super::problem::{ALIGNMENT, Pass, Problem, ProblemError};
use super::sys::{HeuristicsMode, notes};
use fulgurite_kernels::launch::DeviceAddress;
use std::ffi::c_void;
use std::sync::Arc;

/// The addresses of a problem's operands, each on a multiple of 16 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttentionOperands {
    /// The tensors of heads, in the order of [`Pass`].
    pub heads: Vec<DeviceAddress>,
    /// The logarithms of rows' sums, f32 [batch, heads, queries]; not of [`Pass::Alone`].
    pub log_sums: DeviceAddress,
    /// Backward: room for one f32 for each element of `log_sums`.
    pub row_sums: DeviceAddress,
    /// At least [`AttentionPlan::workspace_bytes`].
    pub workspace: DeviceAddress,
}

/// Attention, ready to run any number of times, from any thread.
#[derive(Debug, Clone)]
pub struct AttentionPlan {
    // Dropped before the library, whose handle it names.
    planned: Arc<Planned>,
    library: Cudnn,
    problem: Problem,
}

impl AttentionPlan {
    /// A plan with the first engine of the library's heuristics that computes the problem with the same bits in every
    /// run and with at most [`Problem::workspace_bytes`]. `library` keeps it for the next plan of the same problem.
    ///
    /// # Errors
    /// [`CudaError::Attention`] if the problem is none, or the library has no such engine for it on this device.
    pub fn new(library: &Cudnn, problem: &Problem) -> Result<AttentionPlan> {
        problem.check()?;
        check_version(library.version(), problem)?;
        let planned = match library.planned(problem) {
            Some(planned) => planned,
            None => {
                let _current = library.context().enter()?;
                let planned = Arc::new(plan(library, problem)?);
                library.keep(problem, planned.clone());
                planned
            }
        };
        Ok(AttentionPlan { library: library.clone(), problem: problem.clone(), planned })
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Workspace that a run needs, in bytes.
    pub fn workspace_bytes(&self) -> usize {
        self.planned.workspace_bytes
    }

    /// The number of the library's engine.
    pub fn engine(&self) -> i64 {
        self.planned.engine
    }

    /// Enqueues the work on `stream`, which may be recording a graph; scores are multiplied by `scale`.
    ///
    /// # Errors
    /// [`CudaError::Attention`] if an operand that the problem needs has no address, or one that is not aligned; the
    /// library's otherwise.
    ///
    /// # Safety
    /// The operands must be allocated, with the extents and strides that the problem says, and used by no work that is
    /// not ordered with the stream. What is written, and the workspace, must not overlap anything else.
    pub unsafe fn run(&self, stream: &Stream, operands: &AttentionOperands, scale: f32) -> Result<()> {
        let tensors = self.tensors(operands)?;
        // The library reads these during the call.
        let numbers = [(ids::SCALE, scale), (ids::UNSEEN, UNSEEN), (ids::ONE, 1.0)];
        let is_used = |id: i64| match id {
            ids::UNSEEN => self.problem.is_causal,
            ids::ONE => self.problem.pass == Pass::Backward,
            _ => true,
        };
        let mut named: Vec<(i64, *mut c_void)> =
            tensors.iter().map(|(id, address)| (*id, address.0 as *mut c_void)).collect();
        let used = numbers.iter().filter(|(id, _)| is_used(*id));
        named.extend(used.map(|(id, value)| (*id, (&raw const *value).cast_mut().cast())));
        // SAFETY: what the pointers are to is promised by the caller, or alive until the end.
        let pack = unsafe { pack_of(&named, operands.workspace) }?;
        // SAFETY: as above.
        unsafe { self.library.execute(stream, &self.planned.plan, &pack) }
    }

    /// The tensors in memory with their ids, checked.
    fn tensors(&self, operands: &AttentionOperands) -> Result<Vec<(i64, DeviceAddress)>> {
        let roles = self.problem.pass.roles();
        let refused = |reason: String| CudaError::from(self.problem.refused(reason));
        if operands.heads.len() != roles.len() {
            let reason = format!("{} tensors of heads are given, expected {}", operands.heads.len(), roles.len());
            return Err(refused(reason));
        }
        let heads = roles.iter().zip(&operands.heads).enumerate();
        let mut named: Vec<(&str, i64, DeviceAddress)> =
            heads.map(|(i, (role, address))| (role.name, ids::FIRST_HEADS + i as i64, *address)).collect();
        if self.problem.pass.has_log_sums() {
            named.push(("log_sums", ids::LOG_SUMS, operands.log_sums));
        }
        if self.problem.pass == Pass::Backward {
            named.push(("row_sums", ids::ROW_SUMS, operands.row_sums));
        }
        let workspace = ("workspace", 0, operands.workspace);
        let needed = named.iter().chain((self.workspace_bytes() > 0).then_some(&workspace));
        for (name, _, address) in needed {
            if address.is_null() {
                return Err(refused(format!("{name} has no address")));
            }
            if !address.0.is_multiple_of(ALIGNMENT as u64) {
                return Err(refused(format!("{name} is at {address:?}, no multiple of {ALIGNMENT} bytes")));
            }
        }
        Ok(named.into_iter().map(|(_, id, address)| (id, address)).collect())
    }
}

/// The first version whose backward pass takes any number of keys.
const ANY_KEYS: Version = Version { major: 9, minor: 16, patch: 0 };

/// Keys that earlier versions take together.
pub const KEYS_TOGETHER: usize = 128;

/// Refuses what a version computes wrongly.
fn check_version(version: Option<Version>, problem: &Problem) -> Result<(), Box<ProblemError>> {
    let keys = problem.keys;
    let (false, Pass::Backward) = (keys.is_multiple_of(KEYS_TOGETHER), problem.pass) else { return Ok(()) };
    match version {
        Some(version) if version < ANY_KEYS => Err(problem.refused(format!(
            "{keys} keys are no multiple of {KEYS_TOGETHER}, which gradients need in version {version}"
        ))),
        _ => Ok(()),
    }
}

/// Has the library plan a problem.
fn plan(library: &Cudnn, problem: &Problem) -> Result<Planned> {
    let graph = graph_of(problem)?;
    let none = |error: CudaError| match error {
        CudaError::Cudnn { ref name, .. } if name.contains("NOT_SUPPORTED") => {
            problem.refused(error.to_string()).into()
        }
        error => error,
    };
    let whole = whole_graph(library, &graph.operations()).map_err(none)?;
    let mut reasons = Vec::new();
    for configuration in configurations(&whole, HeuristicsMode::A).map_err(none)? {
        match planned(library, &configuration) {
            Ok(Ok(planned)) if planned.workspace_bytes as u64 <= problem.workspace_bytes() => return Ok(planned),
            Ok(Ok(planned)) => reasons.push(format!(
                "engine {} needs {} bytes of workspace, more than {}",
                planned.engine,
                planned.workspace_bytes,
                problem.workspace_bytes()
            )),
            Ok(Err(reason)) => reasons.push(reason),
            Err(error @ CudaError::Cudnn { .. }) => reasons.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let reason = if reasons.is_empty() { "no engine knows it".to_owned() } else { reasons.join("; ") };
    Err(problem.refused(reason).into())
}

/// A plan of a configuration, or why it is not used.
fn planned(library: &Cudnn, configuration: &Descriptor) -> Result<Result<Planned, String>> {
    let Some(engine) = engine_of(configuration)? else { return Ok(Err("a configuration has no engine".into())) };
    let index = engine.index;
    if engine.notes.contains(&notes::NONDETERMINISTIC) {
        return Ok(Err(format!("engine {index} gives other bits in every run")));
    }
    let (plan, workspace_bytes) = plan_of(library, configuration)?;
    Ok(Ok(Planned { plan, workspace_bytes, engine: index, configuration: index.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::super::problem::tests::good;
    use super::*;

    #[test]
    fn keys_that_a_version_computes_wrongly_are_refused() {
        let old = Version { major: 9, minor: 14, patch: 0 };
        let mut problem = good(Pass::Backward);
        assert_eq!(check_version(Some(old), &problem), Ok(()));
        problem.keys = 200;
        let error = check_version(Some(old), &problem).unwrap_err().to_string();
        assert!(error.ends_with("200 keys are no multiple of 128, which gradients need in version 9.14"), "{error}");
        assert_eq!(check_version(Some(ANY_KEYS), &problem), Ok(()));
        problem.pass = Pass::Forward;
        assert_eq!(check_version(Some(old), &problem), Ok(()));
    }
}
