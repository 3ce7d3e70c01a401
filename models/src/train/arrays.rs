//! The arrays that a step takes besides its state: batches, numbers, random generators.

use fulgurite_runtime::{Array, Result};

use crate::argument_error::wrong;
use crate::batches::{Batch, Batches};
use crate::step::{BatchTensors, StepScalars};
use crate::vision::ImageSet;

/// A batch as arrays.
pub fn batch_arrays(batch: &Batch) -> Result<BatchTensors<Array>> {
    let shape = [batch.rows, batch.context];
    Ok(BatchTensors::of_tokens(Array::new(shape, &batch.inputs)?, Array::new(shape, &batch.targets)?))
}

/// The next batch as arrays, which are written where they are read.
pub(super) fn next_arrays(batches: &mut Batches) -> Result<BatchTensors<Array>> {
    if let Some(images) = batches.images().cloned() {
        return image_arrays(&images, &batches.next_indices());
    }
    let shape = [batches.rows(), batches.position().context];
    let (mut read, mut inputs) = (Ok(()), None);
    let targets = Array::written(shape, |targets| {
        inputs = Some(Array::written(shape, |inputs| read = batches.next_into(inputs, targets)));
    })?;
    read.map_err(|error| wrong("data", error))?;
    let tokens = inputs.unwrap_or_else(|| unreachable!("written with the targets"))?;
    Ok(BatchTensors::of_tokens(tokens, targets))
}

/// The images of these indices and their targets.
pub(super) fn image_arrays(images: &ImageSet, indices: &[usize]) -> Result<BatchTensors<Array>> {
    let [shape, target_shape] = images.batch_shapes(indices.len());
    let mut made = None;
    let targets = Array::written(target_shape, |targets| {
        made = Some(Array::written(shape, |values| images.write(indices, values, targets)));
    })?;
    let made = made.unwrap_or_else(|| unreachable!("written with the targets"))?;
    Ok(BatchTensors::of_images(made, targets))
}

/// The numbers of step `step` (from 1).
pub fn step_scalars(lr: f64, step: u64, seed: u64) -> Result<StepScalars<Array>> {
    Ok(StepScalars {
        lr: Array::scalar(lr as f32),
        step: Array::scalar(step as f32),
        generator: generator(seed, step, 0)?,
    })
}

/// The random generator of batch `micro` (from 0) of step `step`, `i64[2]` of Philox's key and the number of the
/// stream: the key is a function of seed and step that no two steps of a run share, all 2^64 of them; the upper half of
/// the stream's number is the batch, the lower half is the place in the model.
pub fn generator(seed: u64, step: u64, micro: u32) -> Result<Array> {
    // An odd factor gives every step a key of its own; mixing the seed first keeps the keys of neighbouring seeds
    // apart.
    let key = mixed(seed).wrapping_add(step.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Array::new([2], &[key as i64, (u64::from(micro) << 32) as i64])
}

/// A permutation of the 64-bit numbers that spreads neighbours (the finalizer of SplitMix64; Steele et al., 2014).
fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GptConfig;
    use crate::random::Stream;

    /// The first numbers that dropout draws there.
    fn draws(step: u64, micro: u32, place: i64) -> [u64; 4] {
        let pair = generator(7, step, micro).unwrap().to_vec::<i64>().unwrap();
        let offset = pair[1] + place * crate::dropout::DRAW_STRIDE;
        let mut stream = Stream::new(pair[0] as u64, offset as u64);
        std::array::from_fn(|_| stream.next_u64())
    }

    #[test]
    fn no_two_steps_batches_or_places_draw_the_same() {
        let mut seen = std::collections::HashMap::new();
        let steps = [0, 1, 2, 255, 256, 65_535, 65_536, 65_537, 1 << 32, (1 << 48) + 1, u64::MAX];
        for step in steps {
            for micro in [0, 1, 2, 4096, u32::MAX >> 1] {
                for place in [0, 1, 2, 3, 255, 256, 257, 385, 4000] {
                    let before = seen.insert(draws(step, micro, place), (step, micro, place));
                    assert_eq!(before, None, "{step} {micro} {place}");
                }
            }
        }
    }
    /// What the model adds to the generator, in a model of more places than one byte counts.
    #[test]
    fn every_place_of_a_deep_model_draws_from_a_stream_of_its_own() {
        use fulgurite_runtime::argument::{Arg, Attribute, Scalar};
        use fulgurite_runtime::trace::Block;

        fn shifts(block: &Block, dropouts: &mut usize, found: &mut Vec<i64>) {
            for symbol in &block.symbols {
                let operator = symbol.operator().map_or("value_and_grad", |def| def.name);
                match (operator, &symbol.arguments[..]) {
                    ("dropout", _) => *dropouts += 1,
                    ("prims::iota", [_, _, Arg::Attribute(Attribute::Scalar(Scalar::Int(step))), ..]) => {
                        found.push(*step)
                    }
                    ("value_and_grad", _) => symbol.body.iter().for_each(|body| shifts(body, dropouts, found)),
                    _ => {}
                }
            }
        }
        let config = GptConfig {
            vocabulary: 16,
            context: 4,
            layers: 140,
            heads: 1,
            channels: 4,
            dropout: 0.1,
            ..GptConfig::GPT2
        };
        let trace = crate::traces::train_step_trace(&config, &Default::default(), 1, 4).unwrap();
        let (mut dropouts, mut found) = (0, Vec::new());
        shifts(&trace.block, &mut dropouts, &mut found);
        assert!(dropouts > 256, "{dropouts}");
        assert_eq!(found.len(), dropouts);
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), dropouts, "two places draw from one stream");
        assert!(found.iter().all(|step| (0..1 << 32).contains(step)), "a place reaches the number of the batch");
    }
}
