//! An implementation that asks for operands which its operator cannot have, or computes something else of, is an error
//! that names it.

use fulgurite::prelude::*;
use fulgurite_example_sim as _;

/// Comes before the executor of the crate.
#[executor(device = "sim", priority = 5)]
pub mod padder {}

#[implementation(of = fulgurite::ops::prims::cumsum, by = padder)]
mod cumsum_by_padder {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "the kernel is written for f32, input is {}", input.dtype());
        Ok(())
    }

    fn plan(plan: &mut Plan, _input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        plan.fill(out, 0);
        Ok(())
    }

    /// Of 2 rows one, of 3 a dimension more, of 4 for a tensor that is not there.
    fn padded(input: &Strided) -> Option<Vec<Vec<usize>>> {
        match input.meta.shape() {
            [2, columns] => Some(vec![vec![1, *columns]]),
            [3, columns] => Some(vec![vec![3, *columns, 1]]),
            [4, columns] => Some(vec![vec![4, *columns], vec![1]]),
            _ => None,
        }
    }
}

/// What compilation says of so many rows.
fn said(rows: usize) -> String {
    let input = Array::new([rows, 3], &vec![1.0_f32; rows * 3]).unwrap().to_device(Device::new("sim", 0)).unwrap();
    let compiled = jit(|x: Tensor| fulgurite::ops::prims::cumsum(x, 0)).compile(&input);
    compiled.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn operands_that_cannot_be_are_refused_by_name() {
    for (rows, problem) in [
        (2, "asks for [1, 3], which does not hold f32[2, 3]@sim:0"),
        (3, "asks for [3, 3, 1], which does not hold f32[3, 3]@sim:0"),
        (4, "asks for 2 tensors, it has 1"),
    ] {
        let said = said(rows);
        assert!(said.contains("cumsum") && said.contains("its kernel by padder: ") && said.contains(problem), "{said}");
        // The caller's line.
        assert!(said.contains("wrong_padding.rs"), "{said}");
    }
    assert_eq!(said(5), "");
}
