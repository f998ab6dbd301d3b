"""Sparse against dense, whole: what holds, what does not, and that a broken kernel is caught."""

import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cstool.training.compare import race
from cstool.training.kernels.gemm_providers import PRECISIONS
from cstool.training.kernels.sparse import Pattern, matrix
from tests.end_to_end.memoryx_files import small_params
from tests.end_to_end.pages import consoles, run_console
from tests.end_to_end.refusals import error, rows, without_machine_warnings
from tests.end_to_end.runs import run_file

LAB = pytest.mark.lab
SPARSITY = {"algorithm": "static", "sparsity": 0.5}
RIGL = {"algorithm": "rigl", "sparsity": 0.8, "update": {"freq": 3}}


@pytest.fixture
def file(tmp_path, data) -> Path:
    return small_params(tmp_path / "gpt", data, init__sparsity=SPARSITY, init__loop__eval_steps=1)


def document(outcome: Any) -> dict[str, Any]:
    """Return what --json said, after a check that nothing was logged but what depends on the machine."""
    assert without_machine_warnings(outcome.stderr) == []
    found = json.loads(outcome.stdout)
    assert isinstance(found, dict)
    return found


def test_it_holds_and_says_what_was_measured(cstool, file, tmp_path):
    kept = tmp_path / "kept"
    outcome = cstool("validate", "-p", file, "--num_steps", 3, "--max_loss_gap", 1, "--model_dir", kept, "--json")
    assert outcome.code == 0
    found = document(outcome)
    assert (found["holds"], found["problems"]) == (True, [])
    assert found["measured_on"] == "this host"
    setting = {name: found["setting"][name] for name in ("model", "num_steps", "file_steps", "batch_size", "tokens")}
    assert setting == {"model": "gpt2", "num_steps": 3, "file_steps": 4, "batch_size": 8, "tokens": 128}
    assert sorted(path.name for path in kept.iterdir()) == [
        *("cerebras_logs", "dense", "latest_run.log"),
        *("numerics_dense_kernels", "numerics_sparse_kernels", "sparse_0.5"),
    ]
    assert (kept / "dense" / "checkpoint_3.mdl").is_file()


@LAB
def test_kernels_are_compared_in_float32_whatever_the_run_computes_in(cstool, file):
    asked = "validate", "-p", file, "--num_steps", 3, "--max_loss_gap", 1, "--json"
    exact, rounded = (document(cstool(*asked, "--set", f"trainer.init.precision.host={p}")) for p in PRECISIONS)
    assert rounded["holds"]
    assert rounded["numerics"]["sparse_losses"] == exact["numerics"]["sparse_losses"]
    assert rounded["quality"]["dense_losses"] != exact["quality"]["dense_losses"]


@pytest.mark.takes("a comparison and the runs that it makes")
@pytest.mark.parametrize("precision", [p if p == "float32" else pytest.param(p, marks=LAB) for p in PRECISIONS])
def test_its_losses_are_those_of_runs(cstool, file, tmp_path, data, monkeypatch, precision):
    """Also where a run takes turns: then it goes on from a checkpoint of its own."""
    monkeypatch.setattr(race, "FEWEST_STEPS", 3)  # so that six are two turns
    asked = "--set", f"trainer.init.precision.host={precision}"
    found = document(cstool("validate", "-p", file, "--num_steps", 6, "--max_loss_gap", 9, *asked, "--json"))
    flags = {"trainer__init__loop__max_steps": 6, "trainer__init__loop__eval_frequency": 0}
    for name, sparsity in (("sparse", SPARSITY), ("dense", None)):
        changes = {"init__sparsity": sparsity, "init__loop__eval_steps": 1, "init__precision__host": precision}
        own = small_params(tmp_path / name, data, **changes)
        ran = run_file(own, mode="train_and_eval", lanes=2, sparse_kernels="auto", **flags)
        assert found["quality"][f"{name}_losses"] == ran.losses
        assert found["quality"][f"{name}_loss"] == ran.evaluations[-1]["loss"]
        assert found["quality"][f"{name}_accuracy"] == ran.evaluations[-1]["accuracy"]
        assert found["cost"][f"{name}_memory_bytes"]["weights"] == ran.memory_bytes["weights"]
        assert found["cost"]["step"][name]["streamed_bytes"] == ran.streamed_bytes_per_step
    assert found["quality"]["gap"] == found["quality"]["sparse_loss"] - found["quality"]["dense_loss"]


def last_of_rows(pattern: Pattern) -> np.ndarray:
    """Return the places, in the order of the stream, of the last non-zero of each row of each block."""
    counts = pattern.counts.astype(np.int64)
    return (np.cumsum(counts) - 1)[counts > 0]


def skipping(name: str) -> Any:
    """Return a kernel as a loop computes it that ends one non-zero too early."""
    kernel = getattr(matrix, name)

    def call(x: Any, pattern: Any, values: Any, *rest: Any) -> None:
        if name == "sparse_linear_gradient":
            kernel(x, pattern, values, *rest)
            rest[0][last_of_rows(values)] = 0  # the pattern is the third of its arguments
        else:
            cut = values.copy()
            cut[last_of_rows(pattern)] = 0
            kernel(x, pattern, cut, *rest)

    return call


FORWARD, DELTA, GRADIENT = (f"sparse_linear_{name}" for name in ("forward", "delta", "gradient"))


@pytest.mark.parametrize("kernel", [DELTA, *(pytest.param(name, marks=LAB) for name in (FORWARD, GRADIENT))])
def test_a_kernel_that_skips_the_last_non_zero_of_each_row_is_caught(cstool, file, monkeypatch, kernel):
    monkeypatch.setattr(matrix, kernel, skipping(kernel))
    outcome = cstool("validate", "-p", file, "--num_steps", 4, "--max_loss_gap", 9)
    assert outcome.code == 1
    assert "\nnumerics  does not hold\n" in outcome.stdout
    *_, problem, verdict = outcome.stdout.splitlines()
    assert problem.startswith("numerics: sparse and dense kernels disagree: ")
    assert verdict == "verdict: does not hold"


@pytest.mark.takes("a comparison, of whole runs")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=LAB)])
@pytest.mark.parametrize("sparsity", [pytest.param(SPARSITY, marks=LAB), RIGL])
def test_kernels_that_round_otherwise_agree(cstool, file, monkeypatch, sparsity, seed):
    """As on a CPU with other vectors: every number that a sparse kernel writes is off by some roundings."""
    rng = np.random.default_rng(seed)

    def rounding(kernel: Any, place: int) -> Any:
        def call(*given: Any) -> None:
            kernel(*given)
            out = given[place]
            out *= 1 + 2.0**-23 * rng.uniform(-2, 2, out.shape).astype(np.float32)

        return call

    for name, place in ((FORWARD, 4), (DELTA, 3), (GRADIENT, 3)):
        monkeypatch.setattr(matrix, name, rounding(getattr(matrix, name), place))
    asked = ("--set", f"trainer.init.sparsity={json.dumps(sparsity)}", f"trainer.init.seed={seed}", "--lanes", 1)
    found = document(cstool("validate", "-p", file, *asked, "--num_steps", 10, "--max_loss_gap", 9, "--json"))
    assert found["numerics"]["problems"] == []
    assert found["numerics"]["gradient_difference"] > 2.0**-24


@pytest.mark.takes("a comparison, of whole runs")
def test_a_loss_that_is_too_far_off_is_no(cstool, file):
    asked = ("--sparsity", 0.99, "--num_steps", 12, "--max_loss_gap", 0)
    found = document(outcome := cstool("validate", "-p", file, *asked, "--json"))
    assert outcome.code == 1
    gap = found["quality"]["gap"]
    assert gap > 0
    assert found["problems"] == [
        f"quality: the held-out loss of the sparse run exceeds that of the dense one by {gap:.4f} nats per token, "
        "--max_loss_gap is 0"
    ]


@LAB
def test_a_sweep_and_its_picture(cstool, file, tmp_path):
    pictures = [tmp_path / name for name in ("a.svg", "a.png")]
    plots = [word for picture in pictures for word in ("--plot", picture)]
    outcome = cstool(
        *("validate", "-p", file, "--num_steps", 2, "--max_loss_gap", 9, "--sweep", "0.9,0.75,0.5", "--json"), *plots
    )
    assert outcome.code == 0
    found = document(outcome)
    assert found["sparsity"] == "0.5"
    assert [point["sparsity"] for point in found["sweep"]] == ["0.5", "0.75", "0.9"]
    densities = [point["density"] for point in found["sweep"]]
    assert densities == pytest.approx([0.5, 0.25, 0.1], rel=1e-2)
    streamed = [point["cost"]["step"]["sparse"]["streamed_bytes"] for point in found["sweep"]]
    assert all(more > less for more, less in itertools.pairwise(streamed))
    svg, png = (picture.read_bytes() for picture in pictures)
    assert svg.startswith(b"<?xml")
    assert png.startswith(b"\x89PNG")
    # A sweep alone says by its first share what the verdict is of.
    asked = ("--set", "trainer.init.sparsity=null", "--num_steps", 1, "--max_loss_gap", 9, "--json")
    found = document(cstool("validate", "-p", file, "--sweep", "0.9,0.8", *asked))
    assert (found["sparsity"], [point["sparsity"] for point in found["sweep"]]) == ("0.9", ["0.8", "0.9"])


@LAB
def test_masks_that_begin_full_are_noted(cstool, file):
    rigl = "trainer.init.sparsity={algorithm: rigl, sparsity: 0.8, update: {start: 2, freq: 3}}"
    found = document(cstool("validate", "-p", file, "--set", rigl, "--num_steps", 3, "--max_loss_gap", 9, "--json"))
    assert found["numerics"]["steps"] == 2
    assert found["notes"] == ["training begins dense, so numerics compares kernels on weights without zeros"]


@LAB
def test_what_is_counted_is_what_a_run_has(cstool, file):
    """Of every algorithm; the room for a schedule's densest mask, too."""
    for sparsity in (
        "{sparsity: 0.9, algorithm: set, update: {freq: 2}}",
        "{algorithm: gmp, sparsity: {type: linear, init: 0.5, slope: 0.1}, update: {freq: 2}}",
        "{sparsity: 0.5, algorithm: dropconnect}",
        "[{sparsity: 0.5, param_filter: '*.0.*proj_q*'}, {sparsity: 0.9}]",
    ):
        asked = ("--set", f"trainer.init.sparsity={sparsity}", "--num_steps", 3, "--max_loss_gap", 9, "--json")
        found = document(cstool("validate", "-p", file, *asked))["cost"]
        assert all(row["density"] is None or 0.05 < row["density"] < 0.7 for row in found["rows"])
        for run in ("dense", "sparse"):
            account = found[f"{run}_memory_bytes"]
            kept = sum(account.get(name, 0) for name in ("weights", "optimizer_state", "sparse_patterns"))
            assert found["step"][run]["memory_bytes"] == kept, sparsity


@LAB
@pytest.mark.usefixtures("with_params")
def test_the_page_shows_what_it_prints(cstool, tmp_path):
    """Line by line up to the first number, which is another one on every machine."""
    prepare, console = consoles("validate")
    run_console(cstool, prepare.partition("\n")[0])
    command, _, printed = console.removeprefix("$ cstool ").partition("\n")
    small = ["init.loop.eval_steps=1", "init.model.num_hidden_layers=2"]
    small += [f"fit.{part}_dataloader.batch_size=4" for part in ("train", "val")]
    fewer = ("--num_steps", 4, "--max_loss_gap", 9, "--set", *(f"trainer.{each}" for each in small))
    assert words(cstool(*command.split(), *fewer).said) == words(printed)
    assert (tmp_path / "gpt_tiny.png").stat().st_size > 10_000


def words(text: str) -> list[str]:
    """Return how each line begins, up to its first number or column."""
    return [re.split(r"[-+]?\d|  +", line.strip())[0] for line in text.splitlines()]


def test_a_run_that_comes_to_nan_is_named(cstool, file):
    changes = ("optimizer={SGD: {learning_rate: 1.0e30}}", "precision.max_gradient_norm=null")
    outcome = cstool("validate", "-p", file, "--num_steps", 4, "--set", *(f"trainer.init.{each}" for each in changes))
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.startswith("error: numerics, sparse kernels: step ")


BAD = rows("""\
--sparsity 1.5 => --sparsity: must be greater than 0 and less than 1, got 1.5
    hint: it is the share of zeros: 0.9 leaves a tenth of the weights
--sparsity nan => --sparsity: must be greater than 0 and less than 1, got nan
    hint: it is the share of zeros: 0.9 leaves a tenth of the weights
--sweep 0.5,90 => --sweep: must be greater than 0 and less than 1, got 90
    hint: it is the share of zeros: 0.9 leaves a tenth of the weights
--sweep '0.5;0.9' => --sweep: must be numbers with commas between them, got '0.5;0.9'
    hint: for example --sweep 0.5,0.75,0.9
--num_steps 0 => --num_steps: must be at least 1, got 0
--max_loss_gap -1 => --max_loss_gap: must be at least 0, got -1\nhint: 0.1 lets the sparse run lose a tenth of a nat
--tolerance 0 => --tolerance: must be greater than 0, got 0\nhint: for example 1e-5
--plot a.pdf => --plot: must end in .svg or .png, got a.pdf
--model_dir TMP/gpt =>
    --model_dir: must be empty or not there yet, since every run begins afresh, got TMP/gpt with params.yaml in it
--set trainer.fit.val_dataloader=null => TMP/gpt/params.yaml: trainer.fit.val_dataloader is missing: validate compares
        the losses on data that are held out
--num_csx 5 =>
    num_csx: must divide the batch_size (8) of TMP/gpt/params.yaml: trainer.fit.train_dataloader, got 5
    hint: 4 and 8 are the nearest; all that do: 1, 2, 4, 8
""")


@pytest.mark.parametrize(("typed", "message"), BAD)
def test_bad_input(cstool, file, tmp_path, typed, message):
    outcome = cstool("validate", "-p", file, *shlex.split(typed.replace("TMP", str(tmp_path))))
    assert outcome == (2, "", error(message))
