"""Write a corpus's tokenizer as tokenizer.json, which the packages tokenizers and transformers read.

Both formats hold the same byte-pair encoding. Ours gives each token its rank, and joins the pair of pieces whose union
has the lowest one. The other lists the pairs themselves, so every pair that makes a token is listed, in order of the
token's rank.
"""

import json
from collections.abc import Iterator, Mapping

import tiktoken

from agent.lab.encode import BOS, SPLIT_PATTERN

# Bytes that are visible characters of Latin-1 are written as themselves, and all others as characters from U+0100 on:
# the format holds text, and a token need not be whole UTF-8.
VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
HIDDEN = [byte for byte in range(256) if byte not in VISIBLE]
CHARACTERS = {byte: chr(byte) for byte in VISIBLE} | {byte: chr(0x100 + at) for at, byte in enumerate(HIDDEN)}


def tokenizer_files(encoding: tiktoken.Encoding, seq_len: int) -> dict[str, str]:
    """Return file name → text of the tokenizer; a text that it encodes begins with BOS, as every document does."""
    bos = encoding.n_vocab - 1
    ranks = {encoding.decode_single_token_bytes(token): token for token in range(bos)}
    special = {"id": bos, "content": BOS, "special": True, "normalized": False}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special | {"single_word": False, "lstrip": False, "rstrip": False}],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": SPLIT_PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BOS, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {BOS: {"id": BOS, "ids": [bos], "tokens": [BOS]}},
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "ignore_merges": True,  # a piece that is a token is taken whole, as ours does
            "vocab": {_characters(token): rank for token, rank in ranks.items()} | {BOS: bos},
            "merges": [[_characters(left), _characters(right)] for left, right in _merges(ranks)],
        },
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": BOS,  # a document ends where the next begins
        "clean_up_tokenization_spaces": False,
        "model_max_length": seq_len,
    }
    return {
        "tokenizer.json": json.dumps(whole, ensure_ascii=False) + "\n",
        "tokenizer_config.json": json.dumps(settings, indent=2) + "\n",
    }


def _characters(token: bytes) -> str:
    return "".join(CHARACTERS[byte] for byte in token)


def _merges(ranks: Mapping[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs of tokens that make a token, by its rank, then by theirs."""
    for token in sorted(ranks, key=ranks.__getitem__):
        pairs = ((token[:at], token[at:]) for at in range(1, len(token)))
        yield from sorted(
            ((left, right) for left, right in pairs if left in ranks and right in ranks),
            key=lambda pair: (ranks[pair[0]], ranks[pair[1]]),
        )
