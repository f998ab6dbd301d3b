"""Sparse against dense, whole: what holds, what does not, and that a broken kernel is caught."""

import itertools
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from cstool.kernels.gemm_providers import PRECISIONS
from cstool.kernels.sparse import Pattern, matrix, sparse_linear_delta, sparse_linear_forward, sparse_linear_gradient
from tests.end_to_end.machine_warnings import without_machine_warnings
from tests.end_to_end.refusals import error
from tests.end_to_end.runs import gpt_params, run_file

PROJECT = Path(__file__).parents[2]
LAB = pytest.mark.lab
SPARSITY = {"algorithm": "static", "sparsity": 0.5}


@pytest.fixture
def file(tmp_path, data) -> Path:
    return gpt_params(tmp_path / "gpt", data, init__sparsity=SPARSITY, init__loop__eval_steps=1)


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
    assert setting == {"model": "gpt2", "num_steps": 3, "file_steps": 4, "batch_size": 48, "tokens": 128}
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
def test_its_losses_are_those_of_runs(cstool, file, tmp_path, data, precision):
    """Also where a run takes turns: then it goes on from a checkpoint of its own."""
    # 20 steps are two turns.
    asked = "--set", f"trainer.init.precision.host={precision}"
    found = document(cstool("validate", "-p", file, "--num_steps", 20, "--max_loss_gap", 9, *asked, "--json"))
    flags = {"trainer__init__loop__max_steps": 20, "trainer__init__loop__eval_frequency": 0}
    for name, sparsity in (("sparse", SPARSITY), ("dense", None)):
        changes = {"init__sparsity": sparsity, "init__loop__eval_steps": 1, "init__precision__host": precision}
        own = gpt_params(tmp_path / name, data, **changes)
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


def skipping_forward(x: Any, pattern: Pattern, values: np.ndarray, *rest: Any) -> None:
    """Compute as a loop does that ends one non-zero too early."""
    cut = values.copy()
    cut[last_of_rows(pattern)] = 0
    sparse_linear_forward(x, pattern, cut, *rest)


def skipping_delta(delta_y: Any, transposed: Pattern, values: np.ndarray, *rest: Any) -> None:
    cut = values.copy()
    cut[last_of_rows(transposed)] = 0
    sparse_linear_delta(delta_y, transposed, cut, *rest)


def skipping_gradient(x: Any, delta_y: Any, pattern: Pattern, grad: np.ndarray, *rest: Any) -> None:
    sparse_linear_gradient(x, delta_y, pattern, grad, *rest)
    grad[last_of_rows(pattern)] = 0


@pytest.mark.parametrize(
    "skipping",
    [skipping_delta, *(pytest.param(f, marks=LAB) for f in (skipping_forward, skipping_gradient))],
)
def test_a_kernel_that_skips_the_last_non_zero_of_each_row_is_caught(cstool, file, monkeypatch, skipping):
    monkeypatch.setattr(matrix, skipping.__name__.replace("skipping", "sparse_linear"), skipping)
    outcome = cstool("validate", "-p", file, "--num_steps", 4, "--max_loss_gap", 9)
    assert outcome.code == 1
    assert "\nnumerics  does not hold\n" in outcome.stdout
    *_, problem, verdict = outcome.stdout.splitlines()
    assert problem.startswith("numerics: sparse and dense kernels disagree: ")
    assert verdict == "verdict: does not hold"


@pytest.mark.takes("a comparison, of whole runs")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=LAB)])
@pytest.mark.parametrize(
    "sparsity",
    [
        pytest.param(SPARSITY, marks=LAB),
        {"algorithm": "rigl", "sparsity": 0.8, "update": {"freq": 3}},
    ],
)
def test_kernels_that_round_otherwise_agree(cstool, file, monkeypatch, sparsity, seed):
    """As on a CPU with other vectors: every number that a sparse kernel writes is off by some roundings."""
    rng = np.random.default_rng(seed)

    def rounded(array: np.ndarray) -> None:
        array *= 1 + 2.0**-23 * rng.uniform(-2, 2, array.shape).astype(np.float32)

    def forward(x: Any, pattern: Pattern, values: Any, bias: Any, y: np.ndarray, *rest: Any) -> None:
        sparse_linear_forward(x, pattern, values, bias, y, *rest)
        rounded(y)

    def delta(delta_y: Any, transposed: Pattern, values: Any, delta_x: np.ndarray, *rest: Any) -> None:
        sparse_linear_delta(delta_y, transposed, values, delta_x, *rest)
        rounded(delta_x)

    def gradient(x: Any, delta_y: Any, pattern: Pattern, grad: np.ndarray, *rest: Any) -> None:
        sparse_linear_gradient(x, delta_y, pattern, grad, *rest)
        rounded(grad)

    for kernel in (forward, delta, gradient):
        monkeypatch.setattr(matrix, f"sparse_linear_{kernel.__name__}", kernel)
    asked = ("--set", f"trainer.init.sparsity={json.dumps(sparsity)}", f"trainer.init.seed={seed}", "--lanes", 1)
    found = document(cstool("validate", "-p", file, *asked, "--num_steps", 10, "--max_loss_gap", 9, "--json"))
    assert found["numerics"]["problems"] == []
    assert found["numerics"]["gradient_difference"] > 2.0**-24


@LAB
def test_a_tolerance_may_be_typed(cstool, file):
    """No two kernels agree to the last bit in all steps."""
    outcome = cstool("validate", "-p", file, "--num_steps", 4, "--max_loss_gap", 9, "--tolerance", 1e-14)
    assert outcome.code == 1
    assert "the tolerance is 1.0e-14\n" in outcome.stdout


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
def test_a_mask_that_changes_ends_the_comparison_of_kernels(cstool, file):
    rigl = "trainer.init.sparsity={algorithm: rigl, sparsity: 0.8, update: {freq: 3}}"
    found = document(cstool("validate", "-p", file, "--set", rigl, "--num_steps", 7, "--max_loss_gap", 9, "--json"))
    assert (found["numerics"]["steps"], found["numerics"]["mask_changes"]) == (3, True)
    assert found["numerics"]["problems"] == []
    assert len(found["quality"]["sparse_losses"]) == 7


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


@LAB
def test_a_sweep_alone_says_by_its_first_what_the_verdict_is_of(cstool, file):
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
def test_the_page_shows_what_it_prints(cstool, tmp_path, monkeypatch):
    """Line by line up to the first number, which is another one on every machine."""
    page = (PROJECT / "docs" / "validate.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(PROJECT / "params", tmp_path / "params")
    prepare, *consoles = re.findall(r"```console\n\$ cstool (.*?)\n(.*?)```", page, re.DOTALL)
    assert cstool(*prepare[0].split()).code == 0
    assert len(consoles) == 1
    for command, printed in consoles:
        fewer = ("--num_steps", 4, "--max_loss_gap", 9, "--set", "trainer.init.loop.eval_steps=1")
        outcome = cstool(*command.split(), *fewer)
        assert (outcome.code, outcome.stderr) == (0, "")
        assert words(outcome.stdout) == words(printed)
    assert (tmp_path / "gpt_tiny.png").stat().st_size > 10_000
    for image in re.findall(r"\]\((images/.*?)\)", page):
        assert (PROJECT / "docs" / image).is_file()


def words(text: str) -> list[str]:
    """Return how each line begins, up to its first number or column."""
    return [re.split(r"[-+]?\d|  +", line.strip())[0] for line in text.splitlines()]


def test_a_run_that_comes_to_nan_is_named(cstool, file):
    outcome = cstool(
        *("validate", "-p", file, "--num_steps", 4, "--set", "trainer.init.optimizer={SGD: {learning_rate: 1.0e30}}"),
        *("--set", "trainer.init.precision.max_gradient_norm=null"),
    )
    assert outcome.code == 1
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: numerics, sparse kernels: step ")


SHARE = "must be greater than 0 and less than 1, got"
ZEROS = "\nhint: it is the share of zeros: 0.9 leaves a tenth of the weights"
NUMBERS = "--sweep: must be numbers with commas between them, got"
SWEEP = "\nhint: for example --sweep 0.5,0.75,0.9"
GMP = "trainer.init.sparsity={algorithm: gmp, sparsity: {type: linear, init: 0, slope: 0.1}}"
LINEAR = "transformer_decoder.layers.*.self_attn.proj_{}_dense_layer.weight"
BAD = {
    "--sparsity 1.5": f"--sparsity: {SHARE} 1.5{ZEROS}",
    "--sparsity 0": f"--sparsity: {SHARE} 0{ZEROS}",
    "--sparsity nan": f"--sparsity: {SHARE} nan{ZEROS}",
    "--sweep 0.5,90": f"--sweep: {SHARE} 90{ZEROS}",
    "--sweep '0.5;0.9'": f"{NUMBERS} '0.5;0.9'{SWEEP}",
    "--sweep ''": f"{NUMBERS} ''{SWEEP}",
    "--num_steps 0": "--num_steps: must be at least 1, got 0",
    "--max_loss_gap -1": "--max_loss_gap: must be at least 0, got -1\n"
    "hint: 0.1 lets the sparse run lose a tenth of a nat",
    "--tolerance 0": "--tolerance: must be greater than 0, got 0\nhint: for example 1e-5",
    "--plot a.pdf": "--plot: must end in .svg or .png, got a.pdf",
    "--model_dir TMP/gpt": "--model_dir: must be empty or not there yet, since every run begins afresh, got TMP/gpt "
    "with params.yaml in it",
    "--set trainer.init.sparsity=null": "TMP/gpt/params.yaml: must ask for sparsity, which validate compares with "
    "dense: there is no trainer.init.sparsity, and no --sparsity\n"
    "hint: add --sparsity 0.9; to evaluate a checkpoint, `cstool run --mode eval --params TMP/gpt/params.yaml`",
    "--set trainer.fit.val_dataloader=null": "TMP/gpt/params.yaml: trainer.fit.val_dataloader is missing: validate "
    "compares the losses on data that are held out",
    f"--sparsity 0.9 --set '{GMP}'": f"--set {GMP}: trainer.init.sparsity.sparsity must be a number for --sparsity to "
    "take its place, got a schedule\nhint: leave out --sparsity to validate what the file asks for",
    "--num_csx 5": "num_csx: must divide the batch_size (48) of TMP/gpt/params.yaml: trainer.fit.train_dataloader, got "
    "5\nhint: 4 and 6 are the nearest; all that do: 1, 2, 3, 4, 6, 8, 12, 16, 24, 48",
    "--set trainer.init.sparsity.param_filter=no.weight": "TMP/gpt/params.yaml:31: trainer.init.sparsity.param_filter "
    "must match a matrix of a linear layer, got 'no.weight'\n"
    f"hint: the nearest are {', '.join(LINEAR.format(part) for part in 'qkv')}",
}


@pytest.mark.parametrize("typed", BAD)
def test_bad_input(cstool, file, tmp_path, typed):
    outcome = cstool("validate", "-p", file, *shlex.split(typed.replace("TMP", str(tmp_path))))
    assert outcome == (2, "", error(*BAD[typed].split("\nhint: ")))


def test_several_trainers_are_refused(cstool, file):
    trainer = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({"trainer": [trainer, trainer]}))
    rule = "TMP/gpt/params.yaml:1: trainer must be one trainer, got a list of 2"
    assert cstool("validate", "-p", file) == (2, "", error(rule, "give each phase a file of its own"))
