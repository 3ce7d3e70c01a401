//! Families whose template and table do not fit.
use fulgurite_ops_macros::operators;

operators! {
    #[operator(prim, no_grad = "a test", torch = $torhc)]
    pub mod $name {
        fn $name(input: Tensor<Floating>) -> Tensor;

        fn scalar(input: Expr) -> Expr {
            $scalar
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary(Domain::ALL)
        }
    }

    table($name, $torch, $scalar) {
        /// Exponential.
        exp, "exp", input.exp();
        /// Logarithm.
        log, "log";
    }
}

operators! {
    #[operator(prim, torch = $torch)]
    pub mod $name {
        fn $name(input: Tensor<Floating>) -> Tensor;

        fn scalar(input: Expr) -> Expr {
            $scalar
        }

        fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
            let out = $name(input);
            (out, move |d_out| Grads { input: $d_input })
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary(Domain::ALL)
        }
    }

    table($name, $torch, $scalar, $d_input) {
        sin, "sin", input.sin(), d_out * cos(input);
        cos, "cos", input.cos(), _;
        sqrt, "sqrt", input.squareroot(), d_out / out;
    }
}

fn main() {}
