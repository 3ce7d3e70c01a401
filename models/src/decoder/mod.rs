//! One decoder for Llama and its relatives: what sets them apart is data of a configuration, whose fields have the
//! names and meanings of LitGPT's.

mod config;
mod forward;
pub(crate) mod hugging_face;
mod hugging_face_config;
mod parameters;
mod registry;
mod rope;

pub use config::{DecoderConfig, DecoderError, GeluApproximate, MlpClass, NormClass, RopeAdjustments};
pub use hugging_face::DecoderFilesError;
pub use registry::{NAMES, SMALL_SIZES};
