"""`cstool run`: what its flags mean. What a run does is the specification of `cstool.training.run`."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import yaml

from cstool.foundation.errors import CheckpointError, Interrupted
from cstool.foundation.terminal.command import spread_lists
from cstool.inference.commands.infer_flags import _of_file
from cstool.model.graphs import build_graph
from cstool.model.ir import Artifact, read_artifact
from cstool.training.machine import data_sets
from cstool.training.run import run as run_module
from cstool.training.verbs.run_log import LOG
from tests.end_to_end.refusals import error, rows
from tests.unit.model.params.conftest import attributes, meanings

PARAMS = """\
trainer:
  init:
    model: {name: fc_mnist, hidden_sizes: [8]}
    optimizer: {SGD: {learning_rate: 0.1}}
    loop: {max_steps: 5}
    logging: {log_level: INFO}
    seed: 7
  fit:
    train_dataloader: {data_processor: MNISTDataProcessor, data_dir: ., batch_size: 4}
"""


@pytest.fixture
def called(monkeypatch, folder):
    """Stand in for the run; the arguments of its call."""
    Path("x.yaml").write_text(PARAMS)
    called: dict[str, Any] = {}

    def run(params: Any, artifact: Artifact, order: Any, _: Any) -> Any:
        called.update(vars(order), params=params, artifact=artifact)
        LOG.info("| Train Device=CSX, Step=1")
        return SimpleNamespace(as_dict=lambda: {"losses": [2.5]})

    monkeypatch.setattr(run_module, "run", run)
    monkeypatch.setattr(data_sets, "check_data", lambda params, *_: build_graph(params.model, None))
    return called


def test_flags_of_the_run_reach_it_and_without_them_the_file_decides(cstool, called):
    assert cstool("run", "--params", "x.yaml").code == 0
    names = ("mode", "checkpoint_path", "load_checkpoint_states", "lanes", "sparse_kernels", "executor", "trace")
    assert [called[name] for name in names] == ["train", None, None, None, "auto", "table", None]
    expected = {"seed": 7, "num_csx": 1, "loop.max_steps": 5, "logging.log_level": "INFO"}
    assert attributes(called["params"], expected) == expected
    cstool(
        *("run", "-p", "x.yaml", "-m", "train_and_eval", "--checkpoint_path", "a.mdl"),
        *("--load_checkpoint_states", "model", "--lanes", "3", "--sparse_kernels", "never"),
        *("--executor", "python", "--trace", "a.json"),
    )
    assert [called[name] for name in names] == [
        "train_and_eval",
        Path("a.mdl"),
        "model",
        3,
        "never",
        "python",
        Path("a.json"),
    ]


FLAGS = meanings("""\
--num_csx 2 => num_csx: 2
--num-csx 2 => num_csx: 2
--num_csx=2 => num_csx: 2
--seed 0 => seed: 0
--max_steps 9 => loop.max_steps: 9
--num_steps 3 => loop.num_steps: 3
--eval_steps 4 => loop.eval_steps: 4
--logging debug => logging.log_level: DEBUG
--disable_strict_checkpoint_loading => checkpoint.disable_strict_checkpoint_loading: true
--set trainer.init.activation_checkpointing=always => activation_checkpointing: always
--set trainer.init.seed=3 trainer.init.loop.max_steps=8 => {seed: 3, loop.max_steps: 8}
--set trainer.init.seed=3 --set trainer.init.loop.max_steps=8 => {seed: 3, loop.max_steps: 8}
--set trainer.init.seed=3 --seed 4 => seed: 4
""")


@pytest.mark.parametrize(("typed", "expected"), FLAGS)
def test_a_typed_flag_overrides_the_file(cstool, called, typed, expected):
    assert cstool("run", "--params", "x.yaml", *typed.split()).code == 0
    assert attributes(called["params"], expected) == expected


def test_a_model_dir_that_is_typed_belongs_to_the_working_directory(cstool, called, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "x.yaml").rename(tmp_path / "elsewhere" / "x.yaml")
    cstool("run", "--params", "elsewhere/x.yaml", "--model_dir", "out")
    assert called["params"].model_dir == tmp_path / "out"


@pytest.mark.parametrize(
    "typed",
    ["mount_dirs /a /b", "python_paths /a", "num_workers_per_csx 2", "job_labels a=b c=d", "disable_version_check"],
)
def test_the_vendors_flags_without_effect_are_accepted_and_noted(cstool, called, typed):
    name, *values = typed.split()
    assert cstool("run", f"--{name}", *values, "--params", "x.yaml").code == 0
    assert called["params"].notes == (f"trainer.init.backend.cluster_config.{name}: accepted, no effect",)


def test_log_params_and_artifact_are_in_the_model_dir(cstool, called):
    first = cstool("run", "--params", "x.yaml", "--model_dir", "out", "--seed", "3")
    assert re.search(r"^[-\d]{10} [:\d]{8},\d{3} INFO:   \| Train Device=CSX, Step=1$", first.stdout, re.MULTILINE)
    assert Path("out/latest_run.log").read_text() == first.stdout
    assert "    seed: 3\n" in Path("out/cerebras_logs/latest/trainer_params.yaml").read_text()
    (path,) = Path("out/cached_compile").iterdir()
    assert called["artifact"] == read_artifact(path)
    assert f"Compile artifacts successfully written to {Path('out/cached_compile').absolute()}." in first.stdout
    again = cstool("run", "--params", "x.yaml", "--model_dir", "out", "--seed", "3", "--json")
    assert json.loads(again.stdout) == {"losses": [2.5]}
    assert f'Found existing cached compile with hash: "{path.stem}"' in again.stderr
    assert again.stderr.endswith("INFO:   | Train Device=CSX, Step=1\n")


def test_compile_only_leaves_an_artifact_that_runs_later_and_runs_nothing(cstool, called):
    outcome = cstool("run", "--params", "x.yaml", "--compile_only", "--compile_dir", "kept", "--json")
    (path,) = Path("kept").iterdir()
    compiled = read_artifact(path)
    modelled = {"system": "cs2", "execution_mode": "pipelined", "step_s": compiled.step_s}
    assert json.loads(outcome.stdout) == {"mode": "compile_only", "model": "fc_mnist", "modelled": modelled}
    assert outcome.stderr.endswith(f"{path.absolute()}: compiled. Nothing ran: compile_only.\n")
    assert called == {}
    asked = ("run", "--params", "x.yaml", "--artifact", path)
    assert cstool(*asked).code == 0
    assert called["artifact"] == compiled
    hint = "leave out --artifact, and the run compiles for itself"
    refusal = error(f"{path}: must be compiled for num_csx 2, got one for 1", hint)
    assert cstool(*asked, "--num_csx", "2").stderr == refusal
    got = "got one with tensor fc_layers.0.y with shape (1, 8) instead of (1, 9) in segment 0"
    outcome = cstool(*asked, "--set", "trainer.init.model.hidden_sizes=[9]")
    assert (outcome.code, outcome.stderr) == (2, error(f"{path}: must be of this model, {got}", "compile this model"))


def test_validate_only_compiles_nothing_and_runs_nothing(cstool, called):
    outcome = cstool("run", "--params", "x.yaml", "--validate_only", "--json")
    assert json.loads(outcome.stdout) == {"mode": "validate_only", "model": "fc_mnist", "modelled": None}
    said = "Every op of the model has a kernel. Nothing was compiled, nothing ran: validate_only.\n"
    assert outcome.stderr.endswith(said)
    assert (called, list(Path().rglob("cs_*.json"))) == ({}, [])


def test_several_trainers_are_compiled_one_after_the_other(cstool, called):
    trainer = yaml.safe_load(PARAMS)["trainer"]
    Path("x.yaml").write_text(yaml.safe_dump({"trainer": [{"trainer": trainer}] * 2}))
    outcome = cstool("run", "--params", "x.yaml", "--compile_only", "--json")
    assert [found["mode"] for found in json.loads(outcome.stdout)["trainers"]] == ["compile_only"] * 2


def test_an_error_of_the_params_makes_no_model_dir(cstool, called, tmp_path):
    outcome = cstool("run", "--params", "x.yaml", "--num_csx", "0", "--model_dir", "out")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert outcome.stderr.startswith("error: --num_csx")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.yaml"]


STOPPED = ("stopped by SIGTERM after step 3", "the same command continues from there")
RAISED = [
    (CheckpointError("a.mdl: no such file"), 2, "error: a.mdl: no such file\n"),
    (Interrupted(*STOPPED), 130, "interrupted: {}\nhint: {}\n".format(*STOPPED)),
    (KeyboardInterrupt(), 130, "interrupted\n"),
]


@pytest.mark.parametrize(("raised", "code", "said"), RAISED)
def test_an_error_of_the_run_is_a_message_and_an_exit_code(cstool, called, monkeypatch, raised, code, said):
    monkeypatch.setattr(run_module, "run", Mock(side_effect=raised))
    outcome = cstool("run", "--params", "x.yaml")
    assert (outcome.code, outcome.stderr) == (code, said)
    outcome = cstool("run", "--params", "x.yaml", "--json")
    assert (outcome.code, outcome.stdout, outcome.stderr.endswith(said)) == (code, "", True)


def test_a_bug_passes_through_with_its_traceback(cstool, called, monkeypatch):
    monkeypatch.setattr(run_module, "run", Mock(side_effect=ZeroDivisionError("oops")))
    with pytest.raises(ZeroDivisionError):
        cstool("run", "--params", "x.yaml", "--model_dir", "out")
    assert Path("out/latest_run.log").read_text().endswith("ZeroDivisionError: oops\n")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "\ufeffone\r\n\ufefftwo\n\n"),
        ("a.jsonl", '\ufeff{"prompt": "one"}\n\ufeff{"prompt": "two"}\n'),
    ],
)
def test_files_of_prompts_with_a_mark_of_their_encoding_may_be_joined(tmp_path, name, content):
    (tmp_path / name).write_text(content, newline="")
    assert [text for text, _ in _of_file(str(tmp_path / name))] == ["one", "two"]


SPREAD = rows("""\
--set a=1 b=2 --json => --set a=1 --set b=2 --json
--mount-dirs /a /b => --mount-dirs /a --mount-dirs /b
--params x.yaml --seed 1 => --params x.yaml --seed 1
--params x.yaml y.yaml => --params x.yaml y.yaml
--set => --set
""")


@pytest.mark.parametrize(("typed", "spread"), SPREAD)
def test_a_list_flag_takes_several_values_in_a_row(typed, spread):
    assert " ".join(spread_lists(typed.split())) == spread
