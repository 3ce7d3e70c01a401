//! Declarations of every kind, used as an operator library uses them.
#![allow(missing_docs)]

use fulgurite_ops_macros::{Tree, executor, implementation, operator, operators, rewrite};
use fulgurite_runtime::arithmetic::Arithmetic;
use fulgurite_runtime::operator::RuleSet;
use fulgurite_runtime::operator::{OperatorKind, ResultsDef, Role};
use fulgurite_runtime::registry::{find_operator, role};
use fulgurite_runtime::testing::rules::TestRules;
use fulgurite_runtime::tracer::rules::TracingRules;
use fulgurite_runtime::transforms::autodiff::rules::GradientRules;
use fulgurite_runtime::tree::Tree as _;

fulgurite_runtime::attribute_enum! {
    /// Where f32 is used.
    pub enum Casting {
        /// Statistics are in f32.
        Llama = "llama",
        /// Nothing is in f32.
        None = "none",
    }
}

/// Natural exponential, elementwise.
#[operator(prim, torch = "exp")]
pub mod exp {
    fn exp(input: Tensor<Floating>) -> Tensor;

    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }

    fn scalar(input: Expr) -> Expr {
        input.exp()
    }

    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = exp(input);
        (out, move |d_out| Grads { input: d_out * out })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input.mapv(f64::exp)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

/// Elementwise product.
#[operator(prim, overload = Mul)]
pub mod mul {
    fn mul(input: Operand, other: Operand, #[default(1.0)] alpha: Operand) -> Tensor;

    fn meta(args: Args<&TensorMeta>) -> Result<TensorMeta> {
        Ok(args.input.tensor().map_or_else(|| TensorMeta::new([], DType::F32, Device::CPU), |meta| (*meta).clone()))
    }

    fn scalar(input: Expr, other: Expr, alpha: Expr) -> Expr {
        input * other * alpha
    }

    fn grad(args: Args<Tensor>) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let out = args.call();
        let Args { input, other, alpha: _ } = args;
        (out, move |d_out| Grads {
            input: input.tensor().map(|_| mul(d_out, other)),
            other: other.tensor().map(|_| mul(d_out, input)),
            alpha: None,
        })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([3]), 2).alpha(0.5));
        s.case(with(s.normal([3]), s.normal([3])));
    }
}

/// Root-mean-square normalization.
#[operator(
    torch = "nn.functional.rms_norm",
    skip(golden, executor = "cpu", dtype = bf16, sample = 2, reason = "not stored"),
    tolerance(consistency, factor = 4.0, reason = "cancellation")
)]
pub mod rms_norm {
    fn rms_norm(
        input: Tensor<Floating>,
        normalized_shape: Vec<usize>,
        #[default(None)] weight: Option<Tensor<Floating>>,
        #[default(None)] eps: Option<f64>,
        #[default(Casting::Llama)] casting: Casting,
        #[default("none")] mode: String,
    ) -> Tensor;

    fn meta(weight: Option<&TensorMeta>, input: &TensorMeta, normalized_shape: &[usize]) -> Result<TensorMeta> {
        require!(
            input.shape().ends_with(normalized_shape),
            TrailingShape,
            "input has shape {:?}, expected it to end with {normalized_shape:?}",
            input.shape()
        );
        if let Some(weight) = weight {
            require!(
                weight.shape() == normalized_shape,
                WeightShape,
                "weight has shape {:?}, expected {normalized_shape:?}",
                weight.shape()
            );
        }
        Ok(input.clone())
    }

    fn decomposition(args: Args<Tensor>) -> Tensor {
        let Args { input, normalized_shape: _, weight, eps: _, casting, mode } = args;
        let scaled = match casting {
            Casting::Llama if mode == "none" => exp(input),
            _ => input,
        };
        weight.map_or(scaled, |weight| scaled * weight)
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), [8]).eps(1e-5));
        s.case(with(s.normal([4, 8]), [8]).weight(s.normal([8])).casting(Casting::None).mode("x")).forward_only("kink");
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(TrailingShape, with(e.normal([4, 8]), [7]), "end with [7]");
        e.case(WeightShape, with(e.normal([4, 8]), [8]).weight(e.normal([7])), "weight has shape [7], expected [8]");
    }
}

/// A rule may take a tensor by reference.
#[operator]
pub mod squared {
    fn squared(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: &Tensor) -> Tensor {
        *input * *input
    }

    fn grad(input: &Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let input = *input;
        (input * input, move |d_out| Grads { input: d_out * input * 2.0 })
    }

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        input * input
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}

/// A list in, two results out.
#[operator(executor = liger, no_grad = "its implementations have gradients", effects(random))]
pub mod pair {
    #[results(first, second)]
    fn pair(more: Vec<Tensor>, bias: Option<Tensor<Floating>>, dims: Option<Vec<i64>>) -> (Tensor, Tensor);

    fn meta(Args { more, bias, .. }: Args<&TensorMeta>) -> Result<(TensorMeta, TensorMeta)> {
        require!(!more.is_empty(), Empty, "more is empty");
        Ok((more[0].clone(), bias.unwrap_or(more[0]).clone()))
    }

    fn cpu(args: Args<TensorRef>, first: &mut TensorMut, second: &mut TensorMut) -> Result<()> {
        require!(args.bias.is_none() || !args.more.is_empty(), Empty, "more is empty");
        let _ = (first.len(), second.len());
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with([s.normal([2]), s.normal([3])], None, vec![1]));
        s.case(with(vec![s.normal([2])], s.normal([2]), None));
    }

    fn errors(e: &mut ErrorSamples) {
        e.case(Empty, with([], None, None), "more is empty");
    }
}

/// No tensor at all.
#[operator(prim, overload = Full)]
pub mod full {
    fn full(size: Vec<usize>, fill_value: Scalar, dtype: DType, device: String) -> Tensor;

    fn meta(size: &[usize], dtype: DType) -> Result<TensorMeta> {
        Ok(TensorMeta::new(size, dtype, Device::CPU))
    }

    fn samples(s: &mut Samples) {
        s.case(with([2, 3], 1.5, DType::F32, "cpu"));
    }
}

/// A list of results.
#[operator(executor = liger, name = "halves", no_grad = "a test")]
pub mod halves {
    fn halves(input: Tensor, dim: i64) -> Vec<Tensor>;

    fn meta(input: &TensorMeta) -> Result<Vec<TensorMeta>> {
        Ok(vec![input.clone(), input.clone()])
    }

    fn cpu(args: Args<TensorRef>, out: &mut [TensorMut]) -> Result<()> {
        let _ = (args.input, args.dim, out.len());
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([2]), -1));
    }
}

/// Fused kernels.
#[executor(device = "cpu", priority = 10)]
pub mod liger {
    fn claims(def: &'static fulgurite_runtime::operator::OperatorDef, _arguments: &[Arg<TensorMeta>]) -> Claim {
        refuse_unless!(Arithmetic::of(def).scalar.is_some(), "has no scalar rule");
        Ok(())
    }
}

#[implementation(of = rms_norm, by = liger)]
mod rms_norm_by_liger {
    fn checker(input: &TensorMeta, weight: Option<&TensorMeta>) -> Claim {
        refuse_unless!(weight.is_some(), "needs a weight");
        refuse_unless!(input.rank() > 0, "needs a dimension");
        Ok(())
    }

    fn execution(args: Args<Tensor>) -> Tensor {
        let Args { input, weight, normalized_shape: _, eps: _, casting: _, mode: _ } = args;
        pair([input], weight, None).0
    }

    fn grad(
        input: Tensor,
        _normalized_shape: &[usize],
        weight: Option<Tensor>,
        _eps: Option<f64>,
        _casting: Casting,
        _mode: &str,
    ) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        let (out, rstd) = pair([input], weight, None);
        (out, move |d_out| Grads { input: d_out * rstd, weight: None })
    }
}

#[implementation(of = self::exp, by = self::liger)]
mod exp_by_liger {
    fn checker() -> Claim {
        Ok(())
    }

    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let _ = (input, out.len());
        Ok(())
    }
}

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

        fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
            input.mapv($reference)
        }

        fn samples(s: &mut Samples) {
            s.elementwise_unary($domain)
        }
    }

    table($name, $torch,  $no_grad,                   $scalar,      $d_input,      $reference,  $domain) {
        /// Natural logarithm, elementwise.
        log,     "log",   _,                          input.log(),  d_out / input, f64::ln,     Domain::POSITIVE;
        /// Largest integer not above.
        floor,   "floor", "is constant by pieces",    input.floor(), _,            f64::floor,  Domain::ALL;
        /// `x + 1`, which has no name elsewhere.
        next,    _,       _,                          input + 1.0,  d_out,         |x| x + 1.0, Domain::range(0.0, 1.0);
    }
}

/// Whether one is larger.
#[operator(prim, no_grad = "is a predicate")]
pub mod gt {
    fn gt(input: Tensor<Number>, other: Tensor<Number>) -> Tensor;

    fn scalar(other: Expr, input: Expr) -> Expr {
        input.gt(other)
    }

    fn samples(s: &mut Samples) {
        s.elementwise_binary(Domain::ALL, Domain::ALL)
    }
}

/// The exponential, of a dimension that there is.
#[operator]
pub mod checked_exp {
    fn checked_exp(input: Tensor<Floating>, dim: i64) -> Tensor;

    fn decomposition(input: Tensor, dim: i64) -> Result<Tensor> {
        let dim = fulgurite_runtime::meta::normalize_dim(dim, input.rank())?;
        Ok(if dim == 0 { exp(input) } else { exp(exp(input)) })
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 3]), 0));
    }
}

/// `exp(x) * exp(y) = exp(x * y)`, which is wrong and therefore a good test.
#[rewrite(default)]
mod merge_exp {
    fn pattern(#[rank(..2)] x: Tensor, y: Tensor, scale: f64) -> Tensor {
        exp(x) * exp(y) * scale
    }

    fn replacement(y: Tensor, scale: f64, x: Tensor) -> Tensor {
        exp(x * y) * scale
    }

    fn condition(x: &TensorMeta, y: &TensorMeta, scale: f64) -> Claim {
        refuse_unless!(x == y, "differ");
        refuse_unless!(scale > 0.0, "scale is {scale}");
        Ok(())
    }

    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4]), s.normal([4]), 2.0));
    }
}

#[derive(Debug, Clone, PartialEq, Tree)]
pub struct Linear<T> {
    weight: T,
    bias: Option<T>,
}

#[derive(Debug, Clone, PartialEq, Tree)]
pub struct Model<Leaf> {
    embedding: Leaf,
    h: Vec<Linear<Leaf>>,
    pairs: Vec<(Leaf, Option<Leaf>)>,
    head: Option<Linear<Leaf>>,
    #[tree(attribute)]
    heads: usize,
    #[tree(attribute)]
    casting: Casting,
}

#[test]
fn trees() {
    use fulgurite_runtime::{DType, Device, TensorMeta};
    let meta = |n: usize| TensorMeta::new([n], DType::F32, Device::CPU);
    let model = Model {
        embedding: meta(1),
        h: vec![Linear { weight: meta(2), bias: None }, Linear { weight: meta(3), bias: Some(meta(4)) }],
        pairs: vec![(meta(5), Some(meta(6)))],
        head: Some(Linear { weight: meta(7), bias: None }),
        heads: 12,
        casting: Casting::Llama,
    };
    let names: Vec<String> = model.leaves().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["embedding", "h.0.weight", "h.1.weight", "h.1.bias", "pairs.0.0", "pairs.0.1", "head.weight"]);
    let mut attributes = Vec::new();
    model.attributes(&mut attributes);
    // Its own two; the lengths of two lists; whether each of five options is there.
    assert_eq!(attributes.len(), 9);
    let mut order = 0;
    let mapped = model.clone().map(&mut |leaf: TensorMeta| {
        order += 1;
        assert_eq!(leaf, meta(order));
        leaf
    });
    assert_eq!(mapped, model);
}

#[test]
fn a_decomposition_may_fail() {
    use fulgurite_runtime::argument::Arg;
    use fulgurite_runtime::{DType, Device, TensorMeta};
    let lines = |dim: i64| {
        let def = find_operator("checked_exp").unwrap();
        let input = TensorMeta::new([4, 3], DType::F32, Device::CPU);
        let inferred = fulgurite_runtime::tracer::infer(def, &[Arg::Tensor(input), Arg::value(dim)]);
        let body = inferred.map_err(|error| error.of(def.name, None).to_string())?.1;
        Ok::<_, String>(body.map_or(0, |body| body.symbols.len()))
    };
    assert_eq!((lines(0), lines(-1)), (Ok(1), Ok(2)));
    let message = lines(2).unwrap_err();
    assert!(message.starts_with("checked_exp: ") && message.contains("2"), "{message}");
    // What was traced on this thread before is traced after it.
    assert_eq!(lines(1), Ok(2));
}

#[test]
fn families() {
    use fulgurite_runtime::argument::map_arguments;
    use fulgurite_runtime::testing::samples::{ErrorSamples, Samples};
    use fulgurite_runtime::{DType, Device};
    let log = find_operator("prims::log").unwrap();
    assert_eq!(
        (log.docs, log.torch, GradientRules::of(log).no_grad),
        ("Natural logarithm, elementwise.", Some("log"), None)
    );
    assert!(
        GradientRules::of(log).grad.is_some()
            && TracingRules::of(log).meta.is_some()
            && TestRules::of(log).codes.is_empty()
    );
    let floor = find_operator("prims::floor").unwrap();
    assert!(GradientRules::of(floor).grad.is_none() && GradientRules::of(floor).no_grad.is_some());
    assert_eq!(find_operator("prims::next").unwrap().torch, None);

    let gt = find_operator("prims::gt").unwrap();
    assert_eq!(TestRules::of(gt).codes, ["ShapeMismatch", "DTypeMismatch"]);
    let sample = &Samples::of_operator(gt, DType::F32)[3];
    let metas = map_arguments(&sample.arguments, |t| t.meta(Device::CPU));
    let results = TracingRules::of(gt).meta.unwrap()(&metas).unwrap();
    assert_eq!((results[0].shape(), results[0].dtype()), (&[4, 8][..], DType::Bool));
    let errors = ErrorSamples::of_operator(gt, DType::F32);
    assert_eq!(errors.len(), 2);
    for error in errors {
        let metas = map_arguments(&error.arguments, |t| t.meta(Device::CPU));
        let failure = TracingRules::of(gt).meta.unwrap()(&metas).unwrap_err();
        assert_eq!(failure.code, error.code);
        assert!(failure.message.contains(error.message), "{}", failure.message);
    }
}

#[test]
fn rewrites() {
    use fulgurite_runtime::argument::Arg;
    use fulgurite_runtime::testing::samples::Samples;
    use fulgurite_runtime::{DType, Device, TensorMeta};
    let [rewrite] = fulgurite_runtime::executor::rewrites()[..] else { panic!("one rewrite") };
    let params: Vec<&str> = rewrite.params.iter().map(|param| param.name).collect();
    assert_eq!((rewrite.name, &params[..], rewrite.default), ("merge_exp", &["x", "y", "scale"][..], true));
    let meta = TensorMeta::new([2], DType::F32, Device::CPU);
    let arguments = |scale: f64| vec![Arg::Tensor(meta.clone()), Arg::Tensor(meta.clone()), Arg::value(scale)];
    assert_eq!(rewrite.accepts(&arguments(1.0)), Ok(()));
    assert_eq!(rewrite.accepts(&arguments(-1.0)), Err("scale is -1".into()));
    let matrix = Arg::Tensor(TensorMeta::new([2, 3], DType::F32, Device::CPU));
    let refused = rewrite.accepts(&[matrix.clone(), matrix, Arg::value(1.0)]);
    assert_eq!(refused, Err("x is f32[2, 3], the pattern takes 0 to 1 dimension".into()));
    let mut samples = Samples::new(None, DType::F32);
    rewrite.samples.unwrap()(&mut samples);
    assert_eq!(samples.into_cases().len(), 1);
}

#[test]
fn records() {
    let exp = find_operator("prims::exp").unwrap();
    assert_eq!(exp.kind, OperatorKind::Prim);
    assert_eq!(exp.docs, "Natural exponential, elementwise.");
    assert_eq!(exp.torch, Some("exp"));
    let norm = find_operator("rms_norm").unwrap();
    assert_eq!(
        norm.signature(),
        "rms_norm(input: tensor, normalized_shape: size[], weight: tensor? = none, eps: float? = none, \
         casting: \"llama\"|\"none\" = \"llama\", mode: str = \"none\") -> tensor"
    );
    assert_eq!(TestRules::of(norm).codes, ["TrailingShape", "WeightShape"]);
    assert_eq!(TestRules::of(norm).directives.len(), 2);
    assert_eq!(role(Role::Full).unwrap().short_name(), "full");
    let error = Role::Pad.check(norm).unwrap_err().to_string();
    assert!(error.contains("calls an operator of that role with (tensor, size[], size[], number)"), "{error}");
    let pair = find_operator("liger::pair").unwrap();
    assert_eq!(pair.kind, OperatorKind::Symbol(&["liger"]));
    assert_eq!(pair.results, ResultsDef::Named(&["first", "second"]));
    assert!(pair.effects.random);
    assert_eq!(fulgurite_runtime::executor::implementations().len(), 2);
    assert_eq!(fulgurite_runtime::executor::find_executor("liger").unwrap().docs, "Fused kernels.");
    assert!(fulgurite_runtime::executor::find_implementation("rms_norm", "liger").unwrap().grad.is_some());
}

#[test]
fn rules() {
    use fulgurite_runtime::argument::Arg;
    use fulgurite_runtime::testing::samples::{ErrorSamples, Samples};
    use fulgurite_runtime::{DType, Device, TensorMeta};
    let norm = find_operator("rms_norm").unwrap();
    let samples = Samples::of_operator(norm, DType::F32);
    assert_eq!(samples.len(), 2);
    let errors = ErrorSamples::of_operator(norm, DType::F32);
    assert_eq!(errors[1].code, "WeightShape");
    let metas = fulgurite_runtime::argument::map_arguments(&errors[1].arguments, |t| t.meta(Device::CPU));
    let failure = TracingRules::of(norm).meta.unwrap()(&metas).unwrap_err();
    assert_eq!(failure.code, "WeightShape");
    assert_eq!(failure.message, "weight has shape [7], expected [8]");
    let exp = find_operator("prims::exp").unwrap();
    let (program, numbers) =
        Arithmetic::of(exp).scalar.unwrap()(&[Arg::Tensor(TensorMeta::new([2], DType::F32, Device::CPU))]);
    assert_eq!((program.nodes.len(), numbers.len()), (2, 0));
}

#[test]
fn tracing() {
    use fulgurite_runtime::{DType, Device, TensorMeta};
    let x = TensorMeta::new([4, 8], DType::F32, Device::CPU);
    let block = fulgurite_runtime::tracer::trace_block(&[("x".into(), x)], |x| {
        let y = x[0].rms_norm([8]);
        let z = rms_norm::with(y, [8]).eps(1e-6).call();
        let (a, _) = pair([z * 2.0, y], None, vec![-1]);
        let f = full([4, 8], 1.0, DType::F32, "cpu");
        vec![halves(a * f, 1)[0]]
    })
    .unwrap();
    assert_eq!(block.symbols.len(), 7);
}

/// Several results are called by their names below the call's, whose counter all of them share.
#[test]
fn names_of_results() {
    use fulgurite_runtime::{DType, Device, TensorMeta};
    let x = TensorMeta::new([4, 8], DType::F32, Device::CPU);
    let block = fulgurite_runtime::tracer::trace_block(&[("x".into(), x.clone()), ("pair.2.second".into(), x)], |x| {
        let pairs = [0; 3].map(|_| pair([x[0]], None, vec![1]));
        pairs.iter().flat_map(|(first, second)| [*first, *second]).collect()
    })
    .unwrap();
    let names: Vec<&str> = block.results.iter().map(|id| &*block.value(*id).name).collect();
    assert_eq!(
        names,
        ["pair.first", "pair.second", "pair.1.first", "pair.1.second", "pair.3.first", "pair.3.second"],
        "the third call finds a name taken"
    );
    assert_eq!(find_operator("liger::pair").unwrap().results.describe(1), "result second");
}

/// A module of the name that the facade has.
mod outer {
    pub mod fulgurite {
        pub const FACTOR: f64 = 3.0;
    }
}

/// Paths of rules stay as they are written, whatever the root of expansions is called.
#[operator]
pub mod tripled {
    fn tripled(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {
        input * super::outer::fulgurite::FACTOR
    }

    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::ALL)
    }
}
