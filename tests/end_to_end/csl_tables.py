"""Tables of docs/csl.md that are made from the code: libraries, and modules of the package `cerebras`."""

import re
from pathlib import Path

from cstool.csl.compile import LIBRARY
from cstool.sdk.cs_python import SITE


def libraries_markdown() -> str:
    """Rows of the libraries, by what their files begin with; those of <tile_config> are one row."""
    rows = []
    parts = []
    for path in sorted(LIBRARY.rglob("*.csl")):
        name = path.relative_to(LIBRARY).with_suffix("").as_posix()
        if name.startswith("tile_config/"):
            parts.append(path.stem)
            continue
        rows.append((name, _begin(path, name)))
    inside = f"{', '.join(f'`{part}`' for part in parts if part not in ('addresses', 'ports'))}"
    return "".join(f"| `<{name}>` | {text}{f': {inside}' if name == 'tile_config' else ''} |\n" for name, text in rows)


def _begin(path: Path, name: str) -> str:
    """The first sentence of the comment that a library begins with, behind its name."""
    comment = re.match(r"(?://.*\n)+", path.read_text(encoding="utf-8"))
    assert comment is not None, path
    first = " ".join(line.removeprefix("//").strip() for line in comment[0].partition("//\n")[0].splitlines())
    assert first.startswith(f"<{name}>: "), path
    sentence = re.split(r"\.(?: |$)", first.removeprefix(f"<{name}>: "))[0]
    return re.sub(r"<[\w/]+>", lambda found: f"`{found[0]}`", sentence)


def host_markdown() -> str:
    """Rows of the modules that host scripts import, with their names."""
    rows = []
    for path in sorted(SITE.rglob("*.py")):
        listed = re.search(r"__all__ = \[(.*?)\]", path.read_text(encoding="utf-8"), re.DOTALL)
        if listed is not None:
            module = ".".join(path.relative_to(SITE).with_suffix("").parts)
            names = ", ".join(f"`{name}`" for name in re.findall(r'"(\w+)"', listed[1]))
            rows.append(f"| `{module}` | {names} |\n")
    return "".join(rows)
