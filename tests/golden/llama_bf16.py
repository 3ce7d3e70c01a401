"""Writes `llama_bf16.safetensors`: LitGPT's model trained in `bf16-true`, for the test of that precision.

    python tests/golden/llama_bf16.py [--out FILE]   # needs torch, safetensors and litgpt; CPU only, seconds

The case `grouped` of `llama_parity.py`, wider and with two layers. Weights, gradients and moments are bf16, the tables
of rotary angles and the loss f32; AdamW is PyTorch's fused one, which computes in f32 and rounds each result once. The
same run in f32, from the same rounded weights, says how far rounding alone takes the numbers. The tensors:

    pool, inputs, targets          as in llama_parity.safetensors
    DTYPE/logits, DTYPE/loss       f32  [B, T, V] of the first batch; [steps] before each step's update
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from llama_parity import BATCH, GROUPED, LENGTH, OPTIMIZER, POOL, VOCABULARY, initial, litgpt, plain
from safetensors.torch import save_file

FIELDS = GROUPED | dict(n_layer=2, n_embd=64, head_size=16, intermediate_size=96)


def run(GPT, Config, dtype, pool, inputs, targets):
    model = GPT(Config(name="Case", **FIELDS))
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.to(dtype)
    named = {plain(name): parameter for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(initial(pool, name, parameter.shape, False).bfloat16())
    assert model.cos.dtype == torch.float32
    decayed = [parameter for parameter in named.values() if parameter.dim() > 1]
    others = [parameter for parameter in named.values() if parameter.dim() == 1]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=OPTIMIZER["weight_decay"]), dict(params=others, weight_decay=0.0)],
        lr=OPTIMIZER["learning_rate"],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
        eps=OPTIMIZER["epsilon"],
        fused=True,
    )
    found, losses = {}, []
    for step in range(OPTIMIZER["steps"]):
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs[step])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets[step].flatten())
        loss.backward()
        if step == 0:
            found["logits"] = logits.detach().float()
        torch.nn.utils.clip_grad_norm_(list(named.values()), OPTIMIZER["clip"])
        optimizer.step()
        losses.append(loss.detach())
    assert all(state["exp_avg"].dtype == dtype for state in optimizer.state.values())
    return found | dict(loss=torch.stack(losses))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".safetensors"))
    out = parser.parse_args().out
    GPT, Config = litgpt()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(20)
    pool = torch.randn(POOL, generator=generator)
    tokens = (torch.rand(OPTIMIZER["steps"], BATCH, LENGTH + 1, generator=generator) ** 3 * VOCABULARY).long()
    inputs, targets = tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
    tensors = dict(pool=pool, inputs=inputs, targets=targets)
    for name, dtype in dict(bf16=torch.bfloat16, f32=torch.float32).items():
        found = run(GPT, Config, dtype, pool, inputs, targets)
        print(name, [round(loss, 4) for loss in found["loss"].tolist()])
        tensors |= {f"{name}/{key}": value.contiguous() for key, value in found.items()}
    parity = json.dumps(dict(fields=FIELDS, optimizer=OPTIMIZER, torch=torch.__version__), sort_keys=True)
    save_file(tensors, out, metadata={"parity": parity})
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
