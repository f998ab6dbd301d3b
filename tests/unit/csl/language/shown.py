"""Messages about CSL, written short: the lines of a program and the carets under them follow from the places."""

import re
from collections.abc import Mapping


def whole(short: str, files: Mapping[str, str]) -> str:
    """The whole message: `pe.csl:2:5-7 what is wrong | note 1:3 why | hint: what to do`.

    A place is line, first and last column; without a file it is in the first of the `files`.
    """
    lines = []
    for part in short.split(" | "):
        if part.startswith("hint: "):
            lines.append(part)
            continue
        note, name, line, first, last, text = re.fullmatch(
            r"(note )?(?:(\S+):)?(\d+):(\d+)(?:-(\d+))? (.*)", part
        ).groups()
        name = name or next(iter(files))
        carets = "^" * (int(last or first) - int(first) + 1)
        lines.append(f"{'note: ' if note else ''}{name}:{line}:{first}: {text}")
        lines.append(f"    {files[name].splitlines()[int(line) - 1]}")
        lines.append(f"    {' ' * (int(first) - 1)}{carets}")
    return "\n".join(lines)


def cases(table: str) -> list[tuple[str, str]]:
    """Programs, their lines parted by ↵, each with what is said of it: behind ==>, or below it and further in."""
    found = (re.split(r" ==> |\n  ", case, maxsplit=1) for case in re.split(r"\n(?! )", table.strip("\n")))
    return [(program.replace("↵", "\n"), re.sub(r"\n +", " ", said)) for program, said in found]


def lines(table: str) -> list[str]:
    """Short pieces of CSL, several on a line."""
    return re.split(r"\n|   +", table.strip("\n"))


def columns(table: str) -> list[tuple[str, str]]:
    """Short cases, several on a line, each with what comes of it behind ==>."""
    return [tuple(case.split(" ==> ")) for case in lines(table)]
