//! Implementations that lack what they need.
use fulgurite_ops_macros::implementation;

#[implementation(off = scale, by = fast)]
mod first {
    fn cheker(input: &TensorMeta) -> Claim {
        Ok(())
    }
}

#[implementation]
mod second {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()>;

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (input, move |_d_out| Grads { input })
    }
}

#[implementation(of = scale, by = fast, in_place(inptu))]
mod third {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        Ok(())
    }
}

fn main() {}
