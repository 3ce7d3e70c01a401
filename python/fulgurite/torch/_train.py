"""A training step of a module of PyTorch as one program: forward, backward and the optimizer's update."""

from __future__ import annotations

import inspect
import types

import torch

from .. import _native
from .._errors import ArgumentError, Error, not_called
from .._executor import executor_names
from .._function import Traces
from .._trees import word
from ..transforms import _native as native_transforms
from . import _optim
from ._module import CompiledModule, without_messages
from ._state import refuse
from ._step import GRADIENTS, LOST, Program, mark


def _whole(module, loss):
    """The function that dynamo captures. Each step has code of its own, since recompilations are counted by code."""
    if loss is None:

        def whole(*arguments, **keywords):
            result = module(*arguments, **keywords)
            return mark(result if isinstance(result, torch.Tensor) else result.loss)

    elif isinstance(loss, torch.nn.Module):

        def whole(*arguments, **keywords):
            return mark(loss(module(*arguments[:-1], **keywords), arguments[-1]))

    else:

        def whole(*arguments, **keywords):
            result = loss(module, *arguments, **keywords)
            return (mark(result[0]), *result[1:]) if isinstance(result, tuple) else mark(result)

    code = whole.__code__.replace()
    return types.FunctionType(code, whole.__globals__, whole.__name__, whole.__defaults__, whole.__closure__)


class TrainStep:
    """A training step; see :func:`train_step`.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer
        The optimizer, whose groups, states and ``state_dict()`` are as if it had made the steps.
    grad_norm : torch.Tensor or None
        With ``max_norm``, the norm of the last step's gradients before they were clipped.
    """

    def __init__(self, module, loss, optimizer, max_norm=None, accumulate=1, executors=None, transforms=(),
                 autocast=None, settings=None):
        if not isinstance(module, torch.nn.Module):
            hint = ": the module itself, not what jit returned" if isinstance(module, CompiledModule) else ""
            raise ArgumentError(f"train_step: the module is {module!r:.60}, expected a torch.nn.Module{hint}",
                                operator="train_step", argument="module")
        if loss is not None and not callable(loss):
            what = repr(loss)
            what = f"of the type {type(loss).__name__}" if "\n" in what else what[:60]
            raise ArgumentError(f"train_step: the loss is {what}, expected a function of the module and the "
                                "arguments, a loss of torch.nn, or None", operator="train_step", argument="loss")
        if not isinstance(accumulate, int) or accumulate < 1:
            raise ArgumentError(f"train_step: accumulate is {accumulate!r}, expected an integer of at least 1",
                                operator="train_step", argument="accumulate")
        if max_norm is not None and not 0.0 <= float(max_norm):
            raise ArgumentError(f"train_step: max_norm is {max_norm!r}, expected at least 0",
                                operator="train_step", argument="max_norm")
        self.module = module
        self.loss = loss
        self.optimizer = _optim.made(optimizer, module, settings or {})
        _optim.rule_of(self.optimizer)
        self.max_norm = None if max_norm is None else float(max_norm)
        self.accumulate = accumulate
        self.name = word(type(module).__name__)
        self.options = dict(executors=executor_names(executors), transforms=native_transforms(transforms),
                            autocast=autocast)
        self.grad_norm = None
        self.lost = self.midway = False
        #: A result of each call, with its part, whose run on a device may go on, and find its data wrong.
        self.unchecked: list = []
        self.micro = 0
        #: The parameters, with their names, that have a gradient of the calls before of the same step.
        self.accumulated: list = []
        self.programs: list[Program] = []
        self.ran: Program | None = None
        more = {"recompile_limit": 64} if "recompile_limit" in inspect.signature(torch.compile).parameters else {}
        self._compiled = torch.compile(_whole(module, loss), backend=self._backend, fullgraph=True, dynamic=False,
                                       **more)

    def _backend(self, graph_module, example_inputs):
        made: list = []

        # What is refused is an error of the call, as it is, and not one of the capture.
        def run(*inputs):
            if not made:
                made.append(Program(graph_module, self))
                self.programs.append(made[0])
            return made[0](*inputs)

        return run

    def __call__(self, *arguments, **keywords):
        """Makes a step. Returns the loss, and what the loss function returns besides."""
        self.check()
        _optim.refuse_hooks(self.optimizer)
        for module in self.module.modules():
            if module._backward_hooks or module._backward_pre_hooks:
                refuse(f"a {type(module).__name__} has a hook on its backward pass, which is inside of the program")
        try:
            with torch.enable_grad(), without_messages():
                return self._compiled(*arguments, **keywords)
        except torch._dynamo.exc.TorchRuntimeError:
            # The model's own error, as PyTorch has it.
            raise
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = " ".join(str(error).split())[:600]
            raise Error(f"train_step: a step is one program, and PyTorch does not capture it as one graph: {reason}",
                        code="Unsupported", operator="train_step") from error

    def check(self) -> None:
        """An error if a step before left a part of an update."""
        if self.lost or self.midway:
            self.lost = True
            raise Error(f"train_step: {LOST}", code="Lost", operator="train_step")
        while self.unchecked:
            array, _ = self.unchecked[0]
            try:
                if not _native.check_ended(array):
                    return
            except Error as error:
                # An update behind it was made of these gradients, which PyTorch had: it has no fault of its own.
                if all(each in GRADIENTS for _, each in self.unchecked):
                    self.restart()
                    hint = "gradients that were accumulated before are gone, and the step begins again"
                    raise Error(f"{error}\ntrain_step: {hint}", code=error.code, operator=error.operator,
                                argument=error.argument) from error
                self.lost = True
                raise Error(f"{error}\ntrain_step: {LOST}", code="Lost", operator="train_step") from error
            del self.unchecked[0]

    def reset(self) -> None:
        """Begins again with the tensors that the module and the optimizer have now."""
        self.lost = self.midway = False
        self.unchecked = []
        for program in self.programs:
            program.binding = None
        self.restart()

    def restart(self) -> None:
        """Forgets gradients that were accumulated for a step that is not complete."""
        self.micro = 0
        while self.unchecked and self.unchecked[-1][1] in GRADIENTS:
            del self.unchecked[-1]
        for group in self.optimizer.param_groups:
            for param in group["params"]:
                param.grad = None

    def part(self) -> str:
        """Which part of a step the next call is."""
        if self.accumulate == 1:
            return "whole"
        return "first" if self.micro == 0 else "last" if self.micro == self.accumulate - 1 else "more"

    def counted(self, part: str) -> None:
        """A call is done."""
        self.micro = self.micro + 1 if part in GRADIENTS else 0
        if part not in GRADIENTS:
            # What schedules of the learning rate ask.
            self.optimizer._opt_called = True

    def names(self) -> dict:
        """The names of parameters and buffers, by the tensors' identities."""
        found = {id(each): name for name, each in self.module.named_buffers()}
        if isinstance(self.loss, torch.nn.Module):
            pairs = [*self.loss.named_parameters(), *self.loss.named_buffers()]
            found.update({id(each): f"loss.{name}" for name, each in pairs})
        found.update({id(each): name for name, each in self.module.named_parameters()})
        return found

    def settings(self) -> tuple:
        """What a program is compiled for, of the optimizer's groups."""
        left = ("params", "lr", "initial_lr", "param_names")
        groups = self.optimizer.param_groups
        return tuple((tuple((name, _known(value)) for name, value in group.items() if name not in left),
                      tuple(map(id, group["params"]))) for group in groups)

    @property
    def compiles(self) -> int:
        """How often something was compiled."""
        return sum(function.compiles for program in self.programs for function in program.functions.values())

    def last_traces(self) -> Traces:
        """The program that was compiled last, of the last call, after each stage."""
        return Traces(self.ran.last.stages() if self.ran is not None and self.ran.last is not None else [])

    def explain(self) -> str:
        """Which executor took which line of the last call, and why others did not."""
        if self.ran is None or self.ran.last is None:
            raise not_called("train_step", "step(...)")
        return self.ran.last.explain()

    def donations(self) -> dict:
        """For each tensor of the state whether the program updates it where it is, or why it makes another one."""
        if self.ran is None or not isinstance(self.ran.last, _native.StepFunction):
            return {}
        return {path: why or "updated in place" for path, _, why in self.ran.last.donations()}


def _known(value):
    if isinstance(value, torch.Tensor):
        return float(value) if value.numel() == 1 else tuple(value.tolist())
    return tuple(_known(item) for item in value) if isinstance(value, (list, tuple)) else value


def train_step(module, loss, optimizer, *, max_norm=None, accumulate=1, executors=None, transforms=(), autocast=None,
               **settings) -> TrainStep:
    """Forward pass, backward pass and the optimizer's update of a module as one program.

    ``step(*batch)`` is ``optimizer.zero_grad(); value = loss(module, *batch); value.backward(); optimizer.step()``,
    and returns the value. The program writes to the memory of the module's parameters and of the optimizer's states.

    Parameters
    ----------
    module : torch.nn.Module
    loss : callable, torch.nn.Module or None
        A function of the module and the arguments of a step, which returns a scalar, or a tuple with the scalar first;
        a loss of ``torch.nn``, which is given the module's result and the last argument; without one, the module's
        result, or its ``loss``, is the scalar.
    optimizer : torch.optim.Optimizer or str
        One of ``torch.optim`` over the module's parameters, :class:`fulgurite.torch.Optimizer`, or the name of one of
        our operators (``"lion"``), whose settings are further arguments of this function.
    max_norm : float, optional
        The largest norm of all gradients together, to which they are scaled down
        (``torch.nn.utils.clip_grad_norm_``).
    accumulate : int, optional
        How many calls are one update, with the mean of their gradients. Until then they are the parameters' ``grad``.
    executors : list of str or Executor, optional
        Executors in the order in which they are asked.
    transforms : list, optional
        Functions from trace to trace; see :mod:`fulgurite.transforms`.
    autocast : str, optional
        ``"bfloat16"`` or ``"float16"`` for mixed precision.

    Raises
    ------
    fulgurite.Error
        By a call, with the reason, where the step is not one program: a graph break, a function that no operator
        computes, a hook on a gradient. Nothing has changed then. If a program fails while it writes, its code is
        ``"Lost"``: see the chapter of the book.
    """
    return TrainStep(module, loss, optimizer, max_norm, accumulate, executors, transforms, autocast, settings)
