"""A training step of GPT-2 124M, written in PyTorch, by torch.compile's inductor and by fulgurite, in one run.

    python benches/peers/module_step.py --batch 4 16

bf16 autocast (that of PyTorch for the one, `autocast=` for the other), PyTorch's fused AdamW for both. Prints a JSON
line each: milliseconds a step of 20 that are enqueued one behind the other, the host's milliseconds in the forward
pass, the backward pass and the optimizer, seconds of the first step, the memory that the process uses on the GPU, the
loss.
"""

import argparse
import json
import time

import torch

import fulgurite
import fulgurite.torch
from gpt2_torch import GPT

WAYS = {
    "inductor": (torch.compile, True),
    "fulgurite": (lambda model: fulgurite.jit(model, autocast="bfloat16"), False),
}


def measured(name: str, batch: int, context: int, steps: int) -> dict:
    torch.manual_seed(42)
    torch._dynamo.reset()
    compiled, autocast = WAYS[name]
    model = GPT(T=context).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    given, wanted = (torch.randint(50257, (batch, context), device="cuda") for _ in range(2))
    run = compiled(model)

    def step(times=None):
        marks = [time.perf_counter()]
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
    free, total = torch.cuda.mem_get_info()
    return {
        "name": name, "batch": batch, "context": context, "ms": round(milliseconds, 2), "host_ms": sorted(host)[2],
        "first_s": round(first, 1), "gib": round((total - free) / 2**30, 2), "loss": round(loss.item(), 4),
        "breaks": [str(each) for each in getattr(run, "breaks", [])],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", choices=list(WAYS))
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    print(json.dumps({"device": torch.cuda.get_device_name(), "torch": torch.__version__}), flush=True)
    for batch in options.batch:
        for name in WAYS:
            if options.only in (None, name):
                print(json.dumps(measured(name, batch, options.context, options.steps)), flush=True)
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
