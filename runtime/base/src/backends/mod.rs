//! Kinds of devices that come with the runtime. Nothing outside of a backend's folder names it.

pub mod cuda;
