"""The page about CSL, typed as it is written, its tables those of the code; the programs under examples/csl.

Host scripts of these assert against NumPy; they are tried by their own scripts, and in other sizes.
"""

import importlib
import os
import re
import shutil
from operator import attrgetter
from pathlib import Path

import pytest

from cstool.csl.commands.fabric_report import builtins_markdown
from cstool.csl.language.compile import LIBRARY
from cstool.csl.sdk import variables
from cstool.csl.sdk.cs_python import SITE
from cstool.csl.sdk.cslc import main as cslc
from cstool.csl.sdk.examples import read_result
from cstool.csl.verbs import language_builtins
from tests.end_to_end.pages import PROJECT, consoles, page, typed
from tests.end_to_end.tutorials import check_console, type_all

PAGE = page("csl")
PROGRAMS_PAGE = page("examples")
EXAMPLES = PROJECT / "examples" / "csl"
LEFT_BEHIND = shutil.ignore_patterns("out", "sim.log", "sim_stats.json", "__pycache__")


@pytest.mark.lab
def test_the_tutorial_goes_as_it_is_written(tmp_path):
    tutorial = PAGE.partition("## Tutorial\n")[2].partition("## What of the language")[0]
    where = type_all(tutorial, tmp_path, 8, 6)
    assert (where / "routes.png").stat().st_size > 10_000


@pytest.mark.takes("a script, which is a process and starts another one")
def test_the_layout_in_python_goes_as_it_is_written(tmp_path):
    type_all(PAGE.partition("### A layout in Python\n")[2].partition("\n## ")[0], tmp_path, 2, 1)


@pytest.mark.lab
def test_its_first_command_prints_what_it_shows(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "examples" / "csl", ignore=LEFT_BEHIND)
    check_console(consoles("csl")[0], tmp_path)


@pytest.mark.takes("three processes and a picture")
def test_the_page_of_programs_prints_what_it_shows(tmp_path):
    check_console(consoles("examples")[0], tmp_path)
    assert (tmp_path / "jacobi_7_run/jacobi_7.png").stat().st_size > 10_000


@pytest.mark.lab
def test_a_program_of_the_vendors_prints_what_it_shows(tmp_path):
    checkout = os.environ.get("CSTOOL_CSL_EXAMPLES")
    if checkout is None:
        pytest.skip("CSTOOL_CSL_EXAMPLES names no checkout of the vendor's programs")
    (tmp_path / "csl-examples").symlink_to(Path(checkout).resolve())
    check_console(consoles("csl")[1], tmp_path)


@pytest.mark.takes("three commands, which are processes, and a drawing")
def test_the_commands_of_the_readme_print_what_it_shows(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "examples" / "csl", ignore=LEFT_BEHIND)
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    (console,) = re.findall(r"^```console\n(.*?)^```", readme.partition("## Programs in CSL\n")[2], re.DOTALL | re.M)
    check_console(console, tmp_path)
    assert (tmp_path / "routes.svg").stat().st_size > 10_000


# Tables


def rows(header: str, text: str = PAGE) -> list[list[str]]:
    """The cells of the table under a header line."""
    lines = text.partition(f"\n{header}\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]


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


def test_the_tables_of_builtins_libraries_package_variables_and_programs_are_those_of_the_code():
    """`cstool fabric builtins --markdown` writes the first."""
    assert PAGE.endswith(f"\n\n{builtins_markdown(language_builtins())}")
    assert f"\n| library | |\n|---|---|\n{libraries_markdown()}\n" in PAGE
    assert f"\n| module | what is there |\n|---|---|\n{host_markdown()}\n" in PAGE
    named = {row[0] for row in rows("| variable | flag | |")} - {"`CSL_IMPORT_PATH`"}
    assert named == {f"`{value}`" for name, value in vars(variables).items() if name.endswith("_VARIABLE")}
    named = re.findall(r"^\| \[(\w+)\]\((\w+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == sorted((path.parent.name,) * 2 for path in EXAMPLES.glob("*/run.py"))


def test_constants_are_those_of_the_code():
    checked = 0
    for _, shown, where, _, status in rows("| what | value | in the code | source | status |"):
        values = [part.replace(",", "") for part in re.split(r", | and |; ", shown.replace("170,000", "170000"))]
        names = re.findall(r"`((?:fabric|language)\.\w+\.[\w.]+)`", where)
        if len(names) == 1 and names[0].endswith(("queues", "INTRINSICS", "widths")):
            names = []
        for name, value in zip(names, values, strict=False):
            folder, module, attribute = name.split(".", 2)
            found = attrgetter(attribute)(importlib.import_module(f"cstool.csl.{folder}.{module}"))
            if not callable(found):
                assert f"{found:.4g}" == f"{float(value):.4g}", name
                checked += 1
        assert status.split(",")[0] in ("R1", "R2", "D", "C", "F")
    assert checked >= 20


def test_files_and_queues_in_the_table_of_constants():
    arch = importlib.import_module("cstool.csl.fabric.arch")
    table = rows("| what | value | in the code | source | status |")
    queues = {where: value for _, value, where, _, _ in table if where.endswith("queues`")}
    assert queues == {
        f"`fabric.arch.{name}.{kind}`": " ".join(map(str, getattr(getattr(arch, name), kind)))
        for name in ("WSE2", "WSE3")
        for kind in ("input_queues", "output_queues")
    }
    (fadds,) = (value for what, value, *_ in table if "`@fadds`" in what)
    assert fadds == f"{arch.WSE2.widths['fadds']} and {arch.WSE3.widths['fadds']}"
    intrinsics = importlib.import_module("cstool.csl.language.intrinsics").INTRINSICS
    (functions,) = (value for *_, value in [(row[1],) for row in table if "INTRINSICS" in row[2]])
    names = ("__sqrt", "__exp", "__tan", "__pow")
    assert functions == "; ".join(str(intrinsics[name].cycles) for name in names)
    for _, _, where, _, _ in table:
        for file in re.findall(r"`(fabric/\w+\.py)`", where):
            assert (PROJECT / "cstool" / file).is_file()


def test_every_flag_of_cslc_is_named(capsys):
    with pytest.raises(SystemExit):
        cslc(["--help"])
    flags = set(re.findall(r"^  (-[\w-]+)", capsys.readouterr().out, re.MULTILINE)) - {"-h"}
    named = set(re.findall(r"`(-[\w-]+)`", PAGE.partition("| flags of `cslc` | |")[2].partition("\n\n")[0]))
    assert flags == named


@pytest.mark.parametrize("message", [row[1] for row in rows("| what | message |")])
def test_what_is_refused_is_refused_in_these_words(message):
    """Each is tested in full beside the code that says it; here, that the code still has the words."""
    code = "".join(path.read_text(encoding="utf-8") for path in (PROJECT / "cstool" / "csl").rglob("*.py"))
    assert re.sub(r"^(@\w+|'a') ", "", message) in code


SIZES = {
    "allreduce_tree": ("levels:1,n:1", "levels:5,n:20"),
    "allreduce_two_phase": ("width:2,height:2,n:1", "width:7,height:5,n:40"),
    "bicgstab_7": ("width:1,height:4,n:3,steps:2", "width:4,height:1,n:5,steps:3", "width:3,height:2,n:9,steps:4"),
    "bitonic_sort": ("levels:1,n:1", "levels:2,n:17"),
    "cg_7": ("width:1,height:1,n:30,steps:3", "width:2,height:3,n:7,steps:4"),
    "cholesky": ("P:1,nt:5", "P:2,nt:3", "P:9,nt:2"),
    "column_reduce": ("width:1,height:2,n:1", "width:3,height:9,n:50"),
    "eam": (
        "width:1,height:1,reach:1,steps:2",
        "width:4,height:4,reach:3,steps:30",
        "width:9,height:6,reach:3,steps:3",
        "width:12,height:2,reach:5,steps:1",
    ),
    "fft_1d": ("n:4,width:1", "n:8,width:8", "n:32,width:2"),
    "fft_2d": ("n:2,width:2", "n:16,width:16"),
    "fft_3d": ("n:4,width:2,height:1", "n:8,width:8,height:8", "n:16,width:2,height:4"),
    "gemv_columns": ("width:2,M:1,N:2", "width:9,M:20,N:27"),
    "gemv_grid": ("width:2,height:2,M:2,N:2", "width:5,height:4,M:24,N:60"),
    "gemv_one_pe": ("M:1,N:1", "M:40,N:60"),
    "gemv_rows": ("width:1,M:1,N:1", "width:6,M:30,N:50"),
    "histogram": ("width:2,n:1,bins:1", "width:6,n:200,bins:70"),
    "jacobi_7": ("width:3,height:2,n:4,steps:2", "width:1,height:5,n:9,steps:3"),
    "life": ("width:1,height:1,rows:3,columns:3,steps:2", "width:3,height:4,rows:9,columns:6,steps:5"),
    "mandelbrot": ("width:1,height:1,rows:5,columns:3,limit:9", "width:3,height:2,rows:4,columns:9,limit:200"),
    "prefix_sum": ("width:1,n:1", "width:9,n:30"),
    "rayleigh_benard": ("width:3,height:3,n:5,steps:4", "width:1,height:4,n:6,steps:3"),
    "row_reduce": ("width:2,height:1,n:1", "width:11,height:2,n:60"),
    "sparse_axpy": (
        "width:1,height:1,features:3,outputs:2,tokens:1,capacity:6",
        "width:4,height:3,features:24,outputs:10,tokens:20,capacity:60",
    ),
    "spmv": (
        "width:1,height:1,n:30,capacity:200,kept:30",
        "width:1,height:3,n:30,capacity:100,kept:30",
        "width:5,height:2,n:40,capacity:90,kept:20",
    ),
    "spmv_hypersparse": (
        "width:1,height:2,n:300,capacity:20,kept:20",
        "width:7,height:3,n:2100,capacity:50,kept:30",
    ),
    "stencil": (
        "width:1,height:1,rows:1,columns:1,steps:1",
        "width:1,height:3,rows:20,columns:20,steps:3",
        "width:4,height:2,rows:30,columns:2,steps:4",
    ),
    "summa": ("P:1,Mt:2,Kt:2,Nt:2", "P:5,Mt:3,Kt:6,Nt:2"),
    "tlr_mvm": (
        "width:1,height:1,rows:5,columns:3,capacity:3",
        "width:5,height:2,rows:12,columns:20,capacity:12",
        "width:2,height:3,rows:30,columns:20,capacity:20",
    ),
    "wave_25": ("width:2,height:1,n:2,block:1,steps:3", "width:6,height:3,n:6,block:6,steps:2"),
    "vector_add": ("width:1,n:1", "width:9,n:333"),
}
PROGRAMS = sorted(path.parent.name for path in EXAMPLES.glob("*/run.py"))
OTHER = "cslc layout.csl --fabric-dims 60,60 --fabric-offsets 4,1 --memcpy --channels 1 -o other --arch {} --params {}"
ALWAYS = (
    *("bicgstab_7 wse2 width:1", "bitonic_sort wse2 own", "cholesky wse3 P:2", "fft_3d wse2 n:4", "life wse2 own"),
    *("rayleigh_benard wse2 width:3", "sparse_axpy wse3 width:4", "spmv_hypersparse wse2 width:1"),
)
"""what `make test` tries"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of all of them: they take files from one another."""
    return Path(shutil.copytree(EXAMPLES, tmp_path_factory.mktemp("csl") / "csl"))


def test_every_program_is_tried_and_its_scripts_differ_in_the_generation_alone() -> None:
    assert sorted(SIZES) == PROGRAMS
    for name in PROGRAMS:
        wse2, wse3 = ((EXAMPLES / name / f"commands_wse{n}.sh").read_text() for n in (2, 3))
        assert wse2.replace("wse2", "wse3") == wse3


def runs() -> list[object]:
    """Each with its own sizes on wse2; the first of its others on wse2, too, the rest on wse3."""
    found = [(name, "wse2", "own") for name in PROGRAMS]
    found += [(name, "wse3" if k else "wse2", params) for name in PROGRAMS for k, params in enumerate(SIZES[name])]
    return [
        pytest.param(*each, marks=() if " ".join(each).startswith(ALWAYS) else pytest.mark.lab, id=" ".join(each))
        for each in found
    ]


@pytest.mark.takes("a compiler, a script and a simulator, which are processes")
@pytest.mark.parametrize(("program", "arch", "params"), runs())
def test_its_script_passes(program: str, arch: str, params: str, examples: Path) -> None:
    other = f"{OTHER.format(arch, params)} && cs_python run.py --name other"
    done = typed(f"./commands_{arch}.sh" if params == "own" else other, examples / program)
    assert done.code == 0, done.stdout + done.stderr
    assert done.stdout.endswith("SUCCESS\n")
    check_cycles(program, params if arch == "wse2" else "", examples / program)


MEASURED = {
    name: (cycles, per)
    for name, _, _, cycles, per, _ in rows(
        "| program | PEs | points of a PE | simulated cycles | of | published |", PROGRAMS_PAGE
    )
}
LARGER = rows("| program | params | simulated cycles |", PROGRAMS_PAGE)


def check_cycles(program: str, params: str, folder: Path) -> None:
    """Compare the cycles that a script measured with the table of the page, where it has them."""
    if params == "own" and program in MEASURED:
        result = read_result(folder)
        assert result is not None
        assert (f"{result.cycles:,.0f}", result.per) == MEASURED[program]


@pytest.mark.lab
@pytest.mark.parametrize(("program", "params", "cycles"), LARGER)
def test_larger_programs_take_the_cycles_of_the_page(program: str, params: str, cycles: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLES, tmp_path / "csl", ignore=LEFT_BEHIND)) / program
    assert typed(f"{OTHER.format('wse2', params)} && cs_python run.py --name other", folder).code == 0
    result = read_result(folder)
    assert result is not None
    assert f"{result.cycles:,.0f}" == cycles


def test_the_page_names_programs_that_there_are() -> None:
    assert {*MEASURED} | {program for program, *_ in LARGER} <= set(PROGRAMS)
