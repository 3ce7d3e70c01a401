"""Writes `gpt2_parity.safetensors`: ten AdamW steps of a small GPT-2 in PyTorch, for the model parity test.

    python tests/golden/gpt2_parity.py [--out FILE]        # needs torch and safetensors; CPU only, seconds

The file holds, for the model of `CONFIG` and the optimizer of `OPTIMIZER` (both also in its metadata, key `parity`, as JSON):

    initial/NAME       f32  weights before step 0, under the names of `fulgurite_models::config`
    inputs, targets    i64  [steps, B, T]
    loss_f32, loss_f64      [steps]  mean cross-entropy before each step's update, all arithmetic in that type
    norm_f32, norm_f64      [steps]  global 2-norm of the gradients before clipping
    loss_bf16, norm_bf16    [steps]  the same from f32 weights under `torch.autocast("cpu", dtype=torch.bfloat16)`
    final_f32/NAME     f32  weights after the last step, all arithmetic in f32
    final_f64/NAME     f32  the same from the run in f64, rounded once at the end

Under autocast the step is written with the functions that autocast decides over, and the loss and the softmax inside of it are
taken in f32, as autocast for CUDA has it; the CPU's list leaves them in bfloat16.
The f64 run is the reference that tells a wrong formula from rounding; PyTorch's own f32 error is its distance from it.
Attention does not change when one vector is added to every key, so the key third of `attn.c_attn.bias` has a gradient of
exactly zero; in f32 that is rounding noise, which Adam scales up to full steps. Compare final weights without it.
"""

import argparse
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

CONFIG = dict(vocabulary=131, context=16, layers=2, heads=2, channels=32, batch=4)
OPTIMIZER = dict(
    learning_rate=1e-3, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1, clip=1.0, steps=10, layer_norm_epsilon=1e-5
)


def initial_weights(generator):
    """Weights in the order of `fulgurite_models::config`. Larger than a real initialization, and no zeros or ones, so that
    an ignored bias, a swapped head or a flat attention would show in the first loss."""
    V, T, L, C = CONFIG["vocabulary"], CONFIG["context"], CONFIG["layers"], CONFIG["channels"]

    def normal(*shape, mean=0.0, std=0.1):
        return torch.randn(*shape, generator=generator) * std + mean

    weights = {"wte.weight": normal(V, C), "wpe.weight": normal(T, C)}
    for i in range(L):
        for name, rows, columns in (
            ("ln_1", None, C),
            ("attn.c_attn", 3 * C, C),
            ("attn.c_proj", C, C),
            ("ln_2", None, C),
            ("mlp.c_fc", 4 * C, C),
            ("mlp.c_proj", C, 4 * C),
        ):
            weights[f"h.{i}.{name}.weight"] = normal(C, mean=1.0) if rows is None else normal(rows, columns)
            weights[f"h.{i}.{name}.bias"] = normal(C if rows is None else rows, std=0.05)
    weights["ln_f.weight"] = normal(C, mean=1.0)
    weights["ln_f.bias"] = normal(C, std=0.05)
    return weights


def loss_of(weights, inputs, targets):
    """Mean cross-entropy of next-token logits; the embedding is tied to the output projection."""
    H, C = CONFIG["heads"], CONFIG["channels"]
    B, T = inputs.shape

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def layer_norm(x, name):
        return F.layer_norm(x, (C,), weights[name + ".weight"], weights[name + ".bias"], OPTIMIZER["layer_norm_epsilon"])

    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    x = weights["wte.weight"][inputs] + weights["wpe.weight"][:T]
    for i in range(CONFIG["layers"]):
        h = f"h.{i}."
        qkv = linear(layer_norm(x, h + "ln_1"), h + "attn.c_attn").split(C, 2)
        q, k, v = (part.view(B, T, H, C // H).transpose(1, 2) for part in qkv)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(C // H)
        mixed = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
        x = x + linear(mixed.transpose(1, 2).reshape(B, T, C), h + "attn.c_proj")
        x = x + linear(F.gelu(linear(layer_norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    logits = F.linear(layer_norm(x, "ln_f"), weights["wte.weight"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def autocast_loss_of(weights, inputs, targets):
    """As `loss_of`, under bfloat16 autocast: products in bfloat16, the residual stream, normalizations and the loss in f32."""
    H, C = CONFIG["heads"], CONFIG["channels"]
    B, T = inputs.shape

    def linear(x, name):
        return F.linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def layer_norm(x, name):
        return F.layer_norm(x, (C,), weights[name + ".weight"], weights[name + ".bias"], OPTIMIZER["layer_norm_epsilon"])

    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = F.embedding(inputs, weights["wte.weight"]) + weights["wpe.weight"][:T]
        for i in range(CONFIG["layers"]):
            h = f"h.{i}."
            qkv = linear(layer_norm(x, h + "ln_1"), h + "attn.c_attn").split(C, 2)
            q, k, v = (part.view(B, T, H, C // H).transpose(1, 2) for part in qkv)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + linear(mixed.transpose(1, 2).reshape(B, T, C), h + "attn.c_proj")
            fed = F.gelu(linear(layer_norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh")
            x = x + linear(fed, h + "mlp.c_proj")
        logits = F.linear(layer_norm(x, "ln_f"), weights["wte.weight"])
        assert (x.dtype, logits.dtype) == (torch.float32, torch.bfloat16), (x.dtype, logits.dtype)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def train(initial, inputs, targets, dtype, loss_of=loss_of):
    """Losses, gradient norms and final weights of the run with weights, and by default all arithmetic, in `dtype`."""
    weights = {name: value.to(dtype, copy=True).requires_grad_() for name, value in initial.items()}
    matrices = [w for w in weights.values() if w.dim() > 1]
    vectors = [w for w in weights.values() if w.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [dict(params=matrices, weight_decay=OPTIMIZER["weight_decay"]), dict(params=vectors, weight_decay=0.0)],
        lr=OPTIMIZER["learning_rate"],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
        eps=OPTIMIZER["epsilon"],
    )
    losses, norms = [], []
    for step in range(OPTIMIZER["steps"]):
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(weights, inputs[step], targets[step])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(weights.values()), OPTIMIZER["clip"]))
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), torch.stack(norms), {name: w.detach() for name, w in weights.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".safetensors"))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(1337)
    initial = initial_weights(generator)
    shape = (OPTIMIZER["steps"], CONFIG["batch"], CONFIG["context"] + 1)
    # A skewed distribution, so that there is something to learn within ten steps.
    tokens = (torch.rand(shape, generator=generator) ** 3 * CONFIG["vocabulary"]).long()
    inputs, targets = tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
    loss32, norm32, final32 = train(initial, inputs, targets, torch.float32)
    loss64, norm64, final64 = train(initial, inputs, targets, torch.float64)
    loss16, norm16, _ = train(initial, inputs, targets, torch.float32, autocast_loss_of)

    tensors = dict(inputs=inputs, targets=targets, loss_f32=loss32, loss_f64=loss64, norm_f32=norm32, norm_f64=norm64)
    tensors |= dict(loss_bf16=loss16, norm_bf16=norm16)
    for prefix, weights in (("initial", initial), ("final_f32", final32), ("final_f64", final64)):
        tensors |= {f"{prefix}/{name}": value.float().contiguous() for name, value in weights.items()}
    # One metadata key: safetensors writes several in hash order, and the file should not change without a reason.
    parity = json.dumps(dict(config=CONFIG, optimizer=OPTIMIZER, torch=torch.__version__), sort_keys=True)
    save_file(tensors, out, metadata={"parity": parity})

    for step, (a, b, c, n) in enumerate(zip(loss32.tolist(), loss64.tolist(), loss16.tolist(), norm64.tolist())):
        print(f"step {step}: loss f32 {a:.7f}  f64 {b:.9f}  relative difference {abs(a / b - 1):.1e}  gradient norm {n:.4f}")
        print(f"        under autocast {c:.7f}  relative difference {abs(c / b - 1):.1e}")
    C = CONFIG["channels"]
    worst = 0.0
    for name in final32:
        difference = (final32[name].double() - final64[name]).abs()
        if name.endswith("attn.c_attn.bias"):
            difference[C : 2 * C] = 0
        worst = max(worst, difference.max().item())
    print(f"largest difference of a final weight, f32 against f64, key biases apart: {worst:.1e}")
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
