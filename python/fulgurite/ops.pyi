"""Every operator of the registry: names and signatures follow from the declarations, `inspect.signature` has them."""

from collections.abc import Callable
from typing import Any

from ._native import Operator

OPERATORS: dict[str, Operator]

def __getattr__(name: str) -> Callable[..., Any]: ...
