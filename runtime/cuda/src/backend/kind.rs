//! What CUDA devices are, and the language of their kernels.

use std::sync::Arc;
use std::time::Duration;

use crate::{Compilation, KernelCache, LibraryState, device, devices, headers, nvrtc, probe, sources};

use super::context::CudaContext;
use super::properties::{USUAL, of_architecture, properties_of, rates_of};
use fulgurite_base::device::{DEVICE_KINDS, DeviceContext, DeviceError, DeviceKind, Entry, Properties, Rates, Source};
use fulgurite_base::error::Failure;
use fulgurite_base::stream_kind::StreamKind;

/// Compute capabilities of NVIDIA's GPUs, times ten.
const CAPABILITIES: [u32; 21] =
    [50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121];

/// The first capability with `a`, features that later ones lack, and with `f`, features of its family.
const FIRST_WITH_LETTER: [(char, u32); 2] = [('a', 90), ('f', 100)];

/// With this variable set to 1 a machine without NVRTC fails tests that need it.
const REQUIRE_NVRTC: &str = "FULGURITE_REQUIRE_NVRTC";

/// The kind `cuda`.
#[derive(Debug)]
pub struct Cuda;

#[linkme::distributed_slice(DEVICE_KINDS)]
static CUDA: &dyn DeviceKind = &Cuda;

impl DeviceKind for Cuda {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn docs(&self) -> &'static str {
        "NVIDIA GPUs."
    }

    fn priority(&self) -> Option<u32> {
        Some(10)
    }

    fn count(&self) -> Result<u32, DeviceError> {
        Ok(devices()?.len() as u32)
    }

    fn complete(&self) -> Result<(), DeviceError> {
        Ok([&probe().nvrtc, &probe().cublaslt].into_iter().try_for_each(|library| library.require())?)
    }

    fn properties(&self, ordinal: u32) -> Result<Properties, DeviceError> {
        Ok(properties_of(&device(ordinal as usize)?))
    }

    fn typical(&self, architecture: Option<&str>) -> Properties {
        of_architecture(architecture.unwrap_or(USUAL))
    }

    fn usual_architecture(&self) -> Option<&'static str> {
        Some(USUAL)
    }

    /// `sm_80`, `sm_90a`, `sm_100f`: a capability that GPUs have, and maybe a letter.
    fn check_architecture(&self, text: &str) -> Result<(), String> {
        let number = text.strip_prefix("sm_").unwrap_or_default();
        let letter = FIRST_WITH_LETTER.iter().find(|(letter, _)| number.ends_with(*letter));
        let is = |known: &u32| match letter {
            Some((letter, first)) => known >= first && number == format!("{known}{letter}"),
            None => number == known.to_string(),
        };
        match CAPABILITIES.iter().any(is) {
            true => Ok(()),
            false => {
                let known = CAPABILITIES.map(|known| known.to_string()).join(", ");
                Err(format!(
                    "'{text}' is not an architecture of 'cuda', expected sm_ and one of {known}, with 'a' from 90 on \
                     or 'f' from 100 on, such as sm_90a"
                ))
            }
        }
    }

    fn streams(&self) -> &'static [StreamKind] {
        &StreamKind::ALL
    }

    /// A copy to the host in the middle of a program costs more than a message that says what is missing.
    fn falls_back_to_host(&self) -> bool {
        false
    }

    fn rates(&self, architecture: Option<&str>) -> Option<Rates> {
        Some(rates_of(architecture.unwrap_or(USUAL)))
    }

    /// Products of 256 rows take 7 to 8 us on an H200 whatever their bytes and arithmetic, sums 3 to 4.
    fn least_kernel(&self) -> Option<Duration> {
        Some(Duration::from_micros(4))
    }

    fn software(&self) -> String {
        let version = |library: &crate::Library| match &library.state {
            LibraryState::Found { version: Some(version), .. } => format!("{} {version}", library.name),
            LibraryState::Found { version: None, .. } => format!("{} of unknown version", library.name),
            LibraryState::Missing { .. } => format!("no {}", library.name),
        };
        [&probe().driver, &probe().nvrtc, &probe().cublaslt, &probe().cudnn].map(version).join(", ")
    }

    fn chooses(&self) -> bool {
        true
    }

    fn dlpack_type(&self) -> Option<i32> {
        Some(2)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn DeviceContext>, DeviceError> {
        Ok(Arc::new(CudaContext::new(ordinal as usize)?))
    }

    /// The shared headers that the text includes, the names that the plan defines, and the text, with lines counted
    /// from its own first one.
    fn source(&self, name: &str, defines: &[(String, String)], text: &str) -> Result<Source, Failure> {
        let text = sources::edited(name, text).map_err(|reason| Failure::new("Sources", reason))?;
        let includes = headers::directives(&text);
        let defines: String = defines.iter().map(|(name, value)| format!("#define {name} {value}\n")).collect();
        let text = format!("{includes}{defines}#line 1 \"{name}\"\n{text}").into();
        // No contraction of products and sums: the device computes what the host computes.
        Ok(Source { name: name.into(), text, options: vec!["--fmad=false".to_owned()] })
    }

    fn compiler(&self) -> Result<(), DeviceError> {
        nvrtc::version()?;
        Ok(())
    }

    fn requires_compiler(&self) -> bool {
        std::env::var(REQUIRE_NVRTC).is_ok_and(|value| value == "1")
    }

    fn entries(&self, architecture: &str, source: &Source) -> Result<Vec<Entry>, DeviceError> {
        let compilation =
            Compilation { name: &source.name, source: &source.text, architecture, options: &source.options };
        let cubin = KernelCache::global().compile(&compilation)?;
        let entry = |kernel: &crate::KernelResources| Entry {
            name: kernel.name.clone(),
            parameters: kernel.parameters.iter().map(|parameter| parameter.bytes).collect(),
        };
        Ok(cubin.kernels().iter().map(entry).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_of_cuda() {
        for good in ["sm_80", "sm_90a", "sm_100f", "sm_120"] {
            assert!(Cuda.check_architecture(good).is_ok(), "{good}");
        }
        for bad in [
            "banana",
            "sm_",
            "sm_9",
            "sm_90b",
            "sm_a",
            "sm_90aa",
            "90a",
            "sm_1000",
            "compute_90",
            "sm_999",
            "sm_91",
            "sm_80a",
            "sm_90f",
            "sm_090",
        ] {
            assert!(Cuda.check_architecture(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn usual_devices_follow_from_the_architecture() {
        let of = |text| Cuda.typical(Some(text));
        assert_eq!(Cuda.typical(None), of("sm_90a"));
        assert_eq!((of("sm_90a").multiprocessors, of("sm_80").multiprocessors), (132, 108));
        assert_eq!(of("sm_90a").shared_bytes_per_block, 227 << 10);
        assert!(of("sm_100a").clusters && !of("sm_89").clusters);
        assert_eq!(of("sm_50").shared_bytes_per_block, 48 << 10, "an architecture that the table lacks");
    }
}
