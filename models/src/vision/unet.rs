//! U-Nets: a class for each pixel. Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image
//! Segmentation", 2015; here convolutions keep the extents (a padding of 1), and groups of channels are normalized
//! before each rectifier, so that a batch may be small.

use fulgurite_ops::prelude::*;
use serde::{Deserialize, Serialize};

use super::parts::{List, Pass, in_range};
use crate::blocks::block;
use crate::config::ConfigError;

/// The shape of a U-Net.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnetConfig {
    /// Height and width of images, a multiple of 2 to the power of `depth`.
    pub image: usize,
    /// Channels of images.
    pub channels: usize,
    /// Number of classes of a pixel, the background included.
    pub classes: usize,
    /// How often the extents are halved.
    pub depth: usize,
    /// Channels at the full extents; each level below has twice as many.
    pub width: usize,
    /// Groups of channels that are normalized together; divides `width`.
    pub groups: usize,
}

impl UnetConfig {
    /// The named sizes.
    pub const SIZES: [(&'static str, UnetConfig); 3] = [
        ("nano", UnetConfig { image: 32, channels: 3, classes: 7, depth: 2, width: 8, groups: 4 }),
        ("micro", UnetConfig { image: 64, channels: 3, classes: 7, depth: 3, width: 16, groups: 8 }),
        ("base", UnetConfig { image: 256, channels: 3, classes: 7, depth: 4, width: 64, groups: 32 }),
    ];

    /// Checks every field.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        in_range(&[
            ("image", self.image, 1 << 13),
            ("channels", self.channels, 1 << 10),
            ("classes", self.classes, 1 << 20),
            ("depth", self.depth, 8),
            ("width", self.width, 1 << 13),
            ("groups", self.groups, self.width),
        ])?;
        if !self.image.is_multiple_of(1 << self.depth) {
            return Err(ConfigError::Patch { image: self.image, patch: 1 << self.depth });
        }
        if !self.width.is_multiple_of(self.groups) {
            return Err(ConfigError::Groups { channels: self.width, groups: self.groups });
        }
        Ok(())
    }

    /// Two convolutions for each level on the way down and at the bottom, and an enlargement and two convolutions for
    /// each on the way up.
    pub(super) fn list(&self) -> List {
        let mut list = List::default();
        let pair = |list: &mut List, path: &str, inputs: usize, outputs: usize| {
            for (i, inputs) in [(1, inputs), (2, outputs)] {
                list.convolution(&format!("{path}.conv{i}"), outputs, inputs, 3);
                list.normalization(&format!("{path}.norm{i}"), outputs);
            }
        };
        let mut inputs = self.channels;
        for level in 0..self.depth {
            pair(&mut list, &format!("down.{level}"), inputs, self.width << level);
            inputs = self.width << level;
        }
        pair(&mut list, "bottom", inputs, 2 * inputs);
        for level in (0..self.depth).rev() {
            let width = self.width << level;
            list.biased(&format!("up.{level}.enlarge"), &[2 * width, width, 2, 2], 4 * width, width);
            pair(&mut list, &format!("up.{level}"), 2 * width, width);
        }
        list.biased("head", &[self.classes, self.width, 1, 1], self.width, self.classes);
        list
    }

    /// Images [N, C, H, W] to logits [N, classes, H, W].
    #[track_caller]
    pub(super) fn logits(&self, pass: &Pass<'_>, images: Tensor) -> Tensor {
        let pair = |path: &str, x: Tensor| {
            (1..=2).fold(x, |x, i| {
                let x = pass.convolution(&format!("{path}.conv{i}"), x, 1, 1);
                relu(pass.group_normalization(&format!("{path}.norm{i}"), x, self.groups))
            })
        };
        let (mut x, mut kept) = (images, Vec::new());
        for level in 0..self.depth {
            let path = format!("down.{level}");
            let whole = block(&path, || pair(&path, x));
            kept.push(whole);
            x = scope(&path, || max_pool2d(whole, [2]));
        }
        x = block("bottom", || pair("bottom", x));
        for level in (0..self.depth).rev() {
            let path = format!("up.{level}");
            x = block(&path, || {
                let enlarged = pass.enlarged(&format!("{path}.enlarge"), x);
                pair(&path, cat::with(vec![kept[level], enlarged]).dim(1).call())
            });
        }
        pass.convolution("head", x, 1, 0)
    }
}
