"""The template of conversations, and the tokens that end a turn of it."""

from __future__ import annotations

from cstool.foundation.errors import DataError
from cstool.training.data import ByteTokenizer, FileTokenizer
from cstool.training.data.chat_templates import (
    ChatTemplate,
    SpecialTokens,
    find_template,
    special_tokens,
    usual_template,
)

_CORE = "cstool-answer"


def template_of(asked: str | None, tokenizer: ByteTokenizer | FileTokenizer) -> ChatTemplate:
    """Return the template of a server's conversations.

    Args:
        asked: "cstool" or a file; None for the tokenizer's own template, or cstool's where it has none

    Raises:
        DataError: a file is missing or damaged, or holds no template
    """
    special = special_tokens(tokenizer)
    return find_template(asked, tokenizer, special) or usual_template(special)


def turn_ends(template: ChatTemplate, tokenizer: ByteTokenizer | FileTokenizer) -> list[int]:
    """Return the special token that a template writes behind an answer; [] where it writes none."""
    special: SpecialTokens = special_tokens(tokenizer)
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": _CORE}]
    try:
        behind = template.render(messages).rpartition(_CORE)[2]
    except DataError:
        return []
    found = [text for text in special.ids if text and behind.startswith(text)]
    return [special.ids[max(found, key=len)]] if found else []
