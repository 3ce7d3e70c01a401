//! Residual networks. He et al., "Deep Residual Learning for Image Recognition", 2015; of the blocks with three
//! convolutions the second one has the stride, as torchvision has it. Parameters and running statistics have
//! torchvision's names, so that its weights can be read.

use fulgurite_ops::prelude::*;
use serde::{Deserialize, Serialize};

use super::parts::{List, Pass, in_range};
use crate::config::ConfigError;

/// The shape of a residual network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResnetConfig {
    /// Height and width of images.
    pub image: usize,
    /// Channels of images.
    pub channels: usize,
    /// Number of classes.
    pub classes: usize,
    /// Whether images are small: the first convolution is 3 x 3 with a stride of 1, and no pool follows it. Otherwise
    /// it is 7 x 7 with a stride of 2, before a pool with a stride of 2.
    pub small: bool,
    /// Whether blocks have three convolutions, the last of which makes four times as many channels, and not two.
    pub bottleneck: bool,
    /// Blocks of each of the four stages.
    pub blocks: [usize; 4],
    /// Channels of the first stage; each later one has twice as many.
    pub width: usize,
}

/// A block: its name, channels before it, channels within it, its stride.
struct Block {
    name: String,
    inputs: usize,
    inner: usize,
    stride: usize,
}

impl ResnetConfig {
    /// The named sizes.
    pub const SIZES: [(&'static str, ResnetConfig); 4] = [
        ("nano", small([1; 4], 8)),
        ("18-small", small([2; 4], 64)),
        ("18", ResnetConfig { bottleneck: false, blocks: [2; 4], ..FIFTY }),
        ("50", FIFTY),
    ];

    /// Checks every field.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let [a, b, c, d] = self.blocks;
        in_range(&[
            ("image", self.image, 1 << 13),
            ("channels", self.channels, 1 << 10),
            ("classes", self.classes, 1 << 20),
            ("blocks of the first stage", a, 1 << 8),
            ("blocks of the second stage", b, 1 << 8),
            ("blocks of the third stage", c, 1 << 8),
            ("blocks of the fourth stage", d, 1 << 8),
            ("width", self.width, 1 << 13),
        ])
    }

    /// How many times as many channels a block makes as it has within.
    fn expansion(&self) -> usize {
        if self.bottleneck { 4 } else { 1 }
    }

    /// Channels of the last stage.
    pub(super) fn features(&self) -> usize {
        self.width * 8 * self.expansion()
    }

    fn layers(&self) -> Vec<Block> {
        let mut layers = Vec::new();
        let mut inputs = self.width;
        for (stage, count) in self.blocks.into_iter().enumerate() {
            let inner = self.width << stage;
            for i in 0..count {
                let stride = if i == 0 && stage > 0 { 2 } else { 1 };
                layers.push(Block { name: format!("layer{}.{i}", stage + 1), inputs, inner, stride });
                inputs = inner * self.expansion();
            }
        }
        layers
    }

    /// Whether a block projects what it adds to.
    fn projects(&self, block: &Block) -> bool {
        block.stride != 1 || block.inputs != block.inner * self.expansion()
    }

    pub(super) fn list(&self) -> List {
        let mut list = List::default();
        let mut layer = |name: &str, normal: &str, outputs, inputs, kernel| {
            list.convolution(name, outputs, inputs, kernel);
            list.batch_normalization(normal, outputs);
        };
        layer("conv1", "bn1", self.width, self.channels, if self.small { 3 } else { 7 });
        for block in self.layers() {
            let Block { name, inputs, inner, .. } = &block;
            let outputs = inner * self.expansion();
            let sizes = match self.bottleneck {
                true => vec![(*inner, *inputs, 1), (*inner, *inner, 3), (outputs, *inner, 1)],
                false => vec![(*inner, *inputs, 3), (*inner, *inner, 3)],
            };
            for ((outputs, inputs, kernel), i) in sizes.into_iter().zip(1..) {
                layer(&format!("{name}.conv{i}"), &format!("{name}.bn{i}"), outputs, inputs, kernel);
            }
            if self.projects(&block) {
                let path = format!("{name}.downsample");
                layer(&format!("{path}.0"), &format!("{path}.1"), outputs, *inputs, 1);
            }
        }
        list.linear("fc", self.classes, self.features());
        list
    }

    /// Images [N, C, H, W] to logits [N, classes].
    #[track_caller]
    pub(super) fn logits(&self, pass: &Pass<'_>, images: Tensor) -> Tensor {
        let mut x = match self.small {
            true => pass.convolution("conv1", images, 1, 1),
            false => pass.convolution("conv1", images, 2, 3),
        };
        x = relu(pass.batch_normalization("bn1", x));
        if !self.small {
            x = scope("maxpool", || max_pool2d::with(x, [3]).stride([2]).padding([1]).call());
        }
        for block in self.layers() {
            x = scope(&block.name, || self.block(pass, &block, x));
        }
        let pooled = scope("avgpool", || mean::with(x).dim([2, 3]).call());
        pass.linear("fc", pooled)
    }

    #[track_caller]
    fn block(&self, pass: &Pass<'_>, block: &Block, x: Tensor) -> Tensor {
        let Block { name, stride, .. } = block;
        let layer = |i: usize, x, stride, padding| {
            let x = pass.convolution(&format!("{name}.conv{i}"), x, stride, padding);
            pass.batch_normalization(&format!("{name}.bn{i}"), x)
        };
        let inner = match self.bottleneck {
            true => layer(3, relu(layer(2, relu(layer(1, x, 1, 0)), *stride, 1)), 1, 0),
            false => layer(2, relu(layer(1, x, *stride, 1)), 1, 1),
        };
        let kept = match self.projects(block) {
            true => {
                let path = format!("{name}.downsample");
                let projected = pass.convolution(&format!("{path}.0"), x, *stride, 0);
                pass.batch_normalization(&format!("{path}.1"), projected)
            }
            false => x,
        };
        relu(inner + kept)
    }
}

/// A network for images of 32 x 32.
const fn small(blocks: [usize; 4], width: usize) -> ResnetConfig {
    ResnetConfig { image: 32, channels: 3, classes: 10, small: true, bottleneck: false, blocks, width }
}

/// The ResNet-50 of ImageNet.
const FIFTY: ResnetConfig = ResnetConfig {
    image: 224,
    channels: 3,
    classes: 1000,
    small: false,
    bottleneck: true,
    blocks: [3, 4, 6, 3],
    width: 64,
};
