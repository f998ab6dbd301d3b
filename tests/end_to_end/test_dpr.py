"""DPR from its files to losses in the same bits however it is run, and to the vectors that its loss compares."""

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from cstool import ask, generate, load_params, predict
from cstool.foundation.errors import DataError, InferenceError
from cstool.model.graphs import SampleForm, build_graph
from cstool.model.ir import Graph
from cstool.training.machine import appliance
from cstool.training.machine.layout import Layout
from cstool.training.machine.plan import make_plan
from cstool.training.run.result import RunResult
from cstool.training.store import CheckpointReader
from tests.contract.refusal import refusal
from tests.end_to_end.curves import PARTS, curve_file, run_curve, write_dpr
from tests.end_to_end.ranks import by_mpirun
from tests.end_to_end.ranks import run as run_command
from tests.end_to_end.refusals import error, rows
from tests.end_to_end.runs import bits, run_file, write_trainer
from tests.reference.deterministic import STEPS
from tests.reference.dpr_case import CASES, ENCODER
from tests.reference.families import FAMILIES
from tests.reference.models import output
from tests.thread_ranks import run_ranks

CURVES = FAMILIES["dpr"].curves()


def case_file(folder: Path, case: str, **more: Any) -> Path:
    return curve_file(folder, "dpr", CURVES[case], **more)


def run_case(folder: Path, case: str, **more: Any) -> RunResult:
    """Train a case from its own weights."""
    return run_curve(folder, "dpr", CURVES[case], **more)


FEW: dict[str, Any] = {"loop": {"max_steps": 4}, "checkpoint": {"steps": 2}}


@pytest.mark.takes("five runs of a few steps")
def test_the_bits_do_not_depend_on_how_it_is_run(tmp_path):
    expected = bits(run_case(tmp_path / "1", "mean, mutual", **FEW))
    ways: list[dict[str, Any]] = [
        {"num_csx": 2, "lanes": 2},
        {"num_csx": 4},
        {"activation_checkpointing": "always"},
        {"memoryx": {"store": "file"}},
    ]
    for number, way in enumerate(ways, start=2):
        assert bits(run_case(tmp_path / str(number), "mean, mutual", **way, **FEW)) == expected, way


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> tuple[list[str], str]:
    """The bits of four steps in one process."""
    return bits(run_file(case_file(tmp_path_factory.mktemp("straight"), "one encoder", **FEW)))


@pytest.mark.parametrize(("ranks", "store"), [(2, "ram"), (3, "file")])
def test_ranks_meet_at_the_barrier(tmp_path, straight, ranks, store):
    """Each has some of the questions, whose negatives are the contexts of all."""
    file = case_file(tmp_path, "one encoder", num_csx=4, memoryx={"store": store}, **FEW)
    assert bits(run_ranks(file, ranks)) == straight


def test_so_they_do_in_waves(tmp_path, straight, monkeypatch):
    """Of four grains on three ranks, a rank with two has memory for one."""
    monkeypatch.setattr(appliance, "lay_out", partial(_in_waves, appliance.lay_out))
    file = case_file(tmp_path, "one encoder", num_csx=4, **FEW)
    assert bits(run_ranks(file, 3)) == straight
    assert bits(run_file(file, trainer__init__model_dir=str(tmp_path / "alone"))) == straight


def _in_waves(lay_out: Callable[..., Layout], graph: Graph, *, memory_bytes: list[int], **more: Any) -> Layout:
    """Lay out the systems as if a grain were all that the memory of a rank holds."""
    slot_bytes = make_plan(graph, more["grain"], trains=more["trains"]).slot_bytes
    found = lay_out(graph, memory_bytes=[slot_bytes] * len(memory_bytes), **{**more, "recompute": "never"})
    assert found.deal.waves > 1
    return found


def test_a_run_that_was_stopped_goes_on_with_the_same_bits(tmp_path, straight):
    file = case_file(tmp_path, "one encoder", **FEW)
    first = run_file(file, trainer__init__loop__max_steps=2)
    rest = run_file(file, lanes=2)
    assert ([loss.hex() for loss in (*first.losses, *rest.losses)], bits(rest)[1]) == straight


@pytest.mark.lab
def test_bfloat16_learns_as_float32_does(tmp_path):
    """The loss, of about 3, is a mean of scores whose roundings are of 2^-9."""
    exact, rounded = (
        run_file(case_file(tmp_path / host, "mean, mutual", precision={"max_gradient_norm": 1.0, "host": host}, **FEW))
        for host in ("float32", "bfloat16")
    )
    assert exact.losses != rounded.losses
    np.testing.assert_allclose(rounded.losses, exact.losses, rtol=0.02)


@pytest.mark.lab
def test_a_sparse_run_is_held_against_a_dense_one(cstool, tmp_path):
    """What is beyond the barrier has no time of its own in a lane."""
    file = case_file(tmp_path, "one encoder", **FEW)
    outcome = cstool("validate", "-p", file, "--sparsity", 0.5, "--num_steps", 2, "--max_loss_gap", 9, "--json")
    assert outcome.code == 0, outcome.stderr or outcome.stdout
    assert outcome.document["holds"]


def test_a_batch_without_any_negative_is_an_error(tmp_path):
    file = case_file(tmp_path, "cls", batch_size=1)
    with h5py.File(tmp_path / "data" / "dataset-partition-1.h5", "r+") as data:
        contexts = data["data_1"][:, :, :1]
        del data["data_1"]
        data.create_dataset("data_1", data=contexts)
    with pytest.raises(DataError) as raised:
        run_file(file)
    assert str(raised.value) == (
        f"{file}: trainer.fit.train_dataloader.batch_size: must be at least 2 where a sample has no context but the "
        "right one, got 1\nhint: a question is told what does not answer it by the contexts of others; alone it learns "
        "nothing"
    )


def test_an_evaluation_tells_the_mean_of_what_training_does_that_learns_nothing(tmp_path):
    """A tenth of the samples meets at a time, there as here."""
    file = case_file(tmp_path, "mean, mutual", schedulers=[{"ConstantLR": {"learning_rate": 0.0}}])
    losses = run_file(file, trainer__init__loop__max_steps=STEPS).losses
    [found] = run_file(file, mode="eval").evaluations
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-6)


BATCH, CONTEXTS, QUESTION, CONTEXT = 4, 2, 6, 9
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, *(f"w{number}" for number in range(len(SPECIAL), ENCODER["vocab_size"]))]
CASE_NAMES = {"cls": "cls", "mean": "mean, mutual", "pooler": "pooler", "one": "one encoder"}


def samples() -> dict[str, np.ndarray]:
    """Questions and contexts of words, of different lengths: data_0 (n, 3, S), data_1 (n, 3, C, S')."""
    rng, found = np.random.default_rng(8), {}
    for name, shape in (("data_0", (QUESTION,)), ("data_1", (CONTEXTS, CONTEXT))):
        lengths = rng.integers(3, shape[-1] + 1, (BATCH, *shape[:-1], 1))
        mask = np.arange(shape[-1]) < lengths
        ids = rng.integers(len(SPECIAL), len(WORDS), mask.shape) * mask
        found[name] = np.stack([ids, mask, np.zeros_like(ids)], axis=1).astype(np.int32)
    return found


def texts(table: np.ndarray) -> list[str]:
    """The texts of a table, one after the other."""
    rows = table[:, 0].reshape(-1, table.shape[-1])
    return [" ".join(WORDS[token] for token in row if token) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with a vocabulary, samples and the params of each case."""
    folder = tmp_path_factory.mktemp("dpr")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "data").mkdir()
    write_dpr(folder / "data", samples())
    loader = {"data_processor": "DPRHDF5DataProcessor", "data_dir": str(folder / "data"), "batch_size": BATCH}
    for name, case in CASE_NAMES.items():
        init = {**CASES[case], "loop": {"max_steps": 3}, "checkpoint": {"steps": 3}}
        init |= {"model_dir": str(folder / name), "seed": 4}
        write_trainer(folder / f"{name}.yaml", init, {"train_dataloader": loader, "val_dataloader": loader})
    return folder


@pytest.fixture(scope="module")
def checkpoint_of(folder) -> Callable[[str], Path]:
    """Train a case for three steps, once; what its last evaluation said is written beside its params."""

    def train(name: str) -> Path:
        result = run_file(folder / f"{name}.yaml", mode="train_and_eval")
        (folder / f"{name}.loss").write_text(str(result.evaluations[-1]["loss"]))
        return folder / name / "checkpoint_3.mdl"

    return cache(train)


@pytest.fixture(params=[pytest.param("cls", marks=pytest.mark.lab), "mean", "pooler", "one"])
def trained(request, checkpoint_of) -> tuple[str, Path]:
    """A case and its checkpoint."""
    return request.param, checkpoint_of(request.param)


def vectors(path: Path, folder: Path, side: str, **more: Any) -> np.ndarray:
    """Those of all samples."""
    asked = texts(samples()["data_0" if side == "question" else "data_1"])
    given: dict[str, Any] = {"tokenizer": folder / "vocab.txt", "special_tokens": False, "progress": "none", **more}
    return ask(path, asked, embed=side, **given).embeddings


def twin(path: Path, model: Any) -> list[np.ndarray]:
    """What training hands to the loss, in float64: vectors of questions and of contexts, with padding beside them."""
    graph = build_graph(model, SampleForm(QUESTION, contexts=CONTEXTS, context_tokens=CONTEXT))
    with CheckpointReader(path) as reader:
        weights = {name: reader.read(f"model.{name}").astype(np.float64) for name in graph.weights}
    values: dict[str, np.ndarray] = {}
    for prefix, table in zip(("questions_", "ctx_"), samples().values(), strict=True):
        values |= {f"{prefix}{part}": table[:, place].reshape(-1) for place, part in enumerate(PARTS)}
    *ops, loss = graph.ops
    for op in ops:
        sequence = QUESTION if op.outputs[0].startswith("questions_") else CONTEXT
        made = output(op, [values[name] for name in op.inputs], [weights[name] for name in op.weights], sequence, None)
        values |= zip(op.outputs, made if isinstance(made, tuple) else (made,), strict=True)
    return [values[name] for name in loss.inputs[:2]]


def test_they_are_those_that_the_loss_compares(folder, trained):
    name, path = trained
    model = load_params(folder / f"{name}.yaml").model
    asked, given = vectors(path, folder, "question"), vectors(path, folder, "context")
    for found, expected in zip((asked, given), twin(path, model), strict=True):
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=2e-6)
    scores = asked.astype(np.float64) @ given.T.astype(np.float64) / model.softmax_temperature
    chosen = scores[np.arange(BATCH), ::CONTEXTS]
    loss = np.log(np.exp(scores).sum(axis=1)) - np.diag(chosen)
    if model.mutual_information:
        back = np.log(np.exp(chosen).sum(axis=0)) - np.diag(chosen)
        loss = (loss * CONTEXTS + back) / (1 + CONTEXTS)
    assert loss.mean() == pytest.approx(float((folder / f"{name}.loss").read_text()), rel=1e-5)


def test_they_have_the_same_bits_however_they_are_asked_for(cstool, folder, trained, tmp_path):
    name, path = trained
    asked = texts(samples()["data_1"])
    alone = [
        ask(path, text, embed="context", tokenizer=folder / "vocab.txt", special_tokens=False, progress="none")
        for text in asked
    ]
    expected = np.concatenate([answers.embeddings for answers in alone])
    assert expected.tobytes() == vectors(path, folder, "context").tobytes()
    words = [word for text in asked for word in ("--prompt", text)]
    typed = (*words, "--mode", "infer", "--embed", "context", "--tokenizer", folder / "vocab.txt")
    for way in ((), ("--lanes", 1, "--batch_size", 3), ("--memoryx", "file", "--model_dir", tmp_path)):
        file = tmp_path / "v.npy"
        given = ("--checkpoint_path", path, "--output", file, "--no_special_tokens")
        outcome = cstool("run", "-p", folder / f"{name}.yaml", *typed, *given, *way)
        assert (outcome.code, outcome.stdout) == (0, ""), outcome.stderr
        assert np.load(file).tobytes() == expected.tobytes(), way


def test_a_title_and_a_text_are_a_pair_and_lines_come_from_files(cstool, folder, checkpoint_of, tmp_path):
    lines = [{"prompt": "w7 w8", "pair": "w9 w10"}, {"prompt": "w7 w8 w9 w10"}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = ("--prompt_file", tmp_path / "p.jsonl", "--output", tmp_path / "a.jsonl")
    typed = ("--checkpoint_path", checkpoint_of("mean"), "--embed", "context", "--tokenizer", folder / "vocab.txt")
    outcome = cstool("run", "--mode", "infer", *typed, *files)
    assert outcome.code == 0, outcome.stderr
    found = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [(each["prompt"], each["pair"]) for each in found] == [("w7 w8", "w9 w10"), ("w7 w8 w9 w10", None)]
    assert len(found[0]["embedding"]) == ENCODER["hidden_size"]
    assert found[0]["embedding"] != found[1]["embedding"]


@pytest.mark.lab
def test_two_ranks_answer_as_one_process(folder, checkpoint_of, tmp_path):
    path = checkpoint_of("mean")
    typed = ["--checkpoint_path", str(path), "--mode", "infer", "--embed", "question", "--prompt", "w7 w8", "--json"]
    typed += ["--tokenizer", str(folder / "vocab.txt"), "--model_dir", str(tmp_path)]
    found = json.loads(run_command(*by_mpirun(folder / "mean.yaml", *typed)).output)
    alone = ask(path, "w7 w8", embed="question", tokenizer=folder / "vocab.txt", progress="none")
    assert [answer["embedding"] for answer in found["answers"]] == alone.embeddings.tolist()
    assert found["host"]["nodes"] == 2


WHICH = "hint: it has an encoder for each, and their vectors are what it answers"
REFUSED = rows(
    """\
--prompt w7 => embed: must be question or context for dpr, got none\nWHICH
--prompt w7 --embed pooled => embed: must be question or context for dpr, got pooled\nWHICH
--prompt w7 --max_tokens 3 => --max_tokens: must be for a model that generates text, got dpr
--prompt [MASK] --top_k 3 => --top_k: must be for tokens that are filled in, got dpr
--prompt LONG --embed context => prompt: must have at most the 32 tokens of the model, got 33
    hint: --truncate_prompt takes its first ones
--embed context => --prompt: must be given for an encoder\nhint: or --prompt_file, with a prompt in each line
""".replace("WHICH", WHICH)
)


@pytest.mark.parametrize(("typed", "message"), REFUSED)
def test_what_it_refuses(cstool, folder, typed, message):
    words = ("run", "-p", folder / "cls.yaml", "--mode", "infer", "--tokenizer", folder / "vocab.txt")
    typed = ["w7 " * 31 if word == "LONG" else word for word in typed.split()]
    assert cstool(*words, *typed) == (2, "", error(message))


def test_from_python_it_neither_generates_nor_classifies(checkpoint_of):
    path = checkpoint_of("mean")
    with refusal(InferenceError, "prompt: must be for a model that generates text, got dpr", None):
        generate(path, "w7", progress="none")
    with refusal(InferenceError, "predict: must be for a model of images, got dpr", "`ask` is for texts"):
        predict(path, progress="none")
