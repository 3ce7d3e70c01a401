//! Rewrites that lack what they need.
use fulgurite_ops_macros::{executor, rewrite};

#[rewrite(defualt)]
mod first {
    fn pattern(x: Tensor, #[rank(2)] n: usize, #[rank(two)] y: Tensor, _eps: f64, z: Option<Tensor>) -> Tensor {
        let _ = z;
        x * y
    }
}

#[rewrite]
mod second {
    fn pattern(x: Tensor, y: Tensor, scale: f64) -> Tensor {
        x * y * scale
    }

    fn replacement(x: Tensor) -> Tensor {
        x
    }

    fn condition(z: &TensorMeta) -> Claim {
        refuse_unless!(z.rank() > 0, "needs a dimension");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4]), s.normal([4]), 2.0));
    }
}

/// Kernels.
#[executor(device = "cpu")]
pub mod fast {}

#[rewrite(default, late, executor = fast)]
mod third {
    fn pattern(x: Tensor) -> Tensor {
        x
    }

    fn replacement(x: Tensor) -> Tensor {
        x
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[rewrite(late = 1, executor, keep_inner = 2)]
mod fourth {
    fn pattern(x: Tensor) -> Tensor {
        x
    }

    fn replacement(x: Tensor) -> Tensor {
        x
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

/// The replacement asks for another type than the pattern binds.
#[rewrite]
mod fifth {
    fn pattern(x: Tensor, scale: f64) -> Tensor {
        x * scale
    }

    fn replacement(x: Tensor, scale: bool) -> Tensor {
        if scale { x } else { -x }
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4]), 2.0));
    }
}

fn main() {}
