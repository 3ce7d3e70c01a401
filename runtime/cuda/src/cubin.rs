//! What a cubin says about its kernels: registers, stack, shared memory, parameters. No driver is needed.
//!
//! A cubin is an ELF file. The section `.nv.info` has attributes of all kernels by symbol, `.nv.info.KERNEL` those of
//! one, and `.text.KERNEL` names the kernels. The layout is not documented; what is read here was compared with the
//! assembler's own report, and a test does so again wherever NVRTC is present.

use super::error::{CudaError, Result};

/// A parameter of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its offset in the parameter buffer, in bytes.
    pub offset: usize,
    /// Its size, in bytes.
    pub bytes: usize,
}

/// What a kernel needs, as compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelResources {
    /// The kernel's (lowered) name.
    pub name: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Stack of a thread, in bytes: local arrays that are indexed at run time, and spills. It is in local memory.
    pub stack_bytes: u32,
    /// Bytes of register values stored to local memory, over the kernel's code; 0 if the log does not tell.
    pub spill_store_bytes: u32,
    /// Bytes of register values loaded from local memory, over the kernel's code; 0 if the log does not tell.
    pub spill_load_bytes: u32,
    /// Static shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// The parameters, in order.
    pub parameters: Vec<Parameter>,
}

impl KernelResources {
    /// Whether threads use local memory, be it for spills or for arrays.
    pub fn uses_local_memory(&self) -> bool {
        self.stack_bytes > 0 || self.spill_store_bytes > 0 || self.spill_load_bytes > 0
    }
}

/// Attributes of `.nv.info` sections.
const MIN_STACK_SIZE: u8 = 0x12;
const PARAMETER: u8 = 0x17;
/// The same of kernels whose parameters take more than 4 KiB together.
const LARGE_PARAMETER: u8 = 0x45;
const REGISTER_COUNT: u8 = 0x2f;
/// How an attribute's value is stored: a size and that many bytes. All others have two bytes.
const SIZED: u8 = 0x04;
/// What the system keeps at the start of a block's shared memory from compute capability 9.0 on; a cubin's sections
/// count it.
const RESERVED_SHARED_BYTES: u32 = 1024;

/// The kernels of a cubin, sorted by name. Spills are not in a cubin: see [`add_log`].
pub fn kernels(image: &[u8]) -> Result<Vec<KernelResources>> {
    let wrong = |reason: &str| CudaError::Cubin { reason: reason.into() };
    let elf = Elf::new(image).ok_or_else(|| wrong("it is no 64-bit little-endian ELF file"))?;
    let sections = elf.sections().ok_or_else(|| wrong("its section table is cut off"))?;
    let symbols = elf.symbols(&sections).ok_or_else(|| wrong("its symbol table is cut off"))?;
    let mut kernels: Vec<KernelResources> = sections
        .iter()
        .filter_map(|section| section.name.strip_prefix(".nv.info."))
        .map(|name| KernelResources { name: name.to_owned(), ..Default::default() })
        .collect();
    let reserves = symbols.iter().any(|name| name.starts_with(".nv.reservedSmem"));
    for section in &sections {
        if section.name == ".nv.info" {
            for (kind, value) in attributes(section.bytes) {
                let (Some(symbol), Some(number)) = (word(value, 0), word(value, 4)) else { continue };
                let name = symbols.get(symbol as usize).copied().unwrap_or_default();
                let Some(kernel) = kernels.iter_mut().find(|kernel| kernel.name == name) else { continue };
                match kind {
                    REGISTER_COUNT => kernel.registers = number,
                    MIN_STACK_SIZE => kernel.stack_bytes = number,
                    _ => {}
                }
            }
        }
        let of = |prefix: &str| section.name.strip_prefix(prefix);
        if let Some(kernel) = of(".nv.shared.").and_then(|name| kernels.iter_mut().find(|kernel| kernel.name == name)) {
            let reserved = if reserves { RESERVED_SHARED_BYTES } else { 0 };
            kernel.shared_bytes = (section.size as u32).saturating_sub(reserved);
        }
        if let Some(kernel) = of(".nv.info.").and_then(|name| kernels.iter_mut().find(|kernel| kernel.name == name)) {
            kernel.parameters = attributes(section.bytes)
                .filter_map(|(kind, value)| {
                    // index; ordinal and offset, two bytes each; the size, above 18 other bits unless it may be large
                    let (place, size) = (word(value, 4)?, word(value, 8)?);
                    let bytes = match kind {
                        PARAMETER => size >> 18,
                        LARGE_PARAMETER => size,
                        _ => return None,
                    };
                    Some(Parameter { offset: (place >> 16) as usize, bytes: bytes as usize })
                })
                .collect();
            kernel.parameters.sort_by_key(|parameter| parameter.offset);
        }
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(kernels)
}

/// Adds what only the assembler's report has. It says, for each function:
///
/// ```text
/// ptxas info    : Compiling entry function 'NAME' for 'sm_90a'
/// ptxas info    : Function properties for NAME
/// ptxas         .     960 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
/// ptxas info    : Used 248 registers, used 1 barriers, 960 bytes cumulative stack size, 256 bytes smem
/// ```
pub fn add_log(kernels: &mut [KernelResources], log: &str) {
    // A function that is called, not inlined, is reported under its own name after the entry that uses it.
    let mut entry: Option<usize> = None;
    for line in log.lines() {
        if let Some(rest) = line.split_once("Compiling entry function '").map(|(_, rest)| rest) {
            entry = rest.split('\'').next().and_then(|name| kernels.iter().position(|kernel| kernel.name == name));
        }
        let Some(kernel) = entry.and_then(|at| kernels.get_mut(at)) else { continue };
        kernel.spill_store_bytes += number_before(line, " bytes spill stores").unwrap_or(0);
        kernel.spill_load_bytes += number_before(line, " bytes spill loads").unwrap_or(0);
        if let Some(bytes) = number_before(line, " bytes smem") {
            kernel.shared_bytes = bytes;
        }
    }
}

fn number_before(line: &str, unit: &str) -> Option<u32> {
    let before = &line[..line.find(unit)?];
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Kind and value of each attribute of a `.nv.info` section; what is cut off is left out.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (&[format, kind, low, high], rest) = bytes.split_first_chunk::<4>()?;
        let size = if format == SIZED { u16::from_le_bytes([low, high]) as usize } else { 0 };
        let (value, rest) = rest.split_at_checked(size)?;
        bytes = rest;
        Some((kind, value))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// As much of ELF as is needed: sections by name, symbols by number.
struct Elf<'a>(&'a [u8]);

struct Section<'a> {
    name: &'a str,
    kind: usize,
    link: usize,
    size: usize,
    bytes: &'a [u8],
}

impl<'a> Elf<'a> {
    const SYMBOLS: usize = 2;
    const NO_BITS: usize = 8;

    fn new(image: &'a [u8]) -> Option<Elf<'a>> {
        image.starts_with(b"\x7fELF\x02\x01").then_some(Elf(image))
    }

    fn sections(&self) -> Option<Vec<Section<'a>>> {
        let (table, count, names) = (number::<8>(self.0, 40)?, number::<2>(self.0, 60)?, number::<2>(self.0, 62)?);
        let headers = self.0.get(table..table.checked_add(count * 64)?)?;
        let names = number::<8>(headers, names * 64 + 24)?;
        headers
            .chunks_exact(64)
            .map(|header| {
                let kind = number::<4>(header, 4)?;
                let (start, size) = (number::<8>(header, 24)?, number::<8>(header, 32)?);
                let in_file = if kind == Elf::NO_BITS { 0 } else { size };
                Some(Section {
                    name: text(self.0, names.checked_add(number::<4>(header, 0)?)?)?,
                    kind,
                    link: number::<4>(header, 40)?,
                    size,
                    bytes: self.0.get(start..start.checked_add(in_file)?)?,
                })
            })
            .collect()
    }

    fn symbols(&self, sections: &[Section<'a>]) -> Option<Vec<&'a str>> {
        let Some(table) = sections.iter().find(|section| section.kind == Elf::SYMBOLS) else { return Some(Vec::new()) };
        let names = sections.get(table.link)?.bytes;
        table.bytes.chunks_exact(24).map(|symbol| text(names, word(symbol, 0)? as usize)).collect()
    }
}

/// The little-endian number of `N` bytes at `at`.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(N)?)?;
    Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
}

/// The string at `at` that ends in NUL.
fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    std::str::from_utf8(&rest[..rest.iter().position(|&byte| byte == 0)?]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_cubin_is_an_error_and_never_a_panic() {
        for bytes in
            [&b""[..], b"\x7fELF", b"\x7fELF\x02\x01 and then nothing that makes sense at all, but long enough ...."]
        {
            assert!(matches!(kernels(bytes), Err(CudaError::Cubin { .. })));
        }
    }

    #[test]
    fn spills_come_from_the_assemblers_report() {
        let log = "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n\
                   ptxas info    : Function properties for k\n\
                   ptxas         .     960 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
                   ptxas info    : Used 248 registers, used 1 barriers, 960 bytes cumulative stack size, 256 bytes smem\n";
        let mut kernels = [KernelResources { name: "k".into(), ..Default::default() }];
        add_log(&mut kernels, log);
        let kernel = &kernels[0];
        assert_eq!((kernel.spill_store_bytes, kernel.spill_load_bytes, kernel.shared_bytes), (8, 12, 256));
        assert!(kernel.uses_local_memory());
    }
}
