//! Sets of images with their classes, or the classes of their pixels.

use std::sync::Arc;

use fulgurite_ops::core::promotion::cast;
use fulgurite_ops::prelude::*;
use fulgurite_runtime::DType;

use crate::random::fingerprint;

/// Images of 8 bits a channel as models read them, in f32 from -2 to 2: a channel less its middle, by a quarter of its
/// range. Others are as models read them. A device gets a byte a channel so, a quarter of what it computes with.
#[track_caller]
pub(super) fn normalized(images: Tensor) -> Tensor {
    if images.dtype() != DType::U8 {
        return images;
    }
    scope("images", || (cast(images, DType::F32) - 127.5) / 63.75)
}

/// What a target is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Labels {
    /// The image.
    Image,
    /// Each pixel.
    Pixels,
}

/// Images of one shape, of 8 bits a channel. A clone shares them.
#[derive(Debug, Clone)]
pub struct ImageSet {
    name: Arc<str>,
    shape: [usize; 3],
    classes: usize,
    labels: Labels,
    pixels: Arc<[u8]>,
    targets: Arc<[u8]>,
}

impl ImageSet {
    /// Images of `shape` (channels, height, width), row-major one after the other, and their targets, below `classes`.
    ///
    /// # Panics
    /// If there are not as many targets as images, or pixels.
    pub(super) fn new(
        name: &str,
        shape: [usize; 3],
        classes: usize,
        labels: Labels,
        (pixels, targets): (Vec<u8>, Vec<u8>),
    ) -> ImageSet {
        let set =
            ImageSet { name: name.into(), shape, classes, labels, pixels: pixels.into(), targets: targets.into() };
        assert_eq!(set.pixels.len(), set.len() * set.size(), "whole images");
        assert_eq!(set.targets.len(), set.len() * set.each(), "a target for each");
        set
    }

    /// What the images are, in words.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.pixels.len() / self.size()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pixels.is_empty()
    }

    /// Channels, height and width.
    pub fn shape(&self) -> [usize; 3] {
        self.shape
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// What targets are of.
    pub fn labels(&self) -> Labels {
        self.labels
    }

    /// Values of an image.
    fn size(&self) -> usize {
        self.shape.iter().product::<usize>().max(1)
    }

    /// Targets of an image.
    fn each(&self) -> usize {
        match self.labels {
            Labels::Image => 1,
            Labels::Pixels => self.shape[1] * self.shape[2],
        }
    }

    /// The shape of images and that of targets of so many.
    pub fn batch_shapes(&self, rows: usize) -> [Vec<usize>; 2] {
        let [channels, height, width] = self.shape;
        let targets = match self.labels {
            Labels::Image => vec![rows],
            Labels::Pixels => vec![rows, height, width],
        };
        [vec![rows, channels, height, width], targets]
    }

    /// A fingerprint of all of it, so that a run is not resumed with other images unnoticed.
    pub fn fingerprint(&self) -> u64 {
        let of = |bytes: &[u8]| {
            let word = |chunk: &[u8]| chunk.iter().fold(0, |word: u64, byte| word << 8 | u64::from(*byte));
            fingerprint(bytes.chunks(8).map(word))
        };
        let shape = self.shape.map(|extent| extent as u64);
        fingerprint(shape.into_iter().chain([of(&self.pixels), of(&self.targets)]))
    }

    /// Writes the images of these indices, as [`normalized`] takes them, and their targets. Both have room for as many.
    pub fn write(&self, indices: &[usize], images: &mut [u8], targets: &mut [i64]) {
        let (size, each) = (self.size(), self.each());
        for ((index, image), own) in indices.iter().zip(images.chunks_exact_mut(size)).zip(targets.chunks_mut(each)) {
            image.copy_from_slice(&self.pixels[index * size..(index + 1) * size]);
            let classes = &self.targets[index * each..(index + 1) * each];
            own.iter_mut().zip(classes).for_each(|(to, class)| *to = i64::from(*class));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fulgurite_runtime::{Array, jit};

    #[test]
    fn bytes_are_from_minus_two_to_two() {
        let bytes = Array::new([4], &[0u8, 51, 204, 255]).unwrap();
        let found: Array = jit(normalized).call(bytes).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), [-2.0, -76.5 / 63.75, 76.5 / 63.75, 2.0]);
        let others = Array::new([2], &[7.0f32, -3.5]).unwrap();
        let found: Array = jit(normalized).call(others).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), [7.0, -3.5]);
    }
}
