"""The rows of `fulgurite bench` in PyTorch: `fulgurite bench --peers` runs this script.

Reads {"device": "cuda", "rows": [...]} from standard input, the rows as `fulgurite bench --json` has them. Writes a
line of JSON for each row and peer: {"row": ..., "who": ..., "figures": [{"name", "unit", "median", "quartiles"}]}, or
with "failed" in the place of figures; and one line {"about": versions}. "repeats" are the names of figures whose
results have the same bits in each run, where that is looked at.

Kernels are timed between events with cold caches, as recorded graphs where they can be recorded, so that the device
waits for no host; backward is forward and gradients, less forward.
"""
import gc
import json
import sys
import time

import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
RUNS, WARM_UP = 15, 4
# Milliseconds of steps on one GPU, by what is trained.
ON_ONE = {}


def quantile(numbers, part):
    at = part * (len(numbers) - 1)
    low, high = numbers[int(at)], numbers[min(int(at) + 1, len(numbers) - 1)]
    return low + (high - low) * (at - int(at))


def figure(name, unit, values):
    values = sorted(values)
    quartiles = [quantile(values, 0.25), quantile(values, 0.75)] if len(values) > 1 else None
    return {"name": name, "unit": unit, "median": quantile(values, 0.5), "quartiles": quartiles}


def say(**fields):
    print(json.dumps(fields), flush=True)


def peer(row, who, measure, repeats=None):
    """Measures a row, or says why it cannot be measured. `repeats` gives the names of figures with the same bits."""
    try:
        figures = measure()
        try:
            same = repeats() if repeats else None
        except RuntimeError:  # The figures count without this, as where memory does not suffice for it.
            same = None
        say(row=row["name"], who=who, figures=figures, repeats=same)
    except Exception as error:  # Whatever a peer cannot do is a line of the table.
        say(row=row["name"], who=who, failed=f"{type(error).__name__}: {error}"[:300])
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def kernel_times(run, device):
    """Microseconds of each of some runs."""
    # Beyond the caches: of hosts no less than is written beside our own runs.
    flush = torch.empty((512 if device == "cpu" else 256) << 20, dtype=torch.uint8, device=device)
    if device == "cpu":
        times = []
        for i in range(WARM_UP + RUNS):
            flush.fill_(i)
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e6)
        return times[WARM_UP:]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(side)
    run = recorded(run)
    pairs = []
    for _ in range(RUNS):
        # The device is busy with this while the host enqueues the run.
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e3 for start, end in pairs]


def recorded(run):
    """The replay of a run that was recorded; the run itself if it cannot be recorded, as where it waits for results."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except RuntimeError:
        torch.cuda.synchronize()
        return run
    graph.replay()
    return graph.replay


def forward_backward(function, inputs, wrt, device):
    """The figures of a function and of its gradients."""
    with torch.no_grad():
        forward = figure("forward", "us", kernel_times(lambda: function(*inputs), device))
    figures = [forward]
    if wrt:
        leaves = [inputs[i].requires_grad_() for i in wrt]
        cotangent = torch.randn_like(function(*inputs))
        both = kernel_times(lambda: torch.autograd.grad(function(*inputs), leaves, cotangent), device)
        figures.append(figure("backward", "us", [max(time - forward["median"], 0.0) for time in both]))
    return figures


def step_row(row, device):
    from gpt2_torch import GPT

    sizes = {"124M": (12, 12, 768), "1558M": (48, 25, 1600), "micro": (4, 4, 128)}
    layers, heads, channels = sizes[row["size"]]
    batch, context, precision = row["batch"], row["context"], row["precision"]
    if precision != "32-true":
        torch.set_float32_matmul_precision("high")

    def measure(mode):
        torch._dynamo.reset()
        torch.manual_seed(42)
        kind = "cpu" if device == "cpu" else "cuda"
        model = GPT(V=50257, T=max(context, 64), L=layers, H=heads, C=channels).to(kind)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
        tokens, targets = (torch.randint(50257, (batch, context), device=kind) for _ in range(2))
        loss_of = model if mode is None else torch.compile(model, mode=None if mode == "default" else mode)
        if row["checkpointing"]:
            from torch.utils.checkpoint import checkpoint

            for block in model.h:
                inner = block.forward
                block.forward = lambda x, inner=inner: checkpoint(inner, x, use_reentrant=False)

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(kind, torch.bfloat16, enabled=precision == "bf16-mixed"):
                loss = loss_of(tokens, targets)
            loss.backward()
            # `train` clips too.
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
            optimizer.step()

        wait = torch.cuda.synchronize if kind == "cuda" else lambda: None
        if kind == "cuda":
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        step()
        wait()
        first = time.perf_counter() - start
        for _ in range(5):
            step()
        wait()
        # Several steps at a time, enqueued one after the other, as `train` does.
        times = []
        for _ in range(7):
            start = time.perf_counter()
            for _ in range(max(row["steps"] // 7, 1)):
                step()
            wait()
            times.append((time.perf_counter() - start) * 1e3 / max(row["steps"] // 7, 1))
        figures = [figure("step", "ms", times), figure("first step", "s", [first])]
        if kind == "cuda":
            figures.append(figure("memory", "GiB", [torch.cuda.max_memory_allocated() / 2**30]))
        return figures

    modes = {"torch": None, "torch.compile": "default"}
    if device != "cpu" and row["size"] == "124M" and not row["checkpointing"]:
        modes["torch.compile, graphs"] = "reduce-overhead"
    for who, mode in modes.items():
        peer(row, who, lambda: measure(mode))


def ranks_row(row, device):
    import ranks_torch

    def measure(mode):
        figures = ranks_torch.run(row, mode)
        step = next(found["median"] for found in figures if found["name"] == "step")
        # The same model with the same batch, which comes before on one GPU.
        subject = json.dumps([row[name] for name in ("model", "size", "batch", "context", "precision")])
        if row["devices"] == 1:
            ON_ONE[subject] = step
        elif subject in ON_ONE:
            figures.append(figure("scaling", "%", [100 * ON_ONE[subject] / step]))
        return figures

    for who, mode in ranks_torch.modes(row).items():
        peer(row, who, lambda: measure(mode))


def operator_row(row, device):
    dtype = DTYPES[row["dtype"]]
    rows, columns = row["shape"]
    new = lambda *shape: torch.randn(*shape, device=device, dtype=dtype)
    if row["operator"] == "adamw":
        if device == "cpu" or dtype != torch.float32:
            return None

        def fused():
            weight = torch.nn.Parameter(new(rows, columns))
            weight.grad = new(rows, columns)
            optimizer = torch.optim.AdamW([weight], fused=True)
            return [figure("forward", "us", kernel_times(optimizer.step, device))]

        return peer(row, "torch, fused", fused)
    matrix = lambda: new(rows, columns)
    classes = lambda: torch.randint(columns, (rows,), device=device)
    layer_norm = lambda x, w, b: F.layer_norm(x, (columns,), w, b)
    rms_norm = lambda x, w: F.rms_norm(x, (columns,), w, 1e-5)
    gelu = lambda x: F.gelu(x, approximate="tanh")
    functions = {
        "layer_norm": lambda: (layer_norm, (matrix(), new(columns), new(columns)), [0, 1, 2]),
        "rms_norm": lambda: (rms_norm, (matrix(), new(columns)), [0, 1]),
        "softmax": lambda: (lambda x: F.softmax(x, -1), (matrix(),), [0]),
        "gelu": lambda: (gelu, (matrix(),), [0]),
        "cross_entropy": lambda: (F.cross_entropy, (matrix(), classes()), [0]),
    }
    if row["operator"] not in functions:
        return None

    def measure(compiled):
        torch._dynamo.reset()
        function, inputs, wrt = functions[row["operator"]]()
        return forward_backward(torch.compile(function, dynamic=False) if compiled else function, inputs, wrt, device)

    peer(row, "torch", lambda: measure(False))
    peer(row, "torch.compile", lambda: measure(True))
    return None


def repeating(attend, inputs):
    """The names of the figures of `forward_backward` whose results have the same bits in four runs."""
    leaves = [tensor.requires_grad_() for tensor in inputs]
    cotangent = torch.randn_like(attend(*leaves))

    def run():
        with torch.no_grad():
            out = attend(*leaves)
        return {"forward": [out], "backward": torch.autograd.grad(attend(*leaves), leaves, cotangent)}

    bits = lambda tensor: tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int32)
    first, same = run(), {"forward": True, "backward": True}
    for _ in range(3):
        for name, tensors in run().items():
            same[name] &= all(torch.equal(bits(a), bits(b)) for a, b in zip(first[name], tensors))
    return [name for name in same if same[name]]


def attention_row(row, device):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype, length, mask = DTYPES[row["dtype"]], row["length"], row["mask"]
    new = lambda heads: torch.randn(row["batch"], heads, length, row["width"], device=device, dtype=dtype)
    shares = row["heads"] != row["groups"]

    def operands():
        q, k, v = new(row["heads"]), new(row["groups"]), new(row["groups"])
        visible = None
        if isinstance(mask, dict):
            at = torch.arange(length, device=device)
            visible = (at[None] <= at[:, None]) & (at[None] > at[:, None] - mask["window"])
        elif mask == "boolean":
            visible = torch.rand(length, length, device=device) > 0.5
        return (q, k, v), visible

    def prepared():
        inputs, visible = operands()
        attend = lambda q, k, v: F.scaled_dot_product_attention(
            q, k, v, attn_mask=visible, is_causal=mask == "causal", enable_gqa=shares
        )
        return attend, inputs

    def measure(backend):
        with sdpa_kernel(backend):
            return forward_backward(*prepared(), [0, 1, 2], device)

    def repeats(backend):
        """What has the same bits in four runs."""
        with sdpa_kernel(backend):
            return repeating(*prepared())

    def with_same_bits(run, backend):
        """`run(backend)` with PyTorch's deterministic algorithms."""
        torch.use_deterministic_algorithms(True)
        # Filling memory before it is written takes time and changes no result.
        torch.utils.deterministic.fill_uninitialized_memory = False
        try:
            return run(backend)
        finally:
            torch.use_deterministic_algorithms(False)

    if device == "cpu":
        return peer(row, "torch", lambda: measure([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]))
    for who, backend in (
        ("torch, cuDNN", SDPBackend.CUDNN_ATTENTION),
        ("torch, flash", SDPBackend.FLASH_ATTENTION),
        ("torch, efficient", SDPBackend.EFFICIENT_ATTENTION),
    ):
        peer(row, who, lambda: measure(backend), lambda: repeats(backend))
        deterministic = [lambda run=run: with_same_bits(run, backend) for run in (measure, repeats)]
        peer(row, f"{who}, deterministic", *deterministic)
    if isinstance(mask, dict):

        def flexible():
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            torch._dynamo.reset()
            window = mask["window"]
            visible = lambda b, h, i, j: (j <= i) & (j > i - window)
            block = create_block_mask(visible, None, None, length, length, device=device)
            attend = lambda q, k, v: flex_attention(q, k, v, block_mask=block, enable_gqa=shares)
            return torch.compile(attend, dynamic=False), operands()[0]

        peer(
            row,
            "torch, flex",
            lambda: forward_backward(*flexible(), [0, 1, 2], device),
            lambda: repeating(*flexible()),
        )


def product_row(row, device):
    dtype, m, n, k = DTYPES[row["dtype"]], row["m"], row["n"], row["k"]
    new = lambda rows, columns: torch.randn(rows, columns, device=device, dtype=dtype)

    def measure():
        a, b = {
            "linear": lambda: (new(m, k), new(n, k).t()),
            "input": lambda: (new(m, k), new(k, n)),
            "weight": lambda: (new(k, m).t(), new(k, n)),
        }[row["form"]]()
        return forward_backward(torch.matmul, (a, b), [], device)

    peer(row, "torch", measure)


def convolution_row(row, device):
    dtype = DTYPES[row["dtype"]]
    images, outputs, kernel = row["images"], row["outputs"], row["kernel"]
    options = {"stride": row["stride"], "padding": kernel // 2, "groups": row["groups"]}
    convolve = lambda x, weight: F.conv2d(x, weight, **options)

    def operands(memory_format):
        x = torch.randn(images, device=device, dtype=dtype)
        weight = torch.randn(outputs, images[1] // row["groups"], kernel, kernel, device=device, dtype=dtype)
        return tuple(tensor.to(memory_format=memory_format) for tensor in (x, weight))

    def with_settings(run, memory_format, deterministic):
        """`run(function, operands)` with the fastest of cuDNN's algorithms: of all, or of those that repeat bits."""
        settings = {"enabled": True, "benchmark": True, "deterministic": deterministic, "allow_tf32": False}
        with torch.backends.cudnn.flags(**settings):
            return run(convolve, operands(memory_format))

    measure = lambda function, inputs: forward_backward(function, inputs, [0, 1], device)
    for layout, memory_format in (("", torch.contiguous_format), (", channels last", torch.channels_last)):
        for how, deterministic in (("", False), (", deterministic", True)):
            settings = (memory_format, deterministic)
            runs = [lambda run=run: with_settings(run, *settings) for run in (measure, repeating)]
            peer(row, f"torch, cuDNN{layout}{how}", *runs)


def affine_row(row, device):
    def measure(compiled):
        x = torch.rand(row["elements"], device=device)
        function = lambda x, a, b: F.gelu(x * a + b)
        function = torch.compile(function, dynamic=False) if compiled else function
        return forward_backward(function, (x, torch.tensor(1.25), torch.tensor(0.5)), [], device)

    peer(row, "torch", lambda: measure(False))
    peer(row, "torch.compile", lambda: measure(True))


def main():
    asked = json.load(sys.stdin)
    cuda = asked["device"].startswith("cuda") and torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(asked["device"])
    about = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
    if cuda:
        about += f", cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}"
    about += f", {torch.get_num_threads()} threads on the host"
    say(about=about)
    kinds = {
        "step": step_row,
        "ranks_step": ranks_row,
        "operator": operator_row,
        "attention": attention_row,
        "product": product_row,
        "convolution": convolution_row,
        "affine": affine_row,
    }
    for row in asked["rows"]:
        run = kinds.get(row["kind"])
        device = "cpu" if row["group"] == "host" else "cuda"
        if run is None or (device == "cuda" and not cuda):
            continue
        # As it is by default: a row before may have asked for TF32.
        torch.set_float32_matmul_precision("highest")
        run(row, device)


if __name__ == "__main__":
    main()
