"""`torch.ops.fulgurite` with sizes that are symbols: one graph computes batches of all sizes."""

import contextlib

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.export import Dim, export  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402
from fulgurite import Floating, Tensor  # noqa: E402

OURS = torch.ops.fulgurite


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def normal(*shape):
    return torch.randn(*shape)


@contextlib.contextmanager
def counted():
    """A backend that counts the graphs that it gets, and runs them as they are."""
    graphs = []

    def backend(graph_module, _):
        graphs.append(graph_module)
        return graph_module.forward

    yield graphs, backend


#: A function, its arguments, which of their dimensions are dynamic, and arguments of other sizes.
CASES = {
    "rows": (lambda x: OURS.rms_norm(x, [8]), [normal(4, 8)], [(0, 0)], [[normal(5, 8)], [normal(50, 8)]]),
    "a size as an argument": (lambda x: OURS.rms_norm(x, [x.shape[-1]]), [normal(4, 8)], [(0, 0), (0, 1)],
                              [[normal(5, 9)], [normal(50, 3)]]),
    "a product of sizes": (lambda x: OURS.reshape(x, [-1]), [normal(4, 8, 2)], [(0, 0), (0, 1)], [[normal(5, 9, 2)]]),
    "a product that is given": (lambda x: OURS.reshape(x, [x.shape[0] * x.shape[1], 2]), [normal(4, 8, 2)],
                                [(0, 0), (0, 1)], [[normal(5, 9, 2)]]),
    "a sum of sizes": (lambda x, y: OURS.cat([x, y], 0), [normal(4, 8), normal(3, 8)], [(0, 0), (1, 0)],
                       [[normal(5, 8), normal(7, 8)]]),
    "sizes that must be equal": (lambda x, y: OURS.matmul(x, y), [normal(4, 8), normal(8, 6)],
                                 [(0, 0), (0, 1), (1, 0), (1, 1)], [[normal(5, 9), normal(9, 3)]]),
    "operands of one shape": (lambda x, y: OURS.add(x, y), [normal(4, 8), normal(4, 8)], [(0, 0), (1, 0)],
                              [[normal(5, 8), normal(5, 8)]]),
    "windows": (lambda x, w: OURS.conv2d(x, w, None, [2, 2], [1, 1]), [normal(2, 3, 11, 12), normal(4, 3, 3, 3)],
                [(0, 0), (0, 2), (0, 3)], [[normal(5, 3, 16, 9), normal(4, 3, 3, 3)]]),
    "multiples of a number": (lambda x: OURS.group_norm(x, 4), [normal(2, 8, 5)], [(0, 0), (0, 1)],
                              [[normal(3, 12, 5)]]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_graph_is_for_all_sizes(name):
    function, arguments, dims, others = CASES[name]
    with counted() as (graphs, backend):
        for i, dim in dims:
            torch._dynamo.mark_dynamic(arguments[i], dim)
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        compiled(*arguments)
        for given in others:
            torch.testing.assert_close(compiled(*given), function(*given))
        assert len(graphs) == 1


def test_a_product_of_three_sizes_is_right_for_all_of_them():
    def function(x):
        return torch.ones(2) * OURS.reshape(x, [-1]).shape[0]

    compiled = torch.compile(function, backend="eager", fullgraph=True, dynamic=True)
    for shape in ((4, 8, 6), (5, 9, 7), (4, 9, 7), (3, 2, 11)):
        x = normal(*shape)
        torch.testing.assert_close(compiled(x), function(x))


def test_gradients_have_the_same_symbols():
    def function(x):
        return OURS.rms_norm(x, [8]).sum()

    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    for rows in (4, 9, 30):
        ours = normal(rows, 8).requires_grad_()
        theirs = ours.detach().clone().requires_grad_()
        torch._dynamo.mark_dynamic(ours, 0)
        compiled(ours).backward()
        function(theirs).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


class Layer(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


def test_exported_programs_have_a_dynamic_batch():
    model = Layer(lambda x: OURS.softmax(OURS.gelu(x), 1))
    program = export(model, (normal(4, 8),), dynamic_shapes={"x": {0: Dim("batch", min=2, max=64)}})
    called = [each for each in program.graph.nodes if "fulgurite" in str(each.target)]
    assert len(called) == 2 and all(isinstance(each.meta["val"].shape[0], torch.SymInt) for each in called)
    compiled = fulgurite.jit(program, strict=True)
    for rows in (3, 17, 64):
        x = normal(rows, 8)
        expected = F.gelu(model.linear(x)).softmax(1)
        torch.testing.assert_close(program.module()(x), expected)
        torch.testing.assert_close(compiled(x), expected)


def declared(meta, name="sizes::made"):
    def signature(input: Tensor[Floating]) -> Tensor: ...

    return fulgurite.operator(type("made", (), {"name": name, "signature": signature, "meta": meta, "arrays": "numpy",
                                                "fn": lambda input: _of(meta, input)}))


def _of(meta, input):
    import numpy

    return numpy.zeros(meta(fulgurite.Meta(list(input.shape), "float32", "cpu")).shape, "float32")


#: Metas of operators that are declared in Python, and whether a graph is for all sizes.
METAS = {
    "pairs": (lambda input: input.like(shape=(input.shape[0] * (input.shape[0] - 1) // 2, 3)), True),
    "a half": (lambda input: input.like(shape=(input.shape[0] // 2,)), True),
    "windows": (lambda input: input.like(shape=((input.shape[0] - 3) // 4 + 1,)), True),
    "a limit": (lambda input: input.like(shape=(min(input.shape[0], 5),)), False),
    "a rank": (lambda input: input.like(shape=(2,) * (1 + input.shape[0] % 2)), False),
}


@pytest.mark.parametrize("name", METAS)
def test_metas_of_python(name):
    meta, whole = METAS[name]
    operator = declared(meta)
    try:
        with counted() as (graphs, backend):
            function = lambda x: OURS.sizes_made(x)  # noqa: E731
            compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=True)
            for rows in (8, 11, 14, 100):
                x = normal(rows, 2)
                assert compiled(x).shape == function(x).shape
            assert (len(graphs) == 1) == whole, len(graphs)
    finally:
        operator.withdraw()


def test_a_size_of_data_is_a_symbol():
    def function(x, count):
        rows = count.item()
        torch._check(rows >= 2)
        torch._check(rows <= x.shape[0])
        return OURS.gelu(x[:rows])

    with torch._dynamo.config.patch(capture_scalar_outputs=True), counted() as (graphs, backend):
        compiled = torch.compile(function, backend=backend, fullgraph=True)
        x = normal(10, 4)
        for rows in (3, 7):
            torch.testing.assert_close(compiled(x, torch.tensor(rows)), F.gelu(x[:rows]))
        assert len(graphs) == 1
