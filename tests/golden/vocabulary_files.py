"""Writes tokenizer_files/{bpe,unigram,unigram_bytes,runs,gpt2}: small vocabularies as SentencePiece and GPT-2 store
them, and the tokens that their own libraries give some texts. Needs sentencepiece and tokenizers.

    python3 tests/golden/vocabulary_files.py TEXT
"""

import json
import pathlib
import sys

import sentencepiece
from tokenizers import ByteLevelBPETokenizer

FOLDER = pathlib.Path(__file__).parent / "tokenizer_files"
TEXTS = [
    "Before we proceed any further, hear me speak.",
    "  two spaces, and   three \n\n lines",
    "",
    " ",
    "a",
    "Grüße, 東京 and 🦀!",
    "ﬁne ½ ｗｉｄｅ",
    "<s> is no token in text </s>",
    "tab\tand trailing space ",
    "a\n\n\nb    c",
]
# Of SentencePiece: the user's pieces, and what looks like pieces that are not looked for in text.
OWN = ["said <|user|> twice", "<|user|>start", "end <|user|> ", "a<unk>b <0x41> </s>", "▁ and ▁▁"]

source = pathlib.Path(sys.argv[1]).read_text()[:60000]
expected = {}
for name, options in {
    # As Llama 2 has it.
    "bpe": dict(model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    # As the library has it by default.
    "unigram": dict(model_type="unigram"),
    "unigram_bytes": dict(
        model_type="unigram", byte_fallback=True, normalization_rule_name="identity", vocab_size=700,
        control_symbols=["<pad>", "[CLS]"],
    ),
    # As Gemma has it.
    "runs": dict(
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=False, vocab_size=700, user_defined_symbols=["<|user|>", "▁▁", "▁▁▁", "\n\n"],
    ),
}.items():
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(source.split("\n")),
        model_writer=(folder / "tokenizer.model").open("wb"),
        **(dict(vocab_size=400, character_coverage=1.0, user_defined_symbols=["<|user|>"], num_threads=1) | options),
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    texts = TEXTS + OWN
    tokens = [model.encode(text) for text in texts]
    expected[name] = {
        "vocabulary": model.vocab_size(),
        "texts": texts,
        "tokens": tokens,
        "decoded": [model.decode(ids) for ids in tokens],
    }

folder = FOLDER / "gpt2"
folder.mkdir(parents=True, exist_ok=True)
trained = ByteLevelBPETokenizer()
trained.train_from_iterator(source.split("\n"), vocab_size=400, special_tokens=["<|endoftext|>"], show_progress=False)
trained.save_model(str(folder))
gpt2 = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
tokens = [gpt2.encode(text).ids for text in TEXTS]
expected["gpt2"] = {
    "vocabulary": 400,
    "texts": TEXTS,
    "tokens": tokens,
    "decoded": [gpt2.decode(ids) for ids in tokens],
}
(FOLDER / "vocabularies.json").write_text(json.dumps(expected, indent=1) + "\n")
