"""From the text of a YAML file to its nodes, within limits that are checked during the reading."""

import re
from typing import Any

import yaml
from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, Event, ScalarEvent
from yaml.nodes import Node

from cstool.foundation.errors import ParamsError

MAX_BYTES = 1 << 20
"""most bytes; the vendor's longest files have some 10 kB"""
MAX_VALUES = 50_000
"""most values; the vendor's longest files have some 300; a file of anchors that repeat each other can describe more
than any memory holds"""
MAX_DEPTH = 50
"""deepest nesting of lists and mappings; in the vendor's files it is 8"""

TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Loader by the rules of YAML 1.2 (`1e-5` is a number), but with yes, no, on, off as booleans as in YAML 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF", "tTfFyYnNoO"),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("merge", "<<", "<"),
):
    # PyYAML keys a scalar by its first character, and the empty one by "".
    _keys = ["" if character == "\0" else character for character in _first]
    _Loader.add_implicit_resolver(f"{TAG}{_name}", re.compile(f"^(?:{_pattern})$"), _keys)

_FastLoader: Any = _Loader
"""the same with the parser of libyaml, some ten times as fast, if PyYAML has it"""
if yaml.__with_libyaml__:

    class _CLoader(yaml.CSafeLoader):
        yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

    _FastLoader = _CLoader


def check_size(size_bytes: int, name: str) -> None:
    """Check that a file is not too long, or raise ParamsError."""
    if size_bytes > MAX_BYTES:
        raise ParamsError([(f"{name}: must be at most {MAX_BYTES:,} bytes long, got more", None)])


def compose(text: str, name: str, lines: bool = True) -> Node | None:
    """Return the root node of a text, None for an empty text.

    Args:
        text: text of one YAML document
        name: name of the file in errors
        lines: whether errors have line numbers behind the name

    Raises:
        ParamsError: it is not YAML, or beyond the limits of this module
    """
    check_size(len(text), name)
    try:
        return _compose(text, name, lines, _FastLoader)
    except (yaml.YAMLError, UnicodeEncodeError) as fast:
        error: Exception = fast
    try:
        # The slow loader words an error alike on every machine.
        _compose(text, name, lines, _Loader)
    except yaml.YAMLError as slow:
        error = slow
    raise _as_params_error(error, text, name, lines) from None


def _compose(text: str, name: str, lines: bool, loader: Any) -> Node | None:
    # libyaml has a limit of depth of its own, and says so before it comes to ours.
    _check_events(text, name, lines, loader)
    return yaml.compose(text, Loader=loader)


def _check_events(text: str, name: str, lines: bool, loader: Any) -> None:
    """Check the number of values and their depth as they come, before any data is built."""
    values = depth = 0
    event: Event
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, CollectionEndEvent):
            depth -= 1
            continue
        values += isinstance(event, ScalarEvent | CollectionStartEvent | AliasEvent)
        depth += isinstance(event, CollectionStartEvent)
        if values > MAX_VALUES or depth > MAX_DEPTH:
            where = f"{name}:{event.start_mark.line + 1}" if lines and event.start_mark else name
            raise beyond_limits(where, values)


def beyond_limits(where: str, values: int) -> ParamsError:
    """The error of a file with too many values, or else with too deep nesting."""
    rule = f"hold at most {MAX_VALUES:,} values" if values > MAX_VALUES else f"be nested at most {MAX_DEPTH} deep"
    return ParamsError([(f"{where}: must {rule}", None)])


def _as_params_error(error: Exception, text: str, name: str, lines: bool) -> ParamsError:
    hint, line, problem = None, "", str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        problem = " ".join(part for part in (error.context, error.problem) if part)
        hint = "indent with spaces; YAML takes no tabs there" if r"'\t'" in problem else None
    elif isinstance(error, yaml.reader.ReaderError):
        line = f":{text.count(chr(10), 0, error.position) + 1}"
        problem = error.reason
    return ParamsError([(f"{name}{line if lines else ''}: not valid YAML: {problem}", hint)])
