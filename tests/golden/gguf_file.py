"""Writes `tokenizer_files/llama.gguf`: the small Llama of `tokenizer_files/llama` as llama.cpp stores it, with its
tokenizer, by the package `gguf`.

    python tests/golden/gguf_file.py   # needs gguf, numpy, torch and safetensors; after tokenizer_files.py

Rows of queries and keys are in the order of llama.cpp, whose rotations take neighbours. A vocabulary of SentencePiece
has no merges: the score of a token is less the later it is merged.
"""

import json
from pathlib import Path

import gguf
from safetensors.torch import load_file

FOLDER = Path(__file__).with_name("tokenizer_files") / "llama"
OUT = FOLDER.with_suffix(".gguf")
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def turned(rows, heads):
    """The two halves of each head, one row of each in turns."""
    count, width = rows.shape
    return rows.reshape(heads, 2, count // heads // 2, width).swapaxes(1, 2).reshape(count, width)


def write_tokenizer(writer, tokenizer, config):
    vocabulary = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    special = {token["content"] for token in tokenizer["added_tokens"]}
    rank = {"".join(pair): -float(number) for number, pair in enumerate(tokenizer["model"]["merges"])}
    tokens, scores, kinds = [], [], []
    for token, _ in vocabulary:
        tokens.append(token)
        scores.append(rank.get(token, -1e6))
        is_byte = len(token) == 6 and token.startswith("<0x")
        kind = gguf.TokenType.BYTE if is_byte else gguf.TokenType.NORMAL
        kind = gguf.TokenType.CONTROL if token in special else kind
        kinds.append(gguf.TokenType.UNKNOWN if token == "<unk>" else kind)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)


def main():
    config, tokenizer = (json.loads((FOLDER / name).read_text()) for name in ("config.json", "tokenizer.json"))
    index = json.loads((FOLDER / "model.safetensors.index.json").read_text())
    tensors = {}
    for name in sorted(set(index["weight_map"].values())):
        tensors |= load_file(FOLDER / name)
    writer = gguf.GGUFWriter(OUT, "llama")
    writer.add_name("small")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    write_tokenizer(writer, tokenizer, config)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in tensors.items():
        path, end = name.rsplit(".", 1)
        layer = ""
        if path.startswith("model.layers."):
            _, _, number, path = path.split(".", 3)
            layer = f"blk.{number}."
        own, values = NAMES[path], tensor.numpy()
        values = turned(values, heads[own]) if own in heads else values
        writer.add_tensor(f"{layer}{own}.{end}", values.copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


main()
