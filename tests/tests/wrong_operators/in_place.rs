//! Kernels that write over an operand in a wrong way.

use fulgurite_runtime::jit::jit;
use fulgurite_runtime::testing::directives::Template;
use fulgurite_runtime::{Array, Tensor};

use super::{in_place, must_catch, must_pass};

#[test]
fn a_symbol_in_place_that_permutes() {
    must_catch("wrong::reversed_in_place", Template::InPlace, "differs from what it is in memory of its own");
    must_pass("wrong::reversed_in_place", Template::Consistency);
    must_pass("wrong::reversed_in_place", Template::Bounds);
    must_pass("wrong::negated_in_place", Template::InPlace);
}

#[test]
fn a_symbol_in_place_that_takes_slices() {
    must_catch("wrong::slices_in_place", Template::InPlace, "reads by `elements` and writes by `elements_mut`");
    must_pass("wrong::slices_in_place", Template::Consistency);
    // In a program it is an error, and no second borrow of what is being written.
    let run = |def: fn(Tensor) -> Tensor| {
        let f = jit(move |x: Tensor| def(fulgurite_ops::prims::exp(x)) * 2.0);
        f.call(Array::new([4], &[0.0_f32, 1.0, 2.0, 3.0]).unwrap()).and_then(|y: Array| y.to_vec::<f32>())
    };
    let error = run(in_place::slices_in_place).unwrap_err().to_string();
    assert!(error.contains("wrong::slices_in_place") && error.contains("expected contiguous f32"), "{error}");
    let expected: Vec<f32> = [0.0_f32, 1.0, 2.0, 3.0].iter().map(|x| x.exp() * -2.0).collect();
    let near = run(in_place::negated_in_place).unwrap();
    assert!(near.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs()), "{near:?}");
}

#[test]
fn symbols_in_place_by_building_blocks_that_read_what_they_have_written() {
    let refused = "shares memory with a result";
    for operator in ["wrong::copied_backwards_in_place", "wrong::reduced_in_place", "wrong::squared_in_place"] {
        must_catch(operator, Template::InPlace, refused);
        must_pass(operator, Template::Consistency);
        must_pass(operator, Template::Bounds);
    }
    must_pass("wrong::softmax_in_place", Template::InPlace);
    // In a program it is an error that names the operator, and no panic.
    let f = jit(|x: Tensor| in_place::squared_in_place(fulgurite_ops::prims::exp(x)) * 2.0);
    let error = f.call(Array::new([2, 2], &[0.0_f32; 4]).unwrap()).map(drop).unwrap_err().to_string();
    assert!(error.contains("wrong::squared_in_place") && error.contains(refused), "{error}");
}
