//! Kinds of devices: how they are registered and found, and what they say of a device before it is opened.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::command::Source;
use super::context::DeviceContext;
use super::error::{Category, DeviceError};
use super::properties::{Entry, Properties, Rates};
use crate::dlpack::HOST_MEMORY;
use crate::error::Failure;
use crate::meta::{Device, Target};
use crate::operator::did_you_mean;
use crate::stream_kind::StreamKind;

/// A kind of device. See [the module](super) for what a backend implements.
pub trait DeviceKind: Send + Sync {
    /// Unique: `cuda`. What targets, devices and executors name.
    fn name(&self) -> &'static str;

    /// What it is, in a sentence.
    fn docs(&self) -> &'static str;

    /// [`Device::auto`] takes the available kind of the lowest number; `None` if it must be named.
    fn priority(&self) -> Option<u32>;

    /// How many devices there are, at least one.
    ///
    /// # Errors
    /// Why there is none, for example because a library is absent.
    fn count(&self) -> Result<u32, DeviceError>;

    /// Whether everything that programs usually need is on this machine beside a device: compilers, libraries.
    ///
    /// # Errors
    /// What is missing.
    fn complete(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// What is known of device `ordinal` without opening it.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn properties(&self, ordinal: u32) -> Result<Properties, DeviceError>;

    /// The properties of a usual device of an architecture, for plans that are made without one.
    fn typical(&self, architecture: Option<&str>) -> Properties;

    /// The architecture that programs are compiled for where no device says another: in snapshots and in tests without
    /// a device.
    fn usual_architecture(&self) -> Option<&'static str> {
        None
    }

    /// Whether this names an architecture of the kind.
    ///
    /// # Errors
    /// What is expected instead.
    fn check_architecture(&self, text: &str) -> Result<(), String> {
        Err(format!("'{}' has no architectures, got '{text}'", self.name()))
    }

    /// The kinds of stream that its devices have beside [`StreamKind::Compute`], which every kind has. Work for a
    /// stream that is not listed runs on the compute stream.
    fn streams(&self) -> &'static [StreamKind] {
        &[]
    }

    /// Whether what the kind's executors lack, and does not decompose, is run on the host by default.
    fn falls_back_to_host(&self) -> bool {
        true
    }

    /// What devices of an architecture do at most; `None` if that is not known.
    fn rates(&self, architecture: Option<&str>) -> Option<Rates> {
        let _ = architecture;
        None
    }

    /// What a kernel takes at least, however little it does; `None` if that is nothing to speak of. Calls that are
    /// alike and take less at the rates of [`DeviceKind::rates`] are run together
    /// (the pass `batch` of the compiler).
    fn least_kernel(&self) -> Option<Duration> {
        None
    }

    /// Versions of the driver and the libraries that the times of programs depend on, as records of measurements have
    /// them.
    fn software(&self) -> String {
        "none".into()
    }

    /// More bytes than its devices' caches hold: what is written between measured runs, so that operands come from
    /// memory.
    fn beyond_caches(&self) -> usize {
        256 << 20
    }

    /// Whether programs that are compiled to be run have the candidates of costly calls measured by default
    /// (`choices` of `fulgurite-run`).
    fn chooses(&self) -> bool {
        false
    }

    /// What DLPack calls devices of this kind; `None` if arrays on them are not exchanged.
    fn dlpack_type(&self) -> Option<i32> {
        None
    }

    /// What DLPack calls host memory that is page-locked for devices of this kind, and that their streams may write;
    /// `None` if it has no word for it.
    fn dlpack_host_type(&self) -> Option<i32> {
        let own = self.dlpack_type()?;
        HOST_MEMORY.iter().find(|(device, _)| *device == own).map(|(_, host)| *host)
    }

    /// Opens device `ordinal`. It is opened once in a process.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn open(&self, ordinal: u32) -> Result<Arc<dyn DeviceContext>, DeviceError>;

    /// A source as it is compiled: `text` with the names that a plan defines, in the kind's language.
    ///
    /// # Errors
    /// If the kind compiles no sources, or the text cannot be read.
    fn source(&self, name: &str, defines: &[(String, String)], text: &str) -> Result<Source, Failure> {
        let _ = (defines, text);
        Err(Failure::new(
            "NoSource",
            format!("devices of kind '{}' compile no sources, and here is {name}", self.name()),
        ))
    }

    /// Whether sources can be compiled on this machine, which needs no device.
    ///
    /// # Errors
    /// Why not.
    fn compiler(&self) -> Result<(), DeviceError> {
        let message = format!("devices of kind '{}' compile no sources", self.name());
        Err(DeviceError::new(Category::Unavailable, message))
    }

    /// Whether the environment requires [`DeviceKind::compiler`]: tests that need it then fail where it is absent,
    /// and are not skipped.
    fn requires_compiler(&self) -> bool {
        false
    }

    /// Compiles a source for an architecture, and lists its kernels.
    ///
    /// # Errors
    /// The compiler's.
    fn entries(&self, architecture: &str, source: &Source) -> Result<Vec<Entry>, DeviceError> {
        let _ = (architecture, source);
        self.compiler().map(|()| Vec::new())
    }
}

/// Every kind of device linked into the program.
#[linkme::distributed_slice]
pub static DEVICE_KINDS: [&'static dyn DeviceKind];

impl fmt::Debug for dyn DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// All kinds, sorted by name. The host is none of them.
pub fn device_kinds() -> Vec<&'static dyn DeviceKind> {
    let mut all: Vec<_> = DEVICE_KINDS.iter().copied().collect();
    all.sort_by_key(|kind| kind.name());
    all
}

/// The kind of that name.
///
/// # Errors
/// If there is none, with those that there are.
pub fn find_kind(name: &str) -> crate::Result<&'static dyn DeviceKind> {
    DEVICE_KINDS.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
        let host = (!Device::is_host(name)).then_some(Device::CPU.kind());
        let names: Vec<&str> = host.into_iter().chain(device_kinds().iter().map(|kind| kind.name())).collect();
        let hint = did_you_mean(name, names.iter().copied());
        let there = crate::error::there_are(&hint);
        crate::Error::Argument {
            argument: "device".into(),
            message: format!("no kind of device is called '{name}'{hint}{there} {}", names.join(", ")),
        }
    })
}

/// The properties that programs for `target` are planned by: those of device `ordinal` if it is on this machine and has
/// the target's architecture, otherwise those of a usual device of the architecture.
pub fn properties_for(kind: &dyn DeviceKind, target: &Target, ordinal: u32) -> Properties {
    match kind.properties(ordinal) {
        Ok(found) if target.architecture().is_none_or(|wanted| found.architecture.as_deref() == Some(wanted)) => found,
        _ => kind.typical(target.architecture()),
    }
}

impl Device {
    /// The first device of the first kind that this machine has, in the order of the kinds' priorities; the host if
    /// there is none.
    pub fn auto() -> Device {
        let mut kinds: Vec<_> = device_kinds().into_iter().filter_map(|kind| Some((kind.priority()?, kind))).collect();
        kinds.sort_by_key(|(priority, kind)| (*priority, kind.name()));
        let found = kinds.into_iter().find(|(_, kind)| kind.properties(0).is_ok());
        found.map_or(Device::CPU, |(_, kind)| Device::new(kind.name(), 0))
    }

    /// The device that a person names: `auto` is [`Device::auto`], the rest is the text of a device.
    ///
    /// # Errors
    /// If it is the name of no device, or of a kind that is not linked.
    pub fn named(text: &str) -> Result<Device, String> {
        if text == "auto" {
            return Ok(Device::auto());
        }
        let device: Device = text.parse()?;
        match device.is_cpu() {
            true => Ok(device),
            false => find_kind(device.kind()).map(|_| device).map_err(|error| error.to_string()),
        }
    }
}

impl Target {
    /// What programs for `device` are compiled for: its kind and, where kinds have several, the architecture.
    ///
    /// # Errors
    /// If the device is not available, with the reason.
    pub fn of(device: Device) -> crate::Result<Target> {
        if device.is_cpu() {
            return Ok(Target::cpu());
        }
        let properties = find_kind(device.kind())?.properties(device.index())?;
        Ok(Target::new(device.kind(), properties.architecture))
    }
}
