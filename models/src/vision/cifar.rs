//! The binary files of CIFAR-10 (Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009): records of
//! a class and the 32 x 32 values of red, green and blue.

use std::path::{Path, PathBuf};

use super::images::{ImageSet, Labels};

/// Channels, height, width.
const SHAPE: [usize; 3] = [3, 32, 32];
/// Bytes of an image.
const SIZE: usize = 3 * 32 * 32;
const CLASSES: usize = 10;

/// A folder that is none of CIFAR-10.
#[derive(Debug, thiserror::Error)]
pub enum CifarError {
    /// A file that is not there, or cannot be read.
    #[error(
        "'{}': {source}; expected CIFAR-10's data_batch_1.bin to data_batch_5.bin and test_batch.bin",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A length that no whole images have.
    #[error(
        "'{}' has {found} bytes, expected a multiple of {}, a class and 3 x 32 x 32 values each",
        path.display(),
        SIZE + 1
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        found: usize,
    },
    /// A class that there is not.
    #[error("'{}': image {image} has the class {found}, expected 0 to {}", path.display(), CLASSES - 1)]
    Class {
        /// The file.
        path: PathBuf,
        /// The image, from 0.
        image: usize,
        /// Its class.
        found: u8,
    },
}

/// The images to train on and to validate with: those of `data_batch_1.bin` and of the four files after it that are
/// there, and those of `test_batch.bin`.
///
/// # Errors
/// A file that is missing or is no such file; the message names it, with what is expected and what is there.
pub fn cifar10(folder: &Path) -> Result<(ImageSet, ImageSet), CifarError> {
    let batches = (1..=5).map(|i| folder.join(format!("data_batch_{i}.bin")));
    // The first one says whether it is the folder; parts of the others suit small experiments.
    let train = batches.enumerate().filter(|(i, path)| *i == 0 || path.exists()).map(|(_, path)| path);
    Ok((read(&train.collect::<Vec<_>>())?, read(&[folder.join("test_batch.bin")])?))
}

fn read(paths: &[PathBuf]) -> Result<ImageSet, CifarError> {
    let (mut pixels, mut targets) = (Vec::new(), Vec::new());
    for path in paths {
        let bytes = std::fs::read(path).map_err(|source| CifarError::Read { path: path.clone(), source })?;
        if bytes.is_empty() || !bytes.len().is_multiple_of(SIZE + 1) {
            return Err(CifarError::Length { path: path.clone(), found: bytes.len() });
        }
        for (image, record) in bytes.chunks_exact(SIZE + 1).enumerate() {
            if usize::from(record[0]) >= CLASSES {
                return Err(CifarError::Class { path: path.clone(), image, found: record[0] });
            }
            targets.push(record[0]);
            pixels.extend_from_slice(&record[1..]);
        }
    }
    Ok(ImageSet::new("CIFAR-10", SHAPE, CLASSES, Labels::Image, (pixels, targets)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(class: u8, value: u8) -> Vec<u8> {
        [vec![class], vec![value; SIZE]].concat()
    }

    #[test]
    fn images_of_all_files_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, records: &[Vec<u8>]| std::fs::write(folder.path().join(name), records.concat()).unwrap();
        write("data_batch_1.bin", &[record(3, 0), record(9, 255)]);
        write("data_batch_4.bin", &[record(0, 51)]);
        write("test_batch.bin", &[record(7, 204)]);
        let (train, test) = cifar10(folder.path()).unwrap();
        assert_eq!((train.len(), test.len(), train.classes(), train.shape()), (3, 1, 10, [3, 32, 32]));
        let (mut images, mut targets) = (vec![0u8; 2 * SIZE], vec![0; 2]);
        train.write(&[2, 1], &mut images, &mut targets);
        assert_eq!(targets, [0, 9]);
        assert_eq!((images[0], images[SIZE]), (51, 255));
        for (name, records, expected) in [
            ("test_batch.bin", vec![vec![0; 100]], "test_batch.bin' has 100 bytes, expected a multiple of 3073"),
            (
                "data_batch_1.bin",
                vec![record(0, 1), record(12, 1)],
                "data_batch_1.bin': image 1 has the class 12, expected 0 to 9",
            ),
        ] {
            write(name, &records);
            let message = cifar10(folder.path()).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let empty = tempfile::tempdir().unwrap();
        let message = cifar10(empty.path()).unwrap_err().to_string();
        assert!(message.contains("data_batch_1.bin'") && message.contains("expected CIFAR-10's"), "{message}");
    }
}
