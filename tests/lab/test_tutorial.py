"""The commands of the tutorial run in its order, as they are written, and print what it shows."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.pages import without_numbers
from tests.event_files import scalars_of

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "tutorial.md").read_text(encoding="utf-8")
CLONE = "/home/me/cstool"
"""where the reader of the page has the project"""


def steps() -> list[tuple[str, str]]:
    """Return (command, what is printed) of all console blocks of the page, in order."""
    blocks = "".join(re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
    found = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:[^$\n].*\n|\n)*)", blocks, re.MULTILINE)
    return [(command, printed) for command, printed in found]


def type_command(command: str, folder: Path, stop_after: str | None = None) -> tuple[int, list[str]]:
    """Run a command as a shell does, and return its exit code and the lines on a terminal, without dates.

    Args:
        command: to run
        folder: to run it in
        stop_after: press Ctrl-C once this is in a line
    """
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines = []
    with process:
        for line in process.stdout:
            lines.append(re.sub(r"^\d{4}-.* (INFO|WARNING):   ", "", line.rstrip("\n")).replace(str(folder), CLONE))
            if stop_after is not None and stop_after in line:
                os.killpg(process.pid, signal.SIGINT)
                lines.append("^C")
                stop_after = None
    return process.returncode, lines


def looks_like(printed: list[str], shown: str) -> bool:
    """Tell whether lines are those of the page up to numbers; three dots stand for anything, lines or a part of one."""
    pattern = "".join(
        r"(?:.*\n)*?"
        if line == "..."
        else ".*".join(map(re.escape, re.split(r",? ?\.\.\.,? ?", without_numbers(line)))) + r"\n"
        for line in shown.splitlines()
    )
    return re.fullmatch(pattern, "".join(f"{without_numbers(line)}\n" for line in printed)) is not None


LOSS_MARGIN, SIZE_MARGIN = 0.25, 1.6
"""how far figures may be from those of the page: losses [nats], and counts by a factor, since the reference of the
language is a little longer or shorter in every version of Python, and sums have other orders on other CPUs"""


SIZES = r"(?m)^(?:train|val) .* ([\d,]+)$"


def check_figures(command: str, printed: list[str], shown: str) -> None:
    """Check that losses, and the sizes of the data set, are about those of the page."""
    for kind, margin in (
        (r"(?:Avg Eval Loss: |bigram model of .*: |held out  loss )([\d.]+)", "loss"),
        (SIZES, "size"),
    ):
        found, expected = (re.findall(kind, "\n".join(lines)) for lines in (printed, shown.splitlines()))
        # Of a block that is cut short the last figures are shown.
        for one, other in zip(reversed(found), reversed(expected), strict=False):
            one, other = (float(each.replace(",", "")) for each in (one, other))
            near = abs(one - other) < LOSS_MARGIN if margin == "loss" else 1 / SIZE_MARGIN < one / other < SIZE_MARGIN
            assert near, (command, one, other)


def check_text(command: str, printed: list[str], shown: str) -> None:
    """Check what a model writes by its shape: the prompts begin lines, headings are those of the page."""
    if "--json" in command:
        found, expected = json.loads("\n".join(printed)), json.loads(shown)
        assert found.keys() == expected.keys()
        assert [each.keys() for each in found["completions"]] == [each.keys() for each in expected["completions"]]
        return
    prompts = re.findall(r"--prompt '(.*?)'", command)
    text = "\n".join(printed)
    for prompt in prompts:
        assert re.search(rf"^{re.escape(prompt)}", text, re.MULTILINE), (prompt, text)
    # What it writes, and how much until its stop, is another on every CPU.
    assert len(text) > sum(map(len, prompts))
    headings = [re.sub(r": .*", "", line) for line in printed if line.startswith("--- prompt")]
    assert headings == re.findall(r"^--- prompt \d+ of \d+", shown, re.MULTILINE)


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A folder with what the tutorial uses of the project."""
    folder = tmp_path_factory.mktemp("clone").resolve()
    shutil.copytree(PROJECT / "params", folder / "params")
    return folder


def test_the_first_hour_goes_as_the_page_says(clone):
    codes = {"hiden_size": 2, "checkpoint diff": 1, "diff params": 1}
    for command, shown in steps():
        stop_after = re.search(r"(Step=\d+,).*\n\^C\n", shown)
        code, printed = type_command(command, clone, None if stop_after is None else stop_after[1])
        expected = 130 if stop_after else next((codes[word] for word in codes if word in command), 0)
        assert code == expected, (command, printed)
        if "--mode infer" in command:
            check_text(command, printed, shown)
        else:
            assert looks_like(printed, shown), "\n".join([command, *printed])
            check_figures(command, printed, shown)
    # The text says so.
    record = json.loads((clone / "datasets" / "mine" / "prepared.json").read_text())
    assert 1.5 < 300 * 8 * 128 / record["parts"]["train"]["tokens"] < 2.5, "it has read the text twice"
    # What `tensorboard --logdir checkpoints` shows: the run that was stopped has every step once.
    shown_runs = {run: scalars_of(clone / "checkpoints" / run / "events") for run in ("mine", "straight", "one_layer")}
    mine, straight, one_layer = (dict(shown_runs[run]["loss"]) for run in shown_runs)
    assert list(mine) == sorted(mine)
    assert straight == {step: loss for step, loss in mine.items() if step in straight}
    assert max(one_layer) == max(mine)
    assert [step for step, _ in shown_runs["one_layer"]["eval/loss"]] == [150, 300]
    assert {150, 300} <= set(dict(shown_runs["mine"]["eval/loss"]))
