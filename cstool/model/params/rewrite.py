"""The text of a params file with other values in it: comments and order stay."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from cstool.foundation.yaml_lines.document import parse_value

_PATHS = ("data_dir",)
"""keys whose values are looked for from the folder of the file on"""


def with_values(text: str, overrides: Sequence[str]) -> str:
    """Return the text of a params file with values of `--set` written into it.

    Args:
        text: YAML
        overrides: KEY=VALUE, which `load_all_params` has accepted for this text
    """
    for override in overrides:
        name, _, value = override.partition("=")
        text = _with_value(text, name.strip().split("."), _written(value.strip()))
    return text


def with_paths_from(text: str, before: Path, folder: Path) -> str:
    """Return the text of a params file from the folder `before`, good for `folder`."""
    for node in reversed(list(_path_nodes(_compose(text)))):
        if not Path(node.value).expanduser().is_absolute():
            path = os.path.relpath(os.path.abspath(before / node.value), folder.absolute())
            text = _replaced(text, node, _written(path))
    return text


def _compose(text: str) -> Node:
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert root is not None
    return root


def _path_nodes(node: Node) -> Iterator[ScalarNode]:
    if isinstance(node, SequenceNode):
        for item in node.value:
            yield from _path_nodes(item)
    elif isinstance(node, MappingNode):
        for name, value in node.value:
            if name.value in _PATHS and isinstance(value, ScalarNode):
                yield value
            else:
                yield from _path_nodes(value)


def _written(value: str) -> str:
    """Return a value as it can stand behind a key: as it was typed, or else quoted."""
    meant = parse_value(value, value)
    try:
        if "\n" not in value and yaml.safe_load(f"key: {value} # comment") == {"key": yaml.safe_load(value)}:
            return value if value else "null"
    except yaml.YAMLError:
        pass
    dumped: str = yaml.safe_dump(meant, default_flow_style=True, width=1 << 20)
    return dumped.removesuffix("...\n").strip()


def _with_value(text: str, key: Sequence[str], value: str) -> str:
    node = _compose(text)
    for depth, part in enumerate(key):
        below = _below(node, part)
        if below is None:
            return _with_new_key(text, node, key[depth:], value)
        node = below
    return _replaced(text, node, value)


def _below(node: Node, part: str) -> Node | None:
    if isinstance(node, SequenceNode):
        found: Node = node.value[int(part)]
        return found
    entries: Any = node.value if isinstance(node, MappingNode) else ()
    return next((value for name, value in entries if name.value == part), None)


def _with_new_key(text: str, node: Node, key: Sequence[str], value: str) -> str:
    """Return the text with a key that was not there as the first one of a mapping."""
    if not isinstance(node, MappingNode) or not node.value or node.flow_style:
        inner = "".join(f"{{{part}: " for part in key) + value + "}" * len(key)
        if not (isinstance(node, MappingNode) and node.value):
            return _replaced(text, node, inner)
        at = node.value[0][0].start_mark.index
        return f"{text[:at]}{inner[1:-1]}, {text[at:]}"
    first = node.value[0][0].start_mark
    lines = [f"{'':{2 * depth}}{part}:" for depth, part in enumerate(key)]
    new = f"\n{'':{first.column}}".join(lines) + f" {value}\n{'':{first.column}}"
    return text[: first.index] + new + text[first.index :]


def _replaced(text: str, node: Node, value: str) -> str:
    """Return the text with another value at a node; a comment behind it stays in its column."""
    start, end = node.start_mark.index, _end(node)
    rest = text[end:]
    if (gap := re.match(r" +(?=#)", rest)) is not None:
        column = end - start + len(gap[0]) - len(value)
        rest = " " * max(column, 1) + rest[gap.end() :]
    space = " " if start == end and not text[:start].endswith(" ") else ""
    return f"{text[:start]}{space}{value}{rest}"


def _end(node: Node) -> int:
    """End of a node; the mark of a block is behind the comments after it."""
    if isinstance(node, CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)
