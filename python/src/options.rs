//! Options of compilation as Python gives them, before the device is known.

use std::sync::{Arc, Mutex, PoisonError};

use fulgurite::compile::{Options, UserTransform};
use fulgurite::executor::{executors_named, find_executor};
use fulgurite::{Array, Device, Error, Target};
use pyo3::prelude::*;

use crate::array::{device_of, or_raise};
use crate::function::transform;

/// What a function is asked to be compiled with. Executors are a list for each kind of device: `default` means the
/// default ones of that kind, and an executor of another kind is left out, so that one list serves several devices.
#[derive(Clone)]
pub(crate) struct Asked {
    options: Options,
    executors: Option<Vec<String>>,
}

impl Asked {
    pub(crate) fn new(
        py: Python<'_>,
        executors: Option<Vec<String>>,
        device: Option<&Bound<'_, PyAny>>,
        autocast: Option<&Bound<'_, PyAny>>,
        transforms: Vec<(String, Py<PyAny>, String)>,
    ) -> PyResult<Asked> {
        let device: Option<Device> = device.map(device_of).transpose()?;
        let mut options = Options { device, ..Options::default() };
        if let Some(autocast) = autocast {
            options.autocast = crate::types::dtype_of(autocast)?;
        }
        for (name, function, place) in transforms {
            options.transforms.push(transform(name, function, &place)?);
        }
        // An unknown name is an error of the call that has it.
        for name in executors.iter().flatten().filter(|name| *name != DEFAULT) {
            or_raise(py, find_executor(name))?;
        }
        Ok(Asked { options, executors })
    }

    /// The same with a transform behind those of the user.
    pub(crate) fn and(mut self, transform: UserTransform) -> Asked {
        self.options.transforms.push(transform);
        self
    }

    /// The kind of device on which a call with these arguments runs.
    pub(crate) fn kind<'a>(&self, arrays: impl Iterator<Item = &'a Array>) -> &'static str {
        self.kind_of(device_among(arrays))
    }

    /// The kind of device on which a call runs whose arrays are on this one, or on the host.
    pub(crate) fn kind_of(&self, device: Option<Device>) -> &'static str {
        device.or(self.options.device).unwrap_or(Device::CPU).kind()
    }

    /// The options for a kind of device.
    ///
    /// # Errors
    /// If executors are named, and none of them runs there.
    pub(crate) fn on(&self, kind: &str) -> Result<Options, Error> {
        let Some(names) = &self.executors else { return Ok(self.options.clone()) };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut list = executors_named(&names, kind)?;
        list.retain(|executor| executor.runs_on(kind));
        if list.is_empty() && !names.is_empty() {
            let message = format!("none of {} runs on {kind}: name 'default' behind them", names.join(", "));
            return Err(Error::Argument { argument: "executors".into(), message });
        }
        Ok(Options { executors: Some(list), ..self.options.clone() })
    }

    /// The options for a program that is compiled for a target and not run.
    pub(crate) fn only_compiled(&self, target: &Target) -> Result<Options, Error> {
        Ok(Options { device: None, ..self.on(target.kind())? })
    }

    /// What is said of the executors that are named and do not run on a kind of device.
    pub(crate) fn elsewhere(&self, kind: &str) -> String {
        let named = self.executors.iter().flatten().filter(|name| *name != DEFAULT);
        let found = named.filter_map(|name| find_executor(name).ok());
        let others = found.filter(|executor| !executor.runs_on(kind));
        others
            .map(|own| format!("executor {}: runs on {}, this program is for {kind}\n", own.name, own.device))
            .collect()
    }
}

/// The device of the first array that is not on the host.
pub(crate) fn device_among<'a>(mut arrays: impl Iterator<Item = &'a Array>) -> Option<Device> {
    arrays.find(|array| !array.device().is_cpu()).map(Array::device)
}

/// The name that means the default executors in a list.
const DEFAULT: &str = "default";

/// What is made once for each kind of device.
pub(crate) struct PerKind<T> {
    make: Box<dyn Fn(&str) -> Result<T, Error> + Send + Sync>,
    made: Mutex<Vec<(String, Arc<T>)>>,
}

impl<T> PerKind<T> {
    pub(crate) fn new(make: impl Fn(&str) -> Result<T, Error> + Send + Sync + 'static) -> PerKind<T> {
        PerKind { make: Box::new(make), made: Mutex::default() }
    }

    /// What there is for a kind of device.
    pub(crate) fn get(&self, kind: &str) -> Result<Arc<T>, Error> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = made.iter().find(|(known, _)| known == kind) {
            return Ok(found.clone());
        }
        let new = Arc::new((self.make)(kind)?);
        made.push((kind.to_owned(), new.clone()));
        Ok(new)
    }

    /// All that was made.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).iter().map(|(_, each)| each.clone()).collect()
    }
}
