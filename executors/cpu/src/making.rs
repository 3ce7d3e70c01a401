//! Tensors made from nothing, and what is drawn by.

use fulgurite_ops_macros::implementation;
use fulgurite_runtime::kernels::access::read_i64;
use fulgurite_runtime::kernels::philox;
use fulgurite_runtime::rules::{Failure, Result, TensorRef};

use super::cpu;

/// The numbers of a tensor of `count` elements that is drawn by a generator.
pub(super) fn numbers_of(generator: &TensorRef<'_>, count: usize) -> Result<philox::Numbers> {
    philox::Numbers::of(&read_i64(generator), count)
        .ok_or_else(|| Failure::new("Generator", "generator does not hold a seed and an offset"))
}

#[implementation(of = fulgurite_ops::prims::iota, by = cpu, strided)]
mod iota_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(start: Scalar, step: Scalar, out: &mut TensorMut) -> Result<()> {
        let fraction = matches!(start, Scalar::Float(_)) || matches!(step, Scalar::Float(_));
        if fraction || !out.dtype().is_integer() {
            philox::iota(out.reborrow(), start.to_f64(), step.to_f64());
        } else {
            philox::iota_integer(out.reborrow(), start.to_i64(), step.to_i64());
        }
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::uniform, by = cpu, strided)]
mod uniform_by_cpu {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(generator: TensorRef, low: f64, high: f64, out: &mut TensorMut) -> Result<()> {
        let numbers = super::numbers_of(&generator, out.len())?;
        philox::uniform(out.reborrow(), numbers, low, high);
        Ok(())
    }
}

#[implementation(of = fulgurite_ops::prims::check_weights, by = cpu, strided)]
mod check_weights_by_cpu {
    use fulgurite_runtime::kernels::access::read_f64;
    use fulgurite_runtime::kernels::elementwise::copy;

    use fulgurite_ops::prims::{wrong_sum, wrong_weight};

    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let dtype = if input.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        for (row, weights) in read_f64(&input).chunks(input.shape()[1]).enumerate() {
            // NaN is not at least zero.
            let usable = |weight: &f64| *weight >= 0.0 && *weight < f64::INFINITY;
            if let Some(weight) = weights.iter().find(|weight| !usable(weight)) {
                return Err(wrong_weight(row, *weight));
            }
            let sum: f64 = weights.iter().sum();
            if !(sum > 0.0 && sum <= dtype.largest()) {
                return Err(wrong_sum(row, sum));
            }
        }
        copy(input, out.reborrow());
        Ok(())
    }
}
