//! The library's descriptors, owned by values.

use super::super::error::Result;
use super::library::cublaslt;
use super::problem::{Compute, Epilogue, Format, Operand, Problem};
use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtEpilogue_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t as OperationAttribute, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatrixLayout_t,
    cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cublasLtReductionScheme_t, cudaDataType,
};
use fulgurite_kernels::DType;
use std::ptr;

/// The numbers that `alpha` and `beta` are passed as.
pub(super) fn scale_type(compute: Compute) -> cudaDataType {
    if compute == Compute::F64 { cudaDataType::CUDA_R_64F } else { cudaDataType::CUDA_R_32F }
}

fn data_type(dtype: DType, format: Option<Format>) -> cudaDataType {
    match format {
        Some(Format::E4M3) => return cudaDataType::CUDA_R_8F_E4M3,
        Some(Format::E5M2) => return cudaDataType::CUDA_R_8F_E5M2,
        None => {}
    }
    match dtype {
        DType::F64 => cudaDataType::CUDA_R_64F,
        DType::BF16 => cudaDataType::CUDA_R_16BF,
        DType::F16 => cudaDataType::CUDA_R_16F,
        // `Problem::check` lets no other pass.
        _ => cudaDataType::CUDA_R_32F,
    }
}

fn compute_type(compute: Compute) -> cublasComputeType_t {
    match compute {
        Compute::F32 => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        Compute::Tf32 => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
        Compute::F64 => cublasComputeType_t::CUBLAS_COMPUTE_64F,
    }
}

/// The library's A is our B, and the reverse.
fn epilogue(epilogue: Epilogue) -> cublasLtEpilogue_t {
    match epilogue {
        Epilogue::None => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
        Epilogue::Bias => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
        Epilogue::Gelu => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU,
        Epilogue::GeluBias => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_BIAS,
        Epilogue::GeluAux => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_AUX,
        Epilogue::GeluAuxBias => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        Epilogue::DGelu => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DGELU,
        Epilogue::DGeluBiasGrad => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DGELU_BGRAD,
        Epilogue::BiasGradA => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BGRADB,
        Epilogue::BiasGradB => cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BGRADA,
    }
}

/// The library's description of an operation.
#[derive(Debug)]
pub(super) struct Operation(cublasLtMatmulDesc_t);

impl Operation {
    pub(super) fn new(problem: &Problem) -> Result<Operation> {
        let mut raw = ptr::null_mut();
        // SAFETY: the library is loaded: there is a handle. The pointer is valid for the call.
        unsafe {
            cublaslt!(cublasLtMatmulDescCreate(&mut raw, compute_type(problem.compute), scale_type(problem.compute)))
        }?;
        let operation = Operation(raw);
        // The library's operands are ours, exchanged.
        operation.set(OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(problem.b.transposed))?;
        operation.set(OperationAttribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(problem.a.transposed))?;
        operation.set(OperationAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(problem.epilogue) as u32)?;
        if problem.epilogue.has_aux() {
            let (leading, stride) = (problem.d.leading as i64, problem.d.batch_stride as i64);
            operation.set(OperationAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading)?;
            operation.set(OperationAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, stride)?;
        }
        Ok(operation)
    }

    /// The addresses of the epilogue's vector and matrix. They are part of the descriptor, so a shared descriptor must
    /// be locked.
    pub(super) fn set_pointers(&mut self, bias: Option<u64>, aux: Option<u64>) -> Result<()> {
        if let Some(bias) = bias {
            self.set(OperationAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)?;
        }
        aux.map_or(Ok(()), |aux| self.set(OperationAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux))
    }

    /// The addresses of the factors of our operands of 8 bits.
    pub(super) fn set_factors(&mut self, [a, b]: [u64; 2]) -> Result<()> {
        self.set(OperationAttribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b)?;
        self.set(OperationAttribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a)
    }

    fn set<T: Copy>(&self, attribute: OperationAttribute, value: T) -> Result<()> {
        let bytes = size_of::<T>();
        // SAFETY: the descriptor is alive; the library copies `bytes` bytes of the value, and checks their number.
        unsafe { cublaslt!(cublasLtMatmulDescSetAttribute(self.0, attribute, ptr::from_ref(&value).cast(), bytes)) }
    }

    pub(super) fn raw(&self) -> cublasLtMatmulDesc_t {
        self.0
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: made in `new`, and not used afterwards. It is host memory: it cannot fail in a way that matters.
        let _ = unsafe { cublaslt!(cublasLtMatmulDescDestroy(self.0)) };
    }
}

/// The layout of a matrix.
#[derive(Debug)]
pub(super) struct Layout(cublasLtMatrixLayout_t);

impl Layout {
    /// The layout of an operand that represents `rows x columns`; its elements are of `format` if they are of 8 bits.
    pub(super) fn new(
        operand: &Operand,
        format: Option<Format>,
        rows: usize,
        columns: usize,
        batch: usize,
    ) -> Result<Layout> {
        let (rows, columns) = operand.stored(rows, columns);
        let mut raw = ptr::null_mut();
        let (leading, stride) = (operand.leading as i64, operand.batch_stride as i64);
        // A row in memory is a column to the library.
        // SAFETY: the library is loaded: there is a handle. The pointer is valid for the call.
        unsafe {
            let dtype = data_type(operand.dtype, format);
            cublaslt!(cublasLtMatrixLayoutCreate(&mut raw, dtype, columns as u64, rows as u64, leading))
        }?;
        let layout = Layout(raw);
        layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batch as i32)?;
        layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride)?;
        Ok(layout)
    }

    fn set<T: Copy>(&self, attribute: LayoutAttribute, value: T) -> Result<()> {
        let bytes = size_of::<T>();
        // SAFETY: the layout is alive; the library copies `bytes` bytes of the value, and checks their number.
        unsafe { cublaslt!(cublasLtMatrixLayoutSetAttribute(self.0, attribute, ptr::from_ref(&value).cast(), bytes)) }
    }

    pub(super) fn raw(&self) -> cublasLtMatrixLayout_t {
        self.0
    }
}

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: as for `Operation`.
        let _ = unsafe { cublaslt!(cublasLtMatrixLayoutDestroy(self.0)) };
    }
}

/// Which algorithms come into question.
pub(super) struct Preference(cublasLtMatmulPreference_t);

impl Preference {
    pub(super) fn new(problem: &Problem, workspace_bytes: usize) -> Result<Preference> {
        let mut raw = ptr::null_mut();
        // SAFETY: the library is loaded: there is a handle. The pointer is valid for the call.
        unsafe { cublaslt!(cublasLtMatmulPreferenceCreate(&mut raw)) }?;
        let preference = Preference(raw);
        preference.set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes as u64)?;
        // Splits of k are summed from the workspace, or there are none.
        let scheme = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, scheme)?;
        // The library's A is our B.
        let [a, b] = [&problem.b, &problem.a].map(|operand| operand.batch_alignment(problem.batch));
        let stored = problem.stored_alignment();
        let alignments = [
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, a),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, b),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, stored),
            (PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, stored),
        ];
        for (attribute, alignment) in alignments {
            preference.set(attribute, alignment as u32)?;
        }
        Ok(preference)
    }

    fn set<T: Copy>(&self, attribute: PreferenceAttribute, value: T) -> Result<()> {
        let bytes = size_of::<T>();
        // SAFETY: the preference is alive; the library copies `bytes` bytes of the value, and checks their number.
        unsafe {
            cublaslt!(cublasLtMatmulPreferenceSetAttribute(self.0, attribute, ptr::from_ref(&value).cast(), bytes))
        }
    }

    pub(super) fn raw(&self) -> cublasLtMatmulPreference_t {
        self.0
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: as for `Operation`.
        let _ = unsafe { cublaslt!(cublasLtMatmulPreferenceDestroy(self.0)) };
    }
}
