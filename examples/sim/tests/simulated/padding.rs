//! Rows of whole fours, which the device asks for: whatever leads to a product, and for every list.

use fulgurite::compile::Options;
use fulgurite::ops::prims::{matmul, permute};
use fulgurite::prelude::*;
use fulgurite_example_sim as _;

fn matrix(rows: usize, columns: usize) -> Array {
    let values: Vec<f32> = (0..rows * columns).map(|i| (i % 7) as f32 - 3.0).collect();
    Array::new([rows, columns], &values).unwrap()
}

fn on_sim() -> Options {
    Options { device: Some(Device::new("sim", 0)), ..Options::default() }
}

#[test]
fn a_list_that_makes_no_larger_operands_runs_the_product_as_it_is() {
    let product = |options: Options| {
        let product = jit(|(a, b): (Tensor, Tensor)| matmul(a, b)).options(options);
        let inputs = (matrix(3, 5), matrix(5, 7));
        let padded = product.compile(&inputs).unwrap().stage("pad").is_some();
        (product.call(inputs).unwrap().to_host().unwrap().to_vec::<f32>().unwrap(), padded)
    };
    let (expected, padded) = product(on_sim());
    assert!(padded);
    let (alone, padded) = product(on_sim().with_executors(&["sim"]).unwrap());
    assert!(!padded);
    assert_eq!(alone, expected);
}

#[test]
fn chains_of_thousands_of_views_before_a_product_need_little_stack() {
    let run = || {
        let chain = |(mut a, b): (Tensor, Tensor)| {
            // Exchanged and exchanged back with other values between, so that no pair is left out.
            for _ in 0..1500 {
                a = permute(permute(a, [1, 0]) + 0.0, [1, 0]);
            }
            matmul(a, b)
        };
        let options = Options { verify: false, ..on_sim() };
        let sum = |array: Array| array.to_host().unwrap().to_vec::<f32>().unwrap().iter().sum::<f32>();
        let inputs = || (matrix(3, 5), matrix(5, 7));
        let short = jit(|(a, b): (Tensor, Tensor)| matmul(a, b)).options(options.clone());
        let chain = jit(chain).options(options);
        assert_eq!(sum(chain.call(inputs()).unwrap()), sum(short.call(inputs()).unwrap()));
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}
