"""Tensors of PyTorch as arrays, and back, in the same memory.

The tensors of one call cross at once (:func:`cross`). Arrays that stay from call to call, as the arguments of a
training step do, are ordered one by one (:func:`to_array`).
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from .._errors import Error
from .._native import Array, Crossing, check_calls, dtype, free_kept

DTYPES = {getattr(torch, name): dtype(name) for name in
          ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "float16", "bfloat16", "float32",
           "float64", "complex64", "complex128")}
TORCH_DTYPES = {ours.name: theirs for theirs, ours in DTYPES.items()}


def has_gradient(tensor: torch.Tensor) -> bool:
    """Whether its elements are of a type that gradients exist for: floating-point or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def refuse_capture(operator: str | None = None) -> None:
    """Raises an error where a call here would not be seen: while PyTorch captures a CUDA graph, and in forward-mode
    differentiation, whose tangents do not cross, so that a derivative would be zero without a word."""
    if getattr(forward_ad, "_current_level", -1) >= 0:
        raise Error(
            f"{operator or 'a program'}: called in forward-mode differentiation (torch.func.jvp, jacfwd, hessian, "
            "torch.autograd.forward_ad), which it has no derivative for: backward() and torch.autograd.grad have one",
            code="ForwardMode",
            operator=operator,
        )
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise Error(
            f"{operator or 'a program'}: called while PyTorch captures a CUDA graph: its memory changes from call to "
            "call, and a graph would use that of the captured one. Call it outside of the capture; programs capture "
            "graphs of their own",
            code="Capture",
            operator=operator,
        )


def cross(tensors) -> Crossing:
    """The arrays over the memory of the tensors of one call; its ``results`` makes tensors of arrays and ends the call.

    On CUDA, work here comes after what PyTorch's current stream does by now, and what that stream does when the call
    has ended comes after the work here. The host waits for neither.
    """
    refuse_capture()
    return Crossing(tensors)


def extent_of(tensor) -> tuple[int, int]:
    """The addresses between which the elements of a tensor are."""
    start = tensor.data_ptr()
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride()))
    return start, start + (last + 1) * tensor.element_size() if tensor.numel() else start


def shares(tensor: torch.Tensor, array: Array) -> bool:
    """Whether a tensor that was made of an array has its memory."""
    return tensor.data_ptr() == array.data_address


def synchronize(device=None) -> None:
    """Waits for the programs that were called with tensors of PyTorch's current stream of ``device``.

    Raises what their kernels found wrong with their data, such as an index out of range. Otherwise a later call raises
    it: the host waits for no program of a CUDA device.
    """
    check_calls(_named(device))


def empty_cache(device=None) -> None:
    """Gives the memory of ``device`` that no array uses back to the driver, as ``torch.cuda.empty_cache`` does for
    PyTorch's.

    Memory of arrays that are gone is kept for the next ones, up to a fourth of what was free when the device was
    opened. PyTorch does not know of it, and cannot ask for it. Programs keep the memory of their own.
    """
    free_kept(_named(device))


def _named(device) -> str:
    """The name of a device; without one, of PyTorch's current one."""
    device = torch.device("cuda" if device is None and torch.cuda.is_initialized() else device or "cpu")
    if device.type != "cuda":
        return "cpu"
    return f"cuda:{torch.cuda.current_device() if device.index is None else device.index}"


def to_array(tensor: torch.Tensor) -> Array:
    """The array over a tensor's memory. On CUDA our stream waits for PyTorch's current one."""
    return Array.from_dlpack(tensor.detach())
