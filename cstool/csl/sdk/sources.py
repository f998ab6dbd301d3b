"""Texts of the source files that compiled code names, for traces."""

from pathlib import Path

from cstool.csl.fabric.arrays import read_file
from cstool.csl.fabric.lines import files_of
from cstool.csl.fabric.program import FabricProgram


def sources_of(program: FabricProgram, folder: Path) -> dict[str, str]:
    """The text of each source file of a program, by the name that its places have; files that are gone are left out.

    Names are relative to the folder that cslc ran in. It is not written down: this looks where the script runs, then
    around the directory of the program.

    Args:
        program: the program
        folder: its directory
    """
    from cstool.csl.language.compile import LIBRARY

    names = sorted({name for each in program.programs for name in files_of(each.code)})
    found = {}
    for name in names:
        inner = name.startswith("<") and name.endswith(">")
        paths = [LIBRARY / f"{name[1:-1]}.csl"] if inner else [Path(name), folder.parent / name, folder / name]
        path = next((each for each in paths if each.is_file()), None)
        try:
            if path is not None:
                found[name] = read_file(path).decode(errors="replace")
        except OSError:
            continue
    return found
