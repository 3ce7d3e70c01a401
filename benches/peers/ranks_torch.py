"""A training step on several GPUs in PyTorch, by DDP or FSDP2: `torchrun --standalone --nproc-per-node N ranks_torch.py
ROW MODE`.

ROW is a row of `fulgurite bench --json` as JSON, MODE one of those below. Rank 0 prints a line of JSON with the
figures, and a rank that cannot go on one that says why. As in `train`, parameters and moments are f32, products bf16,
gradients are clipped by their norm, and each rank has a batch of its own. A row with `"checkpointing": true` computes
blocks again in the backward pass. A row of the model `collectives` is of NCCL by itself: rank 0 prints a line for each
size of a tensor, as `collectives` of benches/src/bin does.
"""
import ctypes
import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from datetime import timedelta

# What is compiled: all of the model, or each of its blocks by itself.
WHOLE, BLOCKS = "torch.compile", "torch.compile of blocks"
WARM_UP, ROUNDS = 6, 7
# How long a rank waits for the others, which may still compile; and how long a row may take.
PATIENCE, LONGEST = timedelta(minutes=4), 900
LLAMA = dict(
    head_size=None, norm_eps=1e-5, rope_base=10000, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP",
    padded_vocab_size=32000,
)
LLAMAS = {
    # To try the script on a host.
    "nano": LLAMA | dict(
        n_layer=2, n_head=2, n_embd=64, n_query_groups=2, intermediate_size=176, padded_vocab_size=256,
    ),
    "TinyLlama-1.1B": LLAMA | dict(n_layer=22, n_head=32, n_embd=2048, n_query_groups=4, intermediate_size=5632),
    # The frequencies of its rotations are adjusted, which takes no time of a step.
    "Llama-3.1-8B": LLAMA | dict(
        n_layer=32, n_head=32, n_embd=4096, n_query_groups=8, intermediate_size=14336, padded_vocab_size=128256,
        rope_base=500000,
    ),
}
COLLECTIVES = "collectives"
# The least size of a tensor that ranks give each other, and by how much each is larger than the one before.
LEAST, TIMES = 1 << 10, 4


def modes(row):
    """The peers of a row: a name, and a mode."""
    if row["strategy"] is None:
        return {WHOLE: WHOLE}
    if row["strategy"] == "ddp":
        return {f"DDP, {WHOLE}": WHOLE}
    return {f"FSDP2, {mode}": mode for mode in (WHOLE, BLOCKS)}


def end_with_parent():
    """Linux ends this process as soon as the one that started it has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def run(row, mode):
    """The figures of a row, measured by processes of this script; an error that says why there are none."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(row["devices"])]
    command += [os.path.abspath(__file__), json.dumps(row), mode]
    processes = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=end_with_parent,
    )
    try:
        out, complaints = processes.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        processes.terminate()
        out, complaints = processes.communicate()
        raise RuntimeError(f"no figures after {LONGEST} s; {last(complaints)}") from None
    said = [read for read in map(line_of_json, out.splitlines()) if read]
    failed = next((read["failed"] for read in said if "failed" in read), None)
    figures = next((read["figures"] for read in said if "figures" in read), None)
    if failed or figures is None:
        raise RuntimeError(failed or f"exit code {processes.returncode}: {last(complaints)}")
    return figures


def line_of_json(line):
    """What a line of this script says; libraries print other lines."""
    try:
        read = json.loads(line)
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


def last(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def model_of(row, device):
    """The model, and what it is given after tokens and targets."""
    import torch

    if row["model"] == "gpt2":
        from gpt2_torch import GPT

        layers, heads, channels = {"124M": (12, 12, 768), "micro": (4, 4, 128)}[row["size"]]
        with torch.device(device):
            return GPT(V=50257, T=row["context"], L=layers, H=heads, C=channels), 50257, ()
    from decoder_torch import Decoder

    config = LLAMAS[row["size"]]
    with torch.device(device):
        width = config["head_size"] or config["n_embd"] // config["n_head"]
        speeds = config["rope_base"] ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
        angles = torch.outer(torch.arange(row["context"], dtype=torch.float32), speeds).repeat(1, 2)
        return Decoder(config), config["padded_vocab_size"], (angles.cos().bfloat16(), angles.sin().bfloat16())


def divided(model, strategy, device):
    """The model as the ranks have it."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.nn.parallel import DistributedDataParallel

    if strategy is None:
        return model
    if strategy == "ddp":
        devices = None if device.type == "cpu" else [device.index]
        return DistributedDataParallel(model, device_ids=devices, gradient_as_bucket_view=True)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in [*model.h, model]:
        fully_shard(part, mp_policy=policy, reshard_after_forward=strategy == "zero3")
    return model


def repeats(size):
    """How many collectives of `size` bytes follow each other in a graph, and how often it is replayed in a round: as in
    `collectives`."""
    if size < 1 << 20:
        return 16, 16
    return (8, 8) if size < 1 << 26 else (4, 2)


def collectives(row, device, wait):
    """Prints a line for each size: tensors of f32, each collective of which takes the result of the one before."""
    import torch
    import torch.distributed as dist

    count, cuda = dist.get_world_size(), device.type == "cuda"
    # Gloo has no mean.
    mean = dist.ReduceOp.AVG if cuda else dist.ReduceOp.SUM
    for name in ("all_reduce", "all_gather, reduce_scatter"):
        size = LEAST
        while size <= row["most"]:
            chained, calls = repeats(size)
            whole = torch.zeros(size // 4, device=device)
            part = torch.zeros(size // 4 // count, device=device)

            def exchange():
                for _ in range(chained):
                    if name == "all_reduce":
                        dist.all_reduce(whole, mean)
                    else:
                        dist.all_gather_into_tensor(whole, part)
                        dist.reduce_scatter_tensor(part, whole, mean)

            # Makes connections.
            exchange()
            wait()
            play = exchange
            if cuda:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    exchange()
                play = graph.replay
            times = []
            for number in range(ROUNDS + 1):
                wait()
                dist.barrier()
                wait()
                start = time.perf_counter()
                for _ in range(calls):
                    play()
                wait()
                if number > 0:
                    times.append((time.perf_counter() - start) * 1e6 / (chained * calls))
            us = statistics.median(times)
            # The parts of the others, and the own part to them.
            sent = 2 * (count - 1) / count * size
            if dist.get_rank() == 0:
                line = {"collective": name, "bytes": size, "us": round_of(us), "gb_s": round_of(sent / us / 1e3)}
                print(json.dumps(line | {"ranks": count}), flush=True)
            size *= TIMES


def round_of(number):
    return float(f"{number:.4g}")


def main(row, mode):
    import torch
    import torch.distributed as dist

    rank, cuda = int(os.environ["LOCAL_RANK"]), torch.cuda.is_available()
    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device, timeout=PATIENCE)
    else:
        dist.init_process_group("gloo", timeout=PATIENCE)
    wait = torch.cuda.synchronize if cuda else lambda: None
    if row["model"] == COLLECTIVES:
        collectives(row, device, wait)
        dist.barrier()
        dist.destroy_process_group()
        return
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(42)
    batch, context, strategy = row["batch"], row["context"], row["strategy"]
    model, vocabulary, more = model_of(row, device)
    if row.get("checkpointing"):
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        # Below compilation and sharding, as PyTorch's own examples have it.
        for number, block in enumerate(model.h):
            model.h[number] = checkpoint_wrapper(block)
    if mode == BLOCKS:
        for block in model.h:
            block.compile()
    model = divided(model, strategy, device)
    loss_of = torch.compile(model) if mode == WHOLE else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    torch.manual_seed(rank)
    tokens, targets = (torch.randint(vocabulary, (batch, context), device=device) for _ in range(2))
    # FSDP2 gives the model its parameters in bf16.
    autocast = strategy in (None, "ddp")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            loss = loss_of(tokens, targets, *more)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    # What a whole model took before it was divided is no part of the step's memory.
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    step()
    wait()
    first = time.perf_counter() - start
    for _ in range(WARM_UP - 1):
        step()
    # Several steps at a time, enqueued one after the other, as `train` does.
    times, count = [], max(row["steps"] // ROUNDS, 1)
    for _ in range(ROUNDS):
        wait()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(count):
            step()
        wait()
        times.append((time.perf_counter() - start) * 1e3 / count)
    if rank == 0:
        from bench_torch import figure

        speed = batch * context * row["devices"] * 1e3 / statistics.median(times)
        figures = [figure("step", "ms", times), figure("speed", "tokens/s", [speed])]
        figures.append(figure("first step", "s", [first]))
        if cuda:
            figures.append(figure("memory", "GiB", [torch.cuda.max_memory_allocated() / 2**30]))
        print(json.dumps({"figures": figures}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    end_with_parent()
    try:
        main(json.loads(sys.argv[1]), sys.argv[2])
    except Exception as error:
        print(json.dumps({"failed": f"rank {os.environ.get('RANK')}: {type(error).__name__}: {error}"}), flush=True)
        # At once: the others may wait for this one, and it for them.
        os._exit(1)
