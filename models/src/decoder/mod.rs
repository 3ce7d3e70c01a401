//! One decoder for Llama and its relatives: what sets them apart is data of a configuration, whose fields have the
//! names and meanings of LitGPT's.

mod check;
mod config;
pub(crate) mod families;
pub(crate) mod files;
mod forward;
pub(crate) mod gguf;
pub(crate) mod hugging_face;
pub(crate) mod hugging_face_config;
mod hugging_face_names;
mod hugging_face_rotations;
mod hugging_face_written;
pub(crate) mod litgpt;
mod parameters;
mod registry;
mod rope;
mod rope_scaling;

pub use config::{DecoderConfig, DecoderError, GeluApproximate, MlpClass, NormClass, NormQkType};
pub use files::DecoderFilesError;
pub use registry::{NAMES, SMALL_SIZES};
pub use rope_scaling::{RopeAdjustments, RopeScaling};
