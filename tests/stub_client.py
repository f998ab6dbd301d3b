"""A client that needs no server."""

from collections.abc import Iterator, Sequence
from typing import Any

from cstool.foundation.errors import AnswerError


class StubClient:
    """A client whose server answers at once.

    Args:
        takes: names of the fields of prompts that it takes
        words: of each answer
    """

    def __init__(self, url: str = "", api_key: str | None = None, takes: Sequence[type] = (list, str), words: int = 3):
        self.takes, self.words, self.asked = tuple(takes), words, list[tuple[str, dict[str, Any]]]()

    def models(self) -> list[str]:
        return ["m"]

    def events(self, path: str, document: dict[str, Any]) -> Iterator[Any]:
        self.asked.append((path, document))
        prompt = document.get("prompt")
        if not isinstance(prompt, self.takes):
            raise AnswerError(f"no {type(prompt).__name__}")
        yield from ({"choices": [{"text": text}]} for text in ("", *["word "] * (self.words - 1)))
        yield {"choices": [{"text": "", "finish_reason": "length"}]}
        # Two tokens for each word, and three of a template.
        text = prompt if prompt is not None else document["messages"][0]["content"]
        tokens = len(text) if isinstance(text, list) else 2 * len(text.split()) + 3
        yield {"choices": [], "usage": {"completion_tokens": 2 * self.words, "prompt_tokens": tokens}}
