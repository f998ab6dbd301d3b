"""What a person sees on a terminal: bars that go, text and log lines that stay whole, and nothing in between."""

import re
import shutil
import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest

import cstool as api
from cstool.foundation.errors import EstimateError
from cstool.inference.sampling import Choice, Sampling
from cstool.training.data import TextRequest, prepare_text
from cstool.training.host import calibrate
from tests.end_to_end.runs import TEXT, gpt_params
from tests.end_to_end.worked import run, save_checkpoints
from tests.terminal import Shown, on_terminal

WIDTHS = pytest.mark.parametrize("columns", [80, pytest.param(100, marks=pytest.mark.lab)])
WRITES = ("--mode", "infer", "--temperature", "0", "--max_tokens", "40", "--truncate_prompt", "--prompt", TEXT[:90])


@pytest.fixture(autouse=True)
def _terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


def seen(*words: object, columns: int = 80, **more: Any) -> Shown:
    """What a person sees of a command that goes well."""
    shown = on_terminal(columns, lambda: run(*map(str, words)), **more)
    assert shown.code == 0
    return shown


def tasks(shown: Shown) -> list[str]:
    found = (re.match(r"(.+?) +[━╸╺]+ +\S", line) for line in shown.passing)
    return list(dict.fromkeys(bar[1] for bar in found if bar is not None))


@WIDTHS
def test_text_comes_as_it_is_and_the_log_beside_it(cstool, ready, columns):
    shown = seen("run", "--params", ready, *WRITES, columns=columns)
    text = cstool("run", "--params", ready, *WRITES).stdout.removesuffix("\n")
    first = shown.lines.index(text[:columns])
    # A terminal goes on in the next line where one is full; nothing else ends a line.
    whole = [text[start : start + columns].rstrip() for start in range(0, len(text), columns)]
    assert shown.lines[first : first + len(whole)] == whole
    assert re.fullmatch(r"\d\d:\d\d:\d\d \| Inference .*Step=32, .*tokens/sec", shown.lines[first + len(whole)])


def test_text_that_goes_into_a_file_is_not_on_the_terminal(cstool, ready, tmp_path):
    with (tmp_path / "written").open("w") as file:
        shown = seen("run", "--params", ready, *WRITES, stdout=file.fileno())
    assert (tmp_path / "written").read_text() == cstool("run", "--params", ready, *WRITES).stdout
    assert not any(line.startswith(TEXT[:30]) for line in shown.lines)


def test_ctrl_c_is_answered_below_the_text(ready, monkeypatch):
    choice = Sampling.choice

    def interrupted(self: Sampling, prompt: int, position: int) -> Choice:
        if position == 3 + 5:
            signal.raise_signal(signal.SIGINT)
        return choice(self, prompt, position)

    monkeypatch.setattr(Sampling, "choice", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        asked = "--mode infer --temperature 0 --prompt abc --logging WARNING".split()
        shown = on_terminal(80, lambda: run("run", "--params", str(ready), *asked))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (shown.code, shown.lines[0]) == (130, "abcdefgh")
    assert shown.lines[-2:] == ["i", "interrupted: stopped by SIGINT after 6 tokens"]
    assert "SIGINT: stopping as soon as the tokens under way are there." in " ".join(shown.lines[1:-2])


@WIDTHS
def test_a_run_shows_bars_while_it_works_and_leaves_its_log(tmp_path, data, columns):
    file = gpt_params(tmp_path, data, init__loop__eval_steps=1)
    shown = seen("run", "--params", file, "--mode", "train_and_eval", columns=columns)
    assert [task for task in tasks(shown) if task != "Compiling kernels"] == ["Training", "Evaluating"]
    steps = check_log(shown, tmp_path / "model_dir", columns)
    assert len(steps) == 5
    assert all("Loss=" in line for line in steps)
    assert all(len(line) > columns and "GlobalRate=" in line for line in steps[:4])


def test_an_evaluation_shows_a_bar_and_leaves_its_log(ready, tmp_path):
    shown = seen("run", "--params", ready, "--mode", "eval_all")
    assert "Evaluating" in tasks(shown)
    assert len(check_log(shown, tmp_path / "model_dir", 80)) == 1


def test_classes_are_predicted_behind_a_bar(tmp_path):
    assert run("data", "prepare", "digits", "--output", str(tmp_path / "digits")) == 0
    words = (f"--set=trainer.fit.{part}_dataloader.data_dir={tmp_path / 'digits'}" for part in ("train", "val"))
    flags = (*words, "--model_dir", str(tmp_path / "model_dir"))
    assert run("run", "--params", "fc_mnist", *flags, "--max_steps", "2") == 0
    shutil.rmtree(tmp_path / "model_dir" / "cerebras_logs")
    shown = seen("run", "--params", "fc_mnist", *flags, "--mode", "infer")
    assert "Predicting" in tasks(shown)
    assert len(check_log(shown, tmp_path / "model_dir", 80)) == 1


def check_log(shown: Shown, model_dir: Path, columns: int) -> list[str]:
    assert "━" not in "".join(shown.lines)
    (log,) = (model_dir / "cerebras_logs").glob("2*/run.log")
    written = [line.partition(":   ")[2] for line in log.read_text().splitlines()]
    # In the file a line about a step has all its fields.
    steps = [line for line in written if line.startswith(("| Train ", "| Eval ", "| Inference "))]
    assert all("GlobalRate=" in line for line in steps)
    seen = re.findall(r"^[\d:]{8} (\| .*)", "\n".join(shown.lines), re.MULTILINE)
    for line, whole in zip(seen, steps, strict=True):
        fields = [field.split(" ")[-1] if "=" not in field else field for field in line.split(", ")]
        assert ("Loss=" in line) == ("Loss=" in whole)
        assert all(re.sub(r"^\| \w+ ", "", field) in whole for field in fields)
        assert len(line) + len("12:34:56 ") <= columns
    # Every other line is there with all that it says.
    everything = without_cuts("".join(re.sub(r"^(\d\d:){2}\d\d ", "", line) for line in shown.lines))
    for line in written:
        if line not in steps and set(line) not in ({"="}, {"-"}):
            assert without_cuts(line) in everything
    return steps


def without_cuts(text: str) -> str:
    return re.sub(r"[\s\\]", "", text)


@pytest.fixture(scope="module")
def worked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("worked")
    (folder / "books").mkdir()
    for name in "abcd":
        (folder / "books" / f"{name}.txt").write_text(TEXT)
    file = gpt_params(folder, folder, init__model__vocab_size=256)
    save_checkpoints(file, folder / "model_dir", (1, 2))
    prepare_text([folder / "books"], folder / "text", TextRequest(64))
    return folder


CHECKPOINT = "model_dir/checkpoint_1.mdl"
BARS = {
    "data prepare text books --output out --sequence_length 64": "Preparing text",
    f"checkpoint verify {CHECKPOINT}": "Verifying checkpoint_1.mdl",
    f"checkpoint copy {CHECKPOINT} out.mdl": "Copying checkpoint_1.mdl",
    f"checkpoint diff {CHECKPOINT} {CHECKPOINT}": "Comparing",
    f"checkpoint convert {CHECKPOINT} out.mdl --to sparse --sparsity 0.5": "Saving checkpoint",
    f"checkpoint info {CHECKPOINT} --norms": "Computing norms",
    f"checkpoint info {CHECKPOINT} --verify": "Verifying",
    "checkpoint prune model_dir --keep 1 --dry_run": "Verifying",
    "data check text": "Checking data",
}


@pytest.mark.parametrize("command", BARS)
def test_a_bar_goes_and_what_is_printed_stays(worked, monkeypatch, cstool, command):
    monkeypatch.chdir(worked)
    shown = seen(*command.split())
    assert BARS[command] in tasks(shown)
    shutil.rmtree("out", ignore_errors=True)
    Path("out.mdl").unlink(missing_ok=True)
    # The same as elsewhere, but for where lines and cells are cut.
    assert letters("".join(shown.lines)) == letters(cstool(*command.split()).stdout)
    shutil.rmtree("out", ignore_errors=True)
    Path("out.mdl").unlink(missing_ok=True)


def test_validation_shows_what_it_trains(tmp_path, data):
    sparsity = {"algorithm": "static", "sparsity": 0.5}
    file = gpt_params(tmp_path, data, init__sparsity=sparsity, init__loop__eval_steps=1)
    shown = seen("validate", "-p", file, "--num_steps", "2", "--max_loss_gap", "9")
    assert {"dense: Training", "sparse 0.5: Training"} <= set(tasks(shown))
    assert "━" not in "".join(shown.lines)


def test_what_this_host_can_do_is_measured_behind_a_bar(monkeypatch):
    def measured(folder: Path, report: calibrate.Report) -> NoReturn:
        report("gpt2", 0, 2)
        report("disk", 1, 2)
        raise EstimateError("disk: must be there")

    monkeypatch.setattr(calibrate, "calibrate", measured)
    shown = on_terminal(80, lambda: run("estimate", "--system", "host", "--calibrate"))
    assert (shown.code, tasks(shown)) == (2, ["Measuring"])
    assert shown.lines == [
        "Measuring what this host can do: half a minute, best while nothing else runs.",
        "error: disk: must be there",
    ]


def test_from_python_text_comes_as_it_is(ready):
    texts: list[str] = []

    def generate() -> int:
        answers = api.generate(ready, "the", max_tokens=30, show=lambda _, piece: print(piece, end="", flush=True))
        texts.extend(answers.texts)
        return 0

    assert on_terminal(80, generate).lines == [texts[0].removeprefix("the").rstrip()]


def letters(text: str) -> list[str]:
    return sorted(re.sub(r"in [\d.]+ s|\s", "", text))
