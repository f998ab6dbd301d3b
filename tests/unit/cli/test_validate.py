"""`cstool validate`: what its flags mean and how a verdict reads. What it compares is the package's specification."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cstool.training.compare as package
from cstool.training.commands.validate_report import print_verdict
from cstool.training.verbs.run_log import LOG
from tests.unit.cli.test_run import PARAMS
from tests.unit.training.compare.verdicts import comparison, numerics, verdict


@pytest.fixture
def called(monkeypatch, folder):
    """Stand in for the verb; the arguments of its call."""
    Path("x.yaml").write_text(PARAMS)
    called: dict[str, Any] = {"verdict": verdict()}

    def validate(params: Any, request: Any, progress: Any) -> Any:
        called.update(params=params, request=request)
        LOG.info("of a run")
        LOG.warning("worth a warning")
        return called["verdict"]

    monkeypatch.setattr(package, "validate", validate)
    return called


def test_without_flags_the_file_decides(cstool, called):
    assert cstool("validate", "--params", "x.yaml").code == 0
    assert called["request"] == package.Request()
    assert (called["params"].seed, called["params"].num_csx) == (7, 1)


def test_flags_reach_the_verb(cstool, called):
    outcome = cstool(
        *("validate", "-p", "x.yaml", "--sparsity", "0.9", "--num-steps", "5", "--max_loss_gap", "0.2"),
        *("--tolerance", "1e-4", "--sweep", "0.5,0.75,0.5", "--lanes", "2", "--model_dir", "kept", "--seed", "3"),
        *("--num_csx", "2", "--set", "trainer.init.loop.max_steps=8", "trainer.init.logging.log_steps=2"),
    )
    assert outcome.code == 0
    assert called["request"] == package.Request(0.9, 5, 0.2, 1e-4, (0.5, 0.75), 2, Path("kept"))
    params = called["params"]
    assert (params.seed, params.num_csx, params.loop.max_steps, params.logging.log_steps) == (3, 2, 8, 2)


def test_the_log_of_the_runs_is_that_from_warnings_on_and_whole_in_a_folder_that_was_named(cstool, called):
    quiet = cstool("validate", "-p", "x.yaml", "--json")
    assert quiet.stderr.endswith(" WARNING:   worth a warning\n")
    assert len(quiet.stderr.splitlines()) == 1
    assert json.loads(quiet.stdout)["holds"] is True
    more = cstool("validate", "-p", "x.yaml", "--logging", "info", "--model_dir", "kept")
    assert " INFO:   of a run\n" in more.stderr
    assert "INFO:   of a run" in Path("kept/latest_run.log").read_text()


def test_who_looks_for_an_evaluation_is_told_where_it_is(cstool, called):
    assert cstool("validate", "-p", "x.yaml", "--checkpoint_path", "a.mdl").refusal == (
        "error: --checkpoint_path: is not for validate, whose runs begin afresh, sparse and dense\n"
        "hint: to evaluate a checkpoint, `cstool run --mode eval --params x.yaml --checkpoint_path a.mdl`\n"
    )


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_the_exit_code_is_the_verdict(cstool, called, as_json):
    called["verdict"] = verdict(numerics=numerics(gradient_difference=1.0))
    outcome = cstool("validate", "-p", "x.yaml", *as_json)
    assert outcome.code == 1
    assert "sparse and dense kernels disagree" in outcome.stdout


def test_a_picture_that_cannot_be_written_comes_after_the_verdict(cstool, called):
    outcome = cstool("validate", "-p", "x.yaml", "--plot", "none/a.png")
    assert outcome.code == 2
    assert outcome.stdout.endswith("\nverdict: holds\n")
    assert outcome.stderr.endswith("error: none/a.png: cannot be written: No such file or directory\n")


def test_the_report(capsys, golden):
    print_verdict(verdict())
    golden("cli/validate.txt", capsys.readouterr().out)


def test_the_report_on_what_does_not_hold(capsys, golden):
    quality = replace(comparison().quality, max_loss_gap=0.1)
    main = comparison(quality=quality)
    sweep = (replace(main, sparsity="0.5", density=0.5), main)
    masks = {"mask_changes": True, "mask_tolerance": 1e-3, "loss_differences": (1e-5, 1e-5)}
    found = verdict(comparison=main, sweep=sweep, numerics=numerics(**masks), notes=("a note",))
    print_verdict(replace(found, setting=replace(found.setting, tokens=None, file_steps=None, loss_of="sample")))
    golden("cli/validate_not.txt", capsys.readouterr().out)
