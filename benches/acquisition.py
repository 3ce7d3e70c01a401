"""Seconds until a decoder of 22 layers like TinyLlama is compiled, forward and backward, from the first call on.

    python benches/acquisition.py [--device cuda] [--layers 22] [--width 256] [--ways jit backend inductor] [--parts]

Each way runs in a process of its own, several times (`--runs`); the first run fills what is kept on disk (inductor's
cache, kernels), and is printed apart. The figure of a run is the time of the first call with its backward pass, less
the least time of such a call later; `processor` is the same in the processor's time of the process, which other work on
the machine adds less to, without that of compilers which it starts. `behind` is the part of that which is not PyTorch's capture of the module: the backend, and
the first calls of what it made. Imports, the making of the model and one eager call come before all of it. `capture` is
the backend `eager` of `torch.compile`, which compiles nothing. `inductor, nothing kept` has an empty cache in each run.

The count of layers and of nodes is what takes the time, not the widths: heads and groups are those of TinyLlama, and
the sizes of a head and of the MLP are in its ratio to `--width` (TinyLlama has 2048). `--parts` prints what Python's
profiler finds in the first call of `jit`, by its own time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

from machine import processor

HEADS, GROUPS, WIDTH, INNER, VOCABULARY = 32, 4, 2048, 5632, 32000


class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * y.to(x.dtype)


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.size = width // HEADS
        self.q_proj = nn.Linear(width, HEADS * self.size, bias=False)
        self.k_proj = nn.Linear(width, GROUPS * self.size, bias=False)
        self.v_proj = nn.Linear(width, GROUPS * self.size, bias=False)
        self.o_proj = nn.Linear(HEADS * self.size, width, bias=False)

    def forward(self, x, cos, sin):
        rows, length, _ = x.shape
        q = self.q_proj(x).view(rows, length, HEADS, self.size).transpose(1, 2)
        k = self.k_proj(x).view(rows, length, GROUPS, self.size).transpose(1, 2)
        v = self.v_proj(x).view(rows, length, GROUPS, self.size).transpose(1, 2)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).reshape(rows, length, -1))


class Mlp(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(width), Norm(width)
        self.self_attn, self.mlp = Attention(width), Mlp(width, inner)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """A decoder as `transformers` writes it."""

    def __init__(self, layers: int, width: int, vocabulary: int):
        super().__init__()
        size, inner = width // HEADS, INNER * width // WIDTH
        self.embed_tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Layer(width, inner) for _ in range(layers)])
        self.norm, self.lm_head = Norm(width), nn.Linear(width, vocabulary, bias=False)
        self.register_buffer("inv_freq", 1e4 ** (-torch.arange(0, size, 2).float() / size))

    def forward(self, ids, labels):
        x = self.embed_tokens(ids)
        positions = torch.arange(ids.shape[1], device=ids.device)
        angles = positions[:, None].float() * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = self.lm_head(self.norm(x)).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def of_transformers(layers: int, width: int, vocabulary: int):
    """The model of the package `transformers`, called as its trainer calls it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=INNER * width // WIDTH, num_hidden_layers=layers,
        num_attention_heads=HEADS, num_key_value_heads=GROUPS))

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, labels):
            return self.model(input_ids=ids, labels=labels, use_cache=False).loss

    return Loss()


#: The ways to compile, in the order in which they run.
WAYS = ("jit", "backend", "capture", "inductor", "inductor, nothing kept")


class Behind:
    """The processor's time of a backend of `torch.compile`, and of the calls of what it makes."""

    def __init__(self):
        self.seconds = 0.0
        self.compile = torch.compile

    def timed(self, function):
        def call(*arguments, **keywords):
            begin = time.process_time()
            try:
                return function(*arguments, **keywords)
            finally:
                self.seconds += time.process_time() - begin

        return call

    def torch_compile(self, model, *, backend, **options):
        """`torch.compile`, with a backend that is timed."""
        found = torch._dynamo.lookup_backend(backend) if isinstance(backend, str) else backend
        timed = self.timed(lambda graph, inputs: self.timed(found(graph, inputs)))
        # A function, not a method: `torch.compile` asks backends for what they are called.
        return self.compile(model, backend=lambda graph, inputs: timed(graph, inputs), **options)


def compiled(way: str, model, behind: Behind):
    """The compiled model, whose backend `behind` times."""
    if way in ("jit", "backend"):
        # What it finds of `torch.compile` when it is imported is PyTorch's own.
        import fulgurite
        import fulgurite.torch

    torch.compile = behind.torch_compile
    if way == "jit":
        return fulgurite.jit(model)
    return torch.compile(model, backend={"backend": "fulgurite", "capture": "eager"}.get(way, "inductor"))


def measured(asked) -> dict:
    """One run of one way, in this process."""
    torch.manual_seed(0)
    torch.set_num_threads(asked.threads)
    make = of_transformers if asked.model == "transformers" else Llama
    model = make(asked.layers, asked.width, asked.vocabulary).to(asked.device)
    ids, labels = (torch.randint(asked.vocabulary, (1, asked.context), device=asked.device) for _ in range(2))

    def step(function):
        """The loss, seconds of the call with its backward pass, the processor's, and those of it behind the capture."""
        model.zero_grad()
        behind.seconds = 0.0
        begin, processor_begin = time.perf_counter(), time.process_time()
        loss = function(ids, labels)
        behind.timed(loss.backward)()
        if asked.device == "cuda":
            torch.cuda.synchronize()
        return (loss.item(), time.perf_counter() - begin, time.process_time() - processor_begin, behind.seconds)

    behind = Behind()
    eager = step(model)[0]
    # What PyTorch imports when it first compiles anything.
    torch.compile(nn.Linear(2, 2), backend="eager")(torch.ones(1, 2))
    run = compiled(asked.way, model, behind)
    if asked.parts:
        import cProfile
        import pstats

        profile = cProfile.Profile()
        profile.enable()
        step(run)
        profile.disable()
        pstats.Stats(profile).sort_stats(asked.parts).print_stats(60)
    loss, *first = step(run)
    later = [step(run)[1:] for _ in range(3)]
    assert abs(loss - eager) < 1e-3 * abs(eager), (loss, eager)
    least = [min(each) for each in zip(*later)]
    compile, processor, behind_capture = (a - b for a, b in zip(first, least))
    return {"compile": compile, "processor": processor, "behind": behind_capture, "call": least[0],
            "breaks": [str(each) for each in getattr(run, "breaks", [])]}


def run_of(way: str, asked, cache: str) -> dict:
    """A run in a process of its own, with inductor's cache in the folder `cache`."""
    own = ["--device", asked.device, "--layers", asked.layers, "--width", asked.width, "--vocabulary",
           asked.vocabulary, "--context", asked.context, "--threads", asked.threads, "--model", asked.model]
    command = [sys.executable, __file__, "--way", way, *map(str, own)]
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--width", type=int, default=256, help="a multiple of 64")
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", choices=["own", "transformers"], default="own")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--parts", nargs="?", const="tottime", help="the profiler's order: tottime, cumulative")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.parts:
        asked.way = asked.way or "jit"
    if asked.way:
        print(json.dumps(measured(asked)))
        return
    print(f"{processor(asked.device)}, {asked.threads} thread(s); Python {platform.python_version()}, PyTorch "
          f"{torch.__version__}; {asked.layers} layers of width {asked.width}, {HEADS} heads, {GROUPS} groups, inner "
          f"{INNER * asked.width // WIDTH}, vocabulary {asked.vocabulary}, 1 x {asked.context} tokens, model: "
          f"{asked.model}")
    print("| way | first run, s | the others: least, s | median, s | processor, s | of it behind, s | a later call, s | breaks |")
    print("|---|---|---|---|---|---|---|---|")
    for way in asked.ways:
        with tempfile.TemporaryDirectory() as kept:
            runs = []
            for _ in range(asked.runs):
                with tempfile.TemporaryDirectory() as empty:
                    runs.append(run_of(way, asked, empty if way.endswith("nothing kept") else kept))
        first, others = runs[0], runs[1:] or runs
        seconds = [each["compile"] for each in others]
        print(f"| {way} | {first['compile']:.2f} | {min(seconds):.2f} | {statistics.median(seconds):.2f} | "
              f"{statistics.median(each['processor'] for each in others):.2f} | "
              f"{statistics.median(each['behind'] for each in others):.2f} | "
              f"{min(each['call'] for each in others):.3f} | {len(first['breaks'])} |", flush=True)


if __name__ == "__main__":
    main()
