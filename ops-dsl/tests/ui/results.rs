//! Names of results: missing, repeated, a parameter's, too few; and rules that call them otherwise.
use fulgurite_ops_macros::{executor, implementation, operator};

#[executor(device = "cpu")]
pub mod host {}

/// What all of these have.
macro_rules! pair {
    ($name:ident, [$(#[$results:meta])?], $($returns:tt)*) => {
        #[operator(executor = host, no_grad = "a test")]
        pub mod $name {
            $(#[$results])?
            fn $name(input: Tensor) -> $($returns)*;

            fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
                Ok((input.clone(), input.clone()))
            }

            fn samples(s: &mut Samples) {
                s.case(with(s.normal([4])));
            }
        }
    };
}

pair!(unnamed, [], (Tensor, Tensor));
pair!(repeated, [#[results(values, values)]], (Tensor, Tensor));
pair!(of_parameter, [#[results(input, indices)]], (Tensor, Tensor));
pair!(too_few, [#[results(values)]], (Tensor, Tensor));
pair!(list, [#[results(values)]], Vec<Tensor>);

#[operator(executor = host)]
pub mod topk {
    #[results(values, indices)]
    fn topk(input: Tensor<Floating>) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        Ok((input.clone(), input.clone()))
    }

    fn grad(input: Tensor) -> ((Tensor, Tensor), impl FnOnce((Tensor, Tensor)) -> Grads) {
        (topk(input), move |(d_out, d_indices): (Tensor, Tensor)| Grads { input: d_out * d_indices })
    }

    fn cpu(input: TensorRef, value: &mut TensorMut, indices: &mut TensorMut) -> Result<()> {
        let _ = (input, value, indices);
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[operator(executor = host, no_grad = "a test")]
pub mod right {
    #[results(values, indices)]
    fn right(input: Tensor) -> (Tensor, Tensor);

    fn meta(input: &TensorMeta) -> Result<(TensorMeta, TensorMeta)> {
        Ok((input.clone(), input.clone()))
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4])));
    }
}

#[implementation(of = right, by = host)]
mod right_by_host {
    fn checker(_input: &TensorMeta) -> Claim {
        Ok(())
    }

    fn cpu(value: &mut TensorMut, indices: &mut TensorMut) -> Result<()> {
        let _ = (value, indices);
        Ok(())
    }
}

#[implementation(of = right, by = host)]
mod half_of_right {
    fn checker(_input: &TensorMeta) -> Claim {
        Ok(())
    }

    fn cpu(values: &mut TensorMut) -> Result<()> {
        let _ = values;
        Ok(())
    }
}

fn main() {}
