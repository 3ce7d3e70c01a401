//! Models of images, which train as the models of text do: residual networks, vision transformers and U-Nets, sets of
//! images, and files of weights.

mod cifar;
mod config;
mod images;
mod parts;
mod resnet;
mod shapes;
mod unet;
mod vit;
mod weights;

pub use cifar::{CifarError, cifar10};
pub use config::{ImageConfig, ImageKind};
pub use images::{ImageSet, Labels};
pub use resnet::ResnetConfig;
pub use shapes::shapes;
pub use unet::UnetConfig;
pub use vit::VitConfig;
pub use weights::{ImageWeightsError, image_weights};
