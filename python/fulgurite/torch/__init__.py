"""Fulgurite in PyTorch: ``torch.ops.fulgurite.*``, compiled modules, and a backend of ``torch.compile``.

Importing this module registers the operators and the backend ``"fulgurite"``.
"""

from __future__ import annotations

from .._native import as_tensor
from . import _aten, _indices  # noqa: F401  (entries of the table)
from ._buckets import Compiled
from ._exchange import empty_cache, synchronize
from ._graph import Unsupported, why_not, why_not_operator
from ._library import REFUSED, register
from ._module import CompiledModule, backend, breaks, jit
from ._optim import Optimizer
from ._replaces import replaces
from ._table import REASONS, TABLE
from ._train import TrainStep, train_step

register()

__all__ = ["REASONS", "REFUSED", "TABLE", "Compiled", "CompiledModule", "Optimizer", "TrainStep", "Unsupported",
           "as_tensor", "backend", "breaks", "empty_cache", "jit", "register", "replaces", "synchronize", "train_step",
           "why_not", "why_not_operator"]
