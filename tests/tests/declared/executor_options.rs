//! What is traced under the values of executors' options: values of another compilation must not be found again.

use std::sync::Arc;

use fulgurite_ops::prelude::*;
use fulgurite_ops_macros::{executor, operator};
use fulgurite_runtime::argument::Arg;
use fulgurite_runtime::compile::Options;
use fulgurite_runtime::registry::find_operator;
use fulgurite_runtime::{DType, Device, TensorMeta, tracer};

/// Has an option that a decomposition reads.
#[executor(device = "cpu")]
pub mod summing {
    /// How many terms a sum has.
    #[option]
    pub static TERMS: usize = 2;
}

/// As many times the input as the option says.
#[operator(name = "executor_options::multiple")]
pub mod multiple {
    fn multiple(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        (1..super::summing::TERMS.get()).fold(input, |sum, _| sum + input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| 2.0 * x)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL);
    }
}

#[test]
fn each_value_of_an_option_has_a_decomposition_of_its_own() {
    let def = find_operator("executor_options::multiple").unwrap();
    let metas = [Arg::Tensor(TensorMeta::new([4], DType::F32, Device::CPU))];
    let under = |terms| {
        let _given = Options::default().with_option(&summing::TERMS, terms).executor_options.enter();
        tracer::decompose(def, &metas).unwrap()
    };
    let [two, five, again] = [2, 5, 2].map(under);
    assert_eq!([&two, &five].map(|block| block.symbols.len()), [1, 4]);
    // They are kept all the same: equal calls under equal values share one.
    assert!(Arc::ptr_eq(&two, &again));
}
