"""Conversations in the forms in which data sets for instructions come: messages, prompts with completions, and others.

Each becomes messages, objects with `role` and `content`, as the templates of tokenizers take them.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cstool.foundation.errors import DataError
from cstool.training.data.json_lines import told_keys
from cstool.training.data.record_files import Record

FormName = Literal["messages", "prompt_completion", "alpaca", "sharegpt"]
Message = dict[str, Any]

_LISTS = ("messages", "conversations", "conversation")
_PAIRS = (("prompt", "completion"), ("prompt", "response"), ("question", "answer"))
_ALPACA = ("instruction", "output")
_FIELDS = {"messages": ("role", "content"), "sharegpt": ("from", "value")}
_SYSTEM = ("system", "system_prompt")
_TURN = ("user", "assistant")
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
"""role in a record -> role for a template"""
_NEXT = {"": "user", "user": "assistant", "assistant": "user tool", "tool": "assistant tool"}
"""role -> roles that may follow, behind a system message"""
_HINT = "--form names the form, and --messages_key, --prompt_key and --completion_key the keys"


@dataclass(frozen=True)
class Keys:
    """Keys of records that the user named; None for the usual ones.

    Args:
        messages: of the list of messages
        role, content: of a message
        prompt, completion: of a pair; of Alpaca's form, the instruction and the output
    """

    messages: str | None = None
    role: str | None = None
    content: str | None = None
    prompt: str | None = None
    completion: str | None = None


@dataclass(frozen=True)
class Form:
    """The form of the records of a file.

    Args:
        name: of the form
        keys: of lists of messages: of the list, the role and the content; of pairs: of prompt and completion
    """

    name: FormName
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.keys)})"


@dataclass(frozen=True)
class Conversation:
    """A conversation, which ends with an assistant's message.

    Args:
        record: its source
        messages: with `role` and `content`, and other keys as they came
        learned_from: number of the first message whose text may be learned
        is_pair: whether it is a text that completes another: two texts, not messages
        tools: descriptions of the assistant's tools, for the template
    """

    record: Record
    messages: Sequence[Message]
    learned_from: int = 0
    is_pair: bool = False
    tools: Sequence[Any] | None = None

    @property
    def learned(self) -> list[int]:
        """Numbers of the messages that are learned."""
        return [
            n for n, message in enumerate(self.messages) if n >= self.learned_from and message["role"] == "assistant"
        ]


@dataclass
class Notes:
    """Counts of unusual things, and the place of the first of each kind."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, where: str) -> None:
        """Count one of a kind."""
        self.counts[kind] += 1
        self.first.setdefault(kind, where)


def find_form(record: Record, name: FormName | None, keys: Keys) -> Form:
    """Return the form of a record, or raise DataError if it has none, or another than the named one."""
    content = record.content
    wants_lists = name in (None, "messages", "sharegpt")
    lists = _LISTS if keys.messages is None else (keys.messages,)
    found = next((key for key in lists if wants_lists and _messages(content.get(key))), None)
    if found is not None:
        [first, *_] = _messages(content[found])
        kinds = _FIELDS if name is None else {name: _FIELDS[name]}
        for kind, (role, text) in kinds.items():
            fields = keys.role or role, keys.content or text
            if fields[0] in first:
                return Form(kind, (found, *fields))  # type: ignore[arg-type]
        raise DataError(
            f"{record.where}: messages must have role and content, or from and value, got {told_keys(first)}",
            "--role_key and --content_key name other keys",
        )
    for form, pairs in (("alpaca", (_ALPACA,)), ("prompt_completion", _PAIRS)):
        for prompt, completion in pairs if name in (None, form) else ():
            both = keys.prompt or prompt, keys.completion or completion
            if {*both} <= content.keys():
                # The names that a user gave say nothing about the form.
                is_alpaca = form == "alpaca" and (name is not None or both == _ALPACA)
                return Form("alpaca" if is_alpaca else "prompt_completion", both)
    if {"prompt", "chosen", "rejected"} <= content.keys():
        hint = "`cstool data prepare preferences` makes a data set of them, for DPO"
    else:
        hint = _HINT
    rules = {
        None: "messages, conversations, prompt and completion, or instruction and output",
        "messages": f"a list of messages under {' or '.join(lists)}",
        "sharegpt": f"a list of messages under {' or '.join(lists)}",
        "alpaca": f"{keys.prompt or _ALPACA[0]} and {keys.completion or _ALPACA[1]}",
        "prompt_completion": f"{keys.prompt or _PAIRS[0][0]} and {keys.completion or _PAIRS[0][1]}",
    }
    raise DataError(f"{record.where}: must have {rules[name]}, got {told_keys(content)}", hint)


def conversation_of(record: Record, form: Form, notes: Notes) -> Conversation | None:
    """Return the conversation of a record; None if it is left out, which is noted.

    A conversation with an empty answer is left out, and one with roles out of order: a system message may come first;
    then user and assistant take turns; messages of tools stand between two of the assistant.

    Raises:
        DataError: the record is not of the form
    """
    found = _of_messages(record, form) if form.name in _FIELDS else _of_pair(record, form)
    answers = [found.messages[number] for number in found.learned]
    if not answers or any(not _says_something(message) for message in answers):
        notes.add("empty" if answers else "order", record.where)
        return None
    if not _in_order([message["role"] for message in found.messages]):
        notes.add("order", record.where)
        return None
    if any("\ufeff" in message["content"] for message in found.messages):
        notes.add("marks", record.where)
    return found


def _of_messages(record: Record, form: Form) -> Conversation:
    messages = _list_of(record, *form.keys)
    if messages[0]["role"] != "system":
        messages = [*_system(record), *messages]
    tools = record.content.get("tools")
    return Conversation(record, messages, tools=tools if isinstance(tools, list) and tools else None)


def _of_pair(record: Record, form: Form) -> Conversation:
    prompt, completion = (_value(record, key) for key in form.keys)
    before = _system(record)
    if form.name == "alpaca":
        text = _text(record, "input", record.content.get("input") or "")
        prompt = _text(record, form.keys[0], prompt) + (f"\n{text}" if text else "")
        before += _history(record)
    elif _messages(prompt) and _messages(completion):
        first, after = (_list_of(record, key, *_FIELDS["messages"]) for key in form.keys)
        return Conversation(record, [*first, *after], learned_from=len(first))
    told = zip(_TURN, form.keys, (prompt, completion), strict=True)
    messages = [*before, *({"role": role, "content": _text(record, key, value)} for role, key, value in told)]
    is_pair = all(message["role"] == "system" for message in before)
    return Conversation(record, messages, learned_from=len(messages) - 1 if is_pair else 0, is_pair=is_pair)


def _system(record: Record) -> list[Message]:
    """Return the system's message that a record has beside the others, if there is one."""
    found = next((text for key in _SYSTEM if (text := record.content.get(key))), None)
    return [] if found is None else [{"role": "system", "content": _text(record, "system", found)}]


def _history(record: Record) -> list[Message]:
    """Return the messages of earlier pairs of texts."""
    pairs = record.content.get("history") or []
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == len(_TURN) for pair in pairs):
        raise DataError(f"{record.where}: history: must be a list of pairs of texts, got something else")
    told = [(role, text) for pair in pairs for role, text in zip(_TURN, pair, strict=True)]
    return [{"role": role, "content": _text(record, "history", text)} for role, text in told]


def _value(record: Record, key: str) -> Any:
    if key not in record.content:
        raise DataError(f"{record.where}: must have {key}, got {told_keys(record.content)}", _HINT)
    return record.content[key]


def _list_of(record: Record, key: str, role: str, content: str) -> list[Message]:
    """Return the messages under a key with the usual names of roles and fields."""
    messages = []
    found = _messages(_value(record, key))
    if not found:
        raise DataError(f"{record.where}: must have a list of messages under {key}, got something else", _HINT)
    for number, message in enumerate(found, 1):
        where = f"{key}, message {number:,}"
        if not {role, content} <= message.keys() and not (role in message and message.get("tool_calls")):
            raise DataError(f"{record.where}: {where}: must have {role} and {content}, got {told_keys(message)}")
        name = message[role]
        if not isinstance(name, str) or name not in _ROLES:
            raise DataError(f"{record.where}: {where}: {role} must be one of {', '.join(_ROLES)}, got {name!r:.40}")
        others = {name: value for name, value in message.items() if name not in (role, content) and value is not None}
        text = message.get(content)
        if text is None and others.get("tool_calls"):
            text = ""
        messages.append({"role": _ROLES[name], "content": _text(record, where, text), **others})
    return messages


def _messages(value: Any) -> list[dict[str, Any]]:
    """Return a list of objects, in a table a text that is one; empty for anything else."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else []


def _text(record: Record, what: str, value: Any) -> str:
    """Return a text, or the texts of a list of parts, one after the other; raise DataError for anything else."""
    if isinstance(value, list):
        texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else part for part in value]
        parts = [text for text in texts if isinstance(text, str)]
        if len(parts) < len(texts):
            raise DataError(f"{record.where}: {what}: must be a text, got parts that are none", "leave the record out")
        value = "".join(parts)
    if not isinstance(value, str):
        raise DataError(f"{record.where}: {what}: must be a text, got something else")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DataError(f"{record.where}: {what}: must have whole characters, got half of one") from None
    return value


def _says_something(message: Message) -> bool:
    return bool(message["content"].strip() or message.get("tool_calls"))


def _in_order(roles: Sequence[str]) -> bool:
    before = ""
    for role in roles[1:] if roles[0] == "system" else roles:
        if role not in _NEXT[before].split():
            return False
        before = role
    return before == "assistant"


def prompt_of(conversation: Conversation) -> tuple[str, str]:
    """Return prompt and completion of a pair of texts."""
    *before, last = conversation.messages
    return "\n".join(message["content"] for message in before), last["content"]


def special_texts(names: Mapping[str, int], source: str) -> list[str]:
    """Return the words of a template that look like special tokens, `<|...|>`, and are no tokens."""
    import re

    return sorted({word for word in re.findall(r"<\|[^|<>{}\s]{1,40}\|>", source) if word not in names})
