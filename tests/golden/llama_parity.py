"""Writes `llama_parity.safetensors`: LitGPT's model for one small configuration of each switch, for the parity test.

    python tests/golden/llama_parity.py [--out FILE]   # needs torch, safetensors, pyyaml and litgpt; CPU only, seconds

The metadata, key `parity`, is JSON: the optimizer, and of each case the fields that differ from LitGPT's defaults,
under LitGPT's names; `norm_add_unit_offset` and `tie_embeddings` are ours, and set here as LitGPT sets them (by a name
with "Gemma" in it, and by one tensor for both). The tensors:

    pool                  f32  random numbers that the initial weights of every case are cut from (see `initial`)
    inputs, targets       i64  [steps, B, T], the same for every case
    CASE/logits           f32  [B, T, V] of the first batch
    CASE/loss, CASE/norm  f32  [steps]  before each step's update: mean cross-entropy, norm of the unclipped gradients
    CASE/gradient/NAME    f32  of the first batch; names are LitGPT's without its prefix `transformer.`

All arithmetic is f32: LitGPT's RMSNorm computes in f32 whatever the type of the weights is.
"""

import argparse
import importlib.util
import json
import sys
import types
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

OPTIMIZER = dict(learning_rate=1e-3, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1, clip=1.0, steps=10)
BATCH, LENGTH, VOCABULARY, POOL = 2, 12, 31, 4099

NEOX = dict(block_size=16, padded_vocab_size=VOCABULARY, n_layer=1, n_head=2, n_embd=16, intermediate_size=24)
LLAMA = NEOX | dict(
    rotary_percentage=1.0, parallel_residual=False, bias=False, norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP"
)
LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_seq_len=8)
GROUPED = LLAMA | dict(n_head=4, n_query_groups=2, head_size=8)
CAPPED = dict(attention_logit_softcapping=0.5, final_logit_softcapping=1.5)
CASES = {
    "llama": LLAMA | dict(n_layer=2, norm_eps=1e-3),
    "grouped": GROUPED,
    "multi_query": LLAMA | dict(n_query_groups=1),
    "rotary_share": LLAMA | dict(rotary_percentage=0.5, rope_base=50),
    "rope_llama3": LLAMA | dict(rope_adjustments=LLAMA3),
    "rope_linear": LLAMA | dict(rope_adjustments=dict(factor=3.0), rope_condense_ratio=2),
    "layer_norm": LLAMA | dict(norm_class_name="LayerNorm"),
    "norm_offset": LLAMA | dict(norm_add_unit_offset=True),
    "geglu": LLAMA | dict(mlp_class_name="GemmaMLP", gelu_approximate="tanh", scale_embeddings=True),
    "neox": NEOX,
    "neox_tanh": NEOX | dict(gelu_approximate="tanh", lm_head_bias=True),
    "shared_norm": NEOX | dict(shared_attention_norm=True),
    "attention_bias": LLAMA | dict(attn_bias=True),
    "norm_qk": GROUPED | dict(norm_qk=True),
    "tied": LLAMA | dict(tie_embeddings=True),
    "caps": GROUPED | CAPPED,
    "window": GROUPED | dict(n_layer=2, sliding_window_size=3, sliding_window_indices=[1, 0]),
    "window_and_caps": LLAMA | CAPPED | dict(sliding_window_size=5),
    "post_norms": LLAMA | dict(post_attention_norm=True, post_mlp_norm=True, attention_scores_scalar=3),
    "mixture": LLAMA | dict(mlp_class_name="LLaMAMoE", n_expert=4, n_expert_per_token=2),
}


def litgpt():
    """LitGPT's model and configuration. They need torch alone; what else the package imports, for its commands, is left
    out."""
    spec = importlib.util.find_spec("litgpt")
    package = types.ModuleType("litgpt")
    package.__path__ = list(spec.submodule_search_locations)
    converter = types.ModuleType("litgpt.scripts.convert_hf_checkpoint")
    converter.qkv_reassemble = None
    sys.modules["litgpt"] = package
    sys.modules["litgpt.scripts"] = types.ModuleType("litgpt.scripts")
    sys.modules[converter.__name__] = converter
    from litgpt.config import Config
    from litgpt.model import GPT

    return GPT, Config


def plain(name):
    return name.removeprefix("transformer.")


def initial(pool, name, shape, offset):
    """A piece of the pool from a place that the name says, gains around 1 (around 0 where 1 is added to them)."""
    place = 0
    for byte in name.encode():
        place = (place * 31 + byte) % POOL
    count = torch.Size(shape).numel()
    gain = name.endswith(".weight") and len(shape) == 1
    values = pool[(place + torch.arange(count)) % POOL] * 0.2
    return (values + 1.0 if gain and not offset else values).reshape(shape)


def run(GPT, Config, fields, pool, inputs, targets):
    """What the test compares, of one case."""
    ours = {"norm_add_unit_offset", "tie_embeddings"}
    offset = fields.get("norm_add_unit_offset", False)
    own = {name: value for name, value in fields.items() if name not in ours}
    model = GPT(Config(name="Gemma" if offset else "Case", **own))
    if fields.get("tie_embeddings"):
        model.lm_head.weight = model.transformer.wte.weight
    named = {plain(name): parameter for name, parameter in model.named_parameters()}
    if fields.get("tie_embeddings"):
        # One tensor under the first of its two names.
        named["wte.weight"] = named.pop("lm_head.weight")
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(initial(pool, name, parameter.shape, offset))
    decayed = [parameter for parameter in named.values() if parameter.dim() > 1]
    others = [parameter for parameter in named.values() if parameter.dim() == 1]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=OPTIMIZER["weight_decay"]), dict(params=others, weight_decay=0.0)],
        lr=OPTIMIZER["learning_rate"],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
        eps=OPTIMIZER["epsilon"],
    )
    found, losses, norms = {}, [], []
    for step in range(OPTIMIZER["steps"]):
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs[step])
        loss = F.cross_entropy(logits.flatten(0, 1), targets[step].flatten())
        loss.backward()
        if step == 0:
            found["logits"] = logits.detach().clone()
            found |= {f"gradient/{name}": parameter.grad.clone() for name, parameter in named.items()}
        norms.append(torch.nn.utils.clip_grad_norm_(list(named.values()), OPTIMIZER["clip"]))
        optimizer.step()
        losses.append(loss.detach())
    return found | dict(loss=torch.stack(losses), norm=torch.stack(norms))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".safetensors"))
    out = parser.parse_args().out
    GPT, Config = litgpt()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(20)
    pool = torch.randn(POOL, generator=generator)
    # A skewed distribution, so that there is something to learn within ten steps.
    tokens = (torch.rand(OPTIMIZER["steps"], BATCH, LENGTH + 1, generator=generator) ** 3 * VOCABULARY).long()
    inputs, targets = tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
    tensors = dict(pool=pool, inputs=inputs, targets=targets)
    for case, fields in CASES.items():
        found = run(GPT, Config, fields, pool, inputs, targets)
        print(f"{case}: loss {found['loss'][0]:.6f} to {found['loss'][-1]:.6f}, gradient norm {found['norm'][0]:.4f}")
        tensors |= {f"{case}/{name}": value.contiguous() for name, value in found.items()}
    # One metadata key: safetensors writes several in hash order, and the file should not change without a reason.
    parity = json.dumps(dict(cases=CASES, optimizer=OPTIMIZER, torch=torch.__version__), sort_keys=True)
    save_file(tensors, out, metadata={"parity": parity})
    print(f"{out}: {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
