"""Kernels as CUDA C++ text. NVRTC compiles them on any machine; what runs them is skipped without a GPU."""

import contextlib
import pathlib

import numpy as np
import pytest

import fulgurite
from fulgurite import CudaKernel, Executor, Floating, Tensor, ops

from declared.cuda_text import by_text, row_means, squareplus_text, whole_sum

TARGET = "cuda:sm_90a"
GENERATED = fulgurite.testing.tests(squareplus_text, by_text)
SOURCES = {each.operator: each for each in GENERATED if each.template == "sources"}
needs_nvrtc = pytest.mark.skipif(any(each.skip for each in SOURCES.values()), reason="there is no NVRTC")
needs_gpu = pytest.mark.skipif("cuda" not in fulgurite._native.devices(), reason="there is no GPU")

test_operators = fulgurite.testing.generate(squareplus_text, by_text)

SCALE = """
extern "C" __global__ void scale(const float* input, float* out, float factor, u64 count) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = input[i] * factor;
}
"""
COUNT = (lambda out: out.numel(), "u64")
ARGUMENTS = ["input", "out", ("factor", "float"), COUNT]


def grid(out):
    return -(-out.numel() // 256)


def scale_meta(input: Tensor[Floating], factor: float) -> Tensor:
    return input


@contextlib.contextmanager
def scaling(source=SCALE, entry=None, **options):
    """A symbol `scale` by this text, of an executor on CUDA."""
    executor = Executor("texts", devices="cuda")
    try:
        given = {"arguments": ARGUMENTS, "grid": grid, **options}
        yield executor.register_operator(
            "scale", meta=scale_meta, cuda=CudaKernel(source, entry, **given), dtypes=("float32",),
            reference=lambda input, factor: input * factor, samples=lambda s: s.case(s.normal([3, 100]), factor=2.0))
    finally:
        executor.withdraw()


def planned(symbol):
    """What is wrong with the launches of a symbol's samples."""
    said = next(each for each in fulgurite.testing.tests(symbol) if each.template == "sources").run()
    if "NVRTC is not available" in (said or ""):
        pytest.skip("there is no NVRTC")
    return said


def wrong(source=SCALE, entry=None, **options):
    with scaling(source, entry, **options) as symbol:
        message = planned(symbol)
    assert message is not None and "texts::scale" in message and "its kernel" in message, message
    return message


def test_there_is_a_test_of_the_sources_of_each_operator():
    assert sorted(SOURCES) == ["by_text::row_means", "by_text::whole_sum", "cuda_text::squareplus_text"]
    others = [each for each in GENERATED if each.executor in ("python_cuda", "by_text_cuda")]
    templates = {each.template for each in others}
    # The others need a device.
    here = "cuda" in fulgurite._native.devices()
    assert {"sources", "consistency", "gradient"} <= templates if here else templates == {"sources"}


@needs_nvrtc
def test_texts_that_are_right_pass():
    with scaling() as symbol:
        assert planned(symbol) is None
    with scaling(shared=lambda out: 4 * out.ndim, block=(16, 8), define={"UNUSED": 1.5}) as symbol:
        assert planned(symbol) is None


@needs_nvrtc
def test_a_text_that_does_not_compile_is_shown_with_its_line():
    message = wrong(SCALE.replace("input[i] * factor", "input[i] * fcator"))
    assert "scale.cu does not compile for sm_90a" in message
    assert 'error: identifier "fcator" is undefined (scale.cu:4)' in message
    assert "out[i] = input[i] * fcator;" in message
    assert f"declared at {__file__}:" in message


@needs_nvrtc
def test_a_kernel_that_is_not_there_is_named():
    message = wrong(entry="scael")
    assert "scael.cu has no kernel 'scael', did you mean 'scale'? (there are: scale" in message
    assert f"declared at {__file__}:" in message
    with pytest.raises(fulgurite.ArgumentError, match="entry is missing: the text has 2 kernels: other, scale"):
        CudaKernel(SCALE + SCALE.replace("scale", "other"), arguments=[], grid=1)
    with pytest.raises(fulgurite.ArgumentError, match="the text has no kernel"):
        CudaKernel("void scale() {}", arguments=[], grid=1)


@needs_nvrtc
def test_pointers_have_the_types_of_tensors():
    message = wrong(SCALE.replace("const float* input", "const double* input"))
    assert "takes 'const double* input', which is a pointer to f64; it is given 'input' of f32" in message
    message = wrong(SCALE.replace("float* out", "T* out"), define={"T": "double"})
    assert "takes 'T* out', which is a pointer to f64; it is given result out of f32" in message


@needs_nvrtc
def test_parameters_have_the_sizes_of_arguments():
    message = wrong(arguments=["input", "out", ("factor", "double"), COUNT])
    assert "takes 4 parameters of [8, 8, 4, 8] bytes, the launch gives 4 of [8, 8, 8, 8]" in message
    message = wrong(arguments=["input", "out", ("factor", "float")])
    assert "the launch gives 3 of [8, 8, 4]" in message


@needs_nvrtc
@pytest.mark.parametrize("options, text", [
    (dict(block=2048), "2048 threads a block"),
    (dict(block=0), "a size is zero in grid"),
    (dict(shared=1 << 20), "1048576 bytes of shared memory, a block has 232448"),
    (dict(grid=lambda out: out.numel() / 256), "grid is 1.171875, expected a whole number"),
    (dict(grid=-1), "grid is -1, expected 0 to"),
    (dict(grid=(1, 1, 1, 1)), "grid has 4 extents, expected one to three"),
    (dict(grid=lambda out: 1 // 0), "ZeroDivisionError"),
    (dict(define={"N": float("inf")}), "define 'N' is inf"),
    (dict(arguments=["input", "out", (1 << 40, "u32"), COUNT]), "expected a number of the C type u32"),
])
def test_launches_that_are_impossible_are_refused(options, text):
    assert text in wrong(**options)


@pytest.mark.parametrize("options, text", [
    (dict(arguments=["inptu"]), "arguments has 'inptu', there are out, input, did you mean 'input'?"),
    (dict(arguments=["factor"]), r"'factor', which is a number: say its C type, \(\"factor\", \"float\"\)"),
    (dict(arguments=[("factor", "flaot")]), "arguments has the C type 'flaot'.*did you mean 'float'?"),
    (dict(arguments=[("input", "float")]), "arguments has the number 'input', there are factor"),
    (dict(arguments=[3]), "arguments has 3, expected a name, or a value and its C type"),
    (dict(grid=lambda otu: 1), "grid takes 'otu', the signature has input, factor, out, did you mean 'out'?"),
    (dict(workspace={"out": 4}), "workspace has 'out', which the operator has as well"),
])
def test_a_declaration_that_is_wrong_is_refused_at_once(options, text):
    with pytest.raises(fulgurite.ArgumentError, match=text) as raised, scaling(**options):
        pass
    assert raised.value.operator == "texts::scale"


def test_where_a_kernel_as_text_can_be():
    kernel = CudaKernel(SCALE, arguments=ARGUMENTS, grid=grid)
    host = Executor("host_alone", devices="cpu")
    try:
        with pytest.raises(fulgurite.ArgumentError, match="cuda is given, and host_alone runs on cpu"):
            host.register_operator("scale", meta=scale_meta, cuda=kernel)
        with pytest.raises(fulgurite.ArgumentError, match="needs a kernel, fn or cuda"):
            host.register_operator("scale", meta=scale_meta)
        with pytest.raises(fulgurite.ArgumentError, match="cuda is 'scale.cu', expected a CudaKernel"):
            host.register_operator("scale", meta=scale_meta, cuda="scale.cu")
        with pytest.raises(fulgurite.ArgumentError, match="has cuda and execution_transform"):
            host.register_implementation(ops.neg, cuda=kernel, execution_transform=lambda input: -input)
    finally:
        host.withdraw()


def test_an_executor_of_this_machine_has_cuda_for_a_text():
    executor = Executor("anywhere")
    try:
        executor.register_implementation(ops.neg, cuda=CudaKernel(
            SCALE, arguments=["input", "out", (-1, "float"), COUNT], grid=grid),
            checker=lambda input: input.dtype.name == "float32" or "takes float32")
        assert executor.names["cuda"] == "anywhere_cuda"
        f = fulgurite.jit(lambda x: ops.neg(x), executors=[executor, "default"])
        f(np.ones((3, 5), "float32"))
        assert "neg by anywhere_cuda" in fulgurite.explain(f, TARGET)
        # On the host it runs nothing.
        assert "anywhere" not in fulgurite.explain(f).replace("anywhere_cuda", "")
    finally:
        executor.withdraw()


def test_a_text_of_a_file(tmp_path):
    file = tmp_path / "scale_of_file.cu"
    file.write_text(SCALE.replace("factor;", "fcator;"))
    kernel = CudaKernel(pathlib.Path(file), arguments=ARGUMENTS, grid=grid)
    assert repr(kernel) == "<CUDA kernel scale of scale_of_file.cu>"
    with pytest.raises(FileNotFoundError):
        CudaKernel(tmp_path / "absent.cu", arguments=[], grid=1)


def test_what_the_default_executor_takes_for_cuda():
    f = fulgurite.jit(lambda x: squareplus_text(x, b=2.0).sum())
    f(np.linspace(-2, 2, 8, dtype="float32"))
    assert "squareplus_text by python_cuda" in fulgurite.explain(f, TARGET)
    assert "by python" not in fulgurite.explain(f)


@needs_gpu
def test_programs_with_a_text_are_replayed_as_graphs_and_call_no_python():
    torch = pytest.importorskip("torch")
    import fulgurite.torch

    asked = []

    def counted(out):
        asked.append(out)
        return grid(out)

    with scaling(grid=counted) as symbol:
        f = fulgurite.jit(lambda x: symbol(ops.abs(x), 3.0) + 1.0)
        x = torch.randn(300, 7, device="cuda")
        for step in range(6):
            result = torch.from_dlpack(f(x + step))
            torch.testing.assert_close(result, (x + step).abs() * 3.0 + 1.0)
            if step == 1:
                planned_before = len(asked)
        assert planned_before > 0 and len(asked) == planned_before


@needs_gpu
def test_kernels_as_text_run_on_the_current_stream():
    torch = pytest.importorskip("torch")
    import fulgurite.torch

    stream, x = torch.cuda.Stream(), torch.randn(64, 300, device="cuda")
    weight = torch.randn(64, device="cuda")
    f = fulgurite.jit(lambda x, w: (*row_means(x, w), row_means(x, None)[1], whole_sum(x), squareplus_text(x)))
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(4):
        with torch.cuda.stream(stream):
            found = [torch.from_dlpack(each) for each in f(x, weight)]
            expected = [x.mean(-1), x * weight[:, None], x, x.sum(), (x + (x * x + 4).sqrt()) / 2]
            for ours, theirs in zip(found, expected):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3)
        torch.cuda.synchronize()


@needs_gpu
def test_a_module_is_trained_with_a_text():
    torch = pytest.importorskip("torch")
    import fulgurite.torch

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            return torch.ops.fulgurite.cuda_text_squareplus_text(self.linear(x), b=2.0)

    model, x = Layer().cuda(), torch.randn(16, 8, device="cuda")
    compiled = fulgurite.jit(model, strict=True)
    found, expected = compiled(x), model.linear(x)
    expected = (expected + (expected * expected + 2).sqrt()) / 2
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    wanted = torch.autograd.grad(expected.sum(), model.linear.weight)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), model.linear.weight), wanted, rtol=1e-4, atol=1e-4)
    # Where a gradient is asked for, the decomposition is differentiated and run: the operator has no rule of its own.
    assert "squareplus_text by python_cuda" not in fulgurite.explain(compiled)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


@needs_gpu
@needs_nvrtc
def test_a_text_that_does_not_compile_is_an_error_of_the_call():
    with scaling(SCALE.replace("factor;", "fcator;")) as symbol:
        f = fulgurite.jit(lambda x: symbol(x, 2.0), device="cuda")
        with pytest.raises(fulgurite.Error, match='identifier "fcator" is undefined') as raised:
            f(np.ones((3, 5), "float32"))
        assert raised.value.operator == "texts::scale" and f"declared at {__file__}:" in str(raised.value)
