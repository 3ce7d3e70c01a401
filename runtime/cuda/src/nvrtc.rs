//! CUDA C++ to cubin, in the process: no toolkit, no driver and no device is needed.

use super::call::check_nvrtc;
use super::cubin::{self, KernelResources};
use super::diagnostics::{self, Diagnostic};
use super::error::{CudaError, Result};
use super::headers::{self, Included};
use super::library::{self, Version};
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use std::ffi::CString;
use std::ptr;

pub use super::error::CompileError;

/// A source and its options: everything that a cubin depends on, except NVRTC's version.
#[derive(Debug, Clone, Copy)]
pub struct Compilation<'a> {
    /// What messages call the source, such as `rms_norm.cu`.
    pub name: &'a str,
    /// CUDA C++. It may include [`super::HEADERS`], and no other headers.
    pub source: &'a str,
    /// The architecture compiled for: `sm_80`, `sm_90a`, ...
    pub architecture: &'a str,
    /// Further options, such as `-DROW=768` or `--fmad=false`.
    pub options: &'a [String],
}

/// A compiled source.
#[derive(Debug, Clone)]
pub struct Cubin {
    image: Vec<u8>,
    kernels: Vec<KernelResources>,
    log: String,
}

impl Cubin {
    /// From an image and the log of its compilation.
    pub fn new(image: Vec<u8>, log: String) -> Result<Cubin> {
        let mut kernels = cubin::kernels(&image)?;
        cubin::add_log(&mut kernels, &log);
        Ok(Cubin { image, kernels, log })
    }

    /// The ELF image that the driver loads.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// Each kernel of the image, sorted by name.
    pub fn kernels(&self) -> &[KernelResources] {
        &self.kernels
    }

    /// What the compilers said, warnings and the assembler's report among it.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// The warnings of the log, with their source lines.
    pub fn warnings(&self, compilation: &Compilation<'_>) -> Vec<Diagnostic> {
        let headers = headers_of(compilation).unwrap_or_default();
        diagnostics::parse(&self.log, compilation.name, compilation.source, &headers)
    }
}

/// Options given to every compilation; part of the cache's key. The language is pinned, since NVRTC's default moves;
/// the assembler's report is where spills are read from.
pub(super) const COMMON_OPTIONS: [&str; 2] = ["--std=c++17", "--ptxas-options=-v"];

/// NVRTC's version; [`CudaError::Unavailable`] without NVRTC.
pub fn version() -> Result<Version> {
    let nvrtc = library::nvrtc();
    nvrtc.require()?;
    Ok(nvrtc.version().unwrap_or(Version { major: 0, minor: 0, patch: 0 }))
}

/// Compiles a source. See [`super::KernelCache`] for not doing it twice.
///
/// # Errors
/// [`CudaError::Unavailable`] without NVRTC, [`CudaError::Compile`] for a mistake in the source, [`CudaError::Nvrtc`]
/// for an option or architecture that NVRTC does not know.
pub fn compile(compilation: &Compilation<'_>) -> Result<Cubin> {
    library::nvrtc().require()?;
    let headers = headers_of(compilation)?;
    let program = Program::new(compilation, &headers)?;
    let architecture = format!("--gpu-architecture={}", compilation.architecture);
    match program.compile(&architecture, compilation.options)? {
        Ok(log) => Cubin::new(program.output(sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)?, log),
        Err(log) => {
            let mut diagnostics = diagnostics::parse(&log, compilation.name, compilation.source, &headers);
            if let Some(lines) = diagnostics::ptx_lines(&log) {
                // The assembler names lines of the intermediate code: inline assembly, mostly. Show those lines.
                let ptx = intermediate(compilation, &headers).unwrap_or_default();
                diagnostics.extend(diagnostics::of_ptx(lines, &ptx));
            }
            let (name, architecture) = (compilation.name.to_owned(), compilation.architecture.to_owned());
            Err(Box::new(CompileError { name, architecture, diagnostics, log }).into())
        }
    }
}

/// The headers that a source includes.
pub(super) fn headers_of(compilation: &Compilation<'_>) -> Result<Vec<Included>> {
    headers::included(compilation.source).map_err(|text| CudaError::Nvrtc { call: "nvrtcCreateProgram", text })
}

/// The intermediate code (PTX) of a source.
fn intermediate(compilation: &Compilation<'_>, headers: &[Included]) -> Result<String> {
    let program = Program::new(compilation, headers)?;
    let architecture = format!("--gpu-architecture={}", compilation.architecture.replace("sm_", "compute_"));
    match program.compile(&architecture, compilation.options)? {
        Ok(_) => program.output(sys::nvrtcGetPTXSize, sys::nvrtcGetPTX).map(into_text),
        Err(log) => Err(CudaError::Nvrtc { call: "nvrtcCompileProgram", text: log }),
    }
}

/// Owns a program of NVRTC's.
struct Program(nvrtcProgram);

type SizeOf = unsafe fn(nvrtcProgram, *mut usize) -> nvrtcResult;
type WriteTo = unsafe fn(nvrtcProgram, *mut std::ffi::c_char) -> nvrtcResult;

impl Program {
    fn new(compilation: &Compilation<'_>, headers: &[Included]) -> Result<Program> {
        const CALL: &str = "nvrtcCreateProgram";
        let source = c_string(CALL, compilation.source)?;
        let name = c_string(CALL, compilation.name)?;
        let strings = |part: fn(&Included) -> &str| -> Result<Vec<CString>> {
            headers.iter().map(|header| c_string(CALL, part(header))).collect()
        };
        let (texts, names) = (strings(|header| &header.text)?, strings(|header| header.name)?);
        let pointers = |strings: &[CString]| strings.iter().map(|string| string.as_ptr()).collect::<Vec<_>>();
        let (text_pointers, name_pointers) = (pointers(&texts), pointers(&names));
        let mut program = ptr::null_mut();
        // SAFETY: NVRTC is loaded; it copies all strings during the call; both lists have as many pointers as it is
        // told, to strings that outlive the call.
        let code = unsafe {
            sys::nvrtcCreateProgram(
                &mut program,
                source.as_ptr(),
                name.as_ptr(),
                headers.len() as i32,
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        check_nvrtc(CALL, code)?;
        Ok(Program(program))
    }

    /// The log of a success or of a mistake in the source; other failures are errors.
    fn compile(&self, architecture: &str, further: &[String]) -> Result<Result<String, String>> {
        const CALL: &str = "nvrtcCompileProgram";
        let options = [architecture].into_iter().chain(COMMON_OPTIONS).chain(further.iter().map(String::as_str));
        let options = options.map(|option| c_string(CALL, option)).collect::<Result<Vec<CString>>>()?;
        let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program is alive, and the strings outlive the call.
        let code = unsafe { sys::nvrtcCompileProgram(self.0, pointers.len() as i32, pointers.as_ptr()) };
        let log = into_text(self.output(sys::nvrtcGetProgramLogSize, sys::nvrtcGetProgramLog)?);
        match check_nvrtc(CALL, code) {
            Ok(()) => Ok(Ok(log)),
            Err(_) if code == nvrtcResult::NVRTC_ERROR_COMPILATION => Ok(Err(log)),
            Err(CudaError::Nvrtc { call, text }) => {
                Err(CudaError::Nvrtc { call, text: format!("{text}: {}", log.trim()) })
            }
            Err(error) => Err(error),
        }
    }

    fn output(&self, size: SizeOf, write: WriteTo) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is alive; the pointer is valid for the call.
        check_nvrtc("nvrtcGet...Size", unsafe { size(self.0, &mut bytes) })?;
        let mut output = vec![0u8; bytes];
        // SAFETY: as above; the output has the size that NVRTC asked for.
        check_nvrtc("nvrtcGet...", unsafe { write(self.0, output.as_mut_ptr().cast()) })?;
        Ok(output)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is alive and not used afterwards. A failure leaks it, which is all that can be done.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

/// The text that NVRTC wrote, without the NUL that ends it.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

fn c_string(call: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| CudaError::Nvrtc { call, text: "a source or option has a NUL byte".into() })
}
