"""The formatter of CSL: blanks, indents and lines as this project and the vendor's programs mostly have them.

Words and comments stay what they are, in their order; only commas at the ends of lists come and go.
"""

from typing import Any

from cstool.csl.language import syntax
from cstool.csl.language.format_lines import Line, Lines
from cstool.csl.language.format_words import words_of
from cstool.csl.language.parse import parse
from cstool.csl.language.source import CslError, Source

MOST_EMPTY = 2
"""empty lines between two declarations, at most; within a block, one"""


def formatted(source: Source) -> str:
    """Return the text of a file, formatted.

    Raises:
        CslError: the first error of its syntax; or the formatter itself is wrong, and would change the program.
    """
    file = parse(source)
    text = _laid_out(source, file)
    made = Source(source.name, text)
    if not is_same_program(source, file, made, parse(made)):
        raise CslError(f"{source.name}: cannot be formatted without a change of the program", None)
    return text


def is_same_program(source: Source, file: syntax.File, other: Source, other_file: syntax.File) -> bool:
    """Whether two files have the same syntax tree, words and comments; commas before a closing bracket do not count."""
    return _essence(source, file) == _essence(other, other_file) and tree_of(file) == tree_of(other_file)


def tree_of(node: object) -> Any:
    """A syntax tree as nested tuples, without places, to be compared."""
    if isinstance(node, syntax.Node):
        names = [name for kind in type(node).__mro__ for name in getattr(kind, "__slots__", ()) if name != "place"]
        return type(node).__name__, *(tree_of(getattr(node, name)) for name in names)
    if isinstance(node, tuple):
        return tuple(tree_of(each) for each in node)
    return repr(node)


def _essence(source: Source, file: syntax.File) -> list[str]:
    words = words_of(source, file)
    kinds = [word.kind for word in words]
    return [
        word.text
        for number, word in enumerate(words)
        if word.kind != "," or next(kind for kind in kinds[number + 1 :] if kind != "comment") not in (")", "]", "}")
    ]


def _laid_out(source: Source, file: syntax.File) -> str:
    lines = Lines(words_of(source, file))
    lines.settle()
    lines.part_long_lines()
    found = [line for line in lines.lines() if line.text.strip() or line.comment]
    _add_comments(found)
    parts = ["\ufeff"] if source.text.startswith("\ufeff") else []
    for number, line in enumerate(found):
        empty = lines.broken[line.first] - 1 if number else 0
        at_top = lines.words[line.first].inside < 0
        parts += ["\n" * min(max(empty, 0), MOST_EMPTY if at_top else 1), line.text, "\n"]
    return "".join(parts)


def _add_comments(lines: list[Line]) -> None:
    """Put comments behind their lines; those that are below each other in the source stay so."""
    run: list[Line] = []
    for line in [*lines, None]:
        if run and (line is None or line.comment is None or line.comment.column != _comment(run[0]).column):
            column = max(len(each.text) for each in run) + 1
            for each in run:
                each.text = f"{each.text:<{column}}{_comment(each).text}"
            run = []
        if line is not None and line.comment is not None:
            run.append(line)


def _comment(line: Line) -> Any:
    return line.comment
