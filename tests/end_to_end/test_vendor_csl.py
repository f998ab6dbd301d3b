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
tutorials/pipeline-02-fifo tutorials/pipeline-03-multiple tutorials/topic-02-libraries tutorials/topic-05-sentinels
tutorials/topic-08-filters tutorials/topic-09-fifos tutorials/topic-12-debug-library tutorials/topic-13-simprint
tutorials/topic-15-wse3-microthreads tutorials/sdklayout-01-introduction tutorials/sdklayout-02-routing
tutorials/sdklayout-03-ports-and-connections benchmarks/fft-1d-2d benchmarks/7pt-stencil-spmv benchmarks/power-method
""".split()
NOT_FILLED_IN = "%python_sdk_paint"  # stands in sdk-examples for what csl-examples has: cs_python run.py
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
    # A program may take files from its neighbours.
    here = shutil.copytree(folder.parent, tmp_path / folder.parent.name) / folder.name
    commands = (here / script).read_text(encoding="utf-8").replace(NOT_FILLED_IN, "cs_python run.py")
    (here / script).write_text(commands, encoding="utf-8")
    ended = typed(f"timeout 600 bash {script}", here)
    assert ended.code == 0, ended
    assert "SUCCESS" in ended.stdout
