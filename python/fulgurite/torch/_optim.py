"""PyTorch's optimizers as operators: states, settings, and what is refused. Optimizers of ours for PyTorch's users."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

import torch

from .. import ops
from .._errors import ArgumentError, Error, meant

#: Arguments of an update that are no settings: tensors, and the numbers of a step.
_NUMBERS = ("lr", "step")


class Update(NamedTuple):
    """How one parameter of a group is updated."""

    #: The operator's name.
    operator: str
    #: Its settings; a change of them is another program.
    settings: tuple
    #: The names of its states, which are those in the optimizer's ``state``, and their shapes.
    states: tuple
    #: Whether the gradient is negated before anything else.
    maximize: bool = False


def _shape(param) -> tuple:
    return tuple(param.shape)


def _states(operator: str, settings: dict, param) -> tuple:
    """The states that an operator has for a parameter, with their shapes."""
    own = _shape(param)
    if operator == "adafactor":
        if len(own) > 1:
            return (("row_var", (*own[:-1], 1)), ("col_var", (*own[:-2], 1, own[-1])))
        return (("variance", own),)
    left = {
        "sgd": {"momentum_buffer"} if not settings.get("momentum", 0.0) else set(),
        "rmsprop": ({"momentum_buffer"} if not settings.get("momentum", 0.0) else set())
        | ({"grad_avg"} if not settings.get("centered", False) else set()),
    }.get(operator, set())
    params = getattr(ops, operator).operator.params[2:]
    names = [name for name, kind, *_ in params if kind in ("tensor", "optional")]
    return tuple((name, own) for name in names if name not in (*_NUMBERS, "apply") and name not in left)


def _of(operator: str, settings: dict, param, maximize: bool = False) -> Update:
    states = _states(operator, settings, param)
    settings = {name: value for name, value in settings.items() if name != "centered"}
    return Update(operator, tuple(sorted(settings.items())), states, maximize)


def _adam(group, param) -> Update:
    beta1, beta2 = (float(beta) for beta in group["betas"])
    settings = dict(beta1=beta1, beta2=beta2, eps=float(group["eps"]), weight_decay=float(group["weight_decay"]))
    operator = "adamw" if group.get("decoupled_weight_decay", False) else "adam"
    return _of(operator, settings, param, group["maximize"])


def _adamw(group, param) -> Update:
    return _adam({"decoupled_weight_decay": True, **group}, param)


def _adamax(group, param) -> Update:
    return _adam(group, param)._replace(operator="adamax", states=_states("adamax", {}, param))


def _plain(operator: str, *names: str, **renamed: str) -> Callable:
    """Settings of the same names, or of other names in PyTorch."""

    def update(group, param) -> Update:
        settings = {name: group[name] for name in names}
        settings.update({ours: group[theirs] for ours, theirs in renamed.items()})
        settings = {name: value if isinstance(value, (bool, int)) else float(value)
                    for name, value in settings.items()}
        return _of(operator, settings, param, group.get("maximize", False))

    return update


def _adafactor(group, param) -> Update:
    eps1, eps2 = group["eps"]
    settings = dict(beta2_decay=float(group["beta2_decay"]), eps1=None if eps1 is None else float(eps1),
                    eps2=float(eps2), d=float(group["d"]), weight_decay=float(group["weight_decay"]))
    return _of("adafactor", settings, param, group["maximize"])


class Rule(NamedTuple):
    """How an optimizer of PyTorch's is computed."""

    update: Callable
    #: Whether its state counts steps.
    counts: bool
    #: Settings that have to be off.
    refused: tuple = ("differentiable",)


#: The optimizers of ``torch.optim`` that operators compute.
RULES: dict[type, Rule] = {
    torch.optim.AdamW: Rule(_adamw, True, ("amsgrad", "differentiable")),
    torch.optim.Adam: Rule(_adam, True, ("amsgrad", "differentiable")),
    torch.optim.Adamax: Rule(_adamax, True),
    torch.optim.SGD: Rule(_plain("sgd", "momentum", "dampening", "weight_decay", "nesterov"), False),
    torch.optim.RMSprop: Rule(_plain("rmsprop", "alpha", "eps", "weight_decay", "momentum", "centered"), True),
    torch.optim.Adagrad: Rule(_plain("adagrad", "lr_decay", "eps", "weight_decay"), True),
    torch.optim.Adadelta: Rule(_plain("adadelta", "rho", "eps", "weight_decay"), True),
}
if hasattr(torch.optim, "Adafactor"):
    RULES[torch.optim.Adafactor] = Rule(_adafactor, True)

#: Why others are refused that operators of another computation have the names of.
_OTHERWISE = {
    "Muon": "torch.optim.Muon has its products in bfloat16, and the operator has them in float32: use 'muon'",
}


def _update_by_name(group, param) -> Update:
    return _of(group["operator"], {name: group[name] for name in group["settings"]}, param)


class Optimizer(torch.optim.Optimizer):
    """An optimizer that is one of our operators: ``Optimizer("lion", model.parameters(), lr=1e-4)``.

    It has groups, ``state_dict()`` and schedules of the learning rate as those of ``torch.optim``; steps are made by
    :func:`fulgurite.train_step`.

    Parameters
    ----------
    operator : str
        ``"adamw"``, ``"lion"``, ``"lamb"``, ``"muon"`` and others of ``ops/src/optim``.
    params : iterable
        Parameters, or groups of them with settings of their own.
    lr : float
        The learning rate.
    **settings
        Those of the operator, with its defaults.
    """

    def __init__(self, operator: str, params, lr: float, **settings):
        function = getattr(ops, operator, None)
        names = list(inspect.signature(function).parameters) if function is not None else []
        if names[:2] != ["param", "grad"] or "lr" not in names:
            raise ArgumentError(f"Optimizer: '{operator}' is no operator that updates a parameter",
                                operator="Optimizer", argument="operator")
        defaults = {name: default for name, kind, _, _, has_default, default in function.operator.params
                    if kind == "attribute" and has_default}
        unknown = next((name for name in settings if name not in defaults), None)
        if unknown is not None:
            raise ArgumentError(f"Optimizer: '{operator}' has no setting '{unknown}', it has {', '.join(defaults)}",
                                operator="Optimizer", argument=unknown)
        given = {**defaults, **settings}
        super().__init__(params, dict(lr=lr, operator=operator, settings=tuple(defaults), **given))
        self.counts = "step" in names

    @torch.no_grad()
    def step(self, closure=None):
        raise Error("Optimizer.step: an update by itself is not made: fulgurite.train_step has it in its program",
                    code="Unsupported", operator="Optimizer")


def refuse_hooks(optimizer) -> None:
    """An error if an optimizer has hooks around its step."""
    if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
        raise Error("train_step: the optimizer has hooks around its step, which is a part of the program here",
                    code="Unsupported", operator="train_step", argument="optimizer")


def rule_of(optimizer) -> Rule:
    """How an optimizer is computed.

    Raises
    ------
    Error
        If no operator computes it, it has hooks, or a setting is on that no operator has.
    """
    if isinstance(optimizer, Optimizer):
        rule = Rule(_update_by_name, optimizer.counts, ())
    else:
        # A subclass may compute something else.
        rule = RULES.get(type(optimizer))
    if rule is None:
        kind = type(optimizer)
        known = ", ".join(sorted(each.__name__ for each in RULES))
        reason = _OTHERWISE.get(kind.__name__, f"no operator computes it; those of torch.optim are {known}")
        raise Error(f"train_step: the optimizer is {kind.__module__}.{kind.__qualname__}: {reason}",
                    code="Unsupported", operator="train_step", argument="optimizer")
    refuse_hooks(optimizer)
    for number, group in enumerate(optimizer.param_groups):
        on = next((name for name in rule.refused if group.get(name)), None)
        if on is not None:
            raise Error(f"train_step: group {number} of the optimizer has {on}=True, which no operator has",
                        code="Unsupported", operator="train_step", argument=on)
    return rule


def made(optimizer, module, settings: dict):
    """The optimizer itself, or ours of that name over the parameters of a module."""
    if isinstance(optimizer, str):
        if module is None:
            raise ArgumentError("train_step: an optimizer by name is over the parameters of a module",
                                operator="train_step", argument="optimizer")
        return Optimizer(optimizer, [each for each in module.parameters() if each.requires_grad], **settings)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentError(f"train_step: the optimizer is {optimizer!r:.60}, expected one of torch.optim or a name",
                            operator="train_step", argument="optimizer")
    if settings:
        name, known = next(iter(settings)), ("max_norm", "accumulate", "executors", "transforms", "autocast")
        raise ArgumentError(f"train_step: has no argument '{name}'{meant(name, known)} (it has {', '.join(known)}; an "
                            "optimizer has its own settings)", operator="train_step", argument=name)
    return optimizer


def number_of(group) -> float:
    """The learning rate of a group now."""
    lr = group["lr"]
    return float(lr)


class Slot:
    """One parameter that is trained: its group, its states, and which step comes next."""

    def __init__(self, name: str, param, group: int, update: Update):
        self.name = name
        self.param = param
        self.group = group
        self.update = update
        self.states: list[torch.Tensor] = []
        self.counter: torch.Tensor | None = None
        #: The counter as it was left, to see a change by others.
        self.count = 0.0
        self.version = -1
        #: The states that were made for a step that is not done yet.
        self.new: list[str] = []

    def begin(self, optimizer, rule: Rule) -> None:
        """Makes the states that are missing, as the optimizer makes them at its first step, and reads the counter."""
        group = optimizer.param_groups[self.group]
        missing = self.param not in optimizer.state or not optimizer.state[self.param]
        if missing:
            self.new = ["step"] if rule.counts else []
        if rule.counts and missing:
            optimizer.state[self.param]["step"] = _counter(optimizer, group, self.param)
        state = optimizer.state[self.param] if self.update.states or rule.counts else {}
        first = any(state.get(name) is None for name, _ in self.update.states)
        if first and not missing and not all(state.get(name) is None for name, _ in self.update.states):
            raise Error(f"train_step: the optimizer's state of '{self.name}' has not all of "
                        f"{', '.join(name for name, _ in self.update.states)}", code="State", operator="train_step")
        self.states = []
        for name, shape in self.update.states:
            if state.get(name) is None:
                self.new.append(name)
                if shape == _shape(self.param):
                    state[name] = torch.zeros_like(self.param, memory_format=torch.preserve_format).detach()
                else:
                    state[name] = self.param.new_zeros(shape).detach()
            found = state[name]
            if tuple(found.shape) != shape or found.device != self.param.device:
                raise Error(f"train_step: the optimizer's state '{name}' of '{self.name}' has shape "
                            f"{tuple(found.shape)} on {found.device}, expected {shape} on {self.param.device}",
                            code="State", operator="train_step")
            self.states.append(found)
        self.counter = state.get("step") if rule.counts else None
        self.read(first)

    def read(self, first: bool = False) -> None:
        """Reads how many steps were made."""
        if self.counter is not None:
            self.count, self.version = float(self.counter), self.counter._version
        else:
            # Without a counter the first step alone is another one.
            self.count = 0.0 if first else 1.0

    def undo(self, optimizer) -> None:
        """Takes away the states that were made for a step that failed."""
        state = optimizer.state.get(self.param)
        if state is not None and self.new:
            for name in self.new:
                state.pop(name, None)
            if not state:
                del optimizer.state[self.param]
        self.new = []

    def is_current(self, optimizer) -> bool:
        """Whether the optimizer's state has the tensors that were seen last."""
        if not self.states and self.counter is None:
            return True
        state = optimizer.state.get(self.param)
        if not state:
            return False
        if self.counter is not None and (state.get("step") is not self.counter
                                         or self.counter._version != self.version):
            return False
        return all(state.get(name) is tensor for (name, _), tensor in zip(self.update.states, self.states))


def _counter(optimizer, group, param):
    """A counter at zero, on the device where the optimizer wants it."""
    on_device = group.get("capturable") or group.get("fused")
    dtype = torch.float64 if torch.get_default_dtype() == torch.float64 and not group.get("fused") else torch.float32
    return torch.zeros((), dtype=dtype, device=param.device if on_device else "cpu")


def counted(slots) -> None:
    """Adds one to the counters."""
    counters = [slot.counter for slot in slots if slot.counter is not None]
    if counters:
        torch._foreach_add_(counters, 1.0)
    for slot in slots:
        slot.new = []
        slot.count = 1.0 if slot.counter is None else slot.count + 1.0
        slot.version = -1 if slot.counter is None else slot.counter._version


def updated(slot: Slot, param, grad, states, lr, step):
    """The new parameter and states of a slot, in a traced function."""
    update = slot.update
    function = getattr(ops, update.operator)
    if update.maximize:
        grad = ops.neg(grad)
    numbers = {"lr": lr, "step": step}
    names = [name for name, *_ in function.operator.params]
    given = {name: value for name, value in numbers.items() if name in names}
    given.update({name: value for (name, _), value in zip(update.states, states)})
    given.update({name: list(value) if isinstance(value, tuple) else value for name, value in update.settings})
    result = function(param=param, grad=grad, **given)
    return list(result) if isinstance(result, (list, tuple)) else [result]
