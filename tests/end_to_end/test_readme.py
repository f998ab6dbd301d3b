"""The commands of the README, the tour, and the pages about compiling, Python and trouble print what these say."""

import contextlib
import copy
import io
import os
import re
import shlex
import shutil
import signal
import socket
import threading
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

import cstool
from cstool.model.graphs import build_graph
from cstool.model.params import load_params
from cstool.model.sparsity import assign_groups
from tests.end_to_end.pages import PROJECT, consoles, page, typed, without_numbers
from tests.end_to_end.runs import digest, gpt_params
from tests.end_to_end.worked import save_checkpoints, write_data, write_params
from tests.patience import wait_until

PYTHON_PAGE = page("python")
README = (PROJECT / "README.md").read_text(encoding="utf-8")
SPARSITY_PAGE, TOUR, CONSOLES = page("sparsity"), page("tour"), consoles("tour")


@pytest.fixture(scope="module")
def after_the_demo(tmp_path_factory) -> Path:
    """A folder as `make demo` leaves it: the text, and the checkpoint of its last step (here with random weights)."""
    folder = tmp_path_factory.mktemp("project")
    write_params(folder)
    prepare = re.search(r"^cstool data prepare text .*$", (PROJECT / "examples" / "demo.sh").read_text(), re.MULTILINE)
    assert prepare is not None
    assert typed(prepare[0], folder).code == 0
    file = folder / "params" / "gpt_tiny.yaml"
    last = load_params(file).loop.max_steps
    assert last is not None
    save_checkpoints(file, folder / "checkpoints" / "gpt_tiny", (last,))
    return folder


def outputs(console: str, folder: Path) -> list[str]:
    """Run the commands of a block, which must work, and return what each prints."""
    found = []
    for line in console.splitlines():
        done = typed(line.removeprefix("$ "), folder)
        assert done.code == 0, f"{line}\n{done.stdout}{done.stderr}"
        found.append(done.stdout)
    return found


@pytest.mark.lab
def test_the_commands_after_the_demo_about_a_file_and_about_the_wafer_work(after_the_demo):
    for console, count in ((0, 6), (2, 4), (4, 4)):
        assert len(outputs(CONSOLES[console], after_the_demo)) == count
    for picture in ("gpt2_small.svg", "gpt3_175b.png"):
        assert (after_the_demo / picture).stat().st_size > 10_000


@pytest.mark.lab
def test_the_model_of_the_demo_writes_at_its_end(after_the_demo):
    last = (PROJECT / "examples" / "demo.sh").read_text().splitlines()[-1]
    assert typed(last, after_the_demo).said.startswith("def ")


@pytest.mark.lab
def test_the_sparse_run_works_and_is_that_of_the_page_about_sparsity(after_the_demo):
    (printed,) = outputs(CONSOLES[3], after_the_demo)
    assert "Sparsity: 24 weights, and which kernels computed with them:" in printed
    assert CONSOLES[3] in SPARSITY_PAGE


def test_the_sections_on_the_page_about_sparsity_are_right():
    for section in re.findall(r"```yaml\n(.*?)```", SPARSITY_PAGE, re.DOTALL):
        written = yaml.safe_dump(yaml.safe_load(section)["sparsity"], default_flow_style=True, width=1000)
        params = load_params(PROJECT / "params" / "gpt_tiny.yaml", overrides=[f"trainer.init.sparsity={written}"])
        assert assign_groups(params.sparsity, build_graph(params.model, 128), params.sparsity_place)


@pytest.mark.lab
def test_the_commands_about_many_runs_work(after_the_demo, monkeypatch):
    monkeypatch.setenv("CSTOOL_APPLIANCE", str(after_the_demo / "appliance"))
    (console,) = (console for console in CONSOLES if "cstool job" in console)
    try:
        job = outputs(console, after_the_demo)[1].strip()
        [log] = outputs(f"cstool job wait {job} >/dev/null && cstool job logs {job}", after_the_demo)
        assert "Step=620, Loss=" in log
    finally:
        typed("cstool appliance stop --cancel_jobs", after_the_demo)


def test_the_mistakes_that_it_shows_are_told_in_these_words(tmp_path):
    command, *expected = CONSOLES[1].splitlines()
    write_params(tmp_path)
    assert typed(command.removeprefix("$ "), tmp_path).refusal.splitlines() == expected


def test_its_two_commands_are_targets_of_the_makefile_and_its_output_of_the_demo_is_of_these_params():
    makefile = (PROJECT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}: install", makefile, re.MULTILINE), target
    last = load_params(PROJECT / "params" / "gpt_tiny.yaml").loop.max_steps
    assert f"held-out loss of the GPT after step {last}:" in README


@pytest.mark.lab
def test_the_page_of_the_compiler_shows_what_it_prints(tmp_path):
    write_params(tmp_path)
    for more in ("--out a.json", "--num_csx 5 --out b.json"):
        assert typed(f"cstool compile --params params/fc_mnist.yaml {more}", tmp_path).code == 0
    assert len(consoles("compile")) == 4
    for console in consoles("compile"):
        commands = re.findall(r"^\$ (.*)$", console, re.MULTILINE)
        done = [(command, typed(command, tmp_path)) for command in commands]
        assert "".join(f"$ {command}\n{found.stdout}{found.stderr}" for command, found in done) == console


@pytest.mark.lab
def test_its_snippet_trains_on_from_the_demo(after_the_demo, tmp_path):
    (snippet,) = re.findall(r"```python\n(.*?)```", TOUR, re.DOTALL)
    assert "num_steps=50" in snippet
    short = snippet.replace("num_steps=50", "num_steps=2").replace("max_tokens=60", "max_tokens=4")
    shutil.copytree(after_the_demo, tmp_path / "project")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.chdir(tmp_path / "project")
        exec(compile(f"import cstool\n{short}", "tour.md", "exec"), {})  # noqa: S102
    assert re.match(r"loss \d\.\d\d to \d\.\d\d\ndef ", printed.getvalue())


@pytest.mark.lab
@pytest.mark.usefixtures("with_params")
def test_the_examples_print_what_the_page_says():
    shutil.copy(PROJECT / "LICENSE", "LICENSE")
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PYTHON_PAGE, re.DOTALL)
    assert len(blocks) == PYTHON_PAGE.count("```python") == PYTHON_PAGE.count("```text")
    names: dict[str, Any] = {}
    for code, shown in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "docs/python.md", "exec"), names)  # noqa: S102
        assert printed.getvalue() == shown


class Signals(cstool.Silent):
    """Stands for Ctrl-C while a step is computed."""

    def advance(self, task: str, done: int, detail: str = "", *, loss: float | None = None) -> None:
        if loss is not None and done == 2:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.takes("three runs")
def test_ctrl_c_saves_and_the_same_call_goes_on_with_the_same_bits(tmp_path, data):
    file = gpt_params(tmp_path, data)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(cstool.Interrupted) as stopped:
        cstool.train(file, progress=Signals())
    assert stopped.value.message == f"stopped by SIGINT after step 2; it is saved in {tmp_path / 'model_dir'}"
    assert stopped.value.hint == "the same command continues from there"
    assert signal.getsignal(signal.SIGINT) is handler
    rest = cstool.train(file)
    whole = cstool.train(file, model_dir=tmp_path / "whole", num_csx=2)
    assert rest.losses == whole.losses[2:]
    assert digest(Path(rest.checkpoints[-1])) == digest(Path(whole.checkpoints[-1]))


def test_trainers_of_one_file_go_on_from_each_other(tmp_path, data):
    file = gpt_params(tmp_path, data)
    first = yaml.safe_load(file.read_text())["trainer"]
    later = copy.deepcopy(first)
    later["init"]["loop"]["max_steps"] = 6
    file.write_text(yaml.safe_dump({"trainer": [{"trainer": first}, {"trainer": later}]}))
    found = cstool.run_trainers(cstool.load_all_params(file), progress="none")
    assert [getattr(result, "last_step", None) for result in found] == [4, 6]
    checked = cstool.load_all_params(file, overrides={"trainer.init.backend.validate_only": True})
    assert cstool.run_trainers(checked) == [cstool.NotRun("validate_only", "gpt2", None)] * 2


def test_every_verb_is_on_the_page():
    verbs = [name for name in cstool.__all__ if name.islower() and name != "load_system"]
    assert [verb for verb in verbs if f"`{verb}`" not in PYTHON_PAGE] == []


TROUBLE = page("troubleshooting")
ENTRIES = dict(re.findall(r"^### ([^\n]*)\n\n```console\n(.*?)```", TROUBLE, re.DOTALL | re.MULTILINE))
LABELS = ("error: ", "interrupted: ", "hint: ")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """The folder that the page is about, of fewer books."""
    folder = tmp_path_factory.mktemp("trouble")
    write_params(folder)
    write_data(folder)
    save_checkpoints(folder / "params" / "gpt_tiny.yaml", folder / "checkpoints" / "gpt_tiny", (400, 600))
    return folder


def interrupt_after(path: Path) -> threading.Thread:
    """Press Ctrl-C as soon as a file is there."""

    def press() -> None:
        wait_until(path.exists, f"no {path}")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    return thread


def without_facts(line: str) -> str:
    """Return a line without numbers and digests."""
    return without_numbers(re.sub(r"\b[0-9a-f]{16}\b", "DIGEST", line))


def is_long(console: str) -> bool:
    """Whether a run is stopped, or commands are those of a shell, which the lab types."""
    commands = re.findall(r"^\$ (.*)$", console, re.MULTILINE)
    return "^C" in console or not all(command.startswith("cstool") and ">" not in command for command in commands)


@pytest.mark.parametrize(
    "heading",
    [pytest.param(each, marks=pytest.mark.lab if is_long(console) else ()) for each, console in ENTRIES.items()],
)
def test_a_message_is_what_the_command_above_it_prints(prepared, tmp_path, monkeypatch, heading, cstool):
    folder = tmp_path / "work"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    console = ENTRIES[heading]
    assert any(line.startswith(LABELS) for line in console.splitlines())
    for command, expected in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", console, re.MULTILINE):
        if command.startswith("cstool") and ">" not in command:
            presses = expected.startswith("^C\n")
            thread = interrupt_after(Path("checkpoints/gpt_tiny/checkpoint_601.mdl")) if presses else None
            code, _, stderr = cstool(*shlex.split(command)[1:])
            if thread is not None:
                thread.join()
            # The loss that is no number is the one answer of no; all else is something to fix.
            assert code == (130 if presses else 1 if "not finite" in expected else 2)
        else:
            code, _, stderr = typed(command)
            assert code == (2 if expected else 0)
        stderr = stderr.replace("TMP/work/", "").replace("TMP/", "/home/me/")
        stderr = stderr.replace(f" on {socket.gethostname()}: ", " on alpha: ").replace(str(folder), "/home/me")
        printed = [line for line in stderr.splitlines() if line.startswith(LABELS)]
        shown = expected.removeprefix("^C\n").splitlines()
        assert [without_facts(line) for line in printed] == [without_facts(line) for line in shown]
    shutil.rmtree(folder)


def test_no_message_stands_where_no_test_sees_it():
    assert len(re.findall(r"^```console", TROUBLE, re.MULTILINE)) == len(ENTRIES) >= 30
    messages = [line for line in TROUBLE.splitlines() if line.startswith(LABELS)]
    assert messages == [
        line for console in ENTRIES.values() for line in console.splitlines() if line.startswith(LABELS)
    ]
