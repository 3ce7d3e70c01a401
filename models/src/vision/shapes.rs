//! Images that need no file: shapes of six kinds, drawn with noise.

use super::images::{ImageSet, Labels};
use crate::random::Stream;

/// The kinds of shapes, in the order of their classes.
const KINDS: [Inside; 6] = [
    |x, y| x * x + y * y < 1.0,
    |x, y| (0.36..1.0).contains(&(x * x + y * y)),
    |x, y| x.abs().max(y.abs()) < 0.8,
    |x, y| (-0.9..0.8).contains(&y) && x.abs() < (y + 0.9) * 0.55,
    |x, y| x.abs().min(y.abs()) < 0.28 && x.abs().max(y.abs()) < 0.95,
    |x, y| x.abs() + y.abs() < 1.05,
];

/// Whether a point is inside of a shape around the origin, whose radius is about 1: a disc, a ring, a square, a
/// triangle, a cross, a rhombus.
type Inside = fn(f64, f64) -> bool;

/// The seed of the images; runs with other seeds see the same ones.
const SEED: u64 = 0x5348_4150_4553;

/// How many bytes of images a set has at most, unless it would have fewer than [`LEAST`].
const MOST_BYTES: usize = 1 << 27;
/// How many images a set has at least.
const LEAST: usize = 256;

/// Two sets of images of `shape` (channels, height, width): to train on, at most 4096 of them, and to validate with, an
/// eighth as many, none of which is in both. An image has one shape of a random place, size and colour on a ground of
/// another colour, and its class is the shape's; or, for classes of pixels, one to three shapes, the last of which
/// covers the others, and the class of a pixel is that of its shape plus one, and 0 for the ground. They are the same
/// in every run.
pub fn shapes(shape: [usize; 3], labels: Labels) -> (ImageSet, ImageSet) {
    let size = shape.iter().product::<usize>().max(1);
    let count = (MOST_BYTES / size).clamp(LEAST, 4096);
    let of = |first: usize, count: usize| {
        let (mut pixels, mut targets) = (Vec::new(), Vec::new());
        (first..first + count).for_each(|index| draw(index as u64, shape, labels, &mut pixels, &mut targets));
        let classes = KINDS.len() + usize::from(labels == Labels::Pixels);
        ImageSet::new("drawn shapes", shape, classes, labels, (pixels, targets))
    };
    (of(0, count), of(count, count / 8))
}

/// Adds the image of this index and its targets.
fn draw(index: u64, [channels, height, width]: [usize; 3], labels: Labels, out: &mut Vec<u8>, targets: &mut Vec<u8>) {
    let mut random = Stream::new(SEED, index);
    let mut colour = |low: u64| -> Vec<f64> { (0..channels).map(|_| (low + random.below(112)) as f64).collect() };
    // One of the two is darker in every channel, so that a shape is told by its form.
    let pair = [colour(16), colour(128)];
    let dark = random.below(2) as usize;
    let count = if labels == Labels::Image { 1 } else { 1 + random.below(3) };
    let shapes: Vec<(usize, [f64; 3])> = (0..count)
        .map(|_| {
            let kind = random.below(KINDS.len() as u64) as usize;
            let side = height.min(width) as f64;
            let radius = side * (0.18 + 0.2 * random.uniform());
            let mut place = |extent: usize| radius + (extent as f64 - 2.0 * radius) * random.uniform();
            let (y, x) = (place(height), place(width));
            (kind, [y, x, radius])
        })
        .collect();
    let at = |row: usize, column: usize| {
        let over = shapes.iter().rev().find(|(kind, [y, x, radius])| {
            KINDS[*kind]((column as f64 + 0.5 - x) / radius, (row as f64 + 0.5 - y) / radius)
        });
        over.map(|(kind, _)| *kind)
    };
    for channel in 0..channels {
        for row in 0..height {
            for column in 0..width {
                let own = &pair[usize::from(at(row, column).is_some()) ^ dark];
                let noise = random.below(65) as f64 - 32.0;
                out.push((own[channel] + noise).clamp(0.0, 255.0) as u8);
            }
        }
    }
    match labels {
        Labels::Image => targets.push(shapes[0].0 as u8),
        Labels::Pixels => {
            let pixels = (0..height).flat_map(|row| (0..width).map(move |column| (row, column)));
            targets.extend(pixels.map(|(row, column)| at(row, column).map_or(0, |kind| kind as u8 + 1)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_images_in_every_run_of_all_classes() {
        let (train, validation) = shapes([3, 16, 16], Labels::Image);
        assert_eq!((train.len(), validation.len(), train.classes()), (4096, 512, 6));
        assert_eq!(train.fingerprint(), shapes([3, 16, 16], Labels::Image).0.fingerprint());
        assert_ne!(train.fingerprint(), validation.fingerprint());
        let (mut images, mut targets) = (vec![0u8; 512 * 768], vec![0; 512]);
        validation.write(&(0..512).collect::<Vec<_>>(), &mut images, &mut targets);
        for class in 0..6 {
            let found = targets.iter().filter(|target| **target == class).count();
            assert!((40..140).contains(&found), "{found} images of class {class}");
        }
        let mean = images.iter().map(|value| f64::from(*value)).sum::<f64>() / images.len() as f64;
        assert!((mean - 127.5).abs() < 12.0, "{mean}");
    }

    #[test]
    fn masks_have_the_extents_of_their_images() {
        let (train, _) = shapes([1, 24, 32], Labels::Pixels);
        let (mut images, mut targets) = (vec![0u8; 2 * 768], vec![0; 2 * 768]);
        train.write(&[5, 9], &mut images, &mut targets);
        assert_eq!(train.batch_shapes(2), [vec![2, 1, 24, 32], vec![2, 24, 32]]);
        for mask in targets.chunks(768) {
            let ground = mask.iter().filter(|class| **class == 0).count();
            assert!((200..740).contains(&ground), "{ground}");
            assert!(mask.iter().all(|class| (0..7).contains(class)));
        }
    }

    #[test]
    fn large_images_are_fewer() {
        assert_eq!(shapes([3, 256, 256], Labels::Image).0.len(), 682);
    }
}
