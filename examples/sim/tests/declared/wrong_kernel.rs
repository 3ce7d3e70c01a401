//! The suite catches a kernel of the device that is wrong: it leaves the last element of its result unwritten.

use fulgurite::prelude::*;
use fulgurite::testing::directives::Template;
use fulgurite::testing::{Filter, Settings, generated_tests};
use fulgurite_example_sim::kernels::{launch, read, written};

/// Comes before the executor of the crate.
#[executor(device = "sim", priority = 5)]
pub mod careless {}

#[implementation(of = fulgurite::ops::prims::erf, by = careless)]
mod erf_by_careless {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "the kernel is written for f32, input is {}", input.dtype());
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::launch(plan, "erf", &[input.into()], out, |operands| {
            let mut values = super::read(DType::F32, &operands[0]);
            values.pop();
            let computed: Vec<f64> = values.into_iter().map(fulgurite::ops::core::arrays::erf).collect();
            super::written(DType::F32, &computed)
        });
        Ok(())
    }
}

#[test]
fn an_element_left_unwritten_fails_the_operator_that_uses_the_kernel() {
    let failed = |operator: &str, template: Template| {
        let filter = Filter { templates: vec![template], ..Filter::device("sim") };
        let tests = generated_tests(&Filter { operators: vec![operator.to_owned()], ..filter }, &Settings::default());
        assert!(!tests.is_empty(), "{operator} has no tests of {}", template.name());
        tests.iter().any(|test| (test.run)().is_err())
    };
    for template in [Template::Consistency, Template::Bounds] {
        assert!(failed("prims::erf", template), "{} passes", template.name());
        // It is decomposed to it.
        assert!(failed("gelu", template), "{} passes", template.name());
        assert!(!failed("prims::exp", template), "{} fails", template.name());
    }
}
