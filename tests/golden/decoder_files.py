"""Writes `decoder_files/`: small models of Hugging Face's `transformers`, their logits, losses and gradients.

    python tests/golden/decoder_files.py [--out FOLDER]   # needs torch, safetensors and transformers; CPU only, seconds

`NAME.json` of each model has its `config` as `save_pretrained` writes it, its `tensors` by the names of the file that
`save_pretrained` writes, and the mean cross-entropy `loss`. Each tensor has its `shape`, the norm of its `gradient`,
and the sum of products of that gradient with the numbers of the tensor `along.NAME`.
`expected.safetensors` has the token ids, i64[B, T], the targets of the loss, i64[B, T], and the logits of each model,
f32[B, T, V]. Weights are not stored: each number follows from the tensor's name and its place (see `weights`), by whole
numbers alone and three roundings to f32, so that the tests make the same.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

BATCH, LENGTH, VOCABULARY = 2, 12, 31
SIZES = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, vocab_size=VOCABULARY)
IDS = dict(bos_token_id=None, eos_token_id=None, pad_token_id=None)
COMMON = SIZES | IDS | dict(intermediate_size=24, max_position_embeddings=32)
GROUPED = COMMON | dict(num_key_value_heads=2)
WIDE = GROUPED | dict(num_attention_heads=2, num_key_value_heads=1)
FALCON = SIZES | IDS | dict(max_position_embeddings=32, ffn_hidden_size=24)
OPT = SIZES | IDS | dict(max_position_embeddings=32, ffn_dim=24)
GEMMA3 = dict(
    sliding_attention=dict(rope_type="default", rope_theta=100.0),
    full_attention=dict(rope_type="linear", rope_theta=1000.0, factor=2.5),
)
# The mixture is between the first rotation and the fourth, of eight.
YARN = dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=8) | dict(
    beta_fast=1.2, beta_slow=0.2, truncate=False
)
DYNAMIC = dict(rope_type="dynamic", rope_theta=100.0, factor=2.5)
LONGROPE = dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.5]) | dict(long_factor=[1.25, 2.0])
MODELS = {
    "gemma3_text": (
        transformers.Gemma3ForCausalLM,
        transformers.Gemma3TextConfig,
        GROUPED
        | dict(head_dim=8, query_pre_attn_scalar=5, sliding_window=3, rope_parameters=GEMMA3)
        | dict(layer_types=["sliding_attention", "full_attention"], final_logit_softcapping=1.5),
    ),
    "qwen3_moe": (
        transformers.Qwen3MoeForCausalLM,
        transformers.Qwen3MoeConfig,
        GROUPED
        | dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12)
        | dict(mlp_only_layers=[1]),
    ),
    "qwen3_moe_window": (
        transformers.Qwen3MoeForCausalLM,
        transformers.Qwen3MoeConfig,
        GROUPED
        | dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True)
        | dict(use_sliding_window=True, sliding_window=4, attention_bias=True),
    ),
    "phi": (transformers.PhiForCausalLM, transformers.PhiConfig, GROUPED | dict(num_attention_heads=2)),
    "phi_qk": (transformers.PhiForCausalLM, transformers.PhiConfig, WIDE | dict(qk_layernorm=True, hidden_act="relu")),
    "phi3": (
        transformers.Phi3ForCausalLM,
        transformers.Phi3Config,
        WIDE | dict(sliding_window=4, partial_rotary_factor=0.5),
    ),
    "phi3_longrope": (
        transformers.Phi3ForCausalLM,
        transformers.Phi3Config,
        GROUPED | dict(original_max_position_embeddings=8, rope_parameters=LONGROPE),
    ),
    "phi3_longrope_short": (
        transformers.Phi3ForCausalLM,
        transformers.Phi3Config,
        GROUPED | dict(original_max_position_embeddings=16, rope_parameters=LONGROPE),
    ),
    "olmo": (transformers.OlmoForCausalLM, transformers.OlmoConfig, GROUPED | dict(clip_qkv=0.75)),
    "olmo2": (transformers.Olmo2ForCausalLM, transformers.Olmo2Config, GROUPED),
    "smollm3": (
        transformers.SmolLM3ForCausalLM,
        transformers.SmolLM3Config,
        GROUPED | dict(no_rope_layers=[1, 0], use_sliding_window=True, sliding_window=4),
    ),
    "smollm3_biases": (
        transformers.SmolLM3ForCausalLM,
        transformers.SmolLM3Config,
        GROUPED | dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    ),
    "granite": (
        transformers.GraniteForCausalLM,
        transformers.GraniteConfig,
        GROUPED
        | dict(embedding_multiplier=3.0, residual_multiplier=0.5, logits_scaling=2.5, attention_multiplier=0.75)
        | dict(attention_bias=True),
    ),
    "starcoder2": (transformers.Starcoder2ForCausalLM, transformers.Starcoder2Config, GROUPED | dict(sliding_window=4)),
    "starcoder2_plain": (
        transformers.Starcoder2ForCausalLM,
        transformers.Starcoder2Config,
        GROUPED | dict(use_bias=False),
    ),
    "stablelm": (
        transformers.StableLmForCausalLM,
        transformers.StableLmConfig,
        GROUPED | dict(use_qkv_bias=True, partial_rotary_factor=0.5, num_attention_heads=2),
    ),
    "stablelm_qk": (
        transformers.StableLmForCausalLM,
        transformers.StableLmConfig,
        GROUPED | dict(qk_layernorm=True, use_parallel_residual=True, partial_rotary_factor=1.0),
    ),
    "falcon": (transformers.FalconForCausalLM, transformers.FalconConfig, FALCON),
    "falcon_grouped": (
        transformers.FalconForCausalLM,
        transformers.FalconConfig,
        FALCON | dict(new_decoder_architecture=True, num_kv_heads=2, bias=True),
    ),
    "falcon_one_norm": (
        transformers.FalconForCausalLM,
        transformers.FalconConfig,
        FALCON | dict(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1),
    ),
    "falcon_serial": (
        transformers.FalconForCausalLM,
        transformers.FalconConfig,
        FALCON | dict(multi_query=False, parallel_attn=False, bias=True, activation="relu", tie_word_embeddings=False),
    ),
    "opt": (transformers.OPTForCausalLM, transformers.OPTConfig, OPT),
    "opt_after": (
        transformers.OPTForCausalLM,
        transformers.OPTConfig,
        OPT | dict(do_layer_norm_before=False, word_embed_proj_dim=8),
    ),
    "opt_plain": (
        transformers.OPTForCausalLM,
        transformers.OPTConfig,
        OPT
        | dict(enable_bias=False, layer_norm_elementwise_affine=False, activation_function="gelu")
        | dict(_remove_final_layer_norm=True, tie_word_embeddings=False),
    ),
    "qwen2_window": (
        transformers.Qwen2ForCausalLM,
        transformers.Qwen2Config,
        GROUPED | dict(use_sliding_window=True, sliding_window=3, max_window_layers=1),
    ),
    "qwen3_biases": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config, GROUPED | dict(attention_bias=True)),
    "gpt_neox_plain": (
        transformers.GPTNeoXForCausalLM,
        transformers.GPTNeoXConfig,
        COMMON | dict(attention_bias=False, hidden_act="relu", rotary_pct=0.5),
    ),
    "llama_biases": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig,
        GROUPED | dict(attention_bias=True, mlp_bias=True),
    ),
    "llama_yarn": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig,
        GROUPED | dict(num_attention_heads=2, head_dim=16, rope_parameters=YARN),
    ),
    "llama_dynamic": (
        transformers.LlamaForCausalLM,
        transformers.LlamaConfig,
        GROUPED | dict(max_position_embeddings=8, rope_parameters=DYNAMIC),
    ),
}


def weights(name, shape):
    """Numbers from -0.35 to 0.35 that the name and the place of each mix; gains and other vectors are around 1."""
    place = 0
    for byte in name.encode():
        place = (place * 31 + byte) % (1 << 32)
    mixed = (np.arange(int(np.prod(shape)), dtype=np.uint64) + place) * 0x9E3779B1 % (1 << 32)
    for shift, factor in ((15, 0x85EBCA77), (13, 0xC2B2AE3D)):
        mixed = (mixed ^ (mixed >> shift)) * factor % (1 << 32)
    mixed ^= mixed >> 16
    values = ((mixed >> 8).astype(np.float32) / np.float32(1 << 24) - np.float32(0.5)) * np.float32(0.7)
    if len(shape) == 1 and name.endswith(".weight"):
        values = values + np.float32(1.0)
    return torch.from_numpy(values.reshape(shape))


def saved(model):
    """The configuration and the tensors that `save_pretrained` writes."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = json.loads((Path(folder) / "config.json").read_text())
        return config, load_file(Path(folder) / "model.safetensors")


def made(kind, config):
    """The model with the weights that belong to its names."""
    model = kind(config)
    config, tensors = saved(model)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        own = {name: weights(name, tuple(tensor.shape)) for name, tensor in tensors.items()}
        save_file(own, Path(folder) / "model.safetensors", metadata=dict(format="pt"))
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        _, again = saved(model)
    assert own.keys() == again.keys() and all(torch.equal(own[name], again[name]) for name in own)
    return config, model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(""))
    out = parser.parse_args().out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    torch.set_num_threads(1)
    numbers = torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH)
    tokens, targets = numbers * 7 % VOCABULARY, (numbers * numbers + 3) % VOCABULARY
    expected = dict(tokens=tokens, targets=targets)
    for name, (kind, config, fields) in MODELS.items():
        written, model = made(kind, config(**fields))
        logits = model(tokens).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        expected[name] = logits.detach().contiguous()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        _, gradients = saved(model)
        tensors = {
            own: dict(
                shape=list(tensor.shape),
                gradient=float(tensor.double().norm()),
                along=float((tensor.double() * weights(f"along.{own}", tuple(tensor.shape)).double()).sum()),
            )
            for own, tensor in sorted(gradients.items())
        }
        text = json.dumps(dict(config=written, loss=float(loss), tensors=tensors))
        (out / f"{name}.json").write_text(text.replace('}, "', '},\n"') + "\n")
        print(f"{name}: loss {float(loss):.4f}, logits up to {float(logits.abs().max()):.3f}, {len(tensors)} tensors")
    save_file(expected, out / "expected.safetensors")


if __name__ == "__main__":
    main()
