//! The folders of CUDA's libraries: the system's, a toolkit's, or those of Python wheels.
//!
//! The bindings open a library by name alone (`libnvrtc.so`, `libnvrtc.so.13`, ...). A library that is already in the
//! process answers to its SONAME, so opening `.../site-packages/nvidia/cu13/lib/libnvrtc.so.13` by its full path first,
//! and keeping it open, makes the bindings find it with no `LD_LIBRARY_PATH`.

use libloading::Library;
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders to look into before the system's, separated as in `PATH`. Each may be a folder of libraries, a toolkit, a
/// Python environment, or a `site-packages` folder.
pub const LIBRARIES_VARIABLE: &str = "FULGURITE_CUDA_LIBRARIES";

/// The folders named by [`LIBRARIES_VARIABLE`].
pub(super) fn chosen_folders() -> Vec<PathBuf> {
    env::var_os(LIBRARIES_VARIABLE).iter().flat_map(env::split_paths).flat_map(|root| folders_of(&root)).collect()
}

/// Folders that the system's loader does not look into by itself.
pub(super) fn usual_folders() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH"]
        .iter()
        .filter_map(env::var_os)
        .map(Into::into)
        .collect();
    if let Some(home) = env::var_os("HOME") {
        roots.push(PathBuf::from(home).join(".local"));
    }
    roots.extend(["/usr/local", "/usr", "/opt/cuda"].map(PathBuf::from));
    // The newest toolkit first.
    roots.extend(children(Path::new("/usr/local"), |name| name.starts_with("cuda")).into_iter().rev());
    roots.iter().flat_map(|root| folders_of(root)).collect()
}

/// Folders of drivers that were mounted into a container or a guest.
pub(super) fn driver_folders() -> Vec<PathBuf> {
    ["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib"].map(PathBuf::from).to_vec()
}

/// What `root` may hold: itself, a toolkit's `lib64`, and the `nvidia/*/lib` of wheels below it.
fn folders_of(root: &Path) -> Vec<PathBuf> {
    let mut packages = vec![root.to_path_buf()];
    for python in children(&root.join("lib"), |name| name.starts_with("python")) {
        packages.extend(["site-packages", "dist-packages"].map(|name| python.join(name)));
    }
    let wheels = packages.iter().flat_map(|folder| children(&folder.join("nvidia"), |_| true));
    let mut folders = vec![root.to_path_buf(), root.join("lib64"), root.join("lib")];
    // Wheels of CUDA 13 share `nvidia/cu13/lib`; those of CUDA 12 have a folder for each library.
    folders.extend(wheels.map(|wheel| wheel.join("lib")));
    folders.retain(|folder| folder.is_dir());
    folders
}

/// Entries of a folder whose name is wanted, sorted; none if the folder cannot be read.
fn children(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The first file among `names` in the first folder that has one.
pub(super) fn find(folders: &[PathBuf], names: &[String]) -> Option<PathBuf> {
    folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name))).find(|path| path.is_file())
}

/// Opens a library for the rest of the process; the error is the loader's.
pub(super) fn open(name: impl AsRef<Path>) -> Result<&'static Library, String> {
    // SAFETY: the initializers of NVIDIA's libraries may run at any time and on any thread.
    let library = unsafe { Library::new(name.as_ref()) }.map_err(|error| {
        // The loader's own text, which names the file, is the source of the error.
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    })?;
    Ok(Box::leak(Box::new(library)))
}

/// Opens `path` for the rest of the process, and before it the libraries that it loads by name.
///
/// NVRTC opens its built-in functions so, and its wheels set no search path of their own.
pub(super) fn open_with_companions(path: &Path, companion: Option<&str>) -> Result<&'static Library, String> {
    if let (Some(prefix), Some(folder)) = (companion, path.parent()) {
        // `.alt` is a second build of the same; it is opened only by the second build of the library.
        for file in children(folder, |name| name.starts_with(prefix) && !name.contains(".alt.")) {
            open(file)?;
        }
    }
    open(path)
}

/// The file that holds `address`, from the process's own memory map.
pub(super) fn file_of(address: usize) -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let within =
            usize::from_str_radix(start, 16).ok()? <= address && address < usize::from_str_radix(end, 16).ok()?;
        within.then(|| rest.find('/').map(|at| PathBuf::from(&rest[at..]))).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"").unwrap();
    }

    #[test]
    fn a_root_may_be_an_environment_a_package_folder_a_toolkit_or_the_libraries_folder() {
        let root = tempfile::tempdir().unwrap();
        let names = ["libnvrtc.so", "libnvrtc.so.13"].map(String::from);
        for inside in [
            "venv/lib/python3.12/site-packages/nvidia/cu13/lib",
            "system/lib/python3.12/dist-packages/nvidia/cuda_nvrtc/lib",
            "toolkit/lib64",
            "plain",
        ] {
            let file = root.path().join(inside).join("libnvrtc.so.13");
            touch(&file);
            let top = root.path().join(inside.split('/').next().unwrap());
            assert_eq!(find(&folders_of(&top), &names), Some(file));
        }
        let packages = root.path().join("venv/lib/python3.12/site-packages");
        assert!(find(&folders_of(&packages), &names).is_some());
        assert!(folders_of(&root.path().join("absent")).is_empty());
    }

    #[test]
    fn the_file_of_an_address_is_the_program_itself() {
        let file = file_of(file_of as *const () as usize);
        if cfg!(target_os = "linux") {
            assert_eq!(file, Some(env::current_exe().unwrap().canonicalize().unwrap()));
        }
    }

    #[test]
    fn an_absent_library_is_an_error_with_the_loaders_text() {
        assert!(open("/nonexistent/libnvrtc.so.13").unwrap_err().contains("libnvrtc.so.13"));
    }
}
