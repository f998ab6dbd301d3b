"""Docstrings in plain English: lines with a clause in the place of a noun, such as "what it writes" or "who asks".

    python -m tests.plain_english                       # as `make check` has it: the share of such lines by product
    python -m tests.plain_english cstool/plan/compiler  # lists these lines of a file or a folder

A noun says it in fewer words: "factor on the loss" for "what the loss is multiplied by". The check counts lines, and
fails where more than `MOST` of the lines of all docstrings have such a clause.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "cstool"
MOST = 0.01
"""the share of lines that may have such a clause"""
CLAUSE = re.compile(
    r"\b(what|whatever|whichever|whoever|who|those|nobody|somebody)\b|\bthat of\b|\bhow (many|much|often|far|long)\b",
    re.I,
)


def docstring_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines of the docstrings of a module and its attributes, but empty ones."""
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            assert node.end_lineno is not None
            for number in range(node.lineno, node.end_lineno + 1):
                if lines[number - 1].strip(' "'):
                    yield number, lines[number - 1].strip()


def main(arguments: Sequence[str]) -> int:
    """Print the share of lines with such a clause, or these lines; return an exit code."""
    if arguments:
        place = Path(arguments[0])
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            for number, line in docstring_lines(path):
                if CLAUSE.search(line):
                    print(f"{path}:{number}: {line}")
        return 0
    found, lines = Counter[str](), Counter[str]()
    for path in PACKAGE.rglob("*.py"):
        product = path.relative_to(PACKAGE).parts[0]
        texts = [line for _, line in docstring_lines(path)]
        lines[product] += len(texts)
        found[product] += sum(CLAUSE.search(line) is not None for line in texts)
    for product, count in found.most_common():
        print(f"{product:16} {count:5} of {lines[product]:5} lines of docstrings, {count / lines[product]:.1%}")
    share = found.total() / lines.total()
    print(f"{share:.1%} of the lines of docstrings have a clause in the place of a noun; {MOST:.0%} may")
    return int(share > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
