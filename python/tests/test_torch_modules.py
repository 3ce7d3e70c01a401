"""Modules of PyTorch as our programs: outputs and gradients are those of eager PyTorch."""

import copy
import gc

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import models  # noqa: E402
from beside import MODELS, compare, ids, near, trained  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", MODELS)
def test_outputs_gradients_and_buffers_are_those_of_pytorch(name):
    make, arguments = MODELS[name]
    model, arguments = make(), arguments()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model)
    # Twice: the second call finds the programs, and buffers have changed.
    compare(model, arguments, compiled, reference)
    compare(model, arguments, compiled, reference)
    assert compiled.breaks == [] and len(compiled.report.programs) == 1


@pytest.mark.parametrize("name", ["gpt", "resnet"])
def test_as_a_backend_of_torch_compile(name):
    make, arguments = MODELS[name]
    model, arguments = make(), arguments()
    before = len(fulgurite.torch.breaks())
    compare(model, arguments, torch.compile(model, backend="fulgurite"), copy.deepcopy(model))
    assert len(fulgurite.torch.breaks()) == before


def test_traces_have_parameters_scopes_and_executors():
    model = models.Gpt()
    compiled = fulgurite.jit(model)
    logits, loss = compiled(ids(2, 8), ids(2, 8))
    traces, text = fulgurite.last_traces(compiled), str(fulgurite.last_traces(compiled)["acquire"])
    assert text.startswith("# fulgurite trace 2\n# made by acquire\ntrace Gpt for cpu (\n  idx: i64[2, 8]")
    assert "transformer.h.0.attn.c_attn.weight: f32[48, 16]" in text
    assert "transformer.h.0.attn.scaled_dot_product_attention" in text
    assert any(executor == "cpu" for _, executor in traces[-1].symbols)
    backward = fulgurite.last_backward_traces(compiled)
    assert backward[0].stage == "split" and "cotangent" in str(backward[0])
    assert "by cpu" in fulgurite.explain(compiled) and "<iframe" in traces[0]._repr_html_()


def test_explain_says_what_to_call_where_nothing_was_compiled():
    compiled = fulgurite.jit(models.Mlp())
    with pytest.raises(fulgurite.Error, match=r"nothing was compiled of Mlp yet; call it .* first, compiled\("):
        fulgurite.explain(compiled)
    compiled(torch.randn(2, 8))
    assert "by cpu" in fulgurite.explain(compiled)


def test_an_optimizer_trains_it_as_eager():
    model = models.Gpt()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model)
    losses = [trained(run, each.parameters(), lambda: ids(2, 9), 6)
              for each, run in ((model, compiled), (reference, reference))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[0][-1] != losses[0][0] and compiled.breaks == []


def test_shapes_modes_and_inputs_that_want_gradients():
    model = models.Mlp()
    compiled = fulgurite.jit(model)
    for rows in (2, 5, 2, 7):
        x = torch.randn(rows, 8, requires_grad=True)
        compiled(x).sum().backward()
        grad, x.grad = x.grad, None
        model(x).sum().backward()
        near(grad, x.grad)
    with torch.no_grad():
        assert not compiled(torch.randn(2, 8)).requires_grad
    for parameter in model.layers[0].parameters():
        parameter.requires_grad_(False)
    model.zero_grad()
    compiled(torch.randn(2, 8)).sum().backward()
    assert model.layers[0].weight.grad is None and model.layers[2].weight.grad is not None
    x = torch.randn(6, 8).t().contiguous().t()
    near(compiled(x), model(x))
    half = copy.deepcopy(model).to(torch.bfloat16)
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    near(fulgurite.jit(half)(x).float(), half(x).float(), 3e-2)


class Breaks(nn.Module):
    """Has a function that no operator computes, between others."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = torch.tanh(self.a(x))
        x = torch.fft.fft(x).abs()
        return self.b(x)


def test_what_is_not_understood_is_left_to_pytorch_with_a_reason():
    model = Breaks()
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model)
    compare(model, (torch.randn(3, 4),), compiled, reference)
    names = [each.name for each in compiled.breaks]
    assert "fft_fft" in names and "no operator computes" in compiled.breaks[0].reason
    assert compiled.breaks[0].place.startswith(__file__) and "left to PyTorch: fft_fft" in compiled.explain()
    programs = [name for trace in compiled.last_traces() if trace.stage == "acquire" for name, _ in trace.symbols]
    assert programs.count("linear") == 2
    with pytest.raises(Exception, match="fft_fft.*no operator computes"):
        torch._dynamo.reset()
        fulgurite.jit(Breaks(), strict=True)(torch.randn(3, 4))


class OtherNames(nn.Module):
    """Calls itself otherwise than `self`."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(module, input):
        return module.fc(input)


@pytest.mark.parametrize("make, weight, line", [
    (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "arg0.weight", "0.linear"),
    (lambda: nn.Linear(4, 4), "weight", "linear"),
    (OtherNames, "fc.weight", "fc.linear"),
])
def test_names_of_modules_that_torch_compile_wraps_and_that_have_another_self(make, weight, line):
    model = make()
    for given in ((torch.randn(2, 4),), {"input": torch.randn(2, 4)}):
        torch._dynamo.reset()
        compiled = fulgurite.jit(model)
        near(*((each(**given) if isinstance(given, dict) else each(*given)) for each in (compiled, model)))
        text = str(compiled.last_traces()["acquire"])
        assert f"{weight}: f32[4, 4]" in text and ", input: f32[2, 4])" in text
        assert f"  {line} = linear(input, {weight if '.' not in weight else ''}" in text
        assert [each.inputs for each in compiled.cache_info()] == [{"input": (2, 4)}]
        assert str(fulgurite.Trace(text)) == text


def test_strict_refuses_a_graph_break():
    class Asks(nn.Module):
        def forward(self, x):
            torch._dynamo.graph_break()
            return x * 2

    with pytest.raises(fulgurite.Error, match=rf"strict=True.*graph_break.* at {__file__}"):
        fulgurite.jit(Asks(), strict=True)(torch.ones(3))


def test_options_that_are_not_there():
    model = nn.Linear(2, 2)
    with pytest.raises(Exception, match="no option 'autocas', did you mean 'autocast'"):
        torch.compile(model, backend="fulgurite", options={"autocas": "bfloat16"})(torch.ones(1, 2))
    found = torch.compile(model, backend="fulgurite", options={"executors": "default", "strict": True})
    near(found(torch.ones(1, 2)), model(torch.ones(1, 2)))
    with pytest.raises(fulgurite.ArgumentError, match=r"where its parameters are: use module.to\(device\)"):
        fulgurite.jit(model, device="cuda")
    compiled = fulgurite.jit(model)
    assert repr(compiled) == f"CompiledModule({model!r})"
    for jit in (fulgurite.jit, fulgurite.torch.jit):
        with pytest.raises(fulgurite.ArgumentError, match="the module is compiled already"):
            jit(compiled)


def test_a_value_that_python_needs_ends_the_graph():
    def f(x):
        if x.sum().item() > 0:
            return x * 2
        return x - 1

    compiled = fulgurite.jit(type("Asks", (nn.Module,), {"forward": lambda self, x: f(x)})())
    for x in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(compiled(x), f(x))
    assert [each.name for each in compiled.breaks] == ["torch.compile"] * len(compiled.breaks) != []


PATTERNS = {
    "lists between programs": lambda x: sum(torch.fft.fft(x).abs().unbind(1)) + torch.stack(torch.hsplit(x, 3)).sum(),
    "written parts": lambda x: (lambda y: (y[:, 1:].add_(1.0), y * 2)[1])(x * 1.0),
    "copied": lambda x: (lambda y: (y.copy_(x + 1), y * 3)[1])(torch.zeros_like(x)),
    "views written": lambda x: (lambda y, v: (v.add_(1.0), y + 0)[1])(*(lambda y: (y, y.view(-1)))(x * 1.0)),
    "masks": lambda x: x[x > 0].sum() + x.sum(),
    "dictionaries": lambda x: {"a": x * 2, "b": [x + 1, None, 3]}["b"][0],
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "extremes": lambda x: x.max() + x.max(-1).values + x.min() + torch.max(x, x * 2).sum(-1),
    "rolled": lambda x: x.roll(1, 0) + x.repeat(1, 1) + x.mT.mT,
    "grids": lambda x: torch.meshgrid(x[0], x[1], indexing="ij")[0],
    "in place": lambda x: x.mul(2).add_(1).relu_().sigmoid_(),
    "constants": lambda x: x + torch.tensor([1.0, 2.0, 3.0]),
    "methods of operators": lambda x: x.__eq__(1.0) | x.__lt__(0.5) | (x.__rsub__(2.0).__mul__(x) > 0),
    "integers": lambda x: (x > 0).long().sum() + x.argmax(-1) + x.shape[0],
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name):
    f = PATTERNS[name]
    compiled = fulgurite.jit(type("Pattern", (nn.Module,), {"forward": lambda self, x: f(x)})())
    for _ in range(2):
        x = torch.randn(2, 3)
        found, expected = compiled(x), f(x)
        assert found.dtype == expected.dtype and torch.allclose(found, expected, atol=1e-5)


class Refused(nn.Module):
    """An operator has the name, and refuses the arguments when it is traced."""

    def forward(self, x):
        y = torch.tanh(x * 2)
        z = y.view(torch.int32).view(torch.float32)
        return torch.exp(z) + 1


def test_a_refused_call_divides_the_graph_when_it_is_traced():
    compiled = fulgurite.jit(Refused())
    x = torch.randn(3)
    near(compiled(x), Refused()(x))
    assert [each.name for each in compiled.breaks] == ["view", "view"]
    assert all(each.reason and each.place.startswith(__file__) for each in compiled.breaks)
    near(compiled(x), Refused()(x))


class Writes(nn.Module):
    def __init__(self, into_view):
        super().__init__()
        self.into_view = into_view
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        y = x * 2
        if self.into_view:
            y.view(-1)[0:1].mul_(5)
        else:
            y.add_(1).mul_(3)
        return y + self.count


@pytest.mark.parametrize("into_view", [False, True])
def test_what_is_written_in_place_is_written(into_view):
    model, x = Writes(into_view), torch.randn(2, 3)
    reference, compiled = copy.deepcopy(model), fulgurite.jit(model)
    for _ in range(3):
        near(compiled(x), reference(x))
        assert model.count == reference.count
    assert bool(compiled.breaks) == into_view


def test_dropout_draws_by_pytorchs_seed():
    model = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5))
    compiled, x = fulgurite.jit(model), torch.ones(8, 64)
    torch.manual_seed(3)
    a, b = compiled(x), compiled(x)
    torch.manual_seed(3)
    c = compiled(x)
    assert torch.equal(a, c) and not torch.equal(a, b)
    assert 0.3 < (a == 0).float().mean() < 0.7 and compiled.breaks == []
    model.eval()
    before = torch.get_rng_state()
    near(compiled(x), model(x))
    assert torch.equal(torch.get_rng_state(), before)


class Floors(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + x // 0.5


def test_an_operator_without_gradient_is_left_to_pytorch():
    compiled, x = fulgurite.jit(Floors()), torch.randn(4, requires_grad=True)
    near(compiled(x), Floors()(x))
    assert [each.name for each in compiled.breaks] == ["floordiv"] and "no gradient" in compiled.breaks[0].reason
    with torch.no_grad():
        near(fulgurite.jit(Floors())(x), Floors()(x))


def test_a_second_derivative_is_an_error():
    compiled, x = fulgurite.jit(models.Mlp()), torch.randn(2, 8, requires_grad=True)
    first, = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_two_inputs_with_one_gradient_have_their_own():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a * 2 + b * 2

    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    compiled = fulgurite.jit(Sum())
    for _ in range(2):
        compiled(a, b).sum().backward()
    assert a.grad.tolist() == b.grad.tolist() == [4.0] * 3


def test_a_parameter_changed_before_backward_is_an_error():
    model = models.Mlp()
    loss = fulgurite.jit(model)(torch.randn(2, 8)).sum()
    with torch.no_grad():
        model.layers[2].weight.add_(1.0)
    with pytest.raises(RuntimeError, match="layers.2.weight.*changed in place after the forward pass"):
        loss.backward()


def test_a_compiled_module_has_what_the_module_has():
    model = models.Mlp()
    compiled = fulgurite.jit(model)
    assert compiled.module is model and list(compiled.state_dict()) == list(model.state_dict())
    assert compiled.train(False) is compiled and not model.training
    compiled.training = True
    assert model.training
    with pytest.raises(AttributeError):
        compiled.nothing


def test_executors_and_transforms_are_those_asked_for():
    seen = []

    def look(trace):
        seen.append(trace.stage)
        return trace

    compiled = fulgurite.jit(models.Mlp(), executors=["cpu"], transforms=[look])
    compiled(torch.randn(2, 8))
    assert seen and {executor for _, executor in compiled.last_traces()[-1].symbols} <= {"cpu", "view", None}


def test_tables_have_a_reason_or_a_function():
    assert all(callable(each) for each in fulgurite.torch.TABLE.values())
    assert not set(fulgurite.torch.TABLE) & set(fulgurite.torch.REASONS)
    assert all(reason and not reason.endswith(".") for reason in fulgurite.torch.REASONS.values())


@pytest.mark.parametrize("name", ["plain", "with statistics"])
def test_instance_normalization(name):
    model = nn.InstanceNorm1d(4) if name == "plain" else nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
    shape = (2, 4, 5) if name == "plain" else (2, 4, 5, 3)
    reference = copy.deepcopy(model)
    compiled = fulgurite.jit(model, strict=True)
    for training in (True, True, False):
        model.train(training)
        reference.train(training)
        x = torch.randn(shape)
        near(compiled(x), reference(x))
        for ours, theirs in zip(model.buffers(), reference.buffers()):
            near(ours, theirs)


def test_functions_with_another_order_of_arguments():
    w, b = torch.rand(4), torch.rand(4)
    for function in (lambda x: torch.batch_norm(x, w, b, torch.zeros(4), torch.ones(4), False, 0.1, 1e-5, True),
                     lambda x: torch.instance_norm(x, w, b, None, None, True, 0.1, 1e-5, True),
                     lambda x: F.batch_norm(x, running_mean=torch.zeros(4), running_var=torch.ones(4), training=True)):
        torch._dynamo.reset()
        compiled, x = fulgurite.jit(models.Calls(function), strict=True), torch.randn(3, 4, 5)
        near(compiled(x), function(x))


def test_a_function_with_another_number_of_results_is_left_to_pytorch():
    # `torch.median` has two results.
    compiled, x = fulgurite.jit(models.Calls(lambda x: torch.masked.median(x, 1) * 2)), torch.randn(3, 4)
    near(compiled(x), torch.masked.median(x, 1) * 2)
    assert "PyTorch has one result, the operator 2" in str(compiled.breaks)


def test_pytorchs_generator_is_left_where_nothing_is_drawn():
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True).eval()
    for function in (lambda x: F.normalize(x, dim=1), lambda x: F.rrelu(x),
                     lambda x: attention(x[None], x[None], x[None], need_weights=True)[0]):
        torch._dynamo.reset()
        compiled, x = fulgurite.jit(models.Calls(function)), torch.randn(3, 8)
        near(compiled(x), function(x), 1e-4)
        before = torch.get_rng_state()
        compiled(x)
        assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_are_computed_in_their_type_and_meet_as_pytorchs_do(dtype):
    def function(x, y):
        # Sums leave the range of narrow types, and their low bits are kept.
        wrapped = (x + x) * 3 - y
        return wrapped, x // 7, x % 5, x << 1, x.sum(), x.float() / 3, wrapped < x, x + y.to(torch.uint8), x.short()

    compiled = fulgurite.jit(models.Calls(function), strict=True)
    info = torch.iinfo(dtype)
    low, high = max(info.min, -(2**40)), min(info.max, 2**40)
    x = torch.tensor([high, high - 1, low, low + 1, 1, 7, 9], dtype=dtype)
    y = torch.tensor([3, 100, 5, 7, 1, 2, 4], dtype=dtype)
    exported = fulgurite.jit(torch.export.export(models.Calls(lambda x: ((x & 6) | 1, x >> 1, x.clamp_min(3))), (x,)),
                             strict=True)
    for found, expected in zip((*compiled(x, y), *exported(x)), (*function(x, y), (x & 6) | 1, x >> 1, x.clamp_min(3)),
                               strict=True):
        assert found.dtype == expected.dtype and torch.equal(found, expected)


#: Whether Python's collector runs, whenever PyTorch asks what `noted` returns.
NOTED: list[bool] = []


@torch.library.custom_op("fulgurite_tests_modules::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@noted.register_fake
def _(x):
    NOTED.append(gc.isenabled())
    return torch.empty_like(x)


@pytest.mark.parametrize("running", [True, False])
def test_the_collector_of_cycles_rests_while_a_module_is_captured(running):
    # Also a backend's part is seen: it traces with the collector as it was.
    compiling = []
    compiled = fulgurite.jit(models.Calls(lambda x: noted(x.sin()) * 2),
                             transforms=[lambda trace: compiling.append(gc.isenabled()) or trace])
    x = torch.randn(3)
    NOTED.clear()
    try:
        if not running:
            gc.disable()
        assert torch.allclose(compiled(x), x.sin() * 2, atol=1e-6)
        assert gc.isenabled() == running and compiled(x).shape == (3,)
    finally:
        gc.enable()
    assert NOTED and not any(NOTED) and compiling and set(compiling) == {running}


def test_the_collector_of_cycles_goes_on_after_an_error():
    compiled = fulgurite.jit(nn.Linear(4, 2))
    for _ in range(2):
        with pytest.raises(Exception, match="shape|size"):
            compiled(torch.randn(3, 5))
        assert gc.isenabled()
    assert compiled(torch.randn(3, 4)).shape == (3, 2) and gc.isenabled()
