"""PyTorch and Triton as executors, as Thunder's users bind them; declared operators in torch.ops and in modules."""

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402
from fulgurite import Executor, Floating, Tensor, ops  # noqa: E402

from declared.activations import gated_silu, squareplus  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture
def executor():
    made = Executor("by_torch", version=torch.__version__, arrays="torch")
    yield made
    made.withdraw()


class RMSNorm(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x):
        return torch.nn.functional.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def bind_rms_norm(executor, forward, backward):
    """`rms_norm` by two kernels, as the notebook of Liger's bindings has it."""

    def forward_meta(x: Tensor[Floating], weight: Tensor[Floating], eps: float) -> tuple[Tensor, Tensor]:
        rows = x.numel() // x.shape[-1] if x.numel() else 0
        return x, x.like(shape=(rows,), dtype="float32")

    rms_norm_forward = executor.register_operator(
        "rms_norm_forward", meta=forward_meta, fn=forward, results=("y", "rstd"))

    def backward_meta(
        dy: Tensor[Floating], x: Tensor[Floating], weight: Tensor[Floating], rstd: Tensor
    ) -> tuple[Tensor, Tensor]:
        return x, weight

    rms_norm_backward = executor.register_operator(
        "rms_norm_backward", meta=backward_meta, fn=backward, results=("dx", "dweight"))

    def checker(input, normalized_shape, weight, eps):
        if weight is None or len(normalized_shape) != 1:
            return "the kernels take a weight of one dimension"
        return input.dtype.name == "float32" or f"input is {input.dtype}, takes float32"

    def number(eps, dtype):
        return torch.finfo(torch.float32).eps if eps is None else eps

    def execution(input, normalized_shape, weight, eps):
        return rms_norm_forward(input, weight, number(eps, input.dtype))[0]

    def grad(input, normalized_shape, weight, eps):
        y, rstd = rms_norm_forward(input, weight, number(eps, input.dtype))

        def pullback(dy):
            dx, dweight = rms_norm_backward(dy, input, weight, rstd)
            return {"input": dx, "weight": dweight}

        return y, pullback

    executor.register_implementation(
        ops.rms_norm, execution_transform=execution, checker=checker, grad_transform=grad)
    return rms_norm_forward, rms_norm_backward


def torch_forward(x, weight, eps):
    flat = x.reshape(-1, x.shape[-1])
    rstd = torch.rsqrt((flat.float() ** 2).mean(-1) + eps)
    return (flat * rstd[:, None]).to(x.dtype).reshape(x.shape) * weight, rstd


def torch_backward(dy, x, weight, rstd):
    size = x.shape[-1]
    dy, flat = dy.reshape(-1, size), x.reshape(-1, size)
    scaled, normed = dy * weight, flat * rstd[:, None]
    dx = rstd[:, None] * (scaled - normed * (scaled * normed).mean(-1, keepdim=True))
    return dx.reshape(x.shape), (dy * normed).sum(0)


def check_rms_norm(executor, device):
    model = RMSNorm(64).to(device)
    with torch.no_grad():
        model.weight.uniform_(0.5, 1.5)
    compiled = fulgurite.jit(model, executors=[executor, "default"], strict=True)
    x = torch.randn(32, 10, 64, device=device, requires_grad=True)
    y, expected = compiled(x), model(x)
    cotangent = torch.randn_like(expected)
    found = torch.autograd.grad(y, (x, model.weight), cotangent)
    wanted = torch.autograd.grad(expected, (x, model.weight), cotangent)
    torch.testing.assert_close(y, expected)
    for ours, theirs in zip(found, wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    forward = [name for name, _ in fulgurite.last_traces(compiled)[-1].symbols]
    backward = [name for name, _ in fulgurite.last_backward_traces(compiled)[-1].symbols]
    assert f"{executor.name}::rms_norm_forward" in forward and f"{executor.name}::rms_norm_backward" in backward
    return compiled, model


@pytest.mark.parametrize("device", DEVICES)
def test_a_module_is_trained_by_kernels_of_torch(executor, device):
    bind_rms_norm(executor, torch_forward, torch_backward)
    check_rms_norm(executor, device)


def test_a_refused_call_falls_back(executor):
    bind_rms_norm(executor, torch_forward, torch_backward)
    model = RMSNorm(8).double()
    compiled = fulgurite.jit(model, executors=[executor, "default"], strict=True)
    x = torch.randn(3, 8, dtype=torch.float64)
    torch.testing.assert_close(compiled(x), model(x))
    assert "not by_torch: rms_norm: input is float64, takes float32" in fulgurite.explain(compiled)
    assert not any(name.startswith("by_torch") for name, _ in fulgurite.last_traces(compiled)[-1].symbols)


@pytest.mark.parametrize("device", DEVICES)
def test_functions_of_torch_implement_operators_as_they_are(executor, device):
    executor.register_implementation(ops.softmax, lambda input, dim, dtype: torch.softmax(input, dim),
                                     checker=lambda dtype: dtype is None)
    executor.register_implementation(ops.matmul, torch.matmul)
    executor.register_implementation(ops.gelu, lambda input, approximate: torch.nn.functional.gelu(
        input, approximate=approximate))
    executor.register_implementation(ops.transpose, torch.transpose)
    f = fulgurite.jit(lambda x, w: ops.gelu(ops.softmax(x @ ops.transpose(w, 0, 1), -1)),
                      executors=[executor, "default"])
    x, w = torch.randn(5, 7, device=device), torch.randn(3, 7, device=device)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        a, b = x.to(dtype), w.to(dtype)
        expected = torch.nn.functional.gelu(torch.softmax(a @ b.T, -1))
        torch.testing.assert_close(torch.from_dlpack(f(a, b)), expected)
    by = {name: by for name, by in fulgurite.last_traces(f)["claim"].symbols}
    assert by["softmax"].startswith("by_torch") and by["matmul"].startswith("by_torch")


def test_a_function_that_writes_in_place_and_one_that_requires_gradients(executor):
    executor.register_implementation(ops.relu, lambda input: input.relu_())
    executor.register_implementation(ops.neg, lambda input: (-input).requires_grad_())
    executor.register_implementation(ops.abs, lambda input: input.new_empty(input.shape[::-1]).T.copy_(input.abs()))
    f = fulgurite.jit(lambda x: (ops.relu(x * 1.0) + x, ops.neg(x), ops.abs(x)), executors=[executor, "default"])
    x = torch.randn(4, 5)
    before = x.clone()
    added, negated, absolute = f(x)
    assert torch.equal(torch.from_dlpack(added), before.relu() + before) and torch.equal(x, before)
    assert torch.equal(torch.from_dlpack(negated), -before)
    assert torch.equal(torch.from_dlpack(absolute), before.abs())


def test_the_generated_tests_hold_an_executor_of_torch_to_the_reference(executor):
    executor.register_implementation(
        ops.softmax, lambda input, dim, dtype: torch.softmax(input, dim), checker=lambda dtype: dtype is None)
    assert fulgurite.testing.check(executor) > 10
    wrong = Executor("by_wrong_torch", arrays="torch", devices="cpu")
    try:
        wrong.register_implementation(
            ops.softmax, lambda input, dim, dtype: torch.softmax(input, -1), checker=lambda dtype: dtype is None)
        with pytest.raises(AssertionError, match="by_wrong_torch"):
            fulgurite.testing.check(wrong)
    finally:
        wrong.withdraw()


def test_backward_passes_of_several_threads(executor):
    bind_rms_norm(executor, torch_forward, torch_backward)
    model = RMSNorm(16)
    compiled = fulgurite.jit(model, executors=[executor, "default"], strict=True)
    compiled(torch.randn(4, 16))
    failed = []

    def work(seed):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        for _ in range(5):
            (found,) = torch.autograd.grad(compiled(x).sum(), x)
            (expected,) = torch.autograd.grad(model(x).sum(), x)
            if not torch.allclose(found, expected, atol=1e-4):
                failed.append(seed)

    threads = [threading.Thread(target=work, args=(seed,), daemon=True) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failed and not any(thread.is_alive() for thread in threads)


# Declared operators in PyTorch.


def test_declared_operators_pass_opcheck():
    x = torch.randn(4, 8, requires_grad=True)
    torch.library.opcheck(torch.ops.fulgurite.activations_squareplus.default, (x, 2.0))
    up = torch.randn(4, 8, requires_grad=True)
    torch.library.opcheck(torch.ops.fulgurite.activations_gated_silu.default, (x, up))
    assert "by_numpy::nothing" not in fulgurite.torch.REFUSED


def test_an_operator_that_is_declared_later_is_registered_and_forgotten():
    def thrice(input: Tensor[Floating]) -> Tensor:
        return input * 3.0

    for _ in range(2):
        declared = fulgurite.operator(name="declared::thrice")(thrice)
        x = torch.randn(3, requires_grad=True)
        torch.ops.fulgurite.declared_thrice(x).sum().backward()
        assert torch.equal(x.grad, torch.full((3,), 3.0))
        declared.withdraw()
        assert not hasattr(torch.ops.fulgurite, "declared_thrice")


class Gated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up = torch.nn.Linear(8, 6), torch.nn.Linear(8, 6)

    def forward(self, x):
        return torch.ops.fulgurite.activations_squareplus(
            torch.ops.fulgurite.activations_gated_silu(self.gate(x), self.up(x)))


def test_declared_operators_in_a_compiled_module_are_lines_of_its_program(executor):
    executor.register_implementation(
        gated_silu, lambda gate, up: torch.nn.functional.silu(gate) * up, checker=lambda gate: gate.ndim == 2)
    model = Gated()
    compiled = fulgurite.jit(model, executors=[executor, "default"], strict=True)
    x = torch.randn(5, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert not compiled.breaks
    names = [name for name, _ in fulgurite.last_traces(compiled)["acquire"].symbols]
    assert gated_silu.name in names and squareplus.name in names
    assert "activations::gated_silu by by_torch" in fulgurite.explain(compiled)
    compiled(x).sum().backward()
    found = model.gate.weight.grad.clone()
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(found, model.gate.weight.grad)


# Triton.


@pytest.mark.skipif(not torch.cuda.is_available(), reason="Triton's kernels run on CUDA, and there is none")
def test_kernels_of_triton_are_an_executor():
    pytest.importorskip("triton", reason="Triton is not installed")
    from declared import triton_rms_norm

    executor = Executor("by_triton", version="0.1", devices="cuda", arrays="torch")
    try:
        forward, backward = triton_rms_norm.forward, triton_rms_norm.backward
        bind_rms_norm(executor, forward, backward)
        compiled, model = check_rms_norm(executor, "cuda")
        # On a stream that is not the default, and again: the program is not replayed as a graph.
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.randn(32, 10, 64, device="cuda")
            for _ in range(3):
                expected = torch.nn.functional.rms_norm(x, (64,), model.weight, 1e-5)
                torch.testing.assert_close(compiled(x), expected)
        assert np.isfinite(compiled(x).sum().item())
    finally:
        executor.withdraw()
