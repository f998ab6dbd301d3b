"""The vendor's CSL programs, compiled and run unmodified by their own commands.

They are not part of this project: checkouts of the two public repositories are named by CSTOOL_SDK_EXAMPLES
(sdk-examples) and CSTOOL_CSL_EXAMPLES (csl-examples); without them there is nothing to run.
"""

import os
import shutil
from pathlib import Path

import pytest

from tests.end_to_end.pages import typed

PROGRAMS = """
tutorials/gemv-01-complete-program tutorials/gemv-02-memory-dsds tutorials/gemv-03-memcpy tutorials/gemv-04-params
tutorials/gemv-05-multiple-pes tutorials/gemv-06-routes-1 tutorials/gemv-07-routes-2 tutorials/gemv-08-routes-3
tutorials/gemv-09-streaming tutorials/pipeline-01-basic tutorials/topic-01-arrays-and-pointers
tutorials/topic-03-streaming-wavelet-data tutorials/topic-06-switches tutorials/topic-11-collectives
benchmarks/game-of-life benchmarks/gemv-collectives_2d benchmarks/residual
""".split()
pytestmark = pytest.mark.lab
CHECKOUTS = ("CSTOOL_SDK_EXAMPLES", "CSTOOL_CSL_EXAMPLES")


@pytest.mark.parametrize("arch", ["wse2", "wse3"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("checkout", CHECKOUTS)
def test_the_vendors_own_commands_succeed(tmp_path: Path, checkout: str, program: str, arch: str) -> None:
    if checkout not in os.environ:
        pytest.skip(f"{checkout} names no checkout of the vendor's programs")
    folder = Path(os.environ[checkout]) / program
    script = f"commands_{arch}.sh"
    if not (folder / script).is_file():
        pytest.skip(f"{folder} has no {script}")
    ended = typed(f"timeout 600 bash {script}", shutil.copytree(folder, tmp_path / folder.name))
    assert ended.code == 0, ended
    assert "SUCCESS" in ended.stdout
