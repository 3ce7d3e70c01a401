"""A decoder like Llama in PyTorch, for `executor_table --python`: the time of its loss and of its loss with all
gradients, or of its training step with AdamW (`--what step`). Prints one line of JSON. The configuration has LitGPT's fields; norms, MLPs and rotations are Llama's.
"""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WARM = 3


class RMSNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(config["n_embd"])), config["norm_eps"]

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rotated(x, cos, sin):
    half = x.size(-1) // 2
    return (x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin).to(x.dtype)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads = config["n_embd"], config["n_head"]
        self.groups = config["n_query_groups"] or self.heads
        self.size = config["head_size"] or width // self.heads
        inner = config["intermediate_size"] or 4 * width
        self.norm_1, self.norm_2 = RMSNorm(config), RMSNorm(config)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.groups) * self.size, bias=False)
        self.proj = nn.Linear(self.heads * self.size, width, bias=False)
        self.fc_1, self.fc_2 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x, cos, sin):
        rows, length, _ = x.shape
        counts = [self.heads, self.groups, self.groups]
        parts = self.qkv(self.norm_1(x)).split([count * self.size for count in counts], -1)
        q, k, v = (part.view(rows, length, count, self.size).transpose(1, 2) for part, count in zip(parts, counts))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.groups != self.heads)
        x = x + self.proj(y.transpose(1, 2).reshape(rows, length, -1))
        h = self.norm_2(x)
        return x + self.out(F.silu(self.fc_1(h)) * self.fc_2(h))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        if config["norm_class_name"] != "RMSNorm" or config["mlp_class_name"] != "LLaMAMLP":
            raise SystemExit("norm_class_name and mlp_class_name are not Llama's")
        self.wte = nn.Embedding(config["padded_vocab_size"], config["n_embd"])
        self.h = nn.ModuleList(Block(config) for _ in range(config["n_layer"]))
        self.ln_f = RMSNorm(config)
        self.lm_head = nn.Linear(config["n_embd"], config["padded_vocab_size"], bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens, targets, cos, sin):
        x = self.wte(tokens)
        for block in self.h:
            x = block(x, cos, sin)
        return F.cross_entropy(self.lm_head(self.ln_f(x)).flatten(0, 1), targets.flatten())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
    parser.add_argument("--config", type=json.loads, required=True)
    parser.add_argument("--what", choices=["loss", "step"], default="loss")
    parser.add_argument("--precision", choices=["32-true", "tf32", "bf16-mixed", "bf16-true"], default="32-true")
    parser.add_argument("--threads", type=int, help="of the host's; PyTorch's own number otherwise")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--steps", type=int, default=10)
    asked = parser.parse_args()
    torch.manual_seed(42)
    if asked.threads:
        torch.set_num_threads(asked.threads)
    if asked.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    if asked.precision == "bf16-true":
        torch.set_default_dtype(torch.bfloat16)
    config, cuda = asked.config, asked.device == "cuda"
    with torch.device(asked.device):
        model = Decoder(config)
        size = config["head_size"] or config["n_embd"] // config["n_head"]
        speeds = config["rope_base"] ** (-torch.arange(0, size, 2, dtype=torch.float32) / size)
        angles = torch.outer(torch.arange(asked.context, dtype=torch.float32), speeds).repeat(1, 2)
        cos, sin = (part.to(torch.get_default_dtype()) for part in (angles.cos(), angles.sin()))
        tokens = torch.arange(asked.batch * asked.context + 1) * 7919 % config["padded_vocab_size"]
        shape = (asked.batch, asked.context)
        inputs, targets = tokens[:-1].view(shape), tokens[1:].view(shape)
    function = torch.compile(model) if asked.mode == "compile" else model

    def loss():
        with torch.autocast(asked.device, torch.bfloat16, enabled=asked.precision == "bf16-mixed"):
            return function(inputs, targets, cos, sin)

    def forward():
        with torch.no_grad():
            return loss()

    def both():
        for parameter in model.parameters():
            parameter.grad = None
        value = loss()
        value.backward()
        return value

    def median(call):
        times = []
        for number in range(WARM + asked.steps):
            start = time.perf_counter()
            value = call()
            if cuda:
                torch.cuda.synchronize()
            if number >= WARM:
                times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times), value.item()

    if asked.what == "step":
        # What `executor_table --what step` has: everything decays, nothing is clipped.
        options = dict(lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
        optimizer = torch.optim.AdamW(model.parameters(), fused=True, **options)

        def step():
            value = both()
            optimizer.step()
            return value

        if cuda:
            torch.cuda.reset_peak_memory_stats()
        waited_ms, value = median(step)
        start = time.perf_counter()
        for _ in range(asked.steps):
            step()
        if cuda:
            torch.cuda.synchronize()
        piped_ms = (time.perf_counter() - start) * 1e3 / asked.steps
        device = torch.cuda.max_memory_allocated() if cuda else None
        print(json.dumps(dict(waited_ms=waited_ms, piped_ms=piped_ms, device=device, loss=value)))
        return
    loss_ms, _ = median(forward)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    both_ms, value = median(both)
    device = torch.cuda.max_memory_allocated() if cuda else None
    print(json.dumps(dict(loss_ms=loss_ms, both_ms=both_ms, device=device, loss=value)))


if __name__ == "__main__":
    main()
