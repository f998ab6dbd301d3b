"""The vendor's read hooks: functions that make turns, texts of roles, of the record of a file, by their names.

Each is a section of the keys that it takes, as a file of the vendor's preprocessing has them under `read_hook_kwargs`.

Source: Cerebras Model Zoo 2.10.0, data_preparation/data_preprocessing/hooks.py.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cstool.foundation.errors import DataError
from cstool.foundation.yaml_lines.section import Section
from cstool.training.data.conversations import Notes
from cstool.training.data.json_lines import told_keys
from cstool.training.data.record_files import Record

Turn = tuple[str, str]
"""a role and its text"""
LEFT_OUT = {
    "order": "roles out of order",
    "empty": "an empty text",
    "unmarked": "no assistant_role in the chosen text",
    "short": "fewer tokens than min_sequence_len",
    "long": "more tokens than max_seq_length, or than truncate_to_msl may cut",
    "nothing": "nothing to learn",
}
"""kind of a note -> the reason to leave a record out"""
PROMPT, COMPLETION, USER, ASSISTANT = "prompt", "completion", "user", "assistant"


class Hook(Section):
    """A read hook with its keys."""

    modes: ClassVar[tuple[str, ...]] = ("finetuning",)
    """that take its turns"""
    has_template: ClassVar[bool] = False
    """whether a template writes its turns"""

    @abstractmethod
    def turns(self, record: Record, notes: Notes) -> list[Turn] | None:
        """Return the turns of a record; None if it is left out, which is noted.

        Raises:
            DataError: the record has something else than a text where one must be
        """


class TextHook(Hook):
    """A text to learn as a whole."""

    modes = ("pretraining",)
    text_key: str

    def turns(self, record: Record, notes: Notes) -> list[Turn] | None:
        """Return the text alone."""
        return _told(record, notes, {"text": _text(record, self.text_key).strip()})


class PairHook(Hook):
    """A prompt and its completion, which are joined."""

    prompt_key: str
    completion_key: str

    def turns(self, record: Record, notes: Notes) -> list[Turn] | None:
        """Return both texts as they are."""
        prompt, completion = _text(record, self.prompt_key), _text(record, self.completion_key)
        return _told(record, notes, {PROMPT: prompt, COMPLETION: completion})


class PairChatHook(PairHook):
    """A prompt and its completion, as a conversation of two turns."""

    has_template = True

    def turns(self, record: Record, notes: Notes) -> list[Turn] | None:
        """Return both texts, stripped."""
        pair = super().turns(record, notes)
        texts = ("", "") if pair is None else (text.strip() for _, text in pair)
        return None if pair is None else _told(record, notes, dict(zip((USER, ASSISTANT), texts, strict=True)))


class ChatHook(Hook):
    """A conversation: a system's message, if there is one, then pairs of messages of two roles."""

    has_template = True

    multi_turn_key: str
    multi_turn_role_key: str
    multi_turn_content_key: str

    def turns(self, record: Record, notes: Notes) -> list[Turn] | None:
        """The messages, stripped but for the system's; an empty one of the system is left out."""
        messages = record.content.get(self.multi_turn_key) or []
        if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
            raise DataError(f"{record.where}: must have a list of messages under {self.multi_turn_key}, got another")
        told = []
        for number, message in enumerate(messages):
            where = f"{record.where}: message {number + 1:,}"
            role = message.get(self.multi_turn_role_key)
            if not isinstance(role, str):
                rule = f"must have a role under {self.multi_turn_role_key}"
                raise DataError(f"{where}: {rule}, got {told_keys(message)}")
            text = _text(Record(where, record.name, message), self.multi_turn_content_key)
            told.append((role, text))
        system = told[:1] if told and told[0][0] == "system" else []
        turns = [(role, text.strip()) for role, text in told[len(system) :]]
        pairs = [*zip(turns[::2], turns[1::2], strict=False)]
        if not messages or any(not text for _, text in turns):
            notes.add("empty", record.where)
            return None
        if len(turns) % 2 or any(first == second for (first, _), (second, _) in pairs):
            notes.add("order", record.where)
            return None
        return [*((role, text) for role, text in system if text), *turns]


class PreferenceHook(Hook):
    """A prompt with a chosen and a rejected answer, or two dialogues that differ in their last answer."""

    modes = ("dpo",)
    has_template = True
    chosen_key: str
    rejected_key: str
    prompt_key: str | None = None
    assistant_role: str = "assistant:"

    def turns(self, record: Record, notes: Notes) -> list[Turn] | None:
        """Return prompt, chosen and rejected answer."""
        answers = [record.content.get(key) for key in (self.chosen_key, self.rejected_key)]
        if self.prompt_key is None and all(isinstance(answer, list) for answer in answers):
            return self._of_lists(record, answers)
        chosen, rejected = _text(record, self.chosen_key), _text(record, self.rejected_key)
        if self.prompt_key is not None:
            prompt = _text(record, self.prompt_key)
        else:
            place = chosen.lower().rfind(self.assistant_role)
            if place < 0:
                notes.add("unmarked", record.where)
                return None
            place += len(self.assistant_role)
            prompt, chosen, rejected = chosen[:place], chosen[place:], rejected[place:]
        return [(PROMPT, prompt.strip()), ("chosen", chosen.strip()), ("rejected", rejected.strip())]

    def _of_lists(self, record: Record, answers: Sequence[Any]) -> list[Turn]:
        """Return the texts of two lists of two messages, the first of which is the prompt."""
        messages = [message if isinstance(message, dict) else {} for each in answers for message in each[:2]]
        texts = [text for message in messages if isinstance(text := message.get("content"), str)]
        if len(texts) < 2 * len(answers):
            keys = f"{self.chosen_key} and {self.rejected_key}"
            raise DataError(f"{record.where}: must have two messages with content under {keys}, got something else")
        prompt, chosen, _, rejected = (text.strip() for text in texts)
        return [(PROMPT, prompt), ("chosen", chosen), ("rejected", rejected)]


class TokensHook(Section):
    """Tokens of a context and of its completion, as numbers."""

    modes: ClassVar[tuple[str, ...]] = ("nlg",)
    has_template: ClassVar[bool] = False
    context_key: str
    completion_key: str

    def tokens(self, record: Record) -> tuple[list[int], list[int]]:
        """Return the tokens of the context and of the completion, or raise DataError."""
        found = [record.content.get(key) for key in (self.context_key, self.completion_key)]
        for key, tokens in zip((self.context_key, self.completion_key), found, strict=True):
            if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
                raise DataError(f"{record.where}: must have a list of token ids under {key}, got something else")
        return found[0], found[1]  # type: ignore[return-value]


HOOKS: Mapping[str, type[Hook | TokensHook]] = {
    "text_read_hook": TextHook,
    "chat_read_hook": ChatHook,
    "prompt_completion_text_read_hook": PairHook,
    "prompt_completion_chat_read_hook": PairChatHook,
    "dpo_read_hook": PreferenceHook,
    "nlg_read_hook": TokensHook,
}
"""the vendor's name -> the hook"""


def _text(record: Record, key: str) -> str:
    """Return the text under a key, "" if there is none; a number is one, too. Anything else raises DataError."""
    value = record.content.get(key)
    if isinstance(value, int | float):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise DataError(f"{record.where}: must have a text under {key}, got something else")
    return value or ""


def _told(record: Record, notes: Notes, texts: Mapping[str, str]) -> list[Turn] | None:
    """Return turns; None where a text is empty, which is noted."""
    if not all(texts.values()):
        notes.add("empty", record.where)
        return None
    return [*texts.items()]
