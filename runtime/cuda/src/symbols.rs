//! The functions that this crate calls, so that an old library is noticed before the first call: the bindings panic
//! where a symbol is missing.

/// Functions of the driver that are loaded.
pub(super) const DRIVER: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceTotalMem_v2",
    "cuDeviceCanAccessPeer",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuCtxGetStreamPriorityRange",
    "cuCtxEnablePeerAccess",
    "cuPointerGetAttribute",
    "cuMemAlloc_v2",
    "cuMemGetAddressRange_v2",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuMemsetD16Async",
    "cuMemsetD32Async",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamWaitEvent",
    "cuStreamBatchMemOp_v2",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuStreamGetCaptureInfo_v3",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuEventElapsedTime_v2",
    "cuEventDestroy_v2",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuModuleGetGlobal_v2",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuLaunchKernelEx",
    "cuGraphInstantiateWithFlags",
    "cuGraphGetNodes",
    "cuGraphGetEdges_v2",
    "cuGraphNodeGetType",
    "cuGraphKernelNodeGetParams_v2",
    "cuGraphMemcpyNodeGetParams",
    "cuGraphMemsetNodeGetParams",
    "cuGraphAddKernelNode_v2",
    "cuGraphAddDependencies_v2",
    "cuGraphDestroyNode",
    "cuGraphDestroy",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecKernelNodeSetParams_v2",
    "cuGraphExecMemcpyNodeSetParams",
    "cuGraphExecMemsetNodeSetParams",
    "cuGraphExecDestroy",
];

/// Functions of NVRTC that are loaded.
pub(super) const NVRTC: &[&str] = &[
    "nvrtcVersion",
    "nvrtcGetErrorString",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcCompileProgram",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetPTX",
    "nvrtcGetPTXSize",
];

/// Functions of cuBLASLt that are loaded.
pub(super) const CUBLASLT: &[&str] = &[
    "cublasLtGetVersion",
    "cublasLtGetStatusName",
    "cublasLtGetStatusString",
    "cublasLtCreate",
    "cublasLtDestroy",
    "cublasLtMatmul",
    "cublasLtMatmulAlgoGetHeuristic",
    "cublasLtMatmulAlgoCheck",
    "cublasLtMatmulAlgoConfigGetAttribute",
    "cublasLtMatmulDescCreate",
    "cublasLtMatmulDescDestroy",
    "cublasLtMatmulDescSetAttribute",
    "cublasLtMatrixLayoutCreate",
    "cublasLtMatrixLayoutDestroy",
    "cublasLtMatrixLayoutSetAttribute",
    "cublasLtMatmulPreferenceCreate",
    "cublasLtMatmulPreferenceDestroy",
    "cublasLtMatmulPreferenceSetAttribute",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Every name in the sources of this folder that starts like a function of one of the libraries.
    fn called(folder: &Path, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                called(&path, names);
            } else if path.file_name().unwrap() != "symbols.rs" {
                let source = std::fs::read_to_string(path).unwrap();
                let words = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
                let word = |word: &&str| word.len() < 50 && !word.contains('.');
                names.extend(words.filter(word).map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_function_that_is_called_is_listed_and_the_reverse() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda");
        if !folder.is_dir() {
            return println!("skipped: the sources are not here");
        }
        let mut names = BTreeSet::new();
        called(&folder, &mut names);
        let listed: BTreeSet<&str> = [DRIVER, NVRTC, CUBLASLT].concat().into_iter().collect();
        for symbol in &listed {
            assert!(names.contains(*symbol), "{symbol} is listed but not called");
        }
        let library = |name: &str, prefix: &str| {
            name.strip_prefix(prefix).is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_uppercase()) && !rest.ends_with("_t") && !rest.ends_with("_enum")
            })
        };
        for name in &names {
            let others = ["nvrtcProgram", "nvrtcResult", "cuBLASLt", "cuDNN"];
            if ["cu", "nvrtc", "cublasLt"].iter().any(|prefix| library(name, prefix))
                && !others.contains(&name.as_str())
            {
                assert!(listed.contains(name.as_str()), "{name} is called but not listed");
            }
        }
    }
}
