"""PyTorch's part of `gpt2_experiment`: ten AdamW steps from the weights and the batch of a folder, then the time of a step.
Prints one line of JSON. The folder holds weights.safetensors (names as in nn.Module, matrices as nn.Linear has them) and
batch.safetensors (inputs, targets: int64 [B, T])."""
import argparse, json, math, struct, time
import torch
from torch import nn
from torch.nn import functional as F

DTYPES = {"F32": torch.float32, "I64": torch.int64}


def load(path):
    """A safetensors file: 8 bytes of length, a header of JSON, and the data."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        flat = torch.frombuffer(data[start:end], dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


class Attention(nn.Module):
    """As the notebook has it: scores written out, masked, softmax, product."""

    def __init__(self, channels, heads, fused):
        super().__init__()
        self.heads, self.fused = heads, fused
        self.c_attn, self.c_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.c_attn(x).split(C, 2))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            mask = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, channels, heads, fused):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attn = Attention(channels, heads, fused)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(channels, 4 * channels), "c_proj": nn.Linear(4 * channels, channels)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, channels, fused):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, channels), nn.Embedding(context, channels)
        self.h = nn.ModuleList(Block(channels, heads, fused) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1), device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder")
    arguments.add_argument("--heads", type=int, default=12)
    arguments.add_argument("--dtype", choices=["f32", "tf32", "bf16"], default="f32")
    arguments.add_argument("--mode", choices=["eager", "compile", "reduce-overhead"], default="eager")
    arguments.add_argument("--fused-attention", action="store_true")
    arguments.add_argument("--lr", type=float, default=1e-4)
    arguments.add_argument("--steps", type=int, default=20)
    a = arguments.parse_args()
    if a.dtype != "f32":
        torch.set_float32_matmul_precision("high")
    weights, batch = load(f"{a.folder}/weights.safetensors"), load(f"{a.folder}/batch.safetensors")
    vocabulary, channels = weights["wte.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("h."))
    model = GPT2(vocabulary, weights["wpe.weight"].shape[0], layers, a.heads, channels, a.fused_attention)
    model.load_state_dict(weights)
    model.cuda()
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.95), eps=1e-8, fused=True)
    tokens, targets = batch["inputs"].cuda(), batch["targets"].cuda()
    forward = model
    if a.mode == "compile":
        forward = torch.compile(model)
    elif a.mode == "reduce-overhead":
        forward = torch.compile(model, mode="reduce-overhead")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=a.dtype == "bf16"):
            loss = forward(tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    started = time.perf_counter()
    losses = [step().item()]
    first = time.perf_counter() - started
    losses += [step().item() for _ in range(9)]
    waited = []
    for _ in range(a.steps):
        started = time.perf_counter()
        step()
        torch.cuda.synchronize()
        waited.append((time.perf_counter() - started) * 1e3)
    started = time.perf_counter()
    for _ in range(a.steps):
        step()
    torch.cuda.synchronize()
    piped = (time.perf_counter() - started) * 1e3 / a.steps
    print(json.dumps({
        "who": f"PyTorch {torch.__version__} {a.mode}" + (" fused attention" if a.fused_attention else ""),
        "dtype": a.dtype, "losses": losses, "ms": round(sorted(waited)[len(waited) // 2], 3), "piped_ms": round(piped, 3),
        "first_s": round(first, 2), "peak_mib": torch.cuda.max_memory_allocated() >> 20,
    }))


if __name__ == "__main__":
    main()
