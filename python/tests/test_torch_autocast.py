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


def declared(autocast, **parts):
    """`input @ weight` as an operator of Python, with a class."""

    def product(input: fulgurite.Tensor[fulgurite.Floating], weight: fulgurite.Tensor[fulgurite.Floating],
                bias: fulgurite.Tensor[fulgurite.Floating] | None = None) -> fulgurite.Tensor:
        found = fulgurite.ops.prims.matmul(input, weight)
        return found if bias is None else found + bias

    return fulgurite.operator(product, name="autocasts::product", autocast=autocast, **parts)


#: Types of an input in bf16 and a weight in f32 within the operator, by its class.
CLASSES = {"low": (BF16, BF16), "full": (torch.float32, torch.float32), "widest": (torch.float32, torch.float32)}


@pytest.mark.parametrize("name", CLASSES)
def test_operators_of_python_have_classes(name):
    x, w = normal(3, 4, dtype=BF16).requires_grad_(), normal(4, 5).requires_grad_()
    operator = declared(name)
    try:
        assert operator.operator.autocast == name
        with torch.autocast("cpu", BF16):
            found = OURS.autocasts_product(x, w)
        left, right = (each.detach().to(dtype) for each, dtype in zip((x, w), CLASSES[name]))
        assert found.dtype == left.dtype
        torch.testing.assert_close(found, left @ right, rtol=2e-2, atol=2e-2)
        found.float().sum().backward()
        assert x.grad.dtype == BF16 and w.grad.dtype == torch.float32
        # Outside, the operator refuses two types.
        with pytest.raises(fulgurite.Error):
            OURS.autocasts_product(x, w)
        # PyTorch captures a module with the types outside of autocast: one type, in which the result comes back.
        model = lambda x, w: OURS.autocasts_product(x, w)  # noqa: E731
        found = fulgurite.torch.jit(model, autocast="bfloat16")(x.float(), w).detach()
        torch.testing.assert_close(found, (left @ right).float(), rtol=2e-2, atol=2e-2)
        assert found.dtype == torch.float32 and torch.equal(found, found.to(BF16).float()) == (name == "low")
    finally:
        operator.withdraw()


def test_operators_of_python_keep_operands():
    x, w, bias = normal(3, 4), normal(4, 5), normal(3, 5)
    operator = declared("low", autocast_keeps="bias")
    try:
        assert operator.operator.autocast_keeps == ["bias"]
        with torch.autocast("cpu", BF16):
            # A product in bf16 and a bias in f32 are added in f32.
            assert OURS.autocasts_product(x, w, bias).dtype == torch.float32
            assert OURS.autocasts_product(x, w).dtype == BF16
        f = fulgurite.jit(lambda x, w, bias: fulgurite.ops.autocasts.product(x, w, bias), autocast="bfloat16")
        f(x, w, bias)
        text = str(fulgurite.last_traces(f)["autocast"])
        assert "bf16[3, 4]" in text and "bf16[4, 5]" in text and "bf16[3, 5] = convert_element_type(bias" not in text
    finally:
        operator.withdraw()
    operator = declared("keep")
    try:
        with torch.autocast("cpu", BF16):
            assert OURS.autocasts_product(x, w).dtype == torch.float32
    finally:
        operator.withdraw()


def test_classes_that_are_not_there_are_refused():
    with pytest.raises(fulgurite.ArgumentError, match="autocast is 'wides', expected one of low, full, widest, keep"):
        declared("wides")
    with pytest.raises(fulgurite.Error, match="autocast keeps 'biass', which is no tensor of the signature; there are: "
                                              "input, weight, bias"):
        declared("low", autocast_keeps=("biass",))
    with pytest.raises(fulgurite.Error, match="autocast keeps 'bias', and the operator has no class"):
        declared(None, autocast_keeps=("bias",))
