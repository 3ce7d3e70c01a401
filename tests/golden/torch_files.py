"""Writes `torch_files/`: small files of `torch.save`, as LitGPT, Hugging Face and others have them.

    python tests/golden/torch_files.py [--out FOLDER]    # needs torch, safetensors, pyyaml and litgpt; CPU only, seconds
    python tests/golden/torch_files.py --check FILE.pth FILE.safetensors   # a file of ours, read by torch.load

    tensors.pth            tensors of every type, transposed, cut out, sharing a storage; a parameter
    litgpt/                a decoder of LitGPT in bf16: lit_model.pth, model_config.yaml
    litgpt_old/            another one, with queries, keys and values group by group, in a dictionary named `model`
    bin/                   `llama_files/qwen3` as pytorch_model.bin of two files with an index
    gpt2/                  `llama_files/gpt2` as one pytorch_model.bin
    expected.safetensors   what is in tensors.pth, and the logits of the two decoders for `tokens`
"""

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import torch
import yaml
from llama_parity import litgpt
from safetensors.torch import load_file, save_file

FIELDS = dict(block_size=16, vocab_size=29, padding_multiple=8, n_layer=2, n_head=4, n_embd=16, n_query_groups=2)
FIELDS |= dict(head_size=8, intermediate_size=24, rotary_percentage=1.0, parallel_residual=False, bias=False)
FIELDS |= dict(norm_class_name="RMSNorm", mlp_class_name="LLaMAMLP")
GEMMA = dict(mlp_class_name="GemmaMLP", gelu_approximate="tanh", scale_embeddings=True, attn_bias=True)


def tensors():
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4) - 5.5
    shared = torch.randn(4, 3)
    return dict(
        f32=base,
        f64=base.double() / 3,
        f16=base.half(),
        bf16=base.bfloat16(),
        i64=torch.tensor([2**40, -1]),
        i32=torch.tensor([[7], [-7]], dtype=torch.int32),
        u8=torch.tensor([0, 255], dtype=torch.uint8),
        bool=torch.tensor([True, False, True]),
        transposed=base.t(),
        part=base[1:, 1:3],
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(base * 2),
        shared=shared,
        shared_again=shared[2:],
    )


def decoder(GPT, Config, folder, name, fields):
    folder.mkdir(parents=True)
    config = Config(name=name, **(FIELDS | fields))
    model = GPT(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    with open(folder / "model_config.yaml", "w", encoding="utf-8") as file:
        yaml.dump(asdict(config), file)
    return config, model


def by_groups(tensor, config):
    """The placement of older files: the queries, the key and the value of each group together."""
    width, groups = config.head_size, config.n_query_groups
    sizes = [config.n_head * width, groups * width, groups * width]
    q, k, v = (part.chunk(groups) for part in tensor.split(sizes))
    return torch.cat([torch.cat(group) for group in zip(q, k, v)])


def check(ours, expected):
    found = torch.load(ours, weights_only=True)
    expected = load_file(expected)
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name
    print(f"{len(found)} tensors are equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(""))
    parser.add_argument("--check", nargs=2, type=Path)
    arguments = parser.parse_args()
    if arguments.check:
        return check(*arguments.check)
    out, models = arguments.out, Path(__file__).with_name("llama_files")
    torch.set_num_threads(1)
    torch.manual_seed(23)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    GPT, Config = litgpt()
    made = tensors()
    torch.save(made, out / "tensors.pth")
    expected = {name: tensor.detach().contiguous().clone() for name, tensor in made.items()}
    tokens = torch.randint(29, (2, 7))
    expected["tokens"] = tokens

    config, model = decoder(GPT, Config, out / "litgpt", "Gemma-tiny", GEMMA)
    # The weights alone: `model.to(torch.bfloat16)` would round the angles of the rotations too.
    rounded = {name: tensor.bfloat16() for name, tensor in model.state_dict().items()}
    torch.save(rounded, out / "litgpt/lit_model.pth")
    model.load_state_dict({name: tensor.float() for name, tensor in rounded.items()})
    with torch.no_grad():
        expected["litgpt"] = model(tokens).contiguous()

    config, model = decoder(GPT, Config, out / "litgpt_old", "tiny", {})
    state = {
        name.replace(".qkv.", ".attn."): by_groups(tensor, config) if ".qkv." in name else tensor
        for name, tensor in model.state_dict().items()
    }
    torch.save({"model": state, "step": 3, "lr": 0.5}, out / "litgpt_old/lit_model.pth")
    with torch.no_grad():
        expected["litgpt_old"] = model(tokens).contiguous()

    (out / "bin").mkdir()
    shutil.copy(models / "qwen3/config.json", out / "bin/config.json")
    names = sorted((weights := load_file(models / "qwen3/model.safetensors")).keys())
    index = {}
    for number, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        file = f"pytorch_model-0000{number}-of-00002.bin"
        torch.save({name: weights[name] for name in part}, out / "bin" / file)
        index |= {name: file for name in part}
    (out / "bin/pytorch_model.bin.index.json").write_text(json.dumps(dict(metadata={}, weight_map=index), indent=1))

    (out / "gpt2").mkdir()
    shutil.copy(models / "gpt2/config.json", out / "gpt2/config.json")
    torch.save(load_file(models / "gpt2/model.safetensors"), out / "gpt2/pytorch_model.bin")
    save_file(expected, out / "expected.safetensors")


if __name__ == "__main__":
    main()
