//! What `ops new` writes: declarations as the library's own files have them.

use std::path::Path;

use super::implementation;
use super::kind::Kind;
use super::known;
use super::plan::other_plan;
use super::surroundings::Surroundings;

/// The file of a declaration, which is going to be `path`.
pub(super) fn declaration(name: &str, kind: &Kind<'_>, surroundings: Surroundings, path: &Path) -> String {
    match kind {
        Kind::Composite { torch } => {
            let settings = torch.map(|torch| format!("(torch = \"{torch}\")")).unwrap_or_default();
            imports("operator", surroundings, &[], true) + &called(&operator(name, &settings, COMPOSITE), surroundings)
        }
        Kind::Prim { torch } => {
            let torch = torch.map(|torch| format!(", torch = \"{torch}\"")).unwrap_or_default();
            let text = operator(name, &format!("(prim{torch})"), PRIM);
            imports("operator", surroundings, &[], true) + &called(&text, surroundings)
        }
        Kind::Symbol { executor, device } => {
            let settings =
                format!("(executor = {executor}, dtypes(f32), no_grad = \"what calls it has the gradient\")");
            let kernel = match device.as_str() {
                known::HOST => CPU.to_owned(),
                known::CUDA => PLAN.to_owned(),
                other => format!("\n{}", other_plan(other, "_input: &DeviceTensor, _out: &DeviceTensor")),
            };
            let rules = SYMBOL.to_owned() + &kernel;
            imports("operator", surroundings, &[format!("super::{executor}")], false)
                + &operator(name, &settings, &rules)
        }
        Kind::Implementation { executor, device, of } => {
            let mut own = vec![format!("super::{executor}")];
            own.extend(implementation::module_of(of, surroundings, path));
            imports("implementation", surroundings, &own, false)
                + &implementation::text(name, executor, of, surroundings, device)
        }
        Kind::Rewrite => {
            imports("rewrite", surroundings, &[], true) + &called(&REWRITE.replace("NAME", name), surroundings)
        }
        Kind::Executor { device } => {
            imports("executor", surroundings, &[], false) + &EXECUTOR.replace("NAME", name).replace("DEVICE", device)
        }
    }
}

/// The kernel of a symbol or of an implementation.
pub(super) fn kernel(name: &str, kind: &Kind<'_>) -> String {
    let (inputs, outputs) = match kind {
        Kind::Implementation { of, .. } => (implementation::tensors(of), implementation::outputs(of)),
        _ => (vec!["input"], vec!["out".to_owned()]),
    };
    let parameters = inputs.iter().map(|name| format!("const float* {name}, "));
    let parameters: String = parameters.chain(outputs.iter().map(|name| format!("float* {name}, "))).collect();
    let value = inputs.first().map_or("0.0f".to_owned(), |name| format!("{name}[i] + {name}[i]"));
    let out = outputs.first().map_or("out", String::as_str);
    KERNEL.replace("NAME", name).replace("PARAMETERS", &parameters).replace("OUT", out).replace("VALUE", &value)
}

/// The macro, modules that are named from their crate's root or from the surrounding module, and, inside of this
/// repository, the prims that a decomposition calls. (Elsewhere the prelude has the operators.)
fn imports(macro_name: &str, surroundings: Surroundings, modules: &[String], prims: bool) -> String {
    let outer = match surroundings {
        Surroundings::Outside => "use fulgurite::prelude::*;\n".to_owned(),
        Surroundings::BesideOperators if prims => {
            format!("use fulgurite_ops::prims;\nuse fulgurite_ops_macros::{macro_name};\n")
        }
        _ => format!("use fulgurite_ops_macros::{macro_name};\n"),
    };
    let mut own: Vec<&str> = modules.iter().map(String::as_str).collect();
    if prims && surroundings == Surroundings::Operators {
        own.push("crate::prims");
    }
    let (mut beside, other): (Vec<&str>, Vec<&str>) = own.into_iter().partition(|path| path.starts_with("super::"));
    beside.sort_unstable();
    let beside: Vec<&str> = beside.into_iter().filter_map(|path| path.strip_prefix("super::")).collect();
    let mut lines: Vec<String> = other.iter().map(|path| format!("use {path};\n")).collect();
    match &beside[..] {
        [] => {}
        [one] => lines.push(format!("use super::{one};\n")),
        several => lines.push(format!("use super::{{{}}};\n", several.join(", "))),
    }
    let gap = if lines.is_empty() { "" } else { "\n" };
    format!("{outer}{gap}{}\n", lines.concat())
}

/// Calls of prims as a crate outside of this repository writes them: by the operators of the prelude.
fn called(text: &str, surroundings: Surroundings) -> String {
    if surroundings == Surroundings::Outside { text.replace("prims::", "") } else { text.to_owned() }
}

/// An operator with these settings and rules, and what every one has.
fn operator(name: &str, settings: &str, rules: &str) -> String {
    format!("{HEAD}{rules}{TAIL}").replace("SETTINGS", settings).replace("NAME", name)
}

const HEAD: &str = "\
/// PLACEHOLDER: describe what `NAME` computes, elementwise or along which dimensions, as a formula.
#[operatorSETTINGS]
pub mod NAME {
    fn NAME(input: Tensor<Floating>) -> Tensor;
";

const TAIL: &str = "
    // PLACEHOLDER: the same in f64, straight from the formula and written independently. The consistency tests fail
    // until it is written and the two agree.
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
    // PLACEHOLDER: the operator in terms of other operators. Its meta and its gradient are derived from this.
    fn decomposition(input: Tensor) -> Tensor {
        prims::add(input, input)
    }
";

const PRIM: &str = "
    // PLACEHOLDER: its arithmetic. Kernels for host and device are generated from this, and its meta is derived from
    // this. (A prim that is not elementwise has `meta` instead, and implementations that run it.)
    fn scalar(input: Expr) -> Expr {
        input + input
    }

    // PLACEHOLDER: the outputs, and the cotangent of the input from the cotangent of the outputs.
    fn grad(input: Tensor) -> (Tensor, impl FnOnce(Tensor) -> Grads) {
        (NAME(input), move |d_out: Tensor| Grads { input: prims::add(d_out, d_out) })
    }
";

const SYMBOL: &str = "
    // PLACEHOLDER: shapes and element types of the results. (Several have names: `#[results(out, mean)]` above a
    // signature that returns a tuple, and kernels take each by its name.)
    fn meta(input: &TensorMeta) -> Result<TensorMeta> {
        Ok(input.clone())
    }
";

const CPU: &str = "
    // PLACEHOLDER: the kernel. Operands and results are contiguous; write every element of the result.
    fn cpu(input: TensorRef, out: &mut TensorMut) -> Result<()> {
        let input: &[f32] = input.contiguous(\"input\")?;
        let out: &mut [f32] = out.contiguous_mut(\"out\")?;
        for (x, y) in input.iter().zip(out) {
            *y = x + x;
        }
        Ok(())
    }
";

const PLAN: &str = "
    // PLACEHOLDER: the launch of the kernel in NAME.cu: its name, its grid, and its arguments.
    fn plan(plan: &mut Plan, input: &DeviceTensor, out: &DeviceTensor) -> Result<()> {
        let count = out.meta.len();
        if count == 0 {
            return Ok(());
        }
        plan.source(source_files![\"NAME.cu\"]);
        let shape = LaunchShape::linear(count.div_ceil(256) as u32, 256);
        plan.launch(\"NAME\", shape, binds![input, out, count])
    }
";

const KERNEL: &str = "\
#include \"fulgurite/elements.cuh\"

// PLACEHOLDER: the computation of a thread. The launch has 256 threads per block and one thread per element.
extern \"C\" __global__ void NAME(PARAMETERSu64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) OUT[i] = VALUE;
}
";

const REWRITE: &str = "\
/// PLACEHOLDER: describe the pattern and its replacement, and why the replacement is better.
#[rewrite]
pub mod NAME {
    // PLACEHOLDER: the pattern to find. What occurs twice must be the same twice. `scale` stands for any number that a
    // program has there; other attributes are literals. `#[rank(2)]` before a tensor says how many dimensions it has.
    fn pattern(x: Tensor, y: Tensor, scale: f64) -> Tensor {
        prims::mul(prims::add(x, y), scale)
    }

    // PLACEHOLDER: the replacement. The generated test fails until the two agree.
    fn replacement(x: Tensor, y: Tensor, scale: f64) -> Tensor {
        prims::mul(prims::sub(x, y), scale)
    }

    // PLACEHOLDER: which matches to refuse, and why: `trace show --explain` prints the reason. Remove it if there are
    // none.
    fn condition(x: &TensorMeta, scale: f64) -> Claim {
        refuse_unless!(x.dtype() != DType::F64, \"x is {x}, f64 is refused\");
        refuse_unless!(scale.is_finite(), \"scale is {scale}, takes finite numbers\");
        Ok(())
    }

    // PLACEHOLDER: inputs on which both sides must agree, forward and backward.
    fn samples(s: &mut Samples) {
        s.case(with(s.normal([4, 8]), s.normal([4, 8]), 0.5));
    }
}
";

const EXECUTOR: &str = "\
/// PLACEHOLDER: describe the kernels of this executor. Lower priorities come first in the device's default list. An
/// executor without a priority must be named.
#[executor(device = \"DEVICE\", priority = 5)]
pub mod NAME {}
";
