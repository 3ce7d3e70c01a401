"""Exchanges tensors with PyTorch through DLPack, in one process and without a copy.

    python tests/dlpack/exchange.py target/debug/libfulgurite_dlpack_test.so [--cuda]

With --cuda also on a GPU: other streams, and which context is current on the calling thread before and after.
"""

import ctypes
import gc
import sys
import weakref

import numpy
import torch

PASS, DOUBLE, COPY = 0, 1, 2
OFF = -1

library = ctypes.CDLL(sys.argv[1])
for name in ["fulgurite_dlpack_exchange", "fulgurite_dlpack_exchange_unversioned"]:
    function = getattr(library, name)
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_int64]
library.fulgurite_dlpack_error.restype = ctypes.c_char_p
library.fulgurite_dlpack_stream.restype = ctypes.c_uint64
library.fulgurite_dlpack_stream.argtypes = [ctypes.c_uint32]

python = ctypes.pythonapi
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# Capsules keep pointers to their names.
VERSIONED, USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"
UNVERSIONED, USED_UNVERSIONED = b"dltensor", b"used_dltensor"


def exchange(tensor, action=PASS, versioned=True, stream=None, producer=0, consumer=0):
    """The tensor through the library. `stream` is what PyTorch makes wait for the data."""
    options = {"max_version": (1, 0)} if versioned else {}
    if stream is not None:
        options["stream"] = stream
    capsule = tensor.__dlpack__(**options)
    name, used = (VERSIONED, USED_VERSIONED) if versioned else (UNVERSIONED, USED_UNVERSIONED)
    pointer = python.PyCapsule_GetPointer(capsule, name)
    assert python.PyCapsule_SetName(capsule, used) == 0
    function = library.fulgurite_dlpack_exchange if versioned else library.fulgurite_dlpack_exchange_unversioned
    result = function(pointer, action, producer, consumer)
    if not result:
        raise ValueError(library.fulgurite_dlpack_error().decode())
    return torch.from_dlpack(python.PyCapsule_New(result, VERSIONED, None))


def alike(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape and a.device == b.device, (a, b)
    assert torch.equal(a, b), (a, b)


def layouts(device):
    """Tensors of every element type and layout."""
    for dtype in [torch.bool, torch.uint8, torch.int32, torch.int64,
                  torch.float16, torch.bfloat16, torch.float32, torch.float64]:
        whole = torch.arange(24, device=device).reshape(2, 3, 4).remainder(5).to(dtype)
        yield from [whole, whole.permute(2, 0, 1), whole[1:, :, 1::2], whole[:, :1].expand(2, 5, 4), whole[1, 2, 3],
                    whole[:, :0], whole.flatten()[5:]]


def exchanges(device):
    count = 0
    for tensor in layouts(device):
        for versioned in [True, False]:
            back = exchange(tensor, versioned=versioned)
            alike(back, tensor)
            assert tensor.numel() == 0 or back.data_ptr() == tensor.data_ptr(), "copied"
            count += 1
        copy = exchange(tensor, COPY)
        alike(copy, tensor)
        assert tensor.numel() == 0 or copy.data_ptr() != tensor.data_ptr(), "not copied"
        if tensor.dtype != torch.bool:
            alike(exchange(tensor, DOUBLE), tensor + tensor)
    for dtype in [torch.int16, torch.complex64]:
        try:
            exchange(torch.zeros(3, dtype=dtype, device=device))
            raise AssertionError(f"{dtype} is no element type here")
        except ValueError as error:
            assert "type code" in str(error), error
    return count


def memory_is_given_back_on_the_host():
    class Memory(numpy.ndarray):
        """An array whose end can be seen."""

    memory = numpy.ones(1000, dtype="f4").view(Memory)
    gone, tensor = weakref.ref(memory), torch.from_numpy(memory)
    back = exchange(tensor)
    view = back[10:20]
    del memory, tensor, back
    gc.collect()
    assert gone() is not None and view.sum().item() == 10
    del view
    gc.collect()
    assert gone() is None, "the deleter was not called"


def memory_is_given_back_on_the_device():
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for action in [PASS, DOUBLE, COPY] * 100:
        exchange(torch.ones(1 << 20, device="cuda"), action)
    gc.collect()
    assert torch.cuda.memory_allocated() == before, "deleters were not called"


def streams():
    """Data that is computed slowly on another stream is waited for, both ways."""
    ours = library.fulgurite_dlpack_stream(0)
    assert ours > 2, library.fulgurite_dlpack_error()
    side = torch.cuda.Stream()
    big = torch.ones(1 << 24, device="cuda")
    torch.cuda.synchronize()
    for round in range(20):
        with torch.cuda.stream(side):
            slow = big
            for _ in range(40):
                slow = slow * 1.0 + 1.0
            handle = side.cuda_stream
            # PyTorch makes our stream wait; or we make ours wait for theirs; and theirs waits for our result.
            if round % 2 == 0:
                out = exchange(slow, DOUBLE, stream=ours, producer=OFF, consumer=handle)
            else:
                out = exchange(slow, DOUBLE, stream=OFF, producer=handle, consumer=handle)
            total = (out - 82.0).abs().max()
            del slow
        side.synchronize()
        assert total.item() == 0.0, (round, total)
        # The result's memory is used again only after the consumer's work.
        del out


def contexts():
    """The context of the calling thread is left as it was found: none, PyTorch's, and another one."""
    driver = ctypes.CDLL("libcuda.so.1")

    def current():
        context = ctypes.c_void_p()
        assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0
        return context.value

    tensor = torch.arange(6.0, device="cuda")
    torch.cuda.synchronize()
    primary, other = current(), ctypes.c_void_p()
    assert primary is not None
    device = ctypes.c_int()
    assert driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    # Capsules are PyTorch's, which makes its own context current; ours are the calls between.
    capsules = [tensor.__dlpack__(max_version=(1, 0)) for _ in range(9)]
    create = driver.cuCtxCreate_v2
    assert create(ctypes.byref(other), 0, device) == 0
    # It is on top of the thread's stack of contexts: what is set from now on has no other below it.
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0
    pointers = []
    for capsule in capsules:
        pointers.append(python.PyCapsule_GetPointer(capsule, VERSIONED))
        python.PyCapsule_SetName(capsule, USED_VERSIONED)
    results = []
    for context in [other.value, None, primary]:
        assert driver.cuCtxSetCurrent(ctypes.c_void_p(context)) == 0
        assert current() == context
        for action in [PASS, DOUBLE, COPY]:
            result = library.fulgurite_dlpack_exchange(pointers.pop(), action, OFF, 1)
            assert result, library.fulgurite_dlpack_error()
            assert current() == context, f"{current()} is current, {context} was"
            results.append((action, result))
        library.fulgurite_dlpack_stream(0)
        assert current() == context
    assert driver.cuCtxSetCurrent(ctypes.c_void_p(primary)) == 0
    for action, result in results:
        back = torch.from_dlpack(python.PyCapsule_New(result, VERSIONED, None))
        alike(back, tensor * 2 if action == DOUBLE else tensor)
    assert driver.cuCtxDestroy_v2(other) == 0


print(f"torch {torch.__version__}: {exchanges('cpu')} tensors of the host came back as they were")
memory_is_given_back_on_the_host()
if "--cuda" in sys.argv:
    print(f"{torch.cuda.get_device_name()}: {exchanges('cuda')} tensors came back as they were")
    memory_is_given_back_on_the_device()
    streams()
    print("streams wait for one another")
    contexts()
    print("contexts are left as they were")
