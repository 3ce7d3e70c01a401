"""Writes `files/`: tiny files in the formats of llm.c and of Hugging Face, straight from the formats' descriptions, and the values
that are in them, for `models/tests/golden_files.rs`.

    python tests/golden/files.py [--out DIR]        # needs numpy and safetensors; seconds

    model_v3.bin, model_v1.bin  checkpoints of llm.c in f32, with the embedding padded and without
    model_v5.bin                the same weights in bf16
    debug_state.bin             a batch, and the logits, loss and gradients of model_v3
    tokenizer.bin               a vocabulary of 11 tokens
    shard.bin                   300 tokens
    plain.safetensors           the weights under Hugging Face's names, in f32, with the buffers of old files
    prefixed.safetensors        the same as `GPT2LMHeadModel` has them, in f16, with `lm_head.weight`
    bf16.safetensors            the same in bf16
    values.json                 what all of them hold, under the names and in the layout of `fulgurite_models::config`

Nothing here is shared with the Rust code. The model is computed in f64 from its definition; gradients are central differences of
that, with a step at which their error is below the rounding to f32.
"""

import argparse
import json
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

V, T, L, NH, C = 11, 6, 2, 2, 4
VP = 128
B, TB = 2, 5

# llm.c's order, with the shape of one layer's part.
ORDER = [
    ("wte", (V, C)), ("wpe", (T, C)),
    ("ln1w", (L, C)), ("ln1b", (L, C)), ("qkvw", (L, 3 * C, C)), ("qkvb", (L, 3 * C)),
    ("attprojw", (L, C, C)), ("attprojb", (L, C)), ("ln2w", (L, C)), ("ln2b", (L, C)),
    ("fcw", (L, 4 * C, C)), ("fcb", (L, 4 * C)), ("fcprojw", (L, C, 4 * C)), ("fcprojb", (L, C)),
    ("lnfw", (C,)), ("lnfb", (C,)),
]
NAMES = {
    "ln1w": "ln_1.weight", "ln1b": "ln_1.bias", "qkvw": "attn.c_attn.weight", "qkvb": "attn.c_attn.bias",
    "attprojw": "attn.c_proj.weight", "attprojb": "attn.c_proj.bias", "ln2w": "ln_2.weight", "ln2b": "ln_2.bias",
    "fcw": "mlp.c_fc.weight", "fcb": "mlp.c_fc.bias", "fcprojw": "mlp.c_proj.weight", "fcprojb": "mlp.c_proj.bias",
}
TOKENS = [b"a", b"b", b" the", b"\n", b"\xe2\x82", b"\xac", b"\x00", b"zero", b"''", bytes(range(255)), b"<|endoftext|>"]


def weights(generator):
    made = {}
    for name, shape in ORDER:
        mean = 1.0 if name in ("ln1w", "ln2w", "lnfw") else 0.0
        made[name] = (generator.standard_normal(shape) * 0.3 + mean).astype(np.float32)
    # Values on which roundings to bf16 differ: ties to even in both directions, and one just above a tie.
    made["wte"][0] = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF818000], dtype=np.uint32).view(np.float32)
    return made


def bf16_bits(values):
    """To nearest, ties to even, of finite values."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widened(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def by_name(tensors):
    named = {"wte.weight": tensors["wte"], "wpe.weight": tensors["wpe"]}
    for short, rest in NAMES.items():
        for layer in range(L):
            named[f"h.{layer}.{rest}"] = tensors[short][layer]
    named["ln_f.weight"], named["ln_f.bias"] = tensors["lnfw"], tensors["lnfb"]
    return named


def norm(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def forward(w, inputs, targets):
    """Logits [B, T, V] and mean cross entropy, in the type of the weights."""
    count = inputs.shape[1]
    x = w["wte"][inputs] + w["wpe"][:count]
    for layer in range(L):
        of = {name: w[name][layer] for name in NAMES}
        q, k, v = np.split(norm(x, of["ln1w"], of["ln1b"]) @ of["qkvw"].T + of["qkvb"], 3, axis=-1)
        q, k, v = (part.reshape(*part.shape[:2], NH, C // NH).transpose(0, 2, 1, 3) for part in (q, k, v))
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(C // NH)
        scores = np.where(np.tril(np.ones((count, count), dtype=bool)), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(*x.shape) @ of["attprojw"].T + of["attprojb"]
        h = norm(x, of["ln2w"], of["ln2b"]) @ of["fcw"].T + of["fcb"]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ of["fcprojw"].T + of["fcprojb"]
    logits = norm(x, w["lnfw"], w["lnfb"]) @ w["wte"].T
    top = logits.max(-1, keepdims=True)
    logsum = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    picked = np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return logits, (logsum - picked).mean()


def gradients(w, inputs, targets, step=1e-5):
    slopes = {}
    for name in w:
        slope = np.zeros_like(w[name])
        for index in np.ndindex(*w[name].shape):
            kept = w[name][index]
            losses = []
            for value in (kept + step, kept - step):
                w[name][index] = value
                losses.append(forward(w, inputs, targets)[1])
            w[name][index] = kept
            slope[index] = (losses[0] - losses[1]) / (2 * step)
        slopes[name] = slope.astype(np.float32)
    return slopes


def header(*fields):
    return struct.pack("<256i", *fields, *[0] * (256 - len(fields)))


def parameters(tensors, rows, convert=lambda values: values.astype("<f4")):
    parts = []
    for name, _ in ORDER:
        values = tensors[name]
        if name == "wte":
            values = np.concatenate([values, np.zeros((rows - V, C), dtype=np.float32)])
        parts.append(convert(values).tobytes())
    return b"".join(parts)


def hugging_face(tensors, convert=lambda values: values):
    named = {}
    for name, values in by_name(tensors).items():
        # Conv1D: [in, out].
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            values = values.T
        named[name] = np.ascontiguousarray(convert(values))
    return named


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "files")
    out = parser.parse_args().out
    out.mkdir(exist_ok=True)
    generator = np.random.default_rng(20240326)
    w = weights(generator)
    sizes = (T, V, L, NH, C)
    (out / "model_v3.bin").write_bytes(header(20240326, 3, *sizes, VP) + parameters(w, VP))
    (out / "model_v5.bin").write_bytes(
        header(20240326, 5, *sizes, VP) + parameters(w, VP, lambda values: bf16_bits(values).astype("<u2"))
    )
    (out / "model_v1.bin").write_bytes(header(20240326, 1, *sizes) + parameters(w, V))

    inputs = generator.integers(0, V, (B, TB))
    targets = generator.integers(0, V, (B, TB))
    wide = {name: values.astype(np.float64) for name, values in w.items()}
    logits, loss = forward(wide, inputs, targets)
    slopes = gradients(wide, inputs, targets)
    (out / "debug_state.bin").write_bytes(
        header(20240327, 2, B, TB)
        + inputs.astype("<i4").tobytes()
        + targets.astype("<i4").tobytes()
        + logits.astype("<f4").tobytes()
        + np.float32(loss).tobytes()
        + parameters(slopes, VP)
    )

    (out / "tokenizer.bin").write_bytes(
        header(20240328, 2, len(TOKENS), len(TOKENS) - 1) + b"".join(bytes([len(token)]) + token for token in TOKENS)
    )
    tokens = [(7919 * index) % 50257 for index in range(300)]
    (out / "shard.bin").write_bytes(header(20240520, 1, len(tokens)) + struct.pack(f"<{len(tokens)}H", *tokens))

    heads = {"format": "pt", "n_head": str(NH)}
    masks = {}
    for layer in range(L):
        masks[f"h.{layer}.attn.bias"] = np.tril(np.ones((1, 1, T, T), dtype=np.float32))
        masks[f"h.{layer}.attn.masked_bias"] = np.array(-1e4, dtype=np.float32)
    save_file(hugging_face(w) | masks, out / "plain.safetensors", metadata=heads)
    halves = hugging_face(w, lambda values: values.astype(np.float16))
    prefixed = {f"transformer.{name}": values for name, values in halves.items()}
    save_file(prefixed | {"lm_head.weight": halves["wte.weight"].copy()}, out / "prefixed.safetensors", metadata=heads)
    rounded = hugging_face(w, bf16_bits)
    # numpy has no bf16: the file is written by hand.
    described, data = {"__metadata__": heads}, b""
    for name, bits in rounded.items():
        content = bits.astype("<u2").tobytes()
        described[name] = {"dtype": "BF16", "shape": list(bits.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)
    (out / "bf16.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)

    few = ("wte.weight", "h.1.attn.c_attn.weight", "ln_f.bias")

    def decimal(values):
        # The shortest decimal form that is read back as the same f32.
        return [float(str(value)) for value in values.astype(np.float32).ravel()]

    def listed(tensors, convert=lambda values: values, only=None):
        return {name: decimal(convert(values)) for name, values in by_name(tensors).items() if name in (only or [name])}

    values = dict(
        model=dict(vocabulary=V, context=T, layers=L, heads=NH, channels=C),
        f32=listed(w),
        bf16=listed(w, lambda values: widened(bf16_bits(values)), few),
        f16=listed(w, lambda values: values.astype(np.float16), few),
        gradients=listed(slopes),
        inputs=inputs.ravel().tolist(),
        targets=targets.ravel().tolist(),
        logits=decimal(logits),
        loss=decimal(loss)[0],
        tokens=[token.hex() for token in TOKENS],
        shard=tokens,
    )
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
    (out / "values.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
