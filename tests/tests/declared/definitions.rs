//! What the definitions of operators share: the types of results, shapes that broadcast, masks of attention.

use fulgurite_ops::core::arrays::array;
use fulgurite_ops::core::attention::{Attended, Changes};
use fulgurite_ops::core::promotion::{broadcast_shapes, result_type};
use fulgurite_runtime::argument::{Operand, Scalar};
use fulgurite_runtime::{DType, Device, TensorMeta};

fn meta(shape: &[usize], dtype: DType) -> Operand<TensorMeta> {
    Operand::Tensor(TensorMeta::new(shape, dtype, Device::CPU))
}

#[test]
fn categories_outrank_dimensions() {
    use DType::*;
    let number = |scalar: Scalar| Operand::<TensorMeta>::Scalar(scalar);
    let cases = [
        (meta(&[2], U8), number(Scalar::Int(3)), U8),
        (meta(&[2], Bool), number(Scalar::Int(1)), I64),
        (meta(&[2], I32), meta(&[], F64), F64),
        (meta(&[2], BF16), meta(&[], F32), BF16),
        (meta(&[2], BF16), meta(&[1], F16), F32),
        (meta(&[], F64), meta(&[2], F32), F32),
        (meta(&[2], I64), number(Scalar::Float(0.5)), F32),
        (meta(&[], F16), number(Scalar::Float(0.5)), F16),
        (meta(&[2], U8), meta(&[2], I32), I32),
        (meta(&[2], I64), meta(&[2], F16), F16),
    ];
    for (a, b, expected) in cases {
        assert_eq!(result_type(&[a.clone(), b.clone()]), expected, "{a:?} {b:?}");
    }
}

#[test]
fn shapes_broadcast() {
    assert_eq!(broadcast_shapes(&[&[3, 1], &[4]]), Some(vec![3, 4]));
    assert_eq!(broadcast_shapes(&[&[0], &[1]]), Some(vec![0]));
    assert_eq!(broadcast_shapes(&[&[0], &[3]]), None);
    assert_eq!(broadcast_shapes(&[]), Some(vec![]));
}

/// A query that sees keys by numbers that are added to their scores: the weights, as the result for unit values.
fn weights(scores: [f64; 2], added: [f64; 2]) -> Vec<f64> {
    let query = array(&[1, 1, 1, 1], vec![1.0]);
    let key = array(&[1, 1, 2, 1], scores.to_vec());
    let value = array(&[1, 1, 2, 2], vec![1.0, 0.0, 0.0, 1.0]);
    let added = array(&[1, 1, 1, 2], added.to_vec());
    let attended = Attended { query: &query, key: &key, value: &value, mask: None, is_causal: false, scale: 1.0 };
    let changes = Changes { added: Some(&added), ..Changes::default() };
    attended.forward_with(&changes).0.into_raw_vec_and_offset().0
}

#[test]
fn what_a_large_negative_number_hides_has_no_weight_beside_others() {
    for hidden in [-1e5, -1e30, f64::from(f32::MIN), f64::NEG_INFINITY] {
        assert_eq!(weights([3e4, 0.0], [hidden, 0.0]), [0.0, 1.0], "{hidden}");
    }
    assert_eq!(weights([3.0, 1.0], [f64::NEG_INFINITY, -1e30]), [0.0, 1.0]);
}

#[test]
fn where_all_keys_have_such_a_number_sums_are_rounded() {
    for hidden in [-1e9, -1e30, f64::from(f32::MIN)] {
        assert_eq!(weights([3.0, 1.0], [hidden, hidden]), [0.5, 0.5], "{hidden}");
    }
    // The larger number hides the other one.
    assert_eq!(weights([3.0, 1.0], [f64::from(f32::MIN), -1e9]), [0.0, 1.0]);
    // Units in the last place are 1/128 there.
    assert_eq!(weights([0.001, 0.0], [-65_600.0, -65_600.0]), [0.5, 0.5]);
    let [first, second] = weights([3.0, 1.0], [-65_600.0, -65_600.0])[..] else { unreachable!("two keys") };
    assert!((first / second - 2f64.exp()).abs() < 1e-9, "{first} and {second}");
}
