//! Plans: a problem with its descriptors and a chosen algorithm.

use super::super::error::{CudaError, Result};
use super::super::stream::Stream;
use super::algorithm::Algorithm;
use super::descriptor::{Layout, Operation, Preference};
use super::library::{CublasLt, cublaslt};
use super::problem::{Compute, Problem};
use cudarc::cublaslt::sys::{
    cublasLtMatmulAlgo_t, cublasLtMatmulAlgoConfigAttributes_t as Configuration, cublasLtMatmulHeuristicResult_t,
    cublasStatus_t,
};
use fulgurite_kernels::launch::DeviceAddress;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

/// The addresses of a product's operands. What a problem does not use is [`DeviceAddress::NULL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MatmulOperands {
    /// The `m x k` operand.
    pub a: DeviceAddress,
    /// The `k x n` operand.
    pub b: DeviceAddress,
    /// What is added if the problem accumulates; may be `d`. (With elements of 16 bits many of the library's algorithms
    /// then give other bits than in memory of its own, as seen on an H200: the product is rounded before the sum.)
    pub c: DeviceAddress,
    /// The result.
    pub d: DeviceAddress,
    /// The epilogue's vector.
    pub bias: DeviceAddress,
    /// The epilogue's matrix.
    pub aux: DeviceAddress,
    /// At least [`MatmulPlan::workspace_bytes`], on a multiple of 256 bytes.
    pub workspace: DeviceAddress,
    /// The factors of `a` and `b`, an f32 each, of products of 8 bits.
    pub factors: [DeviceAddress; 2],
}

/// A product, ready to run any number of times, from any thread.
#[derive(Debug)]
pub struct MatmulPlan {
    library: CublasLt,
    problem: Problem,
    descriptors: Descriptors,
    algorithm: Algorithm,
}

#[derive(Debug)]
struct Descriptors {
    /// Locked while a run sets its pointers and enqueues.
    operation: Mutex<Operation>,
    a: Layout,
    b: Layout,
    d: Layout,
}

// SAFETY: descriptors are host memory tied to no thread; the one that is changed is locked.
unsafe impl Send for Descriptors {}
// SAFETY: as above.
unsafe impl Sync for Descriptors {}

impl Descriptors {
    fn new(problem: &Problem) -> Result<Descriptors> {
        problem.check()?;
        let Problem { m, n, k, batch, .. } = *problem;
        Ok(Descriptors {
            operation: Mutex::new(Operation::new(problem)?),
            a: Layout::new(&problem.a, problem.formats.map(|[a, _]| a), m, k, batch)?,
            b: Layout::new(&problem.b, problem.formats.map(|[_, b]| b), k, n, batch)?,
            d: Layout::new(&problem.d, None, m, n, batch)?,
        })
    }

    /// The heuristics' first `most` answers that are valid, best first.
    fn candidates(
        &self,
        library: &CublasLt,
        problem: &Problem,
        workspace: usize,
        most: usize,
    ) -> Result<Vec<Algorithm>> {
        let preference = Preference::new(problem, workspace)?;
        // SAFETY: plain numbers, for which zero is a value.
        let mut results: Vec<cublasLtMatmulHeuristicResult_t> = vec![unsafe { std::mem::zeroed() }; most.max(1)];
        let mut found = 0;
        let operation = self.operation.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the handle and all descriptors are alive; the library writes at most `results.len()` results.
        let answer = unsafe {
            cublaslt!(cublasLtMatmulAlgoGetHeuristic(
                library.bound()?.raw,
                operation.raw(),
                self.b.raw(),
                self.a.raw(),
                self.d.raw(),
                self.d.raw(),
                preference.raw(),
                results.len() as i32,
                results.as_mut_ptr(),
                &mut found,
            ))
        };
        match answer {
            Ok(()) => {}
            // "Not supported" is what the library says when nothing fits.
            Err(CudaError::Cublaslt { name, .. }) if name.ends_with("NOT_SUPPORTED") => found = 0,
            Err(error) => return Err(error),
        }
        results.truncate(found.max(0) as usize);
        results.iter().filter(|result| result.state == cublasStatus_t::CUBLAS_STATUS_SUCCESS).map(describe).collect()
    }
}

fn describe(result: &cublasLtMatmulHeuristicResult_t) -> Result<Algorithm> {
    let mut split_k = 0u32;
    let (attribute, bytes) = (Configuration::CUBLASLT_ALGO_CONFIG_SPLITK_NUM, size_of::<u32>());
    let to = (&raw mut split_k).cast::<c_void>();
    // SAFETY: the algorithm came from the library, which writes the four bytes of this attribute.
    unsafe {
        cublaslt!(cublasLtMatmulAlgoConfigGetAttribute(&result.algo, attribute, to, bytes, std::ptr::null_mut()))
    }?;
    Ok(Algorithm {
        encoding: result.algo.data,
        workspace_bytes: result.workspaceSize,
        waves: result.wavesCount,
        split_k: split_k.max(1),
    })
}

impl MatmulPlan {
    /// A plan with the algorithm that the library's heuristics rate best among those that need at most
    /// `workspace_bytes` of workspace. The choice is kept by `library` for the next plan of the same problem.
    ///
    /// # Errors
    /// [`CudaError::Problem`] if the problem is none or the library has no algorithm for it.
    pub fn new(library: &CublasLt, problem: &Problem, workspace_bytes: usize) -> Result<MatmulPlan> {
        let descriptors = Descriptors::new(problem)?;
        let algorithm = match library.chosen(problem, workspace_bytes) {
            Some(algorithm) => algorithm,
            None => {
                let none = || problem.refused("cuBLASLt has no algorithm for it on this device");
                let found = descriptors.candidates(library, problem, workspace_bytes, 4)?;
                let best = found.into_iter().next().ok_or_else(none)?;
                library.choose(problem, workspace_bytes, &best);
                best
            }
        };
        Ok(MatmulPlan { library: library.clone(), problem: problem.clone(), descriptors, algorithm })
    }

    /// The heuristics' first `most` algorithms for a problem, best first; fewer if there are fewer. For measuring them.
    pub fn candidates(
        library: &CublasLt,
        problem: &Problem,
        workspace_bytes: usize,
        most: usize,
    ) -> Result<Vec<Algorithm>> {
        Descriptors::new(problem)?.candidates(library, problem, workspace_bytes, most)
    }

    /// A plan with a given algorithm, after the library said that it can compute the problem with it.
    ///
    /// # Errors
    /// [`CudaError::Problem`] if it cannot: the algorithm is another problem's, device's or version's.
    pub fn with_algorithm(library: &CublasLt, problem: &Problem, algorithm: &Algorithm) -> Result<MatmulPlan> {
        let descriptors = Descriptors::new(problem)?;
        let raw = cublasLtMatmulAlgo_t { data: algorithm.encoding };
        // SAFETY: plain numbers, for which zero is a value.
        let mut result: cublasLtMatmulHeuristicResult_t = unsafe { std::mem::zeroed() };
        let operation = descriptors.operation.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the handle and all descriptors are alive; the pointers are valid for the call.
        let checked = unsafe {
            cublaslt!(cublasLtMatmulAlgoCheck(
                library.bound()?.raw,
                operation.raw(),
                descriptors.b.raw(),
                descriptors.a.raw(),
                descriptors.d.raw(),
                descriptors.d.raw(),
                &raw,
                &mut result,
            ))
        };
        drop(operation);
        checked.map_err(|error| problem.refused(format!("the recorded algorithm does not fit: {error}")))?;
        let algorithm = Algorithm { workspace_bytes: result.workspaceSize, ..algorithm.clone() };
        Ok(MatmulPlan { library: library.clone(), problem: problem.clone(), descriptors, algorithm })
    }

    /// The problem.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// Workspace that a run needs, in bytes.
    pub fn workspace_bytes(&self) -> usize {
        self.algorithm.workspace_bytes
    }

    /// Enqueues the product on `stream`, scaled by `alpha` before anything is added.
    ///
    /// # Errors
    /// [`CudaError::Problem`] if an operand that the problem needs has no address, or an address is not aligned as the
    /// problem says; the library's otherwise.
    ///
    /// # Safety
    /// The operands must be allocated, with the extents that the problem says, and used by no work that is not ordered
    /// with the stream. `d`, written vectors and matrices, and the workspace must not overlap anything else, except
    /// that `c` may be `d`.
    pub unsafe fn run(&self, stream: &Stream, operands: &MatmulOperands, alpha: f64) -> Result<()> {
        self.check(operands)?;
        let problem = &self.problem;
        let beta = f64::from(u8::from(problem.accumulate));
        let (wide, narrow) = ([alpha, beta], [alpha as f32, beta as f32]);
        let scales: [*const c_void; 2] = match problem.compute {
            Compute::F64 => [(&raw const wide[0]).cast(), (&raw const wide[1]).cast()],
            Compute::F32 | Compute::Tf32 => [(&raw const narrow[0]).cast(), (&raw const narrow[1]).cast()],
        };
        let c = if problem.accumulate { operands.c } else { operands.d };
        let algorithm = cublasLtMatmulAlgo_t { data: self.algorithm.encoding };
        let mut operation = self.descriptors.operation.lock().unwrap_or_else(PoisonError::into_inner);
        let used = |address: DeviceAddress, is_used: bool| is_used.then_some(address.0);
        operation.set_pointers(
            used(operands.bias, problem.epilogue.has_bias()),
            used(operands.aux, problem.epilogue.has_aux()),
        )?;
        if problem.formats.is_some() {
            operation.set_factors(operands.factors.map(|factor| factor.0))?;
        }
        let pointer = |address: DeviceAddress| address.0 as *mut c_void;
        // SAFETY: handle, descriptors and stream are alive; the scales are read during the call; the rest is promised
        // by the caller.
        unsafe {
            cublaslt!(cublasLtMatmul(
                self.library.bound()?.raw,
                operation.raw(),
                scales[0],
                pointer(operands.b),
                self.descriptors.b.raw(),
                pointer(operands.a),
                self.descriptors.a.raw(),
                scales[1],
                pointer(c),
                self.descriptors.d.raw(),
                pointer(operands.d),
                self.descriptors.d.raw(),
                &algorithm,
                pointer(operands.workspace),
                self.algorithm.workspace_bytes,
                stream.bound()?.raw.cast(),
            ))
        }
    }

    fn check(&self, operands: &MatmulOperands) -> Result<()> {
        let problem = &self.problem;
        let (d, epilogue) = (&problem.d, problem.epilogue);
        let needed = [
            ("a", operands.a, true, problem.a.alignment),
            ("b", operands.b, true, problem.b.alignment),
            ("c", operands.c, problem.accumulate, d.alignment),
            ("d", operands.d, true, d.alignment),
            ("bias", operands.bias, epilogue.has_bias(), problem.bias_alignment),
            ("aux", operands.aux, epilogue.has_aux(), problem.aux_alignment),
            ("workspace", operands.workspace, self.algorithm.workspace_bytes > 0, 256),
            ("the factor of a", operands.factors[0], problem.formats.is_some(), size_of::<f32>()),
            ("the factor of b", operands.factors[1], problem.formats.is_some(), size_of::<f32>()),
        ];
        for (name, address, is_used, alignment) in needed {
            if is_used && address.is_null() {
                return Err(problem.refused(format!("{name} has no address")).into());
            }
            let alignment = alignment.min(256);
            if is_used && !address.0.is_multiple_of(alignment as u64) {
                let reason = format!("{name} is at {address:?}, no multiple of {alignment} bytes");
                return Err(problem.refused(reason).into());
            }
        }
        Ok(())
    }
}
