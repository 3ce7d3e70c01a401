"""Writes `llama_files/`: small models of Hugging Face's `transformers`, one of each type, with their logits.

    python tests/golden/llama_files.py [--out FOLDER]   # needs torch, safetensors and transformers; CPU only, seconds

A folder for each type holds what `save_pretrained` writes: `config.json` and `model.safetensors`, or for `llama`
several files with `model.safetensors.index.json`. `expected.safetensors` holds the token ids, i64[B, T], and the logits
of each type, f32[B, T, V]. Weights are f32, random, and larger than a real initialization.
"""

import argparse
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, vocab_size=31)
COMMON = SIZES | dict(num_key_value_heads=2, max_position_embeddings=32, attn_implementation="eager")
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
MODELS = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, dict(rope_parameters=LLAMA3, rms_norm_eps=1e-4)),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM, dict(sliding_window=3)),
    "mixtral": (
        transformers.MixtralConfig,
        transformers.MixtralForCausalLM,
        dict(num_local_experts=3, num_experts_per_tok=2, sliding_window=None),
    ),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM, dict(tie_word_embeddings=True)),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, dict(head_dim=8)),
    "gemma": (transformers.GemmaConfig, transformers.GemmaForCausalLM, dict(head_dim=8)),
    "gemma2": (
        transformers.Gemma2Config,
        transformers.Gemma2ForCausalLM,
        dict(head_dim=8, sliding_window=3, query_pre_attn_scalar=5, attn_logit_softcapping=0.5)
        | dict(final_logit_softcapping=1.5),
    ),
    "gpt_neox": (transformers.GPTNeoXConfig, transformers.GPTNeoXForCausalLM, dict(rotary_pct=0.5)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(""))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.manual_seed(21)
    tokens = torch.randint(SIZES["vocab_size"], (2, 9))
    expected = dict(tokens=tokens)
    for name, (config, model, fields) in MODELS.items():
        common = {k: v for k, v in COMMON.items() if name != "gpt_neox" or k != "num_key_value_heads"}
        model = model(config(**common, **fields)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
            expected[name] = model(tokens).logits.float().contiguous()
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder, max_shard_size="10KB" if name == "llama" else "1GB")
        (folder / "generation_config.json").unlink(missing_ok=True)
        print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters in {folder}")
    save_file(expected, out / "expected.safetensors")


if __name__ == "__main__":
    main()
