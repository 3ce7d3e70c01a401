//! Implementations of an operator whose signature is elsewhere.
use fulgurite_ops_macros::{executor, implementation, operator};

#[operator(prim)]
pub mod scale {
    fn scale(input: Tensor<Floating>, weight: Tensor<Floating>, #[default(0.0)] eps: f64) -> Tensor;

    fn scalar(input: Expr, weight: Expr, eps: Expr) -> Expr {
        input * weight + eps
    }

    fn grad(input: Tensor, weight: Tensor, eps: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (with(input, weight).eps(eps).call(), move |d_out| Grads { input: d_out * weight, weight: d_out * input })
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::ALL, Domain::ALL)
    }
}

/// Kernels.
#[executor(device = "cpu")]
pub mod fast {}

// An argument that does not exist.
#[implementation(of = scale, by = fast)]
mod first {
    fn checker(wieght: &TensorMeta) -> Claim {
        refuse_unless!(wieght.rank() > 0, "needs a dimension");
        Ok(())
    }

    fn execution(input: Tensor, _weight: Tensor, _eps: f64) -> Tensor {
        input
    }
}

// An argument that is left out.
#[implementation(of = scale, by = fast)]
mod second {
    fn checker() -> Claim {
        Ok(())
    }

    fn execution(input: Tensor, _weight: Tensor) -> Tensor {
        input
    }
}

// Nothing of that name can be written over.
#[implementation(of = scale, by = fast, in_place(inptu))]
mod third {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let _ = (input, out);
        Ok(())
    }
}

fn main() {}
