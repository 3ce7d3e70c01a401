"""What the namespace says of itself."""

from __future__ import annotations

from .. import _native
from .._errors import Refusal
from . import _dtypes as dt
from ._checks import refusal


def _checked(function: str, device) -> None:
    # A kind alone is its first device.
    if device is not None and str(device) not in {*_native.devices(), *_native.device_names()}:
        raise refusal(function, "device", repr(device), f"one of {', '.join(_native.device_names())}", Refusal)


class Info:
    """What ``__array_namespace_info__`` returns."""

    def capabilities(self) -> dict:
        """Boolean indices and shapes that depend on data are there, outside of traced functions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """Where arrays are made."""
        return "cpu"

    def default_dtypes(self, *, device=None) -> dict:
        """The types without a ``dtype``. For complex numbers it is ``None``: there are none."""
        _checked("default_dtypes", device)
        return {"real floating": dt.FLOAT, "complex floating": None, "integral": dt.INT, "indexing": dt.INT}

    def dtypes(self, *, device=None, kind=None) -> dict:
        """The standard's types that are here, of a kind or of some."""
        _checked("dtypes", device)
        kinds = tuple(dt.KINDS) if kind is None else kind if isinstance(kind, tuple) else (kind,)
        for each in kinds:
            if each not in dt.KINDS:
                raise refusal("dtypes", "kind", repr(each), f"one of {', '.join(map(repr, dt.KINDS))}", Refusal)
        return {each.name: each for each in dt.STANDARD if any(each in dt.KINDS[kind] for kind in kinds)}

    def devices(self) -> tuple[str, ...]:
        """The devices of this machine."""
        return tuple(_native.device_names())


def __array_namespace_info__() -> Info:
    """What the namespace can do: capabilities, default types, types and devices."""
    return Info()
