"""Writes `llama_files/greedy.json` and `llama_files/tokenizer.json`: what `transformers` generates with the small models
of `llama_files/`.

    python tests/golden/greedy.py [--models FOLDER]   # needs torch, safetensors, tokenizers and transformers; CPU, seconds

`greedy.json` has, for each type, the tokens after each prompt: the most probable ones, in f32, with transformers' cache.
A GPT-2 with random weights is added to the folder. The tokenizer knows the words `t0` to `t30`, one token each.
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

TYPES = ["llama", "mistral", "mixtral", "qwen2", "qwen3", "gemma", "gemma2", "gpt_neox", "gpt2"]
VOCABULARY, COUNT = 31, 16
PROMPTS = [[3, 17, 5, 8, 22], [11], [29, 0, 4]]


def gpt2(folder):
    sizes = dict(vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=4)
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path(__file__).with_name("llama_files"))
    folder = parser.parse_args().models
    torch.set_num_threads(1)
    torch.manual_seed(22)
    gpt2(folder / "gpt2")
    words = {f"t{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    found = dict(prompts=PROMPTS)
    for name in TYPES:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder / name, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        found[name] = []
        for prompt in PROMPTS:
            tokens = torch.tensor([prompt])
            with torch.no_grad():
                out = model.generate(
                    tokens,
                    attention_mask=torch.ones_like(tokens),
                    max_new_tokens=COUNT,
                    do_sample=False,
                    eos_token_id=None,
                    pad_token_id=0,
                )
                # How clear each choice was: what is nearly a tie proves nothing.
                logits = model(out[:, :-1]).logits[0, len(prompt) - 1 :].topk(2).values
            margin = (logits[:, 0] - logits[:, 1]).min().item()
            assert margin > 1e-4, (name, prompt, margin)
            found[name].append(out[0, len(prompt) :].tolist())
        print(name, found[name])
    (folder / "greedy.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
