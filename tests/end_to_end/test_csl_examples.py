"""The programs under examples/csl, by their own scripts and in other sizes: each host script asserts against NumPy."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "csl"
SIZES = {
    "allreduce_tree": ("levels:1,n:1", "levels:5,n:20"),
    "allreduce_two_phase": ("width:2,height:2,n:1", "width:7,height:5,n:40"),
    "bitonic_sort": ("levels:1,n:1", "levels:2,n:17"),
    "column_reduce": ("width:1,height:2,n:1", "width:3,height:9,n:50"),
    "gemv_columns": ("width:2,M:1,N:2", "width:9,M:20,N:27"),
    "gemv_grid": ("width:2,height:2,M:2,N:2", "width:5,height:4,M:24,N:60"),
    "gemv_one_pe": ("M:1,N:1", "M:40,N:60"),
    "gemv_rows": ("width:1,M:1,N:1", "width:6,M:30,N:50"),
    "histogram": ("width:2,n:1,bins:1", "width:6,n:200,bins:70"),
    "life": ("width:1,height:1,rows:3,columns:3,steps:2", "width:3,height:4,rows:9,columns:6,steps:5"),
    "prefix_sum": ("width:1,n:1", "width:9,n:30"),
    "row_reduce": ("width:2,height:1,n:1", "width:11,height:2,n:60"),
    "sparse_axpy": (
        "width:1,height:1,features:3,outputs:2,tokens:1,capacity:6",
        "width:4,height:3,features:24,outputs:10,tokens:20,capacity:60",
    ),
    "stencil": (
        "width:1,height:1,rows:1,columns:1,steps:1",
        "width:1,height:3,rows:20,columns:20,steps:3",
        "width:4,height:2,rows:30,columns:2,steps:4",
    ),
    "summa": ("P:1,Mt:2,Kt:2,Nt:2", "P:5,Mt:3,Kt:6,Nt:2"),
    "vector_add": ("width:1,n:1", "width:9,n:333"),
}
PROGRAMS = sorted(path.parent.name for path in EXAMPLES.glob("*/run.py"))
OTHER = "cslc layout.csl --fabric-dims 60,60 --fabric-offsets 4,1 --memcpy --channels 1 -o other --arch {} --params {}"
ALWAYS = ("bitonic_sort wse2 own", "life wse3 own", "sparse_axpy wse3 width:4")
"""what `make test` tries"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all of them: they take files from one another."""
    return Path(shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("csl") / "csl"))


def test_every_program_is_tried() -> None:
    assert sorted(SIZES) == PROGRAMS


def runs() -> list[object]:
    """Each with its own sizes on both generations; the first of its others on wse2, the rest on wse3."""
    found = [(name, arch, "own") for name in PROGRAMS for arch in ("wse2", "wse3")]
    found += [(name, "wse3" if k else "wse2", params) for name in PROGRAMS for k, params in enumerate(SIZES[name])]
    return [
        pytest.param(*each, marks=() if " ".join(each).startswith(ALWAYS) else pytest.mark.lab, id=" ".join(each))
        for each in found
    ]


@pytest.mark.takes("a compiler, a script and a simulator, which are processes")
@pytest.mark.parametrize(("program", "arch", "params"), runs())
def test_its_script_passes(program: str, arch: str, params: str, examples: Path) -> None:
    other = f"{OTHER.format(arch, params)} && cs_python run.py --name other"
    done = subprocess.run(
        ["bash", "-e", "-c", f"./commands_{arch}.sh" if params == "own" else other],
        cwd=examples / program,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("SUCCESS\n")
