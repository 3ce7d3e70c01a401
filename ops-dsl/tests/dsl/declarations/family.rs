operators! {
    #[operator(prim, torch = $torch, no_grad = $no_grad)]
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
            s.elementwise_unary($domain)
        }
    }

    table($name, $torch,  $no_grad,             $scalar,       $d_input,      $domain) {
        /// Natural logarithm, elementwise.
        log,     "log",   _,                    input.log(),   d_out / input, Domain::POSITIVE;
        /// Exponential, elementwise: what it shares with the logarithm is emitted once.
        exp,     "exp",  _,                    input.exp(),   d_out * out,   Domain::ALL;
        /// Largest integer not above.
        floor,   _,       "constant by pieces", input.floor(), _,             Domain::ALL;
    }
}
