"""Functions of a model's own as operators, our operators in modules, and whole tensors that are written."""

import copy
import inspect

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from models import Calls  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402
from fulgurite import ops  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def apply_rope(x, cos, sin):
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cos + turned * sin).to(x.dtype)


def split_heads(qkv, heads):
    batch, length, width = qkv.shape
    parts = qkv.view(batch, length, 3, heads, width // 3 // heads).permute(2, 0, 3, 1, 4)
    return parts[0], parts[1], parts[2]


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def same_gradients(found, expected, *inputs):
    cotangent = torch.randn_like(expected)
    assert found.shape == expected.shape and torch.allclose(found, expected, atol=1e-5)
    ours, theirs = (torch.autograd.grad(each, inputs, cotangent) for each in (found, expected))
    for a, b in zip(ours, theirs):
        assert torch.allclose(a, b, atol=1e-5), (a - b).abs().max()


def test_a_function_that_is_replaced_is_one_line():
    assert fulgurite.torch.replaces(apply_rope, ops.apply_rope) is ops.apply_rope

    @fulgurite.torch.replaces(split_heads)
    def _(qkv, heads):
        return ops.split_heads(qkv, heads)

    def function(qkv, cos, sin):
        q, k, v = split_heads(qkv, 2)
        return apply_rope(q, cos, sin) * 2 + apply_rope(k, cos=cos, sin=sin) * v

    x, cos, sin = leaf(2, 5, 24), torch.randn(5, 4), torch.randn(5, 4)
    compiled = fulgurite.jit(Calls(function), strict=True)
    same_gradients(compiled(x, cos, sin), function(x, cos, sin), x)
    text = str(fulgurite.last_traces(compiled)["acquire"])
    assert text.count("= apply_rope(") == 2 and text.count("= split_heads(") == 1
    # Another operator takes its place also in what is compiled again.
    fulgurite.torch.replaces(apply_rope, lambda x, cos, sin: x * 0.0)
    assert torch.equal(compiled(x, cos, sin), torch.zeros(2, 2, 5, 4))
    fulgurite.torch.replaces(apply_rope, ops.apply_rope)


def test_a_replacement_of_another_shape_or_type_is_left_to_pytorch():
    def halved(x):
        return x * 0.5

    x = torch.randn(3, 4)
    for wrong, reason in ((lambda x: ops.sum(x, [0]), r"float32 \[3, 4\] in PyTorch, and torch.float32 \[4\] by"),
                          (lambda x: x.to("float64"), r"and torch.float64 \[3, 4\] by the operator"),
                          (lambda x: ops.split(x, 2, 1), "list")):
        fulgurite.torch.replaces(halved, wrong)
        compiled = fulgurite.jit(Calls(lambda x: halved(x) + 1))
        if reason == "list":
            with pytest.raises(Exception):
                fulgurite.jit(Calls(lambda x: halved(x) + 1), strict=True)(x)
            continue
        assert torch.equal(compiled(x), x * 0.5 + 1)
        (only,) = compiled.breaks
        assert only.name == "halved" and only.reason.startswith("its result is torch.")
        with pytest.raises(fulgurite.Error, match=reason):
            torch._dynamo.reset()
            fulgurite.jit(Calls(lambda x: halved(x) + 1), strict=True)(x)


def test_views_that_a_replaced_function_returns_are_written_as_in_pytorch():
    def halves(x, other):
        return x[:2], x[2:], other.view(-1)

    fulgurite.torch.replaces(halves, lambda x, other: (*ops.split(x, 2), ops.reshape(other, [-1])))

    def through(x, other):
        x, other = x * 1.0, other * 1.0
        a, b, flat = halves(x, other)
        a.mul_(3)
        flat.add_(1)
        return x + other.sum(), b

    def behind(x, other):
        x, other = x * 1.0, other * 1.0
        a, b, flat = halves(x, other)
        x.mul_(3)
        other.add_(1)
        return a * 2, b, flat.view(1, -1) * 2

    def into_an_argument(x, other):
        a, _, _ = halves(x, other)
        a.mul_(2)
        return x * 1.0

    for function in (through, behind, into_an_argument):
        torch._dynamo.reset()
        inputs = torch.randn(4, 3), torch.randn(2, 2)
        others = [each.clone() for each in inputs]
        compiled = fulgurite.jit(Calls(function))
        found, expected = compiled(*inputs), function(*others)
        found, expected = (each if isinstance(each, tuple) else (each,) for each in (found, expected))
        for ours, theirs in zip((*found, *inputs), (*expected, *others), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5), (function.__name__, ours, theirs)


def test_what_cannot_be_replaced_is_an_error():
    with pytest.raises(fulgurite.ArgumentError, match="expected a function, got str"):
        fulgurite.torch.replaces("apply_rope", ops.apply_rope)
    with pytest.raises(fulgurite.ArgumentError, match="expected a function, got int"):
        fulgurite.torch.replaces(apply_rope, 3)

    def third(x):
        return x / 3

    fulgurite.torch.replaces(third, lambda x: ops.softmax(x, 5))
    x = torch.randn(3)
    compiled = fulgurite.jit(Calls(third))
    assert torch.equal(compiled(x), x / 3) and "softmax" in compiled.breaks[0].reason


def test_our_operators_in_modules_are_lines():
    def function(x, weight):
        y = torch.ops.fulgurite.rms_norm(x, [4], weight)
        return torch.ops.fulgurite.prims_exp.default(y) + torch.ops.fulgurite.mul(y, 2.0)

    x, weight = leaf(3, 4), leaf(4)
    compiled = fulgurite.jit(Calls(function), strict=True)
    same_gradients(compiled(x, weight), function(x, weight), x, weight)
    text = str(fulgurite.last_traces(compiled)["acquire"])
    assert "= rms_norm(" in text and "= exp(" in text


class Kept(nn.Module):
    """Keeps what it saw in a buffer of another type, and what it saw first in an argument."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 3, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(4, 3))

    def forward(self, x, out):
        self.seen.copy_(x.detach())
        self.mean.copy_(x.detach().mean(0))
        out.copy_(self.seen)
        return x * self.mean + (self.seen * 2).float()


def test_whole_tensors_are_written():
    model = Kept()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model, strict=True)
    for _ in range(2):
        x, out, other = leaf(4, 3), torch.zeros(4, 3), torch.zeros(4, 3)
        same_gradients(compiled(x, out), reference(x, other), x)
        assert torch.equal(out, other)
        for ours, theirs in zip(model.buffers(), reference.buffers()):
            assert ours.dtype == theirs.dtype and torch.allclose(ours, theirs)


def test_what_is_computed_is_written_over():
    def function(x, z):
        y = x * 2
        y.copy_(z)
        return y * x + y

    x, z = leaf(3, 4), leaf(4)
    compiled = fulgurite.jit(Calls(function), strict=True)
    same_gradients(compiled(x, z), function(x, z), x, z)


def test_breaks_are_at_lines_of_the_program():
    torch.set_default_device("cpu")
    try:
        compiled = fulgurite.jit(Calls(lambda x: torch.fft.fft(x).abs() + 1))
        compiled(torch.randn(4))
    finally:
        torch.set_default_device(None)
    assert compiled.breaks and all(each.place.startswith(__file__) for each in compiled.breaks)


def test_a_value_with_a_gradient_that_is_written_into_a_buffer_is_left_to_pytorch():
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", torch.zeros(3))

        def forward(self, x):
            self.kept.copy_(x * 2)
            return self.kept * x

    model = Writes()
    reference, compiled, x = copy.deepcopy(model), fulgurite.jit(model), leaf(3)
    same_gradients(compiled(x), reference(x), x)
    assert [each.name for each in compiled.breaks] == ["copy_"] or compiled.breaks


class Cached(nn.Module):
    """Attention over a cache of keys and values, as decoders keep it."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.register_buffer("keys", torch.zeros(1, 6, 8))
        self.register_buffer("values", torch.zeros(1, 6, 8))

    def forward(self, x, positions):
        q, k, v = self.qkv(x).split(8, -1)
        k, v = self.keys.index_copy(1, positions, k), self.values.index_copy(1, positions, v)
        self.keys.copy_(k.detach())
        self.values.copy_(v.detach())
        mask = positions[:, None] >= torch.arange(6)
        return F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], attn_mask=mask)[:, 0]


def test_a_cache_is_extended_step_by_step():
    model = Cached()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model, strict=True)
    for positions in (torch.arange(3), torch.tensor([3]), torch.tensor([4])):
        x = leaf(1, len(positions), 8)
        same_gradients(compiled(x, positions), reference(x, positions), x)
    with torch.no_grad():
        x = torch.randn(1, 1, 8)
        last = torch.tensor([5])
        assert torch.allclose(compiled(x, last), reference(x, last), atol=1e-6)
    assert torch.allclose(model.keys, reference.keys, atol=1e-6) and compiled.breaks == []


def test_a_compiled_module_is_not_copied_and_its_backend_may_be():
    model = nn.Linear(3, 3)
    compiled = fulgurite.jit(model)
    with pytest.raises(TypeError, match="copy the module, and compile the copy"):
        copy.deepcopy(compiled)
    original, given = torch.compile, {}

    def wrapped(module, **options):
        # As libraries do that wrap `torch.compile`.
        given.update(copy.deepcopy(options))
        return original(module, **options)

    torch.compile = wrapped
    try:
        compiled = fulgurite.jit(model)
    finally:
        torch.compile = original
    x = torch.randn(2, 3)
    assert torch.allclose(compiled(x), model(x), atol=1e-6) and callable(given["backend"])


def test_devices_of_pytorch_have_names_here():
    from fulgurite.torch._table import device_name

    assert device_name("cpu") == device_name(torch.device("cpu")) == "cpu"
    assert device_name(torch.device("cuda", 1)) == "cuda:1" and device_name("cuda").startswith("cuda:")
    x = torch.randn(3)
    compiled = fulgurite.jit(Calls(lambda x: (x + torch.ones(3, device="cpu") + torch.arange(3, device=x.device))
                                   .to("cpu")), strict=True)
    assert torch.equal(compiled(x), x + 1 + torch.arange(3))


@pytest.mark.skipif("isolate_recompiles" not in inspect.signature(torch.compile).parameters,
                    reason="this PyTorch counts the programs of all modules of one class together")
def test_many_modules_of_one_class_and_many_shapes_are_compiled():
    models = [Calls(lambda x, i=i: x * i) for i in range(10)]
    x = torch.randn(3)
    for i, model in enumerate(models):
        compiled = fulgurite.jit(model, strict=True)
        assert torch.equal(compiled(x), x * i) and fulgurite.last_traces(compiled), i
    for rows in range(2, 12):
        compiled(torch.randn(rows))
        assert f"f32[{rows}]" in str(fulgurite.last_traces(compiled)["acquire"])
