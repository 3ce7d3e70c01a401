"""Fulgurite in PyTorch: ``torch.ops.fulgurite.*``, compiled modules, and a backend of ``torch.compile``.

Importing this module registers the operators and the backend ``"fulgurite"``.
"""

from __future__ import annotations

from ._exchange import synchronize
from ._graph import Unsupported, why_not
from ._library import REFUSED, register
from ._module import CompiledModule, backend, breaks, jit
from ._replaces import replaces
from ._table import REASONS, TABLE

register()

__all__ = ["REASONS", "REFUSED", "TABLE", "CompiledModule", "Unsupported", "backend", "breaks", "jit",
           "register", "replaces", "synchronize", "why_not"]
