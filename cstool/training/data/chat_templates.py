"""Chat templates: Jinja texts that write the messages of a conversation as one text, as a tokenizer brings them.

They run as the package transformers runs them, in a sandbox, which has the same functions, filters and tags. A template
is a program from anywhere, so the steps of its loops and the size of its text are bounded, too. Text between
`{% generation %}` and `{% endgeneration %}` is the assistant's.

Source: transformers, utils/chat_template_utils.py.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cstool.foundation.errors import DataError
from cstool.training.data.conversations import Message
from cstool.training.data.tokenizer import ByteTokenizer, FileTokenizer
from cstool.training.data.tokenizer_files import CONFIG_FILE, TEMPLATE_FILE, config_beside, file_beside, text_of

if TYPE_CHECKING:
    from jinja2 import Template

BEGIN, END = "\ufdd0", "\ufdd1"
"""marks around a text; no characters, so no text has them"""
CSTOOL = "cstool"
"""names the template of ours"""
PLAIN = "plain"
"""names no template"""
_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")
_NAME = "default"
_IM_START, _IM_END = "<|im_start|>", "<|im_end|>"
_OURS = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
{%- else %}
{{- message['content'] + '<|im_end|>' }}
{%- endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""ChatML"""
_OURS_WITHOUT_TOKENS = """\
{%- if bos_token %}{{ bos_token }}{% endif %}
{%- for message in messages %}
{{- message['role'] | capitalize + ':' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{ ' ' + message['content'] + (eos_token or '\\n') }}{% endgeneration %}
{%- if eos_token %}{{ '\\n' }}{% endif %}
{%- else %}
{{- ' ' + message['content'] + '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- 'Assistant:' }}
{%- endif %}
"""
"""for tokenizers that lack the tokens of ChatML: marks of text, and the token that ends a text"""


class TemplateFault(DataError):
    """A template refuses some messages, or fails at them."""


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a tokenizer.

    Args:
        named: name for a template, such as eos_token -> text
        ids: text -> number, of all of them, also those without such a name
    """

    named: Mapping[str, str]
    ids: Mapping[str, int]

    @property
    def end(self) -> int | None:
        """The token that ends a text."""
        return self.ids.get(self.named.get("eos_token", ""))

    @property
    def begin(self) -> int | None:
        """The token that begins a text."""
        return self.ids.get(self.named.get("bos_token", ""))


class ChatTemplate:
    """A template.

    Args:
        source: the Jinja text
        told: its place, for messages
        named: special tokens by their names for templates

    Raises:
        DataError: it is no template of Jinja
    """

    def __init__(self, source: str, told: str, named: Mapping[str, str]) -> None:
        from jinja2 import TemplateSyntaxError

        from cstool.training.data.bounded_jinja import bounded_environment

        self.source, self.told, self._named = source, told, dict(named)
        now = datetime.now()  # the same for all conversations
        self.day = f"{now:%F}" if "strftime_now" in source else ""
        """of its texts, if they may depend on it"""
        self._environment = bounded_environment(tojson=_to_json, raise_exception=_raise, strftime_now=now.strftime)
        try:
            self._template: Template = self._environment.from_string(source)
        except TemplateSyntaxError as error:
            raise DataError(f"{told}:{error.lineno}: must be a template of Jinja, got: {error.message}") from None
        except RecursionError:
            raise DataError(f"{told}: must be a template of Jinja, got one that is nested too deeply") from None

    @property
    def has_generation(self) -> bool:
        """Whether it has tags around the assistant's text."""
        return self._environment.generations > 0

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Any] | None = None,
        *,
        asks: bool = False,
        marked: bool = False,
        others: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the text of messages.

        Args:
            messages: with `role`, `content` and any other keys
            tools: descriptions of tools
            asks: whether the begin of an answer follows
            marked: whether the characters `BEGIN` and `END` are around the assistant's parts, where the template has
                the tag
            others: further values that some templates read, such as enable_thinking

        Raises:
            TemplateFault: the template refuses the messages, fails, takes too many steps, or writes too much
        """
        from jinja2 import TemplateError

        self._environment.begin((BEGIN, END) if marked else ("", ""))
        values = {**(others or {}), **self._named, "messages": messages, "tools": tools, "documents": None}
        pieces, size = [], 0
        try:
            for piece in self._template.generate(**values, add_generation_prompt=asks):
                size += len(piece)
                self._environment.check_size(size)
                pieces.append(piece)
        except (TemplateError, ArithmeticError, LookupError, AttributeError, TypeError, ValueError) as error:
            raise TemplateFault(f"{self.told}: must write the conversation, got: {error}") from None
        except RecursionError:
            raise TemplateFault(f"{self.told}: must write the conversation, got: no end of calls") from None
        except MemoryError:
            raise TemplateFault(f"{self.told}: must write the conversation, got: a text beyond all memory") from None
        return "".join(pieces)


def special_tokens(tokenizer: ByteTokenizer | FileTokenizer) -> SpecialTokens:
    """Return the special tokens of a tokenizer, by its file and the file tokenizer_config.json beside it.

    Raises:
        DataError: the latter is damaged
    """
    if isinstance(tokenizer, ByteTokenizer):
        return SpecialTokens({"eos_token": "\0"}, {"\0": 0})
    config = config_beside(Path(tokenizer.name))
    added = tokenizer.loaded.get_added_tokens_decoder().items()
    ids = {token.content: number for number, token in added if token.special}
    known = tokenizer.loaded.get_vocab(with_added_tokens=True)
    named = {name: text for name in _SPECIAL if (text := text_of(config.get(name))) is not None and text in known}
    if "eos_token" not in named and tokenizer.end_of_text is not None:
        named["eos_token"] = tokenizer.words()[tokenizer.end_of_text]
    if "bos_token" not in named and tokenizer.begin:
        named["bos_token"] = tokenizer.words()[tokenizer.begin[0]]
    return SpecialTokens(named, {**ids, **{text: known[text] for text in named.values()}})


def find_template(
    asked: str | None, tokenizer: ByteTokenizer | FileTokenizer, special: SpecialTokens
) -> ChatTemplate | None:
    """Return the template that a data set is made with; None for no template.

    Args:
        asked: "cstool" for the one of ours, "plain" for none, a file; None for the tokenizer's own, which is beside it
            in chat_template.jinja or tokenizer_config.json, if there is one
        tokenizer: of the data set
        special: its special tokens

    Raises:
        DataError: a file is missing or damaged, or holds no template
    """
    if asked == PLAIN:
        return None
    if asked == CSTOOL:
        return _ours(special)
    if asked is not None:
        return ChatTemplate(_read(Path(asked)), asked, special.named)
    if isinstance(tokenizer, ByteTokenizer):
        return None
    path = Path(tokenizer.name)
    if (beside := file_beside(path, TEMPLATE_FILE)).is_file():
        return ChatTemplate(_read(beside), str(beside), special.named)
    told, found = f"chat_template of {file_beside(path, CONFIG_FILE)}", config_beside(path).get("chat_template")
    if isinstance(found, list) and all(isinstance(each, dict) for each in found):
        by_name = {each.get("name"): each.get("template") for each in found}
        if by_name and _NAME not in by_name and len(by_name) > 1:
            raise DataError(
                f"{told}: must have one named {_NAME}, got {', '.join(map(str, by_name))}",
                "write one of them into a file, and give that with --chat_template",
            )
        found = by_name.get(_NAME, next(iter(by_name.values()), None))
    if found is not None and not isinstance(found, str):
        raise DataError(f"{told}: must be a text, or a list of named texts, got something else")
    return None if found is None else ChatTemplate(found, told, special.named)


def usual_template(special: SpecialTokens) -> ChatTemplate:
    """Return the template for messages where the tokenizer has none: ChatML, or marks of text."""
    return _ours(special)


def chatml(special: SpecialTokens) -> ChatTemplate:
    """Return the template of ChatML."""
    return ChatTemplate(_OURS, "ChatML, by cstool", special.named)


def _ours(special: SpecialTokens) -> ChatTemplate:
    if {_IM_START, _IM_END} <= special.ids.keys():
        return chatml(special)
    return ChatTemplate(_OURS_WITHOUT_TOKENS, "marks of text, by cstool", special.named)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(
            f"--chat_template: must be {CSTOOL}, {PLAIN} or a file, found nothing at {path}", "give another path"
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: must be text, got something else") from None
    except OSError as error:
        raise DataError(f"{path}: must be readable, got: {error.strerror}") from None


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    from jinja2 import TemplateError

    raise TemplateError(message)
