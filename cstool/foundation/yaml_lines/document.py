"""A params file as plain data in which every key knows its line."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from cstool.foundation.errors import ParamsError
from cstool.foundation.plain_text import one_line
from cstool.foundation.words import nearest
from cstool.foundation.yaml_lines.compose import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_VALUES,
    TAG,
    beyond_limits,
    check_size,
    compose,
)

Key = tuple[str | int, ...]
"""A path into the data: mapping keys and list indices."""


@dataclass(frozen=True)
class Place:
    """The place of a value in a file or on the command line.

    Args:
        label: `file:line` or the command line's word
        order: position among all places, to sort messages
        key: key of the override that set the value; None for values of the file
    """

    label: str
    order: int
    key: Key | None = None


@dataclass
class Document:
    """Plain data (dict, list, str, int, float, bool, None) and the place of each value.

    Args:
        places: places by the keys as written
        moved: key of the data -> key as written, where they differ; it counts for all keys below, too
        names: key of the data that ends in a name -> key whose value was that name in the file
    """

    name: str
    text: str
    data: Any = None
    places: dict[Key, Place] = field(default_factory=dict)
    moved: dict[Key, Key] = field(default_factory=dict)
    names: dict[Key, Key] = field(default_factory=dict)

    def written(self, key: Key) -> Key:
        """Return the key in the file for a key of the data."""
        for length in range(len(key), 0, -1) if self.moved else ():
            if (found := self.moved.get(key[:length])) is not None:
                return (*found, *key[length:])
        return key

    def forget(self, key: Key) -> None:
        """Forget the places of a value and of all values below it."""
        for known in (self.places, self.moved, self.names):
            for old in [old for old in known if old[: len(key)] == key]:
                del known[old]

    def place(self, key: Key) -> Place:
        """Return the place of a value, or of the nearest mapping around it."""
        key = self.written(key)
        for length in range(len(key), -1, -1):
            if (found := self.places.get(key[:length])) is not None:
                return found
        return Place(self.name, 0)


def dotted(key: Key) -> str:
    """Write a key in the notation of `--set`: `trainer.init.schedulers.0.LinearLR`."""
    return one_line(".".join(str(part) for part in key)) or "the file"


def read_document(path: Path) -> Document:
    """Read a YAML file.

    Raises:
        ParamsError: the file is missing, unreadable, not UTF-8, not YAML, empty, or repeats a key.
    """
    return parse_document(_read_text(path), str(path))


def parse_document(text: str, name: str, *, has_lines: bool = True) -> Document:
    """Parse the text of a YAML file; errors name `name`, and the line if it `has_lines`.

    Raises:
        ParamsError: it is not YAML, empty, or repeats a key
    """
    document = Document(name, text)
    _Builder(document, has_lines).fill()
    return document


def parse_value(text: str, label: str) -> Any:
    """Parse one YAML value from the command line; errors name `label`."""
    document = Document(label, text)
    _Builder(document, lines=False).fill(empty_is_null=True)
    return document.data


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ParamsError([(f"{path}: there is no such file", _similar_file(path))]) from None
    except IsADirectoryError:
        raise ParamsError([(f"{path}: must be a YAML file, got a folder", None)]) from None
    except OSError as error:
        raise ParamsError([(f"{path}: cannot be read: {error.strerror or error}", None)]) from None
    check_size(len(content), str(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"{path}:{line}: must be UTF-8 text, got byte 0x{content[error.start]:02x}"
        raise ParamsError([(message, None)]) from None


def _similar_file(path: Path) -> str | None:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent} either"
    names = sorted(entry.name for entry in path.parent.iterdir() if entry.suffix in {".yaml", ".yml"})
    near = nearest(path.name, names, cutoff=0.8)
    return None if near is None else f"did you mean {path.parent / near}?"


class _Builder:
    """Turns YAML nodes into the data and places of a document."""

    def __init__(self, document: Document, lines: bool = True) -> None:
        self._document = document
        self._lines = lines
        self._problems: list[tuple[str, str | None]] = []
        self._open: set[int] = set()
        self._count = 0

    def fill(self, empty_is_null: bool = False) -> None:
        """Fill the document; an empty text is an error unless it stands for null."""
        root = compose(self._document.text, self._document.name, self._lines)
        if root is not None:
            self._put((), root)
            self._document.data = self._build(root, ())
        elif not empty_is_null:
            self._problems.append((f"{self._document.name}: must hold a mapping, got an empty file", None))
        if self._problems:
            raise ParamsError(self._problems)

    def _label(self, node: Node) -> str:
        line = node.start_mark.line + 1
        return f"{self._document.name}:{line}" if self._lines else self._document.name

    def _put(self, key: Key, node: Node) -> None:
        self._document.places[key] = Place(self._label(node), node.start_mark.line + 1)

    def _problem(self, node: Node, rule: str, hint: str | None = None) -> None:
        self._problems.append((f"{self._label(node)}: {rule}", hint))

    def _build(self, node: Node, key: Key) -> Any:
        self._count += 1
        if self._count > MAX_VALUES or len(self._open) > MAX_DEPTH:
            raise beyond_limits(self._document.place(key[:1]).label, self._count)
        if id(node) in self._open:
            self._problem(node, f"{dotted(key)} must not contain itself")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, key)
            if isinstance(node, SequenceNode):
                for index, item in enumerate(node.value):
                    self._put((*key, index), item)
                return [self._build(item, (*key, index)) for index, item in enumerate(node.value)]
            assert isinstance(node, ScalarNode)
            return self._scalar(node, key)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, key: Key) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for name_node, value_node in node.value:
            if not isinstance(name_node, ScalarNode):
                self._problem(name_node, f"a key below {dotted(key)} must be text, got a list or mapping")
            elif name_node.tag == f"{TAG}merge":
                for part in value_node.value if isinstance(value_node, SequenceNode) else [value_node]:
                    content = self._build(part, key)
                    if isinstance(content, dict):
                        merged = {**content, **merged}
                    else:
                        self._problem(part, f"{dotted((*key, '<<'))} must be a mapping")
        for name_node, value_node in node.value:
            if not isinstance(name_node, ScalarNode) or name_node.tag == f"{TAG}merge":
                continue
            name = name_node.value
            below = (*key, name)
            if name in own:
                first = self._document.places[below].order
                self._problem(name_node, f"{dotted(below)} is given twice", f"the first is in line {first}")
                continue
            self._put(below, name_node)
            own[name] = self._build(value_node, below)
        return {**merged, **own}

    def _scalar(self, node: ScalarNode, key: Key) -> Any:
        text: str = node.value
        kind = node.tag.removeprefix(TAG)
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return text.lower() in {"true", "yes", "on"}
                case "int":
                    return int(text.replace("_", ""))
                case "float":
                    return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
                case "str" | "merge":
                    return text
        except ValueError:
            pass
        self._problem(node, f"{dotted(key)} cannot be read as {node.tag.replace(TAG, '!!')}, got {text[:40]!r}")
        return None
