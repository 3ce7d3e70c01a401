"""Parts of tensors: what indices read, what is written into a part, and tensors of a few numbers."""

from __future__ import annotations

import math

import torch

from .. import ops
from .._arrays import from_the_end
from .._errors import ArgumentError
from .._native import Tensor
from ._exchange import DTYPES, TORCH_DTYPES
from ._table import converted, known, named


@named("operator.getitem", "Tensor.__getitem__")
def _getitem(context, value, index):
    if isinstance(value, Tensor):
        if _masks(index):
            raise ArgumentError("getitem: an index is a mask: the shape of the result depends on the data")
        return _indexed(value, index)
    return value[index]


def _masks(index) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, Tensor) and part.dtype.name == "bool" for part in parts)


def _indexed(value, index):
    parts = index if isinstance(index, tuple) else (index,)
    tensors = [part for part in parts if isinstance(part, Tensor)]
    listed = [part for part in parts if isinstance(part, Tensor) or type(part) is int]
    if tensors and len(listed) == len(parts) and (len(parts) > 1 or tensors[0].ndim != 1):
        return _at(value, parts)
    return value[index]


def _at(value, indices):
    """The elements, or rows, at positions in the first dimensions; tensors of integers of any shape, and integers."""
    if len(indices) > value.ndim or any(part.dtype.name not in ("int64", "int32") for part in indices
                                        if isinstance(part, Tensor)):
        raise ArgumentError(f"getitem: {len(indices)} indices of a tensor of shape {value.shape}")
    place = None
    for part, extent in zip(indices, value.shape):
        if isinstance(part, int):
            if not -extent <= part < extent:
                raise IndexError(f"index {part} is out of range: a dimension of {value.shape} has {extent}")
            part %= extent
        else:
            part = ops.to(part, dtype="int64") if part.dtype.name != "int64" else part
            part = _within(from_the_end(part, extent), extent, len(indices) > 1)
        place = part if place is None else place * extent + part
    count = math.prod(value.shape[: len(indices)])
    rest = list(value.shape[len(indices) :])
    rows = ops.index_select(ops.reshape(value, [count, *rest]), 0, ops.reshape(place, [-1]))
    return ops.reshape(rows, [*place.shape, *rest])


def _within(part, extent: int, several: bool):
    """Positions; of several, which are parts of one number, those out of range are made no row."""
    if not several:
        return part
    return ops.where(ops.logical_and(part >= 0, part < extent), part, 1 << 40)


@named("operator.setitem", "Tensor.__setitem__")
def _setitem(context, value, index, new):
    context.mutates = True
    parts = list(index) if isinstance(index, tuple) else [index]
    if len(parts) == 1 and isinstance(parts[0], Tensor) and parts[0].dtype.name == "bool":
        mask = parts[0]
        if isinstance(new, Tensor) and new.numel() != 1:
            raise ArgumentError("setitem: a mask with a tensor: how many elements it has depends on the data")
        mask = ops.reshape(mask, [*mask.shape, *[1] * (value.ndim - mask.ndim)])
        new = ops.reshape(converted(new, TORCH_DTYPES[value.dtype.name]), []) if isinstance(new, Tensor) else new
        return ops.where(mask, _like(new, value, []), value)
    dots = [i for i, part in enumerate(parts) if part is Ellipsis]
    if dots:
        parts[dots[0] : dots[0] + 1] = [slice(None)] * (value.ndim - len(parts) + 1)
    if any(type(part) not in (int, slice) for part in parts) or len(parts) > value.ndim:
        raise ArgumentError("setitem: an index is no integer and no slice", operator="setitem", argument="index")
    return _put(value, parts, 0, new)


def _like(new, value, shape):
    """A number or a tensor in the type of a value, and of a shape."""
    if not isinstance(new, Tensor):
        return ops.full(list(shape), new, dtype=value.dtype, device=value.device)
    new = converted(new, TORCH_DTYPES[value.dtype.name])
    # Leading extents of one more than there are dimensions are left out, as PyTorch does.
    while new.ndim > len(shape) and new.shape[0] == 1:
        new = ops.reshape(new, list(new.shape[1:]))
    return ops.expand(new, list(shape)) if tuple(new.shape) != tuple(shape) else new


def _put(value, parts, dim: int, new):
    """The value with a part of it replaced: the part at ``parts`` from a dimension on."""
    if not parts:
        return _like(new, value, value.shape)
    part, *rest = parts
    extent = value.shape[dim]
    if isinstance(part, int):
        if not -extent <= part < extent:
            raise IndexError(f"index {part} is out of range: dimension {dim} of {value.shape} has {extent}")
        inner = _put(ops.select(value, dim, part % extent), rest, dim, new)
        return ops.select_scatter(value, inner, dim, part % extent)
    start, end, step = part.indices(extent)
    if step < 1:
        raise ArgumentError("setitem: a slice has a negative step", operator="setitem", argument="index")
    if (start, end, step) == (0, extent, 1):
        return _put(value, rest, dim + 1, new)
    index = (slice(None),) * dim + (slice(start, max(start, end), step),)
    inner = _put(value[index], rest, dim + 1, new)
    return ops.slice_scatter(value, inner, dim, start, max(start, end), step)


@named("Tensor.copy_")
def _copy(context, value, source, non_blocking=False):
    context.mutates = True
    return _like(source, value, value.shape)


#: So many numbers of a program's text are no data yet.
_MOST_NUMBERS = 64


@named("tensor")
def _tensor(context, data, dtype=None, device=None, **others):
    """A tensor of a few numbers, which are parts of the program."""
    known("tensor", others)
    shape, level = [], data
    while isinstance(level, (list, tuple)):
        shape.append(len(level))
        level = level[0] if level else None
    numbers: list = []

    def collect(part, depth):
        if depth == len(shape):
            if not isinstance(part, (bool, int, float)):
                raise ArgumentError(f"tensor: an element is a {type(part).__name__}, expected a number of the program",
                                    operator="tensor", argument="data")
            numbers.append(part)
            return
        if not isinstance(part, (list, tuple)) or len(part) != shape[depth]:
            raise ArgumentError("tensor: the lists are ragged", operator="tensor", argument="data")
        for item in part:
            collect(item, depth + 1)

    collect(data, 0)
    if len(numbers) > _MOST_NUMBERS:
        raise ArgumentError(f"tensor: {len(numbers)} numbers of a program, expected at most {_MOST_NUMBERS}: make them "
                            "a buffer of the module", operator="tensor", argument="data")
    if dtype is None:
        kinds = {type(number) for number in numbers}
        dtype = torch.bool if kinds == {bool} else torch.int64 if kinds and float not in kinds else None
        dtype = dtype or torch.get_default_dtype()
    place = dict(dtype=DTYPES[dtype], device=str(device or context.device))
    if len(set(map(repr, numbers))) <= 1:
        return ops.full(shape, numbers[0] if numbers else 0, **place)
    return ops.reshape(ops.cat([ops.full([1], number, **place) for number in numbers], 0), shape)
