//! `ops run`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fulgurite::device::DeviceState;
use fulgurite::{Array, Device, Target};
use serde::Serialize;

use super::options;
use super::outcome::{Failed, Outcome};
use super::output::{complain, say};
use crate::cases::{CASES, CaseError, Results, TENSORS, TensorFile, parse_cases, run_case};

/// Arguments of `ops run`.
#[derive(Args)]
#[command(after_help = "\
The folder holds cases.json and tensors.safetensors:
  {\"version\": 1, \"cases\": [{\"id\": \"gelu/0\", \"op\": \"gelu\",
    \"args\": {\"input\": {\"tensor\": \"gelu/0/input\"}, \"approximate\": \"tanh\"},
    \"grad\": {\"cotangents\": [\"gelu/0/d0\"], \"inputs\": [\"input\"]},
    \"layout\": {\"input\": [1, 4]}}]}
\"layout\" gives strides, in elements, of arguments that are not contiguous; tensors.safetensors has their values in row-major order.
Results are results.json ([{\"id\", \"status\": \"ok\" or \"error\", \"error\": {\"code\", \"message\"}}]) and
results.safetensors (ID/out0, ..., ID/grad/INPUT). \"ok\" means that the case ran: its results are compared with nothing.
A failing case does not stop the others; it is printed to standard error, and the exit code is 1.
Results are written during the run: results.json is complete after every case, and a killed run leaves its tensors in
results.part-N.safetensors.

Examples:
  fulgurite ops run cases/ --out results/
  fulgurite ops run cases/ --executors reference --out results/
  fulgurite ops run cases/ --device cuda --out results/")]
pub struct Arguments {
    /// The folder with cases.json and tensors.safetensors.
    cases: PathBuf,
    /// The folder for results; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The device that runs the cases: cpu, cuda, cuda:1, ..., or auto for the first available device. Tensors are
    /// copied to it, and an argument `device` of "cpu" means this device.
    #[arg(long, default_value = "cpu", value_name = "DEVICE", value_parser = Device::named)]
    device: Device,
    #[command(flatten)]
    compile: options::Compile,
}

/// Why nothing runs on a device any more, if a case left it so.
fn lost(device: Device) -> Option<fulgurite::Error> {
    if device.is_cpu() { None } else { DeviceState::of(device).ok()?.lost() }
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
    let target = Target::of(arguments.device)?;
    let options = arguments.compile.options_to_run(&target)?;
    let path = arguments.cases.join(CASES);
    let text = std::fs::read(&path).map_err(|error| Failed::file(&path, error))?;
    let cases = parse_cases(&text).map_err(|message| Failed::file(&path, message))?;
    let tensors = TensorFile::read(&arguments.cases.join(TENSORS))?;
    let mut results = Results::begin(&arguments.out)?;
    // A panic of a case is reported with it.
    std::panic::set_hook(Box::new(|_| {}));
    let (count, mut failed) = (cases.len(), 0);
    for case in cases {
        let place = (arguments.device, &target);
        let output = case.body.and_then(|body| run_case(&body, &tensors, place, &options));
        let output = output.and_then(|output| {
            let named = output.outputs.into_iter().enumerate().map(|(i, array)| (format!("out{i}"), array));
            let gradients = output.gradients.into_iter().map(|(name, array)| (format!("grad/{name}"), array));
            let all = named.chain(gradients).map(|(name, array)| (format!("{}/{name}", case.id), array));
            results.tensors(all.collect::<Vec<(String, Array)>>())
        });
        let error = output.err();
        if let Some(error) = &error {
            failed += 1;
            complain(&format!("case '{}': {error}", case.id));
        }
        let lost = error.is_some().then(|| lost(arguments.device)).flatten();
        results.report(&Report { id: case.id.clone(), status: if error.is_none() { "ok" } else { "error" }, error })?;
        if let Some(lost) = lost {
            results.finish()?;
            return Err(Failed(format!("nothing runs on the device any more since case '{}': {lost}", case.id)));
        }
    }
    let _ = std::panic::take_hook();
    results.finish()?;
    say!("{count} cases: {} ok, {failed} failed (ok means that it ran; nothing was compared)", count - failed)?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
