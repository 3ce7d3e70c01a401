//! NVIDIA's libraries: loaded where they are found, with their versions. Absence is a value with a reason.
//!
//! The bindings panic when a library or one of its symbols is missing, so nothing calls into a library before the
//! functions here have said that it is there and has what this crate uses.

use super::call::{check_nvrtc, driver};
use super::collectives::sys::Functions as NcclFunctions;
use super::cudnn::Functions;
use super::error::{CudaError, Result};
use super::library_files::{self, LIBRARIES_VARIABLE};
use super::symbols;
use cudarc::{cublaslt, driver as cuda, nvrtc};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A version as libraries number theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch == 0 { Ok(()) } else { write!(f, ".{}", self.patch) }
    }
}

impl Version {
    /// From `major * 10000 + minor * 100 + patch`, as cuBLASLt, cuDNN and NCCL number themselves.
    fn from_decimal(number: usize) -> Version {
        let number = number as u32;
        Version { major: number / 10_000, minor: number / 100 % 100, patch: number % 100 }
    }
}

/// One of CUDA's libraries on this machine.
#[derive(Debug, Clone)]
pub struct Library {
    /// What people call it: `CUDA driver`, `NVRTC`, `cuBLASLt`, `NCCL`, `cuDNN`.
    pub name: &'static str,
    /// Whether it can be used.
    pub state: LibraryState,
}

/// Whether a library can be used, and if not, why.
#[derive(Debug, Clone)]
pub enum LibraryState {
    /// It is loaded and has every function that this crate calls.
    Found {
        /// Its file, where the system tells.
        path: Option<PathBuf>,
        /// Its version, where it tells.
        version: Option<Version>,
    },
    /// It cannot be used.
    Missing {
        /// What was found out.
        reason: String,
        /// What to do about it.
        advice: String,
    },
}

impl Library {
    /// Whether it can be used.
    pub fn is_found(&self) -> bool {
        matches!(self.state, LibraryState::Found { .. })
    }

    /// Its version, if it can be used and tells.
    pub fn version(&self) -> Option<Version> {
        match self.state {
            LibraryState::Found { version, .. } => version,
            LibraryState::Missing { .. } => None,
        }
    }

    /// `Ok` if it can be used, otherwise [`CudaError::Unavailable`].
    pub fn require(&self) -> Result<()> {
        match &self.state {
            LibraryState::Found { .. } => Ok(()),
            LibraryState::Missing { reason, advice } => {
                Err(CudaError::Unavailable { library: self.name, reason: reason.clone(), advice: advice.clone() })
            }
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            LibraryState::Missing { reason, advice } => write!(f, "{}: missing: {reason}; {advice}", self.name),
            LibraryState::Found { path, version } => {
                write!(f, "{}:", self.name)?;
                if let Some(version) = version {
                    write!(f, " {version}")?;
                }
                path.as_ref().map_or(Ok(()), |path| write!(f, " ({})", path.display()))
            }
        }
    }
}

/// The driver, initialized.
pub fn driver() -> &'static Library {
    static STATE: OnceLock<Library> = OnceLock::new();
    STATE.get_or_init(|| {
        let bound = Bound {
            name: "CUDA driver",
            stem: "cuda",
            companion: None,
            folders: library_files::driver_folders,
            present: cuda::sys::is_culib_present,
            library: cuda::sys::culib,
            symbols: symbols::DRIVER,
            advice: "install NVIDIA's driver, and in a container pass the device through",
        };
        bound.load(|| {
            let mut version: c_int = 0;
            // SAFETY: the library is loaded and has both functions; the pointer is valid for the call.
            unsafe {
                driver!(cuInit(0))?;
                driver!(cuDriverGetVersion(&mut version))?;
            }
            let version = version as u32;
            Ok(Version { major: version / 1000, minor: version % 1000 / 10, patch: 0 })
        })
    })
}

/// The run-time compiler. It needs no driver and no device.
pub fn nvrtc() -> &'static Library {
    static STATE: OnceLock<Library> = OnceLock::new();
    STATE.get_or_init(|| {
        let bound = Bound {
            name: "NVRTC",
            stem: "nvrtc",
            companion: Some("libnvrtc-builtins.so"),
            folders: library_files::usual_folders,
            present: nvrtc::sys::is_culib_present,
            library: nvrtc::sys::culib,
            symbols: symbols::NVRTC,
            advice: "`pip install nvidia-cuda-nvrtc` or a CUDA toolkit provides it",
        };
        bound.load(|| {
            let (mut major, mut minor): (c_int, c_int) = (0, 0);
            // SAFETY: the library is loaded and has the function; the pointers are valid for the call.
            let code = unsafe { nvrtc::sys::nvrtcVersion(&mut major, &mut minor) };
            check_nvrtc("nvrtcVersion", code)?;
            Ok(Version { major: major as u32, minor: minor as u32, patch: 0 })
        })
    })
}

/// cuBLASLt. It needs a driver to do anything.
pub fn cublaslt() -> &'static Library {
    static STATE: OnceLock<Library> = OnceLock::new();
    STATE.get_or_init(|| {
        let bound = Bound {
            name: "cuBLASLt",
            stem: "cublasLt",
            companion: None,
            folders: library_files::usual_folders,
            present: cublaslt::sys::is_culib_present,
            library: cublaslt::sys::culib,
            symbols: symbols::CUBLASLT,
            advice: "`pip install nvidia-cublas` or a CUDA toolkit provides it",
        };
        // SAFETY: the library is loaded and has the function, which takes nothing.
        bound.load(|| Ok(Version::from_decimal(unsafe { cublaslt::sys::cublasLtGetVersion() })))
    })
}

/// NCCL. It needs a driver to do anything.
pub fn nccl() -> &'static Library {
    &opened_nccl().0
}

/// The functions of NCCL.
///
/// # Errors
/// [`CudaError::Unavailable`] without the library.
pub(super) fn nccl_functions() -> Result<&'static NcclFunctions> {
    let (library, functions) = opened_nccl();
    library.require()?;
    functions.as_ref().ok_or_else(|| unreachable!("a library that is found has its functions"))
}

/// The oldest version of NCCL that is used: the first with means.
const OLDEST_NCCL: Version = Version { major: 2, minor: 10, patch: 0 };

fn opened_nccl() -> &'static (Library, Option<NcclFunctions>) {
    static STATE: OnceLock<(Library, Option<NcclFunctions>)> = OnceLock::new();
    STATE.get_or_init(|| {
        let advice = "`pip install nvidia-nccl-cu13` or your system's packages provide it";
        let (library, opened) = unbound("NCCL", &["libnccl.so.2", "libnccl.so"], NumberOf::Nccl, advice);
        let functions = opened.map(NcclFunctions::of);
        with_functions(library, functions, ("libnccl", OLDEST_NCCL), advice)
    })
}

/// A library with its functions, if it is new enough and has all of them.
fn with_functions<F>(
    library: Library,
    functions: Option<std::result::Result<F, &'static str>>,
    (file, oldest): (&str, Version),
    advice: &str,
) -> (Library, Option<F>) {
    let name = library.name;
    let missing = |reason: String| {
        let advice = format!("{name} {oldest} or newer is needed: {advice}");
        (Library { name, state: LibraryState::Missing { reason, advice } }, None)
    };
    let too_old = library.version().filter(|version| *version < oldest);
    match (functions, too_old) {
        (None, _) => (library, None),
        (Some(_), Some(version)) => missing(format!("{version} is too old")),
        (Some(Err(symbol)), None) => missing(format!("{file} has no {symbol}")),
        (Some(Ok(functions)), None) => (library, Some(functions)),
    }
}

/// cuDNN. It needs a driver to do anything.
pub fn cudnn() -> &'static Library {
    &opened_cudnn().0
}

/// The functions of cuDNN.
///
/// # Errors
/// [`CudaError::Unavailable`] without the library.
pub(super) fn cudnn_functions() -> Result<&'static Functions> {
    let (library, functions) = opened_cudnn();
    library.require()?;
    functions.as_ref().ok_or_else(|| unreachable!("a library that is found has its functions"))
}

/// The oldest version of cuDNN that is used: the first whose sums of elements have a deterministic setting.
const OLDEST_CUDNN: Version = Version { major: 9, minor: 11, patch: 0 };

fn opened_cudnn() -> &'static (Library, Option<Functions>) {
    static STATE: OnceLock<(Library, Option<Functions>)> = OnceLock::new();
    STATE.get_or_init(|| {
        let advice = "`pip install nvidia-cudnn-cu13` provides it";
        // The bindings know nothing of it, so that only this name is looked for: other major versions differ.
        let (library, opened) = unbound("cuDNN", &["libcudnn.so.9"], NumberOf::Cudnn, advice);
        let functions = opened.map(Functions::of);
        with_functions(library, functions, ("libcudnn", OLDEST_CUDNN), advice)
    })
}

/// A library that the bindings open by themselves.
struct Bound {
    name: &'static str,
    stem: &'static str,
    companion: Option<&'static str>,
    folders: fn() -> Vec<PathBuf>,
    present: unsafe fn() -> bool,
    library: unsafe fn() -> &'static libloading::Library,
    symbols: &'static [&'static str],
    advice: &'static str,
}

impl Bound {
    /// Chosen folders first, then the system's loader, then the usual folders.
    fn load(&self, version: impl FnOnce() -> Result<Version>) -> Library {
        Library { name: self.name, state: self.find(version) }
    }

    fn find(&self, version: impl FnOnce() -> Result<Version>) -> LibraryState {
        let names = cudarc::get_lib_name_candidates(self.stem);
        // SAFETY: it opens the library by name, and the initializers of NVIDIA's libraries may run at any time.
        let present = || unsafe { (self.present)() };
        let mut refused = None;
        let mut try_in = |folders: Vec<PathBuf>| {
            let path = library_files::find(&folders, &names)?;
            library_files::open_with_companions(&path, self.companion).map_err(|error| refused = Some(error)).ok()
        };
        let _ = try_in(library_files::chosen_folders());
        if !present() {
            let _ = try_in((self.folders)());
        }
        if !present() {
            let reason = refused.unwrap_or_else(|| format!("no lib{}.so was found", self.stem));
            let advice = format!("{}; {LIBRARIES_VARIABLE} may name its folder", self.advice);
            return LibraryState::Missing { reason, advice };
        }
        // SAFETY: the library is present, so this opens it or returns it.
        let library = unsafe { (self.library)() };
        if let Some(symbol) = self.symbols.iter().find(|symbol| address_of(library, symbol).is_none()) {
            let reason = format!("lib{} has no {symbol}: it is too old", self.stem);
            return LibraryState::Missing { reason, advice: "CUDA 12.8 or newer is needed".into() };
        }
        let path = self.symbols.first().and_then(|symbol| library_files::file_of(address_of(library, symbol)?));
        match version() {
            Ok(version) => LibraryState::Found { path, version: Some(version) },
            Err(error) => LibraryState::Missing { reason: error.to_string(), advice: self.advice.into() },
        }
    }
}

fn address_of(library: &libloading::Library, symbol: &str) -> Option<usize> {
    // SAFETY: only the address is taken; nothing is called or read through it.
    let found = unsafe { library.get::<*const c_void>(symbol.as_bytes()) };
    found.ok().map(|symbol| *symbol as usize)
}

/// How a library that nothing here binds tells its version.
#[derive(Clone, Copy)]
enum NumberOf {
    /// `ncclResult_t ncclGetVersion(int *)`
    Nccl,
    /// `size_t cudnnGetVersion(void)`
    Cudnn,
}

impl NumberOf {
    fn read(self, library: &libloading::Library) -> Option<Version> {
        let number = match self {
            // SAFETY: both have these signatures in every version that has them; the pointer is valid for the call.
            NumberOf::Nccl => unsafe {
                let mut number: c_int = 0;
                let get = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion").ok()?;
                (get(&mut number) == 0).then_some(number as usize)?
            },
            // SAFETY: as above; it takes nothing.
            NumberOf::Cudnn => unsafe { library.get::<unsafe extern "C" fn() -> usize>(b"cudnnGetVersion").ok()?() },
        };
        Some(Version::from_decimal(number))
    }

    fn symbol(self) -> &'static str {
        match self {
            NumberOf::Nccl => "ncclGetVersion",
            NumberOf::Cudnn => "cudnnGetVersion",
        }
    }
}

/// A library that the bindings know nothing of, or are not asked to open, and how it was opened.
fn unbound(
    name: &'static str,
    names: &[&str],
    number: NumberOf,
    advice: &str,
) -> (Library, Option<&'static libloading::Library>) {
    let files: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let in_folders = |folders: Vec<PathBuf>| library_files::find(&folders, &files).map(library_files::open);
    let found = in_folders(library_files::chosen_folders())
        .or_else(|| names.iter().find_map(|name| library_files::open(name).ok()).map(Ok))
        .or_else(|| in_folders(library_files::usual_folders()));
    let opened = found.as_ref().and_then(|found| found.as_ref().ok()).copied();
    let state = match found {
        Some(Ok(library)) => LibraryState::Found {
            path: address_of(library, number.symbol()).and_then(library_files::file_of),
            version: number.read(library),
        },
        Some(Err(reason)) => LibraryState::Missing { reason, advice: advice.into() },
        None => LibraryState::Missing { reason: format!("no {} was found", names[0]), advice: advice.into() },
    };
    (Library { name, state }, opened)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_libraries_number_them() {
        assert_eq!(Version::from_decimal(22_803).to_string(), "2.28.3");
        assert_eq!(Version::from_decimal(130_100).to_string(), "13.1");
    }
}
