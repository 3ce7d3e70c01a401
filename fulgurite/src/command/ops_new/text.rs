//! What `ops new` writes: declarations as the library's own files have them.

use fulgurite::operator::{OperatorDef, ParamKind, ResultsDef};

use super::{Kind, Surroundings};

/// The file of a declaration.
pub(super) fn declaration(name: &str, kind: &Kind<'_>, surroundings: Surroundings) -> String {
    match kind {
        Kind::Composite { torch } => {
            let settings = torch.map(|torch| format!("(torch = \"{torch}\")")).unwrap_or_default();
            imports("operator", surroundings, None, true) + &operator(name, &settings, COMPOSITE)
        }
        Kind::Prim { torch } => {
            let torch = torch.map(|torch| format!(", torch = \"{torch}\"")).unwrap_or_default();
            imports("operator", surroundings, None, true) + &operator(name, &format!("(prim{torch})"), PRIM)
        }
        Kind::Symbol { executor, cuda } => {
            let settings =
                format!("(executor = {executor}, dtypes(f32), no_grad = \"what calls it has the gradient\")");
            let rules = if *cuda { SYMBOL.to_owned() + PLAN } else { SYMBOL.to_owned() + CPU };
            imports("operator", surroundings, Some(executor), false) + &operator(name, &settings, &rules)
        }
        Kind::Implementation { executor, of } => {
            imports("implementation", surroundings, Some(executor), false)
                + &implementation(name, executor, of, surroundings)
        }
        Kind::Rewrite => imports("rewrite", surroundings, None, true) + &REWRITE.replace("NAME", name),
        Kind::Executor => imports("executor", surroundings, None, false) + &EXECUTOR.replace("NAME", name),
    }
}

/// The kernel of a symbol.
pub(super) fn kernel(name: &str) -> String {
    KERNEL.replace("NAME", name)
}

/// The macro, the executor's module, and the prims that a decomposition calls.
fn imports(macro_name: &str, surroundings: Surroundings, executor: Option<&str>, prims: bool) -> String {
    let mut text = match surroundings {
        Surroundings::Operators => format!("use fulgurite_ops_macros::{macro_name};\n"),
        Surroundings::BesideOperators if prims => {
            format!("use fulgurite_ops::prims;\nuse fulgurite_ops_macros::{macro_name};\n")
        }
        Surroundings::BesideOperators => format!("use fulgurite_ops_macros::{macro_name};\n"),
        Surroundings::Outside if prims => "use fulgurite::ops::prims;\nuse fulgurite::prelude::*;\n".to_owned(),
        Surroundings::Outside => "use fulgurite::prelude::*;\n".to_owned(),
    };
    let own: Vec<String> = executor
        .map(|executor| format!("use super::{executor};\n"))
        .into_iter()
        .chain((prims && surroundings == Surroundings::Operators).then(|| "use crate::prims;\n".to_owned()))
        .collect();
    if !own.is_empty() {
        text = format!("{text}\n{}", own.concat());
    }
    text + "\n"
}

/// An operator with these settings and rules, and what every one has.
fn operator(name: &str, settings: &str, rules: &str) -> String {
    format!("{HEAD}{rules}{TAIL}").replace("SETTINGS", settings).replace("NAME", name)
}

const HEAD: &str = "\
/// PLACEHOLDER: say what `NAME` computes, elementwise or along which dimensions, as a formula.
#[operatorSETTINGS]
pub mod NAME {
    fn NAME(input: Tensor<Floating>) -> Tensor;
";

const TAIL: &str = "
    // PLACEHOLDER: the same in f64, straight from the formula and written independently. The consistency tests fail until
    // it is written and the two agree.
    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {
        elementwise(input, |_| todo!(\"{}: write the rules, `reference` and `samples` at PLACEHOLDER\", file!()))
    }

    // PLACEHOLDER: inputs on which the two must agree, with every argument: typical ones, zero-dimensional and empty
    // ones, odd sizes, extreme values. `s.case(with(s.normal([4, 8])))` adds one.
    fn samples(s: &mut Samples) {
        s.elementwise_unary(Domain::range(0.5, 2.0));
    }
}
";

const COMPOSITE: &str = "
    // PLACEHOLDER: what it is in terms of other operators. Its meta and its gradient follow from this.
    fn decomposition(input: Tensor) -> Tensor {
        prims::add(input, input)
    }
";

const PRIM: &str = "
    // PLACEHOLDER: its arithmetic, which host and device make their kernels from. Its meta follows from this. (A prim that is not
    // elementwise has `meta` in its place, and implementations that run it.)
    fn scalar(input: Expr) -> Expr {
        input + input
    }

    // PLACEHOLDER: the outputs, and what a cotangent of them is to the input.
    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (NAME(input), move |d_out: Tensor| Grads { input: prims::add(d_out, d_out) })
    }
";

const SYMBOL: &str = "
    // PLACEHOLDER: shapes and element types of the results.
    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }
";

const CPU: &str = "
    // PLACEHOLDER: the kernel. Operands and results are contiguous; every element of the result is written.
    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let layout = || Failure::new(\"KernelLayout\", \"operands and results are contiguous f32\");
        let input: &[f32] = input.as_slice().ok_or_else(layout)?;
        let out: &mut [f32] = out.as_mut_slice().ok_or_else(layout)?;
        for (x, y) in input.iter().zip(out) {
            *y = x + x;
        }
        Ok(())
    }
";

const PLAN: &str = "
    // PLACEHOLDER: the launch of the kernel in NAME.cu: its name, its grid, and what it is given.
    #[cuda(\"NAME.cu\")]
    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let count = out.meta.len();
        if count == 0 {
            return Ok(());
        }
        let shape = LaunchShape::linear(count.div_ceil(256) as u32, 256);
        plan.launch(\"NAME\", shape, binds![input, out, count])
    }
";

const KERNEL: &str = "\
// PLACEHOLDER: what a thread computes. The launch has 256 threads a block and one thread an element.
extern \"C\" __global__ void NAME(const float* input, float* out, u64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = input[i] + input[i];
}
";

const REWRITE: &str = "\
/// PLACEHOLDER: say which arrangement becomes which, and why that is better.
#[rewrite]
pub mod NAME {
    // PLACEHOLDER: what is looked for. Attributes are written out; a tensor that occurs twice must be the same value twice.
    fn pattern(x: Tensor, y: Tensor) -> Tensor {
        prims::neg(prims::add(x, y))
    }

    // PLACEHOLDER: what takes its place. The generated test fails until the two agree.
    fn replacement(x: Tensor, y: Tensor) -> Tensor {
        prims::sub(x, y)
    }

    // PLACEHOLDER: inputs on which both sides must agree, forward and backward.
    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([4, 8])));
    }
}
";

const EXECUTOR: &str = "\
/// PLACEHOLDER: say whose kernels these are. A lower priority comes earlier in the device's default list; without one the executor takes
/// part only where it is asked for by name.
#[executor(device = \"cpu\", priority = 5)]
pub mod NAME {}
";

/// How the file's crate names the module of an operator.
fn path_of(def: &OperatorDef, surroundings: Surroundings) -> String {
    let short = def.short_name();
    // `ops/src/nn/relu.rs`
    let folder = def.file.split_once("ops/src/").and_then(|(_, rest)| rest.split_once('/')).map(|(folder, _)| folder);
    match (surroundings, folder) {
        (Surroundings::Operators, Some(folder)) => format!("crate::{folder}::{short}"),
        (Surroundings::BesideOperators, Some(folder)) => format!("fulgurite_ops::{folder}::{short}"),
        (Surroundings::Outside, Some("prims")) => format!("fulgurite::ops::prims::{short}"),
        _ => short.to_owned(),
    }
}

/// An implementation with a host kernel, which takes the operator's tensors by name.
fn implementation(name: &str, executor: &str, of: &OperatorDef, surroundings: Surroundings) -> String {
    let tensors: Vec<(&str, &str, &str)> = of
        .params
        .iter()
        .filter_map(|param| match param.kind {
            ParamKind::Tensor(_) => Some((param.name, "&TensorMeta", "TensorRef")),
            ParamKind::Optional(_) => Some((param.name, "Option<&TensorMeta>", "Option<TensorRef>")),
            ParamKind::List(_) => Some((param.name, "&[TensorMeta]", "&[TensorRef]")),
            _ => None,
        })
        .collect();
    let outputs: Vec<String> = match of.results {
        ResultsDef::Fixed(1) => vec!["out: &mut TensorMut".to_owned()],
        ResultsDef::Fixed(count) => (0..count).map(|i| format!("out{i}: &mut TensorMut")).collect(),
        ResultsDef::List => vec!["out: &mut [TensorMut]".to_owned()],
    };
    let first = of.params.iter().find(|param| matches!(param.kind, ParamKind::Tensor(_))).map(|param| param.name);
    let (checked, check) = match first {
        Some(first) => (
            format!("{first}: &TensorMeta"),
            format!(
                "        refuse_unless!({first}.dtype() == DType::F32, \"{first} is {{}}, takes f32\", {first}.dtype());\n"
            ),
        ),
        None => (String::new(), String::new()),
    };
    let operands: Vec<String> = tensors.iter().map(|(name, _, host)| format!("_{name}: {host}")).collect();
    let kernel: Vec<String> = operands.into_iter().chain(outputs.iter().map(|output| format!("_{output}"))).collect();
    let path = path_of(of, surroundings);
    format!(
        "\
#[implementation(of = {path}, by = {executor})]
mod {name} {{
    // PLACEHOLDER: which calls it takes; the others are refused with a reason. Arguments are taken by name.
    fn checker({checked}) -> Claim {{
{check}        Ok(())
    }}

    // PLACEHOLDER: the kernel, with the arguments that it needs (an underscore says that one is not used). In its place `execution`
    // calls kernel symbols, and `plan` launches device kernels.
    fn cpu({}) -> Result<()> {{
        todo!(\"{{}}: write the kernel at PLACEHOLDER\", file!())
    }}
}}
",
        kernel.join(", ")
    )
}
