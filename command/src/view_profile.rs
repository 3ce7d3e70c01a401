//! The profile of `view`: where the time of a run went, and what its device does at most.

use std::path::PathBuf;

use clap::Args;
use fulgurite::program::Source;
use fulgurite_view::{RATES, Timing};

use super::files::read_text;
use super::outcome::Failed;

/// Options of a profile.
#[derive(Args)]
pub struct Profile {
    /// With where the time of a run went: the profile.json that `train --profile` writes.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// What the device of the profile computes at most, in 10^12 floating-point operations a second.
    #[arg(long, value_name = "NUMBER", requires = "profile")]
    peak_tflops: Option<f64>,
    /// What the device of the profile reads and writes at most, in 10^9 bytes a second.
    #[arg(long, value_name = "NUMBER", requires = "profile")]
    peak_gbps: Option<f64>,
}

impl Profile {
    /// The profile, with the ceilings that were given in place of its own, for a page of so many subjects.
    pub fn read(&self, subjects: usize) -> Result<Option<Timing>, Failed> {
        let Some(path) = &self.profile else { return Ok(None) };
        if subjects > 1 {
            return Err(Failed("--profile: of one program, and two are compared".into()));
        }
        let text = read_text(path)?;
        let mut timing = Timing::read(&text).map_err(|error| Failed::file(path, error))?;
        let [of_bytes, of_flops] = &mut timing.sources;
        for (ceiling, source, given, unit, option) in [
            (&mut timing.flops_per_second, of_flops, self.peak_tflops, 1e12, "--peak-tflops"),
            (&mut timing.bytes_per_second, of_bytes, self.peak_gbps, 1e9, "--peak-gbps"),
        ] {
            if let Some(given) = given {
                if !RATES.contains(&(given * unit)) {
                    let (least, most) = (RATES.start() / unit, RATES.end() / unit);
                    return Err(Failed(format!("{option} is {given}, expected a number from {least:e} to {most:e}")));
                }
                *ceiling = Some(given * unit);
                *source = Some(Source::Given.name().to_owned());
            }
        }
        Ok(Some(timing))
    }
}
