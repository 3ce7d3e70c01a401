"""`torch.ops.fulgurite` under `torch.autocast`: operands are converted by the operator's class, as PyTorch converts
those of its own functions."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402

OURS = torch.ops.fulgurite
BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def class_of(name):
    return next(each.autocast for each in fulgurite.ops.OPERATORS.values() if each.name == name)


def normal(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype)


#: Functions that PyTorch's autocast on the CPU converts as the class of the operator says.
CASES = {
    "linear": (F.linear, lambda: (normal(3, 4), normal(5, 4), normal(5))),
    "matmul": (torch.matmul, lambda: (normal(3, 4), normal(4, 2))),
    "bmm": (torch.bmm, lambda: (normal(2, 3, 4), normal(2, 4, 5))),
    "addmm": (torch.addmm, lambda: (normal(3, 5), normal(3, 4), normal(4, 5))),
    "conv2d": (F.conv2d, lambda: (normal(2, 3, 6, 6), normal(4, 3, 3, 3), normal(4))),
    "mse_loss": (F.mse_loss, lambda: (normal(3, 4, dtype=BF16), normal(3, 4, dtype=BF16))),
    "cdist": (torch.cdist, lambda: (normal(3, 4, dtype=BF16), normal(5, 4, dtype=BF16))),
    "prod": (torch.prod, lambda: (normal(3, 4, dtype=BF16), 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_operands_are_converted_as_pytorch_converts_its_own(name):
    function, make = CASES[name]
    ours = [each.requires_grad_() if isinstance(each, torch.Tensor) else each for each in make()]
    theirs = [each.detach().clone().requires_grad_() if isinstance(each, torch.Tensor) else each for each in ours]
    operator = getattr(OURS, name)
    with torch.autocast("cpu", BF16):
        found = operator(*ours)
        expected = function(*theirs)
    assert found.dtype == expected.dtype == (BF16 if class_of(name) == "low" else torch.float32)
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    found.float().sum().backward()
    expected.float().sum().backward()
    for a, b in zip(ours, theirs):
        if isinstance(a, torch.Tensor):
            assert a.grad.dtype == b.grad.dtype == a.dtype
            torch.testing.assert_close(a.grad, b.grad, rtol=3e-2, atol=3e-2)
    # Outside, nothing is converted.
    plain = [each.detach() if isinstance(each, torch.Tensor) else each for each in ours]
    assert operator(*plain).dtype == ours[0].dtype


def test_classes_are_those_of_the_registry():
    x, half = normal(3, 4), normal(3, 4, dtype=BF16)
    with torch.autocast("cpu", BF16):
        assert class_of("softmax") == "full" and OURS.softmax(half, -1).dtype == torch.float32
        assert class_of("softmax") == "full" and OURS.softmax(half, -1, BF16).dtype == BF16
        assert class_of("layer_norm") == "full" and OURS.layer_norm(half, [4]).dtype == torch.float32
        assert class_of("scatter_add") == "widest"
        index = torch.zeros(1, 4, dtype=torch.int64)
        assert OURS.scatter_add(x, 0, index, half[:1]).dtype == torch.float32
        assert class_of("relu") is None and OURS.relu(half).dtype == BF16 and OURS.relu(x).dtype == torch.float32
        # f64 stays, and what is beside it.
        assert OURS.matmul(x.double(), x.t().double()).dtype == torch.float64
    with torch.autocast("cpu", torch.float16):
        assert OURS.matmul(x, x.t()).dtype == torch.float16
    with torch.autocast("cpu", BF16):
        with torch.autocast("cpu", enabled=False):
            assert OURS.matmul(x, x.t()).dtype == torch.float32


def test_compiled_graphs_have_the_conversions():
    w = normal(5, 4).requires_grad_()

    def f(x):
        with torch.autocast("cpu", BF16):
            return OURS.linear(x, w)

    x = normal(3, 4)
    found = torch.compile(f, backend="aot_eager", fullgraph=True)(x)
    assert found.dtype == BF16 and torch.equal(found, f(x))
    found.float().sum().backward()
    assert w.grad.dtype == torch.float32


def test_integers_and_masks_are_left():
    ids, table = torch.tensor([1, 0]), normal(3, 4)
    with torch.autocast("cpu", BF16):
        expected = F.embedding(ids, table)
        found = OURS.embedding(ids, table)
        loss, theirs = OURS.cross_entropy(table[:2].to(BF16), ids), F.cross_entropy(table[:2].to(BF16).float(), ids)
    assert found.dtype == expected.dtype == torch.float32 and torch.equal(found, expected)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, theirs, rtol=1e-2, atol=1e-2)
