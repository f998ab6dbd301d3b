"""`cstool fabric`."""

import io
import json
from pathlib import Path

import pytest

from cstool.csl.fabric.stats import read_stats
from cstool.csl.fabric.trace import Recorder, read_trace
from cstool.csl.sdk.artifact import write_program
from tests.end_to_end.refusals import error, rows
from tests.unit.csl.fabric.waits import sender_and_receiver
from tests.unit.csl.pictures.fabrics import switched

RUN = """
from cerebras.sdk.runtime.sdkruntimepybind import SdkRuntime
runner = SdkRuntime("out")
runner.load()
runner.run()
print("the host waits")
runner.stop()
"""


@pytest.fixture
def directory(folder):
    """A directory `sums` in the current one with a compiled program, a host script and command scripts."""
    write_program(sender_and_receiver(5), Path("sums/out"))
    Path("sums/run.py").write_text(RUN)
    Path("sums/commands_wse2.sh").write_text("set -e\necho running >&2\ncs_python run.py\n")
    Path("sums/commands_wse3.sh").write_text("echo no wse3 here; exit 3\n")
    return Path("sums")


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A directory that was run once, with a trace."""
    from cstool.csl.verbs import run_directory

    folder = tmp_path_factory.mktemp("ran")
    write_program(sender_and_receiver(5), folder / "out")
    (folder / "run.py").write_text(RUN)
    (folder / "commands_wse2.sh").write_text("cs_python run.py\n")
    said = []
    run_directory(folder, trace=folder / "t.trace", show=said.append)
    assert said == ["the host waits"]
    Recorder(sender_and_receiver(5)).save(folder / "empty.trace")
    long = Recorder(sender_and_receiver(5))
    long(2**51, 0, "task", "main")
    long.save(folder / "long.trace")
    return folder


@pytest.fixture
def ran(once, monkeypatch):
    monkeypatch.chdir(once)
    return once


@pytest.fixture
def drawn(folder):
    """The working directory has a program with routes."""
    write_program(switched(), Path("out"))
    return folder


def test_a_directory_is_run_and_what_it_took_is_told(cstool, directory, golden):
    done = cstool("fabric", "run", "sums")
    assert (done.code, done.stderr) == (0, "")
    golden("cli/fabric_run.txt", done.stdout)
    assert {path.name for path in directory.iterdir()} >= {"sim_stats.json", "sim.log"}


def test_a_copy_leaves_the_directory_as_it_was(cstool, directory):
    before = {path.name for path in directory.iterdir()}
    assert cstool("fabric", "run", "sums", "--copy", "there").code == 0
    assert {path.name for path in directory.iterdir()} == before
    assert read_stats(Path("there/sim_stats.json")).pes["sent"].tolist() == [[5, 0]]


def test_a_script_that_fails_is_an_error_with_its_code(cstool, directory):
    assert cstool("fabric", "run", "sums", "--arch", "wse3") == (
        1,
        "no wse3 here\n",
        "error: sums/commands_wse3.sh: must end with exit code 0, ended with 3\nhint: see what it said above\n",
    )


def test_a_script_without_a_simulation_has_no_numbers(cstool, directory):
    Path("sums/quiet.sh").write_text('echo "$CSTOOL_FABRIC_MAX_CYCLES"; command -v cslc cs_python >/dev/null\n')
    assert cstool("fabric", "run", "sums", "--script", "quiet.sh", "--max_cycles", "77") == (0, "77\n", "")
    document = cstool("fabric", "run", "sums", "--script", "quiet.sh", "--json")
    assert json.loads(document.stdout) == {"script": "sums/quiet.sh", "exit_code": 0, "simulated": None}
    assert document.stderr == "\n"


def test_a_limit_of_cycles_ends_the_run(cstool, directory):
    done = cstool("fabric", "run", "sums", "--max_cycles", "9")
    assert done.code == 1
    assert "the program did not end within 9 cycles" in done.stdout


def test_colors_are_listed_and_drawn(cstool, drawn, golden):
    listed = cstool("fabric", "routes", "out", "-o", "all.svg")
    assert (listed.code, listed.stderr) == (0, "")
    golden("cli/fabric_routes.txt", listed.stdout)
    assert cstool("fabric", "routes", "out", "-o", "one.svg", "--color", "9").code == 0
    assert Path("all.svg").stat().st_size > Path("one.svg").stat().st_size
    assert f"{drawn.name}/out: routes of 1 color on 4 x 3 PEs of wse2" in Path("one.svg").read_text()
    assert [use["color"] for use in cstool("fabric", "routes", "out", "--json").document["colors"]] == [0, 5, 9, 21]


def test_a_simulation_is_debugged_with_commands_of_a_file_or_stdin(cstool, directory, golden, monkeypatch):
    Path("commands.txt").write_text("until 10\n\n# to the end\ncontinue\nwaits\nback 2\n")
    done = cstool("fabric", "debug", "sums", "--commands", "commands.txt")
    assert (done.code, done.stderr) == (0, "")
    golden("cli/fabric_debug.txt", done.stdout)
    monkeypatch.setattr("sys.stdin", io.StringIO(Path("commands.txt").read_text()))
    assert cstool("fabric", "debug", "sums") == done
    Path("commands.txt").write_text("until 10\nstop\nbrek\n")
    failed = cstool("fabric", "debug", "sums", "--commands", "commands.txt")
    assert failed.code == 2
    assert failed.stderr == error("debugger: each of its commands must be valid, 2 of 3 were not")


def test_a_script_without_a_simulation_is_not_debugged(cstool, directory):
    failed = cstool("fabric", "debug", "sums", "--arch", "wse3", "--commands", "/dev/null")
    message = "sums: a simulation must begin, the script ended with 3 before one\nhint: see what it said above"
    assert (failed.code, failed.stdout, failed.stderr) == (1, "no wse3 here\n", error(message))
    Path("sums/quiet.sh").write_text("true\n")
    quiet = cstool("fabric", "debug", "sums", "--script", "quiet.sh", "--commands", "/dev/null")
    assert quiet.refusal == error("sums: a simulation must begin, the script has begun none")


@pytest.mark.takes("two host scripts")
def test_one_of_several_simulations_is_debugged(cstool, directory):
    Path("commands.txt").write_text("")
    Path("sums/twice.sh").write_text("cs_python run.py; cs_python run.py\n")
    twice = ("fabric", "debug", "sums", "--script", "twice.sh", "--commands", "commands.txt")
    assert "; simulation 2 of 2 is repeated here" in cstool(*twice).stdout
    assert "; simulation 1 of 2 is repeated here" in cstool(*twice, "--simulation", "1").stdout
    message = "--simulation: must be 1 to 2, which the script has run, got 3"
    assert cstool(*twice, "--simulation", "3").stderr == error(message)


REFUSED = rows("""\
directory run none => none: must be a directory with a program in CSL, there is none
directory run sums/out => sums/out: must have commands_wse2.sh, has no script
    hint: --script NAME says what it is called
directory run sums --script x.sh => sums: must have x.sh, has commands_wse2.sh, commands_wse3.sh
    hint: --script commands_wse2.sh runs that one
directory run sums --copy sums => sums: must be a new folder, there is one already
directory run sums --copy /dev/null/x => /dev/null/x: cannot be written: Not a directory
directory run sums --max_cycles 0 => --max_cycles: Input should be greater than or equal to 1
    hint: `cstool fabric run --help` lists what there is
directory run sums --trace no/t.trace => no/t.trace: cannot be written, there is no directory {here}/no
drawn routes out -o x.pdf => --output: must end in .svg or .png, got x.pdf
drawn routes out -o x.svg --color 3 => color: must be one of 0, 5, 9, 21, which have routes, got 3
drawn routes out -o no/x.svg => no/x.svg: cannot be written: No such file or directory
drawn routes . => .: must be a directory with a compiled program, has no out.json
    hint: cslc layout.csl ... -o DIRECTORY writes one
directory debug none => none: must be a directory with a program in CSL, there is none
directory debug sums --commands no.txt => no.txt: cannot be read, got: No such file or directory
directory debug sums --commands sums/out => sums/out: cannot be read, got: Is a directory
folder heat . => .: must have a sim_stats.json, in it or beside it, it has none
    hint: a run writes it at its end: `cstool fabric run DIR`
ran trace t.trace --pe 1 => a PE must be X.Y, its column and row, got '1'\nhint: for example 1.0
ran trace t.trace --pe 2.0 => t.trace: must be asked for a PE within PE 0.0 to PE 1.0, got PE 2.0
ran trace t.trace --pe 2.0 --chrome c.json => t.trace: must be asked for a PE within PE 0.0 to PE 1.0, got PE 2.0
ran trace t.trace --link 1.0 => a link must be X.Y:PORT, PORT one of RAMP, WEST, EAST, NORTH, SOUTH, got '1.0'
    hint: for example 1.0:EAST
ran trace t.trace --cycles 3 => --cycles: must be FROM:TO, two cycles, got '3'
    hint: `cstool fabric trace --help` lists what there is
ran trace t.trace --chrome no/c.json => no/c.json: cannot be written: No such file or directory
ran trace t.trace --format simfab -o no/t.log => no/t.log: cannot be written, got: No such file or directory
ran trace t.trace -o t.log => --output: must come with --format, which says what is written\nhint: --format simfab
ran trace sim_stats.json => sim_stats.json: must be a trace of a fabric, it is not, or is damaged
    hint: `cstool fabric run DIR --trace FILE` records one
ran page t.trace -o t.pdf => --output: must end in .html, got t.pdf
ran page t.trace -o no/t.html => no/t.html: cannot be written: No such file or directory
ran page t.trace -o t.html --every 0 => --every: Input should be greater than or equal to 1
    hint: `cstool fabric page --help` lists what there is
ran page none.trace -o t.html => none.trace: must be a recorded trace, there is none
    hint: `cstool fabric run DIR --trace FILE` records one
ran page . -o t.html => .: must be a recorded trace, it is a directory
    hint: `cstool fabric run DIR --trace FILE` records one
ran page sim_stats.json -o t.html => sim_stats.json: must be a trace of a fabric, it is not, or is damaged
    hint: `cstool fabric run DIR --trace FILE` records one
ran page empty.trace -o t.html => empty.trace: must have events, has none
    hint: a trace has events from the first launch, or the first wavelet, on
ran page long.trace -o t.html => long.trace: must have at most 2^50 cycles for a page, has 2,251,799,813,685,248
""")


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_cannot_be_run_drawn_or_asked_is_said(cstool, request, typed, message):
    where, *command = typed.split()
    request.getfixturevalue(where)
    assert cstool("fabric", *command).refusal == error(message.format(here=Path.cwd()))


def test_heat_is_told_and_drawn_from_wherever_the_numbers_are(cstool, ran, tmp_path, golden):
    told = cstool("fabric", "heat", "sim_stats.json", "-o", str(tmp_path / "heat.svg"))
    assert (told.code, told.stderr) == (0, "")
    golden("cli/fabric_heat.txt", told.stdout)
    assert "PEs had a task in" in (tmp_path / "heat.svg").read_text()
    for place in (".", "out"):
        assert cstool("fabric", "heat", place).stdout.splitlines()[1:] == told.stdout.splitlines()[1:]
    document = cstool("fabric", "heat", ".", "--json").document
    assert document["fullest_link"] == {"pe": [0, 0], "port": "EAST", "wavelets": 5}
    assert document["pes"]["sent"] == [[5, 0]]


def test_a_trace_is_asked(cstool, ran, golden, tmp_path):
    golden("cli/fabric_trace.txt", cstool("fabric", "trace", "t.trace").stdout)
    golden("cli/fabric_trace_pe.txt", cstool("fabric", "trace", "t.trace", "--pe", "1.0").stdout)
    golden("cli/fabric_trace_link.txt", cstool("fabric", "trace", "t.trace", "--link", "0.0:east").stdout)
    chrome = tmp_path / "c.json"
    assert cstool("fabric", "trace", "t.trace", "--chrome", str(chrome)).stdout.endswith(
        f"written for Perfetto: {chrome}\n"
    )
    assert json.loads(chrome.read_text())["otherData"]["kind"] == "simulated"


def test_a_trace_is_written_as_the_vendors_simulator_writes_lines(cstool, ran, tmp_path):
    said = cstool("fabric", "trace", "t.trace", "--format", "simfab").stdout
    assert said.startswith("@0 dimX=2, dimY=1\n")
    written = cstool("fabric", "trace", "t.trace", "--format", "simfab", "-o", str(tmp_path / "t.log")).stdout
    assert written == f"written for wse-viz: {tmp_path}/t.log\n"
    assert (tmp_path / "t.log").read_text() == said


def test_a_trace_is_asked_of_some_cycles(cstool, ran):
    hops = cstool("fabric", "trace", "t.trace", "--link", "0.0:EAST", "--json").document["carried"]
    middle = hops[2]["time"]
    some = ("--cycles", f"{middle}:{middle + 1}")
    assert cstool("fabric", "trace", "t.trace", "--link", "0.0:EAST", *some, "--json").document["carried"] == hops[2:4]
    late = cstool("fabric", "trace", "t.trace", "--pe", "1.0", "--link", "0.0:EAST", "--cycles", "1000:", "--json")
    assert {name: late.document[name] for name in ("did", "came", "carried")} == {"did": [], "came": [], "carried": []}


def test_a_trace_is_a_page(cstool, ran, tmp_path):
    path = tmp_path / "t.html"
    written = cstool("fabric", "page", "t.trace", "-o", str(path)).stdout
    assert written == f"written for a browser: {path}, {path.stat().st_size:,} bytes, every cycle\n"
    text = path.read_text()
    assert f"<title>{ran.name}/t.trace</title>" in text
    sampled = cstool("fabric", "page", "t.trace", "-o", str(path), "--every", "3", "--json").document
    assert sampled == {"page": str(path), "bytes": path.stat().st_size, "every": 3}
    assert cstool("fabric", "page", "t.trace", "-o", str(path), "--every", "3").stdout.endswith("one of 3 cycles\n")


def test_a_page_that_is_too_large_says_what_to_do(cstool, ran, tmp_path, monkeypatch):
    monkeypatch.setattr("cstool.csl.page.page.LARGEST", 20_000)
    monkeypatch.setattr("cstool.csl.page.page.page_of", lambda *_: "x" * 50_000)
    path = tmp_path / "t.html"
    cycles = read_trace(Path("t.trace")).end
    assert cstool("fabric", "page", "t.trace", "-o", str(path)).refusal == error(
        f"{path}: a page must have at most 20,000 bytes, that of 2 x 1 PEs and {cycles} cycles has 50,000\n"
        "hint: --every 5 samples it more, or run it with fewer PEs"
    )
    assert not path.exists()


def test_builtins_are_listed_with_what_is_refused_and_why(cstool):
    lines = [" ".join(line.split()) for line in cstool("fabric", "builtins").said.splitlines()]
    assert lines[0] == "builtin arguments where only what it does"
    assert "@queue_flush 1 functions wse3 calls the teardown task when a queue is empty" in lines
    assert "@set_rectangle 2 layout block width and height of the program, in PEs" in lines
    below = lines[lines.index("builtin why") :]
    assert "@bind_rotating_tasks tasks that take turns are not simulated; count in the task itself" in below
    document = cstool("fabric", "builtins", "--json").document["builtins"]
    assert all(each["where"] and each["arguments"] for each in document if each["is_supported"])
    assert [each["name"] for each in document] == sorted(each["name"] for each in document)
    refused = [each for each in document if not each["is_supported"]]
    assert f"refused: {len(refused)} of {len(document)}" in lines
    assert len(below) == len(refused) + 1


def test_builtins_are_a_table_in_markdown(cstool):
    lines = cstool("fabric", "builtins", "--markdown").said.splitlines()
    assert lines[2:4] == [
        "| `@activate` | 1 | comptime block, functions | lets a local task run |",
        "| `@add16` | 3 to 4 | functions | dest = a + b |",
    ]
    assert {line.replace("\\|", "").count("|") for line in lines} == {5}
    assert "| `@fabss` | 2 to 3 | functions | dest = \\|a\\|, f32 |" in lines
    reason = "tasks that take turns are not simulated; count in the task itself"
    assert f"| `@bind_rotating_tasks` |  |  | refused: {reason} |" in lines
