//! Rewrites that lack what they need.
use fulgurite_ops_macros::{executor, rewrite};

#[rewrite(defualt)]
mod first {
    fn pattern(x: Tensor, n: usize) -> Tensor {
        let _ = n;
        x
    }
}

#[rewrite]
mod second {
    fn pattern(x: Tensor, y: Tensor) -> Tensor {
        x * y
    }

    fn replacement(x: Tensor) -> Tensor {
        x
    }

    fn condition(z: &TensorMeta) -> Claim {
        refuse_unless!(z.rank() > 0, "needs a dimension");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4]), s.normal([4])));
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

fn main() {}
