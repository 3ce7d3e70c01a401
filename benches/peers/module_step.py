"""A training step of GPT-2 124M, written in PyTorch, by torch.compile's inductor and by fulgurite, in one run.

    python benches/peers/module_step.py --batch 4 16

bf16 autocast (that of PyTorch for the one, `autocast=` for the other), PyTorch's fused AdamW for both; the third is
`fulgurite.train_step`, the whole step as one program. Each is measured in a process of its own, so that no memory of
the one counts for the other. Prints a JSON line each: milliseconds a step of 20 that are enqueued one behind the other,
the host's milliseconds in the forward pass, the backward pass and the optimizer (in all of a whole step), seconds of
the first step, the loss, and GiB that are used on the GPU. These are

- `reserved`: PyTorch's allocator (`allocated` is its peak of tensors)
- `kept`: memory of arrays of fulgurite that are gone, for the next ones: what is saved for the backward pass, mostly
- `programs`: the own memory of the compiled programs
- `rest`: gradients that fulgurite made (f32, one for each parameter), code and libraries, the contexts
"""

import argparse
import json
import subprocess
import sys
import time

import torch

import fulgurite
import fulgurite.torch
from gpt2_torch import GPT

WAYS = {
    "inductor": (torch.compile, True),
    "fulgurite": (lambda model: fulgurite.jit(model, autocast="bfloat16"), False),
    "train_step": (None, False),
}


def measured(name: str, batch: int, context: int, steps: int) -> dict:
    torch.manual_seed(42)
    torch._dynamo.reset()
    compiled, autocast = WAYS[name]
    model = GPT(T=context).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    given, wanted = (torch.randint(50257, (batch, context), device="cuda") for _ in range(2))
    if compiled is None:
        run = fulgurite.train_step(model, lambda model, *batch: model(*batch), optimizer, autocast="bfloat16")
    else:
        run = compiled(model)

    def step(times=None):
        marks = [time.perf_counter()]
        if compiled is None:
            loss = run(given, wanted)
            if times is not None:
                times.append([round(1e3 * (time.perf_counter() - marks[0]), 2)])
            return loss
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = run(given, wanted)
        marks.append(time.perf_counter())
        loss.backward()
        marks.append(time.perf_counter())
        optimizer.step()
        marks.append(time.perf_counter())
        if times is not None:
            times.append([round(1e3 * (b - a), 2) for a, b in zip(marks, marks[1:])])
        return loss

    begin = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - begin
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        loss = step()
    torch.cuda.synchronize()
    milliseconds = (time.perf_counter() - begin) / steps * 1e3
    host: list = []
    for _ in range(5):
        torch.cuda.synchronize()
        step(host)
    torch.cuda.synchronize()
    return {
        "name": name, "batch": batch, "context": context, "ms": round(milliseconds, 2), "host_ms": sorted(host)[2],
        "first_s": round(first, 1), "gib": used_memory(run), "loss": round(loss.item(), 4),
        "breaks": [str(each) for each in getattr(run, "breaks", [])],
    }


def used_memory(run) -> dict:
    """GiB on the GPU, and whose they are, after steps of a compiled module."""

    def used():
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        return total - free

    all_of_it, reserved = used(), torch.cuda.memory_reserved()
    report, kept, programs = getattr(run, "report", None), 0, 0
    if report is not None:
        fulgurite.torch.empty_cache()
        kept = all_of_it - used()
        programs = sum(own for program in report.last for _, _, own in program.last.memory())
    parts = {
        "all": all_of_it, "reserved": reserved, "allocated": torch.cuda.max_memory_allocated(), "kept": kept,
        "programs": programs, "rest": all_of_it - reserved - kept - programs,
    }
    return {name: round(part / 2**30, 2) for name, part in parts.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=list(WAYS))
    options = parser.parse_args()
    if options.only is None or len(options.batch) > 1:
        for batch in options.batch:
            for name in WAYS:
                if options.only in (None, name):
                    own = ["--only", name, "--batch", str(batch), "--context", str(options.context)]
                    subprocess.run([sys.executable, __file__, *own, "--steps", str(options.steps)], check=True)
        return
    torch.set_float32_matmul_precision("high")
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    print(json.dumps(measured(options.only, options.batch[0], options.context, options.steps)), flush=True)


if __name__ == "__main__":
    main()
