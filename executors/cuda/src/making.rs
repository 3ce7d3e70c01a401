//! Tensors made from nothing: the host's numbers, bit by bit; and what is drawn by.

use fulgurite_ops_macros::implementation;

use super::cuda;
use super::support::{one_thread_each, type_of};

#[implementation(of = fulgurite_ops::prims::iota, by = cuda)]
mod iota_by_cuda {
    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, start: Scalar, step: Scalar, out: &DeviceTensor) -> Result<()> {
        let count: usize = out.shape().iter().product();
        if count == 0 {
            return Ok(());
        }
        plan.source(source_files!["iota.cu"]);
        plan.define("OUT", super::type_of(out.meta.dtype()));
        let shape = super::one_thread_each(count);
        let fraction = matches!(start, Scalar::Float(_)) || matches!(step, Scalar::Float(_));
        if fraction || !out.meta.dtype().is_integer() {
            plan.launch("iota", shape, binds![out, count, start.to_f64(), step.to_f64()])
        } else {
            plan.launch("iota_exact", shape, binds![out, count, start.to_i64(), step.to_i64()])
        }
    }
}

#[implementation(of = fulgurite_ops::prims::uniform, by = cuda)]
mod uniform_by_cuda {
    use fulgurite_runtime::kernels::philox::{Span, largest_below};

    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, low: f64, high: f64, generator: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let count: usize = out.shape().iter().product();
        if count == 0 {
            return Ok(());
        }
        let dtype = out.meta.dtype();
        let below = largest_below(dtype, low, high);
        let Span { start, range, scale } = Span::new(dtype, low, high);
        plan.source(source_files!["uniform.cu"]);
        plan.define("OUT", super::type_of(dtype));
        let is_part = generator.shape() == [3];
        plan.define("PART", u8::from(is_part));
        // A part may begin inside of a block.
        let blocks = |of: usize| count.div_ceil(of) + usize::from(is_part);
        if dtype == DType::F64 {
            plan.define("NUMBER", "double");
            let shape = super::one_thread_each(blocks(2));
            return plan.launch("uniform", shape, binds![generator, out, count, start, range, scale, below]);
        }
        plan.define("NUMBER", "float");
        let shape = super::one_thread_each(blocks(4));
        let [start, range, scale, below] = [start, range, scale, below].map(|number| number as f32);
        plan.launch("uniform", shape, binds![generator, out, count, start, range, scale, below])
    }
}

#[implementation(of = fulgurite_ops::prims::check_weights, by = cuda)]
mod check_weights_by_cuda {
    use fulgurite_runtime::rules::Report;

    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        if out.meta.is_empty() {
            return Ok(());
        }
        let dtype = if input.meta.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let (rows, columns) = (input.shape()[0], input.shape()[1]);
        plan.source(source_files!["check_weights.cu"]);
        plan.define("ELEMENT", super::type_of(input.meta.dtype()));
        let message = "row {index} of the weights holds a negative number, infinity or NaN, or has a sum that is zero or beyond the \
                       largest number; expected finite numbers that are not negative, with a finite sum above 0";
        let fault = plan.fault_of(Report { code: "Weights", message: message.into() });
        // Blocks go on with further rows if there are more than a launch can have.
        let blocks = rows.min(i32::MAX as usize) as u32;
        let shape = LaunchShape::linear(blocks, columns.min(256).next_multiple_of(32) as u32);
        let parameters = binds![input, out, rows, columns, dtype.largest(), fault, Parameter::FaultCode];
        plan.launch("check_weights", shape, parameters)
    }
}

#[implementation(of = fulgurite_ops::collectives::draws_of_rank, by = cuda)]
mod draws_of_rank_by_cuda {
    use fulgurite_runtime::mesh::Axis;

    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, generator: &DeviceTensor, axis: &str, out: &DeviceTensor) -> Result<()> {
        let axis: Axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
        plan.source(source_files!["draws_of_rank.cu"]);
        plan.define("PART", u8::from(generator.shape() == [3]));
        let ranks = axis.extent();
        plan.launch(
            "draws_of_rank",
            LaunchShape::linear(1, 32),
            binds![generator, out, Parameter::PlaceAlong(axis), ranks],
        )
    }
}

#[implementation(of = fulgurite_ops::collectives::place, by = cuda)]
mod place_by_cuda {
    use fulgurite_runtime::mesh::Axis;

    fn checker() -> Claim {
        Ok(())
    }

    fn plan(plan: &mut Plan, axis: &str, out: &DeviceTensor) -> Result<()> {
        let axis: Axis = axis.parse().map_err(|message: String| Failure::new("Axis", message))?;
        plan.source(source_files!["place.cu"]);
        plan.launch("place", LaunchShape::linear(1, 32), binds![out, Parameter::PlaceAlong(axis)])
    }
}
