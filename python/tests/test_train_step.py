"""Training steps as one program: losses, parameters, buffers and optimizers' states are those of eager PyTorch."""

import copy
import gc

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import models  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import fulgurite  # noqa: E402
import fulgurite.torch  # noqa: E402


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()


def close(a, b, tolerance=1e-5):
    assert a.dtype == b.dtype and a.shape == b.shape
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def same_state(ours, theirs, tolerance=1e-5):
    """Whether two states of optimizers are equal, of the same keys and types."""
    ours, theirs = ours.state_dict(), theirs.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert ours["state"].keys() == theirs["state"].keys()
    for key, state in theirs["state"].items():
        assert ours["state"][key].keys() == state.keys()
        for name, value in state.items():
            found = ours["state"][key][name]
            if isinstance(value, torch.Tensor):
                assert found.device == value.device
                close(found, value, tolerance)
            else:
                assert found == value


class Eager:
    """A step as PyTorch's users write it."""

    def __init__(self, module, loss, optimizer, max_norm=None, accumulate=1):
        self.module, self.loss, self.optimizer = module, loss, optimizer
        self.max_norm, self.accumulate, self.calls, self.norm = max_norm, accumulate, 0, None

    def __call__(self, *batch):
        if self.calls % self.accumulate == 0:
            self.optimizer.zero_grad()
        value = self.loss(self.module, *batch)
        (value / self.accumulate).backward()
        self.calls += 1
        if self.calls % self.accumulate == 0:
            if self.max_norm is not None:
                params = [each for group in self.optimizer.param_groups for each in group["params"]]
                self.norm = nn.utils.clip_grad_norm_(params, self.max_norm)
            self.optimizer.step()
        return value.detach()


def compared(module, loss, make, batches, tolerance=1e-5, between=None, of_states=None, **options):
    """Steps of both kinds side by side; returns ours. ``of_states`` is the tolerance of the optimizer's states."""
    theirs = copy.deepcopy(module)
    pointers = {name: each.data_ptr() for name, each in module.named_parameters()}
    before = dict(module.named_parameters())
    optimizer, other = make(module), make(theirs)
    step = fulgurite.train_step(module, loss, optimizer, **options)
    eager = Eager(theirs, loss, other, **{k: v for k, v in options.items() if k in ("max_norm", "accumulate")})
    for number, batch in enumerate(batches):
        value = step(*batch)
        assert not value.requires_grad
        close(value, eager(*batch), tolerance)
        if options.get("max_norm") is not None and step.grad_norm is not None:
            close(step.grad_norm, eager.norm, tolerance)
        if between is not None:
            between(number, module, optimizer)
            between(number, theirs, other)
    for (name, ours), (_, expected) in zip(module.named_parameters(), theirs.named_parameters()):
        assert ours is before[name] and ours.data_ptr() == pointers[name], name
        close(ours.detach(), expected.detach(), tolerance)
    for (name, ours), (_, expected) in zip(module.named_buffers(), theirs.named_buffers()):
        close(ours, expected, tolerance)
    same_state(optimizer, other, of_states or tolerance)
    return step


def regression(module, x, y):
    return F.mse_loss(module(x), y)


def classification(module, x, y):
    return F.cross_entropy(module(x), y)


def batches(count=6, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(5, 8, generator=generator), torch.randn(5, 4, generator=generator)) for _ in range(count)]


def tokens(count=6):
    generator = torch.Generator().manual_seed(5)
    ids = [torch.randint(0, 32, (2, 13), generator=generator) for _ in range(count)]
    return [(each[:, :-1].contiguous(), each[:, 1:].contiguous()) for each in ids]


def groups(module):
    """Weight decay for matrices alone, as GPT's training scripts have it."""
    params = [each for each in module.parameters() if each.requires_grad]
    return [{"params": [each for each in params if each.dim() >= 2], "weight_decay": 0.1},
            {"params": [each for each in params if each.dim() < 2], "weight_decay": 0.0, "lr": 3e-3}]


OPTIMIZERS = {
    "adamw": lambda m: torch.optim.AdamW(groups(m), lr=1e-3, betas=(0.9, 0.95)),
    "adamw_fused": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, fused=True),
    "adamw_foreach": lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, foreach=True, maximize=True),
    "adam": lambda m: torch.optim.Adam(groups(m), lr=1e-3),
    "adam_decoupled": lambda m: torch.optim.Adam(m.parameters(), lr=1e-3, weight_decay=0.1,
                                                 decoupled_weight_decay=True),
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=1e-2),
    "sgd_momentum": lambda m: torch.optim.SGD(groups(m), lr=1e-2, momentum=0.9),
    "sgd_nesterov": lambda m: torch.optim.SGD(m.parameters(), lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.1),
    "sgd_dampened": lambda m: torch.optim.SGD(m.parameters(), lr=1e-2, momentum=0.9, dampening=0.5, maximize=True),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), lr=1e-3, weight_decay=0.1),
    "rmsprop_centered": lambda m: torch.optim.RMSprop(m.parameters(), lr=1e-3, centered=True, momentum=0.9),
    "adagrad": lambda m: torch.optim.Adagrad(m.parameters(), lr=1e-2, lr_decay=0.1, initial_accumulator_value=0.1),
    "adadelta": lambda m: torch.optim.Adadelta(m.parameters(), lr=0.5, weight_decay=0.01),
    "adamax": lambda m: torch.optim.Adamax(groups(m), lr=1e-3),
    "adafactor": lambda m: torch.optim.Adafactor(m.parameters(), lr=1e-2, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_those_of_pytorch(name):
    step = compared(models.Mlp(), regression, OPTIMIZERS[name], batches())
    assert step.compiles == 1
    # Adafactor's sums over rows and columns are in regions that write elsewhere: these are copied back.
    elsewhere = {path.split(".")[0] for path, why in step.donations().items() if why != "updated in place"}
    assert elsewhere <= ({"row_var", "col_var", "variance"} if name == "adafactor" else set())


def test_a_gpt():
    def loss(model, x, y):
        return model(x, y)[1]

    # The gradient of a key's bias is zero but for roundings, which a small eps would make steps of.
    def make(module):
        return torch.optim.AdamW(groups(module), lr=1e-3, betas=(0.9, 0.95), eps=1e-5)

    step = compared(models.Gpt(), loss, make, tokens(), max_norm=0.5)
    assert step.compiles == 1
    text = str(step.last_traces()[-1])
    assert "donated" in text and "optim.transformer.wte.weight" in text
    assert "value_and_grad" in str(step.last_traces()["acquire"])
    assert "adamw" in step.explain()


def test_a_resnet_with_running_statistics():
    generator = torch.Generator().manual_seed(5)
    data = [(torch.randn(4, 3, 8, 8, generator=generator), torch.randint(0, 4, (4,), generator=generator))
            for _ in range(6)]
    # Gradients behind a normalization over few elements are small differences of large numbers: sums of them are
    # compared in f32 with a tolerance of their own, and in f64 as all else.
    compared(models.ResNet(), classification, OPTIMIZERS["sgd_momentum"], data, of_states=1e-3)
    torch._dynamo.reset()
    data = [(x.double(), y) for x, y in data]
    compared(models.ResNet().double(), classification, OPTIMIZERS["sgd_momentum"], data, 1e-9)


def test_a_run_repeats_bit_for_bit():
    def run():
        torch._dynamo.reset()
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        step = fulgurite.train_step(model, nn.MSELoss(), optimizer)
        losses = [step(*batch) for batch in batches()]
        return [*losses, *model.state_dict().values(),
                *(value for state in optimizer.state.values() for value in state.values())]

    first, second = run(), run()
    assert all(torch.equal(a, b) for a, b in zip(first, second)) and len(first) == len(second)
    # Dropout drew something else in each step.
    assert len({value.item() for value in first[:6]}) == 6


@pytest.mark.filterwarnings("error:.*lr_scheduler")
def test_the_learning_rate_is_read_at_each_step():
    schedules = {}

    def make(module):
        optimizer = OPTIMIZERS["adamw"](module)
        schedules[optimizer] = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
        return optimizer

    step = compared(models.Mlp(), regression, make, batches(), between=lambda _, __, own: schedules[own].step())
    assert step.compiles == 1


def test_settings_and_states_that_change_between_steps():
    def between(number, module, optimizer):
        if number == 1:
            optimizer.param_groups[0]["weight_decay"] = 0.3
        if number == 2:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        if number == 3:
            with torch.no_grad():
                module.layers[0].weight.mul_(0.5)
        if number == 4:
            for state in optimizer.state.values():
                state["exp_avg"].zero_()
                state["step"].fill_(1.0)

    step = compared(models.Mlp(), regression, OPTIMIZERS["adamw"], batches(), between=between)
    assert step.compiles == 2


def test_a_checkpoint_goes_on_in_pytorch_and_back():
    model = models.Mlp()
    theirs = copy.deepcopy(model)
    data = batches()
    optimizer, other = OPTIMIZERS["adamw"](model), OPTIMIZERS["adamw"](theirs)
    step, eager = fulgurite.train_step(model, regression, optimizer), Eager(theirs, regression, other)
    for batch in data[:2]:
        step(*batch)
        eager(*batch)
    own = Eager(model, regression, optimizer)
    own(*data[2])
    eager(*data[2])
    for batch in data[3:]:
        step(*batch)
        eager(*batch)
    for ours, expected in zip(model.parameters(), theirs.parameters()):
        close(ours.detach(), expected.detach())
    same_state(optimizer, other)


def test_gradients_are_accumulated():
    for count in (2, 3):
        torch._dynamo.reset()
        step = compared(models.Mlp(), regression, OPTIMIZERS["adamw"], batches(6), accumulate=count, max_norm=0.1)
        assert step.compiles == min(count, 3)


def test_gradients_while_they_are_accumulated_are_the_parameters_grad():
    model = models.Mlp()
    theirs = copy.deepcopy(model)
    step = fulgurite.train_step(model, regression, OPTIMIZERS["sgd"](model), accumulate=3)
    for batch in batches(2):
        step(*batch)
        (regression(theirs, *batch) / 3).backward()
    for ours, expected in zip(model.parameters(), theirs.parameters()):
        close(ours.grad, expected.grad)
    model.zero_grad()
    with pytest.raises(fulgurite.Error, match="taken away"):
        step(*batches(1)[0])
    step.restart()
    for batch in batches(3):
        step(*batch)
    assert all(each.grad is None for each in model.parameters())


class Partial(nn.Module):
    """Parameters that are frozen, unused, or reach no gradient."""

    def __init__(self):
        super().__init__()
        self.used, self.frozen, self.unused = nn.Linear(8, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.cut, self.shape = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(5, 4))
        self.frozen.requires_grad_(False)

    def forward(self, x):
        y = self.frozen(self.used(x)) * self.cut.detach()
        return y.sum(-1, keepdim=True).expand_as(self.shape)


def test_parameters_without_a_gradient_stay_as_they_are():
    step = compared(Partial(), regression, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2, weight_decay=0.5),
                    batches())
    assert len(step.optimizer.state) == 2


def test_requires_grad_that_changes():
    def between(number, module, optimizer):
        module.layers[0].requires_grad_(number % 2 == 1)

    compared(models.Mlp(), regression, OPTIMIZERS["adamw"], batches(), between=between)


def test_evaluation_and_training_mode():
    def between(number, module, optimizer):
        module.train(number % 2 == 1)

    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
    compared(model, regression, OPTIMIZERS["sgd_momentum"], batches(), between=between)


def test_batches_of_other_sizes():
    generator = torch.Generator().manual_seed(5)
    data = [(torch.randn(n, 8, generator=generator), torch.randn(n, 4, generator=generator)) for n in (5, 3, 5, 1, 3)]
    step = compared(models.Mlp(), regression, OPTIMIZERS["adamw"], data)
    assert step.compiles == 3


def test_parameters_in_other_layouts():
    class Strided(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            self.turned = nn.Parameter(torch.randn(4, 36).t())
            self.empty = nn.Parameter(torch.zeros(0, 4))
            self.scalar = nn.Parameter(torch.tensor(0.5))

        def forward(self, x):
            y = self.conv(x.reshape(1, 3, 5, 8).expand(5, 3, 5, 8)[..., :5])
            return y.reshape(5, 36) @ self.turned * self.scalar + self.empty.sum(0)

    generator = torch.Generator().manual_seed(5)
    data = [(torch.randn(3, 40, generator=generator), torch.randn(5, 4, generator=generator)) for _ in range(5)]
    compared(Strided(), regression, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2), data)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types(dtype):
    data = [(x.to(dtype), y.to(dtype)) for x, y in batches()]
    tolerance = 3e-2 if dtype == torch.bfloat16 else 1e-9
    compared(models.Mlp().to(dtype), regression, lambda m: torch.optim.AdamW(m.parameters(), lr=1e-3, fused=True), data,
             tolerance)


def test_autocast_of_our_own():
    model = models.Mlp()
    step = fulgurite.train_step(model, regression, OPTIMIZERS["adamw"](model), autocast="bfloat16")
    losses = [step(*batches(1)[0]).item() for _ in range(20)]
    assert losses[-1] < losses[0] and all(each.dtype == torch.float32 for each in model.parameters())
    assert "bf16" in str(step.last_traces()[-1])
    with pytest.raises(fulgurite.Error, match="autocast="), torch.autocast("cpu", dtype=torch.bfloat16):
        step(*batches(1)[0])


def test_losses_of_other_forms():
    def both(model, x, y):
        out = model(x)
        return F.mse_loss(out, y), out.argmax(-1), {"out": out}

    data = batches(3)
    for loss in (both, nn.MSELoss(), regression):
        torch._dynamo.reset()
        torch.manual_seed(4)
        model = models.Mlp()
        theirs = copy.deepcopy(model)
        eager = Eager(theirs, regression, OPTIMIZERS["sgd"](theirs))
        step = fulgurite.train_step(model, loss, OPTIMIZERS["sgd"](model))
        for x, y in data:
            expected = theirs(x).detach()
            value = step(x, y)
            if loss is both:
                value, best, rest = value
                assert torch.equal(best, expected.argmax(-1))
                close(rest["out"], expected)
                assert not rest["out"].requires_grad
            close(value, eager(x, y))

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = models.Mlp()

        def forward(self, x, y):
            return F.mse_loss(self.inner(x), y)

    compared(Own(), lambda m, x, y: m(x, y), OPTIMIZERS["sgd"], data)
    model = Own()
    step = fulgurite.train_step(model, None, OPTIMIZERS["sgd"](model))
    assert step(*data[0]) > step(*data[0])


def test_our_own_optimizers_by_name():
    model = models.Mlp()
    step = fulgurite.train_step(model, regression, "lion", lr=1e-3, weight_decay=0.1)
    params = [each.detach().clone() for each in model.parameters()]
    means = [torch.zeros_like(each) for each in params]
    for batch in batches():
        shadow = copy.deepcopy(model)
        regression(shadow, *batch).backward()
        step(*batch)
        for i, each in enumerate(shadow.parameters()):
            change = (0.9 * means[i] + 0.1 * each.grad).sign()
            params[i] = params[i] * (1 - 1e-3 * 0.1) - 1e-3 * change
            means[i] = 0.99 * means[i] + 0.01 * each.grad
    for ours, expected in zip(model.parameters(), params):
        close(ours.detach(), expected)
    state = step.optimizer.state_dict()
    assert set(state["state"][0]) == {"exp_avg"} and state["param_groups"][0]["lr"] == 1e-3
    with pytest.raises(fulgurite.ArgumentError, match="no setting 'momentum'"):
        fulgurite.train_step(model, regression, "lion", lr=1e-3, momentum=0.9)
    with pytest.raises(fulgurite.ArgumentError, match="no operator that updates"):
        fulgurite.train_step(model, regression, "relu", lr=1e-3)


# What is refused, with the reason. Nothing has changed afterwards.


def refused(match, model, loss, optimizer, *batch, **options):
    before = copy.deepcopy(model.state_dict())
    states = copy.deepcopy(optimizer.state_dict()) if isinstance(optimizer, torch.optim.Optimizer) else None
    with pytest.raises(fulgurite.Error, match=match):
        fulgurite.train_step(model, loss, optimizer, **options)(*batch)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    if states is not None:
        assert optimizer.state_dict() == states


def test_what_an_optimizer_may_not_be():
    batch = batches(1)[0]
    model = models.Mlp()
    params = list(model.parameters())

    class Mine(torch.optim.AdamW):
        pass

    refused("amsgrad", model, regression, torch.optim.AdamW(params, amsgrad=True), *batch)
    refused("no operator computes it", model, regression, Mine(params), *batch)
    refused("no operator computes it", model, regression, torch.optim.NAdam(params), *batch)
    refused("bfloat16", model, regression, torch.optim.Muon([params[0]]), *batch)
    refused("none of the optimizer's", model, regression, torch.optim.AdamW(models.Mlp().parameters()), *batch)
    with pytest.raises(fulgurite.ArgumentError, match="expected one of torch.optim"):
        fulgurite.train_step(model, regression, 3)
    with pytest.raises(fulgurite.ArgumentError, match="no argument 'lr'"):
        fulgurite.train_step(model, regression, torch.optim.AdamW(params), lr=3)
    hooked = torch.optim.AdamW(params)
    hooked.register_step_post_hook(lambda *_: None)
    refused("hooks around its step", model, regression, hooked, *batch)
    twice = torch.optim.AdamW(params)
    twice.param_groups.append({**twice.param_groups[0], "params": [params[0]]})
    refused("in two groups", model, regression, twice, *batch)


def test_what_is_misspelt_or_in_another_place_is_said():
    model = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(fulgurite.ArgumentError, match="has no argument 'maxnorm', did you mean 'max_norm'"):
        fulgurite.train_step(model, nn.MSELoss(), optimizer, maxnorm=1.0)
    with pytest.raises(fulgurite.ArgumentError, match="the module itself, not what jit returned"):
        fulgurite.train_step(fulgurite.jit(model), nn.MSELoss(), optimizer)
    with pytest.raises(fulgurite.ArgumentError, match="the loss is of the type SGD, expected a function"):
        fulgurite.train_step(model, optimizer, nn.MSELoss())
    step = fulgurite.train_step(model, nn.MSELoss(), optimizer, executors="default")
    assert step(torch.ones(2, 3), torch.ones(2, 3)).shape == ()


def test_a_graph_break_is_an_error_with_its_reason():
    batch = batches(1)[0]

    def printed(model, x, y):
        out = model(x)
        torch._dynamo.graph_break()
        return F.mse_loss(out, y)

    def item(model, x, y):
        out = model(x)
        return F.mse_loss(out, y) * (2.0 if out.sum().item() > 0 else 1.0)

    def unknown(model, x, y):
        return F.mse_loss(torch.fft.fft(model(x)).abs(), y)

    for loss, match in ((printed, "one graph"), (item, "one program"), (unknown, "fft")):
        torch._dynamo.reset()
        model = models.Mlp()
        refused(match, model, loss, torch.optim.AdamW(model.parameters()), *batch)


def test_losses_that_are_none():
    batch = batches(1)[0]
    model = models.Mlp()
    refused("expected one element", model, lambda m, x, y: m(x) - y, torch.optim.AdamW(model.parameters()), *batch)
    refused("no parameter has a gradient", model, lambda m, x, y: F.mse_loss(m(x).detach(), y),
            torch.optim.AdamW(model.parameters()), *batch)
    with pytest.raises(fulgurite.ArgumentError, match="the loss is 3"):
        fulgurite.train_step(model, 3, torch.optim.AdamW(model.parameters()))


def test_hooks_and_shared_memory_are_refused():
    batch = batches(1)[0]
    model = models.Mlp()
    handle = model.layers[0].weight.register_hook(lambda gradient: gradient * 2)
    refused("hook on its gradient", model, regression, torch.optim.SGD(model.parameters()), *batch)
    handle.remove()
    handle = model.layers[0].register_full_backward_hook(lambda *_: None)
    refused("hook on its backward", model, regression, torch.optim.SGD(model.parameters()), *batch)
    handle.remove()
    model.layers[4].bias.data = model.layers[0].bias.data[2:6]
    refused("share memory", model, regression, torch.optim.SGD(model.parameters()), *batch)


def test_a_parameter_that_is_replaced_after_the_optimizer_was_made():
    model = models.Mlp()
    step = fulgurite.train_step(model, regression, OPTIMIZERS["adamw"](model))
    step(*batches(1)[0])
    model.layers[0].weight = nn.Parameter(torch.randn(16, 8))
    with pytest.raises(fulgurite.Error, match="'layers.0.weight' of the module is not one of the optimizer's"):
        step(*batches(1)[0])


def test_a_module_that_is_moved_or_given_other_memory_between_steps():
    def between(number, module, optimizer):
        if number == 1:
            module.double()
            module.float()
        if number == 2:
            module.layers[0].weight.data = module.layers[0].weight.data.clone()

    model = models.Mlp()
    theirs = copy.deepcopy(model)
    optimizer, other = OPTIMIZERS["adamw"](model), OPTIMIZERS["adamw"](theirs)
    step, eager = fulgurite.train_step(model, regression, optimizer), Eager(theirs, regression, other)
    for number, batch in enumerate(batches()):
        close(step(*batch), eager(*batch))
        between(number, model, optimizer)
        between(number, theirs, other)
    for ours, expected in zip(model.parameters(), theirs.parameters()):
        close(ours.detach(), expected.detach())


def test_arguments_that_have_memory_of_the_state():
    """Both sides read the old values."""
    def loss(model, rows, y):
        return F.mse_loss(model(rows), y) + model.layers[0].weight.sum() * rows.mean()

    model = models.Mlp()
    theirs = copy.deepcopy(model)
    step = fulgurite.train_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))
    eager = Eager(theirs, loss, torch.optim.SGD(theirs.parameters(), lr=0.1))
    y = batches(1)[0][1]
    for _ in range(4):
        close(step(model.layers[0].weight.detach()[:5], y), eager(theirs.layers[0].weight.detach()[:5].clone(), y))
    for ours, expected in zip(model.parameters(), theirs.parameters()):
        close(ours.detach(), expected.detach())


def test_a_change_of_parameters_is_seen_by_autograd():
    model = models.Mlp()
    step = fulgurite.train_step(model, regression, OPTIMIZERS["sgd"](model))
    x, y = batches(1)[0]
    value = regression(model, x, y)
    step(x, y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.norm, self.head = nn.Embedding(8, 4), nn.BatchNorm1d(4), nn.Linear(4, 8)

    def forward(self, ids):
        return self.head(self.norm(self.wte(ids)))


def test_a_step_that_fails_on_its_data_leaves_the_state_as_it_was():
    model = Tokens()
    theirs = copy.deepcopy(model)
    optimizer, other = OPTIMIZERS["adamw"](model), OPTIMIZERS["adamw"](theirs)
    step, eager = fulgurite.train_step(model, classification, optimizer), Eager(theirs, classification, other)
    good = (torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6]))
    for wrong in ((torch.tensor([1, 2, 9]), good[1]), (good[0], torch.tensor([1, 2, 11]))):
        before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        with pytest.raises(fulgurite.Error, match="11|9") as raised:
            step(*wrong)
        assert raised.value.code != "Lost"
        assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())
        assert str(optimizer.state_dict()) == str(before[1])
        close(step(*good), eager(*good))
    same_state(optimizer, other)


def test_a_step_that_was_interrupted_while_it_wrote_says_that_the_state_is_lost(monkeypatch):
    from fulgurite.torch import _optim

    model = models.Mlp()
    step = fulgurite.train_step(model, regression, OPTIMIZERS["adamw"](model))
    batch = batches(1)[0]
    step(*batch)

    def interrupted(slots):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_optim, "counted", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(*batch)
    for _ in range(2):
        with pytest.raises(fulgurite.Error, match="Load both") as raised:
            step(*batch)
        assert raised.value.code == "Lost"
    step.reset()
    step(*batch)


def test_memory_stays_that_of_the_module_when_the_step_is_gone():
    model = models.Mlp()
    step = fulgurite.train_step(model, regression, OPTIMIZERS["adamw"](model))
    step(*batches(1)[0])
    values = [each.detach().clone() for each in model.parameters()]
    del step
    torch._dynamo.reset()
    gc.collect()
    assert all(torch.equal(each, value) for each, value in zip(model.parameters(), values))
    weight = model.layers[0].weight
    del model
    gc.collect()
    assert torch.equal(weight, values[0])


@pytest.mark.parametrize("of", ["gradient", "accumulated gradient", "optimizer"])
def test_hooks_that_come_later_are_refused(of):
    model = models.Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step, batch = fulgurite.train_step(model, regression, optimizer), batches(1)[0]
    step(*batch)
    before = copy.deepcopy(model.state_dict())
    if of == "gradient":
        model.layers[0].weight.register_hook(lambda gradient: gradient * 0)
    elif of == "accumulated gradient":
        model.layers[0].weight.register_post_accumulate_grad_hook(lambda param: None)
    else:
        optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(fulgurite.Error, match="hook"):
        step(*batch)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_states_with_other_memory_are_seen():
    def between(number, module, optimizer):
        if number == 1:
            for state in optimizer.state.values():
                state["exp_avg"].data = torch.full_like(state["exp_avg"], 0.01)

    compared(models.Mlp(), regression, lambda m: torch.optim.Adam(m.parameters(), lr=1e-2), batches(4), 1e-4,
             between)


def test_calls_of_one_step_that_reach_other_parameters():
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x, both):
            return self.a(x) + self.b(x) if both else self.a(x)

    model = Either()
    loss = lambda module, x, y, both: F.mse_loss(module(x, both), y)  # noqa: E731
    step = fulgurite.train_step(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), accumulate=2)
    batch = batches(1)[0]
    step(*batch, True)
    with pytest.raises(fulgurite.Error, match="made a gradient of 'b.weight', which this loss does not reach"):
        step(*batch, False)
    # The other call of the step is one that reaches both.
    step(*batch, True)
    assert all(each.grad is None for each in model.parameters())
