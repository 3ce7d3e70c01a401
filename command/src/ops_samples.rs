//! `ops samples`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use fulgurite::argument::Arg;
use fulgurite::operator::{OperatorDef, OperatorKind};
use fulgurite::registry::operators;
use fulgurite::testing::samples::{Sample, SampleTensor};
use fulgurite::testing::{golden, sampled_dtypes};
use fulgurite::trace::Trace;
use fulgurite::transforms;
use fulgurite::{Array, DType, Target};
use serde::Serialize;

use super::outcome::{Failed, Outcome};
use super::output::say;
use super::subject;
use crate::cases::{
    CASES, ExportedCase, ExportedGrad, TENSORS, VERSION, argument_to_json, resolve_operator, tensor_bytes, write_whole,
};

/// Arguments of `ops samples`.
#[derive(Args)]
#[command(after_help = "\
Samples that can be differentiated come with random cotangents; each case names PyTorch's function in \"torch\". Kernel
symbols, which run on their executor's device alone, are left out unless --op names one.

Examples:
  fulgurite ops samples --out samples/
  fulgurite ops samples --op softmax --dtype bf16 --out samples/")]
pub struct Arguments {
    /// The folder for cases.json and tensors.safetensors; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only this operator.
    #[arg(long, value_name = "NAME")]
    op: Option<String>,
    /// Only this element type; otherwise every one that an operator takes.
    #[arg(long)]
    dtype: Option<DType>,
}

#[derive(Serialize)]
struct File {
    version: u64,
    cases: Vec<ExportedCase>,
}

#[derive(Default)]
struct Export {
    cases: Vec<ExportedCase>,
    arrays: Vec<(String, Array)>,
}

/// Exports samples.
pub fn run(arguments: &Arguments) -> Outcome {
    let chosen: Vec<&'static OperatorDef> = match &arguments.op {
        Some(name) => vec![resolve_operator(name)?],
        // Kernel symbols are run by the operators that they implement.
        None => operators().into_iter().filter(|def| !matches!(def.kind, OperatorKind::Symbol(_))).collect(),
    };
    say!("{} cases", export(&chosen, arguments.dtype, &arguments.out)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the samples of operators to a folder: how many there are.
pub fn export(chosen: &[&'static OperatorDef], dtype: Option<DType>, out: &Path) -> Result<usize, Failed> {
    let mut export = Export::default();
    for def in chosen {
        for dtype in dtype.map_or_else(|| compared_dtypes(def), |wanted| vec![wanted]) {
            if subject::takes(def, dtype) {
                for (number, sample, trace) in subject::accepted(def, dtype, &Target::cpu()) {
                    export.add(def, dtype, number, &sample, &trace)?;
                }
            }
        }
    }
    std::fs::create_dir_all(out).map_err(|error| Failed::file(out, error))?;
    let path = out.join(TENSORS);
    let bytes = tensor_bytes(&export.arrays).map_err(|message| Failed::file(&path, message))?;
    write_whole(&path, &bytes)?;
    let path = out.join(CASES);
    let count = export.cases.len();
    let file = File { version: VERSION, cases: export.cases };
    let text = serde_json::to_vec_pretty(&file).map_err(|error| Failed::file(&path, error))?;
    write_whole(&path, &text)?;
    Ok(count)
}

/// The element types that PyTorch's results are stored for: of further integers i8. i16 would say the same, and few
/// of PyTorch's operators take unsigned ones beyond u8. The files hold no c128.
fn compared_dtypes(def: &'static OperatorDef) -> Vec<DType> {
    let mut dtypes = sampled_dtypes(def);
    dtypes.retain(|dtype| !matches!(dtype, DType::U16 | DType::I16 | DType::U32 | DType::C128));
    dtypes
}

impl Export {
    fn add(
        &mut self,
        def: &'static OperatorDef,
        dtype: DType,
        number: usize,
        sample: &Sample,
        trace: &Trace,
    ) -> Result<(), Failed> {
        if trace.block.values.iter().any(|value| value.meta.dtype() == DType::C128) {
            return Ok(());
        }
        let id = format!("{}/{dtype}/{number}", def.name);
        let digest = golden::digest(def, sample);
        let mut args = serde_json::Map::new();
        for (param, argument) in def.params.iter().zip(&sample.arguments) {
            let mut keys = Vec::new();
            for (i, tensor) in argument.tensors().iter().enumerate() {
                let key = match argument {
                    Arg::List(_) => format!("{id}/{}.{i}", param.name),
                    _ => format!("{id}/{}", param.name),
                };
                self.arrays.push((key.clone(), array(tensor)?));
                keys.push(key);
            }
            let mut keys = keys.into_iter();
            let named = argument.map(|_| keys.next().unwrap_or_default());
            args.insert(param.name.to_owned(), argument_to_json(&named));
        }
        let grad = match sample.forward_only {
            Some(_) => None,
            None => self.grad(def, &id, digest, trace)?,
        };
        self.cases.push(ExportedCase {
            id,
            op: def.name,
            torch: def.torch,
            digest: format!("{digest:016x}"),
            args,
            grad,
        });
        Ok(())
    }

    fn grad(
        &mut self,
        def: &OperatorDef,
        id: &str,
        digest: u64,
        trace: &Trace,
    ) -> Result<Option<ExportedGrad>, Failed> {
        let wrt = subject::differentiable(def, trace);
        let differentiates = || transforms::vjp(trace, &wrt, &[]).is_ok();
        if wrt.is_empty() || !differentiates() {
            return Ok(None);
        }
        let block = &trace.block;
        let inputs = wrt.iter().map(|i| block.value(block.parameters[*i]).name.to_string()).collect();
        let mut cotangents = Vec::new();
        for meta in block.results.iter().map(|id| block.meta(*id)).filter(|meta| meta.dtype().is_differentiable()) {
            let key = format!("{id}/d{}", cotangents.len());
            self.arrays.push((key.clone(), golden::cotangent(meta, digest, cotangents.len())?));
            cotangents.push(key);
        }
        Ok(Some(ExportedGrad { cotangents, inputs }))
    }
}

fn array(tensor: &SampleTensor) -> Result<Array, Failed> {
    Ok(Array::from_f64(tensor.shape(), tensor.dtype(), &tensor.values())?)
}
