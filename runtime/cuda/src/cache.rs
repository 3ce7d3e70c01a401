//! The cache of compiled kernels: in memory for this process, on disk for the next one.
//!
//! An entry's name is a hash of everything that its content depends on, so an entry is never stale. Processes need no
//! locks: each writes its own file and renames it, and the last rename replaces an equal file.

use super::error::Result;
use super::headers::Included;
use super::library::Version;
use super::nvrtc::{self, COMMON_OPTIONS, Compilation, Cubin};
use blake3::Hash;
use fulgurite_kernels::caches::caches;
use fulgurite_kernels::folder::Folder;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Maximum size of all entries on disk, in bytes; the least recently used entries are removed.
const MOST_BYTES: u64 = 1 << 30;

/// What starts every entry. The digit is the version of the layout: magic, length of the image, length of the log
/// (eight bytes each, little-endian), BLAKE3 of what follows, image, log.
const MAGIC: &[u8; 8] = b"FULGCUB1";
const HEADER_BYTES: usize = 8 + 8 + 8 + blake3::OUT_LEN;

/// Counts of hits and misses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStatistics {
    /// Found in memory.
    pub in_memory: usize,
    /// Found on disk.
    pub on_disk: usize,
    /// Compiled.
    pub compiled: usize,
    /// Found on disk, but damaged; each was compiled again.
    pub corrupt: usize,
}

/// Cubins by what they were compiled from. Usable from all threads; two that ask for the same new source at the same
/// time may both compile it.
#[derive(Debug, Default)]
pub struct KernelCache {
    folder: Option<Folder>,
    memory: Mutex<HashMap<Hash, Arc<Cubin>>>,
    in_memory: AtomicUsize,
    on_disk: AtomicUsize,
    compiled: AtomicUsize,
    corrupt: AtomicUsize,
}

/// Why an entry on disk was not used.
enum Unusable {
    Absent,
    Corrupt(&'static str),
    Unreadable(io::Error),
}

impl KernelCache {
    /// The process's cache: on disk below [`caches`], if there is such a folder.
    pub fn global() -> &'static KernelCache {
        static CACHE: OnceLock<KernelCache> = OnceLock::new();
        CACHE
            .get_or_init(|| caches().map_or_else(KernelCache::default, |folder| KernelCache::new(folder.join("cubin"))))
    }

    /// A cache in `folder`, which is made when something is kept, and which several users may share. A folder that
    /// cannot be written costs time, and a warning, but is no error.
    pub fn new(folder: impl Into<PathBuf>) -> KernelCache {
        KernelCache { folder: Some(Folder::new(folder, MOST_BYTES)), ..KernelCache::default() }
    }

    /// A cache of this process alone.
    pub fn in_memory() -> KernelCache {
        KernelCache::default()
    }

    /// Where entries are kept, if they are.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(Folder::path)
    }

    /// What happened so far.
    pub fn statistics(&self) -> CacheStatistics {
        CacheStatistics {
            in_memory: self.in_memory.load(Ordering::Relaxed),
            on_disk: self.on_disk.load(Ordering::Relaxed),
            compiled: self.compiled.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
        }
    }

    /// The cubin of a source: from memory, from disk, or compiled now.
    ///
    /// # Errors
    /// Those of [`nvrtc::compile`]. NVRTC must be there even if the cubin is: its version is part of the key.
    pub fn compile(&self, compilation: &Compilation<'_>) -> Result<Arc<Cubin>> {
        let key = key(compilation, &nvrtc::headers_of(compilation)?, nvrtc::version()?);
        self.get_or(key, compilation.name, || nvrtc::compile(compilation))
    }

    fn get_or(&self, key: Hash, name: &str, compile: impl FnOnce() -> Result<Cubin>) -> Result<Arc<Cubin>> {
        let memory = || self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cubin) = memory().get(&key) {
            self.in_memory.fetch_add(1, Ordering::Relaxed);
            return Ok(cubin.clone());
        }
        let file = format!("{}.cubin", key.to_hex());
        let found = self.folder.as_ref().map_or(Err(Unusable::Absent), |folder| read(folder, &file));
        let cubin = match found {
            Ok(cubin) => {
                self.on_disk.fetch_add(1, Ordering::Relaxed);
                cubin
            }
            Err(unusable) => {
                self.report(name, &file, unusable);
                let cubin = compile()?;
                self.compiled.fetch_add(1, Ordering::Relaxed);
                if let Some(folder) = &self.folder {
                    write(folder, &file, &cubin);
                }
                cubin
            }
        };
        Ok(memory().entry(key).or_insert_with(|| Arc::new(cubin)).clone())
    }

    fn report(&self, name: &str, file: &str, unusable: Unusable) {
        let path = self.folder().unwrap_or(Path::new("")).join(file);
        match unusable {
            Unusable::Absent => {}
            Unusable::Corrupt(reason) => {
                self.corrupt.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("{} is damaged ({reason}); {name} is compiled again", path.display());
            }
            Unusable::Unreadable(error) => tracing::warn!("{} cannot be read: {error}", path.display()),
        }
    }
}

/// A hash of all that a cubin depends on. Each part is preceded by its length, so that no two lists of parts run
/// together.
fn key(compilation: &Compilation<'_>, headers: &[Included], version: Version) -> Hash {
    let mut hasher = blake3::Hasher::new();
    // The number of options tells them from the headers.
    let (version, count) = (version.to_string(), compilation.options.len().to_string());
    let parts = [&version, compilation.architecture, compilation.name, compilation.source, &count].into_iter();
    let options = COMMON_OPTIONS.into_iter().chain(compilation.options.iter().map(String::as_str));
    let headers = headers.iter().flat_map(|header| [header.name, &*header.text]);
    for part in parts.chain(options).chain(headers) {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    hasher.finalize()
}

fn read(folder: &Folder, file: &str) -> Result<Cubin, Unusable> {
    let bytes = folder.read(file).map_err(Unusable::Unreadable)?.ok_or(Unusable::Absent)?;
    let (header, content) =
        bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Unusable::Corrupt("shorter than its header"))?;
    if &header[..8] != MAGIC {
        return Err(Unusable::Corrupt("wrong magic"));
    }
    let number = |at: usize| header[at..at + 8].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
    let (image, log) = (number(8), number(16));
    if image.checked_add(log) != Some(content.len() as u64) {
        return Err(Unusable::Corrupt("wrong length"));
    }
    if blake3::hash(content).as_bytes()[..] != header[24..] {
        return Err(Unusable::Corrupt("wrong checksum"));
    }
    let (image, log) = content.split_at(image as usize);
    Cubin::new(image.to_vec(), String::from_utf8_lossy(log).into_owned()).map_err(|_| Unusable::Corrupt("no cubin"))
}

fn write(folder: &Folder, file: &str, cubin: &Cubin) {
    let (image, log) = (cubin.image(), cubin.log().as_bytes());
    let mut hasher = blake3::Hasher::new();
    hasher.update(image).update(log);
    let lengths = [image.len() as u64, log.len() as u64].map(u64::to_le_bytes);
    folder.keep(file, &[&MAGIC[..], &lengths[0], &lengths[1], hasher.finalize().as_bytes(), image, log]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const VERSION: Version = Version { major: 13, minor: 0, patch: 0 };

    /// A small ELF file: its one section is the empty one that comes first in each.
    fn cubin(log: &str) -> Cubin {
        let mut image = vec![0u8; 64 + 64];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (image[40], image[60]) = (64, 1);
        Cubin::new(image, log.into()).unwrap()
    }

    fn compilation<'a>(source: &'a str, options: &'a [String]) -> Compilation<'a> {
        Compilation { name: "k.cu", source, architecture: "sm_80", options }
    }

    #[test]
    fn the_key_depends_on_every_part_and_on_where_parts_end() {
        let (one, two) = (["-DA".to_owned(), "-DB".to_owned()], ["-DA-DB".to_owned()]);
        let plain = compilation("source", &[]);
        let header = |text: &'static str| [Included { name: "fulgurite/x.cuh", text: text.into() }];
        let keys = [
            key(&plain, &[], VERSION),
            key(&plain, &[], Version { minor: 1, ..VERSION }),
            key(&compilation("other source", &[]), &[], VERSION),
            key(&compilation("source", &one), &[], VERSION),
            key(&compilation("source", &two), &[], VERSION),
            key(&Compilation { architecture: "sm_90a", ..plain }, &[], VERSION),
            key(&plain, &header("text"), VERSION),
            key(&plain, &header("other text"), VERSION),
        ];
        for (n, first) in keys.iter().enumerate() {
            assert!(keys[n + 1..].iter().all(|second| first != second));
        }
    }

    #[test]
    fn an_entry_is_compiled_once_and_read_by_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        let key = blake3::hash(b"an entry");
        for (round, expected) in [(0, (0, 1)), (1, (1, 0))] {
            let cache = KernelCache::new(folder.path());
            for _ in 0..2 {
                let found = cache.get_or(key, "k.cu", || Ok(cubin("the log"))).unwrap();
                assert_eq!(found.log(), "the log");
            }
            let statistics = cache.statistics();
            assert_eq!((statistics.on_disk, statistics.compiled), expected, "round {round}");
            assert_eq!((statistics.in_memory, statistics.corrupt), (1, 0));
        }
        let files: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(files.len(), 1, "no temporary file is left");
    }

    #[test]
    fn a_damaged_entry_is_noticed_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let key = blake3::hash(b"an entry");
        let path = folder.path().join(format!("{}.cubin", key.to_hex()));
        let damage: [fn(&mut Vec<u8>); 5] = [
            |bytes| bytes.truncate(20),
            |bytes| bytes.truncate(bytes.len() - 1),
            |bytes| bytes[0] ^= 1,
            |bytes| *bytes.last_mut().unwrap() ^= 1,
            |bytes| bytes[8..16].fill(0xff),
        ];
        for damage in damage {
            KernelCache::new(folder.path()).get_or(key, "k.cu", || Ok(cubin("log"))).unwrap();
            let mut bytes = fs::read(&path).unwrap();
            damage(&mut bytes);
            fs::write(&path, bytes).unwrap();
            let cache = KernelCache::new(folder.path());
            cache.get_or(key, "k.cu", || Ok(cubin("log"))).unwrap();
            assert_eq!(cache.statistics(), CacheStatistics { compiled: 1, corrupt: 1, ..Default::default() });
            let folder = Folder::new(folder.path(), MOST_BYTES);
            assert!(read(&folder, &format!("{}.cubin", key.to_hex())).is_ok(), "it was written again");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = KernelCache::new(file.path().join("below a file"));
        cache.get_or(blake3::hash(b"x"), "k.cu", || Ok(cubin(""))).unwrap();
        assert_eq!(cache.statistics().compiled, 1);
    }

    #[test]
    fn processes_and_threads_may_write_the_same_entry() {
        let folder = tempfile::tempdir().unwrap();
        let key = blake3::hash(b"an entry");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let cache = KernelCache::new(folder.path());
                        cache.get_or(key, "k.cu", || Ok(cubin(&"log".repeat(10_000)))).unwrap();
                        assert_eq!(cache.statistics().corrupt, 0);
                    }
                });
            }
        });
    }
}
