"""Host time of small calls from Python: eager operators, operators in ``torch.ops``, exchange of one tensor.

    python benches/eager.py [--device cuda] [--clock thread] [--repeats 15] [--calls 2000] [--only PART]

Tensors are so small that a call is host time. Calls of all rows alternate within a repeat, so that a busy machine
slows all of them; the least and the median of the repeats are printed, in microseconds. `--clock thread` counts the
processor's time of the calling thread, which other work on the machine does not add to. On CUDA the device is waited
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

import fulgurite
import fulgurite.torch
from machine import processor


@torch.library.custom_op("eager_bench::add_one", mutates_args=())
def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@add_one.register_fake
def _(x):
    return torch.empty_like(x)


def _with_autograd(op):
    op.register_autograd(lambda ctx, d: d)
    return op


@_with_autograd
@torch.library.custom_op("eager_bench::add_one_autograd", mutates_args=())
def add_one_autograd(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def direct(device: str):
    """An operator by ``torch.library.Library.impl``: the dispatcher's path without ``custom_op``'s wrapper."""
    library = torch.library.Library("eager_bench_direct", "DEF")
    library.define("add_one(Tensor x) -> Tensor")
    library.impl("add_one", lambda x: x + 1, device.upper())
    return library, torch.ops.eager_bench_direct.add_one


def rows(device: str) -> dict:
    """The calls that are measured, by name."""
    x = torch.randn(4, 8, device=device)
    weight = torch.randn(8, device=device)
    grad = x.clone().requires_grad_()
    ours, our_weight = fulgurite.from_dlpack(x), fulgurite.from_dlpack(weight)
    ops = torch.ops.fulgurite
    library, add_one_direct = direct(device)
    found = {
        "torch: x + 1": lambda: x + 1,
        "torch: rms_norm": lambda: torch.nn.functional.rms_norm(x, [8], weight),
        "torch: custom_op of x + 1": lambda: add_one(x),
        "torch: custom_op with autograd, of x + 1": lambda: add_one_autograd(x),
        "torch: Library.impl of x + 1": lambda: add_one_direct(x),
        "fulgurite.ops.neg, arrays": lambda: fulgurite.ops.neg(ours),
        "fulgurite.ops.rms_norm, arrays": lambda: fulgurite.ops.rms_norm(ours, [8], our_weight),
        "fulgurite.ops.neg, tensors": lambda: fulgurite.ops.neg(x),
        "fulgurite.ops.rms_norm, tensors": lambda: fulgurite.ops.rms_norm(x, [8], weight),
        "torch.ops.fulgurite.neg": lambda: ops.neg(x),
        "torch.ops.fulgurite.rms_norm": lambda: ops.rms_norm(x, [8], weight),
        "torch.ops.fulgurite.rms_norm, requires_grad": lambda: ops.rms_norm(grad, [8], weight),
        "fulgurite.from_dlpack(tensor)": lambda: fulgurite.from_dlpack(x),
        "torch.from_dlpack(array)": lambda: torch.from_dlpack(ours),
        "torch.from_dlpack(tensor)": lambda: torch.from_dlpack(x),
    }
    if device == "cpu":
        numbers = np.ones((4, 8), dtype="float32")
        found["fulgurite.from_dlpack(numpy array)"] = lambda: fulgurite.from_dlpack(numbers)
    found["fulgurite.ops.neg, two shapes in turns"] = alternating(x, torch.randn(3, 8, device=device))
    found["(an empty function)"] = lambda: None
    found["(library)"] = library
    return found


def alternating(first, second):
    """A call with one of two shapes in turns."""
    ours = [fulgurite.from_dlpack(first), fulgurite.from_dlpack(second)]

    def call():
        ours.reverse()
        return fulgurite.ops.neg(ours[0])

    return call


CLOCKS = {"wall": time.perf_counter, "thread": time.thread_time}


def measured(call, calls: int, clock, wait) -> float:
    """Microseconds of a call."""
    span = range(calls)
    start = clock()
    for _ in span:
        call()
    elapsed = clock() - start
    wait()
    return elapsed / calls * 1e6


def commit() -> str:
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False,
                           cwd=Path(__file__).parent)
    return found.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--only", default="", help="rows whose name has this text")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    clock = CLOCKS[arguments.clock]
    wait = torch.cuda.synchronize if arguments.device == "cuda" else lambda: None
    found = rows(arguments.device)
    kept = found.pop("(library)")
    calls = {name: call for name, call in found.items() if arguments.only in name}
    times: dict[str, list] = {name: [] for name in calls}
    for call in calls.values():
        measured(call, 50, clock, wait)
    for _ in range(arguments.repeats):
        for name, call in calls.items():
            times[name].append(measured(call, arguments.calls, clock, wait))
    del kept
    print(f"{processor(arguments.device)}; Python {platform.python_version()}, PyTorch {torch.__version__}, fulgurite "
          f"{commit()}; {arguments.repeats} repeats of {arguments.calls} calls; clock: {arguments.clock}")
    print("| call | least, us | median, us |\n|---|---|---|")
    for name, each in times.items():
        print(f"| {name} | {min(each):.2f} | {statistics.median(each):.2f} |")


if __name__ == "__main__":
    main()
