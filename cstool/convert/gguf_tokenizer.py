"""The tokenizer in the metadata of a GGUF file, as files of the packages tokenizers and transformers.

Only byte pairs on the characters of bytes (`tokenizer.ggml.model` is `gpt2`), where it is known how a text is cut into
words first. The expressions are those of the models as released, which llama.cpp has by the same names
(`llama-vocab.cpp`).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cstool.convert.gguf_reader import GgufReader
from cstool.training.data import tokenizer_beside
from cstool.training.data.tokenizer_files import CONFIG_FILE, file_beside

_KEY = "tokenizer.ggml"
_CONTROL, _USER_DEFINED = 3, 4
"""types of tokens that stand for themselves in a text; the first are left out of texts"""
_CONTRACTIONS, _LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS: Mapping[str, str | None] = {
    "gpt-2": None,
    "llama-bpe": rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}",
    "qwen2": rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_REST}",
}
"""expressions for words by `tokenizer.ggml.pre`; None for that of `ByteLevel` itself"""


def gguf_tokenizer(source: Path, target: Path, to: str) -> tuple[dict[Path, bytes], tuple[str, ...]]:
    """Return the files of a tokenizer that go with a checkpoint, and their content; and a note, if it is left out.

    Args:
        source: GGUF file
        target: the checkpoint
        to: format of the target; a folder of Hugging Face's gets no tokenizer

    Raises:
        CheckpointError: the file cannot be read
    """
    with GgufReader(source) as reader:
        found = {key.removeprefix(f"{_KEY}."): value for key, value in reader.metadata.items() if key.startswith(_KEY)}
        template = reader.metadata.get("tokenizer.chat_template")
    if to == "hf":
        return {}, ("the tokenizer of the file is left out: a checkpoint gets one, a folder does not",)
    why = _why_not(found)
    if why is not None:
        return {}, (f"the tokenizer of the file is left out: {why}",)
    path, tokens = tokenizer_beside(target), found["tokens"]
    config = {f"{name}_token": tokens[found[f"{name}_token_id"]] for name in ("bos", "eos") if _is_token(found, name)}
    if isinstance(template, str):
        config["chat_template"] = template
    documents = {path: _document(found), file_beside(path, CONFIG_FILE): config}
    files = {name: json.dumps(document, ensure_ascii=False).encode("utf-8") for name, document in documents.items()}
    return files, ()


def _why_not(found: Mapping[str, Any]) -> str | None:
    """Return the reason for which a tokenizer cannot be had; None where it can."""
    if not found:
        return "there is none"
    if found.get("model") != "gpt2":
        return f"{_KEY}.model must be gpt2, got {found.get('model')}"
    if (pre := found.get("pre", "gpt-2")) not in _WORDS:
        return f"{_KEY}.pre must be one of {', '.join(_WORDS)}, got {pre}"
    for name in ("tokens", "merges"):
        value = found.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            return f"{_KEY}.{name} must be a list of texts"
    if len(set(found["tokens"])) < len(found["tokens"]):
        return f"{_KEY}.tokens must have each token once"
    kinds = found.get("token_type", [])
    if not isinstance(kinds, list) or len(kinds) not in (0, len(found["tokens"])):
        return f"{_KEY}.token_type must have a number for each token"
    return None


def _is_token(found: Mapping[str, Any], name: str) -> bool:
    number = found.get(f"{name}_token_id")
    return isinstance(number, int) and 0 <= number < len(found["tokens"])


def _document(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokenizers JSON file of byte pairs."""
    tokens, kinds = found["tokens"], found.get("token_type") or [1] * len(found["tokens"])
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    words = _WORDS[found.get("pre", "gpt-2")]
    before: dict[str, Any] = level
    if words is not None:
        split = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
        before = {"type": "Sequence", "pretokenizers": [split, {**level, "use_regex": False}]}
    alike = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": number, "content": token, **alike, "special": kind == _CONTROL}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    after: dict[str, Any] = level
    if found.get("add_bos_token") is True and _is_token(found, "bos"):
        after = _begins_with(tokens[found["bos_token_id"]], found["bos_token_id"])
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": before,
        "post_processor": after,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": found.get("pre") == "llama-bpe",
            # Added ones as well: the package numbers those that are not here after all others, whatever their id.
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ", 1) for merge in found["merges"] if " " in merge],
        },
    }


def _begins_with(token: str, number: int) -> dict[str, Any]:
    """Return the step that puts a token before a text."""
    begin = {"SpecialToken": {"id": token, "type_id": 0}}
    one, other = ({"Sequence": {"id": which, "type_id": kind}} for kind, which in enumerate("AB"))
    return {
        "type": "TemplateProcessing",
        "single": [begin, one],
        "pair": [begin, one, other],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }
