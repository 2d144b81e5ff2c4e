"""Small real tokenizers, made here: byte-level BPE (every text is possible) and byte fallback."""

import json
import pathlib

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SENTENCES = [
    "the river and the stone",
    "a stop here, and the end",
    "naïve café — 你好 世界 🌍",
] * 3


def byte_level() -> Tokenizer:
    """A byte-level BPE tokenizer: token 0 is `<|end|>`, then the 256 bytes and some merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=275,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES, trainer)
    tokenizer.add_special_tokens([AddedToken("<|user|>"), AddedToken("<|assistant|>")])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """A tokenizer like Llama 2's: words with a leading U+2581, bytes as `<0xNN>`."""
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁the", "▁river", "s", "▁"]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def write_model(folder: pathlib.Path) -> pathlib.Path:
    """A model folder with everything the API process reads (no weights)."""
    folder.mkdir(parents=True, exist_ok=True)
    byte_level().save(str(folder / "tokenizer.json"))
    config = {"chat_template": TEMPLATE, "eos_token": "<|end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 0, "top_k": 50}))
    return folder
