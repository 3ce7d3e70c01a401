//! Headers that hand-written and generated kernels share. A source includes them by name,
//! `#include "fulgurite/vectors.cuh"`; NVRTC is handed their texts, so that nothing is installed.

use std::borrow::Cow;

use fulgurite_kernels::DType;

use super::sources;

/// A header, as a source names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The name in `#include "..."`.
    pub name: &'static str,
    /// The text. Its first line says what the header is for.
    pub text: &'static str,
}

macro_rules! headers {
    ($($name:literal),* $(,)?) => { [$(Header { name: $name, text: include_str!($name) }),*] };
}

/// All headers, the simplest first:
///
/// | header | what it has |
/// |---|---|
/// | `fulgurite/elements.cuh` | `u8`, `i8` ... `u64`, `bf16`, `f16`, `boolean`; conversions to the type of arithmetic |
/// | `fulgurite/arithmetic.cuh` | functions of numbers with the host's results; `order_key`, `exponential` |
/// | `fulgurite/vectors.cuh` | neighbouring elements read and written at once: `load`, `store`, `read`, `write` |
/// | `fulgurite/reductions.cuh` | `Sum`, `Max`, `Min` over lanes, warps and blocks in a fixed order |
/// | `fulgurite/rows.cuh` | rows that threads keep in registers, sums over the threads of a row |
/// | `fulgurite/copies.cuh` | async copies to shared memory |
/// | `fulgurite/clusters.cuh` | the barrier of a cluster, reductions over its blocks |
/// | `fulgurite/tensor_cores.cuh` | products of bf16 and f16 by the tensor cores, `load_once` |
/// | `fulgurite/philox.cuh` | Philox4x32-10: random words by counter |
/// | `fulgurite/faults.cuh` | `report_fault`, for an index out of range |
pub const HEADERS: [Header; 10] = headers![
    "fulgurite/elements.cuh",
    "fulgurite/arithmetic.cuh",
    "fulgurite/vectors.cuh",
    "fulgurite/reductions.cuh",
    "fulgurite/rows.cuh",
    "fulgurite/copies.cuh",
    "fulgurite/clusters.cuh",
    "fulgurite/tensor_cores.cuh",
    "fulgurite/philox.cuh",
    "fulgurite/faults.cuh",
];

/// The name of an element type in `fulgurite/elements.cuh`.
pub fn type_of(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "double",
        DType::F32 => "float",
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        DType::I64 => "i64",
        DType::I8 => "i8",
        DType::U16 => "u16",
        DType::I16 => "i16",
        DType::U32 => "u32",
        DType::I32 => "i32",
        DType::U8 => "u8",
        DType::Bool => "boolean",
        DType::C64 | DType::C128 => unreachable!("programs of devices compute with the parts of complex numbers"),
    }
}

/// A header as it is compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Included {
    pub(super) name: &'static str,
    pub(super) text: Cow<'static, str>,
}

/// The names in the directives `#include "..."` of a source, as often as they are there.
fn names(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let directive = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
        directive.trim_start().strip_prefix('"')?.split('"').next()
    })
}

/// The lines that include what a source itself includes of [`HEADERS`], each once. They are put before names that a
/// launch defines: headers have names of their own.
pub fn directives(source: &str) -> String {
    let mut known: Vec<&str> = Vec::new();
    for name in names(source) {
        if !known.contains(&name) && HEADERS.iter().any(|header| header.name == name) {
            known.push(name);
        }
    }
    known.iter().map(|name| format!("#include \"{name}\"\n")).collect()
}

/// The headers that a source includes, directly or through one another, each once. A name that is none of [`HEADERS`]
/// is left to the compiler, which says in which line it is.
///
/// # Errors
/// As [`sources::edited`].
pub(super) fn included(source: &str) -> Result<Vec<Included>, String> {
    let mut found = Vec::new();
    add(source, &mut found)?;
    Ok(found)
}

fn add(source: &str, found: &mut Vec<Included>) -> Result<(), String> {
    for name in names(source) {
        let Some(header) = HEADERS.iter().find(|header| header.name == name) else { continue };
        if found.iter().any(|known| known.name == name) {
            continue;
        }
        let text = sources::edited(header.name, header.text)?;
        found.push(Included { name: header.name, text: text.clone() });
        add(&text, found)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn included_by(source: &str) -> Vec<&'static str> {
        included(source).unwrap().into_iter().map(|header| header.name).collect()
    }

    #[test]
    fn a_source_includes_headers_and_what_they_include() {
        let source = "// text\n #  include \"fulgurite/clusters.cuh\"\n#include \"fulgurite/elements.cuh\"\n";
        let expected = ["clusters", "reductions", "arithmetic", "elements"].map(|name| format!("fulgurite/{name}.cuh"));
        assert_eq!(included_by(source), expected);
        assert!(included_by("#include \"other.cuh\"\n#include <fulgurite/elements.cuh>\nint fulgurite;\n").is_empty());
    }

    #[test]
    fn directives_name_what_the_source_itself_includes() {
        let include = |name: &str| format!("#include \"{name}\"\n");
        let [clusters, faults] = ["fulgurite/clusters.cuh", "fulgurite/faults.cuh"].map(include);
        let source = format!("{clusters}{}x\n{faults}{clusters}", include("other.cuh"));
        assert_eq!(directives(&source), format!("{clusters}{faults}"));
    }

    #[test]
    fn each_header_says_what_it_is_for_and_is_read_once() {
        for Header { name, text } in HEADERS {
            assert!(text.starts_with("// "), "{name}");
            let guard = name.trim_end_matches(".cuh").replace('/', "_").to_uppercase();
            assert!(text.contains(&format!("\n#ifndef {guard}\n#define {guard}\n")), "{name}");
            assert!(names(text).all(|name| HEADERS.iter().any(|header| header.name == name)), "{name}");
        }
    }
}
