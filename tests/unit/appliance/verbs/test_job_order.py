"""From flags to an order: it asks for the same wherever it is read, and is refused before it waits for nothing."""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cstool.appliance.queue.job import Capacity, JobOrder
from cstool.appliance.verbs.job_order import VARIABLES, JobRequest, make_order, params_text
from cstool.cli import main
from cstool.foundation.errors import CstoolError
from cstool.model.graphs import SampleForm
from cstool.model.ir import Artifact, plain_digest
from cstool.model.params import Params, load_all_params, stock_names
from cstool.model.system import load_system
from cstool.plan.compiler import compile_or_load
from cstool.training.machine.data_sets import check_data
from cstool.training.verbs.run import RunRequest
from tests.end_to_end.refusals import rows
from tests.end_to_end.runs import gpt_params, run_file, write_text
from tests.unit.appliance.queue.queues import refusal

MIB = 2**20
CAPACITY = Capacity((0, 1, 2), 8 * 2**30, 10**12, 16)
STREAMED = RunRequest(execution_mode="weight_streaming")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_text(tmp_path_factory.mktemp("text") / "train", 60)


def load(file: Path | str, *overrides: str, **flags: Any) -> tuple[Params, ...]:
    return load_all_params(file, overrides=overrides, flags={key: (key, value) for key, value in flags.items()})


def again(trainers: tuple[Params, ...], folder: Path) -> tuple[Params, ...]:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "params.yaml").write_text(params_text(trainers))
    return load_all_params(folder / "params.yaml")


def order(trainers: tuple[Params, ...], capacity: Capacity | None = CAPACITY, **asked: Any) -> JobOrder:
    return make_order(trainers, JobRequest(typed=("cstool", "job", "submit"), **asked), capacity=capacity)


def compiled(params: Params, folder: Path) -> tuple[Artifact, Path]:
    form = SampleForm.of(check_data(params, "train"))
    return compile_or_load(params, load_system("cs2"), folder, form=form, execution_mode=STREAMED.execution_mode)


def refused(trainers: tuple[Params, ...], message: str, **asked: Any) -> None:
    assert refusal(lambda: order(trainers, **asked)) == message


def test_a_stock_file_asks_for_the_same_once_resolved(tmp_path):
    for name in stock_names():
        trainers = load(name)
        found = again(trainers, tmp_path)
        assert found == trainers
        assert params_text(found) == params_text(trainers)


OLDER = """
train_input: {{data_processor: GptHDF5MapDataProcessor, data_dir: {data}, batch_size: 12}}
model:
  {{name: gpt2, vocab_size: 64, hidden_size: 32, num_heads: 2, num_hidden_layers: 1, filter_size: 64,
  max_position_embeddings: 128, dropout_rate: 0.0, attention_dropout_rate: 0.0}}
optimizer: {{optimizer_type: AdamW, beta1: 0.9, beta2: 0.95, weight_decay: 0.1, learning_rate: 0.01}}
runconfig: {{max_steps: 3, checkpoint_steps: 3, model_dir: {folder}/model_dir, seed: 5}}
"""


def test_a_file_in_the_older_layout_asks_for_the_same_and_trains_to_the_same_bits(tmp_path, data):
    file = tmp_path / "older.yaml"
    file.write_text(OLDER.format(data=data, folder=tmp_path))
    trainers = load(file)
    found = again(trainers, tmp_path / "job")
    assert params_text(found) == params_text(trainers)
    first = run_file(file, execution_mode="weight_streaming")
    flags = {"trainer__init__model_dir": str(tmp_path / "other"), "execution_mode": "weight_streaming"}
    second = run_file(tmp_path / "job" / "params.yaml", **flags)
    assert first.losses == second.losses
    assert len(first.losses) == 3


def test_what_was_typed_beside_a_file_is_in_the_params_of_its_job(tmp_path, data):
    trainers = load(
        gpt_params(tmp_path, data),
        "trainer.init.optimizer={SGD: {learning_rate: 0.5, momentum: 0.9}}",
        "trainer.fit.train_dataloader.batch_size=12",
        **{"trainer.init.seed": 7},
    )
    found = again(trainers, tmp_path / "job")
    assert found == trainers
    assert (found[0].seed, found[0].train_dataloader.batch_size) == (7, 12)


def test_several_trainers_stay_several_and_a_checkpoint_that_is_yet_to_be_made_is_found(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one = yaml.safe_load(gpt_params(tmp_path / "params", data).read_text())
    one["trainer"]["init"]["model_dir"] = "out"
    two = yaml.safe_load(yaml.safe_dump(one))
    two["trainer"]["fit"]["ckpt_path"] = "out/checkpoint_4.mdl"
    two["trainer"]["init"]["loop"]["max_steps"] = 8
    file = tmp_path / "params" / "both.yaml"
    file.write_text(yaml.safe_dump({"trainer": [one, two]}))
    made = order(load(file))
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "params.yaml").write_text(made.params)
    found = load_all_params(tmp_path / "job" / "params.yaml")
    assert [params.model_dir for params in found] == [made.model_dir] * 2
    assert found[1].checkpoint_path is not None
    assert found[1].checkpoint_path.path == made.model_dir / "checkpoint_4.mdl"
    assert made.max_steps == 8


def test_every_path_of_a_job_is_absolute(tmp_path, data, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = gpt_params(tmp_path, data)
    trainers = load(Path("params.yaml"), **{"trainer.init.model_dir": "out"})
    checkpoint, trace = Path("some/checkpoint_3.mdl"), Path("trace.json")
    run = RunRequest(mode="train", checkpoint_path=checkpoint, trace=trace, execution_mode="auto")
    made = order(trainers, run=run)
    assert file.parent == tmp_path
    assert made.run_words == (
        *("run", "--mode", "train", "--checkpoint_path", f"{tmp_path}/some/checkpoint_3.mdl"),
        *("--trace", f"{tmp_path}/trace.json"),
    )
    assert (made.working_dir, made.model_dir) == (tmp_path, trainers[0].model_dir)
    paths = list(folders_in(yaml.safe_load(made.params)))
    assert len(paths) == 5, "of the run, of artifacts, of data to train, and to evaluate in two modes"
    assert all(path.startswith("/") for path in paths), paths


def folders_in(data: Any, key: str = "") -> Iterator[str]:
    if isinstance(data, dict | list):
        for name, value in data.items() if isinstance(data, dict) else ((key, value) for value in data):
            yield from folders_in(value, name)
    elif key.endswith("_dir") and data is not None:
        yield data


def test_the_words_of_a_job_run_and_compile_what_was_asked_for(tmp_path, data):
    flags = {"mode": "train_and_eval", "system": "cs3", "execution_mode": "weight_streaming", "recompute": "needed"}
    run = RunRequest(**flags, lanes=2, load_checkpoint_states="model", sparse_kernels="never", executor="python")
    made = order(load(gpt_params(tmp_path, data)), run=run, program=("python", "-m", "cstool"))
    modelled = ("--system", "cs3", "--execution_mode", "weight_streaming", "--recompute", "needed")
    assert made.run_words == (
        *("run", "--mode", "train_and_eval", *modelled, "--load_checkpoint_states", "model"),
        *("--sparse_kernels", "never", "--executor", "python"),
    )
    assert made.compile_words == ("compile", *modelled)
    assert (made.program, made.mode, made.model) == (("python", "-m", "cstool"), "train_and_eval", "gpt2")
    assert (made.needs.cores, made.needs.sources["cores"]) == (2, "stated")
    assert not made.preemptible, "it would begin anew from that checkpoint"


def test_the_key_of_a_compilation_is_that_of_the_inputs_of_its_artifact(tmp_path, data):
    [params] = trainers = load(gpt_params(tmp_path, data))
    made = order(trainers, run=STREAMED)
    artifact, _ = compiled(params, tmp_path / "compiled")
    assert made.compile_key == plain_digest(dict(artifact.inputs))
    assert order(load(gpt_params(tmp_path, data, init__seed=9)), run=STREAMED).compile_key == made.compile_key
    wider = load(gpt_params(tmp_path, data, init__model__filter_size=96))
    assert made.compile_key not in (order(wider, run=STREAMED).compile_key, order(trainers).compile_key)


def test_what_the_words_compile_is_what_the_run_takes(tmp_path, data, monkeypatch):
    """Samples have 128 tokens, also where the model would take more."""
    file = gpt_params(tmp_path, data, init__model__max_position_embeddings=256)
    made = order(load(file), compile_dir=tmp_path / "compiled", run=STREAMED)
    (tmp_path / "job.yaml").write_text(made.params)
    words = [*made.compile_words, "--params", str(tmp_path / "job.yaml")]
    monkeypatch.setattr(sys, "argv", ["cstool", *words])
    assert main() == 0
    [artifact] = (tmp_path / "compiled").glob("cs_*.json")
    [params] = load_all_params(tmp_path / "job.yaml")
    _, path = compiled(params, params.artifacts_dir)
    assert (path, len(list(path.parent.glob("cs_*.json")))) == (artifact, 1)


def test_with_an_artifact_there_is_nothing_to_compile_but_it_must_be_of_this_model(tmp_path, data):
    [params] = trainers = load(gpt_params(tmp_path, data))
    _, path = compiled(params, tmp_path / "compiled")
    made = order(trainers, run=RunRequest(artifact=path))
    assert (made.compile_words, made.compile_key) == ((), "")
    assert made.run_words[-2:] == ("--artifact", str(path))
    with pytest.raises(CstoolError, match="batch_size"):
        order(load(gpt_params(tmp_path, data, fit__train_dataloader__batch_size=12)), run=RunRequest(artifact=path))


def test_a_job_that_only_checks_compiles_nothing_and_needs_little(tmp_path):
    made = order(load("gpt_tiny", **{"trainer.init.backend.validate_only": True}))
    assert (made.compile_words, made.needs.memory_bytes, made.needs.cores) == ((), 300 * MIB, 1)


def test_artifacts_go_to_the_folder_of_the_appliance_unless_the_params_name_one(tmp_path, data):
    plain = load(gpt_params(tmp_path, data))
    named = load(gpt_params(tmp_path, data), **{"trainer.init.backend.compile_dir": str(tmp_path / "mine")})
    shared = tmp_path / "shared"
    assert order(plain).compile_dir == plain[0].model_dir / "cached_compile"
    assert order(plain, compile_dir=shared).compile_dir == shared
    assert f"compile_dir: {shared}" in order(plain, compile_dir=shared).params
    assert order(named, compile_dir=shared).compile_dir == tmp_path / "mine"


def test_few_variables_of_the_environment_go_with_a_job(tmp_path, data, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("CSTOOL_MEMORY", str(2**40))
    monkeypatch.setenv("CSTOOL_CACHE_DIR", "/some/where")
    made = order(load(gpt_params(tmp_path, data)))
    assert made.environment["CSTOOL_CACHE_DIR"] == "/some/where"
    assert set(made.environment) <= set(VARIABLES)


def test_what_is_stated_counts_and_the_rest_is_estimated(tmp_path, data):
    trainers = load(gpt_params(tmp_path, data, init__backend={"cluster_config": {"num_csx": 4}}))
    plain = order(trainers).needs
    assert set(plain.sources.values()) == {"estimated"}
    assert 230 * MIB < plain.memory_bytes < 400 * MIB
    assert (plain.cores, plain.systems, plain.seconds, plain.limit_s) == (1, 4, None, None)
    stated = order(trainers, memory="1.5GiB", disk="2GB", time="2:00:00", run=RunRequest(lanes=3)).needs
    assert (stated.cores, stated.memory_bytes, stated.disk_bytes) == (3, 1536 * MIB, 2 * 10**9)
    assert (stated.seconds, stated.limit_s) == (7200, 7200)
    assert set(stated.sources.values()) == {"stated"}


def test_a_model_that_is_too_large_to_lay_out_says_that_its_memory_is_the_most_there_is(tmp_path, data, monkeypatch):
    monkeypatch.setattr("cstool.training.host.job_needs.PLANNED_OPS", 1)
    trainers = load(gpt_params(tmp_path, data))
    made = make_order(trainers, JobRequest(), capacity=CAPACITY).needs
    assert (made.memory_bytes, made.sources["memory_bytes"]) == (CAPACITY.memory_bytes, "capped")
    stated = make_order(trainers, JobRequest(memory="1GiB"), capacity=CAPACITY).needs
    assert (stated.memory_bytes, stated.sources["memory_bytes"]) == (2**30, "stated")


def test_time_is_known_from_what_steps_took_before_and_limited_by_what_is_stated(tmp_path, data):
    trainers = load(gpt_params(tmp_path, data, init__loop={"max_steps": 1000}))
    asked: list[tuple[str, int]] = []

    def history(key: str, cores: int) -> float:
        asked.append((key, cores))
        return 0.25

    found = [
        make_order(trainers, JobRequest(time=time), capacity=CAPACITY, history=history) for time in (None, "1", "60")
    ]
    assert asked == [(found[0].compile_key, 1)] * 3
    assert [(made.needs.seconds, made.needs.limit_s) for made in found] == [(256, None), (60, 60), (256, 3600)]
    assert found[0].needs.sources["seconds"] == "measured"


def test_the_file_may_say_what_a_job_has(tmp_path, data):
    cluster = {"job_labels": ["team=lm", "run=1"], "job_priority": "p1", "job_time_sec": 900}
    trainers = load(gpt_params(tmp_path, data, init__backend={"cluster_config": {"num_csx": 1, **cluster}}))
    made = order(trainers)
    assert (made.priority, made.labels, made.needs.limit_s) == ("p1", {"team": "lm", "run": "1"}, 900)
    typed = order(trainers, priority="p3", labels=("run=2",), time="5", note="once more")
    assert (typed.priority, typed.labels, typed.needs.limit_s) == ("p3", {"team": "lm", "run": "2"}, 300)
    assert typed.note == "once more"


REFUSED = rows("""\
{memory: much} => --memory: must be a size, such as 2GiB, got 'much'
{disk: '0'} => --disk: must be a size, such as 2GiB, got '0'
{disk: 1e30} => --disk: must be a size, such as 2GiB, got '1e30'
{memory: 1e999} => --memory: must be a size, such as 2GiB, got '1e999'
{max_restarts: 2147483648} => --max_restarts: must be at most 2147483647, got 2147483648
{lanes: 2147483648} => --lanes: must be at most 2147483647, got 2147483648
{priority: p0} => --priority: must be one of p1, p2, p3, got 'p0'
{max_restarts: -1} => --max_restarts: must be at least 0, got -1
{time: soon} => --time: must be a time limit as sbatch takes it, got 'soon'
    hint: 90 or 1:30:00 is an hour and a half, 2-12 two days and a half; 1:30 is a minute and a half
{max_restarts: 1, checkpoint_path: x.mdl} =>
    --max_restarts: must not be with --checkpoint_path or --load_checkpoint_states, got both
    hint: a restart goes on from the latest state in model_dir
""")


@pytest.mark.parametrize(("asked", "message"), REFUSED)
def test_what_cannot_be_had_is_refused(tmp_path, data, asked, message):
    given = yaml.safe_load(asked)
    if "lanes" in given:
        given["run"] = RunRequest(lanes=given.pop("lanes"))
    if "checkpoint_path" in given:
        given["run"] = RunRequest(checkpoint_path=Path(given.pop("checkpoint_path")))
    refused(load(gpt_params(tmp_path, data)), message, **given)


def test_what_a_file_says_of_a_job_must_make_sense(tmp_path, data):
    for key, value, rule in (
        ("job_labels", "a=b", "must be a list of KEY=VALUE for a job, got 'a=b'"),
        ("job_time_sec", "long", "must be a number of seconds for a job, got 'long'"),
        ("job_time_sec", -1, "must be a number of seconds for a job, got -1"),
        ("job_time_sec", math.inf, "must be a number of seconds for a job, got inf"),
        ("job_time_sec", 10**400, f"must be a number of seconds for a job, got {10**400}"),
        ("job_priority", "p0", "must be one of p1, p2, p3, got 'p0'"),
    ):
        file = gpt_params(tmp_path, data, init__backend={"cluster_config": {"num_csx": 1, key: value}})
        where = f"trainer.init.backend.cluster_config.{key}"
        refused(load(file), f"{where}: {rule}" if key == "job_priority" else f"{file}: {where} {rule}")


def test_what_can_never_run_is_an_error_of_who_submits(tmp_path, data):
    file = gpt_params(tmp_path, data, fit__train_dataloader__data_dir=str(tmp_path / "none"))
    with pytest.raises(CstoolError, match="must be a folder with files"):
        order(load(file))
    with pytest.raises(CstoolError, match="must fit what a job may take"):
        order(load(gpt_params(tmp_path, data)), replace(CAPACITY, memory_bytes=200 * MIB))


def test_a_run_that_counts_its_own_steps_is_not_preempted(tmp_path, data):
    made = order(load(gpt_params(tmp_path, data, init__loop={"num_steps": 3})))
    assert (made.preemptible, made.max_steps) == (False, None)
    assert order(load(gpt_params(tmp_path, data))).preemptible
