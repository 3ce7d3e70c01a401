//! `ops run`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite::Array;
use serde::Serialize;

use super::output::{Failed, complain, say};
use super::{Outcome, options};
use crate::cases::{CASES, CaseError, TENSORS, TensorFile, parse_cases, run_case, tensor_bytes, write_whole};

/// Arguments of `ops run`.
#[derive(Args)]
#[command(after_help = "\
The folder holds cases.json and tensors.safetensors:
  {\"version\": 1, \"cases\": [{\"id\": \"gelu/0\", \"op\": \"gelu\",
    \"args\": {\"input\": {\"tensor\": \"gelu/0/input\"}, \"approximate\": \"tanh\"},
    \"grad\": {\"cotangents\": [\"gelu/0/d0\"], \"inputs\": [\"input\"]}}]}
Results are results.json ([{\"id\", \"status\": \"ok\" or \"error\", \"error\": {\"code\", \"message\"}}]) and
results.safetensors (ID/out0, ..., ID/grad/INPUT). \"ok\" means that the case ran: its results are compared with nothing.
A case that fails does not keep the others from running; it is told on standard error, and the exit code is 1.

Examples:
  fulgurite ops run cases/ --out results/
  fulgurite ops run cases/ --executors reference --out results/")]
pub struct Arguments {
    /// The folder with cases.json and tensors.safetensors.
    cases: PathBuf,
    /// The folder for results; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    compile: options::Compile,
}

#[derive(Serialize)]
struct Report {
    id: String,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<CaseError>,
}

/// Runs cases.
pub fn run(arguments: &Arguments) -> Outcome {
    let options = arguments.compile.options()?;
    let path = arguments.cases.join(CASES);
    let text = std::fs::read(&path).map_err(|error| Failed::file(&path, error))?;
    let cases = parse_cases(&text).map_err(|message| Failed::file(&path, message))?;
    let tensors = TensorFile::read(&arguments.cases.join(TENSORS))?;
    std::fs::create_dir_all(&arguments.out).map_err(|error| Failed::file(&arguments.out, error))?;
    // A panic of a case is reported with it.
    std::panic::set_hook(Box::new(|_| {}));
    let mut arrays: Vec<(String, Array)> = Vec::new();
    let mut reports: Vec<Report> = Vec::new();
    for case in cases {
        let output = case.body.and_then(|body| run_case(&body, &tensors, &options));
        let error = match output {
            Ok(output) => {
                let named = output.outputs.into_iter().enumerate().map(|(i, array)| (format!("out{i}"), array));
                let gradients = output.gradients.into_iter().map(|(name, array)| (format!("grad/{name}"), array));
                arrays.extend(named.chain(gradients).map(|(name, array)| (format!("{}/{name}", case.id), array)));
                None
            }
            Err(error) => Some(error),
        };
        reports.push(Report { id: case.id, status: if error.is_none() { "ok" } else { "error" }, error });
    }
    let _ = std::panic::take_hook();
    let path = arguments.out.join("results.safetensors");
    let bytes = tensor_bytes(&arrays).map_err(|message| Failed::file(&path, message))?;
    write_whole(&path, &bytes)?;
    let path = arguments.out.join("results.json");
    let text = serde_json::to_vec_pretty(&reports).map_err(|error| Failed::file(&path, error))?;
    write_whole(&path, &text)?;
    let mut failed = 0;
    for report in &reports {
        if let Some(error) = &report.error {
            failed += 1;
            complain(&format!("case '{}': {error}", report.id));
        }
    }
    let ok = reports.len() - failed;
    say!("{} cases: {ok} ok, {failed} failed (ok means that it ran; nothing was compared)", reports.len())?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
