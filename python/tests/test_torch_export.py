"""Programs of `torch.export` as ours: outputs, gradients and buffers are those of eager PyTorch, and calls are checked
against what was exported."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import models  # noqa: E402
from beside import MODELS, compare, ids, near  # noqa: E402
from torch import nn  # noqa: E402
from torch.export import Dim, export  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def exported(model, arguments, core, **options):
    program = export(model, arguments, **options)
    return program.run_decompositions() if core else program


@pytest.mark.parametrize("core", [False, True], ids=["as exported", "core ATen"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_gradients_and_buffers_are_those_of_pytorch(name, core):
    make, arguments = MODELS[name]
    model, arguments = make(), arguments()
    reference = copy.deepcopy(model)
    compiled = fulgurite.jit(exported(model, arguments, core))
    assert compiled.breaks == []
    for _ in range(2):
        compare(compiled, arguments, compiled, reference)
    assert compiled.breaks == [] and len(compiled.report.programs) == 1
    assert {name for name, _ in compiled.named_parameters()} == {name for name, _ in model.named_parameters()}


@pytest.mark.parametrize("core", [False, True], ids=["as exported", "core ATen"])
def test_batches_of_other_sizes(core):
    model = models.ResNet()
    reference = copy.deepcopy(model)
    batch = Dim("batch", min=2, max=6)
    program = exported(model, (torch.randn(3, 3, 16, 16),), core, dynamic_shapes={"x": {0: batch}})
    compiled = fulgurite.jit(program, strict=True)
    for rows in (2, 5, 2, 6):
        compare(compiled, (torch.randn(rows, 3, 16, 16),), compiled, reference, of_gradients=5e-4)
    with pytest.raises(fulgurite.ArgumentError, match=r"dimension 0 of 'x' is 7, expected 2 to 6"):
        compiled(torch.randn(7, 3, 16, 16))
    with pytest.raises(fulgurite.ArgumentError, match=r"dimension 0 of 'x' is 1, expected 2 to 6"):
        compiled(torch.randn(1, 3, 16, 16))
    with pytest.raises(fulgurite.ArgumentError, match=r"dimension 2 of 'x' is 8, expected 16: it is not dynamic"):
        compiled(torch.randn(3, 3, 8, 16))
    with pytest.raises(fulgurite.ArgumentError, match="'x' has dtype torch.float64, expected torch.float32"):
        compiled(torch.randn(3, 3, 16, 16).double())
    with pytest.raises(fulgurite.ArgumentError, match="'x' is on meta, expected cpu"):
        compiled(torch.randn(3, 3, 16, 16, device="meta"))
    with pytest.raises(fulgurite.ArgumentError, match="'x' has 3 dimensions, expected 4"):
        compiled(torch.randn(3, 16, 16))


def test_lengths_of_a_transformer():
    model = models.Llama(layers=1)
    program = export(model, (ids(2, 8),), dynamic_shapes={"ids": {0: Dim.AUTO, 1: Dim.AUTO}})
    compiled = fulgurite.jit(program.run_decompositions(), strict=True)
    reference = copy.deepcopy(model)
    for shape in ((2, 8), (3, 5), (4, 16)):
        tokens = ids(*shape)
        near(compiled(tokens), reference(tokens))


class Parts(nn.Module):
    """Constants, arguments by name, structures, a part without gradients, and a branch that depends on a size."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.k = torch.tensor([1.0, -1.0, 2.0])
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("hidden", torch.ones(3), persistent=False)

    def forward(self, x, *, double=True, more=None):
        with torch.no_grad():
            scale = (x * self.w).mean()
            self.count.add_(1)
        if x.shape[0] % 2 == 0:
            x = x * 2
        x = x * self.w * scale * self.k * torch.tensor([1.0, 2.0, 3.0]) + self.hidden
        return {"out": x + more["q"], "count": self.count + 1, "plain": x.detach()}


@pytest.mark.parametrize("core", [False, True], ids=["as exported", "core ATen"])
def test_parts_of_a_program(core):
    model = Parts()
    reference = copy.deepcopy(model)
    shapes = {"x": {0: Dim.AUTO}, "double": None, "more": {"q": None}}
    program = exported(model, (torch.randn(4, 3),), core, kwargs={"double": True, "more": {"q": torch.ones(3)}},
                       dynamic_shapes=shapes)
    compiled, eager = fulgurite.jit(program, strict=True), copy.deepcopy(program).module()
    for rows in (2, 6):
        x, q = torch.randn(rows, 3), torch.randn(3)
        found = compiled(x, more={"q": q}, double=True)
        expected = reference(x, double=True, more={"q": q})
        theirs = eager(x, double=True, more={"q": q})
        assert list(found) == list(expected)
        for name in expected:
            near(found[name].detach(), expected[name].detach())
            assert found[name].requires_grad == theirs[name].requires_grad
            # Core ATen has `alias` for `detach`.
            assert core or theirs[name].requires_grad == (name == "out")
        found["out"].square().sum().backward()
        theirs["out"].square().sum().backward()
        near(compiled.w.grad, eager.w.grad)
        near(compiled.count, reference.count)
    assert compiled.w is program.state_dict["w"]
    with pytest.raises(fulgurite.ArgumentError, match="exported program: Guard failed"):
        compiled(torch.randn(3, 3), double=True, more={"q": torch.ones(3)})
    with pytest.raises(fulgurite.ArgumentError, match="'double' is False, expected True"):
        compiled(torch.randn(4, 3), double=False, more={"q": torch.ones(3)})
    with pytest.raises(fulgurite.ArgumentError, match="the arguments are"):
        compiled(torch.randn(4, 3))


def test_an_optimizer_trains_an_exported_program():
    model = models.Gpt()
    reference = copy.deepcopy(model)
    batch = ids(2, 8), ids(2, 8)
    compiled = fulgurite.jit(export(model, batch))
    losses = []
    for run in (compiled, reference):
        optimizer = torch.optim.AdamW(run.parameters(), lr=1e-2)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            loss = run(*batch)[1]
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][-1] < losses[0][0]


def test_inputs_that_are_changed_are_changed():
    class Adds(nn.Module):
        def forward(self, total, x):
            total.add_(x)
            return total * 2

    program = export(Adds(), (torch.zeros(3), torch.ones(3)))
    for each in (program, program.run_decompositions()):
        compiled, total = fulgurite.jit(each, strict=True), torch.zeros(3)
        for i in (1, 2):
            assert torch.equal(compiled(total, torch.ones(3)), torch.full((3,), 2.0 * i))
            assert torch.equal(total, torch.full((3,), float(i)))


def test_sizes_that_depend_on_others():
    class Pairs(nn.Module):
        def forward(self, x, y):
            return x.repeat_interleave(2, 0) + y

    half = Dim("half", min=2, max=8)
    program = export(Pairs(), (torch.randn(3, 2), torch.randn(6, 2)), dynamic_shapes=({0: half}, {0: 2 * half}))
    compiled = fulgurite.jit(program, strict=True)
    x, y = torch.randn(4, 2), torch.randn(8, 2)
    near(compiled(x, y), Pairs()(x, y))
    with pytest.raises(fulgurite.ArgumentError, match="dimension 0 of 'y' is 6, expected 8, which is 2\\*"):
        compiled(x, y[:6])


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = torch.fft.fft(torch.tanh(self.a(x))).abs()
        return self.b(x)


def test_what_is_not_computed_is_left_to_pytorch_with_a_reason():
    model = Breaks()
    reference = copy.deepcopy(model)
    for core in (False, True):
        program = exported(model, (torch.randn(3, 4),), core)
        compiled = fulgurite.jit(program)
        assert compiled.breaks and all(each.reason and each.place for each in compiled.breaks)
        compare(compiled, (torch.randn(3, 4),), compiled, reference)
        model.zero_grad()
        reference.zero_grad()
        with pytest.raises(fulgurite.Error, match="fft"):
            fulgurite.jit(program, strict=True)
    assert "complex numbers" in str(compiled.breaks)


def test_traces_have_the_programs_names():
    model = models.Gpt(layers=1)
    compiled = fulgurite.jit(export(model, (ids(2, 8), ids(2, 8))))
    compiled(ids(2, 8), ids(2, 8))
    text = str(fulgurite.last_traces(compiled)["acquire"])
    assert "transformer.h.0.attn.c_attn.weight: f32[48, 16]" in text and "idx: i64[2, 8]" in text
    assert "transformer.h.0.attn.scaled_dot_product_attention" in text
    assert "by cpu" in fulgurite.explain(compiled)


def test_random_numbers_follow_pytorchs_seed():
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5))
    for core in (False, True):
        compiled, x = fulgurite.jit(exported(model, (torch.ones(8, 64),), core), strict=True), torch.ones(8, 64)
        torch.manual_seed(3)
        a, b = compiled(x), compiled(x)
        torch.manual_seed(3)
        assert torch.equal(a, compiled(x)) and not torch.equal(a, b) and 0.3 < (a == 0).float().mean() < 0.7


def test_modules_of_programs_are_modules():
    """`program.module()` by dynamo, and as a training step."""
    model = models.Mlp()
    program = export(model, (torch.randn(3, 8),))
    reference, own = copy.deepcopy(model), program.module()
    compare(own, (torch.randn(3, 8),), fulgurite.jit(own, strict=True), reference)
    step = fulgurite.train_step(own, nn.MSELoss(), torch.optim.SGD(own.parameters(), lr=0.1))
    x, y = torch.randn(3, 8), torch.randn(3, 4)
    near(step(x, y).detach(), nn.MSELoss()(reference(x), y).detach())


@pytest.mark.parametrize("core", [False, True], ids=["as exported", "core ATen"])
def test_results_that_come_with_positions(core):
    for function in (lambda x: F.adaptive_max_pool2d(x, 2), lambda x: F.adaptive_max_pool1d(x[0], 3),
                     lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True)):
        x = torch.randn(2, 3, 6, 6)
        compiled = fulgurite.jit(exported(models.Calls(function), (x,), core))
        found, expected = compiled(x), function(x)
        for ours, theirs in zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, expected)),
                                strict=True):
            near(ours, theirs)


def test_a_call_without_gradients_stays_one_where_pytorch_computes_it():
    compiled = fulgurite.jit(export(Parts(), (torch.randn(4, 3),), {"more": {"q": torch.ones(3)}}))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        compiled(torch.randn(4, 3), more={"q": torch.ones(3)})
        assert not torch.is_grad_enabled() and compiled.breaks


def test_constants_of_integers():
    class Picks(nn.Module):
        def forward(self, x):
            return x[:, torch.tensor([0, 2])] * torch.tensor([True, False])

    x = torch.randn(4, 3)
    near(fulgurite.jit(export(Picks(), (x,)), strict=True)(x), Picks()(x))


def test_every_core_operator_is_computed_or_has_its_reason():
    lacking = {}
    for name in torch._C._dispatch_get_all_op_names():
        base, _, overload = name.removeprefix("aten::").partition(".")
        packet = getattr(torch.ops.aten, base, None) if name.startswith("aten::") else None
        operator = getattr(packet, overload or "default", None)
        if operator is None or torch.Tag.core not in operator.tags or "out" in overload:
            continue
        reason = fulgurite.torch.why_not_operator(operator)
        if reason:
            lacking[str(operator)] = reason
    assert not [name for name, reason in lacking.items() if reason.startswith("no operator computes")], lacking
    assert 10 < len(lacking) < 25
