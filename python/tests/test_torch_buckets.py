"""Batches padded to the sizes of buckets: results and gradients are those of the batch alone, or there is an error."""

import copy
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import models  # noqa: E402
from beside import ids, near  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


class OfX(nn.Module):
    """A function of `x`, which buckets name."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


SAME = {
    "mlp": (models.Mlp, lambda n: torch.randn(n, 8), "x"),
    "transformer": (lambda: models.Llama(layers=1), lambda n: ids(n, 6), "ids"),
    "convolutions, evaluated": (lambda: models.ResNet().eval(), lambda n: torch.randn(n, 3, 16, 16), "x"),
}


@pytest.mark.parametrize("name", SAME)
def test_results_and_gradients_are_those_of_the_batch(name):
    make, batch, argument = SAME[name]
    model = make()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model, buckets={argument: {0: [4, 8]}})
    for n in (3, 4, 2, 7, 3):
        x = batch(n)
        ours, theirs = ((x.clone().requires_grad_(x.is_floating_point())) for _ in range(2))
        found, expected = compiled(ours), reference(theirs)
        near(found, expected, 5e-5)
        # Each row has a cotangent of its own: those of padded rows are none.
        cotangent = torch.randn_like(expected)
        found.backward(cotangent)
        expected.backward(cotangent)
        if x.is_floating_point():
            near(ours.grad, theirs.grad, 2e-4)
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        near(ours.grad, theirs.grad, 2e-4)
    used = {next(iter(each.inputs.values()))[0]: each for each in compiled.cache_info()}
    assert set(used) == {4, 8} and compiled.breaks == []
    assert used[4].calls == 4 and used[4].sizes == {3: 2, 4: 1, 2: 1} and used[8].sizes == {7: 1}
    assert all(each.gradients and each.memory > 1000 for each in used.values())
    with pytest.raises(fulgurite.ArgumentError, match="dimension 0 of .* is 9, the largest bucket is 8"):
        compiled(batch(9))


REFUSED = {
    "statistics of the batch": lambda x: F.batch_norm(x, None, None, training=True),
    "a mean over the batch": lambda x: x - x.mean(0),
    "a loss": lambda x: F.mse_loss(x, x * 2),
    "a sum": lambda x: x.sum(),
    "a softmax over the batch": lambda x: x.softmax(0),
    "the last row": lambda x: x * x[-1],
    "the size as a number": lambda x: x * x.shape[0],
    "the least of the size and a number": lambda x: x * min(x.shape[0], 4),
    "pairs of rows": lambda x: x @ x.t(),
    "rows in another order": lambda x: x.flip(0),
    "the batch mixed with features": lambda x: x.t().reshape(-1, 2),
    "random numbers": lambda x: F.dropout(x, 0.5),
    "a running sum from the end": lambda x: x.flip(0).cumsum(0).flip(0),
    "rows next to each other": lambda x: torch.cat([x, x], 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_other_rows_is_refused(name):
    compiled = fulgurite.jit(OfX(REFUSED[name]), buckets={"x": {0: [4, 8]}})
    with pytest.raises(Exception, match="buckets: padding may change the results"):
        compiled(torch.randn(3, 4))


def test_modules_of_pytorch_itself_have_buckets():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))
    for call in (lambda each, x: each(x), lambda each, x: each(input=x)):
        torch._dynamo.reset()
        compiled = fulgurite.jit(model, buckets={"input": {0: [4, 8]}})
        for n in (2, 3, 5):
            x = torch.randn(n, 4)
            near(call(compiled, x), model(x))
        assert [(each.inputs, each.sizes) for each in compiled.cache_info()] == [
            ({"input": (4, 4)}, {2: 1, 3: 1}), ({"input": (8, 4)}, {5: 1})]
    with pytest.raises(fulgurite.Error, match="statistics of the batch"):
        fulgurite.jit(nn.BatchNorm1d(3), buckets={"input": {0: [4]}})(torch.randn(3, 3))


def test_a_second_graph_is_refused():
    def breaks(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    with pytest.raises(fulgurite.Error, match=rf"buckets are for modules that are one graph.* at {__file__}"):
        fulgurite.jit(OfX(breaks), buckets={"x": {0: [4]}})(torch.randn(3, 4))


def test_operators_of_torch_ops_are_refused_with_what_helps():
    compiled = fulgurite.jit(OfX(lambda x: torch.ops.fulgurite.softmax(x, 1)), buckets={"x": {0: [4]}})
    with pytest.raises(fulgurite.Error, match="nothing shows that it computes the rows .* fulgurite.torch.replaces"):
        compiled(torch.randn(3, 4))


@pytest.mark.parametrize("given", [[4, 8], 4, "x"])
def test_buckets_of_another_form(given):
    with pytest.raises(fulgurite.ArgumentError, match="expected sizes by arguments and dimensions"):
        fulgurite.jit(OfX(lambda x: x), buckets=given)


def test_rows_that_are_read_by_number_are_those_of_the_batch():
    compiled = fulgurite.jit(OfX(lambda x: (x * x[0], x[:2].sum(), torch.arange(x.shape[0]) + 1)),
                             buckets={"x": [4]})
    x = torch.randn(3, 4)
    for ours, theirs in zip(compiled(x), (x * x[0], x[:2].sum(), torch.arange(3) + 1)):
        near(ours, theirs)


def test_several_arguments_and_types_have_the_batch():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.proj = nn.Embedding(32, 8), nn.Linear(8, 8).bfloat16()

        def forward(self, ids, mask, scale):
            rows = self.table(ids) * mask[:, :, None]
            return self.proj(rows.bfloat16()).float().transpose(0, 1) * scale, rows.sum((1, 2))

    model = Mixed()
    reference = copy.deepcopy(model)
    compiled = fulgurite.jit(model, buckets={name: {0: [4, 64]} for name in ("ids", "mask")})
    for n in (3, 50):
        given = ids(n, 5), torch.rand(n, 5) < 0.5, torch.tensor(0.5)
        found, expected = compiled(*given), reference(*given)
        assert found[0].shape == (5, n, 8)
        for ours, theirs in zip(found, expected):
            near(ours, theirs, 1e-2)
        sum(each.sum() for each in found).backward()
        sum(each.sum() for each in expected).backward()
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        near(ours.grad, theirs.grad, 2e-2)
    with pytest.raises(Exception, match="buckets:"):
        # The mask is not named, and has the batch's size too.
        fulgurite.jit(Mixed(), buckets={"ids": {0: [4]}})(ids(3, 5), torch.ones(3, 5), torch.tensor(1.0))


def test_buffers_and_arguments_that_are_written():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count.add_(1)
            return x * self.count

    model = Counts()
    compiled = fulgurite.jit(model, buckets={"x": [4]})
    x = torch.randn(3, 4)
    near(compiled(x), x)
    near(compiled(x), x * 2)
    assert model.count == 2
    with pytest.raises(Exception, match="buckets:"):
        fulgurite.jit(OfX(lambda x: x.add_(1)), buckets={"x": [4]})(x)


def test_wrong_buckets_are_refused():
    for buckets, message in (({"y": [4]}, "there is no argument 'y'"),
                             ({"x": [1, 4]}, "expected integers of 2 or more"),
                             ({"x": {-1: [4]}}, "expected an integer that is not negative"), ({"x": []}, "sizes")):
        with pytest.raises(fulgurite.ArgumentError, match=message):
            fulgurite.jit(OfX(torch.tanh), buckets=buckets)
    with pytest.raises(fulgurite.ArgumentError, match="has 2 dimensions, and dimension 2"):
        fulgurite.jit(OfX(torch.tanh), buckets={"x": {2: [4]}})(torch.randn(2, 2))
    with pytest.raises(fulgurite.ArgumentError, match="buckets are for modules"):
        fulgurite.jit(lambda x: x, buckets={"x": [4]})


def test_a_cache_says_what_was_compiled_without_buckets():
    compiled = fulgurite.jit(models.Mlp())
    for rows in (2, 3, 2):
        with torch.no_grad():
            compiled(torch.randn(rows, 8))
    compiled(torch.randn(2, 8)).sum().backward()
    found = [(each.inputs, each.gradients, each.calls) for each in compiled.cache_info()]
    assert [({"x": (2, 8)}, False, 2), ({"x": (3, 8)}, False, 1), ({"x": (2, 8)}, True, 1)] == [
        ({"x": shape}, gradients, calls) for inputs, gradients, calls in found for shape in inputs.values()]
    assert all(each.memory > 64 and each.name == "Mlp" for each in compiled.cache_info())


def test_the_memory_of_a_call_is_what_its_traces_say():
    def said(traces):
        text = str(traces[-1])
        found = re.search(r"^# memory: ([\d,]+) resident .*\+ ([\d,]+) transient = ([\d,]+) bytes", text, re.M)
        return [int(each.replace(",", "")) for each in found.groups()]

    compiled = fulgurite.jit(models.Mlp())
    with torch.no_grad():
        compiled(torch.randn(2, 8))
    assert compiled.cache_info()[0].memory == said(fulgurite.last_traces(compiled))[2]
    compiled(torch.randn(2, 8))
    forward, backward = said(fulgurite.last_traces(compiled)), said(fulgurite.last_backward_traces(compiled))
    assert compiled.cache_info()[1].memory == forward[2] + backward[1]


def test_padding_adds_nothing_to_a_gradient_that_is_infinite():
    compiled = fulgurite.jit(OfX(torch.sqrt), buckets={"x": [4]})
    x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
    compiled(x).backward(torch.ones(3))
    assert x.grad.tolist() == [float("inf"), 0.5, 0.25]


def test_attention_without_dropout_draws_nothing():
    # Operators of attention on CUDA, which are tagged as random in any case.
    from fulgurite.torch._batches import cuts

    class Attention(nn.Module):
        def __init__(self, chance):
            super().__init__()
            self.chance = chance

        def forward(self, q):
            return torch.ops.aten._scaled_dot_product_efficient_attention(q, q, q, None, False, self.chance)[0]

    given = [torch.randn(3, 2, 4, 8)], [torch.randn(8, 2, 4, 8)]
    assert cuts(torch.fx.symbolic_trace(Attention(0.0)), *given) == [(0, 3)]
    with pytest.raises(fulgurite.Error, match="it draws random numbers"):
        cuts(torch.fx.symbolic_trace(Attention(0.5)), *given)


@pytest.mark.parametrize("core", [False, True])
@pytest.mark.parametrize("name", SAME)
def test_batches_of_exported_programs_are_padded_too(name, core):
    make, batch, argument = SAME[name]
    model = make()
    reference = copy.deepcopy(model)
    sizes = {argument: {0: torch.export.Dim("batch", min=2, max=64)}}
    program = torch.export.export(model, (batch(3),), dynamic_shapes=sizes)
    compiled = fulgurite.jit(program.run_decompositions() if core else program, buckets={argument: {0: [4, 8]}})
    for n in (3, 4, 2, 7, 3):
        x = batch(n)
        found, expected = compiled(x), reference(x)
        near(found, expected, 5e-5)
        cotangent = torch.randn_like(expected)
        found.backward(cotangent)
        expected.backward(cotangent)
    for (path, ours), theirs in zip(compiled.module.named_parameters(), reference.parameters()):
        near(ours.grad, theirs.grad, 2e-4)
    used = compiled.cache_info()
    assert sorted(next(iter(each.inputs.values()))[0] for each in used) == [4, 8]
    assert {size for each in used for size in each.sizes} == {2, 3, 4, 7}


def test_buckets_that_an_exported_program_does_not_take():
    model = models.Mlp()
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}}
    program = torch.export.export(model, (torch.randn(3, 8),), dynamic_shapes=sizes)
    for buckets, told in (
        ({"x": {0: [4, 128]}}, "128 is no size of dimension 0 of 'x', which was exported for 2 to 64"),
        ({"x": {1: [8]}}, "dimension 1 of 'x' is 8 in the exported program, expected one that is dynamic"),
        ({"x": {3: [8]}}, "'x' has 2 dimensions"),
        ({"y": {0: [4]}}, "there is no argument 'y', expected one of x"),
    ):
        with pytest.raises(fulgurite.ArgumentError, match=told):
            fulgurite.jit(program, buckets=buckets)
    compiled = fulgurite.jit(program, buckets={"x": {0: [4, 8]}})
    with pytest.raises(fulgurite.ArgumentError, match="a batch is 9, the largest bucket is 8"):
        compiled(torch.randn(9, 8))
    normal = torch.export.export(nn.BatchNorm1d(8), (torch.randn(3, 8),), dynamic_shapes=(sizes["x"],))
    with pytest.raises(fulgurite.Error, match="padding may change the results"):
        fulgurite.jit(normal, buckets={"input_1": {0: [4]}})(torch.randn(3, 8))


def test_an_empty_batch_of_an_exported_program_has_a_program_of_its_own():
    model = models.Mlp()
    sizes = ({0: torch.export.Dim("batch", min=0, max=64)},)
    compiled = fulgurite.jit(torch.export.export(model, (torch.randn(3, 8),), dynamic_shapes=sizes),
                             buckets={"x": {0: [4, 8]}})
    for n in (0, 1, 3):
        x = torch.randn(n, 8)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert sorted(next(iter(each.inputs.values()))[0] for each in compiled.cache_info()) == [0, 4]
