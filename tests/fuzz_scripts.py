"""Values that reach scripts, compiled code and names of files: nothing in them may run, or be written elsewhere.

    python -m tests.fuzz_scripts --inputs 2000 --seed 1
    python -m tests.fuzz_scripts --seed 1 --only 4711

An input is a kind and odd values, all of which follow from the seed and the number of the input. Scripts are run by
bash, with programs of Slurm that only say what they were asked; compiled programs are simulated. What would run leaves
a file behind, and the folder of an input is looked at: it must hold what was put there, and no more. Each input also
says what comes out: the words of a command as they were, a text as it was, one error, or a name that is refused.
"""

import argparse
import contextlib
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
import xml.etree.ElementTree as Xml
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from cstool.appliance.queue.job_folder import JobFolder
from cstool.appliance.queue.names import is_name
from cstool.appliance.queue.root import Root
from cstool.appliance.queue.slurm import _check_option
from cstool.appliance.queue.slurm_script import JobScript
from cstool.csl.fabric.simulation import Simulation
from cstool.csl.language.compile import compile_csl
from cstool.csl.language.source import CslError
from cstool.csl.sdk.layout_text import params_text
from cstool.csl.verbs import draw_routes
from cstool.foundation.atomic_file import is_inner_name, is_plain_name, write_replacing
from cstool.foundation.errors import ClusterError, CstoolError
from cstool.foundation.plain_text import has_controls
from cstool.foundation.slurm.batch_script import BatchJob, BatchScript, directive
from cstool.training.verbs.slurm import _check_options
from tests.unit.appliance.queue.queues import an_order
from tests.unit.csl.sdk.sdk_programs import routed_program

SHELL = r"""
$(touch PWN) | `touch PWN` | ;touch PWN; | |touch PWN | &&touch PWN | >PWN | ${X:=$(touch PWN)} | #!PWN | $HOME
* | ? | ~ | !! | ' | " | \ | \' | \" | '\'' | # | - | --wrap=x | ../ | ../../ | /etc/passwd | . | .. | EOF | %j%%
"""
PYTHON = r"""
'+str(open('PWN','w'))+' | {open("PWN","w")} | {0} | \x0aopen('PWN','w') | %s%n
\nopen('PWN','w') | __import__('os').system('touch PWN') | # coding: utf-7 | memoryview | bytearray | pe | R
lambda | None | program | x | y z | 0 | 1e9 | <script> | ]]> | <!-- | &amp; | é漢😀
"""
LINES = ["\ntouch PWN\n#", "\rtouch PWN\r", "\x0btouch PWN", "\u2028touch PWN\u2028", "\nopen('PWN','w')\n", "\n", "\t"]
LINES += ["\n    open('PWN','w')", "\\\nopen('PWN','w')", "\r\n", "\u202eabc", "\x1b[2J", "\x7f", "\x85", "\udcff"]
LINES += ['"""', "'''", '""";open("PWN","w");"""', "''';open('PWN','w');'''"]
WORDS = [piece for text in (SHELL, PYTHON) for line in text.strip().splitlines() for piece in line.split(" | ")]
PIECES = [*WORDS, *LINES, "a" * 300, " ", ""]
FAKES = {
    "srun": 'printf "%s\\0" "$@" >"$SAID"',
    "python": 'printf "%s\\0" "$@" >"$SAID"',
    "scontrol": "exit 0",
    "scancel": "exit 0",
    "sleep": "exit 0",
}


def odd(chance: random.Random, most: int = 4) -> str:
    """Return a text of some pieces."""
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(1, most)))


def plain(chance: random.Random) -> str:
    """Return a text that mostly has no line ends."""
    text = odd(chance)
    return text if chance.random() < 0.1 or not has_controls(text) else "".join(filter(str.isprintable, text))


def file_name(chance: random.Random) -> str:
    """Return a name that a file can have."""
    name = odd(chance, 3).replace("/", "_").encode("utf-8", "ignore")[:200].decode("utf-8", "ignore")
    return f"n{name}.csl"


def words_of(text: str) -> list[str]:
    """The options that a script has, as sbatch reads them."""
    lines = [line for line in text.split("\n") if line.startswith("#SBATCH")]
    return [word for line in lines for word in shlex.split(line)[1:]]


def ran(script: str, folder: Path) -> list[str]:
    """Run a script by bash, and return what its program was told."""
    bin_folder, said = folder.parent / "bin", folder.parent / "said"
    if not bin_folder.exists():
        bin_folder.mkdir()
        for name, content in FAKES.items():
            (bin_folder / name).write_text(f"#!/bin/sh\n{content}\n")
            (bin_folder / name).chmod(0o755)
    said.unlink(missing_ok=True)
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "SAID": str(said), "SLURM_JOB_ID": "7"}
    write_replacing(folder / "job.sh", script)
    subprocess.run(["bash", "job.sh"], cwd=folder, env=environment, capture_output=True, check=False, timeout=30)
    return os.fsdecode(said.read_bytes()).split("\0")[:-1]


def batch_job(chance: random.Random, folder: Path) -> str:
    """A run as a batch job: its flags, paths and words."""
    options = [f"--comment={shlex.quote(odd(chance))}" for _ in range(chance.randint(0, 2))]
    with contextlib.suppress(CstoolError):
        for option in options:
            _check_options(option)
    job = BatchJob(
        name=plain(chance),
        typed=[odd(chance) for _ in range(3)],
        command=["python", *(odd(chance) for _ in range(chance.randint(0, 5)))],
        flags=[odd(chance) for _ in range(2)],
        working_dir=Path("/", plain(chance)),
        folder=Path("/", plain(chance)),
        nodes=1,
        ranks=chance.choice([1, 2]),
        lanes=chance.choice([None, 2]),
        partition=chance.choice([None, plain(chance)]),
        time=None,
        options=options,
        max_restarts=0,
        continues=chance.random() < 0.5,
        pmi=None,
    )
    return checked_script(job, folder, lambda said: said[-len(job.command) :] == list(job.command))


def job_script(chance: random.Random, folder: Path) -> str:
    """A job of the queue as a batch job: its order."""
    order = an_order(
        typed=tuple(odd(chance) for _ in range(3)),
        program=("python", odd(chance)),
        run_words=tuple(odd(chance) for _ in range(2)),
        working_dir=Path("/", plain(chance)),
        note=plain(chance),
        labels={"a": plain(chance)},
        priority=chance.choice(["p1", "p3"]),
    )
    place = JobFolder(Path("/", plain(chance), "wsjob-" + "a" * 22))
    script, before = JobScript(place, order, odd(chance)), sys.executable
    try:
        sys.executable = "python"
        words = ["-P", "-m", "cstool.appliance.queue.slurm_node", str(place.path), script.digest]
        return checked_script(script, folder, lambda said: said == words)
    finally:
        sys.executable = before


def checked_script(script: BatchScript, folder: Path, is_right: Callable[[list[str]], bool]) -> str:
    """Check that a script runs just its command, and asks for just its options."""
    try:
        text = script.text()
    except ClusterError:
        assert any(map(has_controls, script.sbatch_options()))
        return "refused"
    assert words_of(text) == script.sbatch_options(), text
    said = ran(text, folder)
    (folder / "job.sh").unlink()
    assert is_right(said), (said, text)
    return "run"


def sbatch_option(chance: random.Random, folder: Path) -> str:  # noqa: ARG001
    """Options of sbatch that somebody types: of one line, or refused."""
    option = odd(chance)
    for check in (_check_option, _check_options):
        try:
            check(option)
        except CstoolError:
            continue
        assert option.isprintable(), option
        return "taken"
    return "refused"


def csl_program(chance: random.Random, folder: Path) -> str:
    """A program of the fabric in a file with an odd name, and with odd names in it."""
    name = file_name(chance)
    called = chance.choice([piece for piece in PIECES if piece.isidentifier()] + ["int", "F32", "shown", "open"])
    path = folder / name
    path.write_text(f"""
        fn {called}(n: u16) u16 {{ return n * 2; }}
        var called: *const fn (u16) u16 = &{called};
        var data: [2]u16 = @zeros([2]u16);
        task main() void {{ data[called(0)] = 7 / (data[1] + 1); @assert(data[0] == 7); @mov16(
          @get_dsd(mem1d_dsd, .{{ .tensor_access = |i|{{2}} -> data[i] }}), 3); }}
        comptime {{ @bind_local_task(main, @get_local_task_id(9)); @activate(@get_local_task_id(9)); }}
    """)
    written = "".join(f"\\u{{{ord(letter):x}}}" for letter in name)
    (folder / "layout.csl").write_text(
        f'layout {{ @set_rectangle(1, 1); @set_tile_code(0, 0, "{written}", .{{}}); }}', encoding="utf-8"
    )
    try:
        Simulation(compile_csl("layout.csl"), max_cycles=10_000).run_until()
        return "simulated"
    except CslError:
        return "refused"
    finally:
        path.unlink()
        (folder / "layout.csl").unlink()


def layout_params(chance: random.Random, folder: Path) -> str:
    """A text that a layout in Python hands to a program: it is the same text there."""
    text = odd(chance).replace("\udcff", "")
    program = "param t: comptime_string;\ncomptime { @comptime_print(t); }\n"
    given = params_text({"t": text}, {}, frozenset())
    (folder / "pe.csl").write_text(program)
    (folder / "layout.csl").write_text(
        f'layout {{ @set_rectangle(1, 1); @set_tile_code(0, 0, "pe.csl", {given}); }}',
        encoding="utf-8",
        newline="",
    )
    said: list[str] = []
    compile_csl("layout.csl", say=said.append)
    (folder / "pe.csl").unlink()
    (folder / "layout.csl").unlink()
    assert said[0].endswith(text), (said, text)
    return "handed over"


def names(chance: random.Random, folder: Path) -> str:
    """Names that others wrote: they stay in their folder, or are refused."""
    name = odd(chance)
    with contextlib.suppress(CstoolError):
        assert Root(folder).job(name).path.parent == folder / "jobs"
        assert is_name(name)
    if is_plain_name(name):
        assert Path(os.path.normpath(folder / name)).parent == folder
    if is_inner_name(name):
        assert Path(os.path.normpath(folder / name)).is_relative_to(folder)
        return "inner"
    return "refused"


def picture(chance: random.Random, folder: Path) -> str:
    """Texts in a picture: it is well formed, and nothing in it runs."""
    program, title = routed_program(), odd(chance)
    streams = {odd(chance): color for color in list(program.routes)[:1]}
    with warnings.catch_warnings(action="ignore"):  # of letters that no font has
        draw_routes(replace(program, streams=streams), folder / "a.svg", title)
    tree = Xml.parse(folder / "a.svg")
    (folder / "a.svg").unlink()
    tags = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert "script" not in tags, tags
    return "drawn"


KINDS: dict[str, tuple[int, Callable[[random.Random, Path], str]]] = {
    "batch job": (10, batch_job),
    "job of a queue": (8, job_script),
    "option of sbatch": (5, sbatch_option),
    "program of the fabric": (10, csl_program),
    "layout in Python": (5, layout_params),
    "name": (5, names),
    "picture": (1, picture),
}
"""kind -> how often it is drawn, and what makes and checks an input"""


def fuzz(folder: Path, seed: int, numbers: Iterator[int] | range) -> Iterator[tuple[int, str, str]]:
    """Yield number, kind and outcome of each input; what ran, or is wrong, is an AssertionError."""
    inside = folder / "inside"
    inside.mkdir()
    before = os.getcwd()
    os.chdir(inside)
    try:
        for number in numbers:
            chance = random.Random(f"{seed} {number}")
            kind = chance.choices([*KINDS], [often for often, _ in KINDS.values()])[0]
            outcome = KINDS[kind][1](chance, inside)
            found = sorted(path.name for path in [*inside.iterdir(), *folder.iterdir()])
            assert {*found} <= {"inside", "bin", "said"}, f"input {number}, {kind}: there is {found}"
            yield number, kind, outcome
    finally:
        os.chdir(before)


def as_sbatch_reads(seed: int, count: int) -> int | None:
    """Return how many of so many options sbatch itself reads as they were meant; None where there is none."""
    if shutil.which("sbatch") is None:
        return None
    chance = random.Random(seed)
    words = [f"--comment={plain(chance)}" for _ in range(count)]
    words = [word for word in words if word.isprintable()]
    with tempfile.TemporaryDirectory() as folder:
        script, config = Path(folder, "job.sh"), Path(folder, "slurm.conf")
        lines = ["#!/bin/bash", *(directive([word]) for word in words), "true", ""]
        script.write_text("\n".join(lines), encoding="utf-8")
        config.write_text("ClusterName=x\nSlurmctldHost=localhost\nSlurmctldPort=1\nMessageTimeout=2\n")
        environment = {**os.environ, "SLURM_CONF": str(config)}
        done = subprocess.run(["sbatch", "-vvv", script], env=environment, capture_output=True, text=True, check=False)
    found = re.findall(r'Found in script, argument "(.*)"\n', done.stderr)
    return sum(one == other for one, other in zip(found, words, strict=False)) + count - len(words)


def main() -> None:
    """Fuzz, and say what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this input alone")
    options = parser.parse_args()
    numbers = range(options.inputs) if options.only is None else range(options.only, options.only + 1)
    counts: Counter[tuple[str, str]] = Counter()
    failed: list[str] = []
    for number in numbers:  # one by one, so that one that fails does not end the others
        folder = Path(tempfile.mkdtemp(prefix="fuzz_scripts."))
        try:
            counts.update((kind, outcome) for _, kind, outcome in fuzz(folder, options.seed, range(number, number + 1)))
        except Exception as error:
            failed.append(f"input {number}: {type(error).__name__}: {str(error)[:300]!r}")
            print(failed[-1], flush=True)
        shutil.rmtree(folder)
    for (kind, outcome), count in sorted(counts.items()):
        print(f"{kind:<24}{outcome:<14}{count:>6,}")
    if options.only is None and (read := as_sbatch_reads(options.seed, 300)) is not None:
        print(f"sbatch read {read} of 300 options as they were meant")
        failed += ["sbatch reads an option in another way"] * (read < 300)
    print(f"{len(numbers):,} inputs, seed {options.seed}: {len(failed)} findings")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
