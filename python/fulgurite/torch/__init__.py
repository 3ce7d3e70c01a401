"""Fulgurite in PyTorch: ``torch.ops.fulgurite.*``, compiled modules, and a backend of ``torch.compile``.

Importing this module registers the operators and the backend ``"fulgurite"``.
"""

from __future__ import annotations

from . import _indices  # noqa: F401  (entries of the table)
from ._graph import Unsupported, why_not
from ._library import REFUSED, register
from ._module import CompiledModule, backend, breaks, jit
from ._table import REASONS, TABLE

register()

__all__ = ["REASONS", "REFUSED", "TABLE", "CompiledModule", "Unsupported", "backend", "breaks", "jit",
           "register", "why_not"]
