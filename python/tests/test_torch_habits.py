"""What programs of PyTorch do beside computing: they write in place, share memory, switch gradients and types on and
off. Results, gradients and the arguments afterwards are those of eager PyTorch, or there is an error."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import models  # noqa: E402
from models import Calls  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def named_again(x):
    skip = x
    x = torch.tanh(x)
    y = torch.fft.fft(x).abs()
    return y + 2 * x + 3 * skip


def masked(m, k):
    c = m & k
    c.masked_fill_(k, False)
    return c


def either(m, k):
    c = m | k
    c.logical_not_()
    return c


def written_without_gradients(x, w):
    h = x @ w
    with torch.no_grad():
        h.mul_(2)
    return (h * h).sum()


def written_out(x, b):
    torch.add(x, 1, out=b)
    return x * 2


def accumulated(acc, x, w):
    acc += x @ w
    return acc * 2


def without_gradients_between(x, w):
    with torch.no_grad():
        scale = torch.fft.fft(x @ w).abs().mean() + (x @ w).square().sum()
    return (x @ w) * scale


def view_of_one_type(x):
    y = x.float()
    y.add_(1)
    return x * 2


def leaf(*shape):
    return torch.randn(*shape).requires_grad_()


HABITS = {
    "a name used again around a break": (named_again, lambda: [leaf(4, 4)]),
    "and, then in place": (masked, lambda: [torch.rand(4) > 0.5, torch.rand(4) > 0.5]),
    "or, then in place": (either, lambda: [torch.rand(4) > 0.5, torch.rand(4) > 0.5]),
    "in place under no_grad": (written_without_gradients, lambda: [leaf(3, 4), leaf(4, 2)]),
    "out=": (written_out, lambda: [torch.randn(3), torch.empty(3)]),
    "a sum in an argument": (accumulated, lambda: [torch.zeros(3, 2), torch.randn(3, 4), leaf(4, 2)]),
    "no_grad across a break": (without_gradients_between, lambda: [leaf(3, 4), leaf(4, 3)]),
    "a view of the same type": (view_of_one_type, lambda: [torch.randn(3)]),
    "arange by names": (lambda x: x + torch.arange(0, 8, step=2) + torch.arange(start=1, end=5), lambda: [leaf(4)]),
    "arange to an end by name": (lambda x: x + torch.arange(0, end=4), lambda: [leaf(4)]),
    "sizes by name": (lambda x: x.new_zeros(size=(4, 4)) + x + x.new_ones(size=(2, 4, 4)), lambda: [leaf(4)]),
    "an older reduction": (lambda x, y: F.l1_loss(x, y, size_average=False), lambda: [leaf(4), torch.randn(4)]),
    "an older variance": (lambda x: x.var(False) + x.std(True), lambda: [leaf(4, 3)]),
    "positions from the end": (lambda x, i: x[i] * 2, lambda: [leaf(4, 3), torch.tensor([0, -1, -4])]),
    "rows from the end": (lambda x, i: x[i].sum(1), lambda: [leaf(4, 3), torch.tensor([[0, -1], [-2, 3]])]),
    "a result without a gradient": (lambda x: (x.detach() * 2, x * 3), lambda: [leaf(4)]),
}


@pytest.mark.filterwarnings("ignore:size_average")
@pytest.mark.parametrize("name", HABITS)
def test_habits(name):
    function, make = HABITS[name]
    arguments = make()
    others = [each.detach().clone().requires_grad_(each.requires_grad) for each in arguments]
    compiled, eager = fulgurite.jit(Calls(function)), Calls(function)
    for _ in range(2):
        ours, theirs = compiled(*arguments), eager(*others)
        ours, theirs = (each if isinstance(each, tuple) else (each,) for each in (ours, theirs))
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
            assert torch.allclose(a, b, atol=1e-5, rtol=1e-5), (a, b)
        for a, b in zip(arguments, others):
            assert torch.allclose(a.detach(), b.detach(), atol=1e-5, rtol=1e-5, equal_nan=True), "an argument"
        for a, b in ((a, b) for a, b in zip(ours, theirs) if b.requires_grad):
            a.square().sum().backward(retain_graph=True)
            b.square().sum().backward(retain_graph=True)
        for a, b in ((a, b) for a, b in zip(arguments, others) if b.is_leaf and b.requires_grad):
            assert torch.allclose(a.grad, b.grad, atol=1e-4, rtol=1e-4), (a.grad, b.grad)
            a.grad = b.grad = None
        arguments = [each.detach().requires_grad_(each.is_leaf and each.requires_grad) for each in arguments]
        others = [each.detach().requires_grad_(each.is_leaf and each.requires_grad) for each in others]


def test_a_result_that_is_written_before_the_backward_pass_is_right_or_an_error():
    x = leaf(5)
    compiled = fulgurite.jit(Calls(torch.exp))
    out = compiled(x)
    out.detach().mul_(2)
    with pytest.raises(RuntimeError, match="result 0 was changed in place after the forward pass"):
        out.sum().backward()

    model = models.Gpt()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model)
    ids = torch.randint(0, 32, (2, 8))
    expected = reference(ids, ids)
    found = compiled(ids, ids)
    found[0].detach().mul_(3)
    expected[-1].backward()
    try:
        found[-1].backward()
    except RuntimeError as error:
        assert "changed in place" in str(error)
    else:
        for ours, theirs in zip(model.parameters(), reference.parameters()):
            assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)


def test_two_forward_passes_before_one_backward_pass():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model)
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    (compiled(a).square().sum() + compiled(b).sum()).backward()
    (reference(a).square().sum() + reference(b).sum()).backward()
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-4)
    for ours, theirs in zip(model.buffers(), reference.buffers()):
        assert torch.allclose(ours, theirs)


def test_autocast_of_pytorch_is_left_to_pytorch():
    model = models.Mlp()
    compiled, x = fulgurite.jit(model), torch.randn(2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = compiled(x), model(x)
    assert found.dtype == expected.dtype == torch.bfloat16 and torch.equal(found, expected)
    assert [each.reason for each in compiled.breaks if "autocast" in each.reason]

    def inside(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ w

    x, w = torch.randn(2, 8), torch.randn(8, 2)
    compiled = fulgurite.jit(Calls(inside))
    assert torch.equal(compiled(x, w), inside(x, w)) and compiled.breaks
    with pytest.raises(Exception, match="autocast is on"):
        torch._dynamo.reset()
        fulgurite.jit(Calls(inside), strict=True)(x, w)


def test_the_default_type_is_pytorchs():
    torch.set_default_dtype(torch.float64)
    try:
        x = torch.randn(3)
        found = fulgurite.jit(Calls(lambda x: torch.ones(3) + torch.zeros(3) + torch.full((3,), 0.5) + x))(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float64


def test_a_compiled_function_with_options_in_another_is_an_error():
    inner = fulgurite.jit(lambda x: x * 2, autocast="bfloat16")
    with pytest.raises(fulgurite.Error, match="'autocast' has no effect"):
        fulgurite.jit(lambda x: inner(x) + 1)(fulgurite.array([1.0]))


def parts_written(x, v):
    y = x * 1
    y[1] = 0.0
    y[:, 2:4] = v
    y[..., 0] = x[..., 1]
    return y * x


def added_to_a_part(x):
    y = x * 1
    y[2:] += 1.0
    return y * x


def rows_one_by_one(x):
    mask = torch.full((4, 4), float("-inf"))
    for i in range(4):
        mask[i, max(0, i - 1) : i + 1] = 0.0
    mask = mask.view(1, 4, 4)
    return torch.softmax(x + mask, -1)


def masked_part(x):
    y = x.clone()
    y[x > 0] = 2.0
    return y * x


def copied_into(x, v):
    y = torch.zeros(4, 5)
    y.copy_(v)
    return y * x


def view_before_a_write(x):
    y = x * 2
    z = y.view(-1)
    y[0] = 1.0
    return z.sum() + y.sum()


def write_through_a_view(x):
    y = x * 2
    y.view(-1)[3:5] = 7.0
    y[1].mul_(3)
    return y * x


def several_indices(x, i, j):
    return x[i, j] * x[i[:, None], j] + x[-1, j]


def numbers(x):
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]) + torch.tensor(2) + torch.cat([torch.tensor([]), x[0]])


PARTS = {
    "parts_written": (parts_written, lambda: (torch.randn(4, 5), torch.randn(4, 2))),
    "rows_one_by_one": (rows_one_by_one, lambda: (torch.randn(2, 4, 4),)),
    "masked_part": (masked_part, lambda: (torch.randn(4, 5),)),
    "copied_into": (copied_into, lambda: (torch.randn(4, 5), torch.randn(5))),
    "view_before_a_write": (view_before_a_write, lambda: (torch.randn(4, 5),)),
    "write_through_a_view": (write_through_a_view, lambda: (torch.randn(4, 5),)),
    "several_indices": (several_indices,
                        lambda: (torch.randn(4, 5), torch.tensor([0, -1, 2]), torch.tensor([4, 0, -2]))),
    "added_to_a_part": (added_to_a_part, lambda: (torch.randn(4, 5),)),
    "numbers": (numbers, lambda: (torch.randn(4, 5),)),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_tensors_are_read_and_written(name):
    function, make = PARTS[name]
    arguments = make()
    theirs = [each.clone().requires_grad_(each.is_floating_point()) for each in arguments]
    ours = [each.clone().requires_grad_(each.is_floating_point()) for each in arguments]
    compiled = fulgurite.jit(Calls(function))
    result, expected = compiled(*ours), function(*theirs)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    expected.sum().backward()
    for own, other in zip(ours, theirs):
        assert (own.grad is None) == (other.grad is None)
        if own.grad is not None:
            torch.testing.assert_close(own.grad, other.grad)
    # What is written through a view, or read through an older one, is left to PyTorch.
    left = name in ("view_before_a_write", "write_through_a_view", "added_to_a_part")
    assert bool(compiled.breaks) == left, compiled.breaks


def test_indices_out_of_range_are_refused():
    compiled = fulgurite.jit(Calls(lambda x, i, j: x[i, j]), strict=True)
    for wrong in ((torch.tensor([4]), torch.tensor([0])), (torch.tensor([0]), torch.tensor([5])),
                  (torch.tensor([0]), torch.tensor([-6]))):
        with pytest.raises(fulgurite.Error):
            compiled(torch.randn(4, 5), *wrong)


def increments(x, y):
    x.add_(1)
    return x * y


@pytest.mark.parametrize("parts", [(slice(0, 4), slice(2, 6)), (slice(0, 6), slice(0, 6))])
def test_what_is_written_in_place_is_read_through_another_argument(parts):
    def run(function):
        base = torch.arange(6.0)
        return function(base[parts[0]], base[parts[1]]), base

    compiled = fulgurite.jit(Calls(increments))
    for _ in range(2):
        for ours, theirs in zip(run(compiled), run(increments)):
            assert torch.equal(ours, theirs)
    assert "shares memory" in str(compiled.breaks)
    torch._dynamo.reset()
    with pytest.raises(fulgurite.Error, match="shares memory"):
        run(fulgurite.jit(Calls(increments), strict=True))
    # Apart, they are ours.
    torch._dynamo.reset()
    compiled, x = fulgurite.jit(Calls(increments), strict=True), torch.arange(6.0)
    assert torch.equal(compiled(x[:3], x[3:]), torch.tensor([3.0, 8.0, 15.0]))


def test_a_buffer_that_is_written_is_read_through_its_view():
    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))
            self.part = self.total[:2]

        def forward(self, x):
            self.total.add_(x)
            return self.part * 2 + self.total[:2]

    compiled, eager, x = fulgurite.jit(Module()), Module(), torch.ones(4)
    for _ in range(3):
        assert torch.equal(compiled(x), eager(x))


def test_a_part_with_gradients_in_a_call_without():
    def f(x):
        a = x * 2
        with torch.enable_grad():
            b = x * 3
            c = b * a
        return a, b, c

    compiled, x = fulgurite.jit(Calls(f), strict=True), leaf(3)
    with torch.no_grad():
        ours, theirs = compiled(x), f(x)
    assert [each.requires_grad for each in ours] == [each.requires_grad for each in theirs] == [False, True, True]
    expected, = torch.autograd.grad(theirs[2].sum(), x)
    found, = torch.autograd.grad(ours[2].sum(), x)
    assert torch.allclose(found, expected)
