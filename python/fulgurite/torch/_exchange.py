"""Tensors of PyTorch as arrays, and back, in the same memory."""

from __future__ import annotations

import torch

from .._native import Array, dtype

DTYPES = {getattr(torch, name): dtype(name) for name in
          ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")}
TORCH_DTYPES = {ours.name: theirs for theirs, ours in DTYPES.items()}


def to_array(tensor: torch.Tensor) -> Array:
    """The array over a tensor's memory. On CUDA our stream waits for the current one."""
    return Array.from_dlpack(tensor.detach())


def shares(tensor: torch.Tensor, array: Array) -> bool:
    """Whether a tensor that :func:`to_tensors` made of an array has its memory."""
    return tensor.data_ptr() == torch.from_dlpack(array).data_ptr()


def to_tensors(arrays) -> list[torch.Tensor]:
    """Tensors over the memory of arrays; copies where that is memory of another library or of one before.

    They are contiguous, and may be written to: PyTorch's operators return memory that nobody else has.
    """
    known: set[int] = set()
    made = []
    for array in arrays:
        tensor = torch.from_dlpack(array)
        address = array.buffer_address if array.numel() else None
        if array.is_external or address in known:
            tensor = tensor.clone(memory_format=torch.contiguous_format)
        else:
            tensor = tensor.contiguous()
        if address is not None:
            known.add(address)
        made.append(tensor)
    return made
