"""Calls of tools: the forms in which models write them, read and enforced.

A chat template that takes tools tells the model a form, and the form is known by words in the template:

- Hermes and Qwen: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`
- Mistral, up to version 7 of its tokenizers: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}]`
- Mistral, from version 11 on: `[TOOL_CALLS]NAME[ARGS]{...}`, and in version 11 `[CALL_ID]ID` behind the name
- Llama 3.1: `{"name": ..., "parameters": {...}}` in place of a text

Source of Mistral's: the package mistral-common, `tokens/tokenizers/instruct.py`.
"""

from __future__ import annotations

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cstool.serving.grammars import JSON_OPTIONS
from cstool.serving.schema import Tool
from cstool.training.data.chat_templates import ChatTemplate

_ARGS, _CALL_ID = "[ARGS]", "[CALL_ID]"
_LETTERS = string.ascii_letters + string.digits


@dataclass(frozen=True)
class Call:
    """A call of a function.

    Args:
        name: of the function
        arguments: a JSON object
    """

    name: str
    arguments: str

    def document(self) -> dict[str, Any]:
        """It as answers have it; its id has nine letters and digits, as Mistral's templates want."""
        name = "".join(secrets.choice(_LETTERS) for _ in range(9))
        return {"id": name, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


@dataclass(frozen=True)
class ToolForm:
    """A form of calls.

    Args:
        name: of the form
        begins: texts with which a call, or all calls, begin
        end: text that ends a call; None where calls go to the end of the answer
        key: of the arguments
        begins_text: whether an answer is a call from its first character on, or has none
    """

    name: Literal["hermes", "mistral", "mistral_args", "llama"]
    begins: tuple[str, ...]
    end: str | None
    key: str
    begins_text: bool = False

    def calls_of(self, text: str) -> list[Call]:
        """Return the calls in a text between begin and end; [] if it is anything else."""
        try:
            if self.name == "mistral_args":
                return self._marked(text)
            found = json.loads(text.strip().removeprefix("<|python_tag|>"))
        except (ValueError, RecursionError):
            return []
        calls = [self._call(each) for each in (found if isinstance(found, list) else [found])]
        return [call for call in calls if call is not None] if None not in calls else []

    def _marked(self, text: str) -> list[Call]:
        """The calls in a text of names, marks and arguments, or raise ValueError."""
        calls: list[Call] = []
        while text.strip():
            head, _, rest = text.strip().removeprefix(self.begins[0]).partition(_ARGS)
            found, end = json.JSONDecoder().raw_decode(rest.lstrip())
            call = self._call({"name": head.partition(_CALL_ID)[0].strip(), self.key: found})
            if call is None or not call.name:
                return []
            calls.append(call)
            text = rest.lstrip()[end:]
        return calls

    def _call(self, found: Any) -> Call | None:
        if not isinstance(found, dict) or not isinstance(found.get("name"), str):
            return None
        arguments = found.get(self.key, {})
        if not isinstance(arguments, dict):
            return None
        return Call(found["name"], json.dumps(arguments, ensure_ascii=False))

    def lark(self, tools: Sequence[Tool], special: Mapping[str, int], *, many: bool, thinks: bool) -> str:
        """Return a grammar, in the language of Lark, of answers that call tools.

        Args:
            tools: that may be called
            special: numbers of special tokens by their texts
            many: whether there may be several calls
            thinks: whether thoughts that are under way come first
        """
        before = "thought " if thinks else ""
        rules = [r"thought[lazy]: /(.|\n)*<\/think>\n?\n?/"] if thinks else []
        rules.append("one: " + " | ".join(f"one_{number}" for number in range(len(tools))))
        for number, tool in enumerate(tools):
            rules.append(f"one_{number}: {self._frame(tool.function.name, f'arguments_{number}', special)}")
            # Each schema stands by itself, so that references inside it hold.
            rules.append(f"arguments_{number}: %json {json.dumps(_schema(tool))}")
        if self.name == "hermes":
            begin, end = (_mark(mark, special) for mark in (self.begins[0], str(self.end)))
            rules.append(f'call: {begin} "\\n" one "\\n" {end}')
            start = f"{before}call" + (' ("\\n" call)*' if many else "")
        elif self.name == "mistral":
            more = ' (", " one)*' if many else ""
            start = f'{before}{_mark(self.begins[0], special)} " "? "[" one{more} "]"'
        else:
            start = f"{before}one" + ("+" if many and self.name == "mistral_args" else "")
        return "\n".join(["%llguidance {}", f"start: {start}", *rules, ""])

    def _frame(self, name: str, arguments: str, special: Mapping[str, int]) -> str:
        """A call as a rule of a grammar, around the rule of its arguments."""
        if self.name != "mistral_args":
            head = f"{{{json.dumps('name')}: {json.dumps(name)}, {json.dumps(self.key)}: "
            return f'{json.dumps(head)} {arguments} "}}"'
        begin, call_id, args = (_mark(mark, special) for mark in (self.begins[0], _CALL_ID, _ARGS))
        numbered = f"({call_id} /[a-zA-Z0-9]{{9}}/)? " if _CALL_ID in special else ""
        return f"{begin} {json.dumps(name)} {numbered}{args} {arguments}"


HERMES = ToolForm("hermes", ("<tool_call>",), "</tool_call>", "arguments")
MISTRAL = ToolForm("mistral", ("[TOOL_CALLS]",), None, "arguments")
MISTRAL_ARGS = ToolForm("mistral_args", ("[TOOL_CALLS]",), None, "arguments")
LLAMA = ToolForm("llama", ("{", "<|python_tag|>"), None, "parameters", begins_text=True)


def form_of(template: ChatTemplate) -> ToolForm | None:
    """Return the form of calls that a template tells the model; None where it takes no tools, or in another form."""
    source = template.source
    if "tools" not in source:
        return None
    if HERMES.begins[0] in source and "<function=" not in source:
        return HERMES
    if MISTRAL.begins[0] in source:
        return MISTRAL_ARGS if _ARGS in source else MISTRAL
    if '"parameters": dictionary' in source or "<|python_tag|>" in source:
        return LLAMA
    return None


def _schema(tool: Tool) -> dict[str, Any]:
    """The schema of arguments, with bounds on the white space in them."""
    given = tool.function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}
    return {**given, "x-guidance": JSON_OPTIONS}


def _mark(text: str, special: Mapping[str, int]) -> str:
    """A mark as a rule of a grammar: a special token by its number, or else a text."""
    return f"<[{special[text]}]>" if text in special else json.dumps(text)
