//! The macros of Fulgurite: a thin shim over `fulgurite-ops-dsl`.
//!
//! A declaration is an attributed module whose functions are *rules*: ordinary Rust that rustfmt formats and
//! rust-analyzer completes. The signature is written once; every rule takes the arguments it needs **by name, in any
//! order**, or all of them as one struct, `args: Args<...>`, in the form of the stage it works on. `_eps` takes `eps`
//! and says that it is not used. Other functions, types and `use`s in the module are the author's own and are passed
//! through. The module sees its surroundings and the names of `fulgurite::rules`.
//!
//! Expansions name what they need at the root of the facade, `::fulgurite`, or at that of the runtime where the crate
//! that declares operators depends on the runtime alone, as the crates of this repository do.

mod root;

use proc_macro::TokenStream;

/// Declares an operator.
///
/// ```ignore
/// /// Documentation, which becomes that of the function, the method and the record.
/// #[operator(torch = "nn.functional.rms_norm")]
/// pub mod rms_norm {
///     fn rms_norm(
///         input: Tensor<Floating>,
///         normalized_shape: Vec<usize>,
///         #[default(None)] weight: Option<Tensor<Floating>>,
///         #[default(None)] eps: Option<f64>,
///     ) -> Tensor;
///
///     fn meta(input: &TensorMeta, normalized_shape: &[usize]) -> Result<TensorMeta> {
///         require!(input.shape().ends_with(normalized_shape), TrailingShape, "input has shape {:?}", input.shape());
///         Ok(input.clone())
///     }
///     fn decomposition(input: Tensor, normalized_shape: &[usize], weight: Option<Tensor>, eps: Option<f64>) -> Tensor { ... }
///     fn grad(input: Tensor, ...) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
///         (out, move |d_out| Grads { input: ..., weight: ... })
///     }
///     fn reference(input: &ArrayD<f64>, ...) -> ArrayD<f64> { ... }
///     fn samples(s: &mut Samples) { s.case(with(s.normal([4, 8]), [8]).eps(1e-5)); }
///     fn errors(e: &mut ErrorSamples) { e.case(TrailingShape, with(e.normal([4, 8]), [7]), "input has shape [4, 8]"); }
/// }
/// ```
///
/// **Kinds.** `#[operator(prim)]` does not decompose and is named `prims::exp`; `#[operator]` is a composite and needs
/// a `decomposition`; `#[operator(executor = liger)]` is a kernel symbol of the executor whose module that is, named
/// `liger::...`. `name = "..."` overrides the name. Outside of this repository operators have the namespace of their
/// crate: `swiglu` of the crate `my_operators` is `my_operators::swiglu` in traces, and `my_operators::...` replaces
/// `prims::...`.
///
/// **Signature.** `Tensor`, `Option<Tensor>`, `Vec<Tensor>`, `Operand` (a tensor or a number), each with a class of
/// element types if they are restricted (`Tensor<Floating>`, `<Integer>`, `<Boolean>`, `<Number>`); anything else is an
/// attribute, known when a program is traced. `#[default(value)]` makes an argument optional, and all that follow it.
/// The result is `Tensor`, a tuple of them, or `Vec<Tensor>`. The results of a tuple have names, given above the
/// signature: `#[results(out, mean, rstd)]`.
///
/// **Rules.** `meta` (from `scalar` if absent), `decomposition`, `grad`, `scalar` (over `Expr`), `flops` (operations of
/// a call, as `u64`), `reference` (over `ArrayD`), `cpu` (over `TensorRef`; results by their names, `out` where there
/// is one, as `&mut TensorMut`; `out: &mut [TensorMut]` for a list), `view` (over `Strided`: how the result looks into
/// its first operand), `channels` (over `TensorMeta`: whether the kernel would rather have channels innermost),
/// `samples`, `errors`. `decomposition` and `grad` take every argument, or, where they only pass
/// them on, `arguments: Arguments` as a whole: `forward::call(arguments)`. Any of these but `scalar` may take all
/// arguments as one struct with a field for each, which it may destructure: `args: Args<&TensorMeta>`. A pullback of
/// several results takes a tuple of cotangents that are called after them: `move |(d_out, d_mean, d_rstd)| ...`; a
/// cotangent of type `Option<Tensor>` is `None` where none arrived.
///
/// **Settings.** `torch = "..."`, `overload = Add` (the runtime's `Role`s), `commutes` if the first two operands may be
/// exchanged, `accumulates(x)` if a number for the operand `x` is f32 beside tensors of 16 bits and is not rounded to
/// their type, `exact` if nothing is rounded but the result,
/// `autocast = low` (or `full`, `widest`, `keep`: what mixed precision makes of the operands), `autocast_keeps(x)`
/// (operands that it leaves as they are),
/// `effects(random, collective)`, `strided` if `cpu` takes operands of any strides,
/// `strided_results = 1` if kernels write results with strides (that many of the last dimensions are packed),
/// `no_grad = "reason"`, `waive(d_indices = "reason")` for a cotangent that is not used, and directives for generated
/// tests: `skip(golden, executor = "cpu", dtype = bf16, sample = 2, reason = "...")`, `expected_failure(...)`,
/// `tolerance(consistency, factor = 4.0, reason = "...")`.
///
/// **What it gives.** In the module: `with(...)` and the setters of its `ArgsWithoutCall` (a builder: it ends with
/// `.call()`), `Grads`, `Code` (the named preconditions), `OPERATOR`, and `ARGUMENTS`:
/// `ARGUMENTS.input.set(good(), e.normal([9]))` is the call `good()` with another input, for error samples (an optional
/// tensor is given as `Some(...)`). `call(arguments)` calls it with the arguments of another call.
/// `Args` are the arguments by name, as rules see them; `args.call()` calls the operator with those of a gradient or a
/// decomposition. These names, `Places`, `PARAMS`, `RESULTS` and `CODES` are taken: helpers of the author's own have
/// others. Beside the module: the function `rms_norm(input, [8])`, and `RmsNormMethod` for `input.rms_norm([8])` if the
/// first argument is a tensor called `input`.
#[proc_macro_attribute]
pub fn operator(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let package = std::env::var("CARGO_PKG_NAME").ok();
    root::rooted(|| {
        fulgurite_ops_dsl::in_package(package, || fulgurite_ops_dsl::operator(attribute.into(), item.into()))
    })
}

/// Declares how an executor runs an operator that it does not own.
///
/// ```ignore
/// #[implementation(of = rms_norm, by = liger)]
/// mod rms_norm_by_liger {
///     fn checker(input: &TensorMeta, weight: Option<&TensorMeta>) -> Claim {
///         refuse_unless!(weight.is_some(), "needs a weight");
///         Ok(())
///     }
///     fn execution(input: Tensor, normalized_shape: &[usize], weight: Option<Tensor>, eps: Option<f64>) -> Tensor { ... }
///     fn grad(...) -> (Tensor, impl FnOnce(Tensor) -> Grads) { ... }
/// }
/// ```
///
/// `of` and `by` are the modules of the operator and of the executor, which may be in other crates. `checker` is
/// required, and `execution` (in terms of kernel symbols) or `cpu` (a host kernel). `execution` and `grad` take every
/// argument. `by = [cublaslt, tf32(in_place(x))]` are several executors, with settings of their own, that run the same
/// rules: one that takes `precision: Precision` gets that of the executor. `waive(...)`, `strided` and
/// `strided_results` as for operators. `#[tune(BLOCK in [128, 256])]` on a kernel gives its parameter `BLOCK: usize`
/// the first value, and makes candidates of the others.
#[proc_macro_attribute]
pub fn implementation(attribute: TokenStream, item: TokenStream) -> TokenStream {
    root::rooted(|| fulgurite_ops_dsl::implementation(attribute.into(), item.into()))
}

/// Declares an executor: `#[executor(device = "cpu", priority = 10)] pub mod liger { ... }`.
///
/// Lower priorities come first in the default list of the device kind. Without a priority, the executor must be named.
/// `strided` says that its kernels take operands of any strides; `strided_results = 0` that elementwise kernels and
/// regions write results of any strides; `precision = tf32` that it rounds operands of f32, and
/// `precisions(liger_tf32 = tf32)` that it also does under that name. `version = "2"` is the package's by default. The
/// module may hold options, `#[option] pub static BLOCK: usize = 256;`, whose values rules read by `BLOCK.get()`, and
/// the functions `claims`, `prepare`, `fuse`, `admits_region` and `prepare_region` of `ExecutorDef`, and gives
/// `EXECUTOR`.
#[proc_macro_attribute]
pub fn executor(attribute: TokenStream, item: TokenStream) -> TokenStream {
    root::rooted(|| fulgurite_ops_dsl::executor(attribute.into(), item.into()))
}

/// Lists files that hold one operator each, named after it: `operator_files! { exp, rms_norm }`.
///
/// The operator's module and function are then in the module that lists the file; a file module of the operator's own
/// name would hide the operator's module.
#[proc_macro]
pub fn operator_files(input: TokenStream) -> TokenStream {
    root::rooted(|| fulgurite_ops_dsl::operator_files(input.into()))
}

/// Declares a pattern of operators and its equivalent replacement. `#[rewrite(default)]` runs without being named.
/// `claimed` asks for an executor that runs the replacement as it is; `keep_inner` says that inner values may be read
/// elsewhere.
///
/// ```ignore
/// #[rewrite(default)]
/// mod merge_rope {
///     fn pattern(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) { ... }
///     fn replacement(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> (Tensor, Tensor) { ... }
///     fn condition(q: &TensorMeta, k: &TensorMeta) -> Claim { ... }        // may be absent
///     fn samples(s: &mut Samples) { s.case(with(s.normal([2, 4]), ...)); }
/// }
/// ```
#[proc_macro_attribute]
pub fn rewrite(attribute: TokenStream, item: TokenStream) -> TokenStream {
    root::rooted(|| fulgurite_ops_dsl::rewrite(attribute.into(), item.into()))
}

/// Declares a family of operators: a template and a table of what differs.
///
/// The template is an ordinary declaration in which `$column` stands for a cell. Each row, with its documentation,
/// becomes an operator as if it had been written out. A cell `_` leaves out the settings and functions that mention its
/// column.
///
/// ```ignore
/// operators! {
///     #[operator(prim, torch = $torch)]
///     pub mod $name {
///         fn $name(input: Tensor<Floating>) -> Tensor;
///         fn scalar(input: Expr) -> Expr { $scalar }
///         fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
///             let out = $name(input);
///             (out, move |d_out| Grads { input: $d_input })
///         }
///         fn reference(input: &ArrayD<f64>) -> ArrayD<f64> { elementwise(input, $reference) }
///         fn samples(s: &mut Samples) { s.elementwise_unary($domain) }
///     }
///
///     table($name, $torch, $scalar,     $d_input,        $reference, $domain) {
///         /// Natural exponential, elementwise: `eˣ`.
///         exp,     "exp",  input.exp(), d_out * out,     f64::exp,   Domain::ALL;
///         /// Natural logarithm, elementwise.
///         log,     "log",  input.log(), d_out / input,   f64::ln,    Domain::POSITIVE;
///     }
/// }
/// ```
#[proc_macro]
pub fn operators(input: TokenStream) -> TokenStream {
    let package = std::env::var("CARGO_PKG_NAME").ok();
    root::rooted(|| fulgurite_ops_dsl::in_package(package, || fulgurite_ops_dsl::operators(input.into())))
}

/// Makes a tree of a struct that is generic over its leaf.
///
/// Fields are leaves (`T`), options, lists and tuples of them, or other trees (`Vec<Block<T>>`). A field that holds no
/// leaves but decides which program is compiled is marked `#[tree(attribute)]`; its type is an `AttributeType`.
///
/// ```ignore
/// #[derive(Tree)]
/// pub struct Model<T> {
///     embedding: T,
///     h: Vec<Block<T>>,
///     bias: Option<T>,
///     #[tree(attribute)]
///     heads: usize,
/// }
/// ```
#[proc_macro_derive(Tree, attributes(tree))]
pub fn tree(input: TokenStream) -> TokenStream {
    root::rooted(|| fulgurite_ops_dsl::tree(input.into()))
}
