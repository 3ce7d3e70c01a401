//! Wrong metas, decompositions, references and error samples.

use fulgurite_ops_macros::operator;

/// The input, transposed.
#[operator(name = "wrong::bad_meta", no_grad = "of no interest here")]
pub mod bad_meta {
    fn bad_meta(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::permute(input, [1, 0])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.t().to_owned()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3])));
    }
}

/// `tanh(input) · weight`, which says that its result has the input's type, and promotes.
#[operator(name = "wrong::mixed_types", no_grad = "of no interest here")]
pub mod mixed_types {
    fn mixed_types(input: Tensor<Floating>, weight: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, weight: Tensor) -> Tensor {
        fulgurite_ops::core::mul(fulgurite_ops::core::tanh(input), weight)
    }

    fn reference(input: &ArrayD<f64>, weight: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(f64::tanh) * weight
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3]), s.normal([2, 3])));
    }
}

/// `-input`, but for the sign of zeros: 0 - 0 is 0.
#[operator(name = "wrong::sign_of_zero_lost", no_grad = "of no interest here")]
pub mod sign_of_zero_lost {
    fn sign_of_zero_lost(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        0.0 - input
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        -input
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.values([3], [0.0, -0.0, 1.0])));
    }
}

/// `2 · input`, which nobody checks.
#[operator(name = "wrong::no_reference", no_grad = "of no interest here")]
pub mod no_reference {
    fn no_reference(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::add(input, input)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4])));
    }
}

/// `input - other`.
#[operator(name = "wrong::swapped_arguments", no_grad = "of no interest here")]
pub mod swapped_arguments {
    fn swapped_arguments(input: Tensor<Floating>, other: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        fulgurite_ops::prims::sub(other, input)
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
        input - other
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4]), s.normal([3, 4])));
    }
}

/// The mean over the last dimension, with a sum that is rounded to the element type at each step.
#[operator(name = "wrong::low_precision_sum", autocast = low, no_grad = "of no interest here")]
pub mod low_precision_sum {
    use fulgurite_ops::prims;

    fn low_precision_sum(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        let n = input.size(0);
        let mut sum = prims::slice(input, [0], [1], [1]);
        for i in 1..n {
            sum = prims::add(sum, prims::slice(input, [i], [i + 1], [1]));
        }
        prims::reshape(sum, [])
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        ArrayD::from_elem(IxDyn(&[]), input.sum())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(0.5, 1.0, [300])));
    }
}

/// The negative of the input, which should be taken in low precision, and is refused in it.
#[operator(name = "wrong::refuses_its_class", autocast = low, no_grad = "of no interest here")]
pub mod refuses_its_class {
    fn refuses_its_class(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        require!(input.dtype().size() >= 4, Single, "input is {}, expected f32 or f64", input.dtype());
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::neg(input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        -input
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.of(DType::F32, [3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Single, with(e.of(DType::BF16, [3])), "expected f32 or f64");
    }
}

/// The input, if it has a row.
#[operator(name = "wrong::untripped_precondition", no_grad = "of no interest here")]
pub mod untripped_precondition {
    fn untripped_precondition(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        require!(input.rank() < 4, Rank, "input has {} dimensions, expected fewer than 4", input.rank());
        Ok(input.clone())
    }

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::neg(input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        -input
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])));
    }

    fn errors(e: &mut ErrorSamples) {
        // Three are fewer than four.
        e.case(Rank, with(e.normal([1, 1, 1])), "expected fewer than 4");
    }
}

/// Its own check lets every shape pass: what it is made of refuses different ones, with the same code and text.
#[operator(name = "wrong::precondition_of_a_part", no_grad = "of no interest here")]
pub mod precondition_of_a_part {
    fn precondition_of_a_part(input: Tensor<Floating>, other: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta, other: &TensorMeta) -> Result<TensorMeta> {
        let (a, b) = (input.shape(), other.shape());
        require!(input.rank() < 9, ShapeMismatch, "other has shape {b:?}, but input has shape {a:?}");
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        fulgurite_ops::prims::add(input, other)
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
        input + other
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3]), s.normal([3])));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(ShapeMismatch, with(e.normal([2, 3]), e.normal([3])), "other has shape [3], but input has shape [2, 3]");
    }
}

/// Right, but a directive says otherwise.
#[operator(
    name = "wrong::expected_failure_that_passes",
    no_grad = "of no interest here",
    expected_failure(meta, reason = "nobody remembers"),
    skip(gradient, reason = "there is none, so that this speaks of no test")
)]
pub mod expected_failure_that_passes {
    fn expected_failure_that_passes(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::neg(input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        -input
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])));
    }
}

/// Nothing tests it: its samples are of a type that its signature does not accept.
#[operator(name = "wrong::no_samples", no_grad = "of no interest here")]
pub mod no_samples {
    fn no_samples(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::neg(input)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.integers(0, 4, [3])));
    }
}

/// `scale · input`, by a decomposition that ignores the scale; every sample has the same.
#[operator(name = "wrong::argument_never_varied", no_grad = "of no interest here")]
pub mod argument_never_varied {
    fn argument_never_varied(input: Tensor<Floating>, #[default(2.0)] scale: f64) -> Tensor;

    fn decomposition(input: Tensor, _scale: f64) -> Tensor {
        fulgurite_ops::prims::add(input, input)
    }

    fn reference(input: &ArrayD<f64>, scale: f64) -> ArrayD<f64> {
        elementwise(input, |x| scale * x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 4])));
    }
}

/// The largest of two tensors' elements and the floor; no sample has an element below the floor.
#[operator(name = "wrong::argument_without_effect", no_grad = "of no interest here")]
pub mod argument_without_effect {
    fn argument_without_effect(input: Tensor<Floating>, floor: f64) -> Tensor;

    fn decomposition(input: Tensor, _floor: f64) -> Tensor {
        fulgurite_ops::prims::neg(fulgurite_ops::prims::neg(input))
    }

    fn reference(input: &ArrayD<f64>, floor: f64) -> ArrayD<f64> {
        elementwise(input, |x| x.max(floor))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.uniform(0.5, 1.0, [3, 4]), -1.0));
        s.case(with(s.uniform(0.5, 1.0, [5]), 0.25));
    }
}

/// `2 · input`, with a waiver that speaks of an argument which decides.
#[operator(name = "wrong::waiver_without_need", waive(input = "nobody remembers"), no_grad = "of no interest here")]
pub mod waiver_without_need {
    fn waiver_without_need(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::prims::add(input, input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |x| 2.0 * x)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])));
    }
}

/// A decomposition that calls the operator itself.
#[operator(name = "wrong::calls_itself", no_grad = "of no interest here")]
pub mod calls_itself {
    fn calls_itself(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        calls_itself(input)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3])));
    }
}

/// A decomposition that calls the operator itself on more and more elements.
#[operator(name = "wrong::never_ends", no_grad = "of no interest here")]
pub mod never_ends {
    fn never_ends(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        never_ends(fulgurite_ops::prims::reshape(fulgurite_ops::prims::add(input, input), vec![1; input.rank() + 1]))
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.clone()
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([1])));
    }
}

/// `input - other`, which says that its operands commute.
#[operator(name = "wrong::commuted_difference", commutes, no_grad = "of no interest here")]
pub mod commuted_difference {
    fn commuted_difference(input: Tensor<Floating>, other: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn decomposition(input: Tensor, other: Tensor) -> Tensor {
        input - other
    }

    fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
        input - other
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2, 3]), s.normal([2, 3])));
    }
}

/// The hyperbolic tangent, which says that it is exact.
#[operator(name = "wrong::rounded_exactly", exact, no_grad = "of no interest here")]
pub mod rounded_exactly {
    fn rounded_exactly(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        fulgurite_ops::core::tanh(input) * 3.0
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(|x| x.tanh() * 3.0)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([70])));
    }
}

/// `input` and its place, in the sum: the places are made on the host, wherever the input is.
#[operator(name = "wrong::made_on_the_host", no_grad = "of no interest here")]
pub mod made_on_the_host {
    fn made_on_the_host(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        let count = input.size(0) as i64;
        let places = fulgurite_ops::core::arange::with(0i64, count).dtype(input.dtype()).call();
        fulgurite_ops::prims::add(input, places)
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        ArrayD::from_shape_fn(input.raw_dim(), |place| input[&place] + place[0] as f64)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([5])));
    }
}

/// Declares an operator of one name.
macro_rules! declared_twice {
    ($module:ident) => {
        pub mod $module {
            use fulgurite_ops_macros::operator;

            /// `-input`.
            #[operator(name = "wrong::declared_twice", no_grad = "of no interest here")]
            pub mod declared_twice {
                fn declared_twice(input: Tensor<Floating>) -> Tensor;

                fn decomposition(input: Tensor) -> Tensor {
                    fulgurite_ops::prims::neg(input)
                }

                fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
                    -input
                }

                fn samples(s: &mut Samples) {
                    s.case(with(s.normal([3])));
                }
            }
        }
    };
}
declared_twice!(declared_first);
declared_twice!(declared_again);
