//! One decoder for Llama and its relatives: what sets them apart is data of a configuration, whose fields have the
//! names and meanings of LitGPT's.

mod config;
pub(crate) mod files;
mod forward;
pub(crate) mod hugging_face;
pub(crate) mod hugging_face_config;
pub(crate) mod litgpt;
mod parameters;
mod registry;
mod rope;

pub use config::{DecoderConfig, DecoderError, GeluApproximate, MlpClass, NormClass, RopeAdjustments};
pub use files::DecoderFilesError;
pub use registry::{NAMES, SMALL_SIZES};
