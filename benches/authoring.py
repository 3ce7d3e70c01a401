#!/usr/bin/env python3
"""What authoring costs: the compile time of an operator, and the time from touching one to its tests.

    python3 benches/authoring.py [--operators 500] [--folder target/authoring]

Makes a crate of synthetic operators of four kinds (each of its own names and numbers, one file each), compiles it with one
and with all of them, touches one, and runs its tests. Nothing else should run meanwhile. Prints a table."""
import argparse, os, pathlib, statistics, subprocess, time

ROOT = pathlib.Path(__file__).resolve().parent.parent

UNARY = '''use fulgurite::prelude::*;

/// Synthetic: `{k} · tanh(input / {k})`.
#[operator]
pub mod {name} {{
    fn {name}(input: Tensor<Floating>, #[default({k})] cap: f64) -> Tensor;

    fn meta(input: &TensorMeta, cap: f64) -> Result<TensorMeta> {{
        require!(cap > 0.0, PositiveCap, "cap is {{cap}}, expected more than 0");
        Ok(input.clone())
    }}

    fn decomposition(input: Tensor, cap: f64) -> Tensor {{
        tanh(input / cap) * cap
    }}

    fn grad(input: Tensor, cap: f64) -> (Tensor, impl FnOnce(Tensor) -> Grads) {{
        let t = tanh(input / cap);
        (t * cap, move |d_out: Tensor| Grads {{ input: d_out * (1.0 - t * t) }})
    }}

    fn reference(input: &ArrayD<f64>, cap: f64) -> ArrayD<f64> {{
        elementwise(input, |x| cap * (x / cap).tanh())
    }}

    fn samples(s: &mut Samples) {{
        s.elementwise_unary(Domain::ALL);
        s.case(with(s.normal([4, 8])).cap(0.5));
    }}

    fn errors(e: &mut ErrorSamples) {{
        e.case(PositiveCap, with(e.normal([3])).cap(-1.0), "cap is -1, expected more than 0");
    }}
}}
'''

SHORT = '''use fulgurite::prelude::*;

/// Synthetic: `input · sigmoid({k} · input)`.
#[operator]
pub mod {name} {{
    fn {name}(input: Tensor<Floating>) -> Tensor;

    fn decomposition(input: Tensor) -> Tensor {{
        input * sigmoid(input * {k})
    }}

    fn reference(input: &ArrayD<f64>) -> ArrayD<f64> {{
        elementwise(input, |x| x / (1.0 + (-{k} * x).exp()))
    }}

    fn samples(s: &mut Samples) {{
        s.elementwise_unary(Domain::ALL);
    }}
}}
'''

BINARY = '''use fulgurite::prelude::*;

/// Synthetic: `left · {k} + right · right`, of one shape.
#[operator]
pub mod {name} {{
    fn {name}(left: Tensor<Floating>, right: Tensor<Floating>) -> Tensor;

    fn meta(left: &TensorMeta, right: &TensorMeta) -> Result<TensorMeta> {{
        require!(left.shape() == right.shape(), SameShape, "right has shape {{:?}}, expected {{:?}}", right.shape(), left.shape());
        Ok(left.clone())
    }}

    fn decomposition(left: Tensor, right: Tensor) -> Tensor {{
        left * {k} + right * right
    }}

    fn reference(left: &ArrayD<f64>, right: &ArrayD<f64>) -> ArrayD<f64> {{
        left * {k} + right * right
    }}

    fn samples(s: &mut Samples) {{
        s.case(with(s.normal([4, 8]), s.normal([4, 8])));
        s.case(with(s.normal([]), s.normal([])));
        s.case(with(s.normal([0, 3]), s.normal([0, 3])));
    }}

    fn errors(e: &mut ErrorSamples) {{
        e.case(SameShape, with(e.normal([3]), e.normal([4])), "right has shape [4], expected [3]");
    }}
}}
'''

ROWS = '''use fulgurite::prelude::*;

/// Synthetic: rows divided by `sqrt(mean(input²) + eps)`, times {k}.
#[operator]
pub mod {name} {{
    fn {name}(input: Tensor<Floating>, #[default({k})] scale: f64, #[default(1e-5)] eps: f64) -> Tensor;

    fn meta(input: &TensorMeta, eps: f64) -> Result<TensorMeta> {{
        require!(input.rank() > 0, HasRows, "input is {{input}}, expected at least one dimension");
        require!(eps > 0.0, PositiveEps, "eps is {{eps}}, expected more than 0");
        Ok(input.clone())
    }}

    fn decomposition(input: Tensor, scale: f64, eps: f64) -> Tensor {{
        let square = mean::with(input * input).dim(vec![-1]).keepdim(true).call();
        input * rsqrt(square + eps) * scale
    }}

    fn reference(input: &ArrayD<f64>, scale: f64, eps: f64) -> ArrayD<f64> {{
        let axis = ndarray::Axis(input.ndim() - 1);
        let count = input.len_of(axis) as f64;
        let square = (input * input).sum_axis(axis).insert_axis(axis) / count;
        input / elementwise(&square, |x| (x + eps).sqrt()) * scale
    }}

    fn samples(s: &mut Samples) {{
        s.case(with(s.normal([4, 8])));
        s.case(with(s.normal([2, 3, 5])).eps(1e-3));
        s.case(with(s.normal([7])).scale(2.0));
    }}

    fn errors(e: &mut ErrorSamples) {{
        e.case(HasRows, with(e.normal([])), "input is f32[], expected at least one dimension");
        e.case(PositiveEps, with(e.normal([3])).eps(0.0), "eps is 0, expected more than 0");
    }}
}}
'''

KINDS = [UNARY, SHORT, BINARY, ROWS]


def run(command, **environment):
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    elapsed = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return elapsed, done.stdout


def write(folder, count):
    source = folder / "src"
    source.mkdir(parents=True, exist_ok=True)
    names = []
    for i in range(count):
        name = f"synthetic_{i:03}"
        names.append(name)
        text = KINDS[i % len(KINDS)].format(name=name, k=f"{1.5 + i / 64}")
        path = source / f"{name}.rs"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    lines = "".join(f"    {name},\n" for name in names)
    (source / "lib.rs").write_text(f"//! Synthetic operators.\n\nfulgurite::operator_files! {{\n{lines}}}\n")
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests/generated.rs").write_text(
        "//! The generated tests.\nuse std::process::ExitCode;\nuse synthetic as _;\n"
        f"fn main() -> ExitCode {{\n    fulgurite::testing::main_of(&{str(names).replace(chr(39), chr(34))})\n}}\n")
    (folder / "Cargo.toml").write_text(f'''[package]
name = "synthetic"
version = "0.0.0"
edition = "2024"

[dependencies]
fulgurite = {{ path = "{ROOT}/fulgurite", default-features = false }}
ndarray = "0.17"

[dev-dependencies]
fulgurite = {{ path = "{ROOT}/fulgurite", default-features = false, features = ["testing"] }}

[[test]]
name = "generated"
harness = false

[workspace]
''')


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--operators", type=int, default=500)
    arguments.add_argument("--no-own", action="store_true", help="leaves out the operator of the library, whose crate is built first")
    arguments.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/authoring")
    a = arguments.parse_args()
    folder = a.folder.resolve() / "synthetic"
    manifest, target = ["--manifest-path", str(folder / "Cargo.toml")], str(a.folder.resolve() / "build")

    def cargo(*words):
        # The first run of the tests writes their snapshots.
        return run(["cargo", words[0], *manifest, *words[1:]], CARGO_TARGET_DIR=target, INSTA_UPDATE="unseen")[0]

    def row(what, time_taken):
        print(f"| {what} | {time_taken} |", flush=True)

    print("| what | median of 3 |\n|---|---|")
    for what, command in [("check", ["check"]), ("build", ["build"])]:
        times = {}
        for count in (1, a.operators):
            write(folder, count)
            cargo(*command)
            measured = []
            for _ in range(3):
                # The crate anew, its dependencies as they are.
                run(["cargo", "clean", *manifest, "-p", "synthetic"], CARGO_TARGET_DIR=target)
                measured.append(cargo(*command))
            times[count] = statistics.median(measured)
        each = (times[a.operators] - times[1]) / (a.operators - 1) * 1e3
        row(f"cargo {what}, 1 operator", f"{times[1]:.2f} s")
        row(f"cargo {what}, {a.operators} operators", f"{times[a.operators]:.2f} s")
        row(f"cargo {what}, each operator", f"{each:.1f} ms")
    cargo("test", "--test", "generated", "--", "synthetic_007")
    touched = folder / "src/synthetic_007.rs"
    measured = []
    for i in range(3):
        # A change of the code, not of its date alone.
        touched.write_text(touched.read_text().replace("eps > 0.0", f"eps > {i + 1}e-300"))
        measured.append(cargo("test", "--test", "generated", "--", "synthetic_007"))
        write(folder, a.operators)
    row(f"touch one of {a.operators}, rebuild, run its tests", f"{statistics.median(measured):.1f} s")
    if not a.no_own:
        row("touch ops/src/nn/softmax.rs, rebuild, run its tests", f"{own_operator():.1f} s")


def own_operator():
    own = ["cargo", "test", "-p", "fulgurite-tests", "--test", "generated", "--", "softmax::"]
    path = ROOT / "ops/src/nn/softmax.rs"
    original = path.read_text()
    try:
        run(own)
        measured = []
        for i in range(3):
            # A change of the code that also moves the lines below it, as an author's does.
            text = original.replace("pub mod softmax {\n", "pub mod softmax {\n" + f"    // {i}\n" * (i + 1), 1)
            path.write_text(text.replace('expected a floating-point dtype"', f'expected a floating-point dtype {i}"'))
            measured.append(run(own)[0])
    finally:
        path.write_text(original)
    return statistics.median(measured)


if __name__ == "__main__":
    main()
