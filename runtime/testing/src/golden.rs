//! PyTorch's results for samples: `golden/operators.json` and `golden/operators.safetensors.gz` of the package under
//! test, made from what `fulgurite ops samples` exports by a script that has PyTorch. The samples themselves are not
//! stored.
//!
//! ```text
//! { "version": 1, "torch": "2.9.0",
//!   "cases": {"gelu/f32/0": "8c4f..."},                a sample of gelu in f32, and its digest: see `digest`
//!   "skipped": {"draws random numbers": ["dropout/f32/0"]} }
//! ```
//!
//! The compressed safetensors file holds `gelu/f32/0/out0`, ... in the order of the results, and, for samples that are
//! differentiated, `gelu/f32/0/grad/input`, ... (`grad/tensors.0`, ... for lists): the gradients for the cotangents
//! that [`cotangent`] makes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use fulgurite_kernels::DType;
use safetensors::tensor::Metadata;
use serde::Deserialize;

use super::problem::{Check, Problem, ensure};
use super::samples::{Random, Sample, SampleTensor, Samples, round_to};
use crate::argument::{Arg, map_arguments};
use crate::array::Array;
use crate::error::Result;
use crate::meta::TensorMeta;
use crate::operator::{OperatorDef, OperatorKind};
use fulgurite_ir::registry::{find_operator, operators};

/// Both files are of this version.
const VERSION: u64 = 1;

/// How the files are made again.
const REMAKE: &str =
    "make the vectors again: fulgurite ops samples --out CASES && python tests/golden/operators.py CASES";

/// What a vector stands for: the function, and how the arguments of the sample are made. Vectors of another digest are
/// stale.
pub fn digest(def: &OperatorDef, sample: &Sample) -> u64 {
    let arguments = map_arguments(&sample.arguments, SampleTensor::description);
    let names: Vec<&str> = def.params.iter().map(|param| param.name).collect();
    let generator = Random::new(0).next();
    let text = format!("{:?} {names:?} {arguments:?} {} {generator}", def.torch, sample.forward_only.is_some());
    // FNV-1a: the same everywhere and forever.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The cotangent of a floating-point result of the sample of this digest, `number` counted among such results.
pub fn cotangent(meta: &TensorMeta, digest: u64, number: usize) -> Result<Array> {
    let mut random = Random::new(digest.wrapping_add(number as u64));
    let values: Vec<f64> =
        (0..meta.len() * meta.dtype().parts()).map(|_| round_to(random.normal(), meta.dtype())).collect();
    Array::from_f64(meta.shape(), meta.dtype(), &values)
}

/// The tensors among the arguments by name: `input`, or `tensors.0` of a list.
pub(crate) fn tensor_names<T>(def: &OperatorDef, arguments: &[Arg<T>]) -> Vec<String> {
    let named = |(param, argument): (&crate::operator::ParamDef, &Arg<T>)| match argument {
        Arg::List(tensors) => (0..tensors.len()).map(|i| format!("{}.{i}", param.name)).collect(),
        _ => vec![param.name.to_owned(); argument.tensors().len()],
    };
    def.params.iter().zip(arguments).flat_map(named).collect()
}

#[derive(Debug, Deserialize)]
struct Listing {
    version: u64,
    cases: BTreeMap<String, String>,
    skipped: BTreeMap<String, Vec<String>>,
}

#[derive(Debug)]
struct Stored {
    listing: Listing,
    tensors: Metadata,
    data: Vec<u8>,
}

/// The stored vectors; they are read at first use.
#[derive(Debug, Default)]
pub(crate) struct Golden {
    folder: PathBuf,
    stored: OnceLock<Check<Option<Stored>>>,
}

/// The operator's part of a case's name, and the element type's.
fn parts(id: &str) -> Option<(&str, DType)> {
    let (rest, _number) = id.rsplit_once('/')?;
    let (operator, dtype) = rest.rsplit_once('/')?;
    Some((operator, dtype.parse().ok()?))
}

/// The digests of an operator's samples in an element type.
fn digests((operator, dtype): (&str, DType)) -> BTreeSet<String> {
    let Ok(def) = find_operator(operator) else { return BTreeSet::new() };
    Samples::of_operator(def, dtype).iter().map(|sample| format!("{:016x}", digest(def, sample))).collect()
}

impl Golden {
    /// The vectors of a folder.
    pub fn open(folder: &Path) -> Golden {
        Golden { folder: folder.to_owned(), stored: OnceLock::new() }
    }

    fn stored(&self) -> Check<Option<&Stored>> {
        self.stored.get_or_init(|| self.read()).as_ref().map(Option::as_ref).map_err(Problem::clone)
    }

    fn read(&self) -> Check<Option<Stored>> {
        let path = self.folder.join("operators.json");
        if !path.exists() {
            return Ok(None);
        }
        let failed = |path: &Path, error: &dyn std::fmt::Display| Problem(format!("{}: {error}", path.display()));
        let text = std::fs::read(&path).map_err(|error| failed(&path, &error))?;
        let listing: Listing = serde_json::from_slice(&text).map_err(|error| failed(&path, &error))?;
        ensure!(listing.version == VERSION, "{}: version {} is not {VERSION}", path.display(), listing.version);
        let path = self.folder.join("operators.safetensors.gz");
        let file = std::fs::File::open(&path).map_err(|error| failed(&path, &error))?;
        let mut data = Vec::new();
        flate2::read::GzDecoder::new(file).read_to_end(&mut data).map_err(|error| failed(&path, &error))?;
        let (header, tensors) =
            safetensors::SafeTensors::read_metadata(&data).map_err(|error| failed(&path, &error))?;
        data.drain(..header + 8);
        Ok(Some(Stored { listing, tensors, data }))
    }

    /// The names of an operator's cases in `dtype`, each with its digest.
    fn cases(&self, operator: &str, dtype: DType) -> Check<impl Iterator<Item = (&String, &String)>> {
        let start = format!("{operator}/{dtype}/");
        let names = self.stored()?.map(|stored| stored.listing.cases.range(start.clone()..));
        Ok(names.into_iter().flatten().take_while(move |(id, _)| id.starts_with(&start)))
    }

    /// Whether an operator has cases in `dtype`.
    pub fn has(&self, operator: &str, dtype: DType) -> bool {
        self.cases(operator, dtype).is_ok_and(|mut cases| cases.next().is_some())
    }

    /// The name of the case that was made of the sample of this digest, which may have another number since: calls
    /// with numbers for operands come after the declared samples.
    pub fn case(&self, operator: &str, dtype: DType, digest: u64) -> Check<Option<String>> {
        let digest = format!("{digest:016x}");
        Ok(self.cases(operator, dtype)?.find(|(_, of)| **of == digest).map(|(id, _)| id.clone()))
    }

    /// What is wrong with vectors that fit no sample of a linked operator.
    pub fn stale(&self) -> Vec<String> {
        let stored = match self.stored() {
            Ok(Some(stored)) => stored,
            Ok(None) => return Vec::new(),
            Err(problem) => return vec![problem.0],
        };
        let mut stale = Vec::new();
        let mut now: BTreeMap<(&str, DType), BTreeSet<String>> = BTreeMap::new();
        for (id, of) in &stored.listing.cases {
            let fits = |place| now.entry(place).or_insert_with(|| digests(place)).contains(of);
            if !parts(id).is_some_and(fits) {
                stale.push(format!("golden vector {id} is stale: no sample is what it was made of"));
            }
        }
        if !stale.is_empty() {
            stale.push(REMAKE.into());
        }
        stale
    }

    /// The linked operators that mirror a function of PyTorch and have no vectors, and why.
    pub fn missing(&self) -> Vec<String> {
        let Ok(Some(stored)) = self.stored() else { return Vec::new() };
        let of = |id: &str| parts(id).map(|(operator, ..)| operator.to_owned());
        let having: Vec<_> = stored.listing.cases.keys().filter_map(|id| of(id)).collect();
        let mirrors = operators().into_iter().filter(|def| def.torch.is_some());
        let without = mirrors
            .filter(|def| !matches!(def.kind, OperatorKind::Symbol(_)) && !having.iter().any(|name| name == def.name));
        without
            .map(|def| {
                let mut skips = stored.listing.skipped.iter();
                let reason = skips
                    .find(|(_, ids)| ids.iter().any(|id| of(id).as_deref() == Some(def.name)))
                    .map(|(reason, _)| reason.as_str());
                format!("{}: {}", def.name, reason.unwrap_or("it is not among the exported cases"))
            })
            .collect()
    }

    /// A stored tensor, if there is one of this name.
    pub fn tensor(&self, name: &str) -> Check<Option<Array>> {
        let Some(stored) = self.stored()? else { return Ok(None) };
        let Some(info) = stored.tensors.info(name) else { return Ok(None) };
        let dtype = match info.dtype {
            safetensors::Dtype::BOOL => DType::Bool,
            safetensors::Dtype::U8 => DType::U8,
            safetensors::Dtype::I8 => DType::I8,
            safetensors::Dtype::U16 => DType::U16,
            safetensors::Dtype::I16 => DType::I16,
            safetensors::Dtype::U32 => DType::U32,
            safetensors::Dtype::I32 => DType::I32,
            safetensors::Dtype::I64 => DType::I64,
            safetensors::Dtype::C64 => DType::C64,
            safetensors::Dtype::F16 => DType::F16,
            safetensors::Dtype::BF16 => DType::BF16,
            safetensors::Dtype::F32 => DType::F32,
            safetensors::Dtype::F64 => DType::F64,
            other => return Err(Problem(format!("tensor '{name}': dtype {other:?} is none of ours"))),
        };
        let bytes = stored.data.get(info.data_offsets.0..info.data_offsets.1);
        let bytes = bytes.ok_or_else(|| Problem(format!("tensor '{name}' is outside its file")))?;
        Ok(Some(Array::from_bytes(&info.shape, dtype, bytes)?))
    }
}
