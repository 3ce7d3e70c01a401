//! What goes wrong on a device: a backend's own error behind one type, with what the runtime has to know of it.

use std::fmt;
use std::sync::Arc;

use crate::meta::Device;

/// What the runtime has to know of an error of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Category {
    /// The device, its driver or a library is absent.
    Unavailable,
    /// Memory allocation failed. Cached memory is freed, and the call is retried.
    OutOfMemory,
    /// Code does not compile.
    Compile,
    /// The library or device does not support the request; there is an alternative.
    Unsupported,
    /// The device runs nothing any more in this process.
    Lost,
    /// Any other error.
    Other,
}

/// The error of a backend.
pub trait BackendError: std::error::Error + Send + Sync + 'static {
    /// What the runtime has to know of it.
    fn category(&self) -> Category;
}

/// The error of a device of any kind. Its text is the backend's.
#[derive(Clone)]
pub struct DeviceError(Arc<dyn BackendError>);

impl DeviceError {
    /// An error without a type of its own.
    pub fn new(category: Category, message: impl Into<String>) -> DeviceError {
        DeviceError(Arc::new(Plain { category, message: message.into() }))
    }

    /// The same error, whose text names the device.
    pub fn on(&self, device: Device) -> DeviceError {
        DeviceError::new(self.category(), format!("{device}: {self}"))
    }

    /// What the runtime has to know of it.
    pub fn category(&self) -> Category {
        self.0.category()
    }

    /// A short name of what went wrong.
    pub fn code(&self) -> &'static str {
        match self.category() {
            Category::Unavailable => "NoDevice",
            Category::OutOfMemory => "OutOfMemory",
            Category::Compile => "Compile",
            Category::Unsupported | Category::Lost | Category::Other => "Device",
        }
    }

    /// The backend's error, for those that know the backend.
    pub fn backend(&self) -> &dyn BackendError {
        &*self.0
    }
}

impl<E: BackendError> From<E> for DeviceError {
    fn from(error: E) -> DeviceError {
        DeviceError(Arc::new(error))
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// A category and a message.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Plain {
    category: Category,
    message: String,
}

impl BackendError for Plain {
    fn category(&self) -> Category {
        self.category
    }
}
