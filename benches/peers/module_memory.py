"""Where the memory of a compiled module of PyTorch is, as it is planned: nothing runs, and no GPU is needed.

    python benches/peers/module_memory.py --batch 4 16

GPT-2 124M of `gpt2_torch.py`, compiled by `fulgurite.jit(model, autocast="bfloat16")` for `--target`. Prints what the
forward program saves for the backward program, by the line that makes it, and for each program the bytes of its inputs,
of its results and of its own memory (arena, workspaces, places of small inputs), which it keeps from run to run. What
is saved is among the results of the one and the inputs of the other. `parameters` are inputs of both, in f32, and there
once.
"""

import argparse
import collections
import re

import torch

import fulgurite
import fulgurite.torch
from fulgurite.torch import _exchange, _module
from gpt2_torch import GPT

MIB = 2**20


class _Planned(BaseException):
    """Ends a call where its program would run."""


def planned(model, arguments, **options):
    """The function of a module that is one graph, compiled for the arguments with gradients of the parameters."""
    found = []

    def run(program, inputs, failed):
        tensors, paths, form = program._form(inputs)
        wrt = tuple(path for path, each in zip(paths, tensors) if each.requires_grad)
        function = program._native(wrt, failed)
        function.compile(form, _exchange.cross([each.detach() for each in tensors]).arrays)
        found.append(function)
        raise _Planned

    before, _module.Program._run = _module.Program._run, run
    try:
        fulgurite.jit(model, strict=True, **options)(*arguments)
    except _Planned:
        pass
    finally:
        _module.Program._run = before
    return found[0]


def size(value) -> int:
    """Bytes of a value of a trace."""
    number = 1
    for extent in value.shape:
        number *= extent
    return number * _exchange.TORCH_DTYPES[value.dtype.name].itemsize


def saved(function, target) -> dict:
    """What is saved and is no argument: for each kind of value and the line that makes it, how many, and bytes."""
    forward = function.stages("forward", target)[-1]
    makers = {result.name: line for line in forward.lines for result in line.results}
    arguments = {value.name for value in forward.inputs}
    kinds = collections.defaultdict(lambda: [0, 0])
    for path, value in forward.outputs:
        if path.startswith("saved.") and value.name not in arguments:
            line = makers.get(value.name)
            made = f"{line.operator} by {line.executor}" if line is not None else "a region"
            shape = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
            kind = kinds[re.sub(r"\.\d+\b", ".*", value.name), shape, made]
            kind[0] += 1
            kind[1] += size(value)
    return dict(kinds)


def report(batch: int, context: int, layers: int, target: str) -> None:
    torch._dynamo.reset()
    with torch.device("meta"):
        model = GPT(T=context, L=layers)
    # Memory that nobody writes to is not taken.
    model = model.to_empty(device="cpu")
    model.wte.weight = model.lm_head.weight
    tokens = torch.zeros(batch, context, dtype=torch.int64)
    function = planned(model, (tokens, tokens), autocast="bfloat16")
    kinds = saved(function, target)
    parameters = sum(each.numel() * each.element_size() for each in model.parameters())
    total = sum(each for _, each in kinds.values())
    print(f"batch {batch}, context {context}, {layers} layers, {target}: MiB")
    print(f"{parameters / MIB:10.1f}  parameters\n{total / MIB:10.1f}  saved")
    for (name, shape, made), (count, each) in sorted(kinds.items(), key=lambda kind: -kind[1][1]):
        print(f"{each / MIB:14.1f}  {count} x {name}: {shape} = {made}")
    programs = function.memory(target)
    for name, (inputs, outputs, own) in zip(("forward", "backward"), programs):
        print(f"{own / MIB:10.1f}  own memory of {name}; inputs {inputs / MIB:.1f}, results {outputs / MIB:.1f}")
    gradients = programs[1][1]
    owns = sum(own for _, _, own in programs)
    together = parameters + total + gradients + owns
    print(f"{together / MIB:10.1f}  parameters, saved, gradients and both programs: while the backward program runs",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--target", default="cuda:sm_90a")
    options = parser.parse_args()
    for batch in options.batch:
        report(batch, options.context, options.layers, options.target)


if __name__ == "__main__":
    main()
