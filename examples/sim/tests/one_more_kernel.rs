//! A kernel more, declared here: the trace differs from the one of `tests/fallback.rs` in one line, which was the
//! host's and is the device's.

mod function;

use fulgurite::prelude::*;
use fulgurite_example_sim::kernels::unary;
use fulgurite_example_sim::sim;

#[implementation(of = fulgurite::ops::prims::erf, by = sim)]
mod erf_by_sim {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "the kernel is written for f32, input is {}", input.dtype());
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        super::unary(plan, "erf", fulgurite::ops::core::arrays::erf, input, out);
        Ok(())
    }
}

#[test]
fn a_kernel_moves_the_line_of_its_operator_alone() {
    let stored = include_str!("simulated/snapshots/simulated__fallback__fallback.snap");
    // Below the header that insta writes.
    let before = stored.split_once("\n---\n").unwrap().1;
    let after = function::claimed();
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.trim_end().lines().collect(), after.trim_end().lines().collect());
    assert_eq!(before.len(), after.len(), "{}", after.join("\n"));
    let moved: Vec<(&str, &str)> = before.into_iter().zip(after).filter(|(before, after)| before != after).collect();
    let [(before, after)] = moved[..] else { panic!("expected one other line, got {moved:?}") };
    assert!(before.contains(" = erf(") && before.contains(" by host"), "{before}");
    assert_eq!(before.replace(" by host", " by sim"), after);
}
