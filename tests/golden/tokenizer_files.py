"""Writes `tokenizer_files/`: small tokenizers and a small Llama as Hugging Face's libraries store them, with what these
libraries make of texts and logits.

    python tests/golden/tokenizer_files.py   # needs torch, safetensors, tokenizers and transformers; CPU only, seconds

- `byte_level/`, `metaspace/`: a `tokenizer.json` as Llama 3 has it (bytes, a beginning put before by the
  post-processor, several ends), and one as Llama 2 has it (words that begin with U+2581, bytes for what is unknown).
- `llama/`: a Llama in two files with an index, its configuration, and the tokenizer `metaspace`.
- `expected.json`: token ids of texts and texts of ids, by `transformers`; greedy continuations of prompts.
- `sampling.safetensors`: logits, and what `transformers`' processors leave of them.
- `llama.gguf` is written by `gguf_file.py`.
"""

import json
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import generation

OUT = Path(__file__).with_suffix("")
CORPUS = Path(__file__).parents[2] / "models/data/tinyshakespeare.txt"
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "",
    " ",
    "The glass that lightning leaves in sand.",
    "ROMEO:\nBut, soft! what light through yonder window breaks?",
    "  two spaces,\ttabs and\n\nblank lines  ",
    "naïve café 日本 🦀",
    "don't WE'LL 12345",
    "<|begin_of_text|> in the middle <|end_of_text|>!",
    "a <s> and </s> here",
]


def byte_level(text):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    begin = tokenizer.token_to_id(special[0])
    template = processors.TemplateProcessing(
        single=f"{special[0]} $A", pair=f"{special[0]} $A {special[0]}:1 $B:1", special_tokens=[(special[0], begin)]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer, special


def metaspace(text):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    lines = [piece for line in text.splitlines() for piece in line.split(" ")]
    trainer = trainers.BpeTrainer(vocab_size=440, special_tokens=special, limit_alphabet=70)
    tokenizer.train_from_iterator(lines, trainer)
    stored = json.loads(tokenizer.to_str())
    # Bytes are tokens, but none that a text names.
    stored["added_tokens"] = stored["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(stored))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return tokenizer, special[:3]


def write(folder, name, value):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(value, indent=1) + "\n")


def stored(name, tokenizer, config):
    """What is stored of a tokenizer, and what `transformers` makes of it."""
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write(folder, "tokenizer_config.json", dict(tokenizer_class="PreTrainedTokenizerFast") | config)
    loaded = transformers.AutoTokenizer.from_pretrained(folder)
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.encode_special_tokens = True
    return dict(
        texts=TEXTS,
        prompts=[loaded(text).input_ids for text in TEXTS],
        plain=[plain.encode(text, add_special_tokens=False).ids for text in TEXTS],
        decoded=[loaded.decode(loaded(text).input_ids, skip_special_tokens=True) for text in TEXTS],
    )


def llama(tokenizer):
    """A small Llama, and its greedy continuations."""
    folder = OUT / "llama"
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=448,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter + torch.randn_like(parameter) * 0.2)
    model.generation_config = transformers.GenerationConfig(bos_token_id=1, eos_token_id=[2, 0])
    model.save_pretrained(folder, max_shard_size="60KB")
    shutil.copy(OUT / "metaspace/tokenizer.json", folder)
    shutil.copy(OUT / "metaspace/tokenizer_config.json", folder)
    prompts, continuations = ["The glass", "ROMEO:", "naïve 🦀"], []
    for prompt in prompts:
        ids = torch.tensor([tokenizer.encode(prompt).ids])
        seen = torch.ones_like(ids)
        made = model.generate(ids, attention_mask=seen, max_new_tokens=24, do_sample=False, pad_token_id=0)
        continuations.append(made[0, ids.shape[1] :].tolist())
    return dict(prompts=prompts, continuations=continuations)


def sampling():
    """Logits, tokens that have occurred, and what each choice of processors leaves: -inf for what is left out."""
    torch.manual_seed(11)
    logits = torch.randn(3, 97) * 3
    occurred = torch.randint(97, (3, 8))
    tensors = dict(logits=logits, occurred=occurred)
    choices = dict(
        temperature=[generation.TemperatureLogitsWarper(0.6)],
        top_k=[generation.TopKLogitsWarper(12)],
        top_p=[generation.TopPLogitsWarper(0.85)],
        min_p=[generation.MinPLogitsWarper(0.08)],
        repetition_penalty=[generation.RepetitionPenaltyLogitsProcessor(1.3)],
        all=[
            generation.RepetitionPenaltyLogitsProcessor(1.2),
            generation.TemperatureLogitsWarper(1.4),
            generation.TopKLogitsWarper(40),
            generation.TopPLogitsWarper(0.9),
            generation.MinPLogitsWarper(0.05),
        ],
    )
    for name, processors_ in choices.items():
        left = logits.clone()
        for processor in processors_:
            left = processor(occurred, left)
        tensors[name] = torch.softmax(left.double(), -1).float()
    save_file(tensors, OUT / "sampling.safetensors")


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    torch.set_num_threads(1)
    text = CORPUS.read_text()[:100_000]
    bytes_, special = byte_level(text)
    words, ends = metaspace(text)
    expected = dict(
        byte_level=stored("byte_level", bytes_, dict(bos_token=special[0], eos_token=special[1])),
        metaspace=stored("metaspace", words, dict(bos_token="<s>", eos_token="</s>", unk_token="<unk>")),
    )
    write(OUT / "byte_level", "generation_config.json", dict(eos_token_id=[401, 402]))
    expected["llama"] = llama(words)
    write(OUT, "expected.json", expected)
    sampling()


if __name__ == "__main__":
    main()
