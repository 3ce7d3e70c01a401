"""What a compiled module keeps for its backward pass, and for how long."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import models  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from beside import ids, near  # noqa: E402
from torch import nn  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


class Head(nn.Module):
    """Logits of 8 MiB in f32, and their loss."""

    def __init__(self, view):
        super().__init__()
        self.proj = nn.Linear(8, 1024)
        self.view = view

    def forward(self, x, targets):
        logits = self.proj(x)
        return F.cross_entropy(logits.flatten(0, 1) if self.view else logits, targets)


def function_of(compiled):
    program, = compiled.report.last
    return program.last


def saved(compiled, target=None) -> dict:
    """The types and shapes of what the last forward program saves and does not get as an argument, by name."""
    forward = compiled.last_traces(target)[-1]
    arguments = {value.name for value in forward.inputs}
    outputs = [(path, value) for path, value in forward.outputs if path.startswith("saved.")]
    return {value.name: (value.dtype.name, value.shape) for _, value in outputs if value.name not in arguments}


@pytest.mark.parametrize("view", [False, True])
def test_logits_are_saved_in_the_type_of_their_product(view):
    shape = (2, 1024) if view else (2048,)
    model, x, targets = Head(view), torch.randn(*shape, 8), ids(2048, most=1024)
    compiled = fulgurite.jit(model, autocast="bfloat16")
    loss = compiled(x, targets)
    for target in (None, "cuda:sm_90a"):
        kinds = saved(compiled, target)
        large = [kind for kind in kinds.values() if len(kind[1]) > 1 and kind[1][-1] == 1024]
        assert large == [("bfloat16", (*shape, 1024))], kinds
    lines = function_of(compiled).stages("backward")[0].lines
    again = [line.operator for line in lines if line.results[0].name.startswith("grad.again.")]
    assert "prims::convert_element_type" in again
    loss.backward()
    ours = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        expected = model(x, targets)
    expected.backward()
    near(loss.detach(), expected.detach(), 1e-3)
    for gradient, parameter in zip(ours, model.parameters()):
        near(gradient, parameter.grad, 2e-2)


def test_what_is_returned_or_small_is_not_converted_again():
    class Both(Head):
        def forward(self, x, targets):
            logits = self.proj(x).float()
            return F.cross_entropy(logits, targets), logits

    for model, rows in ((Both(False), 2048), (Head(False), 16)):
        torch._dynamo.reset()
        compiled = fulgurite.jit(model, autocast="bfloat16")
        compiled(torch.randn(rows, 8), ids(rows, most=1024))
        kinds = list(saved(compiled).values())
        assert ("float32", (rows, 1024)) in kinds and ("bfloat16", (rows, 1024)) not in kinds


def test_the_bits_are_those_of_logits_saved_in_f32():
    # An argument in bf16 that is converted, beside one in f32 of the same values.
    class Squares(nn.Module):
        def forward(self, x, w):
            return (x.float() * w).exp().sum()

    x, w = torch.randn(2048, 1024).bfloat16(), torch.randn(1024, requires_grad=True)
    gradients = []
    for given in (x, x.float()):
        torch._dynamo.reset()
        compiled = fulgurite.jit(Squares())
        gradients.append(torch.autograd.grad(compiled(given, w), w)[0])
    assert torch.equal(*gradients)


def test_a_block_saves_what_its_derivative_needs():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 32), nn.Linear(32, 8)

        def forward(self, x):
            return (x + self.down(F.relu(self.up(self.norm(x))))).sum()

    model, x = Block(), torch.randn(4, 8)
    compiled = fulgurite.jit(model)
    compiled(x)
    # What the products read. The activation says where its slope is 0; x is given, and makes the statistics again.
    assert saved(compiled) == {"relu": ("float32", (4, 32)), "norm.layer_norm": ("float32", (4, 8))}


def test_saved_values_are_freed_by_the_backward_pass():
    model = models.Mlp()
    compiled = fulgurite.jit(model)
    loss = compiled(torch.randn(3, 8)).sum()
    node = loss.grad_fn.next_functions[0][0]
    assert node.pullback.saved()
    loss.backward()
    assert node.pullback is None and node.call.watched == []
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        loss.backward()


def test_a_graph_that_is_retained_keeps_them():
    model = models.Mlp()
    compiled = fulgurite.jit(model)
    loss = compiled(torch.randn(3, 8)).sum()
    loss.backward(retain_graph=True)
    first = [each.grad.clone() for each in model.parameters()]
    loss.backward()
    for once, parameter in zip(first, model.parameters()):
        assert torch.equal(2 * once, parameter.grad)
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        torch.autograd.grad(loss, list(model.parameters()))


def test_gradients_have_the_memory_that_the_program_wrote():
    model = models.Mlp()
    compiled, seen = fulgurite.jit(model), []
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: seen.append(gradient.data_ptr()))
    compiled(torch.randn(3, 8)).sum().backward()
    assert sorted(seen) == sorted(each.grad.data_ptr() for each in model.parameters())


def test_memory_of_both_programs():
    model = models.Mlp()
    compiled = fulgurite.jit(model)
    compiled(torch.randn(3, 8))
    (inputs, outputs, _), (saved_inputs, gradients, own) = function_of(compiled).memory()
    bytes_of_parameters = sum(4 * each.numel() for each in model.parameters())
    assert inputs == bytes_of_parameters + 4 * 3 * 8 and outputs > 0 and saved_inputs > 0
    assert gradients == bytes_of_parameters and own > 0
    elsewhere = function_of(compiled).memory("cuda:sm_90a")
    assert elsewhere[0][0] <= inputs and len(elsewhere) == 2


def test_a_cache_is_emptied_where_there_is_none():
    assert fulgurite.torch.empty_cache() is None and fulgurite.torch.empty_cache("cpu") is None
