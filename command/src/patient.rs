//! For tests: an executor whose option decides what it takes.

use fulgurite::prelude::*;

/// A program that it takes if `FEWEST` is 3 or less, which is not the default.
pub const CLAIMED: &str = "\
# fulgurite trace 2
# made by claim
trace f for cpu (x: f32[3]) {
  y = relu(x) by command_patient
  return y
}
";

/// Takes what is large enough.
#[executor(device = "cpu")]
pub mod command_patient {
    /// The fewest elements of a tensor that is taken.
    #[option]
    pub static FEWEST: usize = 4;
}

#[implementation(of = fulgurite::ops::nn::relu, by = command_patient)]
mod relu_by_command_patient {
    fn checker(input: &TensorMeta) -> Claim {
        let fewest = command_patient::FEWEST.get();
        refuse_unless!(input.len() >= fewest, "has {} elements, takes {fewest} or more", input.len());
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let values: Vec<f64> = fulgurite::kernels::access::read_f64(&input).into_iter().map(|x| x.max(0.0)).collect();
        fulgurite::kernels::access::write_f64(out, &values);
        Ok(())
    }
}
