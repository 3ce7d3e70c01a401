//! Vision transformers. Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020: an image is a sequence of patches,
//! after a class token whose last state is what the classes are told by. Parameters have torchvision's names.

use fulgurite_ops::prelude::*;
use serde::{Deserialize, Serialize};

use super::parts::{List, Pass, in_range};
use crate::blocks::block;
use crate::config::{ConfigError, Initial};

/// Added to the variance in each normalization, as torchvision has it.
const EPSILON: f64 = 1e-6;

/// The shape of a vision transformer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VitConfig {
    /// Height and width of images.
    pub image: usize,
    /// Channels of images.
    pub channels: usize,
    /// Number of classes.
    pub classes: usize,
    /// Height and width of a patch; divides those of images.
    pub patch: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Attention heads of a block; divides `width`.
    pub heads: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Inner width of the feed-forward part.
    pub inner: usize,
    /// Probability in [0, 1) of dropping a value after the embeddings, attention and feed-forward part.
    pub dropout: f64,
}

impl VitConfig {
    /// The named sizes.
    pub const SIZES: [(&'static str, VitConfig); 3] = [
        ("nano", size(32, 10, 8, [2, 2, 64])),
        ("micro", size(32, 10, 4, [6, 4, 128])),
        ("b_16", size(224, 1000, 16, [12, 12, 768])),
    ];

    /// Checks every field.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        in_range(&[
            ("image", self.image, 1 << 13),
            ("channels", self.channels, 1 << 10),
            ("classes", self.classes, 1 << 20),
            ("patch", self.patch, self.image),
            ("layers", self.layers, 1 << 10),
            ("heads", self.heads, 1 << 10),
            ("width", self.width, 1 << 16),
            ("inner", self.inner, 1 << 20),
        ])?;
        if !self.image.is_multiple_of(self.patch) {
            return Err(ConfigError::Patch { image: self.image, patch: self.patch });
        }
        if !self.width.is_multiple_of(self.heads) {
            return Err(ConfigError::Heads { channels: self.width, heads: self.heads });
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(ConfigError::Dropout(self.dropout));
        }
        Ok(())
    }

    fn patches(&self) -> usize {
        (self.image / self.patch).pow(2)
    }

    pub(super) fn list(&self) -> List {
        let (mut list, width) = (List::default(), self.width);
        list.other("class_token", &[1, 1, width], Initial::Zeros, false);
        let inputs = self.channels * self.patch * self.patch;
        list.biased("conv_proj", &[width, self.channels, self.patch, self.patch], inputs, width);
        list.other("encoder.pos_embedding", &[1, self.patches() + 1, width], Initial::Normal(0.02), false);
        for i in 0..self.layers {
            let path = format!("encoder.layers.encoder_layer_{i}");
            list.normalization(&format!("{path}.ln_1"), width);
            let attention = format!("{path}.self_attention");
            // Xavier's deviation (Glorot & Bengio, 2010), as PyTorch has it of the three together.
            let initial = Initial::Normal((2.0 / (4 * width) as f64).sqrt());
            list.other(&format!("{attention}.in_proj_weight"), &[3 * width, width], initial, true);
            list.other(&format!("{attention}.in_proj_bias"), &[3 * width], Initial::Zeros, false);
            list.linear(&format!("{attention}.out_proj"), width, width);
            list.normalization(&format!("{path}.ln_2"), width);
            list.linear(&format!("{path}.mlp.0"), self.inner, width);
            list.linear(&format!("{path}.mlp.3"), width, self.inner);
        }
        list.normalization("encoder.ln", width);
        list.linear("heads.head", self.classes, width);
        for own in &mut list.parameters {
            own.is_linear |= own.name.contains(".in_proj_");
        }
        list
    }

    /// Images [N, C, H, W] to logits [N, classes].
    #[track_caller]
    pub(super) fn logits(&self, pass: &Pass<'_>, images: Tensor) -> Tensor {
        let (rows, width, patches) = (images.size(0) as i64, self.width as i64, self.patches() as i64);
        let patched = pass.convolution("conv_proj", images, self.patch, 0);
        let embedded = transpose(reshape(patched, [rows, width, patches]), 1, 2);
        let class = expand(pass.of("class_token"), [rows, 1, width]);
        let mut x = cat::with(vec![class, embedded]).dim(1).call() + pass.of("encoder.pos_embedding");
        x = pass.dropped(x);
        for i in 0..self.layers {
            let path = format!("encoder.layers.encoder_layer_{i}");
            x = block(&path, || self.block(pass, &path, x));
        }
        let last = pass.layer_normalization("encoder.ln", x, EPSILON);
        pass.linear("heads.head", select(last, 1, 0))
    }

    #[track_caller]
    fn block(&self, pass: &Pass<'_>, path: &str, x: Tensor) -> Tensor {
        let normal = pass.layer_normalization(&format!("{path}.ln_1"), x, EPSILON);
        let attention = format!("{path}.self_attention");
        let attended = scope("self_attention", || {
            let [weight, bias] = ["weight", "bias"].map(|which| pass.of(&format!("{attention}.in_proj_{which}")));
            let (q, k, v) = split_heads(linear::with(normal, weight).bias(bias).call(), self.heads);
            let mixed = scaled_dot_product_attention(q, k, v);
            pass.linear(&format!("{attention}.out_proj"), merge_heads(mixed))
        });
        let x = x + pass.dropped(attended);
        let normal = pass.layer_normalization(&format!("{path}.ln_2"), x, EPSILON);
        let inner = pass.dropped(gelu(pass.linear(&format!("{path}.mlp.0"), normal)));
        x + pass.dropped(pass.linear(&format!("{path}.mlp.3"), inner))
    }
}

/// A transformer of so many blocks, heads and channels.
const fn size(image: usize, classes: usize, patch: usize, [layers, heads, width]: [usize; 3]) -> VitConfig {
    VitConfig { image, channels: 3, classes, patch, layers, heads, width, inner: 4 * width, dropout: 0.0 }
}
