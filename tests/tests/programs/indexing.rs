//! Lists of entries index a tensor as Python's brackets do.

use fulgurite_executors as _;
use fulgurite_ops::core::indexing::{Index, Indexed};
use fulgurite_runtime::jit::jit;
use fulgurite_runtime::tracer::Tensor;
use fulgurite_runtime::{Array, Error};

/// The result of `f` for the numbers from 0 to 23 as [2, 3, 4] and for positions, with its shape.
fn indexed(f: impl Fn(Tensor, Tensor) -> Tensor + 'static, positions: &[i64]) -> Result<(Vec<usize>, Vec<f32>), Error> {
    let numbers: Vec<f32> = (0..24u8).map(f32::from).collect();
    let f = jit(move |(x, ids): (Tensor, Tensor)| f(x, ids));
    let out = f.call((Array::new([2, 3, 4], &numbers)?, Array::new([positions.len()], positions)?))?;
    Ok((out.shape().to_vec(), out.to_vec()?))
}

#[test]
fn entries_are_for_dimensions_in_their_order() {
    // x[..., None, 1:4:2]
    let (shape, values) = indexed(|x, _| x.index([Index::Rest, Index::New, Index::from(1..4).step(2)]), &[0]).unwrap();
    assert_eq!(shape, [2, 3, 1, 2]);
    assert_eq!(values, (0..6).flat_map(|row| [4.0 * row as f32 + 1.0, 4.0 * row as f32 + 3.0]).collect::<Vec<_>>());
    // x[-1, :, ids]
    let (shape, values) =
        indexed(|x, ids| x.index([Index::At(-1), Index::from(..), Index::from(ids)]), &[3, 0, -1]).unwrap();
    assert_eq!(shape, [3, 3]);
    assert_eq!(values, [15.0, 12.0, 15.0, 19.0, 16.0, 19.0, 23.0, 20.0, 23.0]);
    // x[:, 1:, :-3] and x[1]
    let (shape, values) =
        indexed(|x, _| x.index([Index::from(..), Index::from(1..), Index::from(..-3)]), &[0]).unwrap();
    assert_eq!((shape, values), (vec![2, 2, 1], vec![4.0, 8.0, 16.0, 20.0]));
    let (shape, values) = indexed(|x, _| x.index([Index::At(1), Index::At(2)]), &[0]).unwrap();
    assert_eq!((shape, values), (vec![4], vec![20.0, 21.0, 22.0, 23.0]));
    // Bounds beyond the dimension are its end.
    let (shape, _) = indexed(|x, _| x.index([Index::from(5..9), Index::from(-9..2)]), &[0]).unwrap();
    assert_eq!(shape, [0, 2, 4]);
}

#[test]
fn what_is_out_of_range_is_an_error() {
    let message = |of: fn(Tensor, Tensor) -> Tensor, positions: &[i64]| indexed(of, positions).unwrap_err().to_string();
    assert!(message(|x, _| x.index([Index::At(2)]), &[0]).contains("index is 2"));
    assert!(message(|x, _| x.index([Index::At(0); 4]), &[0]).contains("dim"));
    assert!(message(|x, _| x.index([Index::from(0..1); 4]), &[0]).contains("rank of input"));
    assert!(message(|x, _| x.index([Index::from(..).step(0)]), &[0]).contains("positive numbers"));
    assert!(message(|x, ids| x.index([Index::from(ids)]), &[-3]).contains("out of range"));
}
