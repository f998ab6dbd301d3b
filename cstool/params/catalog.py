"""The stock params files: those that come with the program, by name.

They lie in `params` of the project; `stock` beside this file leads there, and is a folder of its own where the program
was installed.
"""

from pathlib import Path

from cstool.errors import ParamsError
from cstool.words import did_you_mean

FOLDER = Path(__file__).parent / "stock"


def stock_names() -> tuple[str, ...]:
    """Return the names of all stock params files."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def stock_file(name: str) -> Path:
    """Return the stock params file of a name.

    Raises:
        ParamsError: there is none
    """
    if name not in stock_names():
        raise ParamsError([(f"{name}: must be the name of a stock params file", stock_hint(name))])
    return FOLDER / f"{name}.yaml"


def stock_hint(name: str) -> str:
    """Return what to do about a name that is that of no stock params file."""
    written = name.lower().removesuffix(".yaml").replace("-", "_")
    return did_you_mean(written, stock_names()) or "`cstool model list` lists them"


def stock_text(name: str) -> str:
    """Return the text of a stock params file.

    Raises:
        ParamsError: there is none of that name
    """
    return stock_file(name).read_text(encoding="utf-8")


def stock_description(name: str) -> str:
    """Return what a stock params file says of itself, the comment that it begins with, in one line."""
    lines = stock_text(name).splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.lstrip("# ").strip() for line in lines[:end])


def is_params_file(named: str | Path) -> bool:
    """Tell whether a name is that of a params file, by its ending or as a stock one, and not of what a run made."""
    return Path(named).suffix.lower() in (".yaml", ".yml") or (str(named) in stock_names() and not Path(named).exists())
