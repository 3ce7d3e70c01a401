//! Wrong kernels that no sample meets: at other sizes, with other layouts, with an argument given twice.

use fulgurite_ops_macros::{executor, implementation, operator};

/// Has a wrong kernel for each operator, where samples do not look.
#[executor(device = "cpu")]
pub mod hasty {}

/// Declares sums of two tensors, each of which gets a kernel that is wrong somewhere.
macro_rules! sums {
    ($($name:ident = $text:literal;)*) => {$(
        /// `input + other`.
        #[operator(name = $text)]
        pub mod $name {
            fn $name(input: Tensor<Floating>, other: Tensor<Floating>) -> Tensor;

            fn decomposition(input: Tensor, other: Tensor) -> Tensor {
                fulgurite_ops::prims::add(input, other)
            }

            fn reference(input: &ArrayD<f64>, other: &ArrayD<f64>) -> ArrayD<f64> {
                input + other
            }

            fn samples(s: &mut Samples) {
                s.case(with(s.normal([3, 5]), s.normal([3, 5])));
            }
        }
    )*};
}

sums! {
    tail_forgotten = "wrong::tail_forgotten";
    argument_given_twice = "wrong::argument_given_twice";
    backwards_ignored = "wrong::backwards_ignored";
}

/// The input, whose reference panics on data that no sample has.
#[operator(executor = hasty, no_grad = "only its results are looked at")]
pub mod reference_panics {
    fn reference_panics(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        assert!(input.len() <= 20, "{} elements", input.len());
        input.clone()
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        fulgurite_kernels::access::write_f64(out, &fulgurite_kernels::access::read_f64(&input));
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3, 5])));
    }
}

fn sum(input: &fulgurite_runtime::rules::TensorRef<'_>, other: &fulgurite_runtime::rules::TensorRef<'_>) -> Vec<f64> {
    use fulgurite_runtime::kernels::access::read_f64;
    read_f64(input).iter().zip(read_f64(other)).map(|(a, b)| a + b).collect()
}

#[implementation(of = tail_forgotten, by = hasty)]
mod tail_forgotten_by_hasty {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, other: TensorRef, out: &mut TensorMut) -> Result<()> {
        let mut values = super::sum(&input, &other);
        // A tile of one element behind others.
        if values.len() > 64 && values.len() % 32 == 1 {
            values.pop();
            values.push(0.0);
        }
        fulgurite_kernels::access::write_f64(out, &values);
        Ok(())
    }
}

#[implementation(of = argument_given_twice, by = hasty)]
mod argument_given_twice_by_hasty {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, other: TensorRef, out: &mut TensorMut) -> Result<()> {
        let mut values = super::sum(&input, &other);
        if input.as_ptr() == other.as_ptr() {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        fulgurite_kernels::access::write_f64(out, &values);
        Ok(())
    }
}

#[implementation(of = backwards_ignored, by = hasty, strided)]
mod backwards_ignored_by_hasty {
    fn checker(input: &TensorMeta) -> Claim {
        refuse_unless!(input.dtype() == DType::F32, "f32 only");
        Ok(())
    }

    fn cpu(input: TensorRef, other: TensorRef, out: &mut TensorMut) -> Result<()> {
        let mut values = super::sum(&input, &other);
        if input.strides().iter().any(|stride| *stride < 0) {
            values.reverse();
        }
        fulgurite_kernels::access::write_f64(out, &values);
        Ok(())
    }
}
