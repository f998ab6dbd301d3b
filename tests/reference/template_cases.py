"""Conversations and a tokenizer for the chat templates of TRL: the same for transformers and for the tests."""

import json
import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

PLACE = Path(__file__).with_name("template_masks.json")
"""what transformers made of them"""
TEMPLATES = {path.stem: path for path in sorted(Path(__file__).with_name("trl_templates").glob("*.jinja"))}
CONVERSATIONS = {
    "system": (("system", "Be short."), ("user", "Why?"), ("assistant", "It is so.")),
    "two turns": (("user", "One?"), ("assistant", "It is 1."), ("user", "And two?"), ("assistant", "2, of course.")),
    "one turn": (("user", "Größe?"), ("assistant", "1,85 m 😀")),
}
ENDS = {
    "deepseekv3": "<｜end▁of▁sentence｜>",
    "gemma": "<end_of_turn>",
    "glm4moe": "<|user|>",
    "llama3": "<|eot_id|>",
    "phi3": "<|end|>",
}
"""tokens that end a turn, <|im_end|> of the others"""
_TOKENS = re.compile(r"<\|\w{1,40}\|>|<｜[^｜<>]{1,40}｜>|<(?:start|end)_of_turn>|\[gMASK\]|<sop>")


def messages(name: str) -> list[dict[str, Any]]:
    """Messages of a conversation."""
    return [{"role": role, "content": content} for role, content in CONVERSATIONS[name]]


def write_tokenizer(folder: Path, template: str) -> None:
    """Write the files of a tokenizer of bytes that has the special tokens of a template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    words = {word: number for number, word in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(words, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    end = ENDS.get(template, "<|im_end|>")
    found = {*_TOKENS.findall(TEMPLATES[template].read_text(encoding="utf-8")), "<s>", "<|endoftext|>", end}
    made.add_special_tokens(sorted(found))
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": end}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))


def marked(tokens: Sequence[int], learned: Sequence[int], tokenizer: Any) -> str:
    """The text of tokens, with [[ and ]] around learned ones; behind the last of these it is left out."""
    texts = []
    for is_learned, run in groupby(zip(tokens, learned, strict=True), lambda pair: bool(pair[1])):
        text = tokenizer.decode([token for token, _ in run], skip_special_tokens=False)
        texts.append(f"[[{text}]]" if is_learned else text)
    return "".join(texts if learned[-1] else texts[:-1])
